# SPDX-License-Identifier: Apache-2.0
"""The bench of text policies that lead the simulated arm."""

from __future__ import annotations

from importlib.util import find_spec
import json
from typing import TYPE_CHECKING

import pytest

if find_spec('metaworld') is None:
    pytest.skip('Meta-World is not installed', allow_module_level=True)
pytest.importorskip('embodied_r_ros.sim.indoor.world')

from embodied_r_ros.arm.robot import load_robot
from embodied_r_ros.sim.arm.trials import TrialPlan

from bench.__main__ import main
from training.data.arm_trials import run_trial

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from embodied_r_ros.core.reasoning.question import Question
    from embodied_r_ros.core.types.deltas import SemanticDelta


def test_the_oracle_leads_the_arm(tmp_path: Path) -> None:
    file = tmp_path / 'a.json'
    run = ['arm_policy', '--tasks', 'pick', '--episodes', '1', '--seed', '1']
    assert main([*run, '--beside', 'random', '--json', str(file)]) == 0
    [picked] = json.loads(file.read_text())
    assert picked['oracle']['success_rate'] == 1.0
    assert picked['random']['success_rate'] in (0.0, 1.0)
    [trial] = picked['oracle']['trials']
    assert [step['closed'] for step in trial['steps']] == [False, True, True]


def test_whoever_cannot_know_fails_and_is_asked_no_more() -> None:
    asked = []

    def unknown(kind: str, question: Question, deltas: Sequence[SemanticDelta]) -> None:
        asked.append((kind, question.options, len(deltas)))

    trial = run_trial(TrialPlan('pick', 1, 0), load_robot('sawyer_sim_loop'), unknown)
    assert not trial.is_success
    assert not trial.steps
    [(kind, options, seen)] = asked
    assert (kind, seen) == ('waypoint', 1)
    assert 4 <= len(options) <= 8
