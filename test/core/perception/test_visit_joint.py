# SPDX-License-Identifier: Apache-2.0
"""A second visit finds itself in the first, or is told why not: never in the wrong place."""

from __future__ import annotations

from dataclasses import replace
import math
from typing import TYPE_CHECKING

from embodied_r_ros.core.perception.egomotion import Features
from embodied_r_ros.core.perception.visit_joint import (
    join_visits,
    JointSearch,
    NotJoinedError,
    place_points,
    VisitKeyframe,
)
from embodied_r_ros.core.types.geometry import (
    BODY_FROM_OPTICAL,
    pixels_of_points,
    Pose,
    quaternion_from_matrix,
    rotation_from_ypr,
)
import numpy as np
import pytest

from test.core.perception.test_keyframe_way import at, CAMERA, together, Wall

if TYPE_CHECKING:
    from collections.abc import Sequence

WAY = [at(0.05 * n, -1.5 + 0.5 * n, 30.0 - 10.0 * n) for n in range(7)]
BACK = [at(0.2, 1.2 - 0.5 * n, -25.0 + 10.0 * n) for n in range(5)]
PLACE, OTHER = Wall(1), Wall(2)


def visit(
    walls: Sequence[Wall], ways: Sequence[Pose], frame: Pose | None = None
) -> list[VisitKeyframe]:
    """Keyframes of a visit to where all walls are, whose own frame lies elsewhere."""
    shots = []
    for number, pose in enumerate(ways):
        seen = walls[0].seen(pose, number)
        for wall in walls[1:]:
            seen = together(seen, wall.seen(pose, number))
        shots.append(VisitKeyframe(pose if frame is None else within(frame, pose), seen, CAMERA))
    place_points(shots)
    return shots


def within(frame: Pose, pose: Pose) -> Pose:
    """A pose as it is in another frame."""
    turn = frame.rotation()
    x, y, z = (float(v) for v in turn.T @ np.subtract(pose.position, frame.position))
    return Pose((x, y, z), quaternion_from_matrix(turn.T @ pose.rotation()), 'odom')


FRAME = Pose((3.0, -2.0, 0.0), at(0, 0, 70.0).orientation, 'room')


def test_a_visit_with_a_frame_of_its_own_is_joined() -> None:
    joint = join_visits(visit([PLACE], WAY), visit([PLACE], BACK, FRAME))
    off = [math.dist(joint.pose(within(FRAME, pose)).position, pose.position) for pose in BACK]
    assert max(off) < 0.05
    assert len(joint.pairs) == len(BACK)
    assert joint.frame_id == 'room'


def test_a_place_whose_every_point_has_a_double_elsewhere_is_not_joined() -> None:
    double = Wall(9, looks=1)
    with pytest.raises(NotJoinedError, match='could not find itself in the old map'):
        join_visits(visit([PLACE], WAY), visit([double], BACK, FRAME))


def part_of(wall: Wall, radius_m: float) -> Wall:
    """What is near to the middle of a wall alone, like one poster that hangs there."""
    part = Wall(1)
    near = np.linalg.norm(wall.points - (4.5, 0.0, 0.0), axis=1) < radius_m
    part.points, part._looks = wall.points[near], wall._looks[near]
    return part


def test_one_thing_that_looks_the_same_in_two_places_joins_them_not() -> None:
    poster = part_of(PLACE, 1.3)
    assert len(poster.points) > 40
    with pytest.raises(NotJoinedError, match='share too little'):
        join_visits(visit([OTHER, poster], WAY), visit([Wall(3), poster], BACK, FRAME))


def test_a_place_of_which_two_parts_stand_elsewhere_is_not_joined() -> None:
    """Each half of what the second visit saw fits the first one, in its own way."""
    left, right = Wall(1), Wall(1)
    is_left = PLACE.points[:, 1] > 0
    left.points, left._looks = PLACE.points[is_left], PLACE._looks[is_left]
    right.points, right._looks = PLACE.points[~is_left] - (0, 2.0, 0), PLACE._looks[~is_left]
    with pytest.raises(NotJoinedError, match='more than one way'):
        join_visits(visit([PLACE], WAY), visit([left, right], BACK, FRAME))


def test_another_place_that_has_two_parts_of_the_first_is_not_joined() -> None:
    """Views that should show the same as ones of the first visit show something else."""
    ends = Wall(1)
    far = np.abs(PLACE.points[:, 1]) > 3.0
    ends.points, ends._looks = PLACE.points[far], PLACE._looks[far]
    sides = [at(0.0, y, 60.0 * np.sign(y)) for y in (-1.5, -1.0, 1.0, 1.5)]
    middle = [at(0.2, 0.2 * n - 0.6) for n in range(7)]
    first = visit([PLACE], [*sides, *middle])
    second = visit([ends], sides, FRAME) + visit([OTHER], middle, FRAME)
    with pytest.raises(NotJoinedError, match='another place'):
        join_visits(first, second)


def test_visits_that_disagree_on_what_is_up_are_not_joined() -> None:
    tilt = Pose((0.0, 0.0, 0.0), quaternion_from_matrix(rotation_from_ypr(0, 0.3, 0)), 'room')
    with pytest.raises(NotJoinedError):
        join_visits(visit([PLACE], WAY), visit([PLACE], BACK, tilt))


def test_depth_places_points_of_a_view_that_stays() -> None:
    """A camera that turns alone has no parallax: with depth its visit is joined all the same."""
    turns = [at(0.0, 0.0, 20.0 * n - 20.0) for n in range(3)]
    first = visit([PLACE], turns)
    with pytest.raises(NotJoinedError):
        join_visits(first, visit([PLACE], BACK, FRAME))
    for shot, pose in zip(first, turns, strict=True):
        ahead = (PLACE.points - pose.position) @ pose.rotation() @ BODY_FROM_OPTICAL
        depth = np.zeros((480, 640), np.float32)
        columns, rows = np.floor(pixels_of_points(CAMERA, ahead) + 0.5).astype(int).T
        shown = (columns >= 0) & (columns < 640) & (rows >= 0) & (rows < 480) & (ahead[:, 2] > 0.5)
        for near_x in (-1, 0, 1):
            for near_y in (-1, 0, 1):
                at_x, at_y = np.clip(columns + near_x, 0, 639), np.clip(rows + near_y, 0, 479)
                depth[at_y[shown], at_x[shown]] = ahead[shown, 2]
        shot.lift(depth)
    joint = join_visits(first, visit([PLACE], BACK, FRAME))
    assert max(math.dist(joint.pose(within(FRAME, p)).position, p.position) for p in BACK) < 0.1


def test_a_visit_without_features_is_not_joined() -> None:
    blank = Features(np.zeros((0, 2)), np.zeros((0, 128), np.float32))
    dark = [replace(shot, features=blank) for shot in visit([PLACE], BACK)]
    with pytest.raises(NotJoinedError):
        join_visits(visit([PLACE], WAY), dark)


def test_what_is_found_follows_the_newest_keyframes() -> None:
    """Odometry slips: for a while nothing is sure, then the visit is where it is now."""
    slip = Pose((3.0, -1.2, 0.0), FRAME.orientation, 'room')
    search, found = JointSearch(visit([PLACE], WAY), most=4), []
    for number, shot in enumerate(visit([PLACE], BACK, FRAME) + visit([PLACE], BACK, slip)):
        search.add(number, shot)
        try:
            joint = search.joint()
        except NotJoinedError:
            found.append('lost')
            continue
        frames = {'before': FRAME, 'after': slip}
        off = {k: math.dist(joint.translation, frame.position) for k, frame in frames.items()}
        found.append(min(off, key=lambda key: off[key]))
        assert min(off.values()) < 0.1
    assert found[0] == 'lost'
    assert found[4] == 'before'
    assert 'lost' in found[5:-1]
    assert found[-1] == 'after'
