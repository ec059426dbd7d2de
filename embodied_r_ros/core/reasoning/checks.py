# SPDX-License-Identifier: Apache-2.0
"""Deterministic checks of a completion against what was seen.

A completion with a contradiction is unsupported; one without, all of whose claims and whose answer
are supported, is verified; all others are unchecked.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
import re
from typing import TYPE_CHECKING

from embodied_r_ros.core.reasoning.claims import Claim, split_sentences
from embodied_r_ros.core.reasoning.completions import (
    choice_index,
    is_unknown,
    option_letter,
    parse_completion,
)
from embodied_r_ros.core.reasoning.facts import Fact, sides_of
from embodied_r_ros.core.reasoning.quantities import Quantity, quantity_in, unit_in
from embodied_r_ros.core.reasoning.statements import (
    ContradictionError,
    DENIED,
    is_same,
    names_of,
    Statements,
)
from embodied_r_ros.core.types.answers import Check

if TYPE_CHECKING:
    from collections.abc import Sequence

    from embodied_r_ros.core.reasoning.claims import Labels
    from embodied_r_ros.core.scene.tools import Result, Scene

_MOST_CHARS = 10_000  # of a completion that is checked
_YES_NO = re.compile(r'\W*(yes|no)\b', re.I)
_SIDE = re.compile(r'\b(left|right|ahead|behind)\b', re.I)
# Questions about all things of a name: what stands before it, and after it to the end.
_HOW_MANY = re.compile(r'\bhow many (?:different )?$')
_EXISTS = re.compile(r'\b(?:(?:is|are) there|(?:do|did|have) you (?:ever )?seen?) (?:an?|any) $')
_IN_ALL = re.compile(
    r'(?:\s(?:are|were|is|do|did|have|you|there|seen?|know|of|in|the|this|that|here|total|all|on|'
    r'your|way|map|room|flat|hall|yard|garden|office|corridor|place|building|house))*\W*'
)
# What is compared, and where another time counts than now.
_COMPARED = re.compile(
    r'\b(?:(?P<first>first(?! obs))|(?P<near>(?:near|clos)e(?:r|st))|(?P<far>f[au]rthe(?:r|st)))\b'
)
_PAST = re.compile(r'\b(?:when|start\w*|beg[ai]n\w*|before|after|first)\b')
_TO = re.compile(r'\b(?:to|from) (?:the )?$')


@dataclass(frozen=True)
class CompletionCheck:
    """Whether a completion agrees with what was seen."""

    check: Check
    reason: str = ''  # the sentence that is contradicted, and why; or what is unclear


def check_completion(
    completion: str,
    question: str,
    options: Sequence[str],
    scene: Scene,
    expected: Result | None = None,
) -> CompletionCheck:
    """Check a completion.

    Args:
        completion: A model's words, with their tags.
        question: The question.
        options: Its options; empty: a free question.
        scene: What was seen.
        expected: What a tool computed for the question; None: nothing.
    """
    if len(completion) > _MOST_CHARS:
        return CompletionCheck(Check.UNSUPPORTED, f'more than {_MOST_CHARS} characters')
    expected = expected if expected and expected.is_known else None
    read = parse_completion(completion)
    answer = read.answer_to(options)
    if answer is None:
        return CompletionCheck(Check.UNSUPPORTED, 'there is no one answer')
    checker = _Conclusion(scene, question, options)
    try:
        for sentence in split_sentences(read.think):
            checker.check(sentence)
        is_answered = not is_unknown(answer) and checker.conclude(answer, expected)
    except ContradictionError as error:
        return CompletionCheck(Check.UNSUPPORTED, str(error))
    soft = ('side', 'status', 'compare') if expected else ()
    unclear = [claim.text for claim in checker.unclear if claim.kind not in soft]
    check = Check.VERIFIED if is_answered and not unclear else Check.UNCHECKED
    return CompletionCheck(check, ', '.join(unclear))


class _Conclusion(Statements):
    """Checks the answer after the sentences."""

    def conclude(self, answer: str, expected: Result | None) -> bool:
        """Tell whether the answer follows.

        Raises:
            ContradictionError: It contradicts what was seen, said or computed.
        """
        index = choice_index(answer, self.options) if self.options else None
        text = (self.options[index] if index is not None else answer).lower()
        self.sentence = self.read(text)
        if self.options and index is None:
            self.fail('it is none of the options')
        if index is not None and self.letters and option_letter(index) not in self.letters:
            self.fail(f'the reasoning says {", ".join(sorted(self.letters))}')
        is_expected = self._is_expected(text, expected) if expected else None
        if expected and is_expected is False:
            self.fail(f'the tools say: {expected.text}')
        if is_expected:
            return True
        found = [self._follows_yes_no(text), self._follows_side(text), self._follows_name()]
        found += [self._follows_number(number) for number in self.sentence.of('number')]
        known = [each for each in found if each is not None]
        return bool(known) and all(known)

    def _of_all(self, before: re.Pattern[str]) -> Labels:
        """The labels for all of which a question asks; empty: it does not."""
        name = (*self.asked.of('name'), Claim('name', 0, 0, ''))[0]
        is_open = before.search(self.question[: name.start])
        return name.labels if is_open and _IN_ALL.fullmatch(self.question[name.end :]) else ()

    def _follows_yes_no(self, text: str) -> bool | None:
        word, labels = _YES_NO.match(text), self._of_all(_EXISTS)
        if word and word[1] == 'no' and labels and len(self.book.counts(labels)) == 1:
            self.fail('it was seen')
        return bool(labels and word[1] == 'yes') if word else None

    def _follows_number(self, number: Claim) -> bool:
        number, labels = self._with_unit(number), self._of_all(_HOW_MANY)
        if not number.dimension and labels:
            if number.value not in self.book.counts(labels):
                self.fail(f'there are {max(self.book.counts(labels)):.0f}', number)
            return True
        own = [n.labels for n in self.sentence.of('name') if n.end <= number.start][-1:]
        numbers = [s for s in self.said if s.dimension == number.dimension and s.kind == 'number']
        heard = numbers + [c for c in self.unclear if c.kind == 'number']
        if number.dimension and numbers and not any(is_same(number, s, 0.1) for s in heard):
            self.fail('the reasoning does not give it', number)
        asked = (own or names_of(self.asked))[:2]
        last = numbers if self.letters else numbers[-1:]
        if _PAST.search(self.question) or self.asked.of('ref') or not numbers:
            return any(is_same(number, s) for s in last)
        facts = self.book.gaps(asked[0], asked[-1]) if asked else []
        for labels in asked:
            facts += self.book.mapped(labels) + self.book.observed(labels, [len(self.book.items)])
        return any(f.fits(number) for f in facts) or any(is_same(number, s) for s in last)

    def _follows_side(self, text: str) -> bool | None:
        words, asked = _SIDE.findall(text), names_of(self.asked)
        if not words or any(number.side for number in self.sentence.of('number')):
            return None
        said = [s.side for s in self.said if s.labels in asked and s.side]
        if said and not set(words) & set(said) and {*words, *said} >= {'left', 'right'}:
            self.fail(f'the reasoning says {said[-1]}')
        return bool(said) and set(words) - {'ahead', 'behind'} <= {said[-1]} <= set(words)

    def _follows_name(self) -> bool | None:
        names, best = names_of(self.sentence), self._best()
        if len(names) < len(self.sentence.of('name')) and not DENIED.search(self.sentence.text):
            self.fail('I have not seen one')
        if not names or self.sentence.of('number'):
            return None
        if self.named and not any(set(names[0]) & set(labels) for labels in self.named):
            self.fail('the reasoning does not name it')
        if best and best not in names[0]:
            self.fail(f'it is the {best}')
        return bool(best)

    def _check_compare(self, claim: Claim) -> bool:
        names, known = names_of(self.sentence), [*names_of(self.asked), *self.choices]
        is_best = bool(names) and self._best() in names[0] and set(names) <= set(known)
        return is_best or not self.sentence.of('name')

    def _best(self) -> str | None:
        """The thing that the question's comparison gives, by the tools; None: not known."""
        what = next((m.lastgroup for m in _COMPARED.finditer(self.question)), None)
        to = [n for n in self.asked.of('name') if _TO.search(self.question[: n.start])]
        rest = [n.labels for n in self.asked.of('name') if n not in to]
        among = list(dict.fromkeys(s[0] for s in [*rest, *self.choices] if len(s) == 1))
        scene, refs = self.book.scene, [r for each in self.asked.of('ref') for r in each.refs]
        is_any = re.search(r'\bwhat\b.*est\b', self.question) and not rest and what != 'first'
        is_past = _PAST.search(self.question) and what != 'first' and not refs
        if what is None or is_past or (len(among) < 2 and not is_any):
            return None
        if what == 'first':
            found = scene.order(among)
            return found.value[0] if found.is_known and not found.facts['together'] else None  # type: ignore[index]
        if refs:
            items = self.book.in_view(tuple(among) or self.book.labels, refs)
            away = {item.distance_m: item.label for item in items}
            return away[min(away) if what == 'near' else max(away)] if away else None
        result = scene.nearest(
            to[0].text if to else 'robot', among, 'yes' if what == 'far' else ''
        )
        return None if result.facts.get('is_tie') else str(result.value or '')

    def _is_expected(self, text: str, expected: Result) -> bool | None:
        """Whether the answer is what a tool computed; None: they are not alike."""
        value, word, sides = expected.value, _YES_NO.match(text), _SIDE.findall(text)
        if word and isinstance(value, (bool, float)):
            return (word[1] == 'yes') == bool(value)
        if isinstance(value, float):
            unit = quantity_in(f'1 {expected.unit}') or Quantity(1.0)
            numbers = map(self._with_unit, self.sentence.of('number'))
            for number in (n for n in numbers if n.dimension in ('', unit.dimension)):
                factor = 1.0 if number.dimension in ('', 'angle') else unit.factor
                slack = factor * (expected.margin + 0.02 * abs(value))
                fact = Fact(number.dimension, factor * abs(value), '', slack)
                return fact.fits(replace(number, side=''))
            return set(sides) <= sides_of([value]) if sides and expected.unit == 'deg' else None
        wanted = str((*value, '')[0] if isinstance(value, tuple) else value)
        labels = {label for name in names_of(self.read(wanted)) for label in name}
        is_named = any(labels & set(name) for name in names_of(self.sentence))
        return is_named or wanted.lower() in text

    def _with_unit(self, number: Claim) -> Claim:
        """A number of the answer, in the unit that the question names where it has none."""
        unit = unit_in(self.question)
        if unit is None or number.dimension:
            return number
        factor = 1.0 if unit.dimension == 'angle' else unit.factor
        value, half = number.value * factor, number.half * factor
        return replace(number, dimension=unit.dimension, value=value, half=half)
