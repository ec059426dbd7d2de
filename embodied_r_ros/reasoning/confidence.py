# SPDX-License-Identifier: Apache-2.0
"""Confidence of a choice, from the probabilities that the server reports for its tokens."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from embodied_r_ros.reasoning.completions import choice_index, option_letter
from embodied_r_ros.untrusted import as_data

if TYPE_CHECKING:
    from collections.abc import Sequence

    from embodied_r_ros.models.chat import TokenAlternatives

_TAG = '<answer>'
_ROUNDING = 1e-3  # how far above 0 the logarithm of a probability may be, as servers round it


def option_confidence(
    tokens: Sequence[TokenAlternatives], options: Sequence[str], chosen: int
) -> float:
    """Probability of the chosen option among the options, 0..1; NaN where it is not known.

    A server that reports what no probability can be is not believed at all.

    It is read at the first token of the answer's content. A token stands for an option when it is
    the option's letter or begins exactly one option's text; the rest of the probability is left
    out.

    Args:
        tokens: Generated tokens with their alternatives, in order.
        options: The options.
        chosen: Index of the chosen option; negative: none.
    """
    position = _first_of_answer(tokens)
    if position is None or chosen < 0:
        return math.nan
    shares = [0.0] * len(options)
    alternatives = dict(tokens[position].top)
    alternatives.setdefault(tokens[position].token, tokens[position].logprob)
    # Written so that NaN is refused too.
    if not all(logprob <= _ROUNDING for logprob in alternatives.values()):
        return math.nan
    for token, logprob in alternatives.items():
        index = _option_of(token, options)
        if index is not None:
            shares[index] += math.exp(logprob)
    total = sum(shares)
    return shares[chosen] / total if shares[chosen] > 0 else math.nan


def _first_of_answer(tokens: Sequence[TokenAlternatives]) -> int | None:
    """Position of the first token with content after the answer tag."""
    text = ''
    for position, token in enumerate(tokens):
        if _TAG in text and token.token.strip() and not text.split(_TAG)[1].strip():
            return position
        text += token.token
    return None


def _option_of(token: str, options: Sequence[str]) -> int | None:
    piece = as_data(token).strip()
    if not piece:
        return None
    # Answer text is compared first: a model that writes texts may begin one with 'a'.
    texts = [as_data(option).strip() for option in options]  # as the prompt shows them
    begun = [index for index, text in enumerate(texts) if text.startswith(piece)]
    letters = [option_letter(index) for index in range(len(options))]
    if piece.upper() in letters and not begun:
        return choice_index(piece, options)
    if len(begun) == 1:
        return begun[0]
    return letters.index(piece) if piece in letters else None
