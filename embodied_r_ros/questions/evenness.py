# SPDX-License-Identifier: Apache-2.0
"""Answers about as often as one another, so that a question alone tells little of its answer."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING

from embodied_r_ros.questions.kinds import KINDS
from embodied_r_ros.reasoning.completions import UNKNOWN

if TYPE_CHECKING:
    from embodied_r_ros.rows import Row

_AHEAD = 2  # an answer may have come so many times more often than any other of its options


class EvenAnswers:
    """Counts answers by split and kind of question, as rows come.

    Robots mostly stay at one height and look ahead: who knows only that is right far more often
    than one option in three or four is. Questions about arms choose their options themselves.
    """

    def __init__(self) -> None:
        self._counts: dict[tuple[str, str], Counter[str]] = defaultdict(Counter)

    def admits(self, row: Row) -> bool:
        """Count a row, unless its answer has come much more often than its other options."""
        if row.question_type not in KINDS or not row.options or row.solution == UNKNOWN:
            return True
        counts, answer = self._counts[row.split, row.question_type], row.solution_text()
        if counts[answer] > _AHEAD + max(counts[o] for o in row.options if o != answer):
            return False
        counts[answer] += 1
        return True
