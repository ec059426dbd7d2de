# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import array
from types import SimpleNamespace
from typing import Any, TYPE_CHECKING

import cv2
from embodied_r_ros.bags.images import raw_image
from embodied_r_ros.common.errors import ImageError
import numpy as np
import pytest

if TYPE_CHECKING:
    from numpy.typing import NDArray


def message(encoding: str, pixels: NDArray[Any], padding: int = 0) -> Any:
    """A raw image, with `padding` more bytes at the end of every row."""
    height, width = pixels.shape[:2]
    rows = pixels.reshape(height, -1).view(np.uint8)
    rows = np.pad(rows, ((0, 0), (0, padding)), constant_values=77)
    data = array.array('B', rows.tobytes())
    return SimpleNamespace(
        encoding=encoding,
        height=height,
        width=width,
        step=rows.shape[1],
        is_bigendian=0,
        data=data,
    )


def picture() -> NDArray[np.uint8]:
    """Smooth colours, so that chroma subsampling loses next to nothing."""
    rows, columns = np.mgrid[0:24, 0:32]
    channels = [rows * 6 + 40, columns * 5 + 30, 200 - rows * 3 - columns]
    return np.stack(channels, axis=-1).astype(np.uint8)


BGR = picture()
GREY = cv2.cvtColor(BGR, cv2.COLOR_BGR2GRAY)
# Rows give Y, U, V of blue, green, red (ITU-R BT.601, studio range).
BT601 = np.array(
    [[25.064, 129.057, 65.738], [112.439, -74.494, -37.945], [-18.285, -94.154, 112.439]]
)
ENCODED = {
    'bgr8': BGR,
    'rgb8': cv2.cvtColor(BGR, cv2.COLOR_BGR2RGB),
    'bgra8': cv2.cvtColor(BGR, cv2.COLOR_BGR2BGRA),
    'rgba8': cv2.cvtColor(BGR, cv2.COLOR_BGR2RGBA),
}


@pytest.mark.parametrize('encoding', ENCODED)
@pytest.mark.parametrize('padding', [0, 5])
def test_colours_arrive_as_bgr(encoding: str, padding: int) -> None:
    np.testing.assert_array_equal(raw_image(message(encoding, ENCODED[encoding], padding)), BGR)


def test_grey_arrives_in_three_channels() -> None:
    image = raw_image(message('mono8', GREY, padding=3))
    np.testing.assert_array_equal(image, cv2.cvtColor(GREY, cv2.COLOR_GRAY2BGR))


@pytest.mark.parametrize('is_bigendian', [False, True])
def test_sixteen_bit_grey_is_scaled(is_bigendian: bool) -> None:
    wide = 500 + GREY.astype(np.uint16) * 15  # of a camera with 12 bits
    msg = message('mono16', wide.byteswap() if is_bigendian else wide)
    msg.is_bigendian = is_bigendian
    stretched = (GREY.astype(float) - GREY.min()) * 255 / np.ptp(GREY)
    assert np.abs(raw_image(msg)[..., 0] - stretched).max() <= 3


@pytest.mark.parametrize('encoding', ['yuv422', 'uyvy', 'yuv422_yuy2', 'yuyv'])
def test_yuv_keeps_its_colours(encoding: str) -> None:
    y, u, v = np.moveaxis(BGR @ BT601.T / 256 + [16, 128, 128], -1, 0)
    packed = np.empty((*BGR.shape[:2], 2), np.uint8)
    luma, chroma = (0, 1) if encoding in {'yuv422_yuy2', 'yuyv'} else (1, 0)
    packed[..., luma] = y.round()
    packed[:, 0::2, chroma] = u[:, 0::2].round()
    packed[:, 1::2, chroma] = v[:, 0::2].round()
    error = np.abs(raw_image(message(encoding, packed)).astype(int) - BGR)
    assert error.mean() < 3


@pytest.mark.parametrize('encoding', ['16UC1', '32FC1', '8SC2', '', 'h264'])
def test_what_is_no_picture_is_named(encoding: str) -> None:
    with pytest.raises(ImageError, match=rf"encoding '{encoding}' is .*not a colour"):
        raw_image(message(encoding, BGR))


def test_cut_off_image_is_refused() -> None:
    msg = message('bgr8', BGR)
    msg.data = msg.data[:-1]
    with pytest.raises(ImageError, match='32x24 pixels has 2303 bytes in rows of 96'):
        raw_image(msg)


def test_rows_that_are_too_short_are_refused() -> None:
    msg = message('bgr8', BGR)
    msg.step = 32
    with pytest.raises(ImageError, match='expected 24 rows of at least 96'):
        raw_image(msg)


@pytest.mark.parametrize('encoding', ['yuv422', 'uyvy', 'yuv422_yuy2', 'yuyv'])
def test_yuv_of_odd_width_is_refused(encoding: str) -> None:
    with pytest.raises(ImageError, match='image is 31 pixels wide: expected an even number'):
        raw_image(message(encoding, np.zeros((24, 31, 2), np.uint8)))


def test_image_has_its_own_memory() -> None:
    msg = message('bgr8', BGR)
    image = raw_image(msg)
    msg.data[0] = 255 - msg.data[0]
    np.testing.assert_array_equal(image, BGR)
