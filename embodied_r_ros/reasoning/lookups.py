# SPDX-License-Identifier: Apache-2.0
"""Which numbers of a scene the words around a number may mean."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING

from embodied_r_ros.reasoning.check_context import Context, Labels, ROBOTS, TURN
from embodied_r_ros.reasoning.claims import close, Number

if TYPE_CHECKING:
    from collections.abc import Sequence

    from embodied_r_ros.types.deltas import Item

MOVE = re.compile(
    r'\b(?:mov\w+|forward|backward|went|go|drove|walk\w*|travel\w*|way|path|came|advanc\w+)\b'
)
_SIZE = re.compile(
    r'\b(?:wide|tall\w*|high\w*|long|deep|height|length|width|depth|size\w*|measur\w+|across|'
    r'extents?|dimensions?|large|big)\b'
)
_SIZE_AFTER = re.compile(
    r'[\s(]*(?:in (?:x|y|z|height|length|width|depth|size)|wide|tall|high|long|deep|across|by|x)\b'
)
_SIZE_ASKED = re.compile(rf'{_SIZE.pattern}|\b(?:bigg|larg|small)')
_APART = re.compile(r'\s*(?:away|apart|from|off|between|to)\b')
_GAP = re.compile(
    r'\b(?:apart|between|from|edges?|close to|near|next to|gap|distance|beside|to the|middles?)\b'
)


class Lookups(Context):
    """Finds the facts that a number in a sentence may be."""

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
        if (
            after
            and 'belong' not in text
            and re.fullmatch(link, text[number.end : after[0].start])
        ):
            return [after[0].labels], bool(before) or after[0].labels not in subjects
        if re.match(r'\s*(?:away\s+)?from (?:me|us|here|my|where|the (?:robot|camera))\b', rest):
            return [], False
        if re.match(r'\s*(?:away\s+)?from (?:it|them)\b', rest):
            return others, True
        if len(before) > 1:
            between = text[before[-2].end : before[-1].start]
            if re.search(r'\b(?:to|from|of|and)\b|->|-', between):
                return [before[-2].labels], True
        return others, False

    def _lengths(self, number: Number, subjects: Sequence[Labels], clause: str) -> list[float]:
        book = self.book
        if number.side == 'backward':
            return [m for side, m in book.moves(book.items) if side == 'backward']
        partners, must = self._partners(number, subjects)
        values = self._derived(number, [*subjects, *partners], clause)
        if values and re.search(r'\bi\b', clause) and MOVE.search(clause):
            return values
        if self._is_of_size(number):
            values += self._along_axes(number, subjects, partners)
            return values + [v for labels in subjects for v in book.sizes(labels)]
        return values + self._apart(subjects, partners, clause, must=must)

    def _derived(self, number: Number, names: Sequence[Labels], clause: str) -> list[float]:
        """Motions, halves of sizes, and offsets along the axes, where the words are of these."""
        text = self.sentence.text.lower()
        values: list[float] = []
        if not self._names_in(number) and (MOVE.search(clause) or not self.sentence.names):
            values += self.book.motion_lengths()
        if 'half' in text[max(0, number.start - 40) : number.start]:
            values += [v / 2 for labels in names for v in self.book.sizes(labels)]
        if 'difference' in text:
            values += [v for labels in names for v in self.book.offsets(labels)]
        return values

    def _along_axes(
        self, number: Number, subjects: Sequence[Labels], partners: Sequence[Labels]
    ) -> list[float]:
        if not re.match(r'\s*in [xy]\b|\s*along', self.sentence.text[number.end :]):
            return []
        values = [v for labels in subjects for v in self.book.offsets(labels)]
        pairs = [(a, b) for a in [*subjects, *partners] for b in partners]
        return values + [v for a, b in pairs for v in self.book.gaps(a, b, along=True)]

    def _apart(
        self, subjects: Sequence[Labels], partners: Sequence[Labels], clause: str, *, must: bool
    ) -> list[float]:
        """How far things are from one another, from the robot and from the start."""
        text, question = self.sentence.text.lower(), self.question.text.lower()
        is_gap = must or _GAP.search(clause) or self._asked_to() or _GAP.search(question)
        along = bool(re.search(r'\b(?:along|axis|middles?|in [xyz])\b', text))
        is_only_gap = self._asked_to() and not ROBOTS.search(text) and not self.sentence.refs
        values: list[float] = []
        for labels in subjects:
            for other in partners if is_gap else ():
                values += self.book.gaps(labels, other, along=along)
            if not (must or is_only_gap):
                values += self._distances(labels, text)
                values += self.book.sizes(labels) if _SIZE_ASKED.search(question) else []
        return values

    def _distances(self, labels: Labels, text: str) -> list[float]:
        """How far a thing is or was, where it was in the direction that was said before."""
        book, angle = self.book, self.angle
        of_map = re.search(r'\bmap\b', text) and not self.sentence.refs
        if angle and angle[1] == labels and not of_map:
            items = (i for n in book.items for i in book.in_view(labels, n))
            own = [i.distance_m for i in items if fits(angle[0], i)]
            now = [v for v in book.bearings(labels) if is_turned(angle[0], v, 5.0)]
            return [*own, *(book.distances(labels) if now else [])]
        values = book.distances(labels)
        return values if of_map else values + book.observed_distances(labels)

    def _is_of_size(self, number: Number) -> bool:
        """Tell whether a length is said to be an extent: '2 m wide', 'measures 2 m'."""
        after = self.sentence.text[number.end :].lower()
        if _SIZE_AFTER.match(after):
            return True
        names = [m.end for m in self.sentence.names if m.end <= number.start]
        before = self.sentence.text[max(names, default=0) : number.start].lower()
        is_size = _SIZE.search(before) or re.search(r'\d\s*c?m?\s*(?:by|x)\s*$', before)
        return bool(is_size) and not _APART.match(after)

    def _angles(self, number: Number, subjects: Sequence[Labels], clause: str) -> list[float]:
        book, text = self.book, self.sentence.text.lower()
        own_names = self._names_in(number)
        is_turn = bool(TURN.search(clause)) and not own_names
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


def fits(number: Number, item: Item) -> bool:
    """Tell whether an item of an observation has a number."""
    if number.dimension == 'length':
        return near(number, item.distance_m, 0.0)
    if number.side in ('up', 'down'):
        sign = 1 if number.side == 'up' else -1
        return close(sign * number.value, math.degrees(item.elevation_rad), 3.0)
    return is_turned(number, math.degrees(item.bearing_rad), 3.0)


def near(number: Number, truth: float, share: float) -> bool:
    """Tell whether a number is a truth as it is rounded, or within a share of it."""
    share = max(share, 0.05 if number.is_hedged else 0.0)
    half = min(number.half * 1.1, 0.12 * abs(number.value) + 1e-6)
    return close(abs(number.value), abs(truth), max(half, share * abs(truth)))


def is_turned(number: Number, truth: float, slack: float) -> bool:
    """Tell whether an angle is a truth, on its side where it has one [degrees]."""
    slack = max(slack, number.half)
    if number.side in ('left', 'right'):
        return close(number.value * (1 if number.side == 'left' else -1), truth, slack)
    return close(abs(number.value), abs(truth), slack)
