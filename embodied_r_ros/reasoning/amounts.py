# SPDX-License-Identifier: Apache-2.0
"""Checks of numbers and directions: each needs a fact of the scene, or follows from others."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
import math
import re
from typing import TYPE_CHECKING

from embodied_r_ros.reasoning.check_context import Labels, ROBOT, Said, TURN
from embodied_r_ros.reasoning.claims import close, Number
from embodied_r_ros.reasoning.facts import sums
from embodied_r_ros.reasoning.lookups import fits, is_turned, Lookups, MOVE, near
from embodied_r_ros.types.deltas import ItemStatus

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from embodied_r_ros.reasoning.claims import References, Side
    from embodied_r_ros.types.deltas import Item

# Numbers that are no claims about the scene: bounds, and what a unit is in another one.
_FREE = re.compile(
    r'\b(?:at (?:least|most)|up to|(?:more|less|fewer) than)\s+$|'
    r'\b(?:one|1|a)\s+(?:square )?(?:m|met(?:er|re)|foot|inch)\s+(?:is|are|has|equals|=)[^,;]*$'
)
_FACTORS = (0.3048, 3.28, 3.281, 0.0254, 2.54, 10.76, 10.764, 100.0, 1000.0, 60.0, 12.0)
_PLACE_NOW = re.compile(
    r'\b(?:map|maps|now|position|pose|from (?:here|me)|start|in all|total|stands?|edge)\b'
)
_SUM = re.compile(
    r'=|\b(?:so|sum\w*|total|altogether|difference|between|leaves?|minus|plus|thus|therefore|hence|'
    r"apart|later|ago|earlier|makes?|by|closer|nearer|farther|that's|"
    r'overall|net|balance|in all|together|since|gives|'
    r'combined|after|before|took|less|more|another)\b'
)
_AGAIN = re.compile(r'\b(?:one|another|third|second|other|first|fourth|them|two)\b')
_TIMES = re.compile(
    r'\b(?:times|observ\w+|sight\w*|often|longest|frames?|keyframes?|views?)\b|\[|\beach\b'
)
_OPERATORS = ('+', '-', 'x', '*', '/', 'plus', 'minus')
_EQUALS = ('=', '\u2248', 'is', 'makes', '=>')
_TERM_AFTER = re.compile(r'\s*[-+*/x=<>]')
_TERM_BEFORE = re.compile(r'[-+*/x=<>]\s*$')
_ALL = re.compile(r'\W*(?:landmarks?|things?|objects?|items?|kinds?|entries)\b')


class Amounts(Lookups):
    """Checks the numbers and directions of a sentence."""

    def _check_numbers(self) -> None:
        claims: list[Number | Side] = [*self.sentence.numbers, *self.sentence.sides]
        results = self._check_sums()
        joint = _Joint()
        for claim in sorted(claims, key=lambda each: each.start):
            if not isinstance(claim, Number):
                self._check_side(claim, joint)
            elif claim.start not in results:
                self._check_number(claim, joint)
            else:
                self._say(claim, self._subjects_at(claim.start, claim.end)[:1])

    def _check_sums(self) -> set[int]:
        """Check 'a + b = c'; returns where the results stand."""
        results: set[int] = set()
        terms: list[tuple[str, Number]] = []
        for number, following in pairwise(self.sentence.numbers):
            terms = terms or [('+', number)]
            between = self.sentence.text[number.end : following.start].strip()
            if between in _OPERATORS:
                terms.append((between, following))
                continue
            if between in _EQUALS and len(terms) > 1:
                self._check_sum(terms, following)
                results.add(following.start)
            terms = []
        return results

    def _check_sum(self, terms: Sequence[tuple[str, Number]], result: Number) -> None:
        value, slack = 0.0, result.half
        for sign, number in terms:
            own = number.value if number.dimension == result.dimension else number.written
            slack += number.half
            if sign in ('x', '*'):
                value *= own
            elif sign == '/':
                value = value / own if own else math.nan
            else:
                value += -own if sign in ('-', 'minus') else own
        slack = max(slack * 0.6, result.half * 1.1, 0.005 * abs(value))
        if not any(close(abs(value), abs(v), slack) for v in (result.value, result.written)):
            self._fail(f'it is {value:g}')
        if result.side in ('left', 'right'):
            subjects = self._subjects_at(result.start, result.end)
            if not self._is_fact(result, subjects, ()):
                self._fail(f'{result.text} to the {result.side} is not known')

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
            self._fail(
                f'nothing tells {number.text} {number.side}', subjects[0] if subjects else ()
            )
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
        is_own = before[-1].start < first and re.search(r'\bi\b', clause)
        is_motion = is_own and (TURN.search(clause) or MOVE.search(clause))
        is_over = (
            is_motion
            or re.search(r'\bturn of\b', clause)
            or re.search(
                r'[;=]|\b(?:so|while|whereas|but|map|now|since|afterwards|then|beginning|start|total|'
                r'in all|sum|that makes|altogether|together|giving|adds? up)\b',
                between,
            )
        )
        return before[-1], not (is_over or before[-1].is_soft)

    def _is_in(
        self, number: Number, subjects: Sequence[Labels], ref: References, joint: _Joint
    ) -> bool:
        """Tell whether an observation says a number."""
        clause = self.sentence.clause_text(number.start)
        if number.dimension == 'time':
            times = [self.book.times[n] for n in ref.numbers]
            return any(near(number, t, 0.0) for t in times) or self._is_sum(number)
        if not number.dimension:
            return self._is_count(number, subjects, ref.numbers)
        is_own = bool(TURN.search(clause) or MOVE.search(clause)) or not self.sentence.names
        if is_own and self._is_motion(number, ref.numbers):
            return True
        return self._is_of_item(number, subjects, ref, joint)

    def _is_of_item(
        self, number: Number, subjects: Sequence[Labels], ref: References, joint: _Joint
    ) -> bool:
        is_list = re.search(
            r'\b(?:distances?|bearings?|directions?)\b', self.sentence.text.lower()
        )
        for labels in subjects or [self.labels] * bool(is_list):
            if joint.narrow(self, labels, ref, number, lambda i: fits(number, i)):
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
            return any(is_turned(number, value, 0.6) for value in values)
        moves = self.book.moves(numbers)
        if number.side:
            moves = [move for move in moves if move[0] == number.side]
        values = [sum(m for _, m in moves)] if len(numbers) > 1 else [m for _, m in moves]
        return any(near(number, value, 0.0) for value in values)

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
            if any(is_turned(number, value, slack) for value in values):
                return True
        elif any(near(number, value, 0.02) for value in values):
            return True
        return number.side not in ('left', 'right') and self._is_sum(number)

    def _is_sum(self, number: Number) -> bool:
        """Tell whether a number was said before, or follows from those that were."""
        text = self.sentence.text.lower()
        same = [s for s in self.said if s.dimension == number.dimension]
        exact = max(min(number.half * 1.1, 0.04 * abs(number.value)), 1e-6)
        if number.side == 'backward' or self._is_size_of_thing(number):
            return False
        subjects = [(), ROBOT, *self._subjects_at(number.start, number.end)]
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
        return (
            number.dimension == 'length'
            and self._is_of_size(number)
            and not MOVE.search(self.sentence.text.lower())
        )

    def _is_count(self, number: Number, subjects: Sequence[Labels], refs: Sequence[int]) -> bool:
        """Tell whether a bare number is a count of something, or was said before."""
        book, text = self.book, self.sentence.text.lower()
        after = text[number.end :]
        following = [
            m.labels
            for m in self.sentence.names
            if 0 <= m.start - number.end <= 14
            and not re.search(r'[,;.:]| for ', text[number.end : m.start])
        ]
        is_term = _TERM_AFTER.match(after) or _TERM_BEFORE.search(text[: number.start])
        if is_term and self._is_term(number, subjects):
            return True
        if _ALL.match(after):
            known = self._counts_of_all(refs)
        elif following and following[0]:
            shown = [float(len(book.in_view(following[0], n))) for n in refs]
            known = [*book.counts(following[0]), *shown]
        elif re.match(r'\s*of (?:them|the|these|those)\b', after):
            return any(number.value <= max(book.counts(s)) for s in subjects)
        else:
            known = self._bare_counts(subjects, refs, after)
        return number.value in known

    def _counts_of_all(self, refs: Sequence[int]) -> list[float]:
        book = self.book
        listed = [len(book.items[n]) for n in refs]
        listed += [sum(i.status is not ItemStatus.LEFT for i in book.items[n]) for n in refs]
        names = [len(self.sentence.names), len(set(self.named))]
        return [*book.place_counts(), *map(float, listed + names)]

    def _is_term(self, number: Number, subjects: Sequence[Labels]) -> bool:
        """Tell whether a bare number of a sum is one that the scene has, of any kind."""
        book = self.book
        amounts = [*book.motion_lengths(), *map(abs, book.motion_angles()), *book.motion_counts()]
        known = [s.value for s in self.said] + amounts
        return (
            number.value in _FACTORS
            or any(close(number.value, value, number.half * 1.05) for value in known)
            or any(
                self._is_fact(replace(number, dimension=dimension), subjects, ())
                for dimension in ('length', 'angle', 'time')
            )
        )

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
        if not self.sentence.names and re.search(
            _ALL.pattern[3:], self.question.text.lower() + text
        ):
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
        if not subjects or TURN.search(clause) or re.search(r'\b(?:start|side of)\b', clause):
            return
        labels = subjects[0]
        ref = self._ref_of(side.start, side.end)
        if ref:
            is_known = joint.narrow(
                self,
                labels,
                ref,
                side,
                lambda i: is_side(side.side, math.degrees(i.bearing_rad), 12),
            )
        else:
            said = [
                s.side for s in self.said if s.labels == labels and s.side in ('left', 'right')
            ]
            stances = self.book.stances(labels, self._stances(self.asked))
            is_stance = bool(stances) and not re.search(r'\b(?:me|my|now)\b', clause)
            known = stances if is_stance else [*self.book.bearings_now(labels), *stances]
            if not known or re.search(r'\b(?:was|were|had|stood)\b', clause):
                known = [*known, *self.book.observed_bearings(labels)]
            if said and re.match(r'\W*(?:that|this|which)\b', self.sentence.text.lower()):
                known = [v for v in known if is_side(said[-1], v, 45)]
            is_known = any(is_side(side.side, value, 45) for value in known)
        if not is_known:
            self._fail(f'it is not {side.side}', labels)
        self.said.append(Said(math.nan, 'side', 0.0, side.side, labels))


class _Joint:
    """What one observation says of one thing must be said by one and the same item."""

    def __init__(self) -> None:
        self._key: tuple[Labels, tuple[int, ...]] | None = None
        self._items: dict[int, list[Item]] = {}
        self._kinds: set[str] = set()
        self._end = 0

    def narrow(
        self,
        checker: Amounts,
        labels: Labels,
        ref: References,
        claim: Number | Side,
        fits: Callable[[Item], bool],
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


def is_side(side: str, degrees: float, ahead: float) -> bool:
    """Tell whether a bearing is on a side."""
    off = abs(degrees)
    return {
        'left': 2.5 < degrees < 177.5,
        'right': -177.5 < degrees < -2.5,
        'ahead': off <= ahead,
        'behind': off >= 100,
    }.get(side, True)
