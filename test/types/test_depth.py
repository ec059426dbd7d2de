# SPDX-License-Identifier: Apache-2.0
"""Packed depth: what survives, what is unknown, what is refused."""

from embodied_r_ros.common.errors import ImageError
from embodied_r_ros.types.depth import pack_depth, PackedDepth
from embodied_r_ros.types.images import encode_image
import numpy as np
import pytest


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
