# SPDX-License-Identifier: Apache-2.0
"""`embodied-r sim arm --closed-loop`: the real nodes lead the simulated arm."""

from __future__ import annotations

from importlib.util import find_spec
import json
import subprocess
import sys
from typing import Any, TYPE_CHECKING

import cv2
from embodied_r_ros.cli.main import main
import pytest

if find_spec('metaworld') is None:
    pytest.skip('Meta-World is not installed', allow_module_level=True)
pytest.importorskip('embodied_r_ros.sim.world')
pytest.importorskip('rclpy')

if TYPE_CHECKING:
    from pathlib import Path

RUN = ['sim', 'arm', '--task', 'pick', '--episodes', '1', '--seed', '1', '--closed-loop']


def test_the_real_nodes_lead_the_arm_to_success_where_an_oracle_answers(tmp_path: Path) -> None:
    out = tmp_path / 'out'
    code = 'import sys; from embodied_r_ros.cli.main import main; sys.exit(main())'
    words = [*RUN, '--out', str(out), '--chooser', 'oracle', '--json']
    done = subprocess.run(
        [sys.executable, '-c', code, *words], capture_output=True, text=True, timeout=280
    )
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report['success_rate'] == report['oracle'] == 1.0
    assert 0.0 <= report['random_baseline'] <= 1.0
    assert 0.0 <= report['nearest_baseline'] <= 1.0
    assert (report['episodes'], report['chooser'], report['task']) == (1, 'oracle', 'pick')
    assert sorted(path.name for path in out.iterdir()) == ['report.json', 'trial_00000.png']
    [trial] = json.loads((out / 'report.json').read_text())['trials']
    assert trial['success']
    assert trial['refusals'] == []
    assert trial['steps'][-1]['closed']  # it holds the block
    assert {len(step['candidates']) for step in trial['steps']} <= set(range(4, 9))
    assert cv2.imread(str(out / 'trial_00000.png')) is not None


@pytest.mark.parametrize(
    ('words', 'why'),
    [
        (['--no-images'], '--closed-loop needs images'),
        (['--workers', '2'], 'one worker'),
        (['--speed', '0'], 'a --speed of 0.01 to 100'),
        (['--robot', 'nobody'], "no robot 'nobody'"),
        (['--model', 'm', '--chooser', 'oracle'], 'not allowed with'),
        (['--model', 'no-such-folder'], 'holds no model'),
    ],
)
def test_what_cannot_be_run_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str], why: str
) -> None:
    assert exit_code([*RUN, '--out', str(tmp_path / 'out'), *words]) == 2
    assert why in capsys.readouterr().err


def test_a_folder_that_is_not_empty_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / 'mine').touch()
    assert exit_code([*RUN, '--out', str(tmp_path)]) == 2
    assert 'is not an empty folder' in capsys.readouterr().err


def exit_code(words: list[str]) -> Any:
    try:
        return main(words)
    except SystemExit as ended:
        return ended.code
