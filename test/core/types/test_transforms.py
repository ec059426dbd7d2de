# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import math

from embodied_r_ros.core.types.geometry import (
    BODY_FROM_OPTICAL,
    Pose,
    quaternion_from_matrix,
    rotation_from_ypr,
    yaw_pitch_roll,
)
from embodied_r_ros.core.types.poses import NoPose, TransformTree
import pytest

S = 1_000_000_000
OPTICAL = quaternion_from_matrix(BODY_FROM_OPTICAL)


def yaw_to(yaw_deg: float) -> tuple[float, float, float, float]:
    return quaternion_from_matrix(rotation_from_ypr(math.radians(yaw_deg), 0.0, 0.0))


def tree(*, odom: bool = True, map_: bool = False) -> TransformTree:
    """A robot that drives 1 m/s ahead; its camera is 1 m up, looks left, and is optical."""
    made = TransformTree()
    made.add_static('/camera_link', Pose((0.2, 0.0, 1.0), yaw_to(90), '/base_link'))
    made.add_static('eye', Pose((0.0, 0.0, 0.0), OPTICAL, 'camera_link'))
    for second in range(4):
        if odom:
            made.add('base_link', second * S, Pose((float(second), 0.0, 0.0), yaw_to(0), 'odom'))
        if map_:
            made.add('odom', second * S, Pose((100.0, 0.0, 0.0), yaw_to(0), 'map'))
    return made


def reason(found: Pose | NoPose) -> str:
    assert isinstance(found, NoPose)
    return found.reason


@pytest.mark.parametrize('frame', ['eye', '/eye', 'camera_link'])
def test_camera_is_where_the_chain_puts_it_at_the_stamp(frame: str) -> None:
    pose = tree(map_=True).camera_at(frame, 3 * S // 2)
    assert isinstance(pose, Pose)
    assert pose.frame_id == 'odom'
    assert pose.position == pytest.approx((1.7, 0.0, 1.0))
    assert yaw_pitch_roll(pose.rotation()) == pytest.approx((math.pi / 2, 0.0, 0.0), abs=1e-9)


def test_camera_that_looks_down_does_so_wherever_its_robot_turns() -> None:
    made, down = TransformTree(), rotation_from_ypr(0.0, math.radians(30), 0.0)
    made.add_static('camera_link', Pose((0.0, 0.0, 1.0), quaternion_from_matrix(down), 'base'))
    made.add('base', S, Pose((0.0, 0.0, 0.0), yaw_to(90), 'odom'))
    pose = made.camera_at('camera_link', S)
    assert isinstance(pose, Pose)
    angles = map(math.degrees, yaw_pitch_roll(pose.rotation()))
    assert tuple(angles) == pytest.approx((90.0, 30.0, 0.0), abs=1e-9)


def test_turn_between_two_transforms_is_a_share_of_the_way() -> None:
    made = TransformTree()
    for second, yaw_deg in enumerate((170, -170)):
        made.add('eye_link', second * S, Pose((0.0, 0.0, 0.0), yaw_to(yaw_deg), 'r1/map'))
    pose = made.camera_at('eye_link', S // 4)
    assert isinstance(pose, Pose)
    assert math.degrees(yaw_pitch_roll(pose.rotation())[0]) == pytest.approx(175)


def test_broken_chain_says_where_it_ends() -> None:
    assert reason(tree(odom=False).camera_at('eye', S)) == (
        'no transforms lead from eye to odom or map: they end at base_link'
    )
    assert 'they end at lens' in reason(tree().camera_at('lens', S))


def test_loop_of_transforms_ends() -> None:
    made = TransformTree()
    made.add_static('a', Pose((0.0, 0.0, 0.0), yaw_to(0), 'b'))
    made.add_static('b', Pose((0.0, 0.0, 0.0), yaw_to(0), 'a'))
    assert 'they end at b' in reason(made.camera_at('a', S))


def test_gap_is_refused_not_bridged() -> None:
    made = tree()
    made.add('base_link', 9 * S, Pose((9.0, 0.0, 0.0), yaw_to(0), 'odom'))
    gap = 'the transform of base_link in odom has gaps at images'
    assert reason(made.camera_at('eye', 6 * S)) == gap
    assert reason(made.camera_at('eye', 10 * S)) == gap


def test_frame_with_two_parents_is_refused() -> None:
    made = tree()
    made.add('base_link', 4 * S, Pose((4.0, 0.0, 0.0), yaw_to(0), 'map'))
    assert reason(made.camera_at('eye', S)) == 'base_link has two parents, odom and map'


def test_waiting_ends_when_all_that_moves_is_known() -> None:
    made = tree(map_=True)
    assert made.reaches('eye', 3 * S)
    assert not made.reaches('eye', 3 * S + 1)
    assert not made.reaches('lens', 0)


def test_a_frame_is_told_in_one_of_another_branch() -> None:
    """A table and a tool on one base: neither is above the other."""
    quarter = yaw_to(90.0)
    tree = TransformTree()
    tree.add_static('table', Pose((1.0, 0.0, 0.5), quarter, 'base'))
    tree.add('tool', 0, Pose((1.0, 0.2, 0.7), (0.0, 0.0, 0.0, 1.0), 'base'))
    tree.add('tool', 10**8, Pose((1.0, 0.4, 0.7), (0.0, 0.0, 0.0, 1.0), 'base'))
    found = tree.pose_in('table', 'tool', 5 * 10**7)
    assert isinstance(found, Pose)
    assert found.position == pytest.approx((0.3, 0.0, 0.2))
    assert found.frame_id == 'table'
    assert tree.reaches_between('table', 'tool', 10**8)
    assert not tree.reaches_between('table', 'tool', 10**8 + 1)
    absent = tree.pose_in('map', 'tool', 0)
    assert isinstance(absent, NoPose)
    assert absent.reason == 'no transforms lead from tool to map: they end at base'
