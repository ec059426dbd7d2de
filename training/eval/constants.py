# SPDX-License-Identifier: Apache-2.0
"""The best constant answer to questions: what can be had without looking at anything."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from embodied_r_ros.reasoning.completions import UNKNOWN

from training.eval.grading import number_accuracy

if TYPE_CHECKING:
    from collections.abc import Sequence

    from embodied_r_ros.questions.row import Row

_MOST_NUMBERS = 60  # that are tried


def best_constant(rows: Sequence[Row]) -> float:
    """Accuracy of the best constant answer: a letter, a text of an option, a number or unknown.

    The text of an option is one answer whatever its letter. Numbers are scored as answers are, by
    their mean relative accuracy.
    """
    if not rows:
        return 0.0
    counts: Counter[tuple[str, str]] = Counter()
    for row in rows:
        counts.update({('letter', row.solution), ('text', row.solution_text())})
    best = max(counts.values()) / len(rows)
    numbers = [row for row in rows if row.answer_kind == 'number']
    values = sorted({row.solution for row in numbers if row.solution != UNKNOWN})
    step = max(1, len(values) // _MOST_NUMBERS)
    for value in values[::step]:
        right = sum(number_accuracy(row, value) for row in numbers if row.solution != UNKNOWN)
        best = max(best, right / len(rows))
    return best
