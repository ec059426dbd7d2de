# SPDX-License-Identifier: Apache-2.0
"""Deterministic checks of a completion against what was seen.

Quotes: every number, name, direction and observation `[k]` of each sentence needs support by a fact
of the scene. Conclusion: the answer follows from what was said, and from the result of a tool.
Form: the answer is of the kind that the question asks for.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
import math
import re
from typing import TYPE_CHECKING

from embodied_r_ros.reasoning.claims import close, Number, read_sentence, split_sentences
from embodied_r_ros.reasoning.completions import (
    choice_index,
    is_unknown,
    number_in,
    option_letter,
    parse_completion,
)
from embodied_r_ros.reasoning.facts import FactBook, sums, texts_of
from embodied_r_ros.reasoning.quantities import compared_values, Quantity, quantity_in, unit_in
from embodied_r_ros.types.answers import Check
from embodied_r_ros.types.deltas import ItemStatus

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from embodied_r_ros.reasoning.claims import Mention, References, Sentence, Side
    from embodied_r_ros.scene.tools import Result, Scene
    from embodied_r_ros.types.deltas import Item

_MOST_CHARS = 20_000  # of a completion that is checked
_MOST_KNOWN = 200  # numbers that were said
Labels = tuple[str, ...]

_NEGATED = re.compile(
    r"\b(?:no|not|none|never|neither|nor|nothing|without|cannot|isn't|wasn't|aren't|weren't|"
    r"haven't|hasn't|didn't|don't|doesn't|can't|couldn't|absent|lacks?|missing|unknown|whether|"
    r'if)\b'
)
_TURN = re.compile(r'\b(?:turn(?:s|ed|ing)?(?! up)|facing|rotat\w*|heading|swung|spun|(?:left|right) sum|balance)\b')
_MOVE = re.compile(
    r'\b(?:mov\w+|forward|backward|went|go|drove|walk\w*|travel\w*|way|path|came|advanc\w+)\b'
)
_SIZE = re.compile(
    r'\b(?:wide|tall\w*|high\w*|long|deep|height|length|width|depth|size\w*|measur\w+|across|'
    r'extents?|dimensions?|large|big)\b'
)
_SIZE_AFTER = re.compile(
    r'[\s(]*(?:in (?:x|y|z|height|length|width|depth|size)|wide|tall|high|long|deep|across|by|x|'
    r'\u00d7)\b'
)
_APART = re.compile(r'\s*(?:away|apart|from|off|between|to)\b')
_ROBOTS = re.compile(r"\b(?:i|i've|i'm|my|me|we|robot|camera|you|here)\b")
_STANDING = re.compile(r'\b(?:at|by|beside|next to|from|near)\s+(?:the\s+)?$')
_FACING = re.compile(r'\b(?:fac(?:e|es|ing)|towards?|look(?:s|ing)? at)\s+(?:the\s+)?$')
# Numbers that are no claims about the scene: bounds, and what a unit is in another one.
_FREE = re.compile(
    r'\b(?:at (?:least|most)|up to|(?:more|less|fewer) than)\s+$|'
    r'\b(?:one|1|a)\s+(?:square )?(?:m|met(?:er|re)|foot|inch)\s+(?:is|are|has|equals|=)[^,;]*$'
)
_FACTORS = (0.3048, 3.28, 3.281, 0.0254, 2.54, 10.76, 10.764, 100.0, 1000.0, 60.0, 12.0)
_SELF = re.compile(r"\b(?:start|i|i'm|my|me|robot|origin)\b")
_ROBOT: Labels = ('',)  # as what something was said of
_GAP = re.compile(
    r'\b(?:apart|between|from|edges?|close to|near|next to|gap|distance|beside|to the|middles?)\b'
)

_PLACE_NOW = re.compile(
    r'\b(?:map|maps|now|position|pose|from (?:here|me)|start|in all|total|stands?|edge)\b'
)
_SUM = re.compile(
    r"=|\b(?:so|sum\w*|total|altogether|difference|between|leaves?|minus|plus|thus|therefore|hence|"
    r"apart|later|ago|earlier|makes?|by|closer|nearer|farther|that's|overall|net|balance|in all|together|since|gives|"
    r'combined|after|before|took|less|more|another)\b'
)
_GONE = re.compile(
    r'\b(?:gone|disappear\w*|vanish\w*|dropp?(?:ed|s)? out|out of (?:view|sight)|removed|'
    r'left the view|no longer|leaves? (?:the )?view)\b'
)
_SHOWN = re.compile(
    r"\b(?:it|they|them|one|both)\b.*\b(?:seen|saw|visible|in view|appear\w*|shown|shows?|back|"
    r"lists?|observed|there|again|last)\b|\b(?:saw|see) (?:it|them)\b|\bit's (?:there|back)\b"
)
_NEW = re.compile(r'\b(?:under new|(?:is|are|was|were|as) new)\b')
_PRESENT = re.compile(r'\b(?:present|still there|still (?:in|on) the map)\b')
_MOVED = re.compile(r'\b(?:was|were|had|has|have|been|only)\s+moved\b')
_AGAIN = re.compile(r'\b(?:one|another|third|second|other|first|fourth|them|two)\b')
_STILL = re.compile(
    r'\bonly (?:turn|rotat)\w*|\b(?:turn|rotation)s? only|\bno (?:forward )?moves?\b'
)
_ALSO_LAST = re.compile(r'\balso (?P<which>first|last) seen\b')
_TIMES = re.compile(
    r'\b(?:times|observ\w+|sight\w*|often|longest|frames?|keyframes?|views?)\b|\[|\beach\b'
)
_ALL = re.compile(r'\W*(?:landmarks?|things?|objects?|items?|kinds?|entries)\b')
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
_LETTER = re.compile(
    r"(?:\b(?:so|hence|option|answer|answer is|is|it's|choose|pick|thus|therefore|choice)"
    r"|\u2192|->)\s*:?\s*\(?([A-F])\)?(?![\w'])(?=\W*$|[.,;:)!]|\s+is\b)"
)
_NOUN = r'(?P<noun>[a-z-]+(?:\s[a-z-]+)?)'
_SUBJECT = re.compile(
    rf'(?:^|[,;:]\s+|\band\s+|\bso\s+|\bwhile\s+)(?:the|an?)\s+{_NOUN}(?<!s)\s+'
    r'(?:is|was|stands|stood|appears|appeared|comes|came|shows up|turn(?:s|ed) up)\b'
)
_LISTED = re.compile(rf'(?:,|\band|:)\s+an?\s+{_NOUN}(?=\s*[,;.]|\s+and\b|$)')
_ASKED_NOUN = re.compile(
    r'\b(?:see|saw|seen|there|where(?: is|\'s| are)?)\s+(?:an?|any|the)\s+'
    r'(?P<noun>[a-z]+(?:\s(?!is\b|was\b|in\b|here\b|on\b|anywhere\b|at\b|around\b)[a-z]+)?)'
)
_NEUTRAL = frozenset(
    'angle answer area axis bearing bit camera choice closest count data delta difference direction '
    'distance door edge end farthest figure final first floor gap heading highest images item items '
    'landmark largest last latest least left line list longest map middle moment motion most move '
    'movement nearest next number object objects observation one only option order other others '
    'path place point position question rest result right robot room rotation route same scene '
    'second side sighting size smallest start step sum text thing things third time total turn '
    'value view way while whole bounding box action maximum minimum average mean centre center sum elevation'.split()
)
# What compares things, by which number of theirs, and whether the larger one wins.
_COMPARE = tuple(
    (re.compile(rf'\b(?:{words})\b'), what, sign)
    for words, what, sign in (
        (r'nearest|closest|nearer|closer|least distance', 'distance', -1),
        (r'farthest|furthest|farther|further|most distant', 'distance', 1),
        (r'most (?:observations|often|frames|times)|seen longest|longest seen', 'times', 1),
        (r'tallest|taller|highest|higher', 'height', 1),
        (r'shortest|shorter|lowest|lower', 'height', -1),
        (r'widest|wider', 'width', 1),
        (r'narrowest|narrower', 'width', -1),
        (r'largest|larger|biggest|bigger|longest|longer', 'size', 1),
        (r'smallest|smaller', 'size', -1),
    )
)
_IN_TIME = tuple(
    (re.compile(rf'\b(?:{words})\b'), what, sign)
    for words, what, sign in (
        (r'first|earlier|earliest|before|sooner', 'first', -1),
        (r'last|latest|most recently', 'last', 1),
        (r'later', 'first', 1),
    )
)
_HYPOTHETIC = re.compile(r"\b(?:would|could|might|not|isn't|wasn't|nor|neither|than you)\b")


@dataclass(frozen=True)
class Verdict:
    """Whether a completion agrees with what was seen."""

    check: Check
    reason: str = ''  # the sentence without support, and what is known instead
    sentences: tuple[str, ...] = ()  # that hold something that was checked


class _UnsupportedError(Exception):
    """A sentence has no support; the message says why."""


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
    checker = _Checker(FactBook(scene), question, options)
    try:
        for sentence in split_sentences(read.think):
            checker.check(sentence)
        is_open = is_unknown(read.answer)
        if not is_open:
            checker.conclude(read.answer, expected)
    except _UnsupportedError as error:
        return Verdict(Check.UNSUPPORTED, str(error), tuple(checker.checked))
    known = checker.checked or expected is not None
    check = Check.VERIFIED if known and not is_open else Check.UNCHECKED
    return Verdict(check, '', tuple(checker.checked))


@dataclass(frozen=True)
class _Said:
    """A number or direction that was said and has support."""

    value: float
    dimension: str
    half: float
    side: str
    labels: Labels  # of what


class _Checker:
    """Checks the sentences of a completion one after the other."""

    def __init__(self, book: FactBook, question: str, options: Sequence[str]) -> None:
        self.book = book
        self.labels = book.scene.labels
        self.question = self._read(question)
        self.asked: list[Labels] = list(
            dict.fromkeys(m.labels for m in self.question.names if m.labels)
        )
        self.options = list(options)
        self._unknown = self._unknown_nouns(question)
        self.checked: list[str] = []
        self.said: list[_Said] = []
        self.subjects: list[Labels] = []  # that the last sentence with names was about
        self.letter = ''
        self.listed = 0  # names in the last sentence with names
        self.angle: tuple[Number, Labels] | None = None
        self.named: list[Labels] = []
        self.sentence = self.question

    def _unknown_nouns(self, question: str) -> re.Pattern[str] | None:
        """What a question whether something is there asks for, where it is no known name."""
        match = _ASKED_NOUN.search(question.lower())
        if not match or any(m.start < match.end('noun') for m in self.question.names if m.labels):
            return None
        return re.compile(rf'\b(?P<noun>{re.escape(match["noun"])}(?:e?s)?)\b')

    def _read(self, text: str) -> Sentence:
        return read_sentence(text, self.labels, self.book.count)

    def _fail(self, what: str, labels: Labels = ()) -> None:
        known = self._known_of(labels) if labels else ''
        msg = f'"{self.sentence.text}": {what}{known}'
        raise _UnsupportedError(msg)

    def _known_of(self, labels: Labels) -> str:
        last = (self.book.sightings(labels) or [0])[-1]
        shown = texts_of(self.book.in_view(labels, last))
        of_map = [
            f'{v:.1f} m' for v in self.book.distances(labels)[:1]
        ] + [f'{v:.0f}° to the left' for v in self.book.bearings(labels)[:1]]
        parts = [f'[{last}] {"; ".join(shown)}'] * bool(shown) + [', '.join(of_map)] * bool(of_map)
        return f'; known: {" / ".join(parts)}' if parts else '; it was not seen'

    # Sentences.

    def check(self, text: str) -> None:
        """Check a sentence.

        Raises:
            _UnsupportedError: Something in it has no support.
        """
        self.sentence = sentence = self._read(text)
        self.angle = None
        self._check_refs()
        for mention in sentence.names:
            self._check_name(mention)
        self._check_strange()
        self._check_places()
        self._check_status()
        self._check_also()
        self._check_numbers()
        self._check_turns()
        self._check_comparison()
        own = [m.labels for m in sentence.names if m.labels]
        if own or sentence.refs or sentence.numbers or sentence.sides:
            self.checked.append(text)
        self.listed = len(own) or self.listed
        if own:
            self.subjects = list(dict.fromkeys(own))
        self.named += own
        letters = _LETTER.findall(text)
        self.letter = letters[-1] if letters else self.letter

    def _check_refs(self) -> None:
        refs = self.sentence.refs
        for ref in refs:
            if any(not 1 <= number <= self.book.count for number in ref.numbers):
                self._fail(f'there are {self.book.count} observations')
            self._check_shown(ref)
        for one, other in zip(refs, refs[1:], strict=False):
            between = self.sentence.text[one.end : other.start].lower()
            if re.fullmatch(r'[\s,(]*(?:(?:is|was|i\.?e[.,]?)\s+)?(?:the\s+)?(?:very\s+)?', between):
                if one.numbers != other.numbers:
                    self._fail('these are two observations')

    def _check_shown(self, ref: References) -> None:
        """Check 'it was seen in [3]', where no name stands by it."""
        start, end = self.sentence.clause(ref.start)
        names = [m for m in self.sentence.names if start <= m.start < end and m.labels]
        clause = self.sentence.clause_text(ref.start)
        if names or ref.is_soft or not _SHOWN.search(clause) or _NEGATED.search(clause):
            return
        subjects = self._subjects_at(ref.start, ref.end)[:1]
        seen = self.book.seen if _GONE.search(clause) else self.book.in_view
        for labels in subjects:
            for number in ref.numbers:
                if not seen(labels, number):
                    self._fail(f'[{number}] does not show it', labels)

    def _check_name(self, mention: Mention) -> None:
        if not mention.labels:
            if not _NEGATED.search(self.sentence.text.lower()):
                self._fail(f'I have not seen {mention.text}')
            return
        before = self.sentence.text[: mention.start].lower()
        many = re.search(r'\b(both|two|second|other|third)\s+$', before)
        least = {None: 1, 'third': 3}.get(many[1] if many else None, 2)
        if len(self.book.things(mention.labels)) < least:
            self._fail(f'there are fewer than {least} of them', mention.labels)
        if ref := self._ref_of(mention.start, mention.end):
            clause = self.sentence.clause_text(mention.start)
            head = self.sentence.text[min(ref.end, mention.start) : mention.start].lower()
            is_loose = bool(_GONE.search(clause) or _GONE.search(head) or _NEGATED.search(clause))
            seen = self.book.seen if is_loose else self.book.in_view
            missing = [n for n in ref.numbers if not seen(mention.labels, n)]
            is_any = ref.is_range and len(self.sentence.names) > 1
            if len(missing) > (len(ref.numbers) - 1) * is_any and not _NEGATED.search(clause):
                self._fail(f'[{missing[0]}] does not show {mention.text}', mention.labels)

    def _check_strange(self) -> None:
        """Check that what is said to be there is known, also where no vocabulary has its name."""
        text = self.sentence.text.lower()
        if _NEGATED.search(text):
            return
        is_free = any(m.labels for m in self.sentence.names) or not self.sentence.numbers
        found = [] if is_free else list(_SUBJECT.finditer(text))
        found += [m for m in _LISTED.finditer(text) if len(self.sentence.names) > 1]
        found += list(self._unknown.finditer(text)) if self._unknown else []
        for match in found:
            start, end = match.span('noun')
            is_name = any(m.start < end and start < m.end for m in self.sentence.names)
            is_ref = any(r.start < end and start < r.end for r in self.sentence.refs)
            words = {word.removesuffix('s') for word in match['noun'].split()} | set(match['noun'].split())
            if not (is_name or is_ref or words & _NEUTRAL):
                self._fail(f'I have not seen {match["noun"]}')

    def _ref_of(self, start: int, end: int) -> References | None:
        """The observation that governs a place of the sentence; None: none does for sure."""
        sentence = self.sentence
        first, last = sentence.clause(start)
        own = [r for r in sentence.refs if first <= r.start < last]
        if own:
            return None if own[0].is_soft else own[0]
        before = [r for r in sentence.refs if r.end <= start]
        if before:
            between = sentence.text[before[-1].end : start].lower()
            is_over = re.search(
                r';|\b(?:while|whereas|but|map|now|since|so|afterwards|then|beginning|start)\b',
                between + sentence.clause_text(start),
            )
            return None if is_over or before[-1].is_soft else before[-1]
        after = [r for r in sentence.refs if r.start >= end][:1]
        if after and not after[0].is_soft:
            between = sentence.text[end : after[0].start].lower()
            for mention in sentence.names:
                between = between.replace(mention.text, '')
            if re.fullmatch(r'(?:\W|\b(?:an?|the|and|in|also|were|was|are|is|both)\b)*', between):
                return after[0]
        return None

    def _subjects_at(self, start: int, end: int) -> list[Labels]:
        """What a claim at a place of the sentence may be about, the likeliest first."""
        names = [m for m in self.sentence.names if m.labels]
        first, last = self.sentence.clause(start)
        clause = self.sentence.clause_text(start)
        own = [m for m in names if first <= m.start < last]
        if own:
            before = [m for m in own if m.end <= start]
            return [before[-1].labels if before else own[0].labels]
        before = [m for m in names if m.end <= start]
        context = [*self.subjects[-1:], *self.asked]
        if re.search(r'\bboth\b|\beach\b', clause):
            context = [*self.subjects, *self.asked]
        if before:
            at, _ = self.sentence.clause(before[-1].start)
            first_name = next(m for m in before if m.start >= at)
            between = self.sentence.text[first_name.end : before[-1].start].lower()
            is_relative = clause.startswith('which')
            if not is_relative and re.search(r'\b(?:is|are|was|were|stands?|lies)\b', between):
                return [first_name.labels]
            is_pronoun = re.search(r'\b(?:it|its|them|they)\b', clause)
            return [before[-1].labels, *(m.labels for m in before[:-1] if is_pronoun)]
        after = [m.labels for m in names if m.start >= end][:1]
        return list(dict.fromkeys([*context, *after]))

    def _check_places(self) -> None:
        for start, x, y in self.sentence.places:
            names = [m for m in self.sentence.names if m.labels and m.end <= start]
            before = [m.labels for m in names[-1:]]
            is_far = not names or start - names[-1].end > 12 or ':' in self.sentence.text[names[-1].end : start]
            about = [(), *self.subjects, *self.asked, *(m.labels for m in names)] if is_far else before
            known = [place for labels in about for place in self.book.positions(labels)]
            if before and _SELF.search(self.sentence.clause_text(start)):
                known += self.book.positions(())
            if not any(close(x, p[0], 0.11) and close(y, p[1], 0.11) for p in known):
                self._fail(f'({x:g}, {y:g}) is not the place', *before)

    def _check_status(self) -> None:
        """Check what is said to be gone, new, present or moved."""
        text = self.sentence.text
        for pattern, kind in (
            (_GONE, 'gone'), (_NEW, 'new'), (_PRESENT, 'present'), (_MOVED, 'moved'),
        ):  # fmt: skip
            for match in pattern.finditer(text.lower()):
                clause = self.sentence.clause_text(match.start())
                if _NEGATED.search(clause) and kind != 'moved':
                    continue
                if kind == 'moved' and re.search(r'\b(?:i|we|nothing|not|camera)\b', clause):
                    continue
                subjects = self._subjects_at(match.start(), match.end())
                if not subjects:
                    continue
                ref = self._ref_of(match.start(), match.end()) or self._near_ref(match.start())
                if not any(self._has_status(each, kind, ref) for each in subjects[:1]):
                    self._fail(f'nothing shows that it is {kind}', subjects[0])

    def _check_also(self) -> None:
        """Check 'the chair was also last seen then'."""
        match = _ALSO_LAST.search(self.sentence.text.lower())
        names = [m.labels for m in self.sentence.names if m.labels]
        others = [each for each in (*self.subjects, *self.asked) if each not in names]
        if match and names and others:
            own, other = (self.book.measure(match[1], each) for each in (names[0], others[0]))
            if own != other:
                self._fail('it was seen at another time', names[0])

    def _near_ref(self, at: int) -> References | None:
        refs = [r for r in self.sentence.refs if r.end <= at and not r.is_soft]
        return refs[-1] if refs and ';' not in self.sentence.text[refs[-1].end : at] else None

    def _has_status(self, labels: Labels, kind: str, ref: References | None) -> bool:
        wanted = {'gone': ItemStatus.LEFT, 'new': ItemStatus.APPEARED, 'moved': ItemStatus.MOVED}
        things = self.book.things(labels)
        if kind == 'present':
            return any(not thing.is_gone for thing in things)
        if kind == 'gone' and not ref:
            of_map = re.search(r'\b(?:status|map|marked)\b', self.sentence.text.lower())
            if of_map or any(thing.is_gone for thing in things):
                return any(thing.is_gone for thing in things)
        numbers = ref.numbers if ref else range(1, self.book.count + 1)
        found = [
            any(i.status is wanted[kind] for i in self.book.seen(labels, n)) for n in numbers
        ]
        if kind == 'gone' and not ref:
            return any(found) and not self.book.in_view(labels, self.book.count)
        return all(found) if ref and kind != 'moved' else any(found)

    # Numbers and directions.

    def _check_numbers(self) -> None:
        claims = sorted(
            [*self.sentence.numbers, *self.sentence.sides], key=lambda each: each.start
        )
        results = self._check_sums()
        joint = _Joint()
        for claim in claims:
            if isinstance(claim, Number):
                if claim.start not in results:
                    self._check_number(claim, joint)
                else:
                    self._say(claim, self._subjects_at(claim.start, claim.end)[:1])
            else:
                self._check_side(claim, joint)

    def _check_sums(self) -> set[int]:
        """Check 'a + b = c'; returns where the results stand."""
        numbers, text = self.sentence.numbers, self.sentence.text
        results: set[int] = set()
        terms: list[tuple[str, Number]] = []
        for number, following in zip(numbers, [*numbers[1:], None], strict=False):
            terms = terms or [('+', number)]
            between = text[number.end : following.start].strip() if following else ''
            if following and between in ('+', '-', '\u2013', 'x', '*', '\u00d7', '/', 'plus', 'minus'):
                terms.append((between, following))
            elif following and between in ('=', '\u2248', 'is', 'makes', '=>') and len(terms) > 1:
                self._check_sum(terms, following)
                results.add(following.start)
                terms = []
            else:
                terms = []
        return results

    def _check_sum(self, terms: Sequence[tuple[str, Number]], result: Number) -> None:
        value, slack = 0.0, result.half
        for sign, number in terms:
            own = number.value if number.dimension == result.dimension else number.written
            slack += number.half
            if sign in ('x', '*', '\u00d7'):
                value *= own
            elif sign == '/':
                value = value / own if own else math.nan
            else:
                value += -own if sign in ('-', '\u2013', 'minus') else own
        slack = max(slack * 0.6, result.half * 1.1, 0.005 * abs(value))
        if not any(close(abs(value), abs(v), slack) for v in (result.value, result.written)):
            self._fail(f'it is {value:g}')
        if result.side in ('left', 'right'):
            subjects = self._subjects_at(result.start, result.end)
            if not self._is_fact(result, subjects, ()):
                self._fail(f'{result.text} to the {result.side} is not known')

    def _say(self, number: Number, subjects: Sequence[Labels]) -> None:
        labels = subjects[0] if subjects else ()
        clause = self.sentence.clause_text(number.start)
        if not self._names_in(number) and _TURN.search(clause) and _ROBOTS.search(clause):
            labels = _ROBOT
        said = _Said(number.value, number.dimension, number.half, number.side, labels)
        self.said = [*self.said, said][-_MOST_KNOWN:]

    def _check_number(self, number: Number, joint: _Joint) -> None:
        number = self._with_side(number)
        if _FREE.search(self.sentence.text[: number.start].lower()):
            self._say(number, [])
            return
        subjects = self._subjects_at(number.start, number.end)
        ref, is_hard = self._ref_of_number(number)
        both = re.search(r'\bboth\b', self.sentence.clause_text(number.start))
        numbers = ref.numbers if ref else ()
        each_of = [[each] for each in subjects] if both and not self.sentence.names else [subjects]
        is_known = all(
            self._is_in(number, those, ref, joint)
            if ref and is_hard
            else self._is_fact(number, those, numbers)
            for those in each_of
        )
        if not is_known:
            self._fail(f'nothing tells {number.text} {number.side}', subjects[0] if subjects else ())
        self._say(number, subjects)
        if number.dimension == 'angle' and number.side in ('left', 'right'):
            self.angle = (number, subjects[0]) if subjects and not ref else None

    def _with_side(self, number: Number) -> Number:
        """The number with the side of the list that it stands in: 'to the right: 40°, 65°'."""
        if number.side or number.dimension != 'angle' or self.sentence.names:
            return number
        before = re.findall(r'\b(left|right)\b', self.sentence.text[: number.start].lower())
        is_list = before and not re.search(r"=|\bthat's\b", self.sentence.text[: number.start])
        return replace(number, side=before[-1]) if is_list else number

    def _ref_of_number(self, number: Number) -> tuple[References | None, bool]:
        """The observation that a number is of, and whether it must be."""
        text = self.sentence.text
        for ref in self.sentence.refs:
            if ref.start >= number.end:
                between = text[number.end : ref.start].lower()
                words = r'left|right|up|down|ahead|away|off|to|the|my|me|from|turns?|still'
                if re.fullmatch(
                    rf'(?:\s|\b(?:{words})\b|°)*\s*\(?\s*(?:in|over|from|of|during|at|on)?\s*\(?',
                    between,
                ) and re.search(r'\b(?:in|over|from|of|during|at|on)\b|\(', between):
                    return ref, not ref.is_soft
                break
        before = [r for r in self.sentence.refs if r.end <= number.start]
        if not before:
            return None, False
        between = text[before[-1].end : number.start].lower()
        first, _ = self.sentence.clause(number.start)
        clause = self.sentence.clause_text(number.start)
        if before[-1].start < first and re.search(r'\bi\b', clause):
            if _TURN.search(clause) or _MOVE.search(clause):
                return before[-1], False
        if re.search(r'\bturn of\b', clause):
            return before[-1], False
        is_over = re.search(
            r'[;=]|\b(?:so|while|whereas|but|map|now|since|afterwards|then|beginning|start|total|'
            r'in all|sum|that makes|altogether|together|giving|adds? up)\b',
            between,
        )
        return before[-1], not (is_over or before[-1].is_soft)

    def _is_in(
        self, number: Number, subjects: Sequence[Labels], ref: References, joint: _Joint
    ) -> bool:
        """Tell whether an observation says a number."""
        clause = self.sentence.clause_text(number.start)
        if number.dimension == 'time':
            times = [self.book.times[n] for n in ref.numbers]
            return any(_near(number, t, 0.0) for t in times) or self._is_sum(number)
        if not number.dimension:
            return self._is_count(number, subjects, ref.numbers)
        is_own = bool(_TURN.search(clause) or _MOVE.search(clause)) or not self.sentence.names
        if is_own and self._is_motion(number, ref.numbers):
            return True
        is_list = re.search(r'\b(?:distances?|bearings?|directions?)\b', self.sentence.text.lower())
        for labels in subjects or [self.labels] * bool(is_list):
            if joint.narrow(self, labels, ref, number, lambda i: _fits(number, i)):
                return True
            between = self.sentence.text[ref.end : number.start].lower()
            is_size = number.dimension == 'length' and self._is_of_size(number)
            if (is_size or _PLACE_NOW.search(between)) and self._is_fact(number, [labels], ()):
                return True
        return False

    def _is_motion(self, number: Number, numbers: Iterable[int]) -> bool:
        """Tell whether observations say a number of the robot's motion; of several, together."""
        numbers = list(numbers)
        if number.dimension == 'angle':
            turns = self.book.turns(numbers)
            values = [sum(turns)] if len(numbers) > 1 else turns
            return any(_is_turned(number, value, 0.6) for value in values)
        moves = self.book.moves(numbers)
        if number.side:
            moves = [move for move in moves if move[0] == number.side]
        values = [sum(m for _, m in moves)] if len(numbers) > 1 else [m for _, m in moves]
        return any(_near(number, value, 0.0) for value in values)

    def _is_fact(self, number: Number, subjects: Sequence[Labels], numbers: Sequence[int]) -> bool:
        """Tell whether the scene states a number of one of some things, or of the robot."""
        if not number.dimension:
            return self._is_count(number, subjects, numbers)
        clause = self.sentence.clause_text(number.start)
        find = {'length': self._lengths, 'angle': self._angles, 'time': self._times}
        if number.dimension == 'area':
            area = self.book.scene.floor_area().value
            values = [area] if isinstance(area, float) else []
            values += [v for labels in subjects for v in self.book.areas(labels)]
        elif number.dimension in find:
            values = find[number.dimension](number, subjects, clause)
        else:
            return True
        if number.dimension == 'angle':
            slack = 5.0 if number.is_hedged else 3.0
            if any(_is_turned(number, value, slack) for value in values):
                return True
        elif any(_near(number, value, 0.02) for value in values):
            return True
        return number.side not in ('left', 'right') and self._is_sum(number)

    def _partners(self, number: Number, subjects: Sequence[Labels]) -> tuple[list[Labels], bool]:
        """Names that a number may relate the subject to, and whether it must."""
        names = [m for m in self.sentence.names if m.labels]
        text, rest = self.sentence.text, self.sentence.text[number.end :].lower()
        after = [m for m in names if m.start >= number.end][:1]
        before = [m for m in self._names_in(number) if m.end <= number.start]
        context = [m.labels for m in names if m.end <= number.start]
        context = [*reversed(context), *self.subjects, *self.asked]
        others = [each for each in dict.fromkeys(context) if each not in subjects[:1]]
        link = r'\s*(?:(?:away|off|apart)\s+)?(?:from|to)\s+(?:(?:the|an?|my)\s+)?(?:\w+\s+)?'
        if after and 'belong' not in text and re.fullmatch(link, text[number.end : after[0].start]):
            return [after[0].labels], bool(before) or after[0].labels not in subjects
        if re.match(r'\s*(?:away\s+)?from (?:me|us|here|my|where|the (?:robot|camera))\b', rest):
            return [], False
        if re.match(r'\s*(?:away\s+)?from (?:it|them)\b', rest):
            return others, True
        if len(before) > 1:
            between = text[before[-2].end : before[-1].start]
            if re.search(r'\b(?:to|from|of|and)\b|[-\u2013\u2192]', between):
                return [before[-2].labels], True
        return others, False

    def _lengths(self, number: Number, subjects: Sequence[Labels], clause: str) -> list[float]:
        book, text = self.book, self.sentence.text.lower()
        partners, must = self._partners(number, subjects)
        own_names = self._names_in(number)
        values: list[float] = []
        if number.side == 'backward':
            return [m for side, m in book.moves(book.items) if side == 'backward']
        if not own_names and (_MOVE.search(clause) or not self.sentence.names):
            values += book.motion_lengths()
        if 'half' in text[max(0, number.start - 40) : number.start]:
            values += [v / 2 for labels in subjects for v in book.sizes(labels)]
        if 'difference' in text:
            values += [v for s in [*subjects, *partners] for v in book.offsets(s)]
        if values and re.search(r'\bi\b', clause) and _MOVE.search(clause):
            return values
        if self._is_of_size(number):
            along = re.match(r'\s*in [xy]\b|\s*along', self.sentence.text[number.end :])
            if along:
                values += [v for s in subjects for v in book.offsets(s)]
                pairs = [(a, b) for a in [*subjects, *partners] for b in partners]
                values += [v for a, b in pairs for v in book.gaps(a, b, along=True)]
            return values + [v for labels in subjects for v in book.sizes(labels)]
        is_about_gaps = bool(self._asked_to()) or bool(_GAP.search(self.question.text.lower()))
        is_gap = must or bool(_GAP.search(clause)) or is_about_gaps
        along = bool(re.search(r'\b(?:along|axis|middles?|in [xyz])\b', text))
        for labels in subjects:
            for other in partners if is_gap else ():
                values += book.gaps(labels, other, along=along)
            if must or (self._asked_to() and not _ROBOTS.search(text) and not self.sentence.refs):
                continue
            values += self._distances(labels, text)
            if re.search(rf'{_SIZE.pattern}|\b(?:bigg|larg|small)', self.question.text.lower()):
                values += book.sizes(labels)
        return values

    def _distances(self, labels: Labels, text: str) -> list[float]:
        """How far a thing is or was, where it was in the direction that was said before."""
        book, angle = self.book, self.angle
        of_map = re.search(r'\bmap\b', text) and not self.sentence.refs
        if angle and angle[1] == labels and not of_map:
            items = (i for n in book.items for i in book.in_view(labels, n))
            own = [i.distance_m for i in items if _fits(angle[0], i)]
            now = [v for v in book.bearings(labels) if _is_turned(angle[0], v, 5.0)]
            return [*own, *(book.distances(labels) if now else [])]
        values = book.distances(labels)
        return values if of_map else values + book.observed_distances(labels)

    def _names_in(self, number: Number) -> list[Mention]:
        start, end = self.sentence.clause(number.start)
        return [m for m in self.sentence.names if start <= m.start < end and m.labels]

    def _is_of_size(self, number: Number) -> bool:
        """Tell whether a length is said to be an extent: '2 m wide', 'measures 2 m'."""
        after = self.sentence.text[number.end :].lower()
        if _SIZE_AFTER.match(after):
            return True
        names = [m.end for m in self.sentence.names if m.end <= number.start]
        before = self.sentence.text[max(names, default=0) : number.start].lower()
        is_size = _SIZE.search(before) or re.search(r'\d\s*c?m?\s*(?:by|x|\u00d7)\s*$', before)
        return bool(is_size) and not _APART.match(after)

    def _angles(self, number: Number, subjects: Sequence[Labels], clause: str) -> list[float]:
        book, text = self.book, self.sentence.text.lower()
        own_names = self._names_in(number)
        is_turn = bool(_TURN.search(clause)) and not own_names
        if re.search(r'\bstart\b(?! of| with)', text[: number.start]) and not own_names:
            return book.start_bearings()
        values = book.motion_angles() if is_turn or not self.sentence.names else []
        if is_turn and re.search(r'\b(?:turned|i)\b', clause):
            return values
        if number.side in ('up', 'down'):
            items = [i for s in subjects for n in book.items for i in book.in_view(s, n)]
            sign = 1 if number.side == 'up' else -1
            return [sign * math.degrees(i.elevation_rad) for i in items]
        partners, must = self._partners(number, subjects)
        names = list(dict.fromkeys([*partners, *subjects[:1], *self.asked]))
        for labels in subjects:
            values += [v for other in partners for v in book.headings(labels, other)]
            if must:
                continue
            values += [*book.bearings(labels), *book.stances(labels, self._stances(names[:4]))]
            if not re.search(r'\bmap\b', text):
                values += book.observed_bearings(labels)
        return values

    def _times(self, number: Number, subjects: Sequence[Labels], clause: str) -> list[float]:
        del number
        times = [self.book.times[n] for r in self.sentence.refs for n in r.numbers]
        values = [abs(a - b) for a in times for b in times if a != b]
        context = list(dict.fromkeys([*self.subjects, *self.asked, *subjects]))
        if re.search(r'\b(?:later|earlier|after|before|between)\b', self.sentence.text.lower()):
            firsts = [self.book.measure('first', labels) / 1e9 for labels in context]
            values += [abs(a - b) for a in firsts for b in firsts]
        values += [v for labels in subjects for v in self.book.moments(labels)]
        has_end = re.search(r'\b(?:end\w*|last observation|start|now|path|long)\b', clause)
        return values + (self.book.moments_of_all() if has_end or not subjects else [])

    def _stances(self, names: Sequence[Labels]) -> list[tuple[Labels, Labels]]:
        """Where somebody may stand and what be faced: as the question says, else any two."""
        before = [(self.question.text[: m.start].lower(), m.labels) for m in self.question.names]
        at = [name for text, name in before if name and _STANDING.search(text)]
        facing = [name for text, name in before if name and _FACING.search(text)]
        if at and facing and at[0] != facing[0]:
            return [(at[0], facing[0])]
        return [(a, b) for a in names for b in names if a != b]

    def _is_sum(self, number: Number) -> bool:
        """Tell whether a number was said before, or follows from those that were."""
        text = self.sentence.text.lower()
        same = [s for s in self.said if s.dimension == number.dimension]
        exact = max(min(number.half * 1.1, 0.04 * abs(number.value)), 1e-6)
        if number.side == 'backward' or self._is_size_of_thing(number):
            return False
        subjects = [(), _ROBOT, *self._subjects_at(number.start, number.end)]
        is_term = re.search(r'[-+=]\s*$', text[: number.start]) or re.match(
            r'\s*[-+=]', text[number.end :]
        )
        is_free = not self.sentence.names or is_term
        own = [s for s in same if s.labels in subjects or is_free]
        if any(close(number.value, s.value, exact) for s in own):
            return not self._ref_of_number(number)[1] or 'at' not in text
        if not _SUM.search(text):
            return False
        values = sums([s.value for s in same[-12:]], with_products='x' in text)
        return any(close(abs(number.value), abs(value), exact) for value in values)

    def _is_size_of_thing(self, number: Number) -> bool:
        return number.dimension == 'length' and self._is_of_size(number) and not _MOVE.search(
            self.sentence.text.lower()
        )

    def _is_count(self, number: Number, subjects: Sequence[Labels], refs: Sequence[int]) -> bool:
        """Tell whether a bare number is a count of something, or was said before."""
        book, text = self.book, self.sentence.text.lower()
        after = text[number.end :]
        following = [
            m for m in self.sentence.names
            if 0 <= m.start - number.end <= 14
            and not re.search(r'[,;.:]| for ', text[number.end : m.start])
        ]  # fmt: skip
        in_sum = re.match(r'\s*[-+*/x=<>\u2013\u00d7]', after) or re.search(
            r'[-+*/x=<>\u2013\u00d7]\s*$', text[: number.start]
        )
        if in_sum:
            amounts = [*book.motion_lengths(), *map(abs, book.motion_angles())]
            known = [s.value for s in self.said] + amounts + book.motion_counts()
            if any(close(number.value, value, number.half * 1.05) for value in known):
                return True
            for dimension in ('length', 'angle', 'time'):
                if self._is_fact(replace(number, dimension=dimension), subjects, ()):
                    return True
            if number.value in _FACTORS:
                return True
        if _ALL.match(after):
            listed = [len(book.items[n]) for n in refs]
            listed += [sum(i.status is not ItemStatus.LEFT for i in book.items[n]) for n in refs]
            names = [len(self.sentence.names), len(set(self.named))]
            return number.value in [*book.place_counts(), *map(float, listed + names)]
        if following and following[0].labels:
            labels = following[0].labels
            shown = [len(book.in_view(labels, n)) for n in refs or book.items]
            known = book.counts(labels) + [float(n) for n in (shown if refs else [])]
            return number.value in known
        if re.match(r'\s*of (?:them|the|these|those)\b', after):
            return any(number.value <= max(book.counts(s)) for s in subjects)
        return number.value in self._bare_counts(subjects, refs, after)

    def _bare_counts(
        self, subjects: Sequence[Labels], refs: Sequence[int], after: str
    ) -> list[float]:
        book, text = self.book, self.sentence.text.lower()
        if re.match(r'\W*(?:turns?|rotations?|moves?|steps?)\b', after):
            return book.motion_counts()
        values = [s.value for s in self.said if not s.dimension]
        is_times = _TIMES.search(text) or _TIMES.search(self.question.text.lower())
        for labels in subjects:
            values += book.counts(labels)
            values += book.times_seen(labels) if is_times else []
            values += [float(len(book.in_view(labels, n))) for n in refs]
        if re.match(r'\W*(?:observations?|keyframes?|frames?|views?|images?)\b', after):
            values += book.path_counts() * (not subjects or 'the' in text)
        values += [float(len(r.numbers)) for r in self.sentence.refs] + [float(self.listed)]
        if not self.sentence.names and re.search(_ALL.pattern[3:], self.question.text.lower() + text):
            values += book.place_counts()
        is_turns = 'turn' in text or 'turn' in self.question.text.lower()
        values += book.motion_counts() if not self.sentence.names and is_turns else []
        recent = [s.value for s in self.said[-12:]]
        if re.search(r'[=<>+]|\bis the (?:larg|small|great)|\bso\b', text):
            values += recent
        return values + (book.motion_counts() if re.search(r'[=+]', text) else [])

    def _check_side(self, side: Side, joint: _Joint) -> None:
        subjects = self._subjects_at(side.start, side.end)[:1]
        clause = self.sentence.clause_text(side.start)
        if not subjects or _TURN.search(clause) or re.search(r'\b(?:start|side of)\b', clause):
            return
        labels = subjects[0]
        ref = self._ref_of(side.start, side.end)
        if ref:
            is_known = joint.narrow(
                self, labels, ref, side, lambda i: _is_side(side.side, math.degrees(i.bearing_rad), 12)
            )
        else:
            said = [s.side for s in self.said if s.labels == labels and s.side in ('left', 'right')]
            stances = self.book.stances(labels, self._stances(self.asked))
            is_stance = bool(stances) and not re.search(r'\b(?:me|my|now)\b', clause)
            known = stances if is_stance else [*self.book.bearings_now(labels), *stances]
            if not known or re.search(r'\b(?:was|were|had|stood)\b', clause):
                known = [*known, *self.book.observed_bearings(labels)]
            if said and re.match(r'\W*(?:that|this|which)\b', self.sentence.text.lower()):
                known = [v for v in known if _is_side(said[-1], v, 45)]
            is_known = any(_is_side(side.side, value, 45) for value in known)
        if not is_known:
            self._fail(f'it is not {side.side}', labels)
        self.said.append(_Said(math.nan, 'side', 0.0, side.side, labels))

    def _check_turns(self) -> None:
        """Check what the robot is said to have done at observations, without an amount."""
        text = self.sentence.text.lower()
        still = _STILL.search(text)
        if still:
            refs = [r for r in self.sentence.refs if not r.is_soft]
            numbers = refs[-1].numbers if refs else ()
            if any('moved' in self.book.actions(n) for n in numbers):
                self._fail('I moved there')
        header = re.match(r'\W*(left|right) turns?\b|\W*to the (left|right)\b', text)
        if header and not self.sentence.names:
            action = f'turned {header[1] or header[2]}'
            for ref in self.sentence.refs:
                if any(action not in self.book.actions(n) for n in ref.numbers):
                    self._fail(f'I have not {action} there')

    def _check_comparison(self) -> None:
        """Check 'the chair is nearer'."""
        text = self.sentence.text.lower()
        names = [m for m in self.sentence.names if m.labels]
        wins = re.search(r'\bwins\b', text)
        rules = [(p, w, s) for p, w, s in _COMPARE if (m := p.search(text)) and m]
        if wins and not rules:
            rules = self._rules_of_question()
            at = wins.start()
        elif rules:
            match = rules[0][0].search(text)
            at = match.start() if match else 0
        if not rules or not names or _HYPOTHETIC.search(text):
            return
        _, what, sign = rules[0]
        before = [m for m in names if m.end <= at]
        after = [m for m in names if m.start >= at]
        subject = (before[-1:] or after[:1])[0]
        rest = [m for m in after if m is not subject]
        to = next((m.labels for m in rest if _is_to(text, at, m)), ())
        than = [m.labels for m in rest if m.labels != to and 'than' in text[at : m.start]]
        others = than or [each for each in self._choices() if each not in (to, subject.labels)]
        start, end = self.sentence.clause(at)
        refs = [r.numbers[0] for r in self.sentence.refs if start <= r.start < end]
        number = refs[0] if refs else self._asked_number()
        to = to or (self._asked_to() if what == 'distance' and not than else ())
        self._compare(what, sign, subject.labels, others, (to, number))

    def _compare(
        self, what: str, sign: int, labels: Labels, others: Iterable[Labels],
        by: tuple[Labels, int],
    ) -> None:  # fmt: skip
        own = self.book.measure(what, labels, *by)
        for each in others:
            if each in (labels, by[0]):
                continue
            other = self.book.measure(what, each, *by)
            if sign * (own - other) < -0.02 * abs(other) - 1e-6:
                self._fail(f'{each[0]} is before it by {what} ({other:.3g}, not {own:.3g})', labels)

    def _rules_of_question(self) -> list[tuple[re.Pattern[str], str, int]]:
        text = self.question.text.lower()
        return [rule for rule in (*_COMPARE, *_IN_TIME) if rule[0].search(text)]

    def _choices(self) -> list[Labels]:
        """The names among which the question asks to choose."""
        options = [m.labels for o in self.options for m in self._read(o).names if m.labels]
        to = self._asked_to()
        return options or [labels for labels in self.asked if labels != to]

    def _asked_to(self) -> Labels:
        text = self.question.text.lower()
        return next((m.labels for m in self.question.names if _is_to(text, 0, m)), ())

    def _asked_number(self) -> int:
        refs = [r for r in self.question.refs if not r.is_soft]
        return refs[0].numbers[0] if refs and refs[0].numbers[0] <= self.book.count else 0

    # The answer.

    def conclude(self, answer: str, expected: Result | None) -> None:
        """Check that the answer follows, and is of the kind that was asked for.

        Raises:
            _UnsupportedError: It is not.
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
        if _YES_NO.match(question) and not is_open:
            if not re.match(r'\W*(?:yes|no)\b', text.lower()):
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

    def _check_answer_numbers(self, said: Sequence[_Said]) -> None:
        question = self.question.text.lower()
        how_many = _HOW_MANY.search(question)
        before = None
        for number in self.sentence.numbers:
            if before and self.sentence.text[before.end : number.start].strip(' aboutr=~') == '(':
                if before.dimension == number.dimension and not close(
                    before.value, number.value, 0.03 * abs(before.value)
                ):
                    self._fail(f'{before.text} is not {number.text}')
            before = number
            unit = unit_in(question) if not number.dimension else None
            same = [
                s for s in said
                if s.side in ('', number.side) or not number.side or s.dimension != number.dimension
            ]  # fmt: skip
            is_said = any(_is_same(number, s, unit) for s in same)
            if not is_said and (said or not self._is_fact(number, self.asked, ())):
                self._fail(f'the reasoning does not give {number.text}')
            if how_many and not number.dimension and len(self.sentence.numbers) == 1:
                self._check_how_many(number)

    def _check_how_many(self, number: Number) -> None:
        what = _HOW_MANY.search(self.question.text.lower())
        asked = [m for m in self.question.names if what and m.start <= what.end() + 12 and m.labels]
        if asked and number.value not in self.book.counts(asked[0].labels):
            self._fail(f'there are {self.book.counts(asked[0].labels)[0]:.0f}')

    def _check_answer_sides(self, text: str, said: Sequence[_Said]) -> None:
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
        names = [m for m in self.sentence.names]
        known = {*self.named, *self.asked}
        for mention in names:
            if not mention.labels and not _NEGATED.search(self.sentence.text.lower()):
                self._fail(f'I have not seen {mention.text}')
            if mention.labels and self.named and not any(
                set(mention.labels) & set(k) for k in known
            ):
                self._fail(f'the reasoning does not name {mention.text}')
        rules = self._rules_of_question()
        labels = [m.labels for m in names if m.labels]
        if rules and labels and not self.sentence.numbers:
            _, what, sign = rules[0]
            others = self._choices() if len(self._choices()) > 1 else self._all()
            is_of_time = rules[0] in _IN_TIME and len(self._choices()) < 2
            if is_of_time and not re.search(r'\bsee (?:first|last)|\bfirst thing', self.question.text):
                return
            to = self._asked_to() if what == 'distance' else ()
            self._compare(what, sign, labels[0], others, (to, self._asked_number()))

    def _all(self) -> list[Labels]:
        return [(label,) for label in self.labels]

    def _check_last_option(self, index: int, said: Sequence[_Said]) -> None:
        """Check that no other option was said after the one of the answer."""
        last: dict[int, int] = {}
        for number, option in enumerate(self.options):
            read = self._read(option)
            words = {w for w in re.findall(r'\b(left|right|ahead|behind)\b', option.lower())}
            for place, each in enumerate(said):
                is_of = each.labels in self.asked or not each.labels or not self.asked
                if read.numbers and all(_is_same(n, each, None) for n in read.numbers[:1]):
                    if not words or not each.side or each.side in words:
                        last[number] = place
                elif not read.numbers and is_of and each.side in words:
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
            if expected.unit == 'deg' and any(_is_side(w, value, 45) for w in words):
                return
            self._fail(f'the tools say: {expected.text}')
            return
        full = Quantity(value * 1.0, truth.dimension, truth.factor) if truth else Quantity(value)
        pair = compared_values(quantity, full, unit_in(self.question.text))
        slack = expected.margin * (truth.factor if truth and quantity.dimension else 1.0)
        if pair is None or not close(abs(pair[0]), abs(pair[1]), slack + 0.02 * abs(pair[1])):
            self._fail(f'the tools say: {expected.text}')


class _Joint:
    """What one observation says of one thing must be said by one and the same item."""

    def __init__(self) -> None:
        self._key: tuple[Labels, tuple[int, ...]] | None = None
        self._items: dict[int, list[Item]] = {}
        self._kinds: set[str] = set()
        self._end = 0

    def narrow(
        self, checker: _Checker, labels: Labels, ref: References, claim: Number | Side, fits: Callable[[Item], bool]
    ) -> bool:
        """Tell whether an item of each observation fits this claim and those before it."""
        between = checker.sentence.text[self._end : claim.start].lower()
        kind = 'side'
        if isinstance(claim, Number):
            is_up = claim.side in ('up', 'down')
            kind = 'up' if is_up else 'side' if claim.dimension == 'angle' else 'length'
        if (labels, ref.numbers) != self._key or kind in self._kinds or _AGAIN.search(between):
            items = {n: checker.book.in_view(labels, n) for n in ref.numbers}
            self._key, self._items, self._kinds = (labels, ref.numbers), items, set()
        found = {n: [i for i in items if fits(i)] for n, items in self._items.items()}
        is_known = bool(found) and all(found.values())
        if is_known:
            self._items, self._end = found, claim.end
            self._kinds.add(kind)
        return is_known


def _fits(number: Number, item: Item) -> bool:
    if number.dimension == 'length':
        return _near(number, item.distance_m, 0.0)
    if number.side in ('up', 'down'):
        sign = 1 if number.side == 'up' else -1
        return close(sign * number.value, math.degrees(item.elevation_rad), 3.0)
    return _is_turned(number, math.degrees(item.bearing_rad), 3.0)


def _near(number: Number, truth: float, share: float) -> bool:
    share = max(share, 0.05 if number.is_hedged else 0.0)
    half = min(number.half * 1.1, 0.12 * abs(number.value) + 1e-6)
    return close(abs(number.value), abs(truth), max(half, share * abs(truth)))


def _is_turned(number: Number, truth: float, slack: float) -> bool:
    slack = max(slack, number.half)
    if number.side in ('left', 'right'):
        return close(number.value * (1 if number.side == 'left' else -1), truth, slack)
    return close(abs(number.value), abs(truth), slack)


def _is_side(side: str, degrees: float, ahead: float) -> bool:
    """Tell whether a bearing is on a side."""
    off = abs(degrees)
    return {
        'left': 2.5 < degrees < 177.5,
        'right': -177.5 < degrees < -2.5,
        'ahead': off <= ahead,
        'behind': off >= 100,
    }.get(side, True)


def _is_same(number: Number, said: _Said, unit: Quantity | None) -> bool:
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


def _is_to(text: str, at: int, mention: Mention) -> bool:
    """Tell whether a name is what a comparison is measured from: 'nearest to the chair'."""
    before = text[at : mention.start]
    return bool(re.search(r'\b(?:to|from)\s+(?:the\s+|an?\s+|my\s+)?(?:\w+\s+)?$', before))
