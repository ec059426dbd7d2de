# SPDX-License-Identifier: Apache-2.0
"""Where an arm was, from what a real bag may have: poses, transforms, or joints with a URDF."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, TYPE_CHECKING

from embodied_r_ros.arm.demonstration_bag import read_demonstration
from embodied_r_ros.arm.robot import ArmSetup
from embodied_r_ros.bags.message_types import BagMessageFactory
from embodied_r_ros.bags.messages import joint_state_to_msg, pose_stamped_to_msg
from embodied_r_ros.bags.reader import open_bag
from embodied_r_ros.bags.writer import BagWriter, RELIABLE_QOS
from embodied_r_ros.common.errors import BagError, ConfigError
from embodied_r_ros.core.types.episodes import EpisodeEvent, EpisodeMark
from embodied_r_ros.core.types.geometry import Pose
from embodied_r_ros.data.own_messages import mark_to_msg
import numpy as np
import pytest

from test.arm.bags import angles, FRAME, RATE_HZ, SETUP, tool_at, URDF, write_bag

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from embodied_r_ros.arm.demonstration import Demonstration
    from numpy.typing import NDArray


def read(path: Path, setup: ArmSetup | None = None) -> Demonstration:
    with open_bag(path) as reader:
        return read_demonstration(reader, setup)


def true_positions(shown: Demonstration) -> NDArray[np.float64]:
    return np.array([tool_at(*angles(second)) for second in shown.seconds()])


@pytest.mark.parametrize('poses', ['topic', 'tf', 'urdf'])
def test_every_source_gives_the_true_positions(tmp_path: Path, poses: str) -> None:
    if poses == 'urdf':
        pytest.importorskip('yourdfpy')
    write_bag(tmp_path / 'bag', poses=poses == 'topic', links=poses == 'tf')
    for setup in (SETUP, replace(SETUP, poses=poses)):
        shown = read(tmp_path / 'bag', setup)
        assert len(shown) == 90
        assert shown.positions is not None
        assert np.abs(shown.positions - true_positions(shown)).max() < 1e-9


def test_the_gripper_is_normalised_and_velocities_are_differences_where_none_are_published(
    tmp_path: Path,
) -> None:
    write_bag(tmp_path / 'bag', still=True)
    write_bag(tmp_path / 'full')
    without, full = read(tmp_path / 'bag'), read(tmp_path / 'full')
    assert without.openings is not None
    assert without.openings[[0, -1]] == pytest.approx([1.0, 0.25])
    assert without.joint_speeds is not None
    assert full.joint_speeds is not None
    assert np.abs(without.joint_speeds - full.joint_speeds).max() < 0.4  # at corners of the way
    assert np.median(np.abs(without.joint_speeds - full.joint_speeds)) < 1e-6
    assert RATE_HZ == 20.0


def test_poses_of_another_frame_are_refused(tmp_path: Path) -> None:
    write_bag(tmp_path / 'bag')
    setup = replace(SETUP, frame_id='map')
    with pytest.raises(BagError, match="are in frame 'table_center', not in 'map'"):
        read(tmp_path / 'bag', setup)
    with pytest.raises(BagError, match='no transforms lead from tool to map'):
        read(tmp_path / 'bag', replace(setup, poses='tf'))


def test_a_bag_that_does_not_tell_where_the_arm_was_says_so(tmp_path: Path) -> None:
    write_bag(tmp_path / 'bag', poses=False, links=False)
    with pytest.raises(BagError, match='does not tell where the end effector is'):
        read(tmp_path / 'bag', replace(SETUP, poses='topic'))
    with pytest.raises(BagError, match='has all of the joints wrist: they have elbow, shoulder'):
        read(tmp_path / 'bag', replace(SETUP, joints=('wrist',)))
    with pytest.raises(BagError, match=r'no topic .*/other.*setting joint_topic'):
        read(tmp_path / 'bag', replace(SETUP, joint_topic='/other'))


@pytest.mark.parametrize('poses', ['tf', 'urdf'])
def test_orientations_come_from_where_positions_do(tmp_path: Path, poses: str) -> None:
    if poses == 'urdf':
        pytest.importorskip('yourdfpy')
    write_bag(tmp_path / 'bag', poses=False, links=poses == 'tf')
    shown = read(tmp_path / 'bag', replace(SETUP, poses=poses))
    yaw = np.array([sum(angles(second)) for second in shown.seconds()])
    assert shown.orientations is not None
    assert np.abs(shown.orientations[:, 2] - np.sin(yaw / 2)).max() < 1e-6


def test_of_two_topics_of_poses_none_is_asked_for_where_transforms_tell(tmp_path: Path) -> None:
    record(tmp_path / 'bag', [(0.0, '/target_pose', Pose((0, 0, 0), (0, 0, 0, 1), FRAME))])
    setup = replace(SETUP, joints=(), joint_topic='', gripper_joints=(), gripper_topic='')
    with pytest.raises(BagError, match='name one as pose_topic'):
        read(tmp_path / 'bag', setup)
    with pytest.raises(BagError, match=r'does not tell where the end effector is \(poses: tf\)'):
        read(tmp_path / 'bag', replace(setup, poses='tf'))


def record(path: Path, more: Sequence[tuple[float, str, Any]] = ()) -> None:
    """Write 2 s of an arm whose gripper's driver shares a topic with that of the arm."""
    make, said = BagMessageFactory(), list(more)
    for index in range(40):
        at = index / RATE_HZ
        names, places = ('shoulder', 'elbow'), (0.1 * at, 0.2 * at)
        speeds = (0.1, 0.2) if index % 3 else ()
        said += [(at, '/tool', Pose((at, 0.0, 0.2), (0.0, 0.0, 0.0, 1.0), FRAME))]
        said += [(at, '/joint_states', (('finger',), (0.04 - 0.02 * (at > 1.0),), ()))]
        said += [(at, '/joint_states', (names, places, speeds))]
    with BagWriter(path) as bag:
        kinds = {Pose: 'geometry_msgs/msg/PoseStamped', tuple: 'sensor_msgs/msg/JointState'}
        kinds |= {EpisodeMark: 'embodied_r_msgs/msg/EpisodeMark'}
        for topic, kind in {topic: kinds[type(value)] for _, topic, value in said}.items():
            bag.add_topic(topic, kind, RELIABLE_QOS)
        for at, topic, value in sorted(said, key=lambda each: each[0]):
            stamp_ns = 10**9 + round(at * 1e9)
            if isinstance(value, Pose):
                msg = pose_stamped_to_msg(make, stamp_ns, value)
            elif isinstance(value, EpisodeMark):
                msg = mark_to_msg(make, value)
            else:
                msg = joint_state_to_msg(make, stamp_ns, *value)
            bag.write(topic, msg, stamp_ns)


SHARED = replace(SETUP, joints=(), joint_topic='', gripper_topic='')


def test_drivers_of_arm_and_gripper_may_share_a_topic(tmp_path: Path) -> None:
    """And may tell velocities now and then only, which are differences then."""
    record(tmp_path / 'bag')
    shown = read(tmp_path / 'bag', SHARED)
    assert len(shown) == 40
    assert shown.openings is not None
    assert shown.openings[[0, -1]] == pytest.approx([1.0, 0.5])
    assert shown.joint_speeds is not None
    assert shown.joint_speeds == pytest.approx(np.tile([0.1, 0.2], (40, 1)))


def test_what_lies_outside_of_the_marks_is_left_out(tmp_path: Path) -> None:
    def mark(second: float, event: EpisodeEvent) -> tuple[float, str, EpisodeMark]:
        stamp_ns = 10**9 + round(second * 1e9)
        return second, '/episode_mark', EpisodeMark(stamp_ns, 'a', event, 'wave')

    marks = [mark(0.5, EpisodeEvent.START), mark(1.5, EpisodeEvent.STOP)]
    record(tmp_path / 'bag', marks)
    shown = read(tmp_path / 'bag', SHARED)
    assert shown.stamps_ns[[0, -1]].tolist() == [1_500_000_000, 2_500_000_000]
    record(tmp_path / 'late', [mark(9.0, EpisodeEvent.START)])
    with pytest.raises(BagError, match='nothing between the start and the stop'):
        read(tmp_path / 'late', SHARED)


@pytest.mark.parametrize(
    ('urdf', 'named'),
    [
        ('', 'there is no URDF'),
        ('<robot', 'cannot be read'),
        (URDF.replace('tool', 'x'), "'tool'"),
    ],
)
def test_a_urdf_that_does_not_help_is_told(tmp_path: Path, urdf: str, named: str) -> None:
    pytest.importorskip('yourdfpy')
    write_bag(tmp_path / 'bag', poses=False, links=False, urdf=urdf)
    with pytest.raises(ConfigError, match=named):
        read(tmp_path / 'bag')


def test_a_setup_is_read_from_yaml_and_told_where_it_is_wrong(tmp_path: Path) -> None:
    file = tmp_path / 'arm.yaml'
    file.write_text('frame_id: world\njoints: [a, b]\ngripper_joints: [f]\ngripper_open: 0.08\n')
    setup = ArmSetup.from_yaml(file)
    assert (setup.joints, setup.opening(0.04)) == (('a', 'b'), 0.5)
    assert ArmSetup.from_json(setup.to_json()) == setup
    for text, named in (
        ('frameid: x', "did you mean 'frame_id'"),
        ('gripper_joints: [f]\ngripper_open: 0.0', 'are both 0.0'),
        ('reference: [1, 2]', 'three numbers'),
        ('- 3', 'not a list of settings'),
    ):
        file.write_text(text)
        with pytest.raises(ConfigError, match=named):
            ArmSetup.from_yaml(file)
