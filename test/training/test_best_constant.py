# SPDX-License-Identifier: Apache-2.0
"""The best constant answer is the one that is right most often, as a letter or as a text."""

from __future__ import annotations

from dataclasses import replace

from embodied_r_ros.data.questions.row import Row
import pytest

from training.eval.grading import best_constant

CHOICE = Row(
    'r', 'e', 's', 'test', 'map', '', 'way_to', 'Which way?', 'choice', ('left', 'right'), 'A', ()
)
NUMBER = replace(CHOICE, options=(), answer_kind='number', solution='2.0')


def test_a_text_is_the_same_answer_whatever_its_letter() -> None:
    turned = replace(CHOICE, options=('right', 'left'), solution='B')
    assert best_constant([CHOICE, turned]) == 1.0
    assert best_constant([CHOICE, replace(CHOICE, solution='B')]) == 0.5
    assert best_constant([]) == 0.0


def test_numbers_are_scored_as_answers_are() -> None:
    far = replace(NUMBER, solution='4.0')
    assert best_constant([NUMBER, replace(NUMBER, solution='2.4'), far]) > 1 / 3
    assert best_constant([NUMBER, far]) == pytest.approx(0.5 + 0.5 * 0.1, abs=0.06)


def test_unknown_is_an_answer_too() -> None:
    rows = [replace(NUMBER, solution='unknown')] * 3 + [NUMBER]
    assert best_constant(rows) == 0.75
