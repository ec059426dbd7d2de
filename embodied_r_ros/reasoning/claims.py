# SPDX-License-Identifier: Apache-2.0
"""What a sentence claims: its numbers with units, names, observations `[k]`, and directions."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
import math
import re
from typing import TYPE_CHECKING

from embodied_r_ros.reasoning.quantities import Quantity, quantity_in
from embodied_r_ros.scene.names import find_names
from embodied_r_ros.types.vocabulary import COLOUR_WORDS

if TYPE_CHECKING:
    from collections.abc import Sequence

_UNIT = (
    r'm²|m\^?2|sq(?:uare)?\.? ?(?:m(?:et(?:er|re)s?)?|feet|foot|ft)|ft²|sqm|sqft|[ckm]?m|'
    r'(?:centi)?met(?:er|re)s?|ft|feet|foot|inch(?:es)?|yards?|yd|°|deg(?:rees?)?|'
    r's(?:ec(?:ond)?s?)?|min(?:ute)?s?|h(?:ours?)?|%|percent'
)
_WORDS = [
    'two',
    'three',
    'four',
    'five',
    'six',
    'seven',
    'eight',
    'nine',
    'ten',
    'eleven',
    'twelve',
    'thirteen',
    'fourteen',
    'fifteen',
]
_COUNTS = {word: number for number, word in enumerate(_WORDS, 2)} | {'twice': 2}
_NUMBER = re.compile(
    r'(?<![\w.,\[°-])(?P<digits>-?\d+(?:\.\d+)?)(?!\.?\d|(?:st|nd|rd|th)\b)'
    rf'(?:[ -]?(?P<unit>{_UNIT})(?![\w²]))?(?!\w)|\b(?P<word>{"|".join(_COUNTS)})\b'
    rf'(?:[ -](?P<word_unit>met(?:er|re)s?|degrees?|seconds?|feet|foot)\b)?',
    re.IGNORECASE,
)
_TIMES = re.compile(
    rf'(?:\s*(?:x|by|x)\s*[\d.]+)+\s*(?P<unit>{_UNIT})?(?!\s*=)(?![\w.]*\s*[=+])', re.IGNORECASE
)
_TIMES_BEFORE = re.compile(r'[\d.]\s*(?:x|by|x)\s*(?P<unit>)$', re.IGNORECASE)
_LIST = re.compile(
    rf'(?:\s*,\s*-?\d[\d.]*)*\s*,?\s+(?:and|or|to)\s+-?\d[\d.]*\s*(?P<unit>{_UNIT})(?!\w)',
    re.IGNORECASE,
)
_PLACE = re.compile(
    r'\(\s*(-?\d+(?:\.\d+)?)\s*[,;]\s*(-?\d+(?:\.\d+)?)(?:\s*[,;]\s*[-.\d]+)?\s*\)'
)
_REF = r'\[\d+(?:\s*-\s*\d+)?\]'
_NTH = [
    'first',
    'second',
    'third',
    'fourth',
    'fifth',
    'sixth',
    'seventh',
    'eighth',
    'ninth',
    'tenth',
    'eleventh',
    'twelfth',
]
_LAST = ('last', 'latest', 'newest', 'most recent', 'final', 'current')
_VIEW = r'(?:observations?|keyframes?|frames?|images?)'
_REFS = re.compile(
    rf'{_REF}(?:\s*(?:,\s*(?:and\s+)?|and\s+|or\s+|&\s*|to\s+|through\s+|until\s+|-\s*){_REF})*|'
    rf'\b(?:(?P<nth>{"|".join(_NTH)}|\d+(?=st|nd|rd|th)|{"|".join(_LAST)})(?:st|nd|rd|th)?'
    rf'\s+{_VIEW}|{_VIEW}\s+(?:number\s+|no\.?\s*)?(?P<cardinal>\d+))\b',
    re.IGNORECASE,
)
_RANGE = re.compile(r'(\d+)\]?\s*(?:to|through|until|-)\s*\[?(\d+)')
_SOFT = re.compile(
    r'\b(?:before|after|since|until|till|between|prior to|beyond|except|besides|than)\s+'
    r'(?:the\s+)?$'
)
_SIDE = r'(?P<side>left|right|up|down|ahead|behind)'
_SIDE_AFTER = re.compile(
    rf' *(?:(?:to|on|towards?)\s+)?(?:(?:the|my|your)\s+)?{_SIDE}\b', re.IGNORECASE
)
_SIDE_BEFORE = re.compile(
    rf'\b{_SIDE}(?:\s+(?:turns?|by|about|for|of|another|roughly|some|around))*\s+$', re.IGNORECASE
)
_MOVE_SIDE = re.compile(
    r'\b(?:mov\w+\s+(?:to\s+the\s+)?)?'
    r'(?P<side>forwards?|backwards?|(?<=moved )(?:left|right|up|down))'
    r'(?:\s+(?:by|about|for|another))*\s+$',
    re.IGNORECASE,
)
_BARE_SIDE = re.compile(
    r'\b(?:(?:on|to|at|towards?)\s+(?:my|the|your|our)\s+(?P<hand>left|right)'
    r'(?!\s+(?:turn|sum))|(?:straight\s+)?(?P<ahead>ahead|in front of (?:me|you|us))|'
    r'(?P<behind>behind)(?!\s+(?:it|them|the|an?|that)\b)|'
    r'(?P<of>left|right)\s+of\s+(?:me|you|us))\b',
    re.IGNORECASE,
)
_HEDGE = re.compile(
    r'\b(?:about|around|roughly|nearly|almost|approximately|approx\.?|some|circa|ca\.?|over|just '
    r'under|under|more than|less than|close to)\s+$|[~≈]\s*$',
    re.IGNORECASE,
)
_BREAK = re.compile(
    r'[,;:()"]\s*|\s+-\s+|\s(?:and|but|while|so|where|which|since|though|although|because|then|'
    r'whereas)\s',
    re.IGNORECASE,
)
_SENTENCE = re.compile(r'(?<=[.!?])["\')]*\s+(?=[A-Z\[("\'*\d-])|\s*\n+\s*')
_SIDED = ('angle', 'length')
_CHARACTERS = str.maketrans('\u2212\u2013\u2014\u00d7\u00ba', '---x°')
_NEUTRAL = frozenset({'time', 'box', 'camera', 'robot', 'drone', 'picture', 'person', 'stand'})


@dataclass(frozen=True)
class Mention:
    """A name in a sentence."""

    start: int
    end: int
    text: str
    labels: tuple[str, ...]  # none: the scene has no such thing
    is_plural: bool = False


@dataclass(frozen=True)
class References:
    """Observations that a sentence names."""

    start: int
    end: int
    numbers: tuple[int, ...]
    is_soft: bool = False  # 'before [6]': what is said of it may be of another one
    is_range: bool = False  # '[1] to [5]'


@dataclass(frozen=True)
class Number:
    """A number in a sentence, in metres, degrees, seconds, square metres, or a bare one."""

    start: int
    end: int
    text: str
    value: float
    dimension: str  # '': a count, or without unit
    half: float  # half of its last digit
    written: float  # in its own unit
    is_hedged: bool = False
    side: str = ''  # that is said with it


@dataclass(frozen=True)
class Side:
    """A direction without a number: left, right, ahead, behind."""

    start: int
    end: int
    side: str


@dataclass(frozen=True)
class Sentence:
    """A sentence, read."""

    text: str
    names: tuple[Mention, ...] = ()
    refs: tuple[References, ...] = ()
    numbers: tuple[Number, ...] = ()
    sides: tuple[Side, ...] = ()
    places: tuple[tuple[int, float, float], ...] = ()  # where it stands, x and y [m]
    breaks: tuple[int, ...] = field(default=())

    def clause(self, at: int) -> tuple[int, int]:
        """Beginning and end of the clause around a place in the text."""
        before = [b for b in self.breaks if b <= at]
        after = [b for b in self.breaks if b > at]
        return before[-1] if before else 0, after[0] if after else len(self.text)

    def clause_text(self, at: int) -> str:
        """The clause around a place in the text, in lower case."""
        start, end = self.clause(at)
        return self.text[start:end].lower()


def split_sentences(text: str) -> list[str]:
    """The sentences of a text; lines of a list are sentences."""
    text = text.translate(_CHARACTERS).replace('e.g.', 'e.g,').replace('i.e.', 'i.e,')
    text = text.replace('**', '')
    return [part.strip() for part in _SENTENCE.split(text) if part.strip()]


def read_sentence(text: str, labels: Sequence[str], count: int) -> Sentence:
    """Read a sentence.

    Args:
        text: Its words.
        labels: The labels of the scene.
        count: How many observations there are.
    """
    refs = tuple(_references(text, count))
    places = [(m.start(), m.end(), float(m[1]), float(m[2])) for m in _PLACE.finditer(text)]
    taken = [(r.start, r.end) for r in refs] + [(start, end) for start, end, *_ in places]
    numbers = [
        number
        for match in _NUMBER.finditer(text)
        if not any(a <= match.start() < b for a, b in taken)
        and (number := _number(match, text)) is not None
    ]
    within = [*((n.start, n.end + 14 * bool(n.side)) for n in numbers), *taken]
    sides = [
        Side(m.start(), m.end(), (m['hand'] or m['of'] or '').lower() or _front(m))
        for m in _BARE_SIDE.finditer(text)
        if not any(a <= m.start() < b for a, b in within) and not _is_turn(text[: m.start()])
    ]
    breaks = sorted(m.end() for m in _BREAK.finditer(text) if not _is_within(m, taken))
    return Sentence(
        text, tuple(_mentions(text, tuple(labels))), refs, tuple(numbers), tuple(sides),
        tuple((start, x, y) for start, _, x, y in places), tuple(breaks),
    )  # fmt: skip


def _is_within(match: re.Match[str], spans: Sequence[tuple[int, int]]) -> bool:
    return any(a < match.end() and match.start() < b for a, b in spans)


def _front(match: re.Match[str]) -> str:
    return 'ahead' if match['ahead'] else 'behind'


def _is_turn(before: str) -> bool:
    """Tell whether a side is that of a turn, or is what takes an 'ahead' back."""
    return bool(re.search(r'\b(?:turn\w*|rotat\w*|(?:left|right) of)\s+$', before.lower()))


def _references(text: str, count: int) -> list[References]:
    found = []
    for match in _REFS.finditer(text):
        nth, is_range = (match['nth'] or '').lower(), False
        if nth or match['cardinal']:
            numbers = [_ordinal(nth, count) if nth else int(match['cardinal'])]
        else:
            numbers = [int(digits) for digits in re.findall(r'\d+', match[0])]
            is_range = bool(_RANGE.search(match[0]))
            for span in _RANGE.finditer(match[0]):
                numbers += range(int(span[1]) + 1, min(int(span[2]), int(span[1]) + 999))
        is_soft = bool(_SOFT.search(text[: match.start()].lower()))
        numbers = sorted(set(numbers))
        found.append(References(match.start(), match.end(), tuple(numbers), is_soft, is_range))
    return found


def _ordinal(word: str, count: int) -> int:
    if word in _LAST:
        return count
    return int(word) if word.isdigit() else _NTH.index(word) + 1


@lru_cache(256)
def _unit(unit: str) -> Quantity | None:
    if unit in ('s', 'sec', 'secs'):
        unit = 'second'
    return quantity_in(f'1 {unit}')


def _number(match: re.Match[str], text: str) -> Number | None:
    """The number of a match; None: a share, or one that is none."""
    word, spelling = match['word'], match['unit'] or match['word_unit'] or ''
    rest, start = text[match.end() :], text[: match.start()]
    shared = _TIMES.match(rest) or _TIMES_BEFORE.search(start) or _LIST.match(rest)
    if shared and not spelling and not word:
        spelling = shared['unit'] or 'm'
    unit = _unit(spelling.lower()) if spelling else None
    is_pronoun = word and re.match(r'\W*$|\W*[.,;]', text[match.end() :])
    if (unit and unit.dimension == 'share') or (
        is_pronoun and text[: match.start()][-4:] == 'the '
    ):
        return None
    value = float(_COUNTS[word.lower()]) if word else float(match['digits'])
    decimals = len((match['digits'] or '').partition('.')[2])
    dimension, factor = (unit.dimension, unit.factor) if unit else ('', 1.0)
    factor = 1.0 if dimension == 'angle' and 'rad' not in spelling else factor
    after, before = text[match.end() :], text[: match.start()]
    if dimension == 'length':
        side = _MOVE_SIDE.search(before)
    else:
        side = _SIDE_AFTER.match(after) or _SIDE_BEFORE.search(before)
    return Number(
        match.start(), match.end(), match[0], value * factor, dimension,
        0.5 * 10**-decimals * factor, value, bool(_HEDGE.search(before)),
        side['side'].lower().removesuffix('s') if side and dimension in _SIDED else '',
    )  # fmt: skip


def _mentions(text: str, labels: tuple[str, ...]) -> list[Mention]:
    """The names of a sentence: of things, by the last word of a label, or by a colour alone."""
    lower = text.lower()
    found = [
        Mention(name.start, name.end, name.text, name.labels, name.is_plural)
        for name in find_names(lower, labels)
        if not (name.is_guess and name.kind not in _singulars(name.text))
        and (name.labels or name.kind not in _NEUTRAL)
        and (name.labels or (name.kind and name.kind not in COLOUR_WORDS))
    ]
    for word, own in _last_words(labels).items():
        for match in re.finditer(rf'\b{re.escape(word)}(?:e?s)?\b', lower):
            _add(found, match, own)
    if any(label.split()[0] in COLOUR_WORDS for label in labels):
        for match in _by_colour(labels).finditer(lower):
            words = match[0].split()
            own = tuple(label for label in labels if label.split()[: len(words)] == words)
            _add(found, match, own)
    return sorted(found, key=lambda mention: mention.start)


def _singulars(text: str) -> set[str]:
    return {text, text.removesuffix('s'), text.removesuffix('es')}


def _add(found: list[Mention], match: re.Match[str], labels: tuple[str, ...]) -> None:
    if not any(m.start < match.end() and match.start() < m.end for m in found):
        found.append(Mention(match.start(), match.end(), match[0], labels))


def _last_words(labels: tuple[str, ...]) -> dict[str, tuple[str, ...]]:
    words: dict[str, tuple[str, ...]] = {}
    for label in labels:
        *rest, last = label.split()
        if rest and last not in ('object', 'sign'):
            words[last] = (*words.get(last, ()), label)
    return words


@lru_cache(64)
def _by_colour(labels: tuple[str, ...]) -> re.Pattern[str]:
    """What names a thing by its colour and shape alone: 'red tall', 'red'; and what none has."""
    shapes = '|'.join({word for label in labels for word in label.split()[1:-1]} or {'round'})
    colours = '|'.join(sorted(COLOUR_WORDS))
    article = r'(?<!\bthe )(?<!\ba )(?<!\bone )'
    return re.compile(
        rf'\b(?:{colours})\s+(?:{shapes})\b|\b(?:{colours})\s+\w+(?=[.,;])|\b(?:{colours})\b|'
        rf'{article}\b\w+\s+(?:{shapes})(?=[.,;]|\s+(?:and|object))'
    )


def close(value: float, truth: float, slack: float) -> bool:
    """Tell whether a value is a truth within a slack."""
    return math.isfinite(truth) and abs(value - truth) <= slack
