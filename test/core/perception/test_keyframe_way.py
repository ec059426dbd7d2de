# SPDX-License-Identifier: Apache-2.0
"""The way of a camera alone: up to one factor, and joined only where it is the same place."""

from __future__ import annotations

import math

from embodied_r_ros.core.perception.egomotion import Features, UNKNOWN
from embodied_r_ros.core.perception.keyframe_way import KeyframeWay
from embodied_r_ros.core.types.geometry import (
    BODY_FROM_OPTICAL,
    Intrinsics,
    pixels_of_points,
    Pose,
    quaternion_from_matrix,
    rotation_from_ypr,
)
import numpy as np
from numpy.typing import NDArray
import pytest

CAMERA = Intrinsics.from_fov(640, 480, math.radians(80))
Places = NDArray[np.float64]


class Wall:
    """Points of a place, each of which looks like nothing else."""

    def __init__(self, seed: int, looks: int | None = None) -> None:
        rng = np.random.default_rng(seed)
        self.points = rng.uniform((2.5, -5, -2), (7, 5, 2), (1500, 3))
        looks_of = np.random.default_rng(looks or seed).random((1500, 128)).astype(np.float32)
        self._looks = looks_of / np.linalg.norm(looks_of, axis=1, keepdims=True)

    def seen(self, pose: Pose, seed: int) -> Features:
        """The features of an image from a pose, off by a fraction of a pixel."""
        ahead = (self.points - np.array(pose.position)) @ pose.rotation() @ BODY_FROM_OPTICAL
        pixels = pixels_of_points(CAMERA, ahead)
        inside = (
            (ahead[:, 2] > 0.5) & (pixels >= 0).all(axis=1) & (pixels < (640, 480)).all(axis=1)
        )
        noise = np.random.default_rng(seed).normal(0, 0.3, pixels.shape)
        return Features((pixels + noise)[inside], self._looks[inside])


def together(one: Features, other: Features) -> Features:
    return Features(
        np.concatenate([one.points, other.points]),
        np.concatenate([one.descriptors, other.descriptors]),
    )


def at(x: float, y: float, yaw_deg: float = 0.0) -> Pose:
    turn = quaternion_from_matrix(rotation_from_ypr(math.radians(yaw_deg), 0.0, 0.0))
    return Pose((x, y, 0.0), turn, 'room')


WAY = [at(0.05 * n, 0.35 * n, -2.0 * n) for n in range(6)]
BACK = [at(0.1, 1.5 - 0.3 * n, -4.0) for n in range(4)]
WALL, OTHER = Wall(1), Wall(2)


def walked(views: list[tuple[Wall, Pose]]) -> KeyframeWay:
    way = KeyframeWay()
    for number, (wall, pose) in enumerate(views):
        way.add(number, wall.seen(pose, number), CAMERA, UNKNOWN)
    return way


def check(way: KeyframeWay, true: dict[int, Pose]) -> None:
    """Compare ways from the first pose on, up to one factor."""
    poses = way.poses('start', 4.0)
    assert sorted(poses) == sorted(true)
    first = true[min(true)]
    own, there = (
        np.array([np.array(each.position) for each in ways])
        for ways in (
            [poses[n] for n in sorted(true)],
            [true[n] for n in sorted(true)],
        )
    )
    there = (there - first.position) @ first.rotation()
    factor = float((own * there).sum() / (own**2).sum())
    assert np.linalg.norm(factor * own - there, axis=1).max() < 0.06
    for number, pose in true.items():
        off = poses[number].rotation().T @ first.rotation().T @ pose.rotation()
        assert math.degrees(math.acos(min(1.0, (np.trace(off) - 1) / 2))) < 1.0


def test_keyframes_that_show_the_same_points_are_placed_up_to_one_factor() -> None:
    way = walked([(WALL, pose) for pose in WAY])
    assert way.parts == 1
    check(way, dict(enumerate(WAY)))


@pytest.mark.parametrize('away', [1, 3])
def test_a_part_that_sees_again_what_was_seen_is_joined(away: int) -> None:
    """After views of something else the camera comes back, from where it was not yet."""
    elsewhere = [(OTHER, at(0.0, 0.3 * n)) for n in range(away)]
    way = walked([(WALL, pose) for pose in WAY] + elsewhere + [(WALL, pose) for pose in BACK])
    first = len(WAY) + away
    assert (way.parts, way.joins) == (2, 1)
    check(way, dict(enumerate(WAY)) | {first + n: pose for n, pose in enumerate(BACK)})


def test_two_parts_of_several_views_are_joined_with_the_ratio_of_their_units() -> None:
    """The second part begins where nothing of the first is seen, and comes to where it is."""
    way = KeyframeWay()
    side = [at(0.1, 1.5 - 0.5 * n, -4.0) for n in range(6)]
    for number, pose in enumerate([*WAY, *side]):
        seen = WALL.seen(pose, number)
        if number >= len(WAY):
            other = OTHER.seen(pose, number)
            # The wall is hidden at first.
            seen = other if number < len(WAY) + 3 else together(seen, other)
        way.add(number, seen, CAMERA, UNKNOWN)
    assert (way.parts, way.joins) == (1, 1)
    check(way, dict(enumerate([*WAY, *side])))


def test_a_part_that_begins_after_a_join_is_one_of_its_own() -> None:
    third = Wall(3)
    places = (WALL, WALL, WALL, WALL, OTHER, OTHER, WALL, WALL, third, third)
    way = walked([(wall, at(0.0, 0.3 * (n % 4))) for n, wall in enumerate(places)])
    assert (way.parts, way.joins) == (3, 1)
    assert sorted(way.poses('start', 4.0)) == [0, 1, 2, 3, 6, 7]


def test_another_place_that_looks_the_same_is_not_joined() -> None:
    """Each point has its double there, and none lies as it does here."""
    double = Wall(9, looks=1)
    way = walked([(WALL, pose) for pose in WAY] + [(double, pose) for pose in WAY])
    assert (way.parts, way.joins) == (2, 0)


def test_without_features_nothing_is_placed() -> None:
    way = KeyframeWay()
    blank = Features(np.zeros((0, 2)), np.zeros((0, 128), np.float32))
    for number in range(3):
        way.add(number, blank, CAMERA, UNKNOWN)
    assert len(way.poses('start', 1.0)) == 1
    assert KeyframeWay().poses('start', 1.0) == {}
