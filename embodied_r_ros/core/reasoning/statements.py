# SPDX-License-Identifier: Apache-2.0
"""Checks of the sentences of a reasoning: each claim is supported, contradicted or unclear.

A claim is read in two ways. Strictly, it is of the name and the observation `[k]` that stand next
to it: only what the scene states of these supports it. Widely, it may be of every name and
observation around: only what the scene states of none of them is contradicted.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import chain, combinations
import math
import re
from typing import TYPE_CHECKING

from embodied_r_ros.core.reasoning.claims import Claim, Labels, read_sentence, Sentence
from embodied_r_ros.core.reasoning.facts import Fact, FactBook
from embodied_r_ros.core.types.deltas import ItemStatus

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from embodied_r_ros.core.scene.tools import Scene

_LONGEST, _MOST_CLAIMS, _MOST_SAID = 1000, 60, 100  # that are read
_MOTION = re.compile(
    r'\b(?:turn\w*(?! up)|rotat\w*|\w+ward|move|went|walk|drove|travel|total|sum|facing|start)'
)
_MAPPED = re.compile(
    r'\b(?:map\w*|now|(?:from|to) (?:here|me|my)|position|long|wide|high|tall|height|size)s?\b'
)
_APART = re.compile(r'\b(?:apart|between|from|to|gap)\b')
DENIED = re.compile(r"\b(?:no|not|never|none|nor|neither|without|nothing|cannot)\b|n't\b", re.I)
# Words with which numbers are bounds, or of a geometry that the scene does not state.
_FREE = re.compile(
    r'\b(?:at (?:least|most)|up to|within|than|would|if|each|heading|fac\w+|ax[ie]s|edges?|half|'
    r'ago|between|closer|nearer|f[au]rther|earlier|later|before|after|of the|beyond|past|above)\b'
)
_SUM = re.compile(r'=|\b(?:so|sum|total|makes?|apart|later|difference|thus|that is|in all)\b')
_SOFT = re.compile(r'\b(?:before|after|since|until|than|except)\s+(?:the\s+)?$')
# Between a claim and the observation after it that it is of.
_NUMBER_LINK = re.compile(r'(?:[^\w,]|\b(?:left|right|up|down|away|off|in|over|from|at|of)\b)*')
_NAME_LINK = re.compile(r'(?!.*\b(?:and|but|while|with)\b)[^,;:.]*')
_LETTER = re.compile(r"\b(?i:option|answer is|it is|hence|thus|so)\b:?\s*\(?([A-H])\b(?![\w'])")
_COUNTED = re.compile(r'\W*(?:(landmarks|things|objects|items)|observations|times|sightings)\b')
_STATUS = {'new': {ItemStatus.APPEARED}, 'moved': {ItemStatus.MOVED}}
_IS_THERE = re.compile('still|in view|visible|present|back')
_KINDS = ('number', 'place', 'side', 'status', 'compare', 'name', 'ref')  # as they are checked


class ContradictionError(Exception):
    """What was seen says otherwise; the message tells what."""


class Statements:
    """Checks the sentences of a reasoning, one after the other."""

    def __init__(self, scene: Scene, question: str, options: Sequence[str]) -> None:
        """Read a question.

        Args:
            scene: What was seen.
            question: The question.
            options: Its options; empty: a free question.
        """
        self.book, self.options, self.question = FactBook(scene), options, question.lower()
        self.sentence = self.asked = self.read(question)
        self.choices = [labels for option in options for labels in names_of(self.read(option))]
        self.subject: Labels = ()  # what the last sentence was about
        self.ref = Claim('ref', 0, 0, '')  # the observation that it was of
        self.said: list[Claim] = []  # supported numbers and directions, with the labels of what
        self.named: list[Labels] = []
        self.letters: set[str] = set()  # of options that the reasoning concludes
        self.unclear: list[Claim] = []
        self.supported: list[Claim] = []  # of the sentence
        self.bound: list[Labels] = []  # what they are of

    def read(self, text: str) -> Sentence:
        """Read a sentence, as far as bounds allow."""
        sentence = read_sentence(text[:_LONGEST], self.book.labels, len(self.book.items))
        return replace(sentence, claims=sentence.claims[:_MOST_CLAIMS])

    def fail(self, reason: str, claim: Claim | None = None) -> None:
        """Refuse the sentence.

        Raises:
            ContradictionError: Always.
        """
        text = f'{claim.text}: {reason}' if claim else reason
        raise ContradictionError(f'{self.sentence.text} ({text})')  # noqa: EM102, TRY003

    def check(self, text: str) -> None:
        """Check a sentence.

        Raises:
            ContradictionError: What was seen says otherwise.
        """
        self.sentence = sentence = self.read(text)
        self.letters |= set(_LETTER.findall(text))
        if len(text) > _LONGEST or len(sentence.claims) == _MOST_CLAIMS:
            self.unclear.append(Claim('name', 0, 0, 'a long sentence'))
        self.supported, self.bound = [], []
        for claim in sorted(sentence.claims, key=lambda each: _KINDS.index(each.kind)):
            is_supported = getattr(self, f'_check_{claim.kind}')(claim)
            (self.supported if is_supported else self.unclear).append(claim)
            subjects = self._subjects(claim) if is_supported else []
            self.bound += subjects if claim.kind in ('place', 'side', 'status', 'compare') else []
            if is_supported and claim.kind in ('number', 'side') and len(self.said) < _MOST_SAID:
                self.said += [replace(claim, labels=labels) for labels in subjects or [()]]
        names, refs, asked = names_of(sentence), sentence.of('ref'), names_of(self.asked)
        own = [s for c in self.supported if c.kind == 'number' for s in self._subjects(c)]
        self.subject = ([s for s in own if s in asked] or own[-1:] or names or [self.subject])[0]
        self.ref = refs[-1] if refs else self.ref
        self.named += names

    # What a claim is of.

    def _subjects(self, claim: Claim) -> list[Labels]:
        """The name before a claim, else after it, else the last subject, else those asked for."""
        near = [n.labels for n in self.sentence.of('name') if n.end <= claim.start][-1:]
        near = near or [n.labels for n in self.sentence.clause(claim).of('name')][:1]
        return near or ([self.subject] if self.subject else names_of(self.asked))

    def _ref_of(self, claim: Claim) -> tuple[Claim, bool]:
        """The observation that a claim is of, and whether its sentence names it."""
        refs = self.sentence.of('ref')
        link = _NUMBER_LINK if claim.kind == 'number' else _NAME_LINK
        after = [r for r in refs if r.start >= claim.end][:1]
        if after and link.fullmatch(self.sentence.text[claim.end : after[0].start].lower()):
            return after[0], True
        before = [r for r in refs if r.end <= claim.start][-1:]
        return ((before or refs)[-1 if before else 0], True) if refs else (self.ref, False)

    # Numbers.

    def _check_number(self, number: Claim) -> bool:
        if not number.dimension:
            return self._check_count(number)
        clause, whole = self.sentence.clause(number), self.sentence.text.lower()
        subjects, (ref, is_own) = self._subjects(number), self._ref_of(number)
        is_mapped = not is_own or _MAPPED.search(clause.text)
        facts = [
            [*self.book.observed(s, ref.refs), *(self.book.mapped(s) if is_mapped else [])]
            for s in subjects
        ]
        if _is_stated(number, self._of_robot(clause, ref.refs if is_own else ())):
            return True
        if facts and all(_is_stated(number, each) for each in facts):
            self.bound += subjects
            return True
        said = [] if is_own or self.sentence.of('name') else self.said
        is_repeated = any(is_same(number, each) for each in said)
        is_sum = _SUM.search(whole) and _is_stated(number, self._sums(number))
        if is_repeated or is_sum or self._is_gap(number, clause):
            return True
        is_plain = number.dimension in ('length', 'angle') and bool(names_of(clause) or is_own)
        is_plain = (is_plain or number.dimension == 'area') and not _FREE.search(whole)
        if is_plain and not _is_stated(number, self._wide(number, ref if is_own else None)):
            known = [f'{f.value:.3g}' for f in chain(*facts) if f.dimension == number.dimension]
            self.fail(f'known is {", ".join(known[:4]) or "nothing"}', number)
        return False

    def _of_robot(self, clause: Sentence, refs: Sequence[int]) -> list[Fact]:
        words = f'{self.sentence.text.lower()} {self.question}'
        is_motion = _MOTION.search(clause.text if self.sentence.of('name') else words)
        if refs and re.search(r'\b(?:since|after)\b', clause.text):
            refs = range(refs[-1] + 1, len(self.book.items) + 1)
        facts = self.book.moved(refs) if refs else self.book.totals()
        return [f for f in facts if is_motion or f.dimension in ('time', 'area')]

    def _is_gap(self, number: Claim, clause: Sentence) -> bool:
        """Whether a number is how far its subject is from another name of the clause."""
        names = names_of(clause) if len(names_of(clause)) > 1 else names_of(self.asked)
        pairs = [
            (s, n) for s in self._subjects(number) for n in names if _APART.search(clause.text)
        ]
        found = [pair for pair in pairs if _is_stated(number, self.book.gaps(*pair))]
        self.bound += found[0] if found else ()
        return bool(found)

    def _sums(self, number: Claim) -> list[Fact]:
        """What the last two supported numbers make, and all of them."""
        values = [said.value for said in self.said if said.dimension == number.dimension]
        sums = [sum(values), sum(values[-2:]), abs(sum(values[-2:-1]) - sum(values[-1:]))]
        return [Fact(number.dimension, value) for value in sums]

    def _wide(self, number: Claim, ref: Claim | None) -> list[Fact]:
        """All that a number could say: of its one name and observation, else in its sentence."""
        text, names = self.sentence.text.lower(), names_of(self.sentence)
        is_loose = any(words.search(text) for words in (_SUM, _MOTION, _APART))
        is_tight = len(names) == 1 and len(self.sentence.of('ref')) < 2 and not is_loose
        is_mapped, refs = ref is None or bool(_MAPPED.search(text)), ref.refs if ref else ()
        others = [] if is_tight else [*names_of(self.asked), *self.choices, *self.named[-6:]]
        names = list(dict.fromkeys([*names, *others]))[:12]
        facts = [] if is_tight else self.book.totals()
        for labels in names:
            facts += self.book.observed(labels, refs if is_tight and refs else self.book.items)
            facts += self.book.mapped(labels, wide=True) if is_mapped or not is_tight else []
        facts += [f for a, b in combinations(names, 2) for f in self.book.gaps(a, b)]
        values = [said.value for said in self.said if said.dimension == number.dimension][-12:]
        values += [n.value for n in self.sentence.of('number') if n is not number][-12:]
        values += [v for a, b in combinations(values, 2) for v in (a + b, abs(a - b))]
        facts += [Fact(number.dimension, v, number.side) for v in values if not is_tight]
        return [f._replace(slack=f.slack + 0.1 + 0.05 * f.value) for f in facts]

    def _check_count(self, number: Claim) -> bool:
        book, after = self.book, self.sentence.text[number.end :].lower()
        ref, is_own = self._ref_of(number)
        subjects, refs = self._subjects(number), ref.refs if is_own else ()
        if match := _COUNTED.match(after):
            shown = book.in_view(book.labels, refs) if refs else book.scene.all_things
            sights = [sum(bool(book.in_view(s, [n])) for n in book.items) for s in subjects]
            return number.value in ([len(shown)] if match[1] else [*sights, len(book.items)])
        near = [n.labels for n in self.sentence.of('name') if 0 < n.start - number.end <= 12]
        near = near[:1] if re.match(r'[ \w-]{12}|[ \w-]*\w[ \w-]*', after) else []
        if near and near[0] and not refs and number.value > max(book.counts(near[0])):
            self.fail(f'there are {max(book.counts(near[0])):.0f}', number)
        if subjects and (near or 'how many' in self.question):
            labels = (near or subjects)[0]
            counts = {float(len(book.in_view(labels, refs)))} if refs else book.counts(labels)
            self.bound += near if number.value in counts else []
            return number.value in counts
        return any(is_same(number, said) for said in self.said)

    # Places, directions, what happened, comparisons.

    def _check_place(self, claim: Claim) -> bool:
        path = [point.position for point in self.book.scene.path]
        own = [at for labels in self._subjects(claim) for at in self.book.places(labels)]
        own = own if self.sentence.of('name') else [*path[:1], *path[-1:]]
        return any(math.dist(at[:2], claim.place) < 0.08 for at in own)

    def _check_side(self, claim: Claim) -> bool:
        subjects, (ref, is_own) = self._subjects(claim), self._ref_of(claim)
        ways = [self.book.ways(s, ref.refs if is_own else (), now=not is_own) for s in subjects]
        return bool(ways) and all(claim.side in each for each in ways)

    def _check_status(self, claim: Claim) -> bool:
        subjects, (ref, is_own) = self._subjects(claim), self._ref_of(claim)
        kinds = _STATUS.get(claim.text, {ItemStatus.LEFT})
        kinds = set(ItemStatus) - kinds if _IS_THERE.match(claim.text) else kinds
        is_denied = DENIED.search(self.sentence.clause(claim).text.replace('no longer', ''))
        if not is_own:
            gone = {t.is_gone for s in subjects for t in self.book.things(s)}
            return (
                not is_denied
                and claim.text not in _STATUS
                and gone == {kinds == {ItemStatus.LEFT}}
            )
        found = [{i.status for i in self.book.shown(s, ref.refs)} for s in subjects]
        return not is_denied and bool(found) and all(each & kinds for each in found)

    # Names and observations.

    def _check_name(self, claim: Claim) -> bool:
        text, refs = self.sentence.text.lower(), self.sentence.of('ref')
        ref, is_own = self._ref_of(claim)
        bound = self.sentence.clause(claim).of('ref', 'number')
        is_denied, is_asked = bool(DENIED.search(text)), claim.labels in names_of(self.asked)
        if not claim.labels:
            is_asked = claim.text in [name.text for name in self.asked.of('name')]
            if any(c.dimension or c.refs for c in bound) and not is_denied and not is_asked:
                self.fail('I have not seen one', claim)
            return is_denied and is_asked
        is_soft = any(_SOFT.search(text[: each.start]) for each in refs)
        is_sure = not (is_denied or is_soft or _MAPPED.search(text))
        is_plain = is_sure and any(c.refs for c in bound)
        if is_plain and not any(self.book.shown(claim.labels, each.refs) for each in refs):
            self.fail(f'{", ".join(r.text for r in refs)} does not have it', claim)
        if claim.labels in self.bound or not is_own or is_soft:
            return claim.labels in self.bound or (is_asked and not bound and not refs)
        return all(self.book.in_view(claim.labels, [number]) for number in ref.refs)

    def _check_ref(self, ref: Claim) -> bool:
        book = self.book
        if not set(ref.refs) <= {0, *book.items}:
            self.fail(f'there are {len(book.items)} observations', ref)
        bound = [c for c in self.supported if self._ref_of(c)[0].refs == ref.refs]
        if any(claim.kind not in ('name', 'compare') for claim in bound):
            return True
        names = [claim.labels for claim in bound if claim.kind == 'name']
        names = names if self.sentence.of('name') else self._subjects(ref)
        text = self.sentence.clause(ref).text
        if re.search(r'\b(?:turn|rotat)', text):
            steps = [{step.verb for step in book.steps.get(number, ())} for number in ref.refs]
            return all('turned' in s and (len(s) == 1 or 'only' not in text) for s in steps)
        return any(all(book.in_view(labels, [number]) for number in ref.refs) for labels in names)


def names_of(sentence: Sentence) -> list[Labels]:
    """The labels of the names of a sentence that the scene has."""
    return [claim.labels for claim in sentence.of('name') if claim.labels]


def is_same(number: Claim, said: Claim, share: float = 0.03) -> bool:
    """Whether two numbers are the same, rounded."""
    slack = min(1.05 * max(number.half, said.half), 0.1 * abs(said.value) + 1e-6)
    slack = max(slack, share * abs(said.value) * bool(number.dimension))
    is_alike = number.dimension in ('', said.dimension) and len({number.side, said.side, ''}) < 3
    return is_alike and abs(abs(number.value) - abs(said.value)) <= slack


def _is_stated(number: Claim, facts: Iterable[Fact]) -> bool:
    return any(fact.fits(number) for fact in facts)
