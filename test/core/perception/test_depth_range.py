# SPDX-License-Identifier: Apache-2.0
"""Distances of things in boxes, by depth images with what surrounds and hides them."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from embodied_r_ros.core.perception.items import depth_in_box, distance_in_box
from embodied_r_ros.core.types.geometry import Intrinsics
import numpy as np
import pytest

if TYPE_CHECKING:
    from numpy.typing import NDArray

CAMERA = Intrinsics(320, 240, 300.0, 300.0, 159.5, 119.5)
BOX = (0.3, 0.3, 0.7, 0.8)


def room(
    thing_m: float = 2.0, wall_m: float = 4.0, box: tuple[float, float, float, float] = BOX
) -> NDArray[np.float32]:
    """A thing that fills most of a box, in front of a wall. Shape (240, 320)."""
    depth = np.full((240, 320), wall_m, np.float32)
    left, top, right, bottom = box
    across, down = 0.06 * (right - left), 0.06 * (bottom - top)
    rows = slice(round(240 * (top + down)), round(240 * (bottom - down)))
    columns = slice(round(320 * (left + across)), round(320 * (right - across)))
    depth[rows, columns] = thing_m
    return depth


def test_the_wall_behind_does_not_count() -> None:
    assert depth_in_box(room(), BOX) == pytest.approx(2.0, abs=0.03)


def test_a_thing_with_holes_is_ranged_by_what_it_covers() -> None:
    # As of a chair: half of what lies in the box is behind it.
    depth = room()
    depth[::2] = np.where(depth[::2] == 2.0, 4.0, depth[::2])
    assert depth_in_box(depth, BOX) == pytest.approx(2.0, abs=0.03)


def test_a_rod_in_front_is_not_the_thing() -> None:
    depth = room()
    depth[:, 100:112] = 0.7
    assert depth_in_box(depth, BOX) == pytest.approx(2.0, abs=0.03)


def test_depth_need_not_be_known_everywhere() -> None:
    depth = room()
    rng = np.random.default_rng(3)
    depth[rng.random(depth.shape) < 0.8] = 0.0
    depth[rng.random(depth.shape) < 0.05] = np.nan
    assert depth_in_box(depth, BOX) == pytest.approx(2.0, abs=0.03)


def test_noise_of_a_sensor_averages_out() -> None:
    depth = room() * np.random.default_rng(4).normal(1.0, 0.03, (240, 320))
    assert depth_in_box(depth.astype(np.float32), BOX) == pytest.approx(2.0, rel=0.02)


def test_a_slanted_thing_is_as_far_as_its_middle() -> None:
    depth = np.full((240, 320), 6.0, np.float32)
    depth[72:192, 96:224] = np.linspace(1.6, 2.4, 128, dtype=np.float32)
    assert depth_in_box(depth, BOX) == pytest.approx(2.0, rel=0.05)


@pytest.mark.parametrize('depth', [np.zeros((24, 32)), np.full((24, 32), np.nan)])
def test_without_depth_there_is_no_distance(depth: NDArray[np.float64]) -> None:
    assert math.isnan(distance_in_box(depth.astype(np.float32), BOX, CAMERA))


@pytest.mark.parametrize(
    'box', [(0.5, 0.5, 0.5, 0.5), (-1.0, -1.0, 2.0, 2.0), (0.99, 0.99, 1.0, 1.0), (1, 1, 1, 1)]
)
def test_any_box_can_be_asked_for(box: tuple[float, float, float, float]) -> None:
    assert distance_in_box(np.full((24, 32), 3.0, np.float32), box, CAMERA) > 2.9


def test_the_distance_is_along_the_ray_to_the_middle() -> None:
    box = (0.9, 0.45, 1.0, 0.55)
    depth = np.full((240, 320), 2.0, np.float32)
    across = (0.95 * 320 - 160) / 300
    side_m = 2.0 * 0.1 * 240 / 300
    expected = 2.0 * math.hypot(1.0, across) + side_m / 4
    assert distance_in_box(depth, box, CAMERA) == pytest.approx(expected, rel=0.01)
    # Depth may be of another size than the images that the camera is known by.
    small = CAMERA.scaled(640, 480)
    assert distance_in_box(depth, box, small) == pytest.approx(expected, rel=0.01)


def test_the_distance_is_to_the_middle_of_a_cube_or_near_it() -> None:
    # A cube of 0.4 m whose front is 2 m away: its middle is at 2.2 m.
    half = 0.2 / 2.0 * 300
    box = (0.5 - half / 320, 0.5 - half / 240, 0.5 + half / 320, 0.5 + half / 240)
    assert distance_in_box(room(box=box), box, CAMERA) == pytest.approx(2.2, abs=0.11)


def test_without_a_camera_the_depth_is_the_distance() -> None:
    assert distance_in_box(room(), BOX, None) == pytest.approx(2.0, abs=0.03)
