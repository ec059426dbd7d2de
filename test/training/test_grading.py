# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from embodied_r_ros.data.questions.row import Row
import pytest

from training.eval.grading import (
    best_constant,
    consistencies,
    grade,
    grade_completions,
    relative_accuracy,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from training.eval.judging import JudgeCase

CHOICE = Row(
    'r', 'e', 's', 'test', 'layout', 'c', 'kind', 'Q?', 'choice', ('left', 'right'), 'B', ()
)  # fmt: skip
NUMBER = replace(CHOICE, answer_kind='number', options=(), solution='4')
TEXT = replace(CHOICE, answer_kind='text', options=(), solution='a chair')
POINT = replace(TEXT, answer_kind='point', solution='{"inside": [100, 100, 200, 200]}')
BOX = replace(TEXT, answer_kind='box', solution='{"bbox_2d": [100, 100, 200, 200]}')


def reply_text(answer: str) -> str:
    return f'<think>Perhaps A. e.g. A</think><answer>{answer}</answer>'


@pytest.mark.parametrize(
    ('row', 'answer', 'accuracy', 'named'),
    [
        (CHOICE, 'B', 1.0, 'B'),
        (CHOICE, '[[b]]', 1.0, 'B'),
        (CHOICE, 'A', 0.0, 'A'),
        (CHOICE, 'up', 0.0, 'up'),
        (CHOICE, 'unknown', 0.0, 'unknown'),
        (replace(CHOICE, solution='unknown'), 'Unknown', 1.0, 'unknown'),
        (replace(CHOICE, solution='unknown'), 'B', 0.0, 'B'),
        (NUMBER, '5', 0.6, '5'),
        (NUMBER, 'many', 0.0, 'many'),
        (TEXT, 'a chair', 1.0, 'a chair'),
        (TEXT, 'a seat', None, 'a seat'),
        (POINT, '{"point_2d": [150, 150]}', 1.0, '(150, 150)'),
        (POINT, '(150, 250)', 0.5, '(150, 250)'),
        (POINT, 'unknown', 0.0, 'unknown'),
        (POINT, '(150, 1500)', None, None),
        (BOX, '[100, 100, 200, 150]', 0.5, '(100, 100, 200, 150)'),
        (BOX, '(150, 150)', None, None),
        (replace(POINT, solution='unknown'), 'unknown', 1.0, 'unknown'),
    ],
)
def test_grade_by_kind_of_answer(
    row: Row, answer: str, accuracy: float | None, named: str | None
) -> None:
    result = grade(row, reply_text(answer))
    assert (result.format, result.accuracy, result.answer) == (True, accuracy, named)


def test_text_after_the_answer_breaks_the_format_only() -> None:
    result = grade(CHOICE, reply_text('B') + ' indeed')
    assert (result.format, result.accuracy) == (False, 1.0)


@pytest.mark.parametrize(
    'text', ['', 'up', '<answer>B</answer><answer>B</answer>', reply_text('')]
)
def test_what_cannot_be_graded_is_none(text: str) -> None:
    assert grade(CHOICE, text).accuracy is None


@pytest.mark.parametrize(
    ('value', 'truth', 'expected'),
    [(10, 10, 1.0), (15, 10, 0.1), (9.5, 10, 1.0), (9, 10, 0.9), (None, 10, 0.0), (0, 0, 1.0)],
)
def test_mean_relative_accuracy(value: float | None, truth: float, expected: float) -> None:
    # |9 - 10| / 10 = 0.1 is within 1 - c for c = 0.50 … 0.90: nine of ten thresholds.
    assert relative_accuracy(value, truth) == pytest.approx(expected)


@pytest.mark.parametrize(
    ('question', 'solution', 'answer', 'accuracy'),
    [
        ('How far?', '3 m', '3 cm', 0.0),
        ('How far?', '3 m', '3', 1.0),
        ('How far?', '3', '3 meters away', 1.0),
        ('How far, in meters?', '3', '300 cm', 1.0),
        ('How far, in meters?', '3', '3 cm', 0.0),
        ('How far?', '1 m', '3.28 ft', 1.0),
        ('How wide?', '5 ft 3 in', '1.6 m', 1.0),
        ('How large is it, in square meters?', '14.5', '14.5 square meters', 1.0),
        ('How large is it?', '14.5 square meters', '14.5 meters', 0.0),
        ('How large is it?', '14.5 m²', '145000 cm^2', 1.0),
        ('Which angle, in degrees?', '-90', '\u22121.5708 rad', 1.0),
        ('Which angle?', '90 degrees', '90 m', 0.0),
        ('Which share?', '0.5', '50 %', 1.0),
        ('Which share?', '50 %', '50', 1.0),
        ('How fast?', '1 m/s', '3.6 km/h', 1.0),
        ('How many?', '4 chairs', '4', 1.0),
        ('How many?', '1234', '1,234', 1.0),
        ('How far?', '10', '15', 0.1),
        ('How far?', '3', '2-4', 0.0),
        ('What is it?', 'a chair', 'A chair.', 1.0),
    ],
)
def test_number_is_graded_with_its_unit(
    question: str, solution: str, answer: str, accuracy: float
) -> None:
    row = replace(NUMBER, question=question, solution=solution)
    assert grade(row, reply_text(answer)).accuracy == pytest.approx(accuracy)


class Yes:
    """A fake judge that is led to the last candidate."""

    def conclusions(self, cases: Sequence[JudgeCase]) -> list[str]:
        return [case.candidates()[-1] for case in cases]


def test_places_are_graded_without_a_judge() -> None:
    texts = [reply_text('(150, 150)'), reply_text('(0, 1500)'), reply_text('(150, 250)')]
    rows = [POINT] * 3
    assert [g.accuracy for g in grade_completions(rows, texts, Yes())] == [1.0, None, 0.5]
    assert consistencies(rows, texts, Yes())[1] is None


def test_best_constant_place_is_one_of_the_solutions() -> None:
    others = replace(POINT, solution='{"inside": [100, 100, 220, 220]}')
    far = replace(POINT, solution='{"inside": [800, 800, 900, 900]}')
    assert best_constant([POINT, others, far]) == pytest.approx(2 / 3)
    assert best_constant([BOX, replace(BOX, solution='unknown')]) == 0.5
