# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from dataclasses import replace
from itertools import groupby
from random import Random
from typing import TYPE_CHECKING

from embodied_r_ros.deltas import DeltaKind, Item, ItemStatus, SemanticDelta
from embodied_r_ros.reasoning.completions import parse_completion
from embodied_r_ros.reasoning.memory import MemoryConfig
from embodied_r_ros.rows import Row, write_rows
from embodied_r_ros.wording import change_text

from training.lookups import lookups
from training.sft_data import examples, SftArguments

if TYPE_CHECKING:
    from pathlib import Path

    from training.traces import Trace

RED = Item('red tall object', ItemStatus.APPEARED, 0.5236, -0.1745, 0.1, 2.1)
BLUE = Item('blue round object', ItemStatus.VISIBLE, 0.0, 0.0, 0.1, 1.4)
GREEN = Item('green flat object', ItemStatus.APPEARED, -0.5236, 0.1745, 0.1)


def row(*views: tuple[Item, ...]) -> Row:
    deltas = []
    for index, items in enumerate(views):
        kind = DeltaKind.CHANGE if index else DeltaKind.FIRST
        action = 'turned left 45°' if index else ''
        change = change_text(items)
        deltas.append(
            SemanticDelta(index * 10**9, kind, action=action, change=change, items=items)
        )
    told = tuple(delta.to_row() for delta in deltas)
    return Row(
        'r', 'e', 's', 'train', 'layout', 'c', 'net_turn', 'Which way?', 'choice',
        ('to the left of it', 'to the right of it'), 'A', told,
    )  # fmt: skip


SEEN = row((RED, BLUE), (GREEN,), (BLUE,))


def exercises(asked: Row, memory: MemoryConfig | None = None) -> dict[str, Trace]:
    """Every kind of exercise, by the beginning of its question."""
    made = lookups(asked, memory or MemoryConfig(), 3, Random(1))
    return {exercise.question.split(':')[0]: trace for exercise, trace in made}


def test_last_sights_are_looked_for_line_by_line_in_the_words_of_the_traces() -> None:
    said = exercises(SEEN)['Where was each of these last in view'].think
    for sight in (
        'red tall object: [3] no. [2] no. [1] 30 left 2.1 m, now [3].',
        'blue round object: [3] ahead 1.4 m, now [3].',
        'green flat object: [3] no. [2] 30 right, now [3].',
    ):
        assert sight in said
    # One of another's colour was never there.
    assert said.count('Not seen.') == 1


def test_every_item_of_a_line_is_told_with_its_own_place() -> None:
    said = exercises(SEEN)['Where was it'].think
    assert said.count('[') == 3
    for place in ('red tall object 30 left 2.1 m', 'blue round object ahead 1.4 m'):
        assert place in said.split('[1] ')[1].split('. [')[0]
    assert '[2] green flat object 30 right.' in said


def test_what_comes_into_view_is_named_once() -> None:
    said = exercises(SEEN)['What came into view, line by line?']
    assert said.think == '[1] red tall object; blue round object. [2] green flat object. [3] no.'
    assert parse_completion(said.completion()).well_formed


def test_exercises_are_of_what_memory_tells() -> None:
    many = row(*[(RED, BLUE), (GREEN,), (BLUE,), (RED,)] * 10)
    merged = MemoryConfig(token_budget=250)
    for exercise, trace in lookups(many, merged, 3, Random(2)):
        shown = exercise.prompt(merged).user
        assert '[40]' in shown
        assert '[3]' not in shown
        assert '[3]' not in trace.think
    assert not list(lookups(replace(SEEN, deltas=()), MemoryConfig(), 3, Random(0)))


def test_training_adds_so_many_exercises_for_each_scene(tmp_path: Path) -> None:
    path = tmp_path / 'rows.jsonl'
    write_rows(path, [SEEN, replace(SEEN, id='q', question='Where to?'), row((RED,), (BLUE,))])
    made = list(examples(SftArguments([str(path)], degraded_share=0.0, lookups=2), 'train', 3))
    for _, scene in groupby(made, key=lambda example: example['scene']):
        questions = [example['prompt'][-1]['content'] for example in scene]
        starts = {question.split('\nQuestion: ')[0] for question in questions}
        assert len(starts) == 1
        assert sum('Which way?' not in q and 'Where to?' not in q for q in questions) == 2
    plain = list(examples(SftArguments([str(path)], degraded_share=0.0), 'train', 3))
    assert len(made) == len(plain) + 4
