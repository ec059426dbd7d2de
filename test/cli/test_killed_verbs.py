# SPDX-License-Identifier: Apache-2.0
"""Verbs that write files are killed, or have a full disk: nothing half-written has its name."""

from __future__ import annotations

from contextlib import contextmanager
import os
import resource
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

from embodied_r_ros.cli.main import main
from embodied_r_ros.common.files import write_whole
import pytest

from test.episodes.datasets import CAMERA, lerobot_v2, MAPPING
from test.test_architecture import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SAMPLE = str(ROOT / 'samples' / 'indoor' / 'episode_00000')
# A process that is killed right before a file or folder of its output gets its name.
KILLED = """
import os, signal, sys
out = sys.argv[1]

def see(event, arguments):
    if event == 'os.rename' and os.fspath(arguments[1]).startswith(out):
        os.kill(os.getpid(), signal.SIGKILL)

sys.addaudithook(see)
from embodied_r_ros.cli.main import main
sys.exit(main(sys.argv[2:]))
"""
VERBS = {
    'map': (['map', SAMPLE, '--out', 'OUT/m.json', '--picture', 'OUT/m.png'], 'm.json'),
    'lerobot': (['episodes', 'export', 'lerobot', SAMPLE, '--rate', '2', '--out', 'OUT/d'], 'd'),
    'foxglove': (['episodes', 'export', 'foxglove', SAMPLE, '--out', 'OUT/d'], 'd/*.mcap'),
    'questions': (['questions', SAMPLE, '--out', 'OUT/rows.jsonl'], 'rows.jsonl'),
    'demos': (['demos', 'import', 'SET', '--mapping', 'MAPPING', '--out', 'OUT/b'], 'b/ep*'),
    'ask': (
        ['ask', SAMPLE, 'What can you see?', '--perceiver', 'classical'],
        'embodied*/*/*.json',
    ),
    'view': (['view', SAMPLE, '--save', 'OUT/v.rrd'], 'v.rrd'),
}


@pytest.mark.parametrize('verb', VERBS)
def test_a_verb_that_is_killed_leaves_nothing_half_written(tmp_path: Path, verb: str) -> None:
    words, pattern = VERBS[verb]
    out = tmp_path / 'out'
    out.mkdir()
    (tmp_path / 'mapping.yaml').write_text(f'{MAPPING}image: {CAMERA}\n')
    if verb == 'demos':
        lerobot_v2(tmp_path / 'set')
    if verb == 'view':
        pytest.importorskip('rerun')
    places = {'SET': tmp_path / 'set', 'MAPPING': tmp_path / 'mapping.yaml'}
    arguments = [str(places.get(word, word)).replace('OUT', str(out)) for word in words]
    environment = {**os.environ, 'PYTHONPATH': str(ROOT), 'XDG_CACHE_HOME': str(out)}
    command = [sys.executable, '-c', KILLED, str(out), *arguments]
    run = subprocess.run(command, env=environment, capture_output=True, timeout=300, check=False)
    assert run.returncode == -signal.SIGKILL, run.stderr
    assert not list(out.glob(pattern))
    command[3] = '/nowhere'
    again = subprocess.run(command, env=environment, capture_output=True, timeout=300, check=False)
    assert again.returncode == 0, again.stderr
    assert list(out.glob(pattern))


@contextmanager
def files_of_at_most(size: int) -> Iterator[None]:
    """A disk that is full after so many bytes of each file."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, before)


def test_a_map_whose_picture_does_not_fit_on_the_disk_is_not_left(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ['map', SAMPLE, '--out', str(tmp_path / 'm.json')]
    assert main(words) == 0
    size = (tmp_path / 'm.json').stat().st_size
    (tmp_path / 'm.json').unlink()
    capsys.readouterr()
    picture = tmp_path / 'm.png'
    with files_of_at_most(size):
        assert main([*words, '--picture', str(picture)]) == 2
    assert f'cannot write {picture}: File too large' in capsys.readouterr().err
    assert not list(tmp_path.iterdir())
    (tmp_path / 'm.json').write_text('before')
    with files_of_at_most(size - 1):
        assert main([*words, '--picture', str(picture)]) == 2
    assert [path.name for path in tmp_path.iterdir()] == ['m.json']
    assert (tmp_path / 'm.json').read_text() == 'before'


WRITER = """
import sys
from pathlib import Path
from embodied_r_ros.common.files import write_whole
for _ in range(300):
    write_whole(Path(sys.argv[1]), sys.argv[2] * 100_000)
"""


def test_of_two_that_write_the_same_file_each_writes_it_whole(tmp_path: Path) -> None:
    file = tmp_path / 'm.json'
    write_whole(file, 'a' * 100_000)
    writers = [
        subprocess.Popen(
            [sys.executable, '-c', WRITER, str(file), letter],
            env={**os.environ, 'PYTHONPATH': str(ROOT)},
        )
        for letter in 'ab'
    ]
    while any(writer.poll() is None for writer in writers):
        text = file.read_text()
        assert text in ('a' * 100_000, 'b' * 100_000)
    assert [writer.returncode for writer in writers] == [0, 0]
    assert [path.name for path in tmp_path.iterdir()] == ['m.json']
