# SPDX-License-Identifier: Apache-2.0
"""Runs of trials leave a picture of each, and rates beside those of who needs no model."""

from __future__ import annotations

from importlib.util import find_spec
import json
from typing import Any, TYPE_CHECKING

import pytest

if find_spec('metaworld') is None:
    pytest.skip('Meta-World is not installed', allow_module_level=True)
pytest.importorskip('embodied_r_ros.sim.indoor.world')

from embodied_r_ros.arm.robot import load_robot
from embodied_r_ros.arm.task import Trial, TrialConfig
from embodied_r_ros.common.errors import InputError
from embodied_r_ros.sim.arm import trials as trials_module
from embodied_r_ros.sim.arm.trials import baseline, ClosedLoopRun, finish, lead, play, TrialPlan
from embodied_r_ros.sim.runs import SimArmConfig

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from embodied_r_ros.sim.arm.world import SimulatedArm

ROBOT = load_robot('sawyer_sim')
CAMERA = SimArmConfig('pick', width_px=160, height_px=120)


def by_the_oracle(arm: SimulatedArm, episode_id: str, reached: Callable[[], None]) -> Trial:
    """Lead an arm in this process, as the nodes would; the second trial goes wrong."""
    index = int(episode_id[-5:])
    chooser = TrialPlan('pick', 1, index).chooser('oracle', ROBOT)
    trial = play(arm, chooser, ROBOT, episode_id, config=TrialConfig(max_keypoints=5 - 3 * index))
    reached()
    return trial


def test_a_run_leaves_rates(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / 'out'
    trial = TrialConfig(max_keypoints=5)
    run = ClosedLoopRun(CAMERA, 1, 2, out, ROBOT, 'model', trial)
    run.prepare()
    trials = list(lead(run, by_the_oracle, None))
    before: list[dict[str, Any]] = []

    def play_baseline(*args: Any) -> Trial:
        before.append(json.loads((out / 'report.json').read_text()))
        return baseline(*args)

    monkeypatch.setattr(trials_module, 'baseline', play_baseline)
    report = finish(run, trials)
    assert before[0]['success_rate'] == 0.5  # whatever becomes of the baselines
    assert [each.is_success for each in trials] == [True, False]
    assert report['success_rate'] == 0.5
    assert (report['oracle'], report['nearest_baseline']) == (1.0, 0.0)
    written = json.loads((out / 'report.json').read_text())
    assert written == {**report, 'trials': [each.to_json() for each in trials]}
    assert len(written['trials'][0]['steps']) == 4
    assert len(list(out.iterdir())) == 1


@pytest.mark.parametrize(
    ('seed', 'episodes', 'why'), [(-1, 1, 'seed is -1'), (1, 0, 'episodes is 0')]
)
def test_a_run_that_cannot_be_is_refused(
    tmp_path: Path, seed: int, episodes: int, why: str
) -> None:
    run = ClosedLoopRun(CAMERA, seed, episodes, tmp_path / 'out', ROBOT, 'model')
    with pytest.raises(InputError, match=why):
        run.prepare()
    assert not (tmp_path / 'out').exists()
