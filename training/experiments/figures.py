# SPDX-License-Identifier: Apache-2.0
"""Rates and paired differences over the same questions and several seeds, and plots of them (SVG).

The curves that a run logged are plotted too.
"""

from __future__ import annotations

from collections import defaultdict
from itertools import pairwise
import json
from pathlib import Path
from typing import Any, TYPE_CHECKING

from embodied_r_ros.common.errors import InputError
from matplotlib.figure import Figure

from training.compare import compare
from training.eval.report_page import interval_text, rate_text, svg_text
from training.eval.statistics import interval_over_runs
from training.run.models import is_url
from training.run.monitor import consistency_rate, logged_value

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from matplotlib.axes import Axes

    from training.eval.report_page import ReportTable

    Interval = Sequence[float] | None
    Bar = tuple[float, Interval]
    Curve = tuple[Sequence[float], Sequence[float]]

_STATE = 'trainer_state.json'
_ACCURACY, _CONSISTENCY = (f'rewards/{name}_reward/mean' for name in ('accuracy', 'consistency'))
_SOUND = 'consistent_share'  # share of the right answers to which their reasoning leads
# What is drawn, and under which name trainers log it.
CHARTS = {
    'reward': 'reward',
    'accuracy': _ACCURACY,
    'format': 'rewards/format_reward/mean',
    'consistency': _CONSISTENCY,
    'consistency of the right answers': _SOUND,
    'tokens in a completion': 'completions/mean_length',
    'accuracy on validation rows': f'eval_{_ACCURACY}',
    'loss': 'loss',
}


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


def means_table(means: Sequence[dict[str, Any]]) -> ReportTable:
    """The means as a table of a page."""
    head = ('rows', 'recipe', 'seeds', 'mean', 'lowest to highest', 'against the first model',
            'p', 'against the recipe before', 'p')  # fmt: skip
    return (
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


def charts_of(models: Mapping[str, str]) -> dict[str, dict[str, Curve]]:
    """For each figure that a run logged the curves of the runs; models without a log are left out.

    Raises:
        InputError: A log cannot be read.
    """
    logs = {name: log_of(Path(model)) for name, model in models.items() if not is_url(model)}
    charts: dict[str, dict[str, Curve]] = {}
    for title, key in CHARTS.items():
        curves_by_name = {name: _curve(log, key) for name, log in logs.items()}
        with_values = {name: curve for name, curve in curves_by_name.items() if len(curve[0]) > 1}
        if with_values:
            charts[title] = with_values
    return charts


def log_of(folder: Path) -> list[dict[str, float]]:
    """The log of a run, from its newest state; empty: it keeps none.

    Raises:
        InputError: It cannot be read.
    """
    states = [*folder.glob(f'checkpoint-*/{_STATE}'), *folder.glob(_STATE)]
    logs = [_read(state) for state in states]
    return max(logs, key=lambda log: max((entry['step'] for entry in log), default=0), default=[])


def _read(state: Path) -> list[dict[str, float]]:
    try:
        history = json.loads(state.read_text())['log_history']
        return [{**e, _SOUND: consistency_rate([e])} for e in history if 'step' in e]
    except (OSError, ValueError, KeyError, TypeError) as error:
        msg = f'{state} cannot be read as the state of a training run: {error}'
        raise InputError(msg) from None


def _curve(log: list[dict[str, float]], key: str) -> Curve:
    points = [(e['step'], value) for e in log if (value := logged_value(e, key)) is not None]
    return [step for step, _ in points], [value for _, value in points]


# Six for most charts, and six more that differ from them: an experiment may have ten models.
_COLOURS = (
    '#4477aa', '#ee9944', '#66aa77', '#aa4466', '#8866aa', '#888888',
    '#88ccee', '#ddcc77', '#117733', '#ee6677', '#332288', '#444444',
)  # fmt: skip


def bars(groups: Mapping[str, Mapping[str, Bar]], *, is_rate: bool = True) -> str:
    """Horizontal bars: for each group one bar of each series, with its interval.

    Args:
        groups: Values and intervals by group and series.
        is_rate: They are rates, told in per cent.
    """
    series = list(dict.fromkeys(name for group in groups.values() for name in group))
    height = 0.8 / len(series)
    tall = 1.0 + 0.17 * len(groups) * (len(series) + 1)
    figure = Figure(figsize=(8, tall), layout='constrained')
    axes = figure.add_subplot()
    for number, name in enumerate(series):
        colour = _COLOURS[number % len(_COLOURS)]
        offset = (number - (len(series) - 1) / 2) * height
        bars_of_series = [(i, *bar) for i, g in enumerate(groups.values()) if (bar := g.get(name))]
        places, values = (
            [i + offset for i, _, _ in bars_of_series],
            [value for _, value, _ in bars_of_series],
        )
        axes.barh(places, values, color=colour, height=0.9 * height, label=name)
        for place, (_, _, within) in zip(places, bars_of_series, strict=True):
            if within:
                axes.plot(within, (place, place), color='#222', linewidth=1.2)
    axes.axvline(0, color='#222', linewidth=0.8)
    axes.set_yticks(range(len(groups)), list(groups))
    axes.set_ylim(len(groups) - 0.5, -0.5)  # the first on top
    if is_rate:
        axes.xaxis.set_major_formatter(lambda value, _: f'{100 * value:.0f} %')
    _finish(figure, axes, len(series))
    return svg_text(figure)


def curves(charts: Mapping[str, Mapping[str, Curve]]) -> str:
    """One chart below the other: for each, a curve of every run over its steps."""
    figure = Figure(figsize=(8, 2.2 * len(charts) + 0.4), layout='constrained')
    for place, (title, runs) in enumerate(charts.items(), 1):
        axes = figure.add_subplot(len(charts), 1, place)
        for number, (name, (steps, values)) in enumerate(runs.items()):
            axes.plot(steps, values, color=_COLOURS[number % len(_COLOURS)], label=name)
        axes.set_title(title, loc='left', fontsize=10)
        # Beside the curves: of many runs it would hide them.
        axes.legend(frameon=False, fontsize=8, loc='upper left', bbox_to_anchor=(1, 1))
        axes.spines[['top', 'right']].set_visible(False)
    return svg_text(figure)


def _finish(figure: Figure, axes: Axes, entries: int) -> None:
    axes.spines[['top', 'right']].set_visible(False)
    figure.legend(loc='outside lower center', ncols=min(3, entries), frameon=False)


def bar_of(figures: Mapping[str, Any], name: str = 'accuracy') -> Bar:
    """The bar of a rate or a difference with its interval."""
    return figures[name], figures.get('interval_95')
