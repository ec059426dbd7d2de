# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from dataclasses import replace
from random import Random
from string import Formatter

from embodied_r_ros.questions.wordings import WORDINGS
from embodied_r_ros.reasoning.memory import MemoryConfig
import pytest

pytest.importorskip('torch')
pytest.importorskip('trl')

from test.training.test_sft import turning_row
from training.reword import MORE_WORDINGS, reworded
from training.traces import read_row


def names_in(wording: str) -> set[str]:
    return {name for _, name, _, _ in Formatter().parse(wording) if name}


@pytest.mark.parametrize('kind', sorted(MORE_WORDINGS))
def test_more_wordings_leave_the_same_open_and_are_none_that_are_known(kind: str) -> None:
    more = MORE_WORDINGS[kind]
    assert len(set(more)) == len(more)
    assert not set(more) & set(WORDINGS[kind])
    for wording in more:
        assert names_in(wording) == names_in(WORDINGS[kind][0])


def test_question_keeps_what_it_is_about() -> None:
    row = replace(
        turning_row(1, 'train'), question='How many different red objects came into view so far?'
    )
    texts = {reworded(row, Random(seed)).question for seed in range(40)}
    assert texts == {wording.format(colour='red') for wording in MORE_WORDINGS['how_many']}


def test_reasoning_stays_the_same_in_other_words() -> None:
    row = replace(turning_row(3, 'train'), question=WORDINGS['net_turn'][0])
    other = reworded(row, Random(0))
    assert other.question != row.question
    config = MemoryConfig()
    assert read_row(other, config) == read_row(row, config) is not None


def test_questions_of_people_stay_as_they_are() -> None:
    row = replace(turning_row(1, 'train'), question='Whose cup is it?')
    assert reworded(row, Random(0)) is row
