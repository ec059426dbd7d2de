# SPDX-License-Identifier: Apache-2.0
"""Which examples stand together in a batch."""

from __future__ import annotations

from random import Random
from typing import Any, TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

# Batches that are filled together from rows of like length: more of them fit better, fewer keep
# the lengths that follow each other mixed.
_BATCHES_SORTED = 8
_ALIKE = 16  # likewise, of calls


def grouped_by_length(lengths: Sequence[Any], at_once: int, seed: int) -> list[int]:
    """An order in which `at_once` neighbours have like lengths, else as it was.

    >>> grouped_by_length([5, 1, 4, 2], 2, seed=0)
    [1, 3, 2, 0]
    """
    rng = Random(seed)
    order: list[int] = []
    block = at_once * _BATCHES_SORTED
    for start in range(0, len(lengths), block):
        indices = sorted(range(start, min(start + block, len(lengths))), key=lengths.__getitem__)
        groups = [indices[i : i + at_once] for i in range(0, len(indices), at_once)]
        rng.shuffle(groups)
        order += [index for group in groups for index in group]
    return order


def epochs_by_length(lengths: Sequence[int], size: int, epochs: int, seed: int) -> list[int]:
    """Each epoch in another order, in which the rows of a batch have like lengths.

    Args:
        lengths: Of the rows.
        size: Rows of a batch; where they do not come out even, the last of an epoch has fewer.
        epochs: How many.
        seed: Of the orders.
    """
    rng, whole, order = Random(seed), list[int](), list(range(len(lengths)))
    for _ in range(epochs):
        own = order.copy()
        rng.shuffle(own)
        blocks = (own[i : i + _ALIKE * size] for i in range(0, len(own), _ALIKE * size))
        flat = [i for block in blocks for i in sorted(block, key=lengths.__getitem__)]
        batches = [flat[i : i + size] for i in range(0, len(flat), size)]
        rng.shuffle(batches)
        batches.sort(key=lambda batch: len(batch) < size)
        whole += [index for batch in batches for index in batch]
    return whole
