# SPDX-License-Identifier: Apache-2.0
"""The one parser of completions, live and in training; the confidence of a choice."""

from __future__ import annotations

from dataclasses import dataclass
import json
import math
import re
from typing import TYPE_CHECKING

from embodied_r_ros.common.untrusted import as_data, parsed_json
from embodied_r_ros.core.reasoning.image_targets import FORMS, kind_of_prompt, place_text
from embodied_r_ros.core.reasoning.quantities import quantity_in, unwrap
from embodied_r_ros.core.types.answers import AnswerKind, UNKNOWN

if TYPE_CHECKING:
    from collections.abc import Sequence

    from embodied_r_ros.core.chat.protocol import TokenAlternatives

_TAG = re.compile(r'(</?(?:think|answer)>)')
_EMPTY_THOUGHT = re.compile(r'\s*<think>\s*</think>\s*(?=<think>)')
_WELL_FORMED = ['<think>', '</think>', '<answer>', '</answer>']
# How models and servers write tags in other ways, in the order in which they are replaced.
_OTHER_TAGS = (
    # The end of a turn, and what a model goes on with.
    (re.compile(r'(?:<\|(?:im_end|eot_id|eom_id|endoftext|end_of_text|return)\|>|</s>|<eos>|'
                r'<end_of_turn>|<\uff5cend\u2581of\u2581sentence\uff5c>).*', re.DOTALL), ''),
    # Channels of gpt-oss, and what is left of them without special tokens.
    (re.compile(r'<\|channel\|>\s?final[^<>]{0,40}(?:<\|constrain\|>\w{0,40})?<\|message\|>'
                r'|assistantfinal'), '</think>'),
    (re.compile(r'<\|channel\|>\s?(?:analysis|commentary)[^<>]{0,80}<\|message\|>'
                r'|\Aanalysis(?=[A-Z])'), '<think>'),
    (re.compile(r'<\|(?:(?:im_)?start|end|(?:begin|end)_of_box)\|>(?:assistant\b)?'), ''),
    (re.compile(r'<\s{0,3}(/?)\s{0,3}(?:seed:)?(?:think(?:ing)?|thought|reasoning)\s{0,3}>'
                r'|\[(/?)THINK\]', re.IGNORECASE), r'<\1\2think>'),
    (re.compile(r'<\s{0,3}(/?)\s{0,3}(?:final_)?answer\s{0,3}>', re.IGNORECASE), r'<\1answer>'),
)  # fmt: skip
# What thoughts write between the tags when they speak of them.
_PLACEHOLDERS = {'', 'answer', 'and', '...', '\u2026'}
_BOXED = re.compile(r'\\boxed\s{0,3}\{((?:[^{}]|\{[^{}]*\})*)\}')
_ANSWER_LINE = re.compile(
    r'\banswer\b[*_`"\s]{0,4}(?:is\b|[:=])[*_`:\s]{0,4}(\S[^\n]*)', re.IGNORECASE
)
# An option's letter as models write it, and what follows it: 'B', '(B) right', 'Option B: right'.
_LETTER = re.compile(
    r'(?:(?:(?:the|my)\s+)?(?:(?:final|correct|right|best)\s+)?(?:answer|option|choice)\b'
    r'(?:\s+is\b)?[\s:]*)*'
    r'[(\[{"\']*(?P<letter>[A-Z])(?![^\W_])[)\]}"\'.:,;=!|/\s\u2013\u2014\u2192-]*(?P<rest>.*)',
    re.IGNORECASE | re.DOTALL,
)
_LAST_LETTER = re.compile(
    r'(?P<rest>.*?)(?:\s*,\s*|\s*[(\[])(?P<letter>[A-Z])[)\]]?', re.IGNORECASE | re.DOTALL
)
_EMPHASIS = re.compile(r'\*\*|__|`')
# A letter in the midst of a sentence; A and I before another word are words themselves.
_SAID_LETTER = re.compile(
    r'(?:\b(?i:option|choice|answer(?: is)?):?\s|[(\[{"\'])(?P<marked>[A-Z])(?![\w-])'
    r'|(?<![\w\'\u2019-])(?P<bare>[A-Z])(?![\w\'\u2019-])'
    r'(?!(?<=[AI])\s(?!(?:and|or)\b)[a-z])'
)
# Beside an option, these deny it or leave it open.
_DENIAL = re.compile(
    r'\b(?:not?|never|cannot|neither|nor|none|nothing|or|if|whether|unless|except|than|either|'
    r'instead|without|wrong|incorrect|false|unknown|unclear|unsure|at (?:least|most))\b|'
    r'n[\'\u2019]t\b|\?',
    re.IGNORECASE,
)
_MOST_CHARS = 300  # of a text that may be an answer, beside the text of an option


@dataclass(frozen=True)
class Completion:
    """A completion, read."""

    text: str  # as it came
    think: str  # content of the think tag, stripped; empty where there is none
    answer: str | None  # what is marked as the one answer, stripped; None: nothing is
    well_formed: bool  # think, then answer, nothing else; the content does not matter
    said: str = ''  # where no answer is marked: text that is no thought

    def answer_to(self, options: Sequence[str]) -> str | None:
        """The answer to a question with these options; None: there is none.

        Without a mark an answer is what names an option, or 'unknown'.
        """
        if self.answer is not None or not options:
            return self.answer
        is_answer = is_unknown(self.said) or choice_index(self.said, options) is not None
        return self.said if is_answer else None


def parse_completion(text: str, *, is_cut: bool = False) -> Completion:
    """Read a completion.

    Some chat templates end the prompt with `<think>`, so that the completion starts inside the
    thought; and some begin with an empty thought. Both read as one thought and one answer.

    The answer is read whatever the format: in tags that are spelt in other ways, are not closed,
    or have text around them; in a box, in JSON, or after words such as 'Answer:'. Two answer tags
    are not gradable, because nothing says which one counts; what thoughts quote does not count.

    Args:
        text: The completion.
        is_cut: It was ended early: then only an answer counts whose tag is closed, and which is
            in no open thought.

    >>> parse_completion('<think>It is red.</think><answer> C </answer>').answer
    'C'
    >>> parse_completion('<answer>A</answer><answer>B</answer>').answer is None
    True
    >>> parse_completion('[THINK]It is red.[/THINK] **Answer:** C').answer
    'C'
    """
    parts = _TAG.split(_with_tags(text))  # text and tags in turn
    well_formed = parts[1::2] == _WELL_FORMED and not ''.join(parts[:8:4] + parts[8:]).strip()
    tagged = text
    for pattern, replacement in _OTHER_TAGS:
        tagged = pattern.sub(replacement, tagged)
    tagged = _with_tags(tagged)
    thinks = _contents(tagged, 'think')
    thought, _, said = tagged.rpartition('</think>')
    quotes = {quote.rpartition('<answer>')[2].strip() for quote in _contents(thought, 'answer')}
    answer = _answer_of(said, quotes - _PLACEHOLDERS, is_cut)
    return Completion(
        text=text,
        think=thinks[0].strip() if len(thinks) == 1 else '',
        answer=answer,
        well_formed=well_formed,
        said='' if is_cut or answer or _has_mark(said) else said.strip(),
    )


def _has_mark(said: str) -> bool:
    """Tell whether a text marks what is no readable answer, or is a thought itself."""
    return bool(_TAG.search(said) or _BOXED.search(said))


def _answer_of(said: str, quotes: set[str], is_cut: bool) -> str | None:
    """The answer in what follows the thoughts.

    Args:
        said: What follows them.
        quotes: Contents of answer tags in the thoughts.
        is_cut: As of `parse_completion`.
    """
    opened, closed = said.count('<answer>'), said.count('</answer>')
    if not opened and not closed:
        if quotes and not said.strip():  # the thought was closed late
            return quotes.pop() if len(quotes) == 1 else None
        return None if is_cut else _marked(said) or _bare(said)
    before, _, after = said.rpartition('<answer>')
    content, end, _ = after.partition('</answer>')
    is_one = max(opened, closed) == 1 and (end or not closed) and '<think>' not in content
    if is_cut and (not end or '<think>' in before):
        return None
    content = content.strip()
    if not is_one or quotes - {content}:
        return None
    marked = _json_answer(content) if '\n' in content else _marked(content)
    return marked or content or None


def _marked(text: str) -> str | None:
    """What JSON, a box, or words such as 'Answer:' mark as the answer; None: nothing, or two."""
    if answer := _json_answer(text):
        return answer
    boxed = {content.strip() for content in _BOXED.findall(text)}
    if boxed:
        return boxed.pop() or None if len(boxed) == 1 else None
    lines = _ANSWER_LINE.findall(text)
    return lines[-1].strip(' *_`\r') or None if lines else None


def _json_answer(text: str) -> str | None:
    """The answer in an object of JSON; None: there is none."""
    value = parsed_json(text[text.find('{') : text.rfind('}') + 1])
    fields = {key.casefold(): field for key, field in (value or {}).items()}
    answer = fields.get('answer', fields.get('final_answer'))
    if answer is None or isinstance(answer, bool):
        return None
    return (answer if isinstance(answer, str) else json.dumps(answer)).strip() or None


def _bare(text: str) -> str | None:
    """A text that is nothing but a number, a place in an image, or 'unknown'; None: it is not."""
    text = text.strip()
    if len(text) > _MOST_CHARS or '\n' in text:
        return None
    is_place = any(place_text(kind, text) for kind in FORMS)
    return text if is_place or number_in(text) is not None or is_unknown(text) else None


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


def form_grammar(options: Sequence[str]) -> str:
    r"""What a completion may be, for a server that forces it (GBNF of llama.cpp).

    Reasoning and answer in their tags. With options the answer is a letter or text of theirs, or
    unknown.

    >>> print(form_grammar(['left']))
    root ::= "<think>" [^<]* "</think>" s "<answer>" s ("A" | "left" | "unknown") s "</answer>"
    s ::= [ \n]{0,2}
    """
    letters = [option_letter(index) for index in range(len(options))]
    words = [*letters, *(as_data(option).strip() for option in options), UNKNOWN]
    answer = f'({" | ".join(json.dumps(word) for word in words)})' if options else '[^<]+'
    root = f'"<think>" [^<]* "</think>" s "<answer>" s {answer} s "</answer>"'
    return f'root ::= {root}\ns ::= [ \\n]{{0,2}}'


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
    if len(answer) > _MOST_CHARS + max(map(len, texts), default=0):
        return None
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
    if own is None:
        own = _lettered_index(bare, texts)
    return _mentioned_index(answer, texts) if own is None else own


def _mentioned_index(answer: str, texts: Sequence[str]) -> int | None:
    """Index of the one option that a sentence names; None: none, more, or it takes it back."""
    rest = ' '.join(_EMPHASIS.sub('', answer).split())
    names: dict[str, set[int]] = {}
    for index, text in enumerate(texts):
        for name in (_plain(text), _without_letter(index, text)):
            if len(name) > 1 or name.isdigit():
                names.setdefault(name, set()).add(index)
    found: set[int] = set()
    if names:
        either = '|'.join(map(re.escape, sorted(names, key=len, reverse=True)))
        pattern = rf'(?i)(?<![\w.+\'-])(?:{either})(?!\w|[.,]\d|-(?!hand))'
        found.update(*(names.get(said.casefold(), ()) for said in re.findall(pattern, rest)))
        rest = re.sub(pattern, '', rest)
    for letter in _SAID_LETTER.finditer(rest):
        found.add(ord(letter[letter.lastgroup or 0]) - ord('A'))
    index = found.pop() if len(found) == 1 else len(texts)
    return None if index >= len(texts) or _takes_back(rest, texts[index]) else index


def _takes_back(rest: str, option: str) -> bool:
    """Tell whether the rest of a sentence may deny the option that it names."""
    has_more = number_in(option) is not None and any(map(str.isdigit, rest))
    return has_more or bool(_DENIAL.search(rest) and not _DENIAL.search(option))


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
    return ' '.join((unwrap(text) if len(text) <= _MOST_CHARS else text).casefold().split())


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
    answer = completion.answer_to(options)
    if answer is None:
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
