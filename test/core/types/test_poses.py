# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import math

from embodied_r_ros.core.types.geometry import matrix_from_quaternion, Pose, yaw_pitch_roll
from embodied_r_ros.core.types.poses import interpolate, mounted_pose, PoseBuffer
import numpy as np
import pytest

S = 1_000_000_000


def facing(yaw: float, x: float = 0.0, frame_id: str = 'odom') -> Pose:
    return Pose((x, 0.0, 0.0), (0.0, 0.0, math.sin(yaw / 2), math.cos(yaw / 2)), frame_id)


def yaw_of(pose: Pose | None) -> float:
    assert pose is not None
    return yaw_pitch_roll(pose.rotation())[0]


def buffer(*poses: tuple[int, Pose]) -> PoseBuffer:
    made = PoseBuffer()
    for stamp_ns, pose in poses:
        made.add(stamp_ns, pose)
    return made


def test_pose_between_two_is_a_share_of_the_way() -> None:
    between = interpolate(facing(0.0), facing(1.0, x=2.0), 0.25)
    assert between.position == (0.5, 0.0, 0.0)
    assert yaw_of(between) == pytest.approx(0.25)


def test_turn_takes_the_shorter_way_round() -> None:
    later = facing(0.5)
    x, y, z, w = later.orientation
    flipped = Pose(later.position, (-x, -y, -z, -w), 'odom')
    assert yaw_of(interpolate(facing(0.1), flipped, 0.5)) == pytest.approx(0.3)


def test_poses_of_two_frames_have_nothing_in_between() -> None:
    with pytest.raises(ValueError, match="two frames, 'odom' and 'map'"):
        interpolate(facing(0.0), facing(1.0, frame_id='map'), 0.5)


def test_mounted_camera_moves_with_its_base() -> None:
    # A base that looks along +y; the camera sits 0.2 m before it, looking 90 degrees right.
    camera = mounted_pose(facing(math.pi / 2, x=1.0), (0.2, 0.0, 0.5), (0.0, 0.0, -math.pi / 2))
    assert camera.position == pytest.approx((1.0, 0.2, 0.5))
    assert yaw_of(camera) == pytest.approx(0.0)


def test_camera_that_looks_down_is_pitched() -> None:
    camera = mounted_pose(facing(0.0), (0.0, 0.0, 0.0), (0.0, 0.5, 0.0))
    forward = matrix_from_quaternion(camera.orientation) @ np.array([1.0, 0.0, 0.0])
    assert forward[2] == pytest.approx(-math.sin(0.5))


def test_pose_at_a_stamp_is_interpolated() -> None:
    assert yaw_of(buffer((0, facing(0.0)), (S // 10, facing(0.4))).at(S // 40)) == (
        pytest.approx(0.1)
    )


def test_pose_at_its_own_stamp_is_exactly_that_pose() -> None:
    poses = [facing(0.1), facing(0.4, x=1.0), facing(0.7)]
    kept = buffer(*((step * S // 10, pose) for step, pose in enumerate(poses)))
    assert [kept.at(step * S // 10) for step in range(3)] == poses


def test_camera_without_offset_has_exactly_the_pose_of_its_base() -> None:
    base = facing(0.3)
    assert mounted_pose(base, (0.0, 0.0, 0.0), (0.0, 0.0, 0.0)) == base


def test_pose_just_outside_is_the_nearest_one() -> None:
    poses = buffer((0, facing(0.0)), (S // 10, facing(0.4)))
    assert yaw_of(poses.at(2 * S // 10)) == pytest.approx(0.4)
    assert poses.at(2 * S // 10 + 1) is None
    assert poses.at(-S // 10 - 1) is None


def test_nothing_is_known_across_a_gap_in_odometry() -> None:
    poses = buffer((0, facing(0.0)), (3 * S, facing(0.4)))
    assert poses.at(S) is None


def test_reaches_tells_when_waiting_is_over() -> None:
    poses = buffer((0, facing(0.0)), (S, facing(0.4)))
    assert poses.reaches(S)
    assert not poses.reaches(S + 1)
    assert not PoseBuffer().reaches(0)


def test_clock_that_goes_back_forgets_the_future() -> None:
    poses = buffer((S, facing(0.0)), (0, facing(0.4)))
    assert poses.at(S) is None
    assert yaw_of(poses.at(0)) == pytest.approx(0.4)


def test_memory_is_bounded() -> None:
    poses = PoseBuffer(capacity=3)
    for step in range(10):
        poses.add(step * S // 10, facing(0.0))
    assert poses.at(5 * S // 10) is None
    assert poses.at(7 * S // 10) is not None


def test_poses_that_come_often_are_thinned_and_the_newest_is_kept() -> None:
    poses = PoseBuffer(capacity=50, spacing_ns=S // 100)
    for step in range(1000):  # at 1 kHz
        poses.add(step * S // 1000, facing(0.0, x=step / 1000))
    newest, past = poses.at(999 * S // 1000), poses.at(S * 6 // 10)
    assert newest
    assert newest.position[0] == 0.999
    assert past
    assert past.position[0] == pytest.approx(0.6)
    assert poses.at(S // 10) is None  # the memory is bounded
    poses.add(S * 6005 // 10_000, facing(0.0, x=9.0))  # late, and beside one that is there
    past = poses.at(S * 6005 // 10_000)
    assert past
    assert past.position[0] == pytest.approx(0.6005)


def test_slow_poses_are_all_kept() -> None:
    poses = PoseBuffer(capacity=50, spacing_ns=S // 100)
    stamps = [step * S // 100 for step in (0, 1, 2, 4, 3)]
    for stamp_ns in stamps:
        poses.add(stamp_ns, facing(0.0, x=stamp_ns / S))
    found = [poses.at(stamp_ns) for stamp_ns in stamps]
    assert [pose and pose.position[0] for pose in found] == [0.0, 0.01, 0.02, 0.04, 0.03]


@pytest.mark.parametrize(
    'pose',
    [
        Pose((0.0, 0.0, 0.0), (0.0, 0.0, 0.0, 0.0), 'odom'),
        Pose((math.nan, 0.0, 0.0), (0.0, 0.0, 0.0, 1.0), 'odom'),
    ],
)
def test_pose_that_is_none_is_refused(pose: Pose) -> None:
    with pytest.raises(ValueError, match=r'not a rotation|not finite'):
        PoseBuffer().add(0, pose)
