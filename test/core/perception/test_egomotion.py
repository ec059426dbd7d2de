# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from functools import cache
import math
from typing import Any, TYPE_CHECKING

import cv2
from embodied_r_ros.core.keyframes.relative_pose import relative_pose
from embodied_r_ros.core.perception.egomotion import (
    composed_motion,
    motion_from_poses,
    motion_from_views,
)
from embodied_r_ros.core.types.deltas import action_text, Motion, MotionSource, ScaleSource
from embodied_r_ros.core.types.geometry import Intrinsics, Pose, relative_motion, rotation_from_ypr
import numpy as np
import pytest

from test.raycast_room import CAMERA, pose_at, Room

if TYPE_CHECKING:
    from numpy.typing import NDArray

START = pose_at(-0.4, 0.3, 1.2, 0.2, 0.05)
MOVES = {
    'forward': pose_at(0.58, 0.5, 1.15, 0.2, 0.05),
    'backward': pose_at(-1.38, 0.1, 1.25, 0.2, 0.05),
    'left': pose_at(-0.56, 1.08, 1.2, 0.2, 0.05),
    'right': pose_at(-0.24, -0.48, 1.2, 0.2, 0.05),
    'up': pose_at(-0.4, 0.3, 1.8, 0.2, 0.05),
    'down': pose_at(-0.4, 0.3, 0.6, 0.2, 0.05),
    'forward while turning left': pose_at(0.3, 0.5, 1.2, 0.6, 0.05),
    'backward while turning right and rolling': pose_at(-1.2, 0.2, 1.2, -0.1, 0.1, 0.2),
}
TURNS = {
    'left': pose_at(-0.4, 0.3, 1.2, 0.7, 0.05),
    'right': pose_at(-0.4, 0.3, 1.2, -0.3, 0.05),
    'up': pose_at(-0.4, 0.3, 1.2, 0.2, -0.3),
    'clockwise': pose_at(-0.4, 0.3, 1.2, 0.2, 0.05, 0.5),
}
OBLIQUE_ROTATION = rotation_from_ypr(0.05, -0.1, 0.02)
OBLIQUE_TRANSLATION = np.array([0.6, -0.05, -0.8])


@cache
def view(pose: Pose, seed: int = 0) -> NDArray[np.uint8]:
    return Room(seed).view(pose)


def rotation_error(motion: Motion, later: Pose) -> float:
    true, _ = relative_motion(START, later)
    seen = rotation_from_ypr(motion.yaw_rad, motion.pitch_rad, motion.roll_rad)
    return math.acos(min(1.0, (np.trace(seen.T @ true) - 1) / 2))


def direction_error(motion: Motion, later: Pose) -> float:
    _, true = relative_motion(START, later)
    return math.acos(min(1.0, float(motion.translation @ true / np.linalg.norm(true))))


def test_poses_give_a_metric_motion_in_the_earlier_axes() -> None:
    motion = motion_from_poses(pose_at(1, 1, 1, math.pi / 2), pose_at(1, 3, 1, math.pi))
    assert (motion.source, motion.is_metric) == (MotionSource.ODOMETRY, True)
    assert motion.translation == pytest.approx((2, 0, 0), abs=1e-9)
    assert (motion.yaw_rad, motion.pitch_rad, motion.roll_rad) == pytest.approx(
        (math.pi / 2, 0, 0)
    )


def test_poses_in_two_frames_are_refused() -> None:
    with pytest.raises(ValueError, match="'odom' and 'map'"):
        motion_from_poses(START, Pose((0, 0, 0), (0, 0, 0, 1), 'map'))


@pytest.mark.parametrize('name', MOVES)
def test_moves_are_seen_with_their_direction(name: str) -> None:
    motion = motion_from_views(view(START), view(MOVES[name]), CAMERA)
    assert (motion.source, motion.is_metric) == (MotionSource.TWO_VIEW, False)
    assert rotation_error(motion, MOVES[name]) < math.radians(1)
    assert direction_error(motion, MOVES[name]) < math.radians(5)
    assert np.linalg.norm(motion.translation) == pytest.approx(1)


@pytest.mark.parametrize('name', TURNS)
def test_turning_on_the_spot_has_no_translation(name: str) -> None:
    motion = motion_from_views(view(START), view(TURNS[name]), CAMERA)
    assert np.linalg.norm(motion.translation) == 0
    assert rotation_error(motion, TURNS[name]) < math.radians(0.5)


def test_a_camera_at_rest_is_stationary() -> None:
    noise = np.random.default_rng(1).normal(0, 4, view(START).shape)
    noisy = np.clip(view(START) + noise, 0, 255).astype(np.uint8)
    motion = motion_from_views(view(START), noisy, CAMERA)
    assert np.linalg.norm(motion.translation) == 0
    angles = (motion.yaw_rad, motion.pitch_rad, motion.roll_rad)
    assert angles == pytest.approx((0, 0, 0), abs=math.radians(0.2))
    assert motion.confidence > 0.8


def test_distorted_images_are_straightened() -> None:
    bent = Intrinsics(320, 240, CAMERA.fx, CAMERA.fy, CAMERA.cx, CAMERA.cy, (-0.15, 0.02, 0, 0, 0))
    v, u = np.indices((240, 320), np.float64)
    pixels = np.stack([u, v], axis=-1).reshape(-1, 1, 2)
    straight = cv2.undistortPoints(pixels, bent.matrix(), np.array(bent.distortion))
    source = straight.reshape(240, 320, 2) * CAMERA.fx + (CAMERA.cx, CAMERA.cy)
    x, y = (source[..., axis].astype(np.float32) for axis in (0, 1))
    first, second = (
        np.asarray(cv2.remap(view(pose), x, y, cv2.INTER_LINEAR), np.uint8)
        for pose in (START, MOVES['left'])
    )
    motion = motion_from_views(first, second, bent)
    assert rotation_error(motion, MOVES['left']) < math.radians(1)
    assert direction_error(motion, MOVES['left']) < math.radians(5)


def test_unrelated_views_cannot_be_told() -> None:
    for seed in range(1, 4):
        motion = motion_from_views(view(START), view(START, seed), CAMERA)
        # As text: from Python 3.13 on, dataclasses with NaN differ from themselves.
        assert repr(motion) == repr(Motion())


@pytest.mark.parametrize('level', [0, 90, 255])
def test_blank_images_cannot_be_told(level: int) -> None:
    blank = np.full((240, 320, 3), level, np.uint8)
    assert motion_from_views(blank, blank, CAMERA).source is MotionSource.UNKNOWN
    assert motion_from_views(view(START), blank, CAMERA).source is MotionSource.UNKNOWN


def test_a_still_background_behind_what_moves_is_not_rest() -> None:
    """Two thirds at rest do not make a camera stationary: a far skyline looks just so."""
    moved = view(START).copy()
    moved[130:] = view(MOVES['left'])[130:]
    assert action_text(motion_from_views(view(START), moved, CAMERA)) != 'stationary'


def test_a_thing_that_moves_before_a_camera_at_rest_is_no_motion() -> None:
    moved = view(START).copy()
    moved[80:180, 200:300] = view(MOVES['left'])[80:180, 100:200]
    assert action_text(motion_from_views(view(START), moved, CAMERA)) == 'stationary'


def oblique_matches(off_plane: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Points of a wall, some of them before it, in two views while passing it at an angle."""
    rng = np.random.default_rng(0)
    points = np.column_stack([rng.uniform(-2, 2, (200, 2)), np.full(200, 3.0)])
    points[:off_plane, 2] = rng.uniform(1.5, 2.5, off_plane)
    later = points @ OBLIQUE_ROTATION.T + OBLIQUE_TRANSLATION
    return points[:, :2] / points[:, 2:], later[:, :2] / later[:, 2:]


def test_one_plane_alone_is_ambiguous() -> None:
    """Two motions explain a plane, and none of its points tells which is true."""
    assert relative_pose(*oblique_matches(off_plane=0), tolerance=0.0045) is None


def test_a_few_points_off_the_plane_decide() -> None:
    pose = relative_pose(*oblique_matches(off_plane=25), tolerance=0.0045)
    assert pose is not None
    assert pose.rotation == pytest.approx(OBLIQUE_ROTATION, abs=0.01)
    true = OBLIQUE_TRANSLATION / np.linalg.norm(OBLIQUE_TRANSLATION)
    assert pose.translation == pytest.approx(true, abs=0.05)


def step(x: float = 0.0, y: float = 0.0, yaw: float = 0.0, **fields: Any) -> Motion:
    return Motion(
        MotionSource.FOLLOWED, yaw, 0.0, 0.0, (x, y, 0.0), **{'confidence': 0.5, **fields}
    )


def test_ways_in_metres_add_up_in_the_axes_of_the_first() -> None:
    depth = ScaleSource.DEPTH
    turned = step(2.0, yaw=math.pi / 2, is_metric=True, scale=depth)
    both = composed_motion(turned, step(1.0, is_metric=True, scale=depth, confidence=0.25))
    assert both
    assert both.translation == pytest.approx((2.0, 1.0, 0.0))
    assert both.yaw_rad == pytest.approx(math.pi / 2)
    assert (both.confidence, both.scale) == (0.25, depth)


def test_directions_add_up_where_they_agree() -> None:
    one_way = composed_motion(step(1.0), step(math.cos(0.4), math.sin(0.4)))
    assert one_way
    assert one_way.translation == pytest.approx((math.cos(0.2), math.sin(0.2), 0.0))
    assert not one_way.is_metric
    assert composed_motion(step(1.0), step(0.0, 1.0)) is None
    still = composed_motion(step(yaw=0.3), step(1.0))
    assert still
    assert still.translation == pytest.approx((math.cos(0.3), math.sin(0.3), 0.0))


def test_ways_in_one_unit_add_up_in_it() -> None:
    relative = ScaleSource.RELATIVE
    both = composed_motion(step(0.2, scale=relative), step(0.0, 0.6, scale=relative))
    assert both
    assert (both.translation, both.scale) == ((0.2, 0.6, 0.0), relative)
    assert not both.is_metric
    turned = composed_motion(step(yaw=math.pi / 2), step(0.2, scale=relative))
    assert turned
    assert turned.scale is relative
    assert turned.translation == pytest.approx((0.0, 0.2, 0.0))
    other = composed_motion(step(1.0), step(0.2, scale=relative))
    assert other
    assert (other.translation, other.scale) == ((1.0, 0.0, 0.0), ScaleSource.UNKNOWN)


def test_metres_and_directions_do_not_add_up_to_metres() -> None:
    mixed = composed_motion(step(3.0, is_metric=True, scale=ScaleSource.DEPTH), step(1.0))
    assert mixed
    assert (mixed.is_metric, mixed.scale) == (False, ScaleSource.UNKNOWN)
    assert mixed.translation == pytest.approx((1.0, 0.0, 0.0))
    assert composed_motion(step(1.0), None) is None
