# SPDX-License-Identifier: Apache-2.0
"""Covisibility of views of a wall, where the answer is known in closed form."""

from __future__ import annotations

from dataclasses import replace
import math
from typing import TYPE_CHECKING

import cv2
from embodied_r_ros.keyframes.covisibility import (
    covisibility,
    depth_overlap,
    depth_view,
    seen_by,
)
from embodied_r_ros.keyframes.selector import KeyframeReason, KeyframeSelector
from embodied_r_ros.types.geometry import (
    Intrinsics,
    Pose,
    quaternion_from_matrix,
    rotation_from_ypr,
)
from embodied_r_ros.types.images import StampedImage
import numpy as np
import pytest

from bench.real_sequences import read_sequence, true_overlap

if TYPE_CHECKING:
    from pathlib import Path

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


def image(
    depth: NDArray[np.floating], at: Pose, camera: Intrinsics = CAMERA, index: int = 0
) -> StampedImage:
    """An image that looks the same from everywhere, with a depth image."""
    blocks = np.random.default_rng(1).integers(0, 255, (15, 20, 3), np.uint8)
    pixels = cv2.resize(blocks, (160, 120), interpolation=cv2.INTER_NEAREST)
    return StampedImage(
        index,
        index * 100_000_000,
        np.asarray(pixels, np.uint8),
        intrinsics=camera,
        pose=at,
        depth=depth.astype(np.float32),
    )


def shared(first: StampedImage, second: StampedImage) -> float | None:
    views = depth_view(first), depth_view(second)
    return depth_overlap(views[0], views[1]) if views[0] and views[1] else None


@pytest.mark.parametrize('shift_m', [0.0, 1.0, 3.0, 9.0])
def test_depth_and_poses_tell_what_two_images_share(shift_m: float) -> None:
    share = shared(image(wall(), pose()), image(wall(), pose(y=shift_m)))
    assert share == pytest.approx(max(0.0, 1 - shift_m / 8), abs=0.03)


def test_holes_count_neither_way() -> None:
    holes = wall()
    holes[:, ::3] = np.nan
    assert shared(image(holes, pose()), image(holes, pose())) == pytest.approx(1.0)


def test_a_distorted_image_is_straightened_first() -> None:
    """A barrel draws in what is far from the middle: a straight camera finds it further in."""
    barrel = Intrinsics(160, 120, 80.0, 80.0, 79.5, 59.5, (-0.2, 0.03, 0.0, 0.0, 0.0))
    ramp = np.tile(np.linspace(1.0, 5.0, 160), (120, 1))
    bent = depth_view(image(ramp, pose(), barrel))
    straight = depth_view(image(ramp, pose(), replace(barrel, distortion=())))
    assert bent
    assert straight
    middle, side = bent.depth[30] - straight.depth[30], 60
    assert abs(middle[40]) < 0.05
    assert middle[side] < -0.05


def test_unknown_depth_or_another_frame_tells_nothing() -> None:
    first = image(wall(), pose())
    assert shared(first, replace(first, depth=None)) is None
    assert shared(first, replace(first, pose=None)) is None
    assert shared(first, replace(first, depth=np.zeros((120, 160), np.float32))) is None
    assert shared(first, replace(first, pose=replace(pose(), frame_id='map'))) is None


def test_depth_decides_where_images_deceive() -> None:
    """Wallpaper: every view looks like the one before, and poses and depth know better."""
    selector = KeyframeSelector()
    shifts_m = [0.0, 1.0, 2.0, 3.0, 5.0, 6.0]
    images = [image(wall(), pose(y=y), index=i) for i, y in enumerate(shifts_m)]
    decisions = [selector.evaluate(each) for each in images]
    assert [each.is_keyframe for each in decisions] == [True, False, False, False, True, False]
    assert decisions[4].reason is KeyframeReason.LOW_OVERLAP


def test_decisions_of_a_real_camera_are_those_of_its_depth(footage: Path) -> None:
    """Handheld round a cabinet, poses by motion capture."""
    shots = list(read_sequence(footage / 'real' / 'cabinet'))
    selector, wrong, counted = KeyframeSelector(), 0, 0
    reference = shots[0]
    for shot in shots:
        said = selector.evaluate(replace(shot.stamped(), pose=shot.pose, depth=shot.depth))
        if shot is not reference:
            truth = true_overlap(reference, shot)
            counted += truth.decides(0.5)
            wrong += truth.decides(0.5) and said.is_keyframe != (truth.middle < 0.5)
        reference = shot if said.is_keyframe else reference
    assert counted > 30
    assert wrong <= 1
