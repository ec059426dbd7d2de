# SPDX-License-Identifier: Apache-2.0
"""Message classes of rclpy, made by name, and image messages as images."""

from __future__ import annotations

from array import array
from functools import cache
from importlib import import_module
from typing import Any, TYPE_CHECKING

from embodied_r_ros.bags.images import check_raw_image, raw_image
from embodied_r_ros.bags.messages import encoded_image_from_msg, stamp_ns_from_msg
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


def stamped_image(msg: Any, index: int) -> StampedImage:
    """Image of a raw or compressed message, with its header's stamp and frame.

    Raises:
        ImageError: The encoding is not known, or the bytes are no image.
    """
    encoded = encoded_image_from_msg(msg) if isinstance(msg, CompressedImage) else None
    return StampedImage(
        index=index,
        stamp_ns=stamp_ns_from_msg(msg.header.stamp),
        image=encoded.decode() if encoded else decode_raw(msg),
        frame_id=msg.header.frame_id,
        # As offline: a PNG is too large to be passed on as it came.
        encoded=encoded if encoded and encoded.format == 'jpeg' else None,
    )


def decode_raw(msg: Image) -> NDArray[np.uint8]:
    """Image of a raw message: BGR, uint8, (H, W, 3).

    Raises:
        ImageError: The encoding is not known, or the size does not fit the bytes.
    """
    if BRIDGE is None:
        return raw_image(msg)
    check_raw_image(msg)
    try:
        return np.asarray(BRIDGE.imgmsg_to_cv2(msg, 'bgr8'), np.uint8)
    except Exception as error:
        text = f'cv_bridge cannot convert a {msg.encoding} image: {error}'
        raise ImageError(text) from None
