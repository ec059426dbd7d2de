# SPDX-License-Identifier: Apache-2.0
"""What a sentence claims: its numbers with units, names, observations `[k]`, and plain words."""

from __future__ import annotations

from dataclasses import dataclass
import math
import re
from typing import TYPE_CHECKING

from embodied_r_ros.core.reasoning.quantities import COUNTS, quantity_in
from embodied_r_ros.core.scene.names import find_names
from embodied_r_ros.core.types.vocabulary import COLOUR_WORDS

if TYPE_CHECKING:
    from collections.abc import Sequence

Labels = tuple[str, ...]
_UNIT = (
    r'm²|m\^?2|sq\w*\.? ?(?:m\w*|feet|ft)|[ckm]?m|(?:centi)?met(?:er|re)s?|ft|feet|foot|inch\w*|'
    r'°|deg(?:rees?)?|s(?:ec(?:ond)?s?)?|min(?:ute)?s?|h(?:ours?)?|%'
)
_COUNTS = {word: number for word, number in COUNTS.items() if number > 1}
_NUMBER = re.compile(
    r'(?i)(?:(?<![\w.,\[°-])(?P<digits>-?\d+(?:\.\d+)?)(?!\.?\d|(?:st|nd|rd|th)\b)|'
    rf'\b(?P<word>{"|".join(_COUNTS)})\b)(?:[ -]?(?P<unit>{_UNIT})(?![\w²]))?(?!\w)',
)
_PLACE = re.compile(r'\( *(-?\d+(?:\.\d+)?)[,;] *(-?\d+(?:\.\d+)?)(?:[,;] *[-.\d]+)? *\)')
_REF = r'\[\d+(?:\s*-\s*\d+)?\]'
_NTH = re.findall(r'\w+', 'first second third fourth fifth sixth seventh eighth ninth tenth')
_LAST = ('last', 'latest', 'newest', 'most recent', 'final', 'current')
_VIEW = r'(?:observations?|keyframes?|frames?|images?)'
_REFS = re.compile(
    rf'(?i){_REF}(?:\s*(?:,\s*(?:and\s+)?|and\s+|or\s+|&\s*|to\s+|through\s+|until\s+|-\s*){_REF})*|'
    rf'\b(?:(?P<nth>{"|".join(_NTH)}|\d+(?=st|nd|rd|th)|{"|".join(_LAST)})(?:st|nd|rd|th)?'
    rf'\s+{_VIEW}|{_VIEW}\s+(?:number\s+|no\.?\s*)?(?P<cardinal>\d+|{"|".join(_COUNTS)}))\b',
)
_RANGE = re.compile(r'(\d+)\]?\s*(?:to|through|until|-)\s*\[?(\d+)')
_SIDE_AFTER = re.compile(
    r' *(?:(?:to|on) )?(?:(?:the|my|your) )?(?P<side>left|right|up|down)\b', re.I
)
_SIDE_BEFORE = re.compile(
    r'(?i)\b(?P<side>left|right|up|down|forward|backward)s?(?: (?:turns?|by|about|for|of))*:? $'
)
# Plain words that claim something of what they stand beside.
_PLAINS = re.compile(
    r'(?i)\b(?:(?P<side>(?:on|to|at) (?:my|the|your|its) (?:far )?(?:left|right)|ahead|'
    r'(?:left|right)(?: of me|most)|further (?:left|right)|behind(?! (?:it|them|the|an?|that)\b))|'
    r'(?P<status>gone(?! (?:forward|back|straight|on|\d))|disappear\w*|no longer|missing|new|'
    r'(?:drop|go|leave)\w* (?:out|again)|(?<!i )(?<!ve )moved(?! (?:[fblrud]\w+|\d|in between))|'
    r'still there|in view|visible|present|back (?:in|again))|'
    r'(?P<compare>(?:near|clos|tall|high|larg|bigg|small|wid)(?:er|est)|f[au]rthe(?:r|st)|wins|'
    r'(?:is|was|came) (?:earlier|later|first)|(?:earlier|later) than|longest|most often))\b'
)
_BREAK = re.compile(r'[,;:()"]\s*|\s-\s|\s(?:and|but|while|so|wh\w+|since|\w*though|because)\s')
_SENTENCE = re.compile(r'(?<=[.!?])["\')]*\s+(?=[A-Z\[("\'*\d-])|\s*\n+\s*')
_CHARACTERS = str.maketrans('\u2212\u2013\u2014\u00d7\u00ba', '---x°')
# Names that are more often other words.
_NEUTRAL = re.compile(
    '|time|box|camera|robot|drone|picture|person|stand|marker|sign|paper|tie|tool'
)


@dataclass(frozen=True)
class Claim:
    """A part of a sentence that may be true or false."""

    kind: str  # 'name', 'ref', 'number', 'place', 'side', 'status', 'compare'
    start: int
    end: int
    text: str
    labels: Labels = ()  # of a name; none: the scene has no such thing
    refs: tuple[int, ...] = ()  # the observations
    value: float = math.nan  # in metres, degrees, seconds, square metres, or as it stands
    dimension: str = ''  # '': a count, or without unit
    half: float = 0.0  # half of its last digit
    side: str = ''  # that is said with it
    place: tuple[float, float] = (math.nan, math.nan)  # x and y [m]


@dataclass(frozen=True)
class Sentence:
    """A sentence, read."""

    text: str
    claims: tuple[Claim, ...] = ()
    breaks: tuple[int, ...] = ()

    def of(self, *kinds: str) -> list[Claim]:
        """The claims of some kinds."""
        return [claim for claim in self.claims if claim.kind in kinds]

    def clause(self, claim: Claim) -> Sentence:
        """The clause around a claim, in lower case."""
        start = max((b for b in self.breaks if b <= claim.start), default=0)
        end = min((b for b in self.breaks if b >= claim.end), default=len(self.text))
        within = tuple(c for c in self.claims if start <= c.start < end)
        return Sentence(self.text[start:end].lower(), within)


def split_sentences(text: str) -> list[str]:
    """The sentences of a text; lines of a list are sentences."""
    text = (
        text.translate(_CHARACTERS).replace('e.g.', 'eg').replace('i.e.', 'ie').replace('**', '')
    )
    return [part.strip() for part in _SENTENCE.split(text) if part.strip()]


def read_sentence(text: str, labels: Sequence[str], count: int) -> Sentence:
    """Read a sentence.

    Args:
        text: Its words.
        labels: The labels of the scene.
        count: How many observations there are.
    """
    taken = [Claim('ref', *m.span(), m[0], refs=_refs(m, count)) for m in _REFS.finditer(text)]
    places = [(m, (float(m[1]), float(m[2]))) for m in _PLACE.finditer(text)]
    taken += [Claim('place', *m.span(), m[0], place=place) for m, place in places]
    claims = list(taken)
    claims += [_number(m, text) for m in _NUMBER.finditer(text) if _is_free(m, taken)]
    taken = [claim for claim in claims if claim.kind != 'number' or claim.side]
    for match in _PLAINS.finditer(text):
        if _is_free(match, taken):
            kind = match.lastgroup or ''
            side = re.sub(r'.*\b(left|right).*', r'\1', match[0].lower())
            claims.append(Claim(kind, match.start(), match.end(), match[0].lower(), side=side))
    claims += _names(text, tuple(labels))
    breaks = [m.end() for m in _BREAK.finditer(text) if _is_free(m, taken)]
    return Sentence(text, tuple(sorted(claims, key=lambda c: c.start)), tuple(breaks))


def _is_free(match: re.Match[str], taken: Sequence[Claim]) -> bool:
    return not any(c.start < match.end() and match.start() < c.end for c in taken)


def _refs(match: re.Match[str], count: int) -> tuple[int, ...]:
    nth, cardinal = (match['nth'] or '').lower(), (match['cardinal'] or '').lower()
    if nth in (*_LAST, *_NTH):
        return (count if nth in _LAST else _NTH.index(nth) + 1,)
    numbers = {_COUNTS.get(cardinal, 0)} - {0} | set(map(int, re.findall(r'\d+', match[0])))
    for span in _RANGE.finditer(match[0]):
        numbers |= set(range(int(span[1]), min(int(span[2]), int(span[1]) + 999)))
    return tuple(sorted(numbers))


def _number(match: re.Match[str], text: str) -> Claim:
    before, after = text[max(0, match.start() - 60) : match.start()], text[match.end() :][:80]
    spelling = match['unit'] or ''
    unit = quantity_in(f'1 {spelling.lower()}') if spelling else None
    dimension, factor = (unit.dimension, unit.factor) if unit else ('', 1.0)
    factor = 1.0 if dimension == 'angle' else factor
    value = factor * float(_COUNTS[match['word'].lower()] if match['word'] else match['digits'])
    half = 0.5 * factor * 10 ** -len((match['digits'] or '').partition('.')[2])
    side = (dimension != 'length' and _SIDE_AFTER.match(after)) or _SIDE_BEFORE.search(before)
    said = side['side'].lower() if side else ''
    said = said if dimension == ('length' if said.endswith('ward') else 'angle') else ''
    end = match.end() + (side.end() if side and said and side.re is _SIDE_AFTER else 0)
    return Claim('number', match.start(), end, match[0], (), (), value, dimension, half, said)


def _names(text: str, labels: Labels) -> list[Claim]:
    """The names of a sentence: of things, by the last word of a label, or by a colour alone."""
    lower = text.lower()
    found = [
        Claim('name', name.start, name.end, name.text, labels=name.labels)
        for name in find_names(lower, labels)
        if not (name.is_guess and name.text.rstrip('s') not in (name.kind, name.kind.rstrip('s')))
        and (name.labels or not (name.kind in COLOUR_WORDS or _NEUTRAL.fullmatch(name.kind)))
    ]
    is_coloured = any(label.partition(' ')[0] in COLOUR_WORDS for label in labels)
    words: dict[str, Labels] = dict.fromkeys(COLOUR_WORDS, ()) if is_coloured else {}
    for label in labels:
        *rest, last = label.split(' ')
        own = [last] if rest and last not in ('object', 'sign') else []
        own += [rest[0], ' '.join(rest)] if rest and rest[0] in COLOUR_WORDS else []
        words |= {word: (*words.get(word, ()), label) for word in own}
    for word in sorted(words, key=len, reverse=True):
        for match in re.finditer(rf'\b{re.escape(word)}(?:e?s)?\b', lower):
            if _is_free(match, found):
                found.append(Claim('name', match.start(), match.end(), match[0], words[word]))
    return found
