# SPDX-License-Identifier: Apache-2.0
"""`embodied-r sim arm --closed-loop`: the real nodes lead the simulated arm."""

from __future__ import annotations

from contextlib import contextmanager
from importlib.util import find_spec
import json
import subprocess
import sys
from typing import Any, TYPE_CHECKING

from embodied_r_ros.cli.main import main
from embodied_r_ros.common.errors import EmbodiedRError
from embodied_r_ros.common.files import shared_path
from embodied_r_ros.core.chat.settings import ChatConfig
from embodied_r_ros.core.reasoning.question import ReasonerConfig
import pytest

if find_spec('metaworld') is None:
    pytest.skip('Meta-World is not installed', allow_module_level=True)
pytest.importorskip('embodied_r_ros.sim.indoor.world')
pytest.importorskip('rclpy')

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from embodied_r_ros.nodes.arm.closed_loop import LoopSettings

RUN = ['sim', 'arm', '--task', 'pick', '--episodes', '1', '--seed', '1', '--closed-loop']


@pytest.mark.slow
@pytest.mark.timeout(600)
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
    assert sorted(path.name for path in out.iterdir()) == ['report.json']
    [trial] = json.loads((out / 'report.json').read_text())['trials']
    assert trial['success']
    assert trial['refusals'] == []
    assert trial['steps'][-1]['closed']  # it holds the block
    assert {len(step['candidates']) for step in trial['steps']} <= set(range(4, 9))


ARM = str(shared_path('models', 'arm', 'gguf', 'arm.gguf'))
USUAL = ReasonerConfig.token_budget


@pytest.mark.parametrize(
    ('words', 'led'),
    [
        ([], (ARM, 'sawyer_sim_loop', 200)),
        (['--task', 'drawer'], (ARM, 'sawyer_sim_drawer', 200)),
        (['--robot', 'sawyer_sim'], (ARM, 'sawyer_sim', 200)),
        (['--set', 'reasoner.token_budget=400'], (ARM, 'sawyer_sim_loop', 400)),
        (['--model', 'mine'], ('mine', 'sawyer_sim', USUAL)),
        (['--model', 'mine', '--robot', 'sawyer_sim_loop'], ('mine', 'sawyer_sim_loop', USUAL)),
        (['--chooser', 'oracle'], ('', 'sawyer_sim', USUAL)),
    ],
)
def test_the_shipped_policy_leads_as_it_was_trained_where_nobody_is_named(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    words: list[str],
    led: tuple[str, str, int],
) -> None:
    served: list[str] = []

    @contextmanager
    def serve(model: str, _: Any) -> Iterator[ChatConfig]:
        served.append(model)
        yield ChatConfig()

    def loop(settings: LoopSettings, *_: Any) -> None:
        found = (*served, settings.robot_file, settings.reasoner.token_budget)
        assert found == tuple(part for part in led if part)
        assert settings.robot.name == settings.robot_file
        msg = 'seen enough'
        raise EmbodiedRError(msg)

    monkeypatch.setattr('embodied_r_ros.cli.arm.sim.served_model', serve)
    monkeypatch.setattr('embodied_r_ros.nodes.arm.closed_loop.closed_loop', loop)
    assert exit_code([*RUN, '--out', str(tmp_path / 'out'), *words]) == 1


@pytest.mark.parametrize(
    ('words', 'why'),
    [
        (['--no-images'], '--closed-loop needs images'),
        (['--set', 'reasoner.show_image=true'], 'reasoner.show_image is for a --model'),
        (['--workers', '2'], 'one worker'),
        (['--speed', '0'], 'a --speed of 0.01 to 100'),
        (['--robot', 'nobody'], "no robot 'nobody'"),
        (['--set', 'reasoner.token_budget=0'], 'token_budget is 0'),
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
