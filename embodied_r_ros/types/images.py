# SPDX-License-Identifier: Apache-2.0
"""Images with their stamps, and their compressed form. Arrays are BGR, uint8, (H, W, 3)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import cv2
from embodied_r_ros.common.errors import ImageError
import numpy as np

if TYPE_CHECKING:
    from embodied_r_ros.types.geometry import Intrinsics, Pose
    from numpy.typing import NDArray

# A 64 megapixel image needs 192 MB; what claims to be larger is refused before it is decoded.
MAX_PIXELS = 64 * 1024 * 1024
_MAGIC = {b'\xff\xd8\xff': 'jpeg', b'\x89PNG\r\n\x1a\n': 'png'}
_PNG_END = b'IEND'


@dataclass(frozen=True)
class StampedImage:
    """One image of a camera stream."""

    index: int  # 0-based position in its source
    stamp_ns: int  # acquisition time, from the message header
    image: NDArray[np.uint8]  # (H, W, 3), BGR
    frame_id: str = 'camera_optical_frame'
    intrinsics: Intrinsics | None = None  # None: unknown
    pose: Pose | None = None  # of the camera link at the stamp; None: unknown
    encoded: EncodedImage | None = None  # as it arrived, where it arrived compressed


@dataclass(frozen=True)
class EncodedImage:
    """A compressed image."""

    data: bytes
    format: str  # 'jpeg' or 'png'

    def decode(self) -> NDArray[np.uint8]:
        """Decode to BGR, uint8, (H, W, 3).

        Raises:
            ImageError: The bytes are not a JPEG or PNG image, or it is too large.
        """
        return decode_image(self.data)


def encode_image(
    image: NDArray[np.uint8], quality: int = 90, max_side_px: int = 0
) -> EncodedImage:
    """Compress to JPEG, shrunk so that no side exceeds `max_side_px` (0: as it is).

    Args:
        image: BGR, uint8, (H, W, 3).
        quality: JPEG quality, 1..100.
        max_side_px: Upper limit of width and height [px].

    Raises:
        ImageError: The array is not an image.
    """
    shrunk = shrink(image, max_side_px)
    if shrunk.size == 0 or shrunk.dtype != np.uint8:
        msg = f'cannot encode an array of shape {image.shape}, {image.dtype}: expected uint8 BGR'
        raise ImageError(msg)
    is_encoded, data = cv2.imencode('.jpg', shrunk, [cv2.IMWRITE_JPEG_QUALITY, quality])
    if not is_encoded:
        msg = f'OpenCV could not encode an image of shape {image.shape}'
        raise ImageError(msg)
    return EncodedImage(data.tobytes(), 'jpeg')


def shrink(image: NDArray[np.uint8], max_side_px: int) -> NDArray[np.uint8]:
    """Scale down so that no side exceeds `max_side_px`; 0, or small enough: the same array."""
    height, width = image.shape[:2]
    if max_side_px <= 0 or max(height, width) <= max_side_px:
        return image
    scale = max_side_px / max(height, width)
    size = (max(1, round(width * scale)), max(1, round(height * scale)))
    return np.asarray(cv2.resize(image, size, interpolation=cv2.INTER_AREA), np.uint8)


def decode_image(data: bytes) -> NDArray[np.uint8]:
    """Decode JPEG or PNG bytes to BGR, uint8, (H, W, 3), alpha dropped.

    Raises:
        ImageError: The bytes are not such an image, are cut off, or claim too many pixels.
    """
    if image_format(data) is None:
        msg = f'{len(data)} bytes starting with {data[:8]!r} are not a JPEG or PNG image'
        raise ImageError(msg)
    width, height = _claimed_size(data)
    if width * height > MAX_PIXELS:
        msg = f'image claims {width}x{height} pixels; at most {MAX_PIXELS} are decoded'
        raise ImageError(msg)
    # What does not state its size is not decoded: it could be of any size. Nor is a PNG
    # without its end: libpng complains on stderr, beside the one line that users get.
    is_sound = width * height > 0 and (image_format(data) != 'png' or _PNG_END in data)
    image = cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_COLOR) if is_sound else None
    if image is None:
        msg = f'{len(data)} bytes of {image_format(data)} cannot be decoded: damaged or cut off'
        raise ImageError(msg)
    return np.asarray(image, np.uint8)


def image_format(data: bytes) -> str | None:
    """Tell 'jpeg' or 'png' by the first bytes; None for anything else."""
    return next((name for magic, name in _MAGIC.items() if data.startswith(magic)), None)


def _claimed_size(data: bytes) -> tuple[int, int]:
    """Width and height [px] that the header claims, without decoding."""
    if image_format(data) == 'png':
        return int.from_bytes(data[16:20], 'big'), int.from_bytes(data[20:24], 'big')
    position = 2
    while position + 9 < len(data):
        if data[position] != 0xFF:  # decoders skip what does not belong here
            position += 1
            continue
        marker = data[position + 1]
        # SOF0..SOF15 hold the size, except DHT, JPG and DAC.
        if 0xC0 <= marker <= 0xCF and marker not in {0xC4, 0xC8, 0xCC}:
            height = int.from_bytes(data[position + 5 : position + 7], 'big')
            return int.from_bytes(data[position + 7 : position + 9], 'big'), height
        # Markers without a length: fill bytes, a stuffed zero, TEM, RST.
        if marker == 0xFF:
            position += 1
        elif marker in {0x00, 0x01} or 0xD0 <= marker <= 0xD8:
            position += 2
        else:
            position += 2 + int.from_bytes(data[position + 2 : position + 4], 'big')
    return 0, 0
