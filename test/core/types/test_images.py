# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import struct
from typing import Any, TYPE_CHECKING
import zlib

import cv2
from embodied_r_ros.common.errors import ImageError
from embodied_r_ros.core.types.images import (
    decode_image,
    encode_image,
    EncodedImage,
    image_format,
    pack_depth,
    PackedDepth,
    shrink,
)
import numpy as np
import pytest

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Image = NDArray[Any]


def picture(width: int = 64, height: int = 48) -> Image:
    x, y = np.meshgrid(np.linspace(0, 255, width), np.linspace(0, 255, height))
    return np.stack([x, y, (x + y) / 2], axis=-1).astype(np.uint8)


def png(image: Image) -> bytes:
    return cv2.imencode('.png', image)[1].tobytes()


def png_header(width: int, height: int) -> bytes:
    """The first bytes of a PNG file that claims a size."""
    return b'\x89PNG\r\n\x1a\n' + struct.pack('>I4sII', 13, b'IHDR', width, height) + bytes(5)


def jpeg_header(width: int, height: int) -> bytes:
    """The first bytes of a JPEG file that claims a size, after a comment and a fill byte."""
    comment = b'\xff\xfe' + struct.pack('>H', 5) + b'abc'
    frame = b'\xff\xff\xc2' + struct.pack('>HBHH', 17, 8, height, width) + bytes(10)
    return b'\xff\xd8' + comment + frame


def test_jpeg_survives_with_little_loss() -> None:
    encoded = encode_image(picture(), quality=95)
    assert encoded.format == 'jpeg'
    assert np.abs(encoded.decode().astype(int) - picture()).mean() < 3


def test_quality_costs_bytes() -> None:
    noise = np.random.default_rng(0).integers(0, 255, (48, 64, 3)).astype(np.uint8)
    assert len(encode_image(noise, quality=20).data) < len(encode_image(noise, quality=95).data)


def test_png_is_exact_and_loses_its_alpha() -> None:
    assert np.array_equal(decode_image(png(picture())), picture())
    with_alpha = np.dstack([picture(), np.full((48, 64), 7, np.uint8)])
    assert decode_image(png(with_alpha)).shape == (48, 64, 3)


def test_grey_images_become_colour_images() -> None:
    assert decode_image(png(picture()[..., 0])).shape == (48, 64, 3)


@pytest.mark.parametrize(('side', 'size'), [(0, (64, 48)), (64, (64, 48)), (32, (32, 24))])
def test_shrinking_keeps_the_proportions(side: int, size: tuple[int, int]) -> None:
    shrunk = shrink(picture(), side)
    assert shrunk.shape[1::-1] == size
    assert encode_image(picture(), max_side_px=side).decode().shape == shrunk.shape


def test_a_very_wide_image_keeps_a_row() -> None:
    assert shrink(np.zeros((2, 1000, 3), np.uint8), 10).shape == (1, 10, 3)


@pytest.mark.parametrize('array', [np.zeros((0, 0, 3), np.uint8), np.zeros((4, 4, 3), np.float64)])
def test_what_is_no_image_is_not_encoded(array: Image) -> None:
    with pytest.raises(ImageError, match=r'cannot encode an array of shape \(\d, \d, 3\)'):
        encode_image(array)


def test_jpeg_with_a_stray_byte_is_decoded() -> None:
    data = encode_image(picture()).data
    first = 4 + int.from_bytes(data[4:6], 'big')
    assert decode_image(data[:first] + b'\0' + data[first:]).shape == (48, 64, 3)


@pytest.mark.parametrize(
    ('data', 'message'),
    [
        (b'', '0 bytes are not a JPEG, PNG, WebP, BMP or TIFF image'),
        (b'GIF89a....', 'are not a JPEG, PNG, WebP'),
        (b'\xff\xd8\xff\xe0', 'cannot be decoded: damaged or cut off'),
        (png_header(100_000, 100_000), 'claims 100000x100000 pixels; at most'),
        (jpeg_header(60_000, 60_000), 'claims 60000x60000 pixels; at most'),
        # Decoders skip a stray byte between segments.
        (
            jpeg_header(60_000, 60_000).replace(b'abc', b'abc\0'),
            'claims 60000x60000 pixels; at most',
        ),
    ],
)
def test_bytes_that_are_no_image_are_refused(data: bytes, message: str) -> None:
    with pytest.raises(ImageError, match=message):
        EncodedImage(data, 'jpeg').decode()


def test_a_picture_that_is_cut_off_is_refused_in_one_voice(
    capfd: pytest.CaptureFixture[str],
) -> None:
    for data in (png(picture()), encode_image(picture()).data):
        with pytest.raises(ImageError, match='cannot be decoded: damaged or cut off'):
            decode_image(data[: len(data) // 2])
    assert capfd.readouterr().err == ''


def test_a_real_jpeg_states_its_size_to_the_guard() -> None:
    """The guard must find the size in real files too, or it guards nothing."""
    data = encode_image(picture(640, 480)).data
    height_at = data.index(struct.pack('>HH', 480, 640))
    huge = data[:height_at] + struct.pack('>HH', 65_000, 65_000) + data[height_at + 4 :]
    with pytest.raises(ImageError, match='claims 65000x65000 pixels'):
        decode_image(huge)


def test_format_is_told_by_content() -> None:
    assert image_format(encode_image(picture()).data) == 'jpeg'
    assert image_format(png(picture())) == 'png'
    assert image_format(b'RIFF') is None


def test_a_picture_of_400_megapixels_in_a_few_kilobytes_is_refused() -> None:
    size = 20_000
    rows = zlib.compress(bytes((1 + size // 8) * size), 9)  # one bit per pixel
    header = struct.pack('>IIBBBBB', size, size, 1, 0, 0, 0, 0)
    chunks = [(b'IHDR', header), (b'IDAT', rows), (b'IEND', b'')]
    data = b'\x89PNG\r\n\x1a\n' + b''.join(
        struct.pack('>I', len(body)) + kind + body + struct.pack('>I', zlib.crc32(kind + body))
        for kind, body in chunks
    )
    assert len(data) < 100_000
    with pytest.raises(ImageError, match='claims 20000x20000 pixels; at most'):
        decode_image(data)


def test_a_size_cannot_be_hidden_from_the_guard() -> None:
    """Decoders skip a stuffed zero; who takes it for a segment skips the real size with it."""
    start = b'\xff\xd8\xff\xfe' + struct.pack('>H', 2)
    real, shown = jpeg_header(60_000, 60_000)[9:], jpeg_header(8, 8)[9:]
    hidden = start + b'\xff\x00' + struct.pack('>H', 2 + len(real)) + real + shown
    with pytest.raises(ImageError, match='claims 60000x60000'):
        decode_image(hidden + bytes(20))


@pytest.mark.parametrize('share', [0.02, 0.3, 0.9, 0.99])
def test_a_jpeg_that_is_cut_off_anywhere_is_refused(share: float) -> None:
    data = encode_image(picture(640, 480)).data
    with pytest.raises(ImageError, match='damaged or cut off'):
        decode_image(data[: int(len(data) * share)])


def test_depth_survives_to_the_millimetre() -> None:
    metres = np.linspace(0.2, 12.0, 48 * 64, dtype=np.float32).reshape(48, 64)
    assert np.abs(pack_depth(metres).unpack() - metres).max() <= 0.00051


def test_what_no_sensor_measures_is_unknown() -> None:
    metres = np.array([[np.nan, np.inf, -np.inf, -1.0, 0.0, 65.535, 65.6, 1e9]], np.float32)
    assert pack_depth(metres).unpack().tolist() == [
        pytest.approx([0, 0, 0, 0, 0, 65.535, 0, 0], abs=1e-3)
    ]


def test_a_large_depth_image_is_thinned_and_blends_no_edge() -> None:
    metres = np.where(np.arange(1280) < 640, 1.0, 5.0).astype(np.float32)[None].repeat(720, 0)
    small = pack_depth(metres).unpack()
    assert small.shape == (360, 640)
    assert set(np.round(small, 3).ravel().tolist()) == {1.0, 5.0}


def test_what_is_no_depth_is_refused() -> None:
    with pytest.raises(ImageError, match='height, width'):
        pack_depth(np.zeros((4, 4, 3), np.float32))
    with pytest.raises(ImageError, match='16 bits'):
        PackedDepth(encode_image(np.zeros((4, 4, 3), np.uint8)).data).unpack()
