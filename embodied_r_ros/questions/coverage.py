# SPDX-License-Identifier: Apache-2.0
"""What was derived from bags, what was left out, and what had no solution."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from embodied_r_ros.rows import Row


@dataclass(frozen=True)
class BagNote:
    """What became of a bag."""

    name: str  # as it was given
    files: dict[str, str]  # SHA-256 by file name, hex
    sha256: str  # of its content (`recordings.bag_digest`)
    episode_id: str = ''
    scene_id: str = ''
    split: str = ''
    deltas: str = ''  # where they come from
    rows: int = 0
    left_out: str = ''  # why it has no rows; empty: it may have some
    forced: str = ''  # why it was not to be used, where it was all the same


@dataclass
class Coverage:
    """How many rows there are, and why there are no others."""

    rows: Counter[tuple[str, str]] = field(default_factory=Counter)  # (kind, source)
    splits: Counter[tuple[str, str, str]] = field(default_factory=Counter)  # split, kind, source
    unsolved: Counter[tuple[str, str]] = field(default_factory=Counter)  # (kind, reason)
    left_out: Counter[tuple[str, str]] = field(default_factory=Counter)  # (kind, reason)
    bags: list[BagNote] = field(default_factory=list)

    def count(self, row: Row) -> None:
        """Count a row."""
        self.rows[row.question_type, row.source] += 1
        self.splits[row.split, row.question_type, row.source] += 1

    def leave_out(self, bag: BagNote, reason: str) -> None:
        """Count a bag that gives no rows."""
        self.left_out['every kind', reason] += 1
        self.bags.append(replace(bag, left_out=reason))

    def table(self) -> str:
        """The report as text."""
        lines = [f'{"question type":<18} {"source":<10} {"rows":>7}']
        lines += [f'{kind:<18} {by:<10} {n:>7}' for (kind, by), n in sorted(self.rows.items())]
        splits: Counter[str] = Counter()
        for (split, _, _), n in self.splits.items():
            splits[split] += n
        lines += ['', *(f'{split:<18} {"":<10} {n:>7}' for split, n in sorted(splits.items()))]
        for title, counts in (('left out', self.left_out), ('no solution', self.unsolved)):
            if counts:
                lines += ['', f'{title:<18} {"times":>7}  because']
            lines += [f'{kind:<18} {n:>7}  {why}' for (kind, why), n in counts.most_common()]
        return '\n'.join(lines)
