# SPDX-License-Identifier: Apache-2.0
"""Phrases of random tokens, told again and again in another order: a first thing to learn.

What a model reads in a prompt it can use only after it has found out that what followed a word
before may follow it again (an induction head: Olsson et al., arXiv:2209.11895). From questions
about scenes a model of this size never finds that out, since what is likely is worth learning
first. Of random tokens nothing is likely: the only way to predict one is to look back.
"""

from __future__ import annotations

import math
from random import Random
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

_SHORTEST = 64  # tokens
_FEWEST = 8  # tokens that are told before anything comes again
_PHRASE = (2, 8)  # tokens
# Share of the sequences in which few tokens take turns, so that one does not tell what comes.
_AMBIGUOUS_SHARE = 0.25


def phrase_examples(
    count: int, longest: int, tokens: range, seed: int
) -> Iterator[dict[str, list[int]]]:
    """Sequences of tokens, of 64 to `longest`; short ones are as frequent as long ones.

    Args:
        count: How many.
        longest: Most tokens of a sequence.
        tokens: Ids to draw from.
        seed: Of all draws.
    """
    rng = Random(seed)
    for _ in range(count):
        length = round(math.exp(rng.uniform(math.log(_SHORTEST), math.log(longest))))
        yield {'input_ids': _sequence(length, tokens, rng)}


def _sequence(length: int, tokens: range, rng: Random) -> list[int]:
    told = rng.randint(_FEWEST, max(_FEWEST, length // 3))
    drawn: list[int] | range = tokens
    if rng.random() < _AMBIGUOUS_SHARE:
        drawn = rng.choices(tokens, k=rng.randint(max(4, told // 8), max(6, told // 2)))
    phrases = []
    while told > 0:
        phrases.append(rng.choices(drawn, k=min(told, rng.randint(*_PHRASE))))
        told -= len(phrases[-1])
    said: list[int] = []
    while len(said) < length:
        rng.shuffle(phrases)
        said += [token for phrase in phrases for token in phrase]
    return said[:length]
