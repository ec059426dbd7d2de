# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import math
from pathlib import Path
import random
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest

pytest.importorskip('torch')
pytest.importorskip('trl')

from embodied_r_ros.common.errors import InputError, ModelError
from embodied_r_ros.common.files import shared_path
from embodied_r_ros.core.scene.memory import MemoryConfig
from embodied_r_ros.core.types.answers import Sampling
from embodied_r_ros.data.questions.row import Row, write_rows
import torch
from trl import SFTConfig, SFTTrainer

from test.training.commands import run_training
from training import grpo, sft
from training.data.sft import examples, SftArguments
from training.eval.asking import draw_rows
from training.evaluate import evaluate
from training.run.gradients import GradientGuard

if TYPE_CHECKING:
    from types import ModuleType

ROOT = Path(__file__).resolve().parents[2]
ARM = str(shared_path('models', 'arm'))
FACINGS = (
    'the same way as at the start',
    'to the left of it',
    'the opposite way',
    'to the right of it',
)


def turning_row(seed: int, split: str, most: int = 4) -> Row:
    """A robot that turns by quarters on the spot."""
    rng = random.Random(seed)
    quarters = [rng.choice([1, -1]) for _ in range(rng.randint(2, most))]
    deltas = [{'stamp_ns': 0, 'action': '', 'change': 'No object stands out.', 'items': []}]
    for number, quarter in enumerate(quarters, 1):
        side = 'left' if quarter > 0 else 'right'
        deltas.append(
            {
                'stamp_ns': number * 10**9,
                'action': f'turned {side} 90°',
                'change': 'No object stands out.',
                'items': [],
            }
        )
    options = rng.sample(FACINGS, 4)
    solution = 'ABCD'[options.index(FACINGS[sum(quarters) % 4])]
    return Row(
        f'r{seed}', f'e{seed}', f's{seed}', split, 'layout', 'camera', 'net_turn',
        'Which way does the robot face now?', 'choice', tuple(options), solution, tuple(deltas),
    )  # fmt: skip


def test_smoke_recipe_trains_saves_and_is_evaluated(tmp_path: Path) -> None:
    rows = [turning_row(i, 'train' if i < 40 else 'validation') for i in range(48)]
    write_rows(tmp_path / 'rows.jsonl', rows)
    words = ['--config', 'training/configs/smoke-sft.yaml']
    words += ['--rows', str(tmp_path / 'rows.jsonl'), '--output_dir', str(tmp_path / 'model')]
    done = run_training('sft', words)
    assert done.returncode == 0, done.stderr[-2000:]
    assert 'sft: 40 training and 8 validation rows' in done.stderr
    assert (tmp_path / 'model' / 'model.safetensors').exists()
    report = evaluate(str(tmp_path / 'model'), rows[:4], MemoryConfig(), Sampling(max_tokens=8))
    # Two steps teach nothing: the point is that nothing ungradable is counted as right.
    assert (report['n'], report['accuracy'], report['format']) == (4, 0.0, 0.0)


@pytest.mark.parametrize('factor', [math.nan, math.inf])
def test_a_gradient_that_is_no_number_ends_the_run(
    factor: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_rows(tmp_path / 'rows.jsonl', [turning_row(i, 'train') for i in range(4)])
    loss_of = SFTTrainer.compute_loss
    monkeypatch.setattr(
        SFTTrainer, 'compute_loss', lambda *words, **more: factor * loss_of(*words, **more)
    )
    config = SFTConfig(str(tmp_path / 'out'), use_cpu=True, bf16=False, max_steps=1)
    with pytest.raises(ModelError, match='step 0: the gradient is NaN or infinite'):
        sft.train(SftArguments([str(tmp_path / 'rows.jsonl')], ARM), config)
    assert not (tmp_path / 'out' / 'model.safetensors').exists()
    is_cudnn_used = torch.backends.cuda.cudnn_sdp_enabled()  # type: ignore[no-untyped-call]
    assert not is_cudnn_used  # its gradients may be NaN


def test_a_gradient_of_a_scaled_loss_is_for_its_scaler() -> None:
    model = torch.nn.Linear(2, 1)
    model.weight.grad = torch.full((1, 2), math.inf)
    words = SimpleNamespace(global_step=3), None, model
    GradientGuard().on_pre_optimizer_step(SimpleNamespace(fp16=True), *words)
    with pytest.raises(ModelError, match='step 3: '):
        GradientGuard().on_pre_optimizer_step(SimpleNamespace(fp16=False), *words)


def test_some_rows_are_drawn_from_all_scenes() -> None:
    rows = [turning_row(i, 'test') for i in range(100)]
    some = draw_rows(rows, 20, seed=1)
    assert some == draw_rows(rows, 20, seed=1) != draw_rows(rows, 20, seed=2)
    assert len({row.scene_id for row in some}) == 20
    assert {int(row.scene_id[1:]) // 50 for row in some} == {0, 1}
    assert draw_rows(rows, 0, seed=1) == draw_rows(rows, 200, seed=1) == rows


@pytest.mark.parametrize(('recipe', 'config'), [(sft, 'smoke-sft'), (grpo, 'smoke')])
def test_rows_that_are_not_there_end_a_recipe_with_one_line(
    recipe: ModuleType,
    config: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    words = ['--rows', str(tmp_path / 'none.jsonl'), '--output_dir', str(tmp_path / 'out')]
    words += ['--model', ARM, '--bf16', 'false']
    file = ROOT / 'training' / 'configs' / f'{config}.yaml'
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr('sys.argv', ['recipe', '--config', str(file), *words])
    assert recipe.main() == 2
    said = capsys.readouterr().err.splitlines()
    assert said[-1].startswith(f'{recipe.__name__}: error: ')
    assert 'none.jsonl' in said[-1]


def test_blind_model_is_told_answers_but_nothing_that_was_seen(tmp_path: Path) -> None:
    rows = [turning_row(i, 'train') for i in range(5)]
    write_rows(tmp_path / 'rows.jsonl', rows)
    arguments = SftArguments([str(tmp_path / 'rows.jsonl')], ARM, blind=True)
    told = list(examples(arguments, 'train'))
    assert len(told) == len(rows)
    for row, example in zip(rows, told, strict=True):
        asked = ''.join(message['content'] for message in example['prompt'])
        assert row.question in asked
        assert 'turned' not in asked
        assert f'<answer> {row.solution_text()}</answer>' in example['completion'][0]['content']


def test_rows_of_another_split_teach_nothing(tmp_path: Path) -> None:
    write_rows(tmp_path / 'rows.jsonl', [turning_row(i, 'test') for i in range(4)])
    config = SFTConfig(str(tmp_path / 'out'), use_cpu=True, bf16=False)
    with pytest.raises(InputError, match='no training rows that fit'):
        sft.train(SftArguments([str(tmp_path / 'rows.jsonl')], ARM), config)
