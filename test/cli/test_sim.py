# SPDX-License-Identifier: Apache-2.0
"""The command line of simulated worlds: bags out, clear refusals, and clean ends."""

from __future__ import annotations

import json
import os
from pathlib import Path
import signal
import subprocess
import sys
import time

import pytest

pytest.importorskip('embodied_r_ros.sim.indoor.world')

from embodied_r_ros.bags.reader import open_bag, read_messages
from embodied_r_ros.cli.main import main
from embodied_r_ros.data.questions.row import read_rows
from embodied_r_ros.data.questions.wordings import RETURNS

QUICK = ['--duration', '6', '--set', 'indoor.rate_hz=5', '--size', '160x120', '--no-images']
SHAPES = ['--set', 'indoor.kinds=all']
TIMEOUT_S = 60.0


def run(out: Path, *more: str) -> int:
    return main(['sim', 'indoor', '--episodes', '1', '--seed', '5', '--out', str(out), *more])


def test_signs_stand_in_the_record(tmp_path: Path) -> None:
    assert run(tmp_path / 'out', *QUICK, '--set', 'indoor.signs=ANSWER B', *SHAPES) == 0
    with open_bag(tmp_path / 'out' / 'episode_00000') as reader:
        [(_, _, note)] = read_messages(reader, ['/provenance'])
        [(_, _, start), *_] = read_messages(reader, ['/episode_mark'])
    assert json.loads(note.data)['config']['signs'] == ['ANSWER B']
    assert start.episode_id == 'indoor-signs-5-00000'
    assert start.scene_id == 'room-5-00000'


def test_rooms_with_ways_back_ask_for_them(tmp_path: Path) -> None:
    out, rows = tmp_path / 'out', tmp_path / 'rows.jsonl'
    run = ['sim', 'indoor', '--episodes', '4', '--seed', '5', '--no-images', '--out', str(out)]
    assert main([*run, '--set', 'indoor.returns=1', *SHAPES]) == 0
    asked = [
        'questions',
        str(out),
        '--deltas',
        'true',
        '--out',
        str(rows),
        '--set',
        'questions.moments=12',
    ]
    assert main(asked) == 0
    found = [row for row in read_rows(rows) if row.question_type == 'revisit']
    answers = {row.options['ABC'.index(row.solution)] for row in found}
    assert answers == set(RETURNS.values())
    assert {row.episode_id[:20] for row in found} == {'indoor-returns-5-000'}
    assert {row.scene_id[:9] for row in found} == {'room-5-00'}


@pytest.mark.parametrize(
    ('more', 'named'),
    [
        (['--size', '320'], "'320' is not a size: expected WxH"),
        (['--size', '8x8'], 'width_px is 8: expected 64 to 1920'),
        (['--set', 'indoor.rate_hz=0'], 'rate_hz is 0.0: expected 1 to 60'),
        (['--duration', 'nan'], 'duration_s is nan: expected 5 to 3600'),
        (['--seed', '-3'], 'seed is -3: expected 0 or more'),
        (['--set', f'indoor.signs={"x" * 300}'], 'has 300 characters: expected at most 200'),
        (['--set', 'indoor.returns=2'], 'returns is 2.0: expected 0 to 1'),
        (['--workers', '0'], 'workers is 0: expected 1 or more'),
    ],
)
def test_bad_arguments_end_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], more: list[str], named: str
) -> None:
    try:
        code = run(tmp_path / 'out', *more)
    except SystemExit as exit_:
        code = int(exit_.code or 0)
    captured = capsys.readouterr()
    assert code == 2
    assert captured.err.startswith('embodied-r: error: ')
    assert captured.err.count('\n') == 1
    assert named in captured.err
    assert captured.out == ''
    assert not (tmp_path / 'out').exists()


@pytest.mark.parametrize(('stop', 'workers'), [(signal.SIGINT, '2'), (signal.SIGTERM, '1')])
def test_an_interrupted_run_leaves_whole_bags_only(
    tmp_path: Path, stop: signal.Signals, workers: str
) -> None:
    out = tmp_path / 'out'
    command = [sys.executable, '-m', 'embodied_r_ros.cli.main', 'sim', 'indoor', *QUICK]
    command += ['--episodes', '1000', '--seed', '1', '--out', str(out), '--workers', workers]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, start_new_session=True)
    try:
        deadline = time.monotonic() + TIMEOUT_S
        while not (out / 'episode_00000').exists():
            assert process.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.02)
        os.killpg(process.pid, stop)  # workers get it too, as they do from a terminal
        _, talk = process.communicate(timeout=TIMEOUT_S)
    finally:
        process.kill()
    assert process.returncode == 130
    assert talk == 'embodied-r: interrupted\n'
    bags = list(out.iterdir())
    assert bags
    for bag in bags:
        with open_bag(bag) as reader:
            assert reader.message_count > 0


def test_a_missing_renderer_gives_what_to_install(tmp_path: Path) -> None:
    # A fake mujoco that fails as PyOpenGL does without libOSMesa.
    (tmp_path / 'mujoco.py').write_text('None.glGetError\n')
    command = [sys.executable, '-m', 'embodied_r_ros.cli.main', 'sim', 'indoor']
    command += ['--episodes', '1', '--seed', '1', '--out', str(tmp_path / 'out')]
    done = subprocess.run(
        command,
        env={'PYTHONPATH': f'{tmp_path}:{Path.cwd()}', 'MUJOCO_GL': 'osmesa'},
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 2
    assert done.stderr.count('\n') == 1
    assert 'apt-get install libosmesa6' in done.stderr
