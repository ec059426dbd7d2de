# SPDX-License-Identifier: Apache-2.0
"""The report of a bench: means with intervals, agreement of scorers, and a table."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import asdict, dataclass
from itertools import combinations
from statistics import median
from typing import Any, TYPE_CHECKING

from training.eval.figures import rate_text
from training.eval.statistics import bootstrap_interval, correlation, paired_test
from training.robot_bench.items import KINDS, MAX_SCORE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from training.robot_bench.items import BenchItem

PEOPLE = 'people'


@dataclass(frozen=True)
class ScoredAnswer:
    """An answer to an item, with the scores of its judges, in their order."""

    item: BenchItem
    answer: str | None  # None: the completion has none
    scores: tuple[int | None, ...]  # 0 to MAX_SCORE; None: the judge's replies cannot be read
    reasons: tuple[str, ...] = ()
    people: tuple[float, ...] = ()  # scores of people; empty: none
    by: str = ''  # who answered; empty: the model

    @property
    def human(self) -> float | None:
        """The median of the scores of people; None: there is none."""
        return median(self.people) if self.people else None


def score_figures(scored: Sequence[ScoredAnswer], judge: int) -> dict[str, Any]:
    """Mean score of a judge with its 95 % interval, in all and by type.

    Replies that cannot be read are left out of the mean and counted.
    """
    return {
        **_mean(scored, judge),
        'by_type': {kind: _mean(some, judge) for kind, some in _by_type(scored).items()},
    }


def _mean(scored: Sequence[ScoredAnswer], judge: int) -> dict[str, Any]:
    scored_values = [
        (s, each.item.scene_id) for each in scored if (s := each.scores[judge]) is not None
    ]
    scores, scenes = [score for score, _ in scored_values], [scene for _, scene in scored_values]
    return {
        'n': len(scored),
        'mean': sum(scores) / len(scores) if scores else None,
        'interval_95': bootstrap_interval(scores, scenes),
        'unreadable': len(scored) - len(scores),
    }


def _by_type(scored: Sequence[ScoredAnswer]) -> dict[str, list[ScoredAnswer]]:
    """What is scored by type of question, in the order of KINDS."""
    groups: dict[str, list[ScoredAnswer]] = defaultdict(list)
    for each in scored:
        groups[each.item.question_type].append(each)
    return {kind: groups[kind] for kind in KINDS if kind in groups}


def gain_figures(
    with_scene: Sequence[ScoredAnswer], blind: Sequence[ScoredAnswer], judge: int
) -> dict[str, Any] | None:
    """How much more a judge gives for what was seen than for the question alone; paired by item.

    None: it has read no pair.
    """
    pairs = [
        (after - before, first.item.scene_id)
        for first, second in zip(with_scene, blind, strict=True)
        if (after := first.scores[judge]) is not None
        and (before := second.scores[judge]) is not None
    ]
    paired = paired_test([gain for gain, _ in pairs], [scene for _, scene in pairs])
    return {'n': len(pairs), **asdict(paired)} if paired else None


def agreement_figures(
    scored: Sequence[ScoredAnswer], judges: Sequence[str]
) -> list[dict[str, Any]]:
    """How far each two judges agree, and each judge with people, in all and by type.

    Answers that no judge has read, because there are none, say nothing about judges.
    """
    read = [each for each in scored if each.answer is not None]
    agreements = [
        _agreement(read, (judges[a], judges[b]), _judge(a), _judge(b))
        for a, b in combinations(range(len(judges)), 2)
    ]
    if any(each.people for each in read):
        agreements += [
            _agreement(read, (name, PEOPLE), _judge(number), lambda each: each.human)
            for number, name in enumerate(judges)
        ]
    return agreements


def _judge(number: int) -> Callable[[ScoredAnswer], float | None]:
    return lambda each: each.scores[number]


def _agreement(
    scored: Sequence[ScoredAnswer],
    names: tuple[str, str],
    first: Callable[[ScoredAnswer], float | None],
    second: Callable[[ScoredAnswer], float | None],
) -> dict[str, Any]:
    def figures(some: Sequence[ScoredAnswer]) -> dict[str, Any]:
        pairs = [
            (a, b, each.item.scene_id)
            for each in some
            if (a := first(each)) is not None and (b := second(each)) is not None
        ]
        firsts, seconds = [a for a, _, _ in pairs], [b for _, b, _ in pairs]
        correlation_of_pair = correlation(firsts, seconds, [scene for _, _, scene in pairs])
        differences = [a - b for a, b, _ in pairs]
        return {
            **asdict(correlation_of_pair),
            'equal': sum(not d for d in differences) / len(pairs) if pairs else None,
            'difference': sum(differences) / len(pairs) if pairs else None,
        }

    return {
        'first': names[0],
        'second': names[1],
        **figures(scored),
        'by_type': {kind: figures(some) for kind, some in _by_type(scored).items()},
    }


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
        lines += [
            f'  {name:<28} {"not known" if row["mean"] is None else format(row["mean"], ".2f")} '
            f'(n = {row["n"]}, {row["unreadable"]} unreadable)'
            for name, row in judge['controls'].items()
        ]
        if unreadable := judge['scores']['unreadable']:
            lines.append(f'  {unreadable} scores could not be read: left out of the means')
    for pair in report['agreement']:
        lines.append(f'{pair["first"]} and {pair["second"]}: {_agreement_text(pair)}')
        lines += [f'  {kind:<28} {_agreement_text(row)}' for kind, row in pair['by_type'].items()]
    return '\n'.join(lines)


def _lines(judge: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any], dict[str, Any]]]:
    """Name, figures and blind figures of all and of each type."""
    scores, blind = judge['scores'], judge['question_only']
    yield 'all', scores, blind
    for kind, row in scores['by_type'].items():
        yield kind, row, blind['by_type'][kind]


def _score(row: dict[str, Any]) -> str:
    mean = row['mean']
    return 'not known' if mean is None else f'{mean:.2f}{_within(row["interval_95"])}'


def _within(interval: Sequence[float] | None) -> str:
    return f' ({interval[0]:.2f} to {interval[1]:.2f})' if interval else ''


def _agreement_text(row: dict[str, Any]) -> str:
    if row['r'] is None:
        return f'no correlation (n = {row["n"]}, scores that do not vary, or too few)'
    return (
        f'Pearson {row["r"]:.2f}{_within(row["interval_95"])}, '
        f'equal {rate_text(row["equal"])}, difference {row["difference"]:+.2f} (n = {row["n"]})'
    )
