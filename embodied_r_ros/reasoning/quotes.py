# SPDX-License-Identifier: Apache-2.0
"""Checks of what a sentence quotes: names, observations, places, states and comparisons."""

from __future__ import annotations

from itertools import pairwise
import re
from typing import TYPE_CHECKING

from embodied_r_ros.reasoning.amounts import Amounts
from embodied_r_ros.reasoning.check_context import COMPARE, is_to, Labels
from embodied_r_ros.reasoning.claims import close
from embodied_r_ros.types.deltas import ItemStatus

if TYPE_CHECKING:
    from collections.abc import Iterable

    from embodied_r_ros.reasoning.claims import Mention, References

NEGATED = re.compile(
    r"\b(?:no|not|none|never|neither|nor|nothing|without|cannot|isn't|wasn't|aren't|weren't|"
    r"haven't|hasn't|didn't|don't|doesn't|can't|couldn't|absent|lacks?|missing|unknown|whether|"
    r'if)\b'
)
_SELF = re.compile(r"\b(?:start|i|i'm|my|me|robot|origin)\b")
_GONE = re.compile(
    r'\b(?:gone|disappear\w*|vanish\w*|dropp?(?:ed|s)? out|out of (?:view|sight)|removed|'
    r'left the view|no longer|leaves? (?:the )?view)\b'
)
_SHOWN = re.compile(
    r'\b(?:it|they|them|one|both)\b.*\b(?:seen|saw|visible|in view|appear\w*|shown|shows?|back|'
    r"lists?|observed|there|again|last)\b|\b(?:saw|see) (?:it|them)\b|\bit's (?:there|back)\b"
)
_IS_SAME_REF = re.compile(r'[\s,(]*(?:(?:is|was|i\.?e[.,]?)\s+)?(?:the\s+)?(?:very\s+)?')
_NEW = re.compile(r'\b(?:under new|(?:is|are|was|were|as) new)\b')
_PRESENT = re.compile(r'\b(?:present|still there|still (?:in|on) the map)\b')
_MOVED = re.compile(r'\b(?:was|were|had|has|have|been|only)\s+moved\b')
_STILL = re.compile(
    r'\bonly (?:turn|rotat)\w*|\b(?:turn|rotation)s? only|\bno (?:forward )?moves?\b'
)
_ALSO_LAST = re.compile(r'\balso (?P<which>first|last) seen\b')
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
_NEUTRAL_TEXT = """
action angle answer area average axis bearing bit bounding box camera center centre choice closest
count data delta difference direction distance door edge elevation end farthest figure final first
floor gap heading highest image item landmark largest last latest least left line list longest map
maximum mean middle minimum moment most motion move movement nearest next number object observation
one only option order other others path place point position question rest result right robot room
rotation route same scene second side sighting size smallest start step sum text thing third time
total turn value view way while whole
"""
_NEUTRAL = frozenset(_NEUTRAL_TEXT.split())  # nouns that name no thing in view
_HYPOTHETIC = re.compile(r"\b(?:would|could|might|not|isn't|wasn't|nor|neither|than you)\b")


class Quotes(Amounts):
    """Checks sentences one after the other."""

    def check(self, text: str) -> None:
        """Check a sentence.

        Raises:
            UnsupportedError: Something in it has no support.
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
        for one, other in pairwise(refs):
            between = self.sentence.text[one.end : other.start].lower()
            if _IS_SAME_REF.fullmatch(between) and one.numbers != other.numbers:
                self._fail('these are two observations')

    def _check_shown(self, ref: References) -> None:
        """Check 'it was seen in [3]', where no name stands by it."""
        start, end = self.sentence.clause(ref.start)
        names = [m for m in self.sentence.names if start <= m.start < end and m.labels]
        clause = self.sentence.clause_text(ref.start)
        if names or ref.is_soft or not _SHOWN.search(clause) or NEGATED.search(clause):
            return
        subjects = self._subjects_at(ref.start, ref.end)[:1]
        seen = self.book.seen if _GONE.search(clause) else self.book.in_view
        for labels in subjects:
            for number in ref.numbers:
                if not seen(labels, number):
                    self._fail(f'[{number}] does not show it', labels)

    def _check_name(self, mention: Mention) -> None:
        if not mention.labels:
            if not NEGATED.search(self.sentence.text.lower()):
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
            is_loose = bool(_GONE.search(clause) or _GONE.search(head) or NEGATED.search(clause))
            seen = self.book.seen if is_loose else self.book.in_view
            missing = [n for n in ref.numbers if not seen(mention.labels, n)]
            is_any = ref.is_range and len(self.sentence.names) > 1
            if len(missing) > (len(ref.numbers) - 1) * is_any and not NEGATED.search(clause):
                self._fail(f'[{missing[0]}] does not show {mention.text}', mention.labels)

    def _check_strange(self) -> None:
        """Check that what is said to be there is known, also where no vocabulary has its name."""
        text = self.sentence.text.lower()
        if NEGATED.search(text):
            return
        is_free = any(m.labels for m in self.sentence.names) or not self.sentence.numbers
        found = [] if is_free else list(_SUBJECT.finditer(text))
        found += [m for m in _LISTED.finditer(text) if len(self.sentence.names) > 1]
        found += list(self._unknown.finditer(text)) if self._unknown else []
        for match in found:
            start, end = match.span('noun')
            is_name = any(m.start < end and start < m.end for m in self.sentence.names)
            is_ref = any(r.start < end and start < r.end for r in self.sentence.refs)
            words = {word.removesuffix('s') for word in match['noun'].split()} | set(
                match['noun'].split()
            )
            if not (is_name or is_ref or words & _NEUTRAL):
                self._fail(f'I have not seen {match["noun"]}')

    def _check_places(self) -> None:
        for start, x, y in self.sentence.places:
            names = [m for m in self.sentence.names if m.labels and m.end <= start]
            before = [m.labels for m in names[-1:]]
            is_far = (
                not names
                or start - names[-1].end > 12
                or ':' in self.sentence.text[names[-1].end : start]
            )
            about = (
                [(), *self.subjects, *self.asked, *(m.labels for m in names)] if is_far else before
            )
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
                if NEGATED.search(clause) and kind != 'moved':
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
        found = [any(i.status is wanted[kind] for i in self.book.seen(labels, n)) for n in numbers]
        if kind == 'gone' and not ref:
            return any(found) and not self.book.in_view(labels, self.book.count)
        return all(found) if ref and kind != 'moved' else any(found)

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
        rules = [(p, w, s) for p, w, s in COMPARE if (m := p.search(text)) and m]
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
        to = next((m.labels for m in rest if is_to(text, at, m)), ())
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
                self._fail(
                    f'{each[0]} is before it by {what} ({other:.3g}, not {own:.3g})', labels
                )

    def _asked_number(self) -> int:
        refs = [r for r in self.question.refs if not r.is_soft]
        return refs[0].numbers[0] if refs and refs[0].numbers[0] <= self.book.count else 0
