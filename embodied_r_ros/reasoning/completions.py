# SPDX-License-Identifier: Apache-2.0
"""The one parser of completions, live and in training; the confidence of a choice."""

from __future__ import annotations

from dataclasses import dataclass
import math
import re
from typing import TYPE_CHECKING

from embodied_r_ros.common.untrusted import as_data
from embodied_r_ros.types.answers import AnswerKind

if TYPE_CHECKING:
    from collections.abc import Sequence

    from embodied_r_ros.chat.protocol import TokenAlternatives

UNKNOWN = 'unknown'
_TAG = re.compile(r'(</?(?:think|answer)>)')
_WELL_FORMED = ['<think>', '</think>', '<answer>', '</answer>']
_LETTER = re.compile(r'(?:\[\[([A-Za-z])\]\]|([A-Za-z]))')
_NUMBER = re.compile(r'([-+]?\d+(?:\.\d+)?)\s*(?:[A-Za-z°%]+)?')


@dataclass(frozen=True)
class Completion:
    """A completion, read."""

    text: str  # as it came
    think: str  # content of the think tag, stripped; empty where there is none
    answer: str | None  # content of the one answer tag, stripped; None: not gradable
    well_formed: bool  # think, then answer, nothing else; the content does not matter


def parse_completion(text: str) -> Completion:
    """Read a completion.

    Text after the answer breaks the format but leaves the answer gradable; two answer tags are
    malformed and not gradable, because nothing says which one counts.

    >>> parse_completion('<think>It is red.</think><answer> C </answer>').answer
    'C'
    >>> parse_completion('<answer>A</answer><answer>B</answer>').answer is None
    True
    """
    parts = _TAG.split(text)  # text and tags in turn
    well_formed = parts[1::2] == _WELL_FORMED and not ''.join(parts[:8:4] + parts[8:]).strip()
    gradable = text.count('<answer>') == text.count('</answer>') == 1
    thinks, answers = _contents(text, 'think'), _contents(text, 'answer')
    return Completion(
        text=text,
        think=thinks[0].strip() if len(thinks) == 1 else '',
        answer=answers[0].strip() or None if gradable and answers else None,
        well_formed=well_formed,
    )


def _contents(text: str, tag: str) -> list[str]:
    """What stands between an opening and the next closing tag, each time."""
    # A pattern would look for the end once more from every opening that has none.
    contents: list[str] = []
    at = 0
    while True:
        start = text.find(f'<{tag}>', at)
        end = text.find(f'</{tag}>', start) if start >= 0 else -1
        if end < 0:
            return contents
        contents.append(text[start + len(tag) + 2 : end])
        at = end + len(tag) + 3


def option_letter(index: int) -> str:
    """Letter of an option: 0 is 'A'."""
    return chr(ord('A') + index)


def choice_index(answer: str, options: Sequence[str]) -> int | None:
    """Index of the option that an answer names, by letter or exact text; None: none of them.

    >>> [choice_index(answer, ['left', 'right']) for answer in ('B', 'b', '[[B]]', 'right', 'C')]
    [1, 1, 1, 1, None]
    """
    answer = as_data(answer).strip()
    match = _LETTER.fullmatch(answer)
    if match:
        index = ord((match[1] or match[2]).upper()) - ord('A')
        if index < len(options):
            return index
    # As the prompt shows them.
    texts = [as_data(option).strip() for option in options]
    return texts.index(answer) if answer in texts else None


def is_unknown(answer: str) -> bool:
    """Tell whether an answer says that the question cannot be answered."""
    return answer.strip().casefold() == UNKNOWN


def number_in(answer: str) -> float | None:
    """The number that an answer is, with or without a unit; None: it is not a number.

    >>> [number_in(answer) for answer in ('2.5 m', '-30°', 'about 3', '1e999')]
    [2.5, -30.0, None, None]
    """
    match = _NUMBER.fullmatch(answer.strip())
    value = float(match[1]) if match else math.nan
    return value if math.isfinite(value) else None


def read_answer(
    completion: Completion, options: Sequence[str]
) -> tuple[AnswerKind, int, str] | None:
    """Kind, option index (-1: none) and text of an answer; None where it cannot be read."""
    answer = completion.answer
    if answer is None or not completion.well_formed:
        return None
    if options:
        index = choice_index(answer, options)
        if index is not None:
            return AnswerKind.CHOICE, index, options[index]
    if is_unknown(answer):
        return AnswerKind.UNKNOWN, -1, ''
    if options:
        return None
    kind = AnswerKind.TEXT if number_in(answer) is None else AnswerKind.NUMBER
    return kind, -1, answer


_ANSWER_TAG = '<answer>'
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
        if _ANSWER_TAG in text and token.token.strip() and not text.split(_ANSWER_TAG)[1].strip():
            return position
        text += token.token
    return None


def _option_of(token: str, options: Sequence[str]) -> int | None:
    piece = as_data(token).strip()
    if not piece:
        return None
    # Answer text is compared first: a model that writes texts may begin one with 'a'.
    texts = [as_data(option).strip() for option in options]  # as the prompt shows them
    matches = [index for index, text in enumerate(texts) if text.startswith(piece)]
    letters = [option_letter(index) for index in range(len(options))]
    if piece.upper() in letters and not matches:
        return choice_index(piece, options)
    if len(matches) == 1:
        return matches[0]
    return letters.index(piece) if piece in letters else None
