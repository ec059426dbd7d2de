# SPDX-License-Identifier: Apache-2.0
"""Exercises in looking back: lists of items that must be told again in another order.

A small model from random weights finds out very late that words of its prompt can be copied; from
rows alone it first learns what is likely. After a few hundred of these lists it looks back.
"""

from __future__ import annotations

from random import Random
from typing import Any, TYPE_CHECKING

from embodied_r_ros.vocabulary import COLOURS, SHAPES

if TYPE_CHECKING:
    from collections.abc import Iterator

_LABELS = [f'{colour.name} {shape} object' for colour in COLOURS for shape in SHAPES]
_FEWEST, _MOST = 3, 8


def recall_examples(count: int, seed: int) -> Iterator[dict[str, Any]]:
    """Conversations: items with directions and distances, then the same in another order."""
    rng = Random(seed)
    for _ in range(count):
        labels = rng.sample(_LABELS, rng.randint(_FEWEST, _MOST))
        items = [_item(label, rng) for label in labels]
        shown = 'In view: ' + '; '.join(items) + '.'
        rng.shuffle(items)
        yield {
            'prompt': [{'role': 'user', 'content': shown}],
            'completion': [{'role': 'assistant', 'content': ' ' + '; '.join(items) + '.'}],
        }


def _item(label: str, rng: Random) -> str:
    side = rng.choice(['left', 'right'])
    return f'{label} {5 * rng.randint(0, 9)}° {side} {rng.randint(0, 59) / 10:.1f} m'
