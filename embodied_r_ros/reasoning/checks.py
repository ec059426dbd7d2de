# SPDX-License-Identifier: Apache-2.0
"""Deterministic checks of a completion against what was seen.

Quotes: every number, name, direction and observation `[k]` of each sentence needs support by a
fact of the scene. Conclusion: the answer follows from what was said, and from a tool's result.
Form: the answer is of the kind that the question asks for.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
import re
from typing import TYPE_CHECKING

from embodied_r_ros.reasoning.amounts import is_side
from embodied_r_ros.reasoning.check_context import IN_TIME, Labels, Said, UnsupportedError
from embodied_r_ros.reasoning.claims import close, Number, split_sentences
from embodied_r_ros.reasoning.completions import (
    choice_index,
    is_unknown,
    number_in,
    option_letter,
    parse_completion,
)
from embodied_r_ros.reasoning.facts import FactBook
from embodied_r_ros.reasoning.quantities import compared_values, Quantity, quantity_in, unit_in
from embodied_r_ros.reasoning.quotes import NEGATED, Quotes
from embodied_r_ros.types.answers import Check

if TYPE_CHECKING:
    from collections.abc import Sequence

    from embodied_r_ros.scene.tools import Result, Scene

_MOST_CHARS = 10_000  # of a completion that is checked
_HOW_MANY = re.compile(r'\bhow many\s+(?:different\s+)?(?P<what>\w+)')
_AMOUNT = re.compile(
    r'\b(?:how (?:many|much|far|long|tall|wide|high|deep|big|large|old|often|fast|wide)|number|'
    r'distance|size|angle|area|height|width|length|degrees?|count|gap|when|percentage|bearing|'
    r'time|meters?|metres?)\b'
)
_YES_NO = re.compile(
    r'\W*(?:(?:and|so|then|ok|well)\W+)?(?:is|are|was|were|do|does|did|have|has|had|can|could|'
    r'will|would)\b'
)
_EXISTS = re.compile(
    r'\b(?:is|are|was|were) there\b|\b(?:do|did|can|have) you (?:ever )?(?:see|seen|saw|find|spot)'
)


@dataclass(frozen=True)
class Verdict:
    """Whether a completion agrees with what was seen."""

    check: Check
    reason: str = ''  # the sentence without support, and what is known instead
    sentences: tuple[str, ...] = ()  # that hold something that was checked


def check_completion(
    completion: str,
    question: str,
    options: Sequence[str],
    scene: Scene,
    expected: Result | None = None,
) -> Verdict:
    """Check a completion.

    Args:
        completion: A model's words, with their tags.
        question: The question.
        options: Its options; empty: a free question.
        scene: What was seen.
        expected: What a tool computed for the question; None: nothing.
    """
    if len(completion) > _MOST_CHARS:
        return Verdict(Check.UNSUPPORTED, f'more than {_MOST_CHARS} characters')
    read = parse_completion(completion)
    if read.answer is None:
        return Verdict(Check.UNSUPPORTED, 'there is no one answer')
    checked: list[str] = []
    is_open = is_unknown(read.answer)
    try:
        checker = _Checker(FactBook(scene), question, options)
        checked = checker.checked
        for sentence in split_sentences(read.think):
            checker.check(sentence)
        if not is_open:
            checker.conclude(read.answer, expected)
    except UnsupportedError as error:
        return Verdict(Check.UNSUPPORTED, str(error), tuple(checked))
    known = checked or expected is not None
    check = Check.VERIFIED if known and not is_open else Check.UNCHECKED
    return Verdict(check, '', tuple(checked))


class _Checker(Quotes):
    """Checks a completion: its sentences, then its answer."""

    def conclude(self, answer: str, expected: Result | None) -> None:
        """Check that the answer follows, and is of the kind that was asked for.

        Raises:
            UnsupportedError: It is not.
        """
        index = choice_index(answer, self.options) if self.options else None
        text = self.options[index] if index is not None else answer
        self.sentence = self._read(text)
        said, question = list(self.said), self.question.text.lower()
        if self.options and index is None:
            self._fail('it is none of the options')
        if index is not None and self.letter and self.letter != option_letter(index):
            self._fail(f'the reasoning says {self.letter}')
        if index is None:
            self._check_form(text, question)
        self._check_yes_no(text, question)
        self._check_answer_numbers(said)
        self._check_answer_sides(text, said)
        if not self.options:
            self._check_status()
        self._check_answer_names()
        is_amount = re.search(r'\b(?:more|most|less|least)\b', question)
        if index is not None and not self.letter and not is_amount:
            self._check_last_option(index, said)
        if expected is not None:
            self._check_expected(text, expected)

    def _check_form(self, text: str, question: str) -> None:
        is_bare = number_in(text) is not None and not re.search(r'[^\W\d_]', text)
        if is_bare and not _AMOUNT.search(question):
            self._fail('a number is no answer to this')
        is_open = re.search(r'\b(?:or|any(?:thing|one|body|where)?|something|someone)\b', question)
        is_yes_no = re.match(r'\W*(?:yes|no)\b', text.lower())
        if _YES_NO.match(question) and not is_open and not is_yes_no:
            self._fail('the question asks for yes or no')

    def _check_yes_no(self, text: str, question: str) -> None:
        match = re.match(r'\W*(yes|no)\b', text.lower())
        if not match:
            return
        said = [m for s in self.checked for m in re.findall(r'^\W*(Yes|No)\b', s)]
        if said and said[-1].lower() != match[1]:
            self._fail('the reasoning says the other')
        if _EXISTS.search(question) and self.question.names:
            is_there = bool(self.question.names[0].labels)
            if is_there != (match[1] == 'yes'):
                self._fail('it was seen' if is_there else 'it was not seen')

    def _check_answer_numbers(self, said: Sequence[Said]) -> None:
        question = self.question.text.lower()
        how_many = _HOW_MANY.search(question)
        for one, other in pairwise(self.sentence.numbers):
            between = self.sentence.text[one.end : other.start].strip(' aboutr=~')
            is_same = close(one.value, other.value, 0.03 * abs(one.value))
            if between == '(' and one.dimension == other.dimension and not is_same:
                self._fail(f'{one.text} is not {other.text}')
        for number in self.sentence.numbers:
            unit = unit_in(question) if not number.dimension else None
            same = [
                s for s in said
                if s.side in ('', number.side)
                or not number.side
                or s.dimension != number.dimension
            ]  # fmt: skip
            is_said = any(_is_same(number, s, unit) for s in same)
            if not is_said and (said or not self._is_fact(number, self.asked, ())):
                self._fail(f'the reasoning does not give {number.text}')
            if how_many and not number.dimension and len(self.sentence.numbers) == 1:
                self._check_how_many(number)

    def _check_how_many(self, number: Number) -> None:
        what = _HOW_MANY.search(self.question.text.lower())
        asked = [
            m for m in self.question.names if what and m.start <= what.end() + 12 and m.labels
        ]
        if asked and number.value not in self.book.counts(asked[0].labels):
            self._fail(f'there are {self.book.counts(asked[0].labels)[0]:.0f}')

    def _check_answer_sides(self, text: str, said: Sequence[Said]) -> None:
        """Check directions in words against those that were said of what was asked."""
        words = re.findall(r'\b(left|right|ahead|behind|back|front)\b', text.lower())
        own = [s for s in said if s.side and (s.labels in self.asked or not s.labels)]
        own = own or [s for s in said if s.side]
        sides = {s.side for s in own}
        if words and sides and not self.sentence.numbers:
            same = {'back': 'behind', 'front': 'ahead'}
            if not any(same.get(w, w) in sides for w in words):
                self._fail(f'the reasoning says {", ".join(sorted(sides))}')
        for word in words if not self.options else ():
            if word in ('left', 'right') and sides & {'left', 'right'} and word not in sides:
                self._fail(f'the reasoning says {", ".join(sorted(sides))}')

    def _check_answer_names(self) -> None:
        names = self.sentence.names
        known = {*self.named, *self.asked}
        for mention in names:
            if not mention.labels and not NEGATED.search(self.sentence.text.lower()):
                self._fail(f'I have not seen {mention.text}')
            if (
                mention.labels
                and self.named
                and not any(set(mention.labels) & set(k) for k in known)
            ):
                self._fail(f'the reasoning does not name {mention.text}')
        labels = [m.labels for m in names if m.labels]
        if labels and not self.sentence.numbers:
            self._check_best(labels[0])

    def _check_best(self, labels: Labels) -> None:
        """Check that a name is the one that the question compares for."""
        rules, choices = self._rules_of_question(), self._choices()
        is_known = rules and (
            len(choices) > 1
            or rules[0] not in IN_TIME
            or re.search(r'\bsee (?:first|last)|\bfirst thing', self.question.text)
        )
        if is_known:
            _, what, sign = rules[0]
            to = self._asked_to() if what == 'distance' else ()
            others = choices if len(choices) > 1 else self._all()
            self._compare(what, sign, labels, others, (to, self._asked_number()))

    def _all(self) -> list[Labels]:
        return [(label,) for label in self.labels]

    def _check_last_option(self, index: int, said: Sequence[Said]) -> None:
        """Check that no other option was said after the one of the answer."""
        last: dict[int, int] = {}
        for number, option in enumerate(self.options):
            read = self._read(option)
            words = set(re.findall(r'\b(left|right|ahead|behind)\b', option.lower()))
            for place, each in enumerate(said):
                is_of = each.labels in self.asked or not each.labels or not self.asked
                is_number = bool(read.numbers) and _is_same(read.numbers[0], each, None)
                is_side = not words or each.side in words or (not each.side and is_number)
                if is_side and (is_number or (not read.numbers and is_of and words)):
                    last[number] = place
        if last and max(last, key=lambda number: last[number]) != index:
            best = self.options[max(last, key=lambda number: last[number])]
            self._fail(f'the reasoning ends with {best}')

    def _check_expected(self, text: str, expected: Result) -> None:
        value = expected.value
        if value is None:
            self._fail(f'the tools say: {expected.text}')
        if isinstance(value, bool):
            if not re.match(rf'\W*{"yes" if value else "no"}\b', text.lower()):
                self._fail(f'the tools say: {expected.text}')
        elif isinstance(value, float):
            self._check_expected_number(text, value, expected)
        else:
            wanted = (value,) if isinstance(value, str) else tuple(value or ())
            named = {label for m in self._read(text).names for label in m.labels}
            if not all(set(self._labels_of(name)) & named for name in wanted[:1]):
                self._fail(f'the tools say: {expected.text}')

    def _labels_of(self, name: str) -> Labels:
        return tuple(label for m in self._read(name).names for label in m.labels) or (name,)

    def _check_expected_number(self, text: str, value: float, expected: Result) -> None:
        numbers = self._read(text).numbers
        quantity = quantity_in(text)
        truth = quantity_in(f'1 {expected.unit}') if expected.unit else None
        if quantity is None or not numbers:
            words = re.findall(r'\b(left|right|ahead|behind)\b', text.lower())
            if expected.unit == 'deg' and any(is_side(w, value, 45) for w in words):
                return
            self._fail(f'the tools say: {expected.text}')
            return
        full = Quantity(value * 1.0, truth.dimension, truth.factor) if truth else Quantity(value)
        pair = compared_values(quantity, full, unit_in(self.question.text))
        slack = expected.margin * (truth.factor if truth and quantity.dimension else 1.0)
        if pair is None or not close(abs(pair[0]), abs(pair[1]), slack + 0.02 * abs(pair[1])):
            self._fail(f'the tools say: {expected.text}')


def _is_same(number: Number, said: Said, unit: Quantity | None) -> bool:
    """Tell whether an answer's number is one that was said, rounded or in another unit."""
    value, dimension = number.value, number.dimension
    if unit and not dimension:
        factor = 1.0 if unit.dimension == 'angle' else unit.factor
        value, dimension = value * factor, unit.dimension
    if dimension and said.dimension and dimension != said.dimension:
        return False
    slack = min(max(number.half, said.half) * 1.05, 0.1 * abs(value) + 1e-6)
    share = 0.03 * abs(value) * bool(dimension and (number.is_hedged or slack < 0.01 * abs(value)))
    return close(abs(value), abs(said.value), max(slack, share))
