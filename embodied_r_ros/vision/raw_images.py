# SPDX-License-Identifier: Apache-2.0
"""Raw images (sensor_msgs/Image) to BGR, for live and recorded messages alike."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, TYPE_CHECKING

from embodied_r_ros.errors import ImageError
from embodied_r_ros.images import MAX_PIXELS
import numpy as np
from rosbags.image import image_to_cvimage

if TYPE_CHECKING:
    from numpy.typing import NDArray

# Bytes per pixel of the encodings that have colours or brightness (sensor_msgs/image_encodings).
# Depth and label images (16UC1, 32FC1, 8UC3, ...) say nothing of how they should be shown.
_BYTES_PER_PIXEL = {
    'bgr8': 3,
    'rgb8': 3,
    'bgra8': 4,
    'rgba8': 4,
    'mono8': 1,
    'mono16': 2,
    'yuv422': 2,
    'uyvy': 2,
    'yuv422_yuy2': 2,
    'yuyv': 2,
    'bayer_rggb8': 1,
    'bayer_bggr8': 1,
    'bayer_gbrg8': 1,
    'bayer_grbg8': 1,
}

# Encodings whose pixels share their colour in pairs.
_IN_PAIRS = {'yuv422', 'uyvy', 'yuv422_yuy2', 'yuyv'}


def check_raw_image(msg: Any) -> None:
    """Refuse an image whose encoding is not known, or whose size does not fit its bytes.

    Raises:
        ImageError: It says what was found and what was expected.
    """
    pixel_bytes = _BYTES_PER_PIXEL.get(msg.encoding)
    if pixel_bytes is None:
        msg_text = (
            f'image encoding {msg.encoding!r} is not a colour or grey image: '
            f'expected one of {", ".join(_BYTES_PER_PIXEL)}'
        )
        raise ImageError(msg_text)
    height, width, step = int(msg.height), int(msg.width), int(msg.step)
    size = memoryview(msg.data).nbytes
    fits = width * pixel_bytes <= step and height * step <= size
    if not fits or not 0 < width * height <= MAX_PIXELS:
        msg_text = (
            f'{msg.encoding} image of {width}x{height} pixels has {size} bytes in rows of {step}: '
            f'expected rows of at least {width * pixel_bytes}, and as many as its height'
        )
        raise ImageError(msg_text)
    if width % 2 and msg.encoding in _IN_PAIRS:
        msg_text = f'{msg.encoding} image is {width} pixels wide: expected an even number'
        raise ImageError(msg_text)


def raw_image(msg: Any) -> NDArray[np.uint8]:
    """Image of a sensor_msgs Image message: BGR, uint8, (H, W, 3), its own memory.

    Raises:
        ImageError: The encoding is not known, or the size does not fit the bytes.
    """
    check_raw_image(msg)
    height, width, step = int(msg.height), int(msg.width), int(msg.step)
    row_bytes = width * _BYTES_PER_PIXEL[msg.encoding]
    rows = np.frombuffer(msg.data, np.uint8)[: height * step].reshape(height, step)
    tight = SimpleNamespace(
        encoding=msg.encoding,
        height=height,
        width=width,
        is_bigendian=bool(msg.is_bigendian) and msg.encoding == 'mono16',
        data=np.ascontiguousarray(rows[:, :row_bytes]),
    )
    image = image_to_cvimage(tight, 'bgr8')  # type: ignore[arg-type]
    return np.array(image, np.uint8)
