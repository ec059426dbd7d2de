# SPDX-License-Identifier: Apache-2.0
"""What the checks of a completion share: the question, and what was said so far of what."""

from __future__ import annotations

from dataclasses import dataclass
import re
from typing import TYPE_CHECKING

from embodied_r_ros.reasoning.claims import Number, read_sentence
from embodied_r_ros.reasoning.facts import FactBook, texts_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from embodied_r_ros.reasoning.claims import Mention, References, Sentence

_LONGEST = 1000  # characters of a sentence that is checked
_MOST_NUMBERS = 40  # of a sentence that is checked
_MOST_KNOWN = 200  # numbers that were said
Labels = tuple[str, ...]
TURN = re.compile(
    r'\b(?:turn(?:s|ed|ing)?(?! up)|facing|rotat\w*|heading|swung|spun|(?:left|right) sum|'
    r'balance)\b'
)
ROBOTS = re.compile(r"\b(?:i|i've|i'm|my|me|we|robot|camera|you|here)\b")
_STANDING = re.compile(r'\b(?:at|by|beside|next to|from|near)\s+(?:the\s+)?$')
_FACING = re.compile(r'\b(?:fac(?:e|es|ing)|towards?|look(?:s|ing)? at)\s+(?:the\s+)?$')
ROBOT = ('',)  # as what something was said of
_ASKED_NOUN = re.compile(
    r'\b(?:see|saw|seen|there|where(?: is|\'s| are)?)\s+(?:an?|any|the)\s+'
    r'(?P<noun>[a-z]+(?:\s(?!is\b|was\b|in\b|here\b|on\b|anywhere\b|at\b|around\b)[a-z]+)?)'
)
# What compares things, by which number of theirs, and whether the larger one wins.
COMPARE = tuple(
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
IN_TIME = tuple(
    (re.compile(rf'\b(?:{words})\b'), what, sign)
    for words, what, sign in (
        (r'first|earlier|earliest|before|sooner', 'first', -1),
        (r'last|latest|most recently', 'last', 1),
        (r'later', 'first', 1),
    )
)


class UnsupportedError(Exception):
    """A sentence has no support; the message says why."""


@dataclass(frozen=True)
class Said:
    """A number or direction that was said and has support."""

    value: float
    dimension: str
    half: float
    side: str
    labels: Labels  # of what


class Context:
    """Reads sentences, and knows what was said before."""

    def __init__(self, book: FactBook, question: str, options: Sequence[str]) -> None:
        self.book = book
        self.labels = book.scene.labels
        self.question = self._read(question)
        self.asked: list[Labels] = list(
            dict.fromkeys(m.labels for m in self.question.names if m.labels)
        )
        self.options = list(options)
        self._unknown = _unknown_nouns(self.question)
        self.checked: list[str] = []
        self.said: list[Said] = []
        self.subjects: list[Labels] = []  # that the last sentence with names was about
        self.letter = ''
        self.listed = 0  # names in the last sentence with names
        self.angle: tuple[Number, Labels] | None = None
        self.named: list[Labels] = []
        self.sentence = self.question

    def _read(self, text: str) -> Sentence:
        if len(text) > _LONGEST:
            msg = f'a sentence of {len(text)} characters: more than {_LONGEST} are not checked'
            raise UnsupportedError(msg)
        sentence = read_sentence(text, self.labels, self.book.count)
        if len(sentence.numbers) > _MOST_NUMBERS:
            msg = f'a sentence of more than {_MOST_NUMBERS} numbers is not checked'
            raise UnsupportedError(msg)
        return sentence

    def _fail(self, what: str, labels: Labels = ()) -> None:
        known = self._known_of(labels) if labels else ''
        msg = f'"{self.sentence.text}": {what}{known}'
        raise UnsupportedError(msg)

    def _known_of(self, labels: Labels) -> str:
        last = (self.book.sightings(labels) or [0])[-1]
        shown = texts_of(self.book.in_view(labels, last))
        of_map = [f'{v:.1f} m' for v in self.book.distances(labels)[:1]] + [
            f'{v:.0f}° to the left' for v in self.book.bearings(labels)[:1]
        ]
        parts = [f'[{last}] {"; ".join(shown)}'] * bool(shown) + [', '.join(of_map)] * bool(of_map)
        return f'; known: {" / ".join(parts)}' if parts else '; it was not seen'

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

    def _near_ref(self, at: int) -> References | None:
        refs = [r for r in self.sentence.refs if r.end <= at and not r.is_soft]
        return refs[-1] if refs and ';' not in self.sentence.text[refs[-1].end : at] else None

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

    def _names_in(self, number: Number) -> list[Mention]:
        start, end = self.sentence.clause(number.start)
        return [m for m in self.sentence.names if start <= m.start < end and m.labels]

    def _stances(self, names: Sequence[Labels]) -> list[tuple[Labels, Labels]]:
        """Where somebody may stand and what be faced: as the question says, else any two."""
        before = [(self.question.text[: m.start].lower(), m.labels) for m in self.question.names]
        at = [name for text, name in before if name and _STANDING.search(text)]
        facing = [name for text, name in before if name and _FACING.search(text)]
        if at and facing and at[0] != facing[0]:
            return [(at[0], facing[0])]
        return [(a, b) for a in names for b in names if a != b]

    def _choices(self) -> list[Labels]:
        """The names among which the question asks to choose."""
        options = [m.labels for o in self.options for m in self._read(o).names if m.labels]
        to = self._asked_to()
        return options or [labels for labels in self.asked if labels != to]

    def _asked_to(self) -> Labels:
        text = self.question.text.lower()
        return next((m.labels for m in self.question.names if is_to(text, 0, m)), ())

    def _rules_of_question(self) -> list[tuple[re.Pattern[str], str, int]]:
        text = self.question.text.lower()
        return [rule for rule in (*COMPARE, *IN_TIME) if rule[0].search(text)]

    def _say(self, number: Number, subjects: Sequence[Labels]) -> None:
        labels = subjects[0] if subjects else ()
        clause = self.sentence.clause_text(number.start)
        if not self._names_in(number) and TURN.search(clause) and ROBOTS.search(clause):
            labels = ROBOT
        said = Said(number.value, number.dimension, number.half, number.side, labels)
        self.said = [*self.said, said][-_MOST_KNOWN:]


def is_to(text: str, at: int, mention: Mention) -> bool:
    """Tell whether a name is what a comparison is measured from: 'nearest to the chair'."""
    before = text[at : mention.start]
    return bool(re.search(r'\b(?:to|from)\s+(?:the\s+|an?\s+|my\s+)?(?:\w+\s+)?$', before))


def _unknown_nouns(question: Sentence) -> re.Pattern[str] | None:
    """What a question whether something is there asks for, where it is no known name."""
    match = _ASKED_NOUN.search(question.text.lower())
    if not match or any(m.start < match.end('noun') for m in question.names if m.labels):
        return None
    return re.compile(rf'\b(?P<noun>{re.escape(match["noun"])}(?:e?s)?)\b')
