# SPDX-License-Identifier: Apache-2.0
"""What solved questions teach the small model: the calls that give their solutions.

A person gives the right answer, or the right call itself, as `count(chair)`.
"""

from __future__ import annotations

from collections import Counter
from functools import partial
from typing import TYPE_CHECKING

from embodied_r_ros.core.reasoning.calls import format_calls, labels_to_list, parse_calls
from embodied_r_ros.core.reasoning.reading import NEW_TOOLS
from embodied_r_ros.core.reasoning.teaching import lesson_of
from embodied_r_ros.core.scene.tools import Scene
from embodied_r_ros.core.types.answers import UNKNOWN

from training.data.call_rows import CallRow
from training.eval.grading import completion_of, grade

if TYPE_CHECKING:
    from collections.abc import Sequence

    from embodied_r_ros.core.reasoning.saying import ToolAnswer
    from embodied_r_ros.data.questions.row import Row

_RIGHT = 0.8  # accuracy from which an answer is the solution: a number may be off by some percent


def taught_rows(rows: Sequence[Row]) -> tuple[list[CallRow], Counter[str]]:
    """Rows of calls that give the solutions, and how many questions were left out, by the reason.

    Args:
        rows: Questions with deltas or a map, and their solutions.
    """
    left_out: Counter[str] = Counter()
    taught = []
    for row in rows:
        if row.solution == UNKNOWN:
            left_out['nobody can tell'] += 1
            continue
        scene = scene_of_row(row)
        calls = None if row.options else parse_calls(row.solution, scene.labels)
        if not calls:
            is_right = partial(_is_solution, row)
            calls = lesson_of(row.question, row.options, scene, is_right).here
        if not calls or any(call.tool in NEW_TOOLS for call in calls):
            left_out['no call gives the solution, or several do'] += 1
            continue
        labels = tuple(labels_to_list(row.question, row.options, scene))
        taught.append(
            CallRow(row.scene_id, row.split, row.question_type, row.question, row.options, labels,
                    format_calls(calls), ())
        )  # fmt: skip
    return taught, left_out


def scene_of_row(row: Row) -> Scene:
    """What a row knows, for the tools."""
    return Scene(row.semantic_deltas(), row.scene_map() if row.has_map else None)


def _is_solution(row: Row, answer: ToolAnswer) -> bool:
    return (grade(row, completion_of(answer)).accuracy or 0.0) >= _RIGHT
