# SPDX-License-Identifier: Apache-2.0
"""What a bench says at the end: a table for the terminal, and a page of HTML to be kept."""

from __future__ import annotations

from html import escape
from typing import Any, TYPE_CHECKING

from training.eval.report_page import html_page, html_table, rate_text
from training.experiments.plots import bars
from training.robot_bench.items import MAX_SCORE

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


def bench_table(report: dict[str, Any]) -> str:
    """The report as text."""
    lines = [f'{report["n"]} questions, {report["unanswered"]} without an answer']
    for judge in report['judges']:
        lines.append(f'judge {judge["name"]} (0 to {MAX_SCORE})')
        lines += [
            f'  {name:<28} {line["n"]:>5} {_score(line):>22}   question only {_score(blind)}'
            for name, line, blind in _lines(judge)
        ]
        gain = judge['gain']
        if gain:
            lines.append(
                f'  gain over the question alone {gain["difference"]:+.2f}'
                f'{_within(gain["interval_95"])}, p = {gain["p_value"]:.2g}'
            )
        lines += [f'  {name:<28} {_control(row)}' for name, row in judge['controls'].items()]
        if unreadable := judge['scores']['unreadable']:
            lines.append(f'  {unreadable} scores could not be read: left out of the means')
    for pair in report['agreement']:
        lines.append(f'{pair["first"]} and {pair["second"]}: {_agreement(pair)}')
        lines += [f'  {kind:<28} {_agreement(row)}' for kind, row in pair['by_type'].items()]
    return '\n'.join(lines)


def _lines(judge: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any], dict[str, Any]]]:
    """Name, figures and blind figures of all, of each type, and of each group and its types."""
    scores, blind = judge['scores'], judge['question_only']
    yield 'all', scores, blind
    for kind, row in scores['by_type'].items():
        yield kind, row, blind['by_type'][kind]
    for group, figures in scores['by_group'].items():
        other = blind['by_group'][group]
        yield group, figures, other
        for kind, row in figures['by_type'].items():
            yield f'{group}: {kind}', row, other['by_type'][kind]


def _score(row: dict[str, Any]) -> str:
    mean = row['mean']
    return 'not known' if mean is None else f'{mean:.2f}{_within(row["interval_95"])}'


def _within(interval: Sequence[float] | None) -> str:
    return f' ({interval[0]:.2f} to {interval[1]:.2f})' if interval else ''


def _control(row: dict[str, Any]) -> str:
    mean = 'not known' if row['mean'] is None else f'{row["mean"]:.2f}'
    return f'{mean} (n = {row["n"]}, {row["unreadable"]} unreadable)'


def _agreement(row: dict[str, Any]) -> str:
    if row['r'] is None:
        return f'no correlation (n = {row["n"]}, scores that do not vary, or too few)'
    return (
        f'Pearson {row["r"]:.2f}{_within(row["interval_95"])}, equal {rate_text(row["equal"])}, '
        f'difference {row["difference"]:+.2f} (n = {row["n"]})'
    )


def bench_page(report: dict[str, Any]) -> str:
    """The report as a page, with every question and answer, lowest scores first."""
    parts = [
        f'<p>{escape(report["model"])}<br><code>{escape(report["identity"])}</code></p>',
        f'<p>{report["n"]} questions; the model was given: {escape(report["seen"])}. '
        f'{report["unanswered"]} completions have no answer and count 0. Intervals: 95 %, whole '
        'scenes are resampled.</p>',
    ]
    for judge in report['judges']:
        parts += _judge_parts(judge)
    if report['agreement']:
        parts += ['<h2>Agreement</h2>', _agreement_table(report['agreement'])]
    names = [judge['name'] for judge in report['judges']]
    parts += ['<h2>Answers, lowest scores first</h2>', _answers_table(report['outcomes'], names)]
    if report['given']:
        parts += ['<h2>Given answers</h2>', _given_table(report['given'], names)]
    return html_page('Open questions', parts)


def _judge_parts(judge: dict[str, Any]) -> list[str]:
    rows = [
        (name, line['n'], _score(line), _score(blind), line['unreadable'])
        for name, line, blind in _lines(judge)
    ]
    chart = {
        name: {
            series: (row['mean'], row['interval_95'])
            for series, row in (('seen', line), ('question only', blind))
            if row['mean'] is not None
        }
        for name, line, blind in _lines(judge)
    }
    drawn = bars(chart, is_rate=False) if any(chart.values()) else ''
    gain = judge['gain']
    gain_line = (
        f'Gain over the question alone: {gain["difference"]:+.2f}{_within(gain["interval_95"])}, '
        f'p = {gain["p_value"]:.2g}.'
        if gain
        else 'No score of a pair, with and without what was seen, could be read.'
    )
    controls = [(name, _control(row)) for name, row in judge['controls'].items()]
    return [
        f'<h2>Judge {escape(judge["name"])}</h2>',
        f'<p><code>{escape(judge["identity"])}</code></p>',
        drawn,
        html_table(('type', 'n', f'mean, 0 to {MAX_SCORE}', 'question only', 'unreadable'), rows),
        f'<p>{gain_line}</p>',
        f'<p>What this judge gives answers whose score is known: {MAX_SCORE} to the reference, '
        '0 to an order to give 3, little to the reference of another question.</p>',
        html_table((), controls),
    ]


def _agreement_table(agreement: Sequence[dict[str, Any]]) -> str:
    rows = [
        (f'{pair["first"]} and {pair["second"]}', kind, _agreement(row))
        for pair in agreement
        for kind, row in {'all': pair, **pair['by_type']}.items()
    ]
    return html_table(('scorers', 'type', 'Pearson, share of equal scores, difference'), rows)


def _answers_table(outcomes: Sequence[dict[str, Any]], names: Sequence[str]) -> str:
    def total(outcome: dict[str, Any]) -> float:
        return sum(-1 if score is None else score for score in outcome['scores'])

    rows = [
        (
            outcome['question'],
            outcome['reference'],
            '(none)' if outcome['answer'] is None else outcome['answer'],
            *_verdict_cells(outcome),
        )
        for outcome in sorted(outcomes, key=total)
    ]
    return html_table(('question', 'reference', 'answer', *names), rows)


def _given_table(given: Sequence[dict[str, Any]], names: Sequence[str]) -> str:
    rows = [
        (each['id'], each['answer'], each.get('by', ''), each.get('people', ''),
         *_verdict_cells(each))
        for each in given
    ]  # fmt: skip
    return html_table(('question', 'answer', 'by', 'people', *names), rows)


def _verdict_cells(each: dict[str, Any]) -> list[str]:
    reasons = each['reasons'] or [''] * len(each['scores'])
    return [
        f'{"unreadable" if score is None else score} {reason}'.strip()
        for score, reason in zip(each['scores'], reasons, strict=True)
    ]
