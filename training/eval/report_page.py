# SPDX-License-Identifier: Apache-2.0
"""Reports as one page of HTML: self-contained, without scripts, to be kept and sent."""

from __future__ import annotations

from html import escape
import io
from typing import Any, TYPE_CHECKING

import matplotlib as mpl
from matplotlib.figure import Figure

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_STYLE = """
body { font: 15px/1.45 sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem;
       color: #222 }
table { border-collapse: collapse; margin: 1rem 0 }
th, td { padding: .2rem .8rem; text-align: right; border-bottom: 1px solid #ddd }
th:first-child, td:first-child { text-align: left }
svg { max-width: 100%; height: auto }
"""


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
    parts = [
        f'<p>{escape(report["model"])}<br><code>{escape(report["identity"])}</code></p>',
        html_table((), summary),
        _chart(kinds, 'accuracy', blind),
        html_table(('question type', 'rows', 'accuracy', '95 % interval', 'question only'), types),
        '<h2>By scene, worst first</h2>',
        html_table(
            ('scene', 'rows', 'accuracy'),
            [(scene, entry['n'], rate_text(entry['accuracy'])) for scene, entry in scenes],
        ),
    ]
    return html_page('Evaluation', parts)


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
    parts = [
        *(
            f'<p>{which}: {escape(comparison[which]["model"])}<br>'
            f'<code>{escape(comparison[which]["identity"])}</code></p>'
            for which in ('first', 'second')
        ),
        _chart(kinds, 'difference', {}),
        html_table(('question type', 'rows', 'first', 'second', 'difference', 'p'), rows),
        '<p>p: sign-flip permutation test over whole scenes; those of single types are not '
        'corrected for their number.</p>',
        '<h2>By scene, largest loss first</h2>',
        html_table(('scene', 'rows', 'first', 'second'), of_scenes),
    ]
    return html_page('Comparison', parts)


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


def gain_text(figures: Mapping[str, Any]) -> str:
    """A paired difference with its interval, as a comparison has it."""
    interval = figures['interval_95']
    within = f'{interval[0]:+.1%} to {interval[1]:+.1%}' if interval else 'one scene: no interval'
    return f'{figures["difference"]:+.1%} ({within})'


def html_table(head: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """A table; an empty head: none."""
    lines = [_line('td', row) for row in rows]
    return '<table>' + (_line('th', head) if head else '') + ''.join(lines) + '</table>'


def _line(tag: str, cells: Sequence[Any]) -> str:
    return '<tr>' + ''.join(f'<{tag}>{escape(str(cell))}</{tag}>' for cell in cells) + '</tr>\n'


def html_page(title: str, parts: Sequence[str]) -> str:
    """A whole page of parts that are HTML; the title is text."""
    title = escape(title)
    body = '\n'.join(parts)
    return (
        f'<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"><title>{title}</title>\n'
        f'<style>{_STYLE}</style></head>\n<body>\n<h1>{title}</h1>\n{body}\n</body></html>\n'
    )
