# SPDX-License-Identifier: Apache-2.0
"""Image messages to images: raw through cv_bridge where it works, compressed by their bytes."""

from __future__ import annotations

from typing import Any, TYPE_CHECKING

from embodied_r_ros.conversions import encoded_image_from_msg, stamp_ns_from_msg
from embodied_r_ros.errors import ImageError
from embodied_r_ros.images import StampedImage
from embodied_r_ros.vision.raw_images import check_raw_image, raw_image
import numpy as np
from sensor_msgs.msg import CompressedImage, Image

if TYPE_CHECKING:
    from numpy.typing import NDArray

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
