# SPDX-License-Identifier: Apache-2.0
"""Images with their stamps, and their compressed form. Arrays are BGR, uint8, (H, W, 3).

Depth images are registered to a camera: metres along the optical axis. They have a packed form.
"""

from __future__ import annotations

from dataclasses import dataclass
import math
import struct
from typing import Any, TYPE_CHECKING, TypeVar

import cv2
from embodied_r_ros.common.errors import ImageError
import numpy as np

if TYPE_CHECKING:
    from embodied_r_ros.core.types.arrays import Bools, Float32s, Float64s, UInt8s
    from embodied_r_ros.core.types.geometry import Intrinsics, Pose
    from numpy.typing import NDArray

# A 64 megapixel image needs 192 MB; what claims to be larger is refused before it is decoded.
MAX_PIXELS = 64 * 1024 * 1024
_MAGIC = {
    b'\xff\xd8\xff': 'jpeg',
    b'\x89PNG\r\n\x1a\n': 'png',
    b'RIFF': 'webp',
    b'BM': 'bmp',
    b'II*\0': 'tiff',
    b'MM\0*': 'tiff',
}
_ENDS = {'png': b'IEND', 'jpeg': b'\xff\xd9'}

_DEPTH_UNIT_M = 1e-3  # of the packed form, as of 16UC1 in REP 118
_FARTHEST_DEPTH = np.iinfo(np.uint16).max
_PACKED_SIDE_PX = 640  # at most


@dataclass(frozen=True)
class StampedImage:
    """One image of a camera stream."""

    index: int  # 0-based position in its source
    stamp_ns: int  # acquisition time, from the message header
    image: UInt8s  # (H, W, 3), BGR
    frame_id: str = 'camera_optical_frame'
    intrinsics: Intrinsics | None = None  # None: unknown
    pose: Pose | None = None  # of the camera link at the stamp; None: unknown
    encoded: EncodedImage | None = None  # as it arrived, where it arrived compressed
    # Depth along the optical axis [m], 0: unknown; the same view, maybe smaller. Shape (h, w).
    depth: Float32s | None = None


@dataclass(frozen=True)
class EncodedImage:
    """A compressed image."""

    data: bytes
    format: str  # 'jpeg', 'png', 'webp', 'bmp' or 'tiff'

    def decode(self, stretch: Stretch | None = None) -> UInt8s:
        """Decode to BGR, uint8, (H, W, 3), as `decode_image` does.

        Raises:
            ImageError: The bytes are no image, or it is too large.
        """
        return decode_image(self.data, stretch)


class Stretch:
    """Brings deep images of one stream to 8 bits, all by the range that the stream has shown.

    Cameras of 10 to 16 bits rarely use all of their range, thermal ones little of it.
    """

    def __init__(self) -> None:
        self._low, self._high = math.inf, -math.inf

    def apply(self, image: NDArray[Any]) -> UInt8s:
        """The image with 8 bits a channel; the range first grows by what this image shows."""
        sample = image[:: max(1, image.shape[0] // 120), :: max(1, image.shape[1] // 160)]
        low, high = np.percentile(sample, _STRETCH_PERCENTILES)
        self._low, self._high = min(self._low, float(low)), max(self._high, float(high))
        scale = 255.0 / max(1.0, self._high - self._low)
        scaled = (np.asarray(image, np.float32) - self._low) * scale
        return np.clip(scaled, 0, 255).astype(np.uint8)


Number = TypeVar('Number', np.uint8, np.float32)
_STRETCH_PERCENTILES = (0.5, 99.5)


def encode_image(image: UInt8s, quality: int = 90, max_side_px: int = 0) -> EncodedImage:
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


def shrink(
    image: NDArray[Number], max_side_px: int, mode: int = cv2.INTER_AREA
) -> NDArray[Number]:
    """Scale down so that no side exceeds `max_side_px`; 0, or small enough: the same array."""
    height, width = image.shape[:2]
    if max_side_px <= 0 or max(height, width) <= max_side_px:
        return image
    scale = max_side_px / max(height, width)
    size = (max(1, round(width * scale)), max(1, round(height * scale)))
    return np.asarray(cv2.resize(image, size, interpolation=mode), image.dtype)


def within_pixels(image: EncodedImage, pixels: int, quality: int = 90) -> EncodedImage:
    """The image as it is, or encoded anew where it has more than so many pixels.

    Raises:
        ImageError: It cannot be decoded.
    """
    picture = image.decode()
    height, width = picture.shape[:2]
    if height * width <= pixels:
        return image
    side_px = int(max(height, width) * math.sqrt(pixels / (height * width)))
    return encode_image(picture, quality, max(1, side_px))


def decode_image(
    data: bytes, stretch: Stretch | None = None, *, is_upright: bool = False
) -> UInt8s:
    """Decode JPEG, PNG, WebP, BMP or TIFF bytes to BGR, uint8, (H, W, 3), alpha dropped.

    Args:
        data: The bytes.
        stretch: Brings what has more than 8 bits to 8; None: by its own range.
        is_upright: Turn the image as its EXIF orientation says, as for photos. The pixels of a
            camera stream stay where its calibration has them.

    Raises:
        ImageError: The bytes are no such image, are cut off, or claim too many pixels.
    """
    kind = image_format(data)
    if kind is None:
        what = f'starting with {data[:8]!r} ' if data else ''
        msg = f'{len(data)} bytes {what}are not a JPEG, PNG, WebP, BMP or TIFF image'
        raise ImageError(msg)
    width, height = _claimed_size(data)
    if width * height > MAX_PIXELS:
        msg = f'image claims {width}x{height} pixels; at most {MAX_PIXELS} are decoded'
        raise ImageError(msg)
    # What does not state its size is not decoded: it could be of any size. Nor is what lacks its
    # end: OpenCV 4.5 makes a picture of it, and libpng complains on stderr.
    is_sound = width * height > 0 and _ENDS.get(kind, b'') in data
    flags = cv2.IMREAD_COLOR | cv2.IMREAD_ANYDEPTH
    flags |= 0 if is_upright else cv2.IMREAD_IGNORE_ORIENTATION
    try:
        image = cv2.imdecode(np.frombuffer(data, np.uint8), flags) if is_sound else None
    except cv2.error:
        image = None
    if image is None:
        msg = f'{len(data)} bytes of {kind} cannot be decoded: damaged or cut off'
        raise ImageError(msg)
    if image.dtype != np.uint8:
        return (stretch or Stretch()).apply(image)
    return np.asarray(image, np.uint8)


def image_format(data: bytes) -> str | None:
    """Tell 'jpeg', 'png', 'webp', 'bmp' or 'tiff' by the first bytes; None for anything else."""
    if data.startswith(b'RIFF') and data[8:12] != b'WEBP':
        return None
    return next((name for magic, name in _MAGIC.items() if data.startswith(magic)), None)


def _claimed_size(data: bytes) -> tuple[int, int]:
    """Width and height [px] that the header claims, without decoding; 0: it does not."""
    return _SIZES[image_format(data) or 'jpeg'](data)


def _png_size(data: bytes) -> tuple[int, int]:
    return int.from_bytes(data[16:20], 'big'), int.from_bytes(data[20:24], 'big')


def _bmp_size(data: bytes) -> tuple[int, int]:
    width, height = (_little(data[at : at + 4], signed=True) for at in (18, 22))
    return abs(width), abs(height)


def _jpeg_size(data: bytes) -> tuple[int, int]:
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


def _little(data: bytes, *, signed: bool = False) -> int:
    return int.from_bytes(data, 'little', signed=signed)


def _webp_size(data: bytes) -> tuple[int, int]:
    """Size of a WebP image by its first chunk (RFC 9649)."""
    kind = data[12:16]
    if kind == b'VP8X':
        return 1 + _little(data[24:27]), 1 + _little(data[27:30])
    if kind == b'VP8L':
        bits = _little(data[21:25])
        return 1 + (bits & 0x3FFF), 1 + (bits >> 14 & 0x3FFF)
    return _little(data[26:28]) & 0x3FFF, _little(data[28:30]) & 0x3FFF


def _tiff_size(data: bytes) -> tuple[int, int]:
    """Size of a TIFF image by the tags ImageWidth and ImageLength of its first directory."""
    order = '<' if data.startswith(b'II') else '>'
    size = {256: 0, 257: 0}
    try:
        (at,) = struct.unpack_from(f'{order}I', data, 4)
        (count,) = struct.unpack_from(f'{order}H', data, at)
        for position in range(at + 2, at + 2 + 12 * count, 12):
            tag, kind = struct.unpack_from(f'{order}HH', data, position)
            if tag in size:
                (size[tag],) = struct.unpack_from(
                    f'{order}{"H" if kind == _TIFF_SHORT else "I"}', data, position + 8
                )
    except struct.error:
        return 0, 0
    return size[256], size[257]


_TIFF_SHORT = 3
_SIZES = {
    'jpeg': _jpeg_size,
    'png': _png_size,
    'bmp': _bmp_size,
    'webp': _webp_size,
    'tiff': _tiff_size,
}


@dataclass(frozen=True)
class PackedDepth:
    """A depth image as a PNG of 16 bits, in millimetres; 0 is unknown."""

    data: bytes

    def unpack(self) -> Float32s:
        """Depth along the optical axis [m], 0 where it is unknown. Shape (h, w).

        Raises:
            ImageError: The bytes are no such image.
        """
        raw = cv2.imdecode(np.frombuffer(self.data, np.uint8), cv2.IMREAD_UNCHANGED)
        if raw is None or raw.ndim != 2 or raw.dtype != np.uint16:
            msg = f'{len(self.data)} bytes are no depth image: expected a grey PNG of 16 bits'
            raise ImageError(msg)
        return np.asarray(raw, np.float32) * np.float32(_DEPTH_UNIT_M)


@dataclass(frozen=True)
class PackedMask:
    """What is fixed to a camera, as a grey PNG, white where it is."""

    data: bytes

    def unpack(self, width: int, height: int) -> Bools:
        """The mask for an image of that size. Shape (height, width).

        Raises:
            ImageError: The bytes are no such image.
        """
        raw = cv2.imdecode(np.frombuffer(self.data, np.uint8), cv2.IMREAD_GRAYSCALE)
        if raw is None:
            msg = f'{len(self.data)} bytes are no mask: expected a grey PNG'
            raise ImageError(msg)
        return cv2.resize(raw, (width, height), interpolation=cv2.INTER_NEAREST) > _WHITE


_WHITE = 127  # grey level above which a mask is white


def depth_at(depth: Float32s, pixels: NDArray[np.floating], size: tuple[int, int]) -> Float64s:
    """Depth [m] at pixels of the same view at another size; 0: unknown. Shape (N,).

    Args:
        depth: Along the optical axis [m]. Shape (h, w).
        pixels: Columns and rows (N, 2).
        size: Width and height of the view that has these pixels.
    """
    own = np.array(depth.shape[::-1])
    columns, rows = np.clip(((pixels + 0.5) * (own / size)).astype(int), 0, own - 1).T
    ahead = depth[rows, columns].astype(np.float64)
    return np.where(np.isfinite(ahead) & (ahead > 0), ahead, 0.0)


def pack_mask(mask: Bools) -> PackedMask:
    """Pack a mask of any size, shape (h, w), for images of its shape."""
    _, data = cv2.imencode('.png', mask.astype(np.uint8) * 255)
    return PackedMask(data.tobytes())


def pack_depth(metres: Float32s) -> PackedDepth:
    """Pack a depth image; a large one is thinned, since averages would blend near and far.

    Args:
        metres: Depth along the optical axis [m]; what is not finite or not positive is unknown.
            Shape (h, w).

    Raises:
        ImageError: The array is no depth image.
    """
    if metres.ndim != 2 or not metres.size:
        msg = f'an array of shape {metres.shape} is no depth image: expected (height, width)'
        raise ImageError(msg)
    metres = shrink(metres, _PACKED_SIDE_PX, cv2.INTER_NEAREST)
    known = np.nan_to_num(metres, nan=0.0, posinf=0.0, neginf=0.0) / _DEPTH_UNIT_M
    # What is farther than the packed form can hold is unknown, rather than nearer than it is.
    millimetres = np.where((known > 0) & (known <= _FARTHEST_DEPTH), np.rint(known), 0)
    is_encoded, data = cv2.imencode('.png', millimetres.astype(np.uint16))
    if not is_encoded:
        msg = f'OpenCV could not pack a depth image of shape {metres.shape}'
        raise ImageError(msg)
    return PackedDepth(data.tobytes())
