# SPDX-License-Identifier: Apache-2.0
"""Datasets of demonstrations become bags, by small ones that are written here."""

from __future__ import annotations

from fractions import Fraction
import json
from pathlib import Path
import pickle
from typing import Any, TYPE_CHECKING

import cv2
from embodied_r_ros.bags.messages import encoded_image_from_msg
from embodied_r_ros.bags.reader import open_bag, read_messages
from embodied_r_ros.cli.main import main
from embodied_r_ros.episodes.arm import read_arm_episode
from embodied_r_ros.episodes.demonstrations import read_demonstration
from embodied_r_ros.questions.row import read_rows
import numpy as np
import pytest

if TYPE_CHECKING:
    from embodied_r_ros.arm.demonstration import Demonstration

CAMERA = 'observation.images.front'
FPS, ROWS = 10, (6, 9)
MAPPING = """
xyz: {column: observation.state, at: [0, 1, 2], unit: mm}
joints: {column: observation.joints, at: [1, 0], unit: deg, names: [b, a]}
gripper: {column: observation.state, at: [3]}
closed: 1.0
open: 0.0
"""


def state(episode: int, row: int) -> list[float]:
    return [100.0 * episode + row, -row, 50.0, float(row > 3)]


def grey(episode: int, row: int) -> np.ndarray[Any, np.dtype[np.uint8]]:
    return np.full((48, 64, 3), 20 + 60 * episode + 20 * row, np.uint8)


def table(episodes: list[int], *, images: bool) -> Any:
    pyarrow = pytest.importorskip('pyarrow')
    rows = [(episode, row) for episode in episodes for row in range(ROWS[episode])]
    columns: dict[str, Any] = {
        'observation.state': [state(*at) for at in rows],
        'observation.joints': [[10.0 * row, 90.0] for _, row in rows],
        'timestamp': [row / FPS for _, row in rows],
        'episode_index': [episode for episode, _ in rows],
    }
    if images:
        cells = [{'bytes': cv2.imencode('.png', grey(*at))[1].tobytes()} for at in rows]
        columns[CAMERA] = cells
    return pyarrow.table(columns)


def video(path: Path, episodes: list[int]) -> None:
    av = pytest.importorskip('av')
    path.parent.mkdir(parents=True, exist_ok=True)
    with av.open(str(path), 'w') as container:
        stream = container.add_stream('mpeg4', rate=Fraction(FPS))
        stream.width, stream.height, stream.pix_fmt = 64, 48, 'yuv420p'
        for episode in episodes:
            for row in range(ROWS[episode]):
                frame = av.VideoFrame.from_ndarray(grey(episode, row), format='bgr24')
                container.mux(stream.encode(frame))
        container.mux(stream.encode())


def write(path: Path, content: Any) -> None:
    from pyarrow import parquet

    path.parent.mkdir(parents=True, exist_ok=True)
    parquet.write_table(content, path)


def info(root: Path, version: str, dtype: str, data: str) -> None:
    (root / 'meta').mkdir(parents=True)
    video_path = 'videos/{video_key}/chunk-{chunk_index:03d}/file-{file_index:03d}.mp4'
    if version == 'v2.1':
        video_path = 'videos/chunk-{episode_chunk:03d}/{video_key}/episode_{episode_index:06d}.mp4'
    content = {'codebase_version': version, 'fps': FPS, 'chunks_size': 1000, 'data_path': data}
    content |= {'video_path': video_path, 'features': {CAMERA: {'dtype': dtype}}}
    (root / 'meta' / 'info.json').write_text(json.dumps(content))


def lerobot_v2(root: Path, dtype: str = 'image') -> None:
    info(root, 'v2.1', dtype, 'data/chunk-{episode_chunk:03d}/episode_{episode_index:06d}.parquet')
    lines = [
        json.dumps(
            # U+2028 ends no line of JSON; what is read as one task names none of it.
            {'episode_index': number, 'tasks': [f'task {number}', '\u2028'], 'length': length},
            ensure_ascii=False,
        )
        for number, length in enumerate(ROWS)
    ]
    (root / 'meta' / 'episodes.jsonl').write_text('\n'.join(lines) + '\n')
    for number in range(2):
        name = f'episode_{number:06d}'
        write(root / f'data/chunk-000/{name}.parquet', table([number], images=dtype == 'image'))
        if dtype == 'video':
            video(root / 'videos' / 'chunk-000' / CAMERA / f'{name}.mp4', [number])


def lerobot_v3(root: Path) -> None:
    pyarrow = pytest.importorskip('pyarrow')
    info(root, 'v3.0', 'video', 'data/chunk-{chunk_index:03d}/file-{file_index:03d}.parquet')
    write(root / 'data/chunk-000/file-000.parquet', table([0, 1], images=False))
    video(root / 'videos' / CAMERA / 'chunk-000' / 'file-000.mp4', [0, 1])
    key = f'videos/{CAMERA}'
    columns = {
        'episode_index': [0, 1],
        'tasks': [['task 0'], ['task 1']],
        'data/chunk_index': [0, 0],
        'data/file_index': [0, 0],
        f'{key}/chunk_index': [0, 0],
        f'{key}/file_index': [0, 0],
        f'{key}/from_timestamp': [0.0, ROWS[0] / FPS],
    }
    write(root / 'meta/episodes/chunk-000/file-000.parquet', pyarrow.table(columns))


def rlbench(root: Path, *, as_json: bool) -> None:
    for number in range(2):
        folder = root / 'pick' / 'variation0' / 'episodes' / f'episode{number}'
        (folder / 'front_rgb').mkdir(parents=True)
        rows = range(ROWS[number])
        for row in rows:
            cv2.imwrite(str(folder / 'front_rgb' / f'{row}.png'), grey(number, row))
        numbers = {
            'observation.state': [state(number, row) for row in rows],
            'observation.joints': [[10.0 * row, 90.0] for row in rows],
        }
        if as_json:
            (folder / 'low_dim.json').write_text(json.dumps(numbers))
        else:
            arrays: dict[str, Any] = {name: np.array(rows) for name, rows in numbers.items()}
            np.savez(folder / 'low_dim.npz', **arrays)


def run(root: Path, tmp_path: Path, more: str) -> tuple[int, list[Path]]:
    mapping = tmp_path / 'mapping.yaml'
    mapping.write_text(MAPPING + more)
    out = tmp_path / 'out'
    code = main(['demos', 'import', str(root), '--mapping', str(mapping), '--out', str(out)])
    return code, sorted(out.iterdir()) if out.exists() else []


def read(path: Path) -> tuple[Demonstration, list[float]]:
    with open_bag(path) as reader:
        shown = read_demonstration(reader)
        images = [
            float(encoded_image_from_msg(msg).decode().mean())
            for _, _, msg in read_messages(reader, ['/image/compressed'])
        ]
    return shown, images


def check(bags: list[Path], rate_hz: float = FPS) -> list[Demonstration]:
    """Two bags with the numbers and images of the dataset, in SI units."""
    assert len(bags) == 2
    found = []
    for episode, bag in enumerate(bags):
        shown, images = read(bag)
        rows = range(ROWS[episode])
        expected = np.array([state(episode, row)[:3] for row in rows]) / 1000
        assert np.allclose(shown.positions, expected)
        assert shown.openings is not None
        assert shown.openings.tolist() == [float(row <= 3) for row in rows]
        assert shown.joint_speeds is not None
        turn = np.radians(10.0 * rate_hz)
        assert np.allclose(shown.joint_speeds, [[0.0, turn]] * len(rows), atol=1e-4)
        assert np.allclose(shown.seconds(), np.arange(len(rows)) / rate_hz, atol=1e-6)
        assert np.allclose(images, [grey(episode, row).mean() for row in rows], atol=8)
        found.append(shown)
    return found


@pytest.mark.parametrize('dtype', ['image', 'video'])
def test_lerobot_with_a_file_for_each_episode_is_imported(tmp_path: Path, dtype: str) -> None:
    lerobot_v2(tmp_path / 'set', dtype)
    code, bags = run(tmp_path / 'set', tmp_path, f'image: {CAMERA}')
    assert code == 0
    assert [shown.task for shown in check(bags)] == ['task 0', 'task 1']


def test_lerobot_with_several_episodes_in_a_video_is_imported(tmp_path: Path) -> None:
    lerobot_v3(tmp_path / 'set')
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
        ('velocities: {column: observation.joints, at: [7]}', 'has 2 numbers: 7 is none'),
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


def test_a_dataset_cannot_name_files_outside_of_itself(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lerobot_v2(tmp_path / 'set')
    file = tmp_path / 'set' / 'meta' / 'info.json'
    file.write_text(file.read_text().replace('"data/', '"../data/'))
    assert run(tmp_path / 'set', tmp_path, '')[0] == 2
    assert 'outside of the dataset' in capsys.readouterr().err


def test_other_versions_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lerobot_v2(tmp_path / 'set')
    file = tmp_path / 'set' / 'meta' / 'info.json'
    file.write_text(file.read_text().replace('v2.1', 'v1.6'))
    assert run(tmp_path / 'set', tmp_path, '')[0] == 2
    assert 'of v1.6: expected v2.0, v2.1 or v3.0' in capsys.readouterr().err
