# SPDX-License-Identifier: Apache-2.0
"""Which examples stand together in a batch, and how their columns are laid out."""

from __future__ import annotations

from itertools import pairwise
from random import Random
from typing import Any, TYPE_CHECKING

from trl.trainer.sft_trainer import DataCollatorForLanguageModeling

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

# Batches that are filled together from rows of like length: more of them fit better, fewer keep
# the lengths that follow each other mixed.
_BATCHES_SORTED = 8
_ALIKE = 16  # likewise, of calls
# Neighbours that share this much of their prompts are of one scene: all share the instructions.
_SAME_SCENE = 0.6


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


def scenes_together(
    examples: Sequence[dict[str, Any]], scenes: Sequence[int], at_once: int, seed: int
) -> list[int]:
    """An order in which the examples of a scene are neighbours, in batches of like length."""
    drawn = sorted(set(scenes))
    Random(seed).shuffle(drawn)
    rank = {scene: number for number, scene in enumerate(drawn)}
    order = sorted(range(len(scenes)), key=lambda index: rank[scenes[index]])
    longest: dict[int, int] = {}
    for index, scene in enumerate(scenes):
        length = sum(len(message['content']) for message in examples[index]['prompt'])
        longest[scene] = max(length, longest.get(scene, 0))
    keys = [(longest[scenes[index]], rank[scenes[index]]) for index in order]
    return [order[place] for place in grouped_by_length(keys, at_once, seed)]


class SceneCollator:
    """Pads on the left to where the scenes of a batch end, then on the right.

    What neighbours have in common then ends in the same column for all, and is computed once
    (`shared_prefix.py`).
    """

    def __init__(self, pad_token_id: int, pad_to_multiple_of: int | None = None) -> None:
        """Pad with a token that no text holds, lengths to a multiple."""
        self._pad_token_id = pad_token_id
        self._step = pad_to_multiple_of or 1
        self._collate = DataCollatorForLanguageModeling(
            pad_token_id, pad_to_multiple_of=pad_to_multiple_of
        )

    def __call__(self, examples: Sequence[dict[str, Any]]) -> dict[str, Tensor]:
        """The padded batch: `input_ids`, `attention_mask` and `labels`, each (B, T)."""
        common = _common_lengths([example['input_ids'] for example in examples])
        column = -(-max(common) // self._step) * self._step
        padded = [
            {
                'input_ids': [self._pad_token_id] * (column - length) + list(example['input_ids']),
                'labels': [-100] * (column - length) + list(example['labels']),
            }
            for example, length in zip(examples, common, strict=True)
        ]
        batch: dict[str, Tensor] = self._collate(padded)
        batch['attention_mask'] = (batch['input_ids'] != self._pad_token_id).long()
        return batch


def _common_lengths(rows: Sequence[Sequence[int]]) -> list[int]:
    """Of each row, the tokens it has in common with the other rows of its scene."""
    alike = [
        next(
            (i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b))
        )
        for a, b in pairwise(rows)
    ]
    common: list[int] = []
    start = 0
    for end in range(1, len(rows) + 1):
        if end < len(rows) and alike[end - 1] > _SAME_SCENE * len(rows[end]):
            continue
        inside = alike[start : end - 1]
        common += [min(inside) if inside else int(_SAME_SCENE * len(rows[start]))] * (end - start)
        start = end
    return common
