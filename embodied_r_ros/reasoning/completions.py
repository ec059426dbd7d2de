# SPDX-License-Identifier: Apache-2.0
"""The one parser of completions, live and in training; the confidence of a choice."""

from __future__ import annotations

from dataclasses import dataclass
import math
import re
from typing import TYPE_CHECKING

from embodied_r_ros.common.untrusted import as_data
from embodied_r_ros.reasoning.image_targets import kind_of_prompt, place_text
from embodied_r_ros.reasoning.quantities import quantity_in, unwrap
from embodied_r_ros.types.answers import AnswerKind

if TYPE_CHECKING:
    from collections.abc import Sequence

    from embodied_r_ros.chat.protocol import TokenAlternatives

UNKNOWN = 'unknown'
_TAG = re.compile(r'(</?(?:think|answer)>)')
_EMPTY_THOUGHT = re.compile(r'\s*<think>\s*</think>\s*(?=<think>)')
_WELL_FORMED = ['<think>', '</think>', '<answer>', '</answer>']
# An option's letter as models write it, and what follows it: 'B', '(B) right', 'Option B: right'.
_LETTER = re.compile(
    r'(?:(?:(?:the|my)\s+)?(?:(?:final|correct|right|best)\s+)?(?:answer|option|choice)\b'
    r'(?:\s+is\b)?\s*:?\s*)*'
    r'[(\[{"\']*(?P<letter>[A-Z])(?![^\W_])[)\]}"\'.:,;=!|/\s\u2013\u2014\u2192-]*(?P<rest>.*)',
    re.IGNORECASE | re.DOTALL,
)
_LAST_LETTER = re.compile(
    r'(?P<rest>.*?)(?:\s*,\s*|\s*[(\[])(?P<letter>[A-Z])[)\]]?', re.IGNORECASE | re.DOTALL
)
_EMPHASIS = re.compile(r'\*\*|__|`')


@dataclass(frozen=True)
class Completion:
    """A completion, read."""

    text: str  # as it came
    think: str  # content of the think tag, stripped; empty where there is none
    answer: str | None  # content of the one answer tag, stripped; None: not gradable
    well_formed: bool  # think, then answer, nothing else; the content does not matter


def parse_completion(text: str) -> Completion:
    """Read a completion.

    Some chat templates end the prompt with `<think>`, so that the completion starts inside the
    thought; and some begin with an empty thought. Both read as one thought and one answer.

    Text after the answer breaks the format but leaves the answer gradable; two answer tags are
    malformed and not gradable, because nothing says which one counts.

    >>> parse_completion('<think>It is red.</think><answer> C </answer>').answer
    'C'
    >>> parse_completion('<answer>A</answer><answer>B</answer>').answer is None
    True
    """
    completion, text = text, _with_tags(text)
    parts = _TAG.split(text)  # text and tags in turn
    well_formed = parts[1::2] == _WELL_FORMED and not ''.join(parts[:8:4] + parts[8:]).strip()
    gradable = text.count('<answer>') == text.count('</answer>') == 1
    thinks, answers = _contents(text, 'think'), _contents(text, 'answer')
    return Completion(
        text=completion,
        think=thinks[0].strip() if len(thinks) == 1 else '',
        answer=answers[0].strip() or None if gradable and answers else None,
        well_formed=well_formed,
    )


def _with_tags(text: str) -> str:
    """A completion with the tag that its prompt ended with, and without an empty first thought."""
    first = _TAG.search(text)
    text = f'<think>{text}' if first and first[1] == '</think>' else text
    empty = _EMPTY_THOUGHT.match(text)
    return text[empty.end() :] if empty else text


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
    """Index of the option that an answer names, by letter, text, or both; None: none of them.

    A letter beside the text of another option, and more than one letter, name none.

    >>> [choice_index(answer, ['left', 'right']) for answer in ('B', '(b)', 'B. right', 'Right.')]
    [1, 1, 1, 1]
    >>> [choice_index(answer, ['left', 'right']) for answer in ('B. left', 'A or B', 'C')]
    [None, None, None]
    """
    answer = as_data(answer).strip()
    texts = [as_data(option).strip() for option in options]  # as the prompt shows them
    bare = unwrap(answer)
    if len(bare) == 1 and bare.isascii() and bare.isalpha():
        index = ord(bare.upper()) - ord('A')
        if index < len(texts):
            return index
    if answer in texts:
        return texts.index(answer)
    own = _only(_plain(answer), list(map(_plain, texts)))
    if own is None:
        own = _only(_plain(answer), [_without_letter(i, text) for i, text in enumerate(texts)])
    return _lettered_index(bare, texts) if own is None else own


def _lettered_index(answer: str, texts: Sequence[str]) -> int | None:
    """Index of the option that an answer names by its letter, with its text or without."""
    answer = _EMPHASIS.sub('', answer)
    for match in filter(None, (_LETTER.fullmatch(answer), _LAST_LETTER.fullmatch(answer))):
        index = ord(match['letter'].upper()) - ord('A')
        if index < len(texts):
            own = {'', _plain(texts[index]), _without_letter(index, texts[index])}
            if _plain(match['rest']) in own:
                return index
    return None


def _only(text: str, texts: list[str]) -> int | None:
    return texts.index(text) if texts.count(text) == 1 else None


def _plain(text: str) -> str:
    """A text without what differs in writing alone: case, marks around it, a last full stop."""
    return ' '.join(unwrap(text).casefold().split())


def _without_letter(index: int, text: str) -> str:
    """The plain text of an option that brings its own letter, such as 'B. right'."""
    match = _LETTER.fullmatch(text)
    has_own = match and match['rest'] and match['letter'].upper() == option_letter(index)
    return _plain(match['rest']) if match and has_own else _plain(text)


def is_unknown(answer: str) -> bool:
    """Tell whether an answer says that the question cannot be answered."""
    return _plain(answer) == UNKNOWN


def is_same_text(answer: str, solution: str) -> bool:
    """Tell whether two free texts differ in writing alone: case, marks around, a full stop."""
    return _plain(answer) == _plain(solution)


def number_in(answer: str) -> float | None:
    """The number that an answer is, with or without a unit; None: it is not a number.

    >>> [number_in(answer) for answer in ('2.5 m', '-30°', 'about 3', '2-4', '1e999')]
    [2.5, -30.0, 3.0, None, None]
    """
    quantity = quantity_in(answer)
    return quantity.value if quantity else None


def read_answer(
    completion: Completion, options: Sequence[str], prompt: str = ''
) -> tuple[AnswerKind, int, str] | None:
    """Kind, option index (-1: none) and text of an answer; None where it cannot be read.

    Where the question of the prompt wants a point or a box, nothing else is an answer.
    """
    answer = completion.answer
    if answer is None or not completion.well_formed:
        return None
    if options:
        index = choice_index(answer, options)
        if index is not None:
            return AnswerKind.CHOICE, index, options[index]
    if is_unknown(answer):
        return AnswerKind.UNKNOWN, -1, ''
    place = kind_of_prompt(prompt)
    text = place_text(place, answer) if place else answer
    if options or text is None:
        return None
    is_number = not place and number_in(text) is not None
    return AnswerKind.NUMBER if is_number else AnswerKind.TEXT, -1, text


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
    position = _first_of_answer(tokens, [as_data(option).strip() for option in options])
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


def _first_of_answer(tokens: Sequence[TokenAlternatives], texts: Sequence[str]) -> int | None:
    """Position of the first token with content after the answer tag.

    A bracket or another mark in front of a letter is no content, unless an option begins so.
    """
    text = ''
    for position, token in enumerate(tokens):
        content = text.split(_ANSWER_TAG)[1] if _ANSWER_TAG in text else None
        piece = as_data(token.token).strip()
        is_mark = not any(map(str.isalnum, piece)) and not any(
            option.startswith(piece) for option in texts
        )
        if content is not None and not is_mark and not any(map(str.isalnum, content)):
            return position
        text += token.token
    return None


def _option_of(token: str, options: Sequence[str]) -> int | None:
    piece = as_data(token).strip()
    if not piece:
        return None
    bare = piece.lstrip('([{*"\'`')
    # Answer text is compared first: a model that writes texts may begin one with 'a'.
    texts = [as_data(option).strip() for option in options]  # as the prompt shows them
    matches = [index for index, text in enumerate(texts) if text.startswith(piece)]
    letters = [option_letter(index) for index in range(len(options))]
    if bare.upper() in letters and not matches:
        return letters.index(bare.upper())
    if len(matches) == 1:
        return matches[0]
    return letters.index(piece) if piece in letters else None
