# SPDX-License-Identifier: Apache-2.0
"""Where an arm was, from what a real bag may have: poses, transforms, or joints with a URDF."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from embodied_r_ros.errors import BagError, ConfigError
from embodied_r_ros.keypoints.setup import ArmSetup
from embodied_r_ros.recordings.bags import open_bag
from embodied_r_ros.recordings.demonstrations import read_demonstration
import numpy as np
import pytest

from test.keypoints.bags import angles, RATE_HZ, SETUP, tool_at, URDF, write_bag

if TYPE_CHECKING:
    from pathlib import Path

    from embodied_r_ros.keypoints.demonstration import Demonstration
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
    with pytest.raises(BagError, match="has not joint 'wrist'"):
        read(tmp_path / 'bag', replace(SETUP, joints=('wrist',)))
    with pytest.raises(BagError, match=r'no topic .*/other.*setting joint_topic'):
        read(tmp_path / 'bag', replace(SETUP, joint_topic='/other'))


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
