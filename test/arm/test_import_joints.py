# SPDX-License-Identifier: Apache-2.0
"""Datasets that have the angles of joints and no position: keypoints, a URDF, a mapping."""

from __future__ import annotations

import json
import os
from pathlib import Path

from embodied_r_ros.arm.demonstration_bag import read_demonstration
from embodied_r_ros.bags.reader import open_bag
from embodied_r_ros.cli.main import main
from embodied_r_ros.common.files import shared_path
import numpy as np
import pytest
import yaml

from test.arm.datasets import CAMERA, lerobot_v2, lerobot_v3, rlbench, write

FPS = 20
# Seconds from which on the joint turns at 1 rad/s, and for how long.
MOVES = ((0.5, 1.0), (2.5, 0.8), (4.0, 0.01), (5.0, 0.5))
GRIP_S = 2.0  # the hand closes
JOINTS = 'joints: {column: observation.state, at: [0, 1], names: [swing, lift]}'
HAND = 'gripper: {column: observation.state, at: [2]}'
URDF = """<robot name="arm">
  <link name="base"/><link name="upper"/><link name="hand"/>
  <joint name="swing" type="revolute"><parent link="base"/><child link="upper"/>
    <axis xyz="0 0 1"/><limit lower="-9" upper="9" effort="1" velocity="1"/></joint>
  <joint name="lift" type="revolute"><parent link="upper"/><child link="hand"/>
    <origin xyz="0.5 0 0"/><axis xyz="0 1 0"/>
    <limit lower="-9" upper="9" effort="1" velocity="1"/></joint>
</robot>"""


def swing(second: float) -> float:
    return sum(min(max(second - begin, 0.0), length) for begin, length in MOVES)


def joints_alone(root: Path) -> None:
    """One episode of joint angles and the opening of a hand."""
    pyarrow = pytest.importorskip('pyarrow')
    times = np.arange(0, 7, 1 / FPS)
    rows = [[swing(second), 0.0, float(second < GRIP_S)] for second in times.tolist()]
    table = {'observation.state': rows, 'timestamp': times, 'episode_index': [0] * len(rows)}
    write(root / 'data' / 'e0.parquet', pyarrow.table(table))
    content = {'codebase_version': 'v2.1', 'fps': FPS, 'chunks_size': 1000}
    content['data_path'] = 'data/e{episode_index}.parquet'
    (root / 'meta').mkdir()
    (root / 'meta' / 'info.json').write_text(json.dumps(content))
    (root / 'meta' / 'episodes.jsonl').write_text('{"episode_index": 0, "tasks": ["swing"]}\n')


def import_joints(tmp_path: Path, *more: str) -> int:
    (tmp_path / 'mapping.yaml').write_text('\n'.join([JOINTS, HAND, *more]))
    arguments = ['--mapping', str(tmp_path / 'mapping.yaml'), '--out', str(tmp_path / 'out')]
    return main(['demos', 'import', str(tmp_path / 'set'), *arguments])


def test_joints_without_positions_have_keypoints_where_they_stand(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    joints_alone(tmp_path / 'set')
    assert import_joints(tmp_path) == 0
    lines = capsys.readouterr().err.splitlines()
    assert sum(line.startswith('no positions: ') for line in lines) == 1
    bag = str(tmp_path / 'out' / 'episode_000000')
    assert main(['keypoints', bag, '--json', '--picture', str(tmp_path / 'a.png')]) == 0
    output = capsys.readouterr()
    keypoints = [json.loads(line) for line in output.out.splitlines()]
    assert output.err.count('\n') == 1
    assert 'no positions' in output.err
    # A motion of the hand, and the ends of motions; a turn by 0.01 rad is none.
    assert [k['reason'] for k in keypoints] == ['stop', 'gripper', 'stop', 'last']
    assert [k['gripper'] for k in keypoints] == ['open', 'closed', 'closed', 'closed']
    assert all(k['position'] is None for k in keypoints)
    seconds = [k['stamp_ns'] / 1e9 - 1 for k in keypoints]
    assert seconds == pytest.approx([1.5, GRIP_S, 3.3, 5.5], abs=0.3)
    assert main(['keypoints', bag, '--rule', 'arm']) == 0
    assert main(['episodes', 'audit', str(tmp_path / 'out')]) == 0


def test_questions_on_joints_without_positions_are_refused_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    joints_alone(tmp_path / 'set')
    assert import_joints(tmp_path) == 0
    capsys.readouterr()
    assert main(['questions', str(tmp_path / 'out'), '--out', str(tmp_path / 'rows.jsonl')]) == 2
    line = capsys.readouterr().err
    assert line.count('\n') == 1
    assert 'has no positions' in line


def test_a_urdf_gives_the_positions(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip('yourdfpy')
    joints_alone(tmp_path / 'set')
    (tmp_path / 'arm.urdf').write_text(URDF)
    camera = 'camera: {position: [2, 0, 1], orientation: [0, 0, 0, 1]}'
    names = ('urdf: arm.urdf', 'tool_frame: hand', 'frame_id: base')
    assert import_joints(tmp_path, *names, camera) == 0
    assert 'no positions' not in capsys.readouterr().err
    with open_bag(tmp_path / 'out' / 'episode_000000') as reader:
        shown = read_demonstration(reader)
    angles = np.array([swing(second) for second in shown.seconds()])
    expected = 0.5 * np.stack([np.cos(angles), np.sin(angles), 0 * angles], 1)
    assert shown.positions is not None
    assert np.allclose(shown.positions, expected, atol=1e-6)


@pytest.mark.parametrize(
    ('urdf', 'more', 'named'),
    [
        ('<robot', (), 'the URDF cannot be read'),
        (URDF, (), "the URDF has no 'tool'"),
        (URDF.replace('swing', 'turn'), ('tool_frame: hand',), "the URDF has no 'swing'"),
        (URDF, ('tool_frame: hand',), "set frame_id to 'base'"),
        (URDF, ('xyz: {column: observation.state, at: [0, 1]}',), 'expected 3 positions'),
    ],
)
def test_a_urdf_that_does_not_fit_is_refused_before_the_import(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    urdf: str,
    more: tuple[str, ...],
    named: str,
) -> None:
    pytest.importorskip('yourdfpy')
    joints_alone(tmp_path / 'set')
    (tmp_path / 'arm.urdf').write_text(urdf)
    assert import_joints(tmp_path, 'urdf: arm.urdf', *more) == 2
    line = capsys.readouterr().err
    assert line.count('\n') == 1
    assert named in line
    assert not (tmp_path / 'out').exists()


@pytest.mark.parametrize(
    ('text', 'named'),
    [
        (HAND, 'neither xyz nor joints'),
        (f'{HAND}\nurdf: a.urdf\nxyz: {{column: a, at: [0, 1, 2]}}', 'a urdf without joints'),
        (f'{JOINTS}\nrate_hz: .nan', 'not all numbers'),
        (f'{JOINTS}\nopen: 0', 'open and closed are both'),
        (f'{JOINTS}\nvelocities: {{column: observation.state, at: [0]}}', '1 velocities'),
        ('joints: {column: a, at: [.inf]}', 'is no mapping'),
        ('joints: {column: a, at: [0, 1], names: [b, b]}', '1 names for 2 positions'),
        ('', 'is no part of a mapping'),
    ],
)
def test_a_mapping_that_contradicts_itself_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, named: str
) -> None:
    joints_alone(tmp_path / 'set')
    (tmp_path / 'mapping.yaml').write_text(text)
    arguments = ['--mapping', str(tmp_path / 'mapping.yaml'), '--out', str(tmp_path / 'out')]
    assert main(['demos', 'import', str(tmp_path / 'set'), *arguments]) == 2
    line = capsys.readouterr().err
    assert line.count('\n') == 1
    assert named in line


def test_an_import_without_a_mapping_says_what_there_is(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    features = {
        'observation.state': {'dtype': 'float32', 'shape': [3], 'names': ['a', 'b', 'hand']},
        'action': {'dtype': 'float32', 'shape': [2]},
        CAMERA: {'dtype': 'video'},
        'timestamp': {'dtype': 'float32', 'shape': [1]},
    }
    lerobot_v3(tmp_path / 'set')
    file = tmp_path / 'set' / 'meta' / 'info.json'
    file.write_text(json.dumps({**json.loads(file.read_text()), 'features': features}))
    assert main(['demos', 'import', str(tmp_path / 'set'), '--out', str(tmp_path / 'out')]) == 2
    line = capsys.readouterr().err
    assert line.count('\n') == 1
    assert 'demos mapping' in line
    assert f'observation.state (3), action (2); cameras: {CAMERA}' in line
    assert main(['demos', 'mapping', str(tmp_path / 'set')]) == 0
    proposal = yaml.safe_load(capsys.readouterr().out)
    assert proposal['joints']['names'] == ['a', 'b']
    assert proposal['gripper'] == {'column': 'observation.state', 'at': [2], 'names': ['hand']}
    assert proposal['image'] == CAMERA


@pytest.mark.parametrize('names', [{'motors': ['x', 'y']}, [['x', 'y']], ['x', 'y'], None, 3])
def test_names_of_numbers_are_found_however_they_are_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], names: object
) -> None:
    features = {'observation.state': {'dtype': 'float32', 'shape': [2], 'names': names}}
    lerobot_v2(tmp_path / 'set')
    file = tmp_path / 'set' / 'meta' / 'info.json'
    file.write_text(json.dumps({**json.loads(file.read_text()), 'features': features}))
    assert main(['demos', 'mapping', str(tmp_path / 'set')]) == 0
    written = yaml.safe_load(capsys.readouterr().out)['joints']['names']
    assert written == (['x', 'y'] if isinstance(names, dict | list) else ['state_0', 'state_1'])


def test_a_proposal_for_a_folder_of_rlbench_is_a_mapping_of_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rlbench(tmp_path / 'set', as_json=True)
    assert main(['demos', 'mapping', str(tmp_path / 'set')]) == 0
    proposal = capsys.readouterr().out
    assert yaml.safe_load(proposal)['image'] == 'front_rgb'
    (tmp_path / 'mapping.yaml').write_text(proposal)
    arguments = ['--mapping', str(tmp_path / 'mapping.yaml'), '--out', str(tmp_path / 'out')]
    assert main(['demos', 'import', str(tmp_path / 'set'), *arguments]) == 0


def test_a_humanoid_that_nobody_here_recorded_is_imported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip('av')
    root = Path(os.environ.get('EMBODIED_R_FOOTAGE', '')) / 'real' / 'humanoid_lerobot_v21'
    if not root.is_dir():
        pytest.skip('needs EMBODIED_R_FOOTAGE')
    mapping = shared_path('config', 'datasets', 'unitree_g1.yaml')
    out = tmp_path / 'out'
    arguments = ['--mapping', str(mapping), '--out', str(out)]
    assert main(['demos', 'import', str(root), *arguments]) == 0
    lines = capsys.readouterr().err.splitlines()
    assert lines[0].startswith('99 episodes are listed, and their files absent')
    assert lines[-1].endswith('393 rows, 393 frames of videos decoded')
    assert main(['episodes', 'audit', str(out)]) == 0
    capsys.readouterr()
    assert main(['keypoints', str(out / 'episode_000001'), '--json']) == 0
    keypoints = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [k['gripper'] for k in keypoints if k['reason'] == 'gripper'] == ['closed', 'open']
    assert sum(k['reason'] == 'stop' for k in keypoints) >= 2
