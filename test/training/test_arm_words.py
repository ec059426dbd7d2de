# SPDX-License-Identifier: Apache-2.0
"""Tasks of arms in other words mean what they meant, and are none that is held out."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from test.training.arm_rows import arm_rows
from training.data.arm_reader import colours_of, things_of
from training.data.arm_traces import read_row
from training.data.tasks import (
    expand_pattern,
    is_pushed,
    MORE_TASKS,
    reworded_task,
)

ROWS = [row for row in arm_rows() if row.question_type in ('waypoint', 'movement')]
TOLD = 'put the red block on the blue mat'
PUSHED = 'push the red block to the blue mat'
OPENED = 'open the drawer'


def all_of(kind: str) -> set[str]:
    return {expand_pattern(p, Random(seed)) for p in MORE_TASKS[kind] for seed in range(300)}


@pytest.mark.parametrize('kind', sorted(MORE_TASKS))
def test_wordings_are_many_and_none_of_another_kind(kind: str) -> None:
    texts = all_of(kind)
    assert len(texts) > 20
    others = [text for other in MORE_TASKS if other != kind for text in all_of(other)]
    assert not texts & set(others)
    assert {is_pushed(text) for text in texts} == {kind.startswith('push')}
    assert not any(character in text for text in texts for character in '[]|.')


def test_words_of_the_task_that_is_held_out_are_in_none() -> None:
    words = {word for kind in MORE_TASKS for text in all_of(kind) for word in text.split()}
    assert not words & {'stack', 'pile', 'block', 'tower'}


def test_first_words_are_shared_by_kinds() -> None:
    first = [{text.split()[0] for text in all_of(kind)} for kind in MORE_TASKS]
    assert len(set.intersection(*first)) >= 4


def test_a_drawer_is_read_in_all_of_its_wordings() -> None:
    assert {tuple(things_of(text)) for text in all_of(OPENED)} == {('yellow',)}


@pytest.mark.parametrize('told', [TOLD, PUSHED, OPENED])
def test_reasoning_stays_the_same_in_other_words(told: str) -> None:
    rows = [replace(row, question=row.question.replace(TOLD, told)) for row in ROWS]
    changed = 0
    for seed, row in enumerate(rows * 10):
        other = replace(row, question=reworded_task(row.question, Random(seed)))
        changed += other.question != row.question
        assert read_row(other) == read_row(row)
        assert colours_of(other.question) == colours_of(row.question)
        assert other.question.split('. ', 1)[1] == row.question.split('. ', 1)[1]
    assert changed > 8 * len(rows)
    assert any(read_row(row) for row in rows)


@pytest.mark.parametrize(
    'question',
    [
        'The task is: stack the red block on the blue block. Which position is next?',
        'The task is: Fetch me a tea. Which position is next?',
        'Where is the red block?',
    ],
)
def test_tasks_of_other_kinds_stay_as_they_are(question: str) -> None:
    assert reworded_task(question, Random(0)) == question
