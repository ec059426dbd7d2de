# SPDX-License-Identifier: Apache-2.0
"""Reports as one page of HTML: self-contained, without scripts, to be kept and sent."""

from __future__ import annotations

from dataclasses import dataclass
import io
from pathlib import Path
from typing import Any, TYPE_CHECKING

from jinja2 import Environment, FileSystemLoader, StrictUndefined
import matplotlib as mpl
from matplotlib.figure import Figure

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    ReportTable = tuple[Sequence[str], Sequence[Sequence[Any]]]  # an empty head: none

_TEMPLATES = Environment(
    loader=FileSystemLoader(Path(__file__).parent / 'templates'),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)


@dataclass(frozen=True)
class ReportSection:
    """A part of a page, in the order of its fields; what is empty is left out."""

    heading: str = ''
    text: str = ''
    code: str = ''  # below the text, in letters of one width
    chart: str = ''  # SVG
    table: ReportTable | None = None
    note: str = ''


def html_page(title: str, sections: Sequence[ReportSection]) -> str:
    """A whole page; everything but charts is text."""
    return _TEMPLATES.get_template('report.html').render(title=title, sections=sections)


def report_page(report: Mapping[str, Any]) -> str:
    """The page of an evaluation (`evaluate.py`)."""
    kinds = {'all': report, **report['by_type']}
    blind = {
        'best constant answer': report['majority_baseline'],
        'question only': report['question_only_accuracy'],
    }
    summary = [
        ('accuracy', rate_text(report['accuracy']) + interval_text(report['interval_95'])),
        ('rows, scenes', f'{report["n"]}, {len(report["by_scene"])}'),
        ('best constant answer', rate_text(report['majority_baseline'])),
        ('same model, question only', rate_text(report['question_only_accuracy'])),
        ('format', rate_text(report['format'])),
        ('words in a completion', f'{report["words"]:.0f}'),
        ('consistency', rate_text(report['consistency'])),
        ('unknown: precision', rate_text(report['unknown']['precision'])),
        ('unknown: recall', rate_text(report['unknown']['recall'])),
    ]
    types = [
        (
            kind,
            entry['n'],
            rate_text(entry['accuracy']),
            interval_text(entry['interval_95']),
            rate_text(entry['question_only_accuracy']),
        )
        for kind, entry in report['by_type'].items()
    ]
    scenes = sorted(report['by_scene'].items(), key=lambda item: item[1]['accuracy'])
    return html_page(
        'Evaluation',
        [
            ReportSection(text=report['model'], code=report['identity'], table=((), summary)),
            ReportSection(
                chart=_chart(kinds, 'accuracy', blind),
                table=(
                    ('question type', 'rows', 'accuracy', '95 % interval', 'question only'),
                    types,
                ),
            ),
            ReportSection(
                heading='By scene, worst first',
                table=(
                    ('scene', 'rows', 'accuracy'),
                    [(scene, entry['n'], rate_text(entry['accuracy'])) for scene, entry in scenes],
                ),
            ),
        ],
    )


def comparison_page(comparison: Mapping[str, Any]) -> str:
    """The page of a comparison (`compare.py`)."""
    kinds = {'all': comparison, **comparison['by_type']}
    rows = [
        (
            kind,
            entry['n'],
            rate_text(entry['first_accuracy']),
            rate_text(entry['second_accuracy']),
            f'{entry["difference"]:+.1%}' + interval_text(entry['interval_95']),
            f'{entry["p_value"]:.2g}',
        )
        for kind, entry in kinds.items()
    ]
    scenes = sorted(
        comparison['by_scene'].items(),
        key=lambda item: item[1]['second_accuracy'] - item[1]['first_accuracy'],
    )
    of_scenes = [
        (scene, e['n'], rate_text(e['first_accuracy']), rate_text(e['second_accuracy']))
        for scene, e in scenes
    ]
    models = [
        ReportSection(
            text=f'{which}: {comparison[which]["model"]}', code=comparison[which]['identity']
        )
        for which in ('first', 'second')
    ]
    return html_page(
        'Comparison',
        [
            *models,
            ReportSection(
                chart=_chart(kinds, 'difference', {}),
                table=(('question type', 'rows', 'first', 'second', 'difference', 'p'), rows),
                note='p: sign-flip permutation test over whole scenes; those of single types are '
                'not corrected for their number.',
            ),
            ReportSection(
                heading='By scene, largest loss first',
                table=(('scene', 'rows', 'first', 'second'), of_scenes),
            ),
        ],
    )


def _chart(kinds: Mapping[str, Any], name: str, lines: Mapping[str, float]) -> str:
    """Horizontal bars of a figure with its intervals, and lines to compare it with, as SVG."""
    figure = Figure(figsize=(8, 0.9 + 0.34 * len(kinds)), layout='constrained')
    axes = figure.add_subplot()
    positions = range(len(kinds))
    values = [entry[name] for entry in kinds.values()]
    axes.barh(positions, values, color='#88aacc', height=0.6, label=name)
    for position, entry in zip(positions, kinds.values(), strict=True):
        if entry['interval_95']:
            axes.plot(entry['interval_95'], (position, position), color='#222', linewidth=1.5)
    for (line, value), style in zip(lines.items(), ('--', ':'), strict=False):
        axes.axvline(value, color='#aa3333', linestyle=style, label=f'{line} {value:.1%}')
    axes.axvline(0, color='#222', linewidth=0.8)
    axes.set_yticks(positions, list(kinds))
    axes.invert_yaxis()
    axes.xaxis.set_major_formatter(lambda value, _: f'{100 * value:.0f} %')
    axes.spines[['top', 'right']].set_visible(False)
    figure.legend(loc='outside lower center', ncols=3, frameon=False)
    return svg_text(figure)


def svg_text(figure: Figure) -> str:
    """A figure as SVG that can stand in a page."""
    text = io.StringIO()
    # Without a date and with fixed ids, one report gives one page.
    with mpl.rc_context({'svg.hashsalt': 'report', 'svg.fonttype': 'none'}):
        figure.savefig(text, format='svg', metadata={'Date': None, 'Creator': None})
    svg = text.getvalue()
    return svg[svg.index('<svg') :]


def rate_text(value: float | None) -> str:
    """A rate of 0..1 in per cent."""
    return 'not known' if value is None else f'{value:.1%}'


def interval_text(interval: Sequence[float] | None) -> str:
    """An interval of rates in brackets, to stand after one; rows of one scene have none."""
    return (
        f' ({interval[0]:.1%} to {interval[1]:.1%})' if interval else ' (one scene: no interval)'
    )


def gain_text(figures: Mapping[str, Any], group: str = 'scene') -> str:
    """A paired difference with its interval, as a comparison has it."""
    interval = figures['interval_95']
    within = (
        f'{interval[0]:+.1%} to {interval[1]:+.1%}' if interval else f'one {group}: no interval'
    )
    return f'{figures["difference"]:+.1%} ({within})'
