# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import pairwise
import math
from pathlib import Path
import random
import re
from types import SimpleNamespace
from typing import Any, TYPE_CHECKING

import pytest

pytest.importorskip('torch')
pytest.importorskip('trl')

from embodied_r_ros.common.errors import InputError, ModelError
from embodied_r_ros.common.files import shared_path
from embodied_r_ros.questions.row import Row, write_rows
from embodied_r_ros.questions.wordings import WORDINGS
from embodied_r_ros.scene.memory import MemoryConfig
from embodied_r_ros.types.answers import Sampling
import torch
from trl import SFTConfig, SFTTrainer

from test.training.commands import run_training
from training import grpo, sft
from training.data.sft import chosen_rows, examples, SftArguments
from training.data.traces import read_row
from training.evaluate import draw_rows, evaluate
from training.judge import train as judge_recipe
from training.run.monitor import GradientGuard
from training.tiny.exercises import phrase_examples, recall_examples
from training.tiny.model import load_tokenizer, train_tokenizer

if TYPE_CHECKING:
    from types import ModuleType

ROOT = Path(__file__).resolve().parents[2]
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
    words = ['--config', 'training/configs/smoke-sft.yaml', '--recall', '10']
    words += ['--rows', str(tmp_path / 'rows.jsonl'), '--output_dir', str(tmp_path / 'model')]
    done = run_training('sft', words)
    assert done.returncode == 0, done.stderr[-2000:]
    assert 'sft: 50 training and 8 validation rows' in done.stderr
    assert (tmp_path / 'model' / 'model.safetensors').exists()
    report = evaluate(str(tmp_path / 'model'), rows[:4], MemoryConfig(), Sampling(max_tokens=8))
    # Two steps teach nothing: the point is that nothing ungradable is counted as right.
    assert (report['n'], report['accuracy'], report['format']) == (4, 0.0, 0.0)


@pytest.mark.parametrize(
    ('recall', 'checkpointing', 'strategy', 'shared'),
    [
        (0, False, 'random', True),
        (0, True, 'random', False),
        (10, False, 'random', True),
        (10, False, 'group_by_length', True),
    ],
)
def test_prefixes_are_shared_where_that_changes_nothing_else(
    recall: int,
    checkpointing: bool,
    strategy: str,
    shared: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rows = tmp_path / 'rows.jsonl'
    write_rows(rows, [turning_row(i, 'train' if i < 8 else 'validation') for i in range(10)])
    begun: list[Any] = []
    trained: list[Any] = []
    monkeypatch.setattr(sft, 'share_prefixes', begun.append)
    monkeypatch.setattr(SFTTrainer, 'train', lambda self, **_: trained.append(self.args))
    monkeypatch.setattr(SFTTrainer, 'save_model', lambda *_: None)
    arguments = SftArguments([str(rows)], share_prefixes=True, vocab_size=300, recall=recall)
    config = SFTConfig(
        str(tmp_path / 'out'), use_cpu=True, bf16=False, gradient_checkpointing=checkpointing
    )
    config.train_sampling_strategy = strategy
    sft.train(arguments, config)
    assert bool(begun) == shared
    is_ordered = shared and (not recall or strategy == 'group_by_length')
    assert (trained[0].train_sampling_strategy == 'sequential') == is_ordered


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
        sft.train(SftArguments([str(tmp_path / 'rows.jsonl')], vocab_size=300), config)
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


def test_an_adapter_does_not_take_new_tokens(tmp_path: Path) -> None:
    write_rows(tmp_path / 'rows.jsonl', [turning_row(i, 'train') for i in range(4)])
    arguments = SftArguments([str(tmp_path / 'rows.jsonl')], label_tokens=True, lora_rank=4)
    config = SFTConfig(str(tmp_path / 'out'), use_cpu=True, bf16=False)
    with pytest.raises(InputError, match='leave out lora_rank'):
        sft.train(arguments, config)


def test_some_rows_are_drawn_from_all_scenes() -> None:
    rows = [turning_row(i, 'test') for i in range(100)]
    some = draw_rows(rows, 20, seed=1)
    assert some == draw_rows(rows, 20, seed=1) != draw_rows(rows, 20, seed=2)
    assert len({row.scene_id for row in some}) == 20
    assert {int(row.scene_id[1:]) // 50 for row in some} == {0, 1}
    assert draw_rows(rows, 0, seed=1) == draw_rows(rows, 200, seed=1) == rows


def test_first_scenes_of_each_file_are_taken(tmp_path: Path) -> None:
    """Two rows of each scene; of five, the first and the last are for validation."""
    files = [str(tmp_path / name) for name in ('a.jsonl', 'b.jsonl')]
    for at, file in zip((0, 10), files, strict=True):
        splits = ['validation', *['train'] * 3, 'validation']
        rows = [turning_row(at + i, split) for i, split in enumerate(splits)]
        write_rows(Path(file), [replace(row, id=f'{row.id}{n}') for row in rows for n in 'xy'])
    for most, train in (
        ([3, 2], ['s1', 's2', 's11']),
        ([0, 1], ['s1', 's2', 's3']),
        ([], ['s1', 's2', 's3', 's11', 's12', 's13']),
    ):
        rows = list(chosen_rows(SftArguments(files, max_scenes=most), 'train'))
        assert [row.scene_id for row in rows] == [scene for scene in train for _ in 'xy']
    assert len(list(chosen_rows(SftArguments(files, max_scenes=[4, 5]), 'validation'))) == 6
    for wrong in ([3], [3, -1]):
        with pytest.raises(InputError, match='expected one number for each file'):
            list(chosen_rows(SftArguments(files, max_scenes=wrong), 'train'))


def test_tokenizer_gives_text_back_after_loading(tmp_path: Path) -> None:
    memory = MemoryConfig()
    texts = [turning_row(i, 'train').prompt(memory).user for i in range(50)]
    tokenizer = train_tokenizer(texts, 400)
    tokenizer.save_pretrained(tmp_path)
    (tmp_path / 'config.json').write_text('{"model_type": "qwen2"}')
    loaded = load_tokenizer(tmp_path)
    assert loaded.pad_token != loaded.eos_token
    row = turning_row(1, 'train')
    trace = read_row(row, memory)
    assert trace is not None
    ids = loaded(trace.completion(), add_special_tokens=False)['input_ids']
    assert loaded.decode(ids, skip_special_tokens=True) == trace.completion()


def test_trace_of_every_turning_row_reaches_its_solution() -> None:
    memory = MemoryConfig()
    for seed in range(200):
        row = turning_row(seed, 'train')
        trace = read_row(row, memory)
        assert trace is not None, row
        assert trace.answer == row.solution_text()


def test_a_share_of_the_examples_has_merged_lines(tmp_path: Path) -> None:
    rows = tmp_path / 'rows.jsonl'
    write_rows(rows, [turning_row(seed, 'train', most=40) for seed in range(40)])
    merged = {}
    for share in (0.0, 0.5, 1.0):
        arguments = SftArguments([str(rows)], degraded_share=0.0, merged_share=share)
        made = list(examples(arguments, 'train', seed=1))
        assert made == list(examples(arguments, 'train', seed=1))
        assert len(made) == 40
        merged[share] = sum('[1-' in example['prompt'][1]['content'] for example in made)
    assert merged[0.0] == 0 < merged[0.5] < merged[1.0]


def test_a_share_of_the_examples_tells_of_another_path(tmp_path: Path) -> None:
    rows = tmp_path / 'rows.jsonl'
    write_rows(rows, [turning_row(seed, 'train') for seed in range(40)])
    plain, half, every = (
        list(examples(arguments, 'train', seed=1))
        for share in (0.0, 0.5, 1.0)
        for arguments in [
            SftArguments([str(rows)], degraded_share=0.0, merged_share=0.0, retold_share=share)
        ]
    )
    assert len(plain) == len(half) == len(every) == 40
    others = [sum(a != b for a, b in zip(plain, made, strict=True)) for made in (half, every)]
    assert 5 < others[0] < 35 < others[1]


def test_a_share_of_the_scenes_is_brief(tmp_path: Path) -> None:
    rows = tmp_path / 'rows.jsonl'
    write_rows(rows, [turning_row(seed, 'train', most=12) for seed in range(40)])
    lengths = {}
    for share in (0.0, 0.5, 1.0):
        arguments = SftArguments(
            [str(rows)], degraded_share=0.0, merged_share=0.0, brief_share=share
        )
        made = list(examples(arguments, 'train', seed=1))
        assert len(made) == 40
        assert all('In all' in each['completion'][0]['content'] for each in made)
        lengths[share] = [each['prompt'][1]['content'].count('\n[') for each in made]
    is_brief = {share: sum(length <= 3 for length in those) for share, those in lengths.items()}
    assert is_brief[0.0] + 5 < is_brief[0.5] < is_brief[1.0] == 40


def test_a_share_of_the_examples_is_in_the_words_of_a_file(tmp_path: Path) -> None:
    rows, wordings = tmp_path / 'rows.jsonl', tmp_path / 'my.yaml'
    asked = WORDINGS['net_turn'][0]
    write_rows(rows, [replace(turning_row(seed, 'train'), question=asked) for seed in range(40)])
    wordings.write_text('net_turn: ["Facing where?"]')
    for share, least, most in ((0.0, 0, 0), (0.5, 10, 30), (1.0, 40, 40)):
        arguments = SftArguments(
            [str(rows)],
            degraded_share=0.0,
            merged_share=0.0,
            reworded_share=1.0,
            wordings=[str(wordings)],
            wordings_share=share,
        )
        made = list(examples(arguments, 'train', seed=1))
        in_words = [each for each in made if 'Facing where?' in each['prompt'][1]['content']]
        assert len(made) == 40
        assert least <= len(in_words) <= most
        assert all('In all' in each['completion'][0]['content'] for each in in_words)


def test_recall_tells_what_the_lines_of_the_scene_say() -> None:
    examples = list(recall_examples(60, seed=1))
    assert examples == list(recall_examples(60, seed=1)) != list(recall_examples(60, seed=2))
    whens = Counter[str]()
    for example in examples:
        shown = example['prompt'][0]['content']
        ((when, asked),) = re.findall('seen (first|last): (.*)[?]', shown)
        told = example['completion'][0]['content'].strip(' ;').split('; ')
        for label, said in zip(asked.split('; '), told, strict=True):
            lines = [line for line in shown.split('\nQuestion')[0].splitlines() if label in line]
            if not lines:
                assert said == f'{label} not seen'
                continue
            line = lines[0 if when == 'first' else -1]
            item, _, number = said.rpartition(' ')
            assert line.startswith(f'{number} ')
            assert item in line
            assert (item == label) == (when == 'first')
            whens[when] += 1
    assert min(whens['first'], whens['last']) > 40


def test_phrases_come_again_and_only_of_the_tokens_that_are_given() -> None:
    def make(seed: int) -> list[list[int]]:
        return [e['input_ids'] for e in phrase_examples(200, 300, range(10, 500), seed)]

    sequences = make(1)
    assert sequences == make(1) != make(2)
    assert {token for tokens in sequences for token in tokens} == set(range(10, 500))
    lengths = [len(tokens) for tokens in sequences]
    assert 64 <= min(lengths) < 80
    assert 280 < max(lengths) <= 300
    for tokens in sequences:
        last = list(zip(tokens[-41:], tokens[-40:], strict=False))
        before = set(pairwise(tokens[: len(tokens) - 40]))
        # All but what stands between two phrases stood side by side before.
        assert sum(pair in before for pair in last) > 20


def test_phrases_are_learned_instead_of_the_rows(tmp_path: Path) -> None:
    write_rows(tmp_path / 'rows.jsonl', [turning_row(i, 'train') for i in range(4)])
    words = ['--config', 'training/configs/smoke-sft.yaml', '--phrases', '64']
    words += ['--rows', str(tmp_path / 'rows.jsonl'), '--output_dir', str(tmp_path / 'model')]
    words += ['--completion_only_loss', 'false', '--label_tokens', 'true']
    done = run_training('sft', words)
    assert done.returncode == 0, done.stderr[-2000:]
    assert 'sft: 64 sequences of phrases' in done.stderr
    assert (tmp_path / 'model' / 'model.safetensors').exists()


@pytest.mark.parametrize(
    ('recipe', 'config'), [(sft, 'smoke-sft'), (grpo, 'smoke'), (judge_recipe, 'judge')]
)
def test_rows_that_are_not_there_end_a_recipe_with_one_line(
    recipe: ModuleType,
    config: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    words = ['--rows', str(tmp_path / 'none.jsonl'), '--output_dir', str(tmp_path / 'out')]
    words += ['--model', str(shared_path('models', 'nano')), '--bf16', 'false']
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
    told = list(examples(SftArguments([str(tmp_path / 'rows.jsonl')], blind=True), 'train', 0))
    assert len(told) == len(rows)
    for row, example in zip(rows, told, strict=True):
        asked = ''.join(message['content'] for message in example['prompt'])
        assert row.question in asked
        assert 'turned' not in asked
        assert f'<answer> {row.solution_text()}</answer>' in example['completion'][0]['content']
