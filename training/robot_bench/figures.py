# SPDX-License-Identifier: Apache-2.0
"""Figures of judged answers: means by type with intervals, and how far scorers agree."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import asdict, dataclass
from itertools import combinations
from statistics import median
from typing import Any, TYPE_CHECKING

from training.eval.statistics import bootstrap_interval, correlation, paired_test
from training.robot_bench.items import KINDS

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from training.robot_bench.items import BenchItem


PEOPLE = 'people'


@dataclass(frozen=True)
class Scored:
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


def score_figures(scored: Sequence[Scored], judge: int) -> dict[str, Any]:
    """Mean score of a judge with its 95 % interval, in all, by type and by group.

    Replies that cannot be read are left out of the mean and counted.
    """
    groups = sorted({each.item.group for each in scored} - {''})
    return {
        **_means(scored, judge),
        'by_group': {
            group: _means([each for each in scored if each.item.group == group], judge)
            for group in groups
        },
    }


def _means(scored: Sequence[Scored], judge: int) -> dict[str, Any]:
    return {
        **_mean(scored, judge),
        'by_type': {kind: _mean(some, judge) for kind, some in _by_type(scored).items()},
    }


def _mean(scored: Sequence[Scored], judge: int) -> dict[str, Any]:
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


def _by_type(scored: Sequence[Scored]) -> dict[str, list[Scored]]:
    """What is scored by type of question, in the order of KINDS."""
    groups: dict[str, list[Scored]] = defaultdict(list)
    for each in scored:
        groups[each.item.question_type].append(each)
    return {kind: groups[kind] for kind in KINDS if kind in groups}


def gain_figures(
    with_scene: Sequence[Scored], blind: Sequence[Scored], judge: int
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


def agreement_figures(scored: Sequence[Scored], judges: Sequence[str]) -> list[dict[str, Any]]:
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


def _judge(number: int) -> Callable[[Scored], float | None]:
    return lambda each: each.scores[number]


def _agreement(
    scored: Sequence[Scored],
    names: tuple[str, str],
    first: Callable[[Scored], float | None],
    second: Callable[[Scored], float | None],
) -> dict[str, Any]:
    def figures(some: Sequence[Scored]) -> dict[str, Any]:
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
