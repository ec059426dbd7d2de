# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import argparse
import itertools
import json
from typing import TYPE_CHECKING

import pytest

pytest.importorskip('torch')
pytest.importorskip('trl')
pytest.importorskip('embodied_r_ros.sim.indoor.world')

from embodied_r_ros.common.errors import InputError

from bench import training
from bench.__main__ import main

if TYPE_CHECKING:
    from pathlib import Path

PARTS = ['generation', 'forward', 'backward, optimizer']
REWARDS = ['format_reward', 'accuracy_reward']


@pytest.mark.slow
def test_a_step_is_split_into_its_parts(tmp_path: Path) -> None:
    out = tmp_path / 'figures.json'
    words = ['--prompts', '2', '--completions', '2', '--steps', '1', '--rooms', '2']
    words += ['--tokens', '8', '--json', str(out)]
    code = main(['training', *words])
    found = json.loads(out.read_text())
    assert code == (0 if found['budgets'][0]['is_met'] else 1)
    assert list(found['parts_s']) == [*PARTS, *REWARDS, 'rest', 'step']
    whole_s = found['parts_s'].pop('step')
    assert min(found['parts_s'].values()) > 0  # 'rest' too: nothing is counted twice
    assert sum(found['parts_s'].values()) == pytest.approx(whole_s)
    assert 0 < found['completion_tokens'] <= 8


def test_recipe_needs_no_file_but_the_rows(tmp_path: Path) -> None:
    parser = argparse.ArgumentParser()
    training.add_arguments(parser)
    arguments, _ = training.settings(tmp_path / 'rows.jsonl', tmp_path, parser.parse_args([]))
    assert arguments.rows == [str(tmp_path / 'rows.jsonl')]
    assert not arguments.samples


@pytest.mark.parametrize(('batch', 'is_right'), [(16, True), (24, False), (128, False)])
def test_batches_make_up_a_step(batch: int, is_right: bool, tmp_path: Path) -> None:
    parser = argparse.ArgumentParser()
    training.add_arguments(parser)
    args = parser.parse_args(['--batch', str(batch)])
    if is_right:
        _, config = training.settings(tmp_path / 'rows.jsonl', tmp_path, args)
        assert config.per_device_train_batch_size * config.gradient_accumulation_steps == 64
        return
    with pytest.raises(InputError, match=f'--batch {batch}: a step has 64 completions'):
        training.settings(tmp_path / 'rows.jsonl', tmp_path, args)


def test_parts_are_those_of_their_step(monkeypatch: pytest.MonkeyPatch) -> None:
    ticks = itertools.count()
    monkeypatch.setattr('time.perf_counter', lambda: float(next(ticks)))
    timer = training.StepTimer()
    judged = timer.timed('judge', lambda: None)
    for calls in (3, 1):
        timer.on_step_begin()
        for _ in range(calls):
            judged()
        timer.on_pre_optimizer_step()
        timer.on_optimizer_step()
        timer.on_step_end()
    assert [step['judge'] for step in timer.steps] == [3.0, 1.0]
    assert [step['backward, optimizer'] for step in timer.steps] == [1.0, 1.0]
    assert [step['step'] for step in timer.steps] == [9.0, 5.0]


@pytest.mark.parametrize(('reward_s', 'code'), [(0.07, 0), (0.08, 1)])
def test_slow_rewards_fail_the_budget(
    reward_s: float, code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts = {**dict.fromkeys(PARTS, 0.1), **dict.fromkeys(REWARDS, reward_s), 'step': 1.0}
    figures = training.TrainerFigures(parts, completion_tokens=100.0)
    monkeypatch.setattr(training, 'measure', lambda *_: figures)
    assert main(['training', '--rows', str(tmp_path / 'rows.jsonl')]) == code
