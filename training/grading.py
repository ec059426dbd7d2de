# SPDX-License-Identifier: Apache-2.0
"""Grades of one completion against its row. What cannot be graded is None, never 0."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from embodied_r_ros.reasoning.completions import (
    choice_index,
    is_unknown,
    number_in,
    option_letter,
    parse_completion,
    UNKNOWN,
)

if TYPE_CHECKING:
    from embodied_r_ros.rows import Row

# Thresholds of mean relative accuracy (VSI-Bench): 0.50, 0.55, … 0.95.
_MRA_CONFIDENCES = tuple(percent / 100 for percent in range(50, 100, 5))


@dataclass(frozen=True)
class Grade:
    """Grades of one completion."""

    format: bool  # think, then one answer, nothing else
    accuracy: float | None  # 0..1; None: there is no answer to grade, or a judge is needed
    answer: str | None  # letter of a choice, the text otherwise; None: no answer


def grade(row: Row, text: str) -> Grade:
    """Grade a completion.

    A choice is right or wrong; a number gets its mean relative accuracy; a free text that is not
    the solution to the letter needs a judge and stays None.
    """
    completion = parse_completion(text)
    if completion.answer is None:
        return Grade(completion.well_formed, None, None)
    answer = named_answer(row, completion.answer)
    return Grade(completion.well_formed, _accuracy(row, answer), answer)


def named_answer(row: Row, answer: str) -> str:
    """The answer in the terms of the row's solution: letter, 'unknown', or the text itself."""
    index = choice_index(answer, row.options) if row.options else None
    if index is not None:
        return option_letter(index)
    return UNKNOWN if is_unknown(answer) else answer


def _accuracy(row: Row, answer: str) -> float | None:
    if answer == row.solution:
        return 1.0
    if UNKNOWN in (answer, row.solution) or row.answer_kind == 'choice':
        return 0.0
    if row.answer_kind == 'number':
        return relative_accuracy(number_in(answer), float(row.solution))
    return None


def relative_accuracy(value: float | None, truth: float) -> float:
    """Mean relative accuracy of a number, 0..1 (VSI-Bench, spec f.3).

    A truth of zero has no relative error: then only the exact value is right.
    """
    if value is None:
        return 0.0
    if truth == 0:
        return float(value == 0)
    error = abs(value - truth) / abs(truth)
    # The small slack keeps 1 - 0.55 and its like from excluding what stands exactly on the limit.
    hits = [error <= 1 - confidence + 1e-9 for confidence in _MRA_CONFIDENCES]
    return sum(hits) / len(hits)
