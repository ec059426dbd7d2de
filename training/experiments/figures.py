# SPDX-License-Identifier: Apache-2.0
"""Rates and paired differences over the same questions, and over runs with several seeds."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import asdict
from itertools import pairwise
from typing import Any, TYPE_CHECKING

from training.compare import compare
from training.data.traces import read_row
from training.eval.grading import graded
from training.eval.report_page import html_table, interval_text, rate_text
from training.eval.statistics import bootstrap_interval, interval_over_runs, paired_test
from training.evaluate import by_type

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from embodied_r_ros.questions.row import Row
    from embodied_r_ros.scene.memory import MemoryConfig

    from training.eval.grading import Grade


def read_carefully(rows: Sequence[Row], memory: MemoryConfig) -> list[Grade]:
    """Grades of an oracle of the prompts; where one tells him nothing, he is wrong."""
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


_OF_A_PAIR = ('difference', 'interval_95', 'p_value')


def means_of(
    reports: Mapping[str, dict[str, Any]], seeds: Mapping[str, Sequence[str]], rows: str
) -> list[dict[str, Any]]:
    """The mean of each recipe on a file of rows, against the first model and the recipe before it.

    Their intervals, and those of what they gain on the first model, resample scenes and seeds. The
    p-values, and the comparison with the recipe before, where a row counts with the share of the
    seeds that answer it rightly, are about scenes alone.
    """
    first = next(iter(reports.values()))
    means = {name: _mean([reports[model] for model in models]) for name, models in seeds.items()}
    before = {later: name for name, later in pairwise(means)}
    mean_rows = []
    for name, models in seeds.items():
        right = [reports[model]['accuracy'] for model in models]
        outcomes = means[name]['outcomes']
        runs = [_scores(reports[model]) for model in models]
        gains = [[a - b for a, b in zip(run, _scores(first), strict=True)] for run in runs]
        scenes = [outcome['scene_id'] for outcome in outcomes]
        earlier = before.get(name)
        mean_rows.append(
            {
                'rows': rows,
                'recipe': name,
                'models': list(models),
                'interval_95': interval_over_runs(runs, scenes),
                'by_type': _by_type(outcomes, runs),
                'accuracy': sum(right) / len(right),
                'lowest': min(right),
                'highest': max(right),
                'against_first': {
                    **_pair(first, means[name]),
                    'interval_95': interval_over_runs(gains, scenes),
                },
                'before': earlier,
                'against_before': _pair(means[earlier], means[name]) if earlier else None,
            }
        )
    return mean_rows


def _mean(reports: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """One report whose rows are right as often as in these, in the mean."""
    right: dict[str, list[float]] = defaultdict(list)
    for report in reports:
        for outcome in report['outcomes']:
            right[outcome['id']].append(outcome['accuracy'] or 0.0)
    shares = {row: sum(values) / len(values) for row, values in right.items()}
    outcomes = [{**o, 'accuracy': shares[o['id']]} for o in reports[0]['outcomes']]
    return {**reports[0], 'outcomes': outcomes}


def _scores(report: dict[str, Any]) -> list[float]:
    return [outcome['accuracy'] or 0.0 for outcome in report['outcomes']]


def _by_type(
    outcomes: Sequence[dict[str, Any]], runs: Sequence[Sequence[float]]
) -> dict[str, dict[str, Any]]:
    """Count, mean and interval of each type of question."""
    places: dict[str, list[int]] = defaultdict(list)
    for place, outcome in enumerate(outcomes):
        places[outcome['question_type']].append(place)
    types = {}
    for kind, own in sorted(places.items()):
        some = [[run[place] for place in own] for run in runs]
        interval = interval_over_runs(some, [outcomes[place]['scene_id'] for place in own])
        mean = sum(outcomes[place]['accuracy'] for place in own) / len(own)
        types[kind] = {'n': len(own), 'accuracy': mean, 'interval_95': interval}
    return types


def _pair(first: dict[str, Any], second: dict[str, Any]) -> dict[str, Any]:
    figures = compare(first, second)
    return {name: figures[name] for name in _OF_A_PAIR}


def means_table(means: Sequence[dict[str, Any]]) -> str:
    """The means as a table of a page."""
    head = ('rows', 'recipe', 'seeds', 'mean', 'lowest to highest', 'against the first model',
            'p', 'against the recipe before', 'p')  # fmt: skip
    return html_table(
        head,
        [
            (
                mean['rows'],
                mean['recipe'],
                len(mean['models']),
                rate_text(mean['accuracy']) + interval_text(mean['interval_95']),
                f'{mean["lowest"]:.1%} to {mean["highest"]:.1%}',
                *_difference_cells(mean['against_first'], ''),
                *_difference_cells(mean['against_before'], mean['before']),
            )
            for mean in means
        ],
    )


def _difference_cells(pair: dict[str, Any] | None, name: str | None) -> tuple[str, str]:
    if not pair:
        return '', ''
    named = f'{name}: ' if name else ''
    difference = f'{named}{pair["difference"]:+.1%}' + interval_text(pair['interval_95'])
    return difference, f'{pair["p_value"]:.2g}'
