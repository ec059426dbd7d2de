# SPDX-License-Identifier: Apache-2.0
"""Words for ways along the axes of a task frame: forward, left, slightly up."""

from __future__ import annotations

from dataclasses import dataclass
import math
from typing import TYPE_CHECKING

from embodied_r_ros.common.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Sequence

# Of each axis: the word for its negative and for its positive direction.
AXIS_WORDS = (('backward', 'forward'), ('left', 'right'), ('down', 'up'))
SLIGHTLY = 'slightly '
FULL, SLIGHT, SILENT = 2, 1, 0  # how much of a component is stated
_SLIGHT_PARTS = 2  # a component of which the largest holds so many is 'slightly'


@dataclass(frozen=True)
class Movement:
    """A way in words: of each axis x, y, z, how much of it is stated, with its sign."""

    levels: tuple[int, int, int]  # FULL, SLIGHT or SILENT, negative for negative directions

    def __post_init__(self) -> None:
        """Refuse what no way can be.

        Raises:
            InputError: A level is none, or no axis is the largest.
        """
        levels = [abs(level) for level in self.levels]
        if len(levels) != len(AXIS_WORDS) or max(levels) != FULL:
            msg = f'movement {self.levels}: expected three levels, -2 to 2, and one of them full'
            raise InputError(msg)

    @classmethod
    def between(
        cls, state: Sequence[float], keypoint: Sequence[float], deadband_m: float = 0.0
    ) -> Movement | None:
        """The way from one position to another; None where every component is silent.

        Args:
            state: Where the end effector is, x, y, z [m].
            keypoint: Where it goes [m].
            deadband_m: A component of at most this is silent.
        """
        way = [b - a for a, b in zip(state, keypoint, strict=True)]
        largest = max(map(abs, way))
        if largest <= deadband_m:
            return None
        x, y, z = (_level(part, largest, deadband_m) for part in way)
        return cls((x, y, z))

    def words(self) -> str:
        """In words, in the order of the axes.

        >>> Movement((-1, -1, -2)).words()
        'slightly backward, slightly left, down'
        """
        return ', '.join(
            (SLIGHTLY if abs(level) == SLIGHT else '') + names[level > 0]
            for level, names in zip(self.levels, AXIS_WORDS, strict=True)
            if level
        )

    def adjacent(self) -> dict[Movement, str]:
        """Movements that differ from it on one axis, and how: flip, degree, drop or add."""
        edits = {}
        for axis, before in enumerate(self.levels):
            for after in range(-FULL, FULL + 1):
                levels = [*self.levels[:axis], after, *self.levels[axis + 1 :]]
                if (how := _edit(before, after)) and FULL in map(abs, levels):
                    x, y, z = levels
                    edits[Movement((x, y, z))] = how
        return edits


def _level(part: float, largest: float, deadband_m: float) -> int:
    if abs(part) <= deadband_m:
        return SILENT
    is_slight = _SLIGHT_PARTS * abs(part) <= largest
    return int(math.copysign(SLIGHT if is_slight else FULL, part))


def _edit(before: int, after: int) -> str:
    """How one level becomes another; empty: not at all, or in more than one step."""
    if before == SILENT or after == SILENT:
        return 'add' if after else 'drop' if before else ''
    if after == -before:
        return 'flip'
    return 'degree' if after * before > 0 and after != before else ''
