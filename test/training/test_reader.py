# SPDX-License-Identifier: Apache-2.0
"""The reader's training with a tiny model of random weights, and its rows."""

from __future__ import annotations

from typing import Any, TYPE_CHECKING

from embodied_r_ros.core.reasoning.calls import format_calls, parse_calls
from embodied_r_ros.data.questions.map_rows import names_for
from embodied_r_ros.data.questions.row import QuestionWithSolution, Row, RowBuilder
import pytest
from safetensors.numpy import load_file
import torch

from training.data.call_rows import is_same, outcome_of, read_call_rows, read_scenes, scene_of
from training.data.calls import write_calls
from training.data.random_maps import random_map_moment
from training.data.taught_rows import taught_rows
from training.reader import chunks_of, Learner, TrainingPlan

if TYPE_CHECKING:
    from pathlib import Path

END = 256


class Bytes:
    """A tokenizer for tests: a token is a byte."""

    def encode(self, text: str, **_: Any) -> list[int]:
        return list(text.encode())


@pytest.fixture(scope='module')
def rows(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp('rows')
    write_calls(folder, 60, 16, 5)
    return folder


@pytest.fixture
def learner() -> Learner:
    """One of a model with random weights."""
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=END + 1, hidden_size=32, intermediate_size=64, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=2, tie_word_embeddings=True,
    )  # fmt: skip
    plan = TrainingPlan(epochs=30, batch=2, rate=2e-2, at_once=200)
    return Learner(LlamaForCausalLM(config), Bytes(), END, plan, 0)


def test_labels_are_executable_and_scenes_are_held_out(rows: Path) -> None:
    scenes = read_scenes(rows)
    every = [row for split in ('train', 'test') for row in read_call_rows(rows, split)]
    assert len(every) == 76
    for row in every:
        calls = parse_calls(row.call, row.labels)
        assert calls is not None
        assert format_calls(calls) == row.call
        outcome = outcome_of(row.question, row.options, scene_of(scenes[row.scene]), calls)
        assert is_same(outcome, row.outcome)
    of_split = {s: {row.scene for row in every if row.split == s} for s in ('train', 'test')}
    assert not of_split['train'] & of_split['test']


def test_what_is_taught_becomes_likely_with_its_end(learner: Learner, tmp_path: Path) -> None:
    texts = [('Call:', ' count(chair)'), ('Say:', ' motion(turn)')]
    pairs = [(learner.ids(prompt), [*learner.ids(text), END]) for prompt, text in texts]
    before = learner.log_probabilities(pairs)
    losses = learner.learn(texts)
    assert len(losses) == 30
    after = learner.log_probabilities(pairs)
    assert after.mean() > before.mean() + 0.2
    last = len(pairs[0][1]) - 1
    assert after[last] > before[last] + 0.2  # the end of the first
    learner.save(tmp_path)
    torch.nn.init.zeros_(learner.parameters()[0])
    learner.load(load_file(tmp_path / 'adapter_model.safetensors'))
    assert torch.allclose(learner.log_probabilities(pairs), after, atol=0.05)


def test_training_ends_by_its_time(learner: Learner) -> None:
    learner.plan = TrainingPlan(epochs=1000, batch=1, limit_s=0.5)
    assert len(learner.learn([('Call:', ' count(chair)')])) < 1000


def test_chunks_hold_no_more_tokens_than_fit() -> None:
    pairs = [([0] * n, [0]) for n in (3, 9, 2, 2, 30)]
    chunks = chunks_of(pairs, 20)
    assert [len(chunk) for chunk in chunks] == [2, 2, 1]
    assert [pair for chunk in chunks for pair in chunk] == pairs


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


def test_a_person_may_give_the_call_itself_and_wrong_perception_teaches_nothing(
    rows: Path,
) -> None:
    name, place = next(iter(read_scenes(rows).items()))
    label = scene_of(place).labels[0]
    builder = RowBuilder(name, name, 'train')
    solutions = {f'{label} census?': f'count({label})', f'{label}: range?': '7381 m', 'why?': 'A'}
    asked = [
        builder.row(text, QuestionWithSolution('asked', text, (), solution, 'label'), ())
        for text, solution in {**solutions, 'who?': 'unknown'}.items()
    ]
    taught, left_out = taught_rows([row.with_map(place) for row in asked])
    assert [row.call for row in taught] == [f' count({label})']
    assert +left_out == {'no call gives the solution': 2, 'nobody can tell': 1}
