# SPDX-License-Identifier: Apache-2.0
"""Rates and paired differences over the same questions, in all and by question type."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import asdict
from typing import Any, TYPE_CHECKING

from training.evaluate import by_type
from training.grading import graded
from training.statistics import bootstrap_interval, paired_test
from training.traces import read_row

if TYPE_CHECKING:
    from collections.abc import Sequence

    from embodied_r_ros.questions.row import Row
    from embodied_r_ros.scene.memory import MemoryConfig

    from training.grading import Grade


def read_carefully(rows: Sequence[Row], memory: MemoryConfig) -> list[Grade]:
    """Grades of a careful reader of the prompts; where one tells him nothing, he is wrong."""
    traces = [read_row(row, memory) for row in rows]
    return graded(rows, [trace.completion() if trace else '' for trace in traces])


def right_of(grades: Sequence[Grade]) -> list[float]:
    """Accuracy of each row; what cannot be graded is wrong."""
    return [grade.accuracy or 0.0 for grade in grades]


def accuracy_figures(rows: Sequence[Row], grades: Sequence[Grade]) -> dict[str, Any]:
    """Accuracy with its 95 % interval, in all and by question type."""
    right = right_of(grades)
    return {
        'n': len(rows),
        'accuracy': sum(right) / len(right),
        'interval_95': bootstrap_interval(right, [row.scene_id for row in rows]),
        'by_type': by_type(rows, grades),
    }


def difference_figures(
    rows: Sequence[Row], first: Sequence[float], second: Sequence[float]
) -> dict[str, Any]:
    """How the second score differs from the first on the same questions; paired by row."""
    groups: dict[str, list[int]] = defaultdict(list)
    for index, row in enumerate(rows):
        groups[row.question_type].append(index)
    return {
        **_paired(rows, first, second, range(len(rows))),
        'by_type': {kind: _paired(rows, first, second, groups[kind]) for kind in sorted(groups)},
    }


def _paired(
    rows: Sequence[Row], first: Sequence[float], second: Sequence[float], some: Sequence[int]
) -> dict[str, Any]:
    paired = paired_test([second[i] - first[i] for i in some], [rows[i].scene_id for i in some])
    return {'n': len(some), **(asdict(paired) if paired else {})}
