# SPDX-License-Identifier: Apache-2.0
"""Rows of calls, and a tiny model of random weights that learns them."""

from __future__ import annotations

from pathlib import Path
from random import Random
import re
from typing import Any

from embodied_r_ros.core.reasoning.calls import format_calls, parse_calls
from embodied_r_ros.data.questions.map_rows import names_for
from embodied_r_ros.data.questions.row import QuestionWithSolution, Row, RowBuilder
import pytest

from test.tiny_models import save_language_model
from test.training.commands import run_training
from test.training.test_sft import ARM, ROOT
from training import sft
from training.data.batches import epochs_by_length
from training.data.call_rows import (
    call_examples,
    is_same,
    NOT_LEARNED,
    outcome_of,
    read_call_rows,
    scene_of,
)
from training.data.calls import CallWriter, write_calls
from training.data.random_maps import random_map_moment
from training.data.taught_rows import taught_rows

END = 256


class Bytes:
    """A tokenizer for tests: a token is a byte."""

    eos_token_id = END

    def encode(self, text: str, **_: Any) -> list[int]:
        return list(text.encode())


@pytest.fixture(scope='module')
def rows(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp('rows')
    write_calls(folder, 60, 5)
    return folder


def test_labels_are_executable() -> None:
    place, every = CallWriter(5).rows_of_room(0)
    assert len(every) > 40
    for row in every:
        calls = parse_calls(row.call, row.labels)
        assert calls is not None
        assert format_calls(calls) == row.call
        outcome = outcome_of(row.question, row.options, scene_of(place), calls)
        assert is_same(outcome, row.outcome)


def test_labels_are_calls_and_their_ends(rows: Path) -> None:
    row = read_call_rows(rows / 'train.jsonl.gz')[0]
    (tokens,) = call_examples([row], Bytes(), 10_000)
    text = bytes(tokens['input_ids'][:-1]).decode()
    assert text == row.prompt + row.call
    own = len(row.call.encode()) + 1
    assert tokens['input_ids'][-own:] == tokens['labels'][-own:] == [*row.call.encode(), END]
    assert set(tokens['labels'][:-own]) == {NOT_LEARNED}
    assert not call_examples([row], Bytes(), len(tokens['labels']) - 1)


# As the adapter that is shipped was trained: 48 rows of drawn lengths, of two in a step.
AS_SHIPPED = [
    43, 1, 46, 12, 4, 37, 40, 34, 42, 28, 44, 2, 31, 25, 41, 16, 13, 21, 26, 35, 36, 8, 20, 17,
    0, 30, 3, 18, 23, 15, 5, 19, 38, 14, 29, 6, 27, 10, 47, 9, 22, 7, 45, 32, 11, 33, 39, 24,
    44, 2, 38, 3, 14, 31, 42, 23, 20, 32, 33, 11, 16, 28, 35, 5, 46, 4, 39, 24, 25, 47, 18, 22,
    29, 9, 37, 19, 40, 34, 7, 6, 41, 13, 27, 10, 30, 36, 8, 12, 15, 21, 1, 26, 17, 45, 0, 43,
]  # fmt: skip


def test_batches_are_those_that_the_shipped_adapter_was_trained_on() -> None:
    rng = Random(0)
    lengths = [rng.randint(1, 40) for _ in range(48)]
    assert epochs_by_length(lengths, 2, 2, seed=3) == AS_SHIPPED
    order = epochs_by_length(lengths, 10, 2, seed=3)  # the last of each epoch has eight
    assert sorted(order[:48]) == sorted(order[48:]) == list(range(48))


def test_calls_are_learned_by_the_recipe(rows: Path, tmp_path: Path) -> None:
    save_language_model(tmp_path / 'base')
    words = ['--config', 'training/configs/reader.yaml', '--model', str(tmp_path / 'base')]
    words += ['--rows', str(rows / 'train.jsonl.gz'), '--output_dir', str(tmp_path / 'out')]
    words += ['--gradient_accumulation_steps', '1', '--learning_rate', '0.02']
    words += ['--num_train_epochs', '3', '--max_length', '4096', '--logging_steps', '1']
    words += ['--use_cpu', 'true', '--save_steps', '100']
    done = run_training('sft', words)
    assert done.returncode == 0, done.stderr[-2000:]
    assert 'sft: 180 training and 0 validation rows' in done.stderr
    said = done.stdout + done.stderr
    losses = [float(loss) for loss in re.findall(r"'loss': '?([\d.]+)", said)]
    assert len(losses) == 23
    assert sum(losses[-5:]) < 0.97 * sum(losses[:5])
    assert (tmp_path / 'out' / 'adapter_model.safetensors').exists()


@pytest.mark.parametrize(
    ('words', 'told'),
    [
        (['--rows', 'none.jsonl.gz'], 'none.jsonl.gz cannot be read as rows of calls'),
        (['--max_length', '1'], 'no row is of 1 tokens at most'),
        (['--model', 'none.gguf'], 'none.gguf'),
        (['--model', 'base.gguf', '--lora_rank', '0'], 'of which an adapter is trained'),
    ],
)
def test_what_cannot_be_learned_is_told(
    words: list[str],
    told: str,
    rows: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    Path('base.gguf').write_text('weights')
    given = ['sft', '--config', str(ROOT / 'training' / 'configs' / 'reader.yaml')]
    given += ['--rows', str(rows / 'train.jsonl.gz'), '--output_dir', str(tmp_path / 'out')]
    monkeypatch.setattr('sys.argv', [*given, '--model', ARM, '--use_cpu', 'true', *words])
    assert sft.main() == 2
    assert told in capsys.readouterr().err.splitlines()[-1]


def solved(*asked: tuple[str, tuple[str, ...], str]) -> list[Row]:
    """Rows of every place, with the solutions that calls give there, where they do."""
    found = []
    for name in map(str, range(8)):
        place = random_map_moment(name, names_for('train')).scene
        scene = scene_of(place)
        for number, (words, options, call) in enumerate(asked):
            own = [text.format(x=scene.labels[0], y=scene.labels[1]) for text in (words, call)]
            kind, text, _ = outcome_of(own[0], options, scene, parse_calls(own[1], scene.labels))
            if kind != 'unknown':
                letter = 'ABCD'[options.index(text)] if options else text
                question = QuestionWithSolution('asked', own[0], options, letter, 'label')
                row = RowBuilder(name, name, 'train').row(str(number), question, ())
                found.append(row.with_map(place))
    return found


def test_solutions_teach_the_calls_that_give_them() -> None:
    sides = ('ahead', 'to the left', 'to the right', 'behind')
    asked = solved(
        ('{x}, bearing', sides, 'where({x})'),
        ('{x}: range?', (), 'distance({x})'),
        ('log {x}: seconds since last contact?', (), 'seen({x}; last)'),
        ('odometer, in meters?', (), 'motion(way)'),
        ('net drift in meters?', (), 'motion(displacement)'),
    )
    taught, left_out = taught_rows(asked)
    assert len(taught) + left_out.total() == len(asked)
    assert len(taught) > 0.7 * len(asked)
    calls = {row.call.split('(')[0].strip() for row in taught}
    assert calls == {'where', 'distance', 'seen', 'motion'}
    assert all(row.call.count('(') == 1 for row in taught)


def test_a_person_may_give_the_call_itself_and_wrong_perception_teaches_nothing() -> None:
    name, place = 'room', random_map_moment('0', names_for('train')).scene
    label = scene_of(place).labels[0]
    builder = RowBuilder(name, name, 'train')
    solutions = {f'{label} census?': f'count({label})', f'{label}: range?': '7381 m', 'why?': 'A'}
    asked = [
        builder.row(text, QuestionWithSolution('asked', text, (), solution, 'label'), ())
        for text, solution in {**solutions, 'who?': 'unknown'}.items()
    ]
    taught, left_out = taught_rows([row.with_map(place) for row in asked])
    assert [row.call for row in taught] == [f' count({label})']
    assert +left_out == {'no call gives the solution, or several do': 2, 'nobody can tell': 1}
