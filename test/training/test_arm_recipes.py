# SPDX-License-Identifier: Apache-2.0
"""The recipe for arms runs, and those of reinforcement and its control can be started."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip('torch')
pytest.importorskip('trl')

from embodied_r_ros.common.errors import InputError
from embodied_r_ros.common.files import shared_path
from embodied_r_ros.data.questions.row import write_rows
from trl import GRPOConfig, SFTConfig, TrlParser

from test.tiny_models import save_language_model
from test.training.arm_rows import arm_rows
from test.training.commands import run_training
from training.data.grpo import GrpoArguments, training_prompts
from training.data.selection import rows_of_kinds
from training.data.sft import examples, SftArguments
from training.run.models import load_tokenizer

ROOT = Path(__file__).resolve().parents[2]
SMALL = (
    '--max_steps', '1', '--save_steps', '1', '--report_to', 'none', '--threads', '1',
    '--bf16', 'false',
)  # fmt: skip


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    found = arm_rows()
    split = ['train'] * (len(found) - 20) + ['validation'] * 20
    path = tmp_path / 'rows.jsonl'
    write_rows(path, [replace(row, split=s) for row, s in zip(found, split, strict=True)])
    return path


def run(recipe: str, config: str, rows: Path, out: Path, *more: str) -> str:
    words = ['--config', f'training/configs/{config}', '--rows', str(rows)]
    done = run_training(recipe, [*words, '--output_dir', str(out), *SMALL, *more])
    assert done.returncode == 0, done.stderr[-3000:]
    assert (out / 'model.safetensors').exists()
    return done.stderr


def test_reinforcement_recipe_runs(rows: Path, tmp_path: Path) -> None:
    more = ['--model', str(shared_path('models', 'arm')), '--samples', '']
    more += ['--per_device_train_batch_size', '4', '--gradient_accumulation_steps', '1']
    more += ['--num_generations', '4', '--max_completion_length', '8']
    said = run('grpo', 'arm-grpo.yaml', rows, tmp_path / 'grpo', *more)
    assert 'format : accuracy : consistency = 0.50 : 0.50 : 0.00' in said


@pytest.mark.parametrize(
    ('config', 'kinds'),
    [
        ('improve-grpo.yaml', (GrpoArguments, GRPOConfig)),
        ('improve-control.yaml', (SftArguments, SFTConfig)),
    ],
)
def test_settings_of_a_file_are_those_that_its_recipe_knows(config: str, kinds: Any) -> None:
    file = ROOT / 'training/configs' / config
    given = ['--config', str(file), '--output_dir', 'out', '--model', 'start', '--seed', '1']
    arguments, trainer = TrlParser(kinds).parse_args_and_config(given)
    assert (arguments.model, trainer.output_dir, trainer.seed) == ('start', 'out', 1)


def test_only_types_that_are_asked_for_are_trained_on(rows: Path) -> None:
    found = {}
    for kinds in (['waypoint'], ['movement'], ['waypoint', 'movement']):
        made = list(examples(SftArguments([str(rows)], 'model', kinds=kinds), 'train'))
        found[' '.join(kinds)] = len(made)
    assert found['waypoint'] > 10
    assert found['waypoint'] + found['movement'] == found['waypoint movement']


def test_a_type_that_is_asked_for_and_has_no_row_is_named(rows: Path, tmp_path: Path) -> None:
    kinds = ['waypoint', 'gripper']
    with pytest.raises(InputError, match=r'kinds lists gripper, of which .*rows\.jsonl has no'):
        list(examples(SftArguments([str(rows)], 'model', kinds=kinds), 'train'))
    save_language_model(tmp_path / 'model')
    tokenizer = load_tokenizer(tmp_path / 'model')
    arguments = GrpoArguments([str(rows)], 'model', ['none'], ['1 x 1:1:0'], kinds=kinds)
    with pytest.raises(InputError, match='kinds lists gripper'):
        training_prompts(arguments, tokenizer, at_once=1, seed=0)

    # Files count together, and rows for validation need not have every type.
    grips = [row for row in arm_rows(gripper=True) if row.question_type == 'gripper']
    write_rows(tmp_path / 'grips.jsonl', [replace(row, split='train') for row in grips])
    together = SftArguments([str(rows), str(tmp_path / 'grips.jsonl')], 'model', kinds=kinds)
    assert list(examples(together, 'train'))
    assert list(rows_of_kinds([str(rows)], kinds, 'validation'))


def test_answers_alone_have_no_reasoning(rows: Path) -> None:
    arguments = SftArguments([str(rows)], 'model')
    texts = [made['completion'][0]['content'] for made in examples(arguments, 'train')]
    assert texts
    assert all(text.startswith('<think> </think><answer> ') for text in texts)
