# SPDX-License-Identifier: Apache-2.0
"""Distances of items, and what each rests on: depth, two views, the floor, or nothing."""

from __future__ import annotations

from dataclasses import replace
import math
from typing import TYPE_CHECKING

from embodied_r_ros.core.perception.classical import ClassicalConfig, ClassicalPerceiver
from embodied_r_ros.core.types.deltas import ItemStatus, ScaleSource
from embodied_r_ros.core.types.images import encode_image, pack_depth, PackedDepth
from embodied_r_ros.core.types.keyframes import Keyframe, KeyframeReason
import numpy as np
import pytest

from test.raycast_room import CAMERA, pose_at, Room, Solid

if TYPE_CHECKING:
    from embodied_r_ros.core.types.geometry import Pose

BALL = Solid((1.6, 0.7, 0.2), (0.4, 0.4, 0.4), (20, 20, 210), is_ball=True)
# Something on a wall: no floor below it, and as blue as nothing else.
HUNG = Solid((2.2, -0.4, 1.4), (0.3, 0.3, 0.3), (210, 60, 20))
SOLIDS = (BALL, HUNG)
EYE, LATER = pose_at(-0.8, 0.0, 1.0, 0.0, 0.1), pose_at(-0.8, 0.5, 1.0, 0.0, 0.1)


def keyframe(number: int, pose: Pose, *, depth: bool = True, odometry: bool = True) -> Keyframe:
    room = Room(0, contrast=0.6)
    metres = room.depth(pose, SOLIDS)
    return Keyframe(
        number,
        number,
        encode_image(room.view(pose, SOLIDS)),
        KeyframeReason.FIRST,
        number,
        intrinsics=CAMERA,
        pose=pose if odometry else None,
        depth=pack_depth(metres[::2, ::2]) if depth else None,
    )


def distances(
    earlier: Keyframe | None, later: Keyframe, **config: float
) -> dict[str, tuple[float, ScaleSource]]:
    """Distance and what it rests on, by the colour of the item."""
    delta = ClassicalPerceiver(ClassicalConfig(**config)).perceive(earlier, later)  # type: ignore[arg-type]
    assert not delta.error
    return {item.label.split()[0]: (item.distance_m, item.scale) for item in delta.items}


def true_m(solid: Solid, pose: Pose) -> float:
    return math.dist(solid.centre, pose.position)


def test_depth_gives_distances_without_poses_or_floor() -> None:
    found = distances(None, keyframe(0, EYE, odometry=False))
    for colour, solid in (('red', BALL), ('blue', HUNG)):
        assert found[colour][1] is ScaleSource.DEPTH
        assert found[colour][0] == pytest.approx(true_m(solid, EYE), rel=0.06)


def test_depth_goes_before_two_views_and_the_floor() -> None:
    found = distances(keyframe(0, EYE), keyframe(1, LATER))
    assert {scale for _, scale in found.values()} == {ScaleSource.DEPTH}
    assert found['red'][0] == pytest.approx(true_m(BALL, LATER), rel=0.06)


def test_without_depth_two_views_of_odometry_give_the_distance() -> None:
    found = distances(keyframe(0, EYE, depth=False), keyframe(1, LATER, depth=False))
    assert {scale for _, scale in found.values()} == {ScaleSource.ODOMETRY}
    assert found['blue'][0] == pytest.approx(true_m(HUNG, LATER), rel=0.1)


def test_one_view_without_depth_has_the_floor_alone() -> None:
    found = distances(None, keyframe(0, EYE, depth=False))
    assert found['red'][1] is ScaleSource.FLOOR
    assert found['red'][0] == pytest.approx(true_m(BALL, EYE), rel=0.08)
    assert found['blue'][1] is ScaleSource.UNKNOWN
    assert math.isnan(found['blue'][0])


def test_holes_and_damaged_depth_leave_the_rest() -> None:
    holes = replace(keyframe(0, EYE), depth=pack_depth(np.zeros((120, 160), np.float32)))
    damaged = replace(keyframe(0, EYE), depth=PackedDepth(b'nothing'))
    for shown in (holes, damaged):
        assert distances(None, shown)['red'][1] is ScaleSource.FLOOR


def test_an_item_knows_where_it_is_and_where_it_was_last() -> None:
    perceiver = ClassicalPerceiver()
    away = pose_at(-0.8, 0.0, 1.0, math.pi, 0.1)
    [gone] = [
        item
        for item in perceiver.perceive(keyframe(0, EYE), keyframe(1, away)).items
        if item.label.startswith('red')
    ]
    assert gone.status is ItemStatus.LEFT
    assert gone.position is not None
    place = EYE.rotation() @ np.array(gone.position) + EYE.position
    assert place == pytest.approx(np.array(BALL.centre), abs=0.1)
