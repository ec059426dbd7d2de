# SPDX-License-Identifier: Apache-2.0
"""Imports of many episodes: each frame is decoded once, and runs can be resumed."""

from __future__ import annotations

from itertools import pairwise
import os
from pathlib import Path
import shutil
import signal
import subprocess
import sys

from embodied_r_ros.arm.import_dataset import DatasetImport
from embodied_r_ros.arm.import_lerobot import VideoFrames
from embodied_r_ros.cli.main import main
import numpy as np
import pytest

from test.arm import datasets
from test.arm.datasets import CAMERA, check, lerobot_v2, lerobot_v3, MAPPING, run

IMAGE = f'image: {CAMERA}'
# One keyframe every ten frames, and none where the image changes much.
KEYFRAMES = {'g': '10', 'sc_threshold': '1000000000'}
MANY = (5, 7, 4, 6, 5, 8, 5, 4)


@pytest.fixture
def many(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A dataset of v3.0 with eight episodes in one video."""
    monkeypatch.setattr(datasets, 'ROWS', MANY)
    root = tmp_path / 'set'
    lerobot_v3(root)
    return root


def import_counts(root: Path, tmp_path: Path) -> tuple[int, int, int]:
    """Rows that were written, frames that were decoded, bags that were there before."""
    mapping = tmp_path / 'mapping.yaml'
    mapping.write_text(MAPPING + IMAGE)
    with DatasetImport(root, mapping, tmp_path / 'out') as work:
        assert len(list(work.check())) == len(work.dataset.names)
        results = list(work.write())
        decoded = work.dataset.decoded
    before = sum(result.was_there for result in results)
    return sum(result.rows for result in results), decoded, before


def test_each_frame_of_a_video_with_many_episodes_is_decoded_once(
    many: Path, tmp_path: Path
) -> None:
    rows, decoded, before = import_counts(many, tmp_path)
    assert (rows, before) == (sum(MANY), 0)
    assert decoded == rows
    check(sorted((tmp_path / 'out').iterdir()))


def test_frames_are_read_from_the_keyframe_before_them(tmp_path: Path) -> None:
    av = pytest.importorskip('av')
    with av.open(str(tmp_path / 'a.mp4'), 'w') as container:
        stream = container.add_stream('mpeg4', rate=10, options=KEYFRAMES)
        stream.width, stream.height, stream.pix_fmt = 64, 48, 'yuv420p'
        for number in range(100):
            image = np.random.default_rng(number).integers(0, 255, (48, 64, 3)).astype(np.uint8)
            container.mux(stream.encode(av.VideoFrame.from_ndarray(image, format='bgr24')))
        container.mux(stream.encode())
    with av.open(str(tmp_path / 'a.mp4')) as container:
        assert sum(packet.is_keyframe for packet in container.demux(video=0)) == 10
    frames = VideoFrames(tmp_path / 'a.mp4')
    assert len(frames) == 100

    whole = list(frames.read(0, 100))
    assert not any(np.array_equal(a, b) for a, b in pairwise(whole))
    for first, count, most in ((93, 4, 10), (97, 3, 3), (12, 5, 10), (17, 3, 3), (55, 2, 10)):
        before = frames.decoded
        images = list(frames.read(first, count))
        assert np.array_equal(images, whole[first : first + count])
        assert frames.decoded - before <= most
    frames.close()


def test_a_second_run_leaves_finished_episodes_alone(
    many: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    import_counts(many, tmp_path)
    out = tmp_path / 'out'
    times = {bag.name: bag.stat().st_mtime_ns for bag in out.iterdir()}
    shutil.rmtree(out / 'episode_000003')
    (out / '.episode_000003-abc' / 'episode_000003').mkdir(parents=True)  # of a killed process
    rows, decoded, before = import_counts(many, tmp_path)
    assert (rows, before) == (MANY[3], 7)
    assert decoded < sum(MANY)
    after = {bag.name: bag.stat().st_mtime_ns for bag in out.iterdir()}
    assert after.keys() == times.keys()
    assert {name for name in times if times[name] != after[name]} == {'episode_000003'}
    assert run(many, tmp_path, IMAGE)[0] == 0
    assert '8 of 8 episodes are bags (8 were there): 0 rows' in capsys.readouterr().err


def test_bags_of_other_numbers_or_another_mapping_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lerobot_v2(tmp_path / 'set')
    assert run(tmp_path / 'set', tmp_path, IMAGE)[0] == 0
    assert run(tmp_path / 'set', tmp_path, IMAGE + '\nframe_id: base')[0] == 2
    assert 'episode_000000 was imported from other numbers' in capsys.readouterr().err
    (tmp_path / 'out' / 'mine.txt').write_text('')
    assert run(tmp_path / 'set', tmp_path, IMAGE)[0] == 2
    assert 'out is not an empty folder' in capsys.readouterr().err


def test_an_import_that_is_killed_is_made_anew(many: Path, tmp_path: Path) -> None:
    (tmp_path / 'mapping.yaml').write_text(MAPPING + IMAGE)
    out = tmp_path / 'out'
    arguments = ['demos', 'import', str(many), '--out', str(out)]
    arguments += ['--mapping', str(tmp_path / 'mapping.yaml')]
    code = 'import sys; from embodied_r_ros.cli.main import main; sys.exit(main(sys.argv[1:]))'
    process = subprocess.Popen(
        [sys.executable, '-c', code, *arguments], stdout=subprocess.PIPE, cwd=Path.cwd()
    )
    assert process.stdout
    process.stdout.readline()  # the first bag is done
    os.kill(process.pid, signal.SIGKILL)
    process.communicate(timeout=60)
    assert main(arguments) == 0
    check(sorted(out.iterdir()))


def test_two_imports_to_one_folder_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lerobot_v2(tmp_path / 'set')
    (tmp_path / 'mapping.yaml').write_text(MAPPING)
    arguments = (tmp_path / 'set', tmp_path / 'mapping.yaml', tmp_path / 'out')
    with DatasetImport(*arguments) as first:
        assert len(list(first.check())) == 2
        writing = first.write()
        next(writing)
        assert run(tmp_path / 'set', tmp_path, '')[0] == 2
        assert 'is in use by another import' in capsys.readouterr().err
        assert len(list(writing)) == 1
