# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING

import pytest

pytest.importorskip('torch')
pytest.importorskip('trl')

from embodied_r_ros.data.questions.row import write_rows
from safetensors.torch import load_file
import torch

from test.training.commands import run_training
from test.training.test_grpo import run_grpo
from test.training.test_sft import turning_row

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    import subprocess


def run_sft(folder: Path, *more: str) -> subprocess.CompletedProcess[str]:
    words = ['--config', 'training/configs/smoke-sft.yaml', '--rows', str(folder / 'rows.jsonl')]
    return run_training('sft', [*words, '--output_dir', str(folder / 'out'), *more])


@pytest.mark.parametrize(
    ('run', 'more', 'told'),
    [
        (
            run_grpo,
            ('--max_completion_length', '48'),
            ('completions/mean_length', 'reward', 'loss'),
        ),
        (run_sft, (), ('loss', 'learning_rate', 'grad_norm')),
    ],
    ids=['grpo', 'sft'],
)
def test_resumed_run_equals_one_that_was_not_stopped(
    tmp_path: Path,
    run: Callable[..., subprocess.CompletedProcess[str]],
    more: tuple[str, ...],
    told: tuple[str, ...],
) -> None:
    write_rows(tmp_path / 'rows.jsonl', [turning_row(i, 'train') for i in range(16)])
    done = run(tmp_path, '--max_steps', '4', '--save_steps', '2', *more)
    assert done.returncode == 0, done.stderr[-3000:]
    stopped = tmp_path / 'stopped'
    shutil.copytree(tmp_path / 'out' / 'checkpoint-2', stopped / 'checkpoint-2')
    again = run(tmp_path, '--max_steps', '4', '--output_dir', str(stopped), *more)
    assert again.returncode == 0, again.stderr[-3000:]
    if run is run_grpo:  # the stage, too, is that of the step
        assert 'step 2: stage 2 of 2' in again.stderr
        assert 'stage 1 of 2' not in again.stderr
    weights = [load_file(path / 'model.safetensors') for path in (tmp_path / 'out', stopped)]
    assert all(torch.equal(weights[0][name], weights[1][name]) for name in weights[0])
    states = [path / 'checkpoint-4' / 'trainer_state.json' for path in (tmp_path / 'out', stopped)]
    steps = [json.loads(state.read_text())['log_history'] for state in states]
    logged = [[[log.get(name) for name in ('step', *told)] for log in logs] for logs in steps]
    assert [row[0] for row in logged[0] if None not in row] == [1, 2, 3, 4]
    assert logged[0] == logged[1]
