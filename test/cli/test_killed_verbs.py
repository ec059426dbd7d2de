# SPDX-License-Identifier: Apache-2.0
"""Commands that write files are killed, or are two at once: nothing half-written has its name."""

from __future__ import annotations

import os
from random import Random
import re
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

from embodied_r_ros.common.files import write_whole
import pytest

from test.cli.writing import run, WRITING
from test.test_architecture import ROOT

if TYPE_CHECKING:
    from pathlib import Path

# Runs a command, and kills itself: right before something of its output gets its name, or after so
# many seconds. It says how long it took.
PROCESS = """
import os, signal, sys, test, threading, time
test.__path__.append(sys.argv[1])
from test.cli.writing import run
out, moment = sys.argv[2], sys.argv[3]

def end(*_):
    os.kill(os.getpid(), signal.SIGKILL)

def see(event, arguments):
    if event == 'os.rename' and os.fspath(arguments[1]).startswith(out):
        end()

if moment == 'rename':
    sys.addaudithook(see)
elif moment != 'never':
    threading.Timer(float(moment), end).start()
begin = time.monotonic()
code = run(sys.argv[4:])
print('', time.monotonic() - begin)
sys.exit(code)
"""
KILLS = 6
OFTEN_KILLED = ('recover',)
ALWAYS = ('map', 'questions', 'lerobot')
NAMES = [
    name if name in ALWAYS else pytest.param(name, marks=pytest.mark.slow) for name in WRITING
]


def start(folder: Path, name: str, moment: str) -> subprocess.Popen[str]:
    out = str(folder / 'out')
    command = [sys.executable, '-c', PROCESS, str(ROOT / 'test'), out, moment]
    return subprocess.Popen(
        [*command, *WRITING[name].command(folder)],
        env={**os.environ, 'PYTHONPATH': str(ROOT), 'XDG_CACHE_HOME': out},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def prepared(folder: Path, name: str) -> Path:
    (folder / 'out').mkdir(parents=True)
    WRITING[name].prepare(folder)
    return folder


@pytest.mark.parametrize('name', NAMES)
def test_a_verb_that_is_killed_leaves_nothing_half_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    writing = WRITING[name]
    process = start(prepared(tmp_path, name), name, 'rename')
    _, told = process.communicate(timeout=300)
    if writing.renames:
        assert process.returncode == -signal.SIGKILL, told
    made = writing.made(tmp_path)
    assert writing.renames == (not made)
    monkeypatch.setenv('XDG_CACHE_HOME', str(tmp_path / 'out'))
    assert run(writing.command(tmp_path)) == 0
    assert writing.made(tmp_path)


def kill_at_any_moment(folder: Path, name: str, kills: int) -> None:
    writing, rng = WRITING[name], Random(name)
    process = start(prepared(folder / 'whole', name), name, 'never')
    said, told = process.communicate(timeout=300)
    assert process.returncode == 0, told
    seconds, count = float(said.split()[-1]), len(writing.made(folder / 'whole'))
    killed = prepared(folder / 'killed', name)
    for _ in range(kills):
        process = start(killed, name, str(rng.uniform(0.0, seconds)))
        process.communicate(timeout=300)
        assert process.returncode in {-signal.SIGKILL, 0}
        if len(writing.made(killed)) == count:
            return
    process = start(killed, name, 'never')
    _, told = process.communicate(timeout=300)
    assert process.returncode == 0, told
    assert len(writing.made(killed)) == count


@pytest.mark.parametrize('name', OFTEN_KILLED)
def test_a_verb_may_be_killed_at_any_moment(tmp_path: Path, name: str) -> None:
    kill_at_any_moment(tmp_path, name, 2)


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize('name', WRITING)
def test_every_verb_may_be_killed_at_any_moment(tmp_path: Path, name: str) -> None:
    kill_at_any_moment(tmp_path, name, KILLS)


def write_at_once(folder: Path, name: str) -> None:
    writing = WRITING[name]
    prepared(folder, name)
    processes = [start(folder, name, 'never') for _ in range(2)]
    told = ['\n'.join(process.communicate(timeout=300)) for process in processes]
    codes = [process.returncode for process in processes]
    assert 0 in codes, told
    for code, text in zip(codes, told, strict=True):
        errors = re.findall(r': error: |failed: |not recovered: ', text)
        assert len(errors) == (code != 0), text
        assert 'Traceback' not in text
    assert writing.made(folder)


@pytest.mark.parametrize('name', ['questions'])
def test_of_two_at_once_one_waits_or_says_why_not(tmp_path: Path, name: str) -> None:
    write_at_once(tmp_path, name)


@pytest.mark.slow
@pytest.mark.parametrize('name', WRITING)
def test_of_any_two_at_once_one_waits_or_says_why_not(tmp_path: Path, name: str) -> None:
    write_at_once(tmp_path, name)


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
