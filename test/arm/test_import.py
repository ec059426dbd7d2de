# SPDX-License-Identifier: Apache-2.0
"""Datasets of demonstrations become bags, by small ones that are written here."""

from __future__ import annotations

import json
from pathlib import Path
import pickle
from typing import Any

import cv2
from embodied_r_ros.arm.demonstration_bag import read_demonstration
from embodied_r_ros.arm.episodes import read_arm_episode
from embodied_r_ros.bags.reader import open_bag
from embodied_r_ros.cli.main import main
from embodied_r_ros.data.questions.row import read_rows
import numpy as np
import pytest

from test.arm.datasets import CAMERA, check, lerobot_v2, lerobot_v3, rlbench, run


@pytest.mark.parametrize('version', ['v2.0', 'v2.1'])
@pytest.mark.parametrize('dtype', ['image', 'video'])
def test_lerobot_with_a_file_for_each_episode_is_imported(
    tmp_path: Path, dtype: str, version: str
) -> None:
    lerobot_v2(tmp_path / 'set', dtype, version)
    code, bags = run(tmp_path / 'set', tmp_path, f'image: {CAMERA}')
    assert code == 0
    assert [shown.task for shown in check(bags)] == ['task 0', 'task 1']


@pytest.mark.parametrize('dtype', ['image', 'video'])
def test_lerobot_with_several_episodes_in_a_file_is_imported(tmp_path: Path, dtype: str) -> None:
    lerobot_v3(tmp_path / 'set', dtype)
    code, bags = run(tmp_path / 'set', tmp_path, f'image: {CAMERA}')
    assert code == 0
    assert [shown.task for shown in check(bags)] == ['task 0', 'task 1']


@pytest.mark.parametrize('as_json', [True, False])
def test_folders_of_rlbench_are_imported(tmp_path: Path, as_json: bool) -> None:
    rlbench(tmp_path / 'set', as_json=as_json)
    more = 'image: front_rgb\ntask: pick it up\nrate_hz: 20'
    code, bags = run(tmp_path / 'set', tmp_path, more)
    assert code == 0
    assert [shown.task for shown in check(bags, 20.0)] == ['pick it up'] * 2


RLBENCH_MAPPING = """
xyz: {column: gripper_pose, at: [0, 1, 2]}
rotation: {column: gripper_pose, at: [3, 4, 5, 6]}
joints: {column: joint_positions, at: [0, 1, 2, 3, 4, 5, 6]}
velocities: {column: joint_velocities, at: [0, 1, 2, 3, 4, 5, 6]}
gripper: {column: gripper_open, at: [0]}
image: front_rgb
frame_id: world
task: lift it
camera:
  position: [1.35, 0.0, 1.58]
  orientation: [-0.5963677, -0.5963677, 0.3799283, 0.3799283]
  width: 64
  height: 64
  fx: 87.92
  fy: 87.92
  cx: 32.0
  cy: 32.0
"""
WAY = [(0.2, 0.0, 1.4), (0.25, 0.2, 0.8), (0.25, 0.2, 1.3)]


def rlbench_as_it_is(root: Path) -> None:
    """An arm that goes down, grips and lifts, with the names that RLBench has for it."""
    folder = root / 'lift' / 'variation0' / 'episodes' / 'episode0'
    (folder / 'front_rgb').mkdir(parents=True)
    times = np.arange(100) / 20
    ways = zip(*WAY[:2], *WAY[1:], strict=True)
    place = np.stack([np.interp(times, [0, 1.5, 3, 4.5], way) for way in ways], 1)
    is_open = (times < 2.0).astype(float)
    yaw = np.interp(times, [0, 1.5], [0.0, np.pi / 4])
    turn = np.stack([0 * yaw, 0 * yaw, np.sin(yaw / 2), np.cos(yaw / 2)], 1)
    speeds = np.gradient(place[:, 2], times)
    np.savez(
        folder / 'low_dim.npz',
        gripper_pose=np.hstack([place, turn]),
        gripper_open=is_open,
        joint_positions=np.tile(place[:, 2:], 7),
        joint_velocities=np.tile(speeds[:, None], 7),
    )
    picture = np.random.default_rng(0).integers(60, 160, (64, 64, 3)).astype(np.uint8)
    for row in range(100):
        cv2.imwrite(str(folder / 'front_rgb' / f'{row}.png'), picture)


def test_what_rlbench_recorded_becomes_questions(tmp_path: Path) -> None:
    rlbench_as_it_is(tmp_path / 'set')
    (tmp_path / 'mapping.yaml').write_text(RLBENCH_MAPPING)
    given = ['--mapping', str(tmp_path / 'mapping.yaml'), '--out', str(tmp_path / 'bags')]
    assert main(['demos', 'import', str(tmp_path / 'set'), *given]) == 0
    out = tmp_path / 'rows.jsonl'
    asked = ['questions', str(tmp_path / 'bags'), '--robot', 'franka_rlbench', '--out', str(out)]
    assert main(asked) == 0
    kinds = {row.question_type for row in read_rows(out) if row.state}
    assert kinds == {'waypoint', 'current_state', 'movement'}


@pytest.mark.parametrize(('rotation', 'is_told'), [(True, True), (False, False)])
def test_an_orientation_that_no_dataset_tells_is_not_made_up(
    tmp_path: Path, *, rotation: bool, is_told: bool
) -> None:
    rlbench_as_it_is(tmp_path / 'set')
    lines = RLBENCH_MAPPING.splitlines()
    kept = [line for line in lines if rotation or not line.startswith('rotation')]
    (tmp_path / 'mapping.yaml').write_text('\n'.join(kept))
    given = ['--mapping', str(tmp_path / 'mapping.yaml'), '--out', str(tmp_path / 'bags')]
    assert main(['demos', 'import', str(tmp_path / 'set'), *given]) == 0
    (bag,) = (tmp_path / 'bags').iterdir()
    with open_bag(bag) as reader:
        turns = read_demonstration(reader).orientations
    assert (turns is not None) is is_told
    if turns is not None:
        assert turns[-1] == pytest.approx([0.0, 0.0, np.sin(np.pi / 8), np.cos(np.pi / 8)])


def test_the_camera_of_a_mapping_is_known_in_the_bag(tmp_path: Path) -> None:
    rlbench_as_it_is(tmp_path / 'set')
    (tmp_path / 'mapping.yaml').write_text(RLBENCH_MAPPING)
    given = ['--mapping', str(tmp_path / 'mapping.yaml'), '--out', str(tmp_path / 'bags')]
    assert main(['demos', 'import', str(tmp_path / 'set'), *given]) == 0
    (bag,) = (tmp_path / 'bags').iterdir()
    with open_bag(bag) as reader:
        shown = read_arm_episode(reader, None)
    assert shown.camera
    assert shown.camera.position == pytest.approx((1.35, 0.0, 1.58))
    assert shown.intrinsics
    assert (shown.intrinsics.width, shown.intrinsics.fx) == (64, 87.92)


def test_only_demonstrations_that_succeeded_are_kept(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rlbench(tmp_path / 'set', as_json=True)
    # The number behind the gripper is 1 in the last row of both; of the second it is made 0.
    file = next((tmp_path / 'set').rglob('episode1/low_dim.json'))
    numbers = json.loads(file.read_text())
    numbers['observation.state'][-1][3] = 0.0
    file.write_text(json.dumps(numbers))
    more = 'success: {column: observation.state, at: [3]}'
    code, bags = run(tmp_path / 'set', tmp_path, more)
    assert code == 0
    assert [bag.name for bag in bags] == ['pick-variation0-episodes-episode0']
    assert 'episode1 did not succeed: left out' in capsys.readouterr().err


def test_a_pickle_is_refused_unread(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / 'set' / 'episodes' / 'episode0'
    folder.mkdir(parents=True)
    (folder / 'low_dim_obs.pkl').write_bytes(pickle.dumps(_Bomb(tmp_path / 'ran')))
    assert run(tmp_path / 'set', tmp_path, '') == (2, [])
    told = capsys.readouterr().err
    assert told.count('\n') == 1
    assert 'np.savez' in told
    np.savez(folder / 'low_dim.npz', a=np.array([_Bomb(tmp_path / 'ran')], object))
    assert run(tmp_path / 'set', tmp_path, '')[0] == 2
    assert not (tmp_path / 'ran').exists()


class _Bomb:
    """Makes a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return Path.touch, (self.path,)


@pytest.mark.parametrize(
    ('more', 'named'),
    [
        ('image: wrist', "no camera 'wrist'"),
        ('colour: red', "'colour' is no part of a mapping"),
        ('velocities: {column: qdot, at: [0]}', "no column 'qdot'"),
        ('velocities: {column: observation.joints, at: [7]}', 'has 2 numbers: no index 7'),
        ('velocities: {column: x, at: [0], unit: inch}', 'expected column, at'),
        ('urdf: none.urdf', 'none.urdf cannot be read'),
        ('rotation: {column: observation.state, at: [0, 1, 2]}', 'expected 4 positions'),
        ('camera: {position: [0, 0]}', 'has position [0, 0]: expected 3 numbers'),
        ('camera: {fx: 3.0}', 'all of width, height, fx, fy, cx, cy or none'),
    ],
)
def test_what_does_not_fit_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], more: str, named: str
) -> None:
    lerobot_v2(tmp_path / 'set')
    assert run(tmp_path / 'set', tmp_path, more) == (2, [])
    told = capsys.readouterr().err
    assert told.count('\n') == 1
    assert named in told


def test_other_versions_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lerobot_v2(tmp_path / 'set')
    file = tmp_path / 'set' / 'meta' / 'info.json'
    file.write_text(file.read_text().replace('v2.1', 'v1.6'))
    assert run(tmp_path / 'set', tmp_path, '')[0] == 2
    assert 'of v1.6: expected v2.0, v2.1 or v3.0' in capsys.readouterr().err
