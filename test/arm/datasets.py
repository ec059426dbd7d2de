# SPDX-License-Identifier: Apache-2.0
"""Small datasets of demonstrations, as LeRobot and RLBench write them, and their import."""

from __future__ import annotations

from fractions import Fraction
import json
from typing import Any, TYPE_CHECKING

import cv2
from embodied_r_ros.arm.demonstration_bag import read_demonstration
from embodied_r_ros.bags.messages import encoded_image_from_msg
from embodied_r_ros.bags.reader import open_bag, read_messages
from embodied_r_ros.cli.main import main
import numpy as np
import pytest

if TYPE_CHECKING:
    from pathlib import Path

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
    return np.full((48, 64, 3), min(255, 20 + 60 * (episode % 2) + 20 * row), np.uint8)


def table(episodes: list[int], *, images: bool) -> Any:
    pyarrow = pytest.importorskip('pyarrow')
    rows = [(episode, row) for episode in episodes for row in range(ROWS[episode])]
    columns: dict[str, Any] = {
        'observation.state': [state(*at) for at in rows],
        'observation.joints': [[10.0 * row, 90.0] for _, row in rows],
        'timestamp': [row / FPS for _, row in rows],
        'frame_index': [row for _, row in rows],
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
        # One keyframe, from which everything is decoded.
        options = {'g': '600', 'sc_threshold': '1000000000'}
        stream = container.add_stream('mpeg4', rate=Fraction(FPS), options=options)
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
    if version != 'v3.0':
        video_path = 'videos/chunk-{episode_chunk:03d}/{video_key}/episode_{episode_index:06d}.mp4'
    content: dict[str, Any] = {
        'codebase_version': version,
        'fps': FPS,
        'chunks_size': 1000,
        'data_path': data,
    }
    content['total_episodes'] = len(ROWS)
    content |= {'video_path': video_path, 'features': {CAMERA: {'dtype': dtype}}}
    (root / 'meta' / 'info.json').write_text(json.dumps(content))


def lerobot_v2(root: Path, dtype: str = 'image', version: str = 'v2.1') -> None:
    info(
        root, version, dtype, 'data/chunk-{episode_chunk:03d}/episode_{episode_index:06d}.parquet'
    )
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


def lerobot_v3(root: Path, dtype: str = 'video') -> None:
    pyarrow = pytest.importorskip('pyarrow')
    info(root, 'v3.0', dtype, 'data/chunk-{chunk_index:03d}/file-{file_index:03d}.parquet')
    episodes = list(range(len(ROWS)))
    write(root / 'data/chunk-000/file-000.parquet', table(episodes, images=dtype == 'image'))
    if dtype == 'video':
        video(root / 'videos' / CAMERA / 'chunk-000' / 'file-000.mp4', episodes)
    key = f'videos/{CAMERA}'
    ends = [sum(ROWS[: number + 1]) / FPS for number in episodes]
    columns = {
        'episode_index': episodes,
        'tasks': [[f'task {number}'] for number in episodes],
        'length': list(ROWS),
        'data/chunk_index': [0] * len(ROWS),
        'data/file_index': [0] * len(ROWS),
        f'{key}/chunk_index': [0] * len(ROWS),
        f'{key}/file_index': [0] * len(ROWS),
        f'{key}/from_timestamp': [0.0, *ends[:-1]],
        f'{key}/to_timestamp': ends,
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


def run(root: Path, tmp_path: Path, more: str, *options: str) -> tuple[int, list[Path]]:
    """Import a dataset; gives the exit code, and what lies in the folder of the bags."""
    mapping = tmp_path / 'mapping.yaml'
    mapping.write_text(MAPPING + more)
    out = tmp_path / 'out'
    arguments = ['--mapping', str(mapping), '--out', str(out), *options]
    code = main(['demos', 'import', str(root), *arguments])
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
    """A bag of each episode, with the numbers and images of the dataset, in SI units."""
    assert len(bags) == len(ROWS)
    found = []
    for episode, bag in enumerate(bags):
        shown, images = read(bag)
        rows = range(ROWS[episode])
        expected = np.array([state(episode, row)[:3] for row in rows]) / 1000
        assert shown.positions is not None
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
