# SPDX-License-Identifier: Apache-2.0
"""Covisibility of views of a wall, where the answer is known in closed form."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from embodied_r_ros.sim.indoor.world import covisibility, seen_by
from embodied_r_ros.types.geometry import (
    Intrinsics,
    Pose,
    quaternion_from_matrix,
    rotation_from_ypr,
)
import numpy as np
import pytest

if TYPE_CHECKING:
    from numpy.typing import NDArray

CAMERA = Intrinsics.from_fov(160, 120, math.radians(90))
WALL_X_M = 4.0


def pose(x: float = 0.0, y: float = 0.0, yaw: float = 0.0) -> Pose:
    return Pose((x, y, 1.0), quaternion_from_matrix(rotation_from_ypr(yaw, 0.0, 0.0)), 'odom')


def wall(x: float = 0.0) -> NDArray[np.float64]:
    """Depth of an endless wall at WALL_X_M, for a camera at x that faces it."""
    return np.full((120, 160), WALL_X_M - x)


def test_a_view_shares_all_with_itself() -> None:
    assert covisibility(wall(), pose(), wall(), pose(), CAMERA) == (1.0, 1.0)


@pytest.mark.parametrize('shift_m', [-2.0, 1.0, 4.0])
def test_sideways_shares_shrink_with_the_shift(shift_m: float) -> None:
    expected = 1 - abs(shift_m) / (2 * WALL_X_M)
    shares = covisibility(wall(), pose(), wall(), pose(y=shift_m), CAMERA)
    assert shares == pytest.approx((expected, expected), abs=0.01)


def test_backing_away_is_not_symmetric() -> None:
    near, far = wall(2.0), wall(0.0)
    shares = covisibility(near, pose(2.0), far, pose(0.0), CAMERA)
    assert shares == pytest.approx((1.0, 0.25), abs=0.01)


def test_a_turn_shares_what_both_cones_hold() -> None:
    turned = math.radians(45)
    bearing = np.arctan((CAMERA.cx - np.arange(160)) / CAMERA.fx) + turned
    # Along the turned camera's optical axis; beyond 85 degrees the wall is taken as not there.
    depth = np.where(bearing < math.radians(85), WALL_X_M / np.cos(bearing), 0.0)
    depth = np.tile(depth * np.cos(bearing - turned), (120, 1))
    first, _ = covisibility(wall(), pose(), depth, pose(yaw=turned), CAMERA)
    # The left half is within the other's horizontal field; most of its rows are, too.
    assert 0.4 < first < 0.5


def test_what_is_hidden_is_not_shared() -> None:
    blocked = wall(0.0)
    blocked[:, :80] = 1.0  # something stands in the left half of the other view
    seen = seen_by(wall(), pose(), blocked, pose(), CAMERA)
    assert not seen[:, :79].any()
    assert seen[:, 81:].all()


def test_looking_away_shares_nothing() -> None:
    assert covisibility(wall(), pose(), wall(), pose(yaw=math.pi), CAMERA) == (0.0, 0.0)


def test_empty_pixels_are_never_shared() -> None:
    empty = wall()
    empty[:60] = np.inf
    assert covisibility(empty, pose(), wall(), pose(), CAMERA)[0] == pytest.approx(0.5)
