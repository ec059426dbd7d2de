# SPDX-License-Identifier: Apache-2.0
"""How far people agree about the same questions: share of agreement, and Cohen's kappa.

Kappa is the agreement beyond what chance gives two people who use each solution as often as these
do (Cohen, 1960): 1 is full agreement, 0 is chance.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING

from embodied_r_ros.types.labels import LabelKind

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from embodied_r_ros.types.labels import Label, LabelLayer


@dataclass(frozen=True)
class Agreement:
    """How two people labelled the same questions."""

    people: tuple[str, str]
    questions: int  # that both labelled
    agreed: int
    kappa: float | None  # None: both always say the same one thing, and chance would too

    @property
    def share(self) -> float:
        """Share of the questions on which they agree."""
        return self.agreed / self.questions


def agreements(layers: Iterable[LabelLayer]) -> list[Agreement]:
    """Compare every two people who labelled a question both, over several recordings."""
    pairs: dict[tuple[str, str], list[tuple[str, str]]] = {}
    for layer in layers:
        for labels in layer.by_question().values():
            for first, second in combinations(sorted(labels), 2):
                both = _solution(labels[first]), _solution(labels[second])
                pairs.setdefault((first, second), []).append(both)
    return [
        Agreement(people, len(both), sum(a == b for a, b in both), cohens_kappa(both))
        for people, both in sorted(pairs.items())
    ]


def _solution(label: Label) -> str:
    """What a label says is right; 'wrong' names nothing, and no solution is called so."""
    if label.kind is LabelKind.WRONG or label.after is None:
        return '(wrong)'
    return label.after.casefold()


def cohens_kappa(pairs: Sequence[tuple[str, str]]) -> float | None:
    """Cohen's kappa of what two people said of the same things; None: chance agrees fully too.

    >>> cohens_kappa([('a', 'a'), ('b', 'b'), ('a', 'b'), ('b', 'b')])
    0.5
    """
    total = len(pairs)
    if not total:
        return None
    observed = sum(first == second for first, second in pairs) / total
    firsts = Counter(first for first, _ in pairs)
    seconds = Counter(second for _, second in pairs)
    chance = sum(count * seconds[solution] for solution, count in firsts.items()) / total**2
    return None if chance == 1 else (observed - chance) / (1 - chance)
