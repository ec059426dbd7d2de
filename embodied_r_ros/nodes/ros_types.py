# SPDX-License-Identifier: Apache-2.0
"""Message classes of rclpy, made by name, and image messages as images."""

from __future__ import annotations

from array import array
from functools import cache
from importlib import import_module
from typing import Any, TYPE_CHECKING

from embodied_r_ros.bags.images import check_raw_image, ImageDecoder
from embodied_r_ros.bags.messages import stamp_ns_from_msg
from embodied_r_ros.common.errors import ImageError
from embodied_r_ros.types.images import StampedImage
import numpy as np
from sensor_msgs.msg import CompressedImage, Image

if TYPE_CHECKING:
    from numpy.typing import NDArray


@cache
def message_class(type_name: str) -> type[Any]:
    """Class of a type such as 'sensor_msgs/msg/Image'.

    Raises:
        ImportError: The package that defines it is not installed.
        AttributeError: The package has no such type.
    """
    package, kind, name = type_name.split('/')
    message: type[Any] = getattr(import_module(f'{package}.{kind}'), name)
    return message


class RosMessageFactory:
    """Makes messages of the rclpy family."""

    def make(self, type_name: str, **fields: Any) -> Any:
        """Make a message."""
        return message_class(type_name)(**fields)

    def array(self, dtype: str, values: Any) -> Any:
        """Make the value of a primitive array field."""
        # rclpy checks every element of a list of bytes, and takes an array as it is.
        if dtype == 'uint8':
            return array('B', bytes(values))
        return [float(value) if 'float' in dtype else int(value) for value in values]


ROS_MESSAGES = RosMessageFactory()
try:
    from cv_bridge import CvBridge

    BRIDGE: Any = CvBridge()
except Exception:
    BRIDGE = None
IMAGE_TYPES = {'raw': Image, 'compressed': CompressedImage}


def image_topic(base: str, transport: str) -> str:
    """Topic of an image transport under a resolved base name, as image_transport names it."""
    return base if transport in {'', 'raw'} else f'{base}/{transport}'


def stamped_image(msg: Any, index: int, decoder: ImageDecoder | None = None) -> StampedImage:
    """Image of a raw or compressed message, with its header's stamp and frame.

    Args:
        msg: The message.
        index: Position of the image in its stream.
        decoder: Of the stream, as offline; None: the image stands alone.

    Raises:
        ImageError: The encoding is not known, or the bytes are no image.
    """
    decoder = decoder or ImageDecoder('')
    plain = _bridge_image(msg)
    image, encoded = (plain, None) if plain is not None else decoder.decode(msg)
    return StampedImage(
        index=index,
        stamp_ns=stamp_ns_from_msg(msg.header.stamp),
        image=image,
        frame_id=msg.header.frame_id,
        encoded=encoded,
    )


# What cv_bridge converts like this package; the rest it refuses, or brings to 8 bits otherwise.
_BRIDGE_ENCODINGS = {'bgr8', 'rgb8', 'bgra8', 'rgba8', 'mono8'}


def _bridge_image(msg: Any) -> NDArray[np.uint8] | None:
    """Image of a plain raw message by cv_bridge, where that is installed; else None.

    Raises:
        ImageError: The size does not fit the bytes.
    """
    if BRIDGE is None or getattr(msg, 'encoding', '') not in _BRIDGE_ENCODINGS:
        return None
    check_raw_image(msg)
    try:
        return np.asarray(BRIDGE.imgmsg_to_cv2(msg, 'bgr8'), np.uint8)
    except Exception as error:
        text = f'cv_bridge cannot convert a {msg.encoding} image: {error}'
        raise ImageError(text) from None
