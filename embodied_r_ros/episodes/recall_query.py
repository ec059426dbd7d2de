# SPDX-License-Identifier: Apache-2.0
"""What a question looks for in recordings: things, a place, and how they lie. No model reads it.

Things are named as in `types.things` and COCO, by their other names, and by the groups that hold
them (a bag may be a backpack). What neither knows is looked for by its own name.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from functools import cache
import re
from typing import TYPE_CHECKING

from embodied_r_ros.common.errors import InputError
from embodied_r_ros.common.untrusted import as_data
from embodied_r_ros.scene.memory import question_terms
from embodied_r_ros.scene.sightings import LabelParts
from embodied_r_ros.types.things import named_things, other_names, plural, with_article
from embodied_r_ros.types.vocabulary import COCO, COLOUR_WORDS, SHAPES

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

# Names beside those of the table: what else a label may call the thing.
_ALSO = {
    'person': ('man', 'woman', 'boy', 'girl', 'child', 'pedestrian', 'human'),
    'computer mouse': ('mouse',),
    'remote control': ('remote',),
    'hair dryer': ('hair drier',),
    'motorcycle': ('motorbike',),
    'airplane': ('plane',),
    'cabinet': ('cupboard',),
}
_WORDS_FOR = {
    **dict.fromkeys(('people', 'persons', 'human', 'humans', 'pedestrians'), 'person'),
    **dict.fromkeys(('somebody', 'someone', 'anybody', 'anyone'), 'person'),
    'men': 'man',
    'women': 'woman',
    'children': 'child',
    'cupboard': 'cabinet',
}  # fmt: skip
_ANYTHING = ('object', 'objects', 'thing', 'things', 'item', 'items')
_ANYWHERE = ('room', 'rooms', 'house', 'building', 'scene', 'view', 'background', 'world')
# Things by which a place is known: names, and groups of the table of things.
_PLACES = {
    'kitchen': ('cooling', 'stove', 'kitchen device', 'kitchen island', 'kitchen cabinet'),
    'bathroom': ('bath', 'toiletry'),
    'restroom': ('toilet', 'urinal'),
    'bedroom': ('bed',),
    'office': ('computer', 'office', 'desk', 'office chair', 'whiteboard', 'monitor'),
    'living room': ('couch', 'tv', 'fireplace'),
    'dining room': ('dining table',),
    'laundry room': ('laundry',),
    'garage': ('car', 'bicycle', 'motorcycle', 'lawn mower', 'workbench'),
}
_PLACES |= dict.fromkeys(('lounge', 'corridor', 'hallway', 'lobby', 'lab', 'laboratory'), ())
_NEAR = re.compile(
    r'\b(?:near|by|beside|alongside|around|next to|close to|in front of|behind|under|beneath|on|'
    r'on top of|above|below|over|at|in|inside|with|holding|carrying|between|against)\b'
)
_INTO = re.compile(r'\b(?:in|inside|into|through|within|at|from)\s+(?:the |a |an |my |our )?$')
_WITHOUT = re.compile(
    r"\b(?:no|without|not|never|doesn't|don't|isn't|aren't|lack|lacks|lacking)\b"
)
_FIRST = re.compile(r'\bfirst\b')
_LAST = re.compile(r'\b(?:last|latest|most recently|where is|where are|where did|where was)\b')
_NOUN = re.compile(r'\b(?:an?|the|any|some|no|another|my|your|our|this|that)\s+((?:[\w-]+\s*)+)')
_STOP = re.compile(
    r'\b(?:is|are|was|were|be|been|there|that|which|who|what|where|when|how|many|show|shows|shown|'
    r'showing|see|saw|seen|visible|appear|appears|appeared|contain|contains|have|has|had|do|does|'
    r'did|you|we|i|it|and|or|not|last|first|ever|recordings?|episodes?|bags?\s+of|keyframes?|'
    r'images?|pictures?|videos?|camera|robot|place|time|moment|left|right|side|stand|stands|'
    r'standing|lie|lies|lying|sit|sits|sitting|lay|stood|sat|of|to)\b|[?.,!;:]'
)
_OF_RECORDINGS = re.compile(r'bags?|rosbags?|made|happen(?:ed|s)?|who|anyone')
_MOST_THINGS = 4


class Relation(Enum):
    """How the things that a question names belong together."""

    ALL = 'and'  # each is in the recording
    ANY = 'or'
    NEAR = 'near'  # the first is near the others


class Order(Enum):
    """Which sight a question is after."""

    BEST = 'best'
    FIRST = 'first'
    LAST = 'last'


@dataclass(frozen=True)
class WantedThing:
    """A thing that is looked for."""

    name: str  # as the question names it, with its colour and shape
    names: frozenset[str]  # labels that mean it, in lower case; empty: any of the colour
    colour: str = ''
    shape: str = ''

    def fits(self, label: str) -> bool:
        """Whether a label of an item or landmark means it."""
        parts = LabelParts.of(label.lower())
        if self.colour and self.colour != parts.colour:
            return False
        if self.shape and self.shape != parts.shape:
            return False
        if not self.names:
            return True
        return bool(parts.name) and bool(self.names & {parts.name, *other_names(parts.name)})

    def is_in(self, text: str) -> bool:
        """Whether a text names it, and not that there is none."""
        return bool(_in_text(self.names or frozenset(_ANYTHING), self.colour).search(text.lower()))


@dataclass(frozen=True)
class WantedPlace:
    """A place that a question is about."""

    name: str
    things: frozenset[str] = frozenset()  # whose sight tells of it; empty: words alone do

    def is_in(self, text: str) -> bool:
        """Whether a text names it."""
        return bool(re.search(rf'\b{re.escape(self.name)}\b', text.lower()))

    def is_told_by(self, label: str) -> bool:
        """Whether a thing tells of it."""
        name = LabelParts.of(label.lower()).name
        return name in self.things


@dataclass(frozen=True)
class RecallQuery:
    """What a question looks for."""

    text: str
    things: tuple[WantedThing, ...] = ()
    relation: Relation = Relation.ALL
    place: WantedPlace | None = None
    order: Order = Order.BEST
    is_without: bool = False  # recordings that do not show it are asked for
    unread: tuple[str, ...] = ()  # words that had no part in it

    def in_words(self) -> str:
        """What is looked for: 'a chair near a table', 'a person in the kitchen'."""
        joint = f' {self.relation.value} '
        words = joint.join(_with_article(thing.name) for thing in self.things)
        place = f'in the {self.place.name}' if self.place else ''
        return as_data(' '.join(filter(None, (words or 'anything', place))))


def read_query(question: str) -> RecallQuery:
    """What a question looks for.

    Raises:
        InputError: It names no thing and no place.
    """
    text = ' '.join(question.lower().split())
    spans = _known_spans(text)
    spans += _unknown_spans(text, spans)
    if not spans:
        spans = _bare_words(text)
    spans.sort(key=lambda span: span.start)
    places = [span for span in spans if span.is_place]
    things = [span for span in spans if not span.is_place][:_MOST_THINGS]
    if not things and not places:
        msg = (
            f'{question!r} names nothing that could be looked for: name a thing or a place, such '
            "as 'which recordings show a chair near a table', or ask a model with --model"
        )
        raise InputError(msg)
    place = places[-1] if places else None
    wanted = tuple(dict.fromkeys(_wanted_thing(span) for span in things))
    used = ' '.join(text[span.start : span.end] for span in spans)
    unread = sorted(
        term
        for term in question_terms(text) - question_terms(used)
        if not any(words.fullmatch(term) for words in (_STOP, _NEAR, _WITHOUT, _OF_RECORDINGS))
    )
    no = _WITHOUT.search(text)
    if no and things and no.start() > things[0].start:
        if len(things) > 1:
            msg = f'{question!r} asks for one thing without another: ask for each of them'
            raise InputError(msg)
        if words := [term for term in unread if term in text[no.end() :]]:
            msg = f'{question!r} says that a thing is not {words[0]!r}, which cannot be looked for'
            raise InputError(msg)
    return RecallQuery(
        question,
        wanted,
        _relation(text, things),
        WantedPlace(place.name, _things_of(place.name)) if place else None,
        _order(text),
        bool(no),
        tuple(unread),
    )


def thing_of(words: str) -> WantedThing:
    """The thing that some words name: 'red chair', 'bags', or what no vocabulary has."""
    text = ' '.join(words.lower().split())
    pattern, names = _vocabulary()
    if (match := pattern.fullmatch(text)) is None:
        colour, _, name = text.partition(' ')
        is_coloured = colour in COLOUR_WORDS and bool(name)
        return WantedThing(text, frozenset({name if is_coloured else text}), colour * is_coloured)
    colour, shape = match['colour'] or '', match['shape'] or ''
    return _wanted_thing(_Span(0, len(text), names[match['name']], colour, shape))


@dataclass(frozen=True)
class _Span:
    """A thing or place in a question."""

    start: int
    end: int
    name: str  # in singular; empty: any thing
    colour: str = ''
    shape: str = ''
    is_place: bool = False


@cache
def _vocabulary() -> tuple[re.Pattern[str], dict[str, str]]:
    """What matches any known thing with its colour and shape, and the name of each word."""
    groups = {thing.group for thing in named_things().values()}
    words = {name: name for name in (*COCO, *_ALSO, *groups, *_PLACES, *named_things()) if name}
    words |= {plural(name): name for name in words}
    words |= {also: also for name in _ALSO for also in _ALSO[name]}
    words |= dict.fromkeys(_ANYTHING, '')
    words |= _WORDS_FOR
    names = '|'.join(map(re.escape, sorted(words, key=len, reverse=True)))
    pattern = rf'\b(?:(?P<colour>{"|".join(sorted(COLOUR_WORDS))})\s+)?'
    pattern += rf'(?:(?P<shape>{"|".join(SHAPES)})\s+)?(?P<name>{names})\b'
    return re.compile(pattern), words


def _known_spans(text: str) -> list[_Span]:
    pattern, words = _vocabulary()
    spans = [_Span(0, 3, 'person')] if re.match(r'who\b', text) else []
    for match in pattern.finditer(text):
        name = words[match['name']]
        colour, shape = match['colour'] or '', match['shape'] or ''
        # "Bags" that are asked for by "which bags" are recordings; a thing of no kind is none.
        if not name and not colour and not shape:
            continue
        before = text[: match.start()]
        if match['name'] == 'bags' and re.search(r'\b(?:which|what|how many|all|the) $', before):
            continue
        if name == 'robot' and before.endswith('the '):
            continue  # who recorded it
        is_place = name in _PLACES and name not in named_things()
        if name == 'office' and not _INTO.search(before):
            continue  # a word before a thing: office chair
        spans.append(_Span(match.start(), match.end(), name, colour, shape, is_place))
    return spans


def _unknown_spans(text: str, known: Collection[_Span]) -> list[_Span]:
    """Nouns that no vocabulary has: what follows an article, up to a word of another kind."""
    masked = list(text)
    for span in known:
        masked[span.start : span.end] = '.' * (span.end - span.start)
    rest = _STOP.sub(lambda match: '.' * len(match[0]), ''.join(masked))
    rest = _NEAR.sub(lambda match: '.' * len(match[0]), rest)
    spans = []
    for match in _NOUN.finditer(rest):
        words, end = match[1].rstrip(), match.start(1) + len(match[1].rstrip())
        if rest[match.end() : match.end() + 1] == '.' and any(
            span.start == match.end() for span in known
        ):
            continue  # adjectives of a known thing
        colour, _, name = words.partition(' ')
        if colour not in COLOUR_WORDS:
            colour, name = '', words
        if name and name not in _ANYWHERE:
            is_place = bool(_INTO.search(text[: match.start(1)]))
            spans.append(_Span(match.start(1), end, name, colour, '', is_place))
    return spans


def _bare_words(text: str) -> list[_Span]:
    """Words that may be names, where a question has no noun that can be told as one."""
    spans = []
    for term in sorted(question_terms(text), key=text.index):
        if not _STOP.fullmatch(term) and not _NEAR.fullmatch(term):
            start = text.index(term)
            name = term.removesuffix('s') if len(term) > 3 else term
            spans.append(_Span(start, start + len(term), name))
    return spans


def _wanted_thing(span: _Span) -> WantedThing:
    name = ' '.join(filter(None, (span.colour, span.shape, span.name or 'object')))
    return WantedThing(name, _names_of(span.name), span.colour, span.shape)


@cache
def _names_of(name: str) -> frozenset[str]:
    """All names of a thing: of a group that is no thing itself, those of its members."""
    if not name:
        return frozenset()
    things = named_things()
    own = things.get(name)
    if own is None and name not in COCO:
        members = {each.name for each in things.values() if each.group == name}
        return frozenset(members | {name})
    names = {name, *_ALSO.get(name, ())}
    return frozenset(names | ({own.synonym} if own and own.synonym else set()))


@cache
def _things_of(place: str) -> frozenset[str]:
    return frozenset(name for entry in _PLACES.get(place, ()) for name in _names_of_entry(entry))


def _names_of_entry(entry: str) -> Iterable[str]:
    members = {thing.name for thing in named_things().values() if thing.group == entry}
    return members or _names_of(entry)


def _relation(text: str, things: Collection[_Span]) -> Relation:
    """By the words between the first two things."""
    if len(things) < 2:
        return Relation.ALL
    first, second, *_ = things
    between = text[first.end : second.start]
    if re.search(r'\bor\b', between):
        return Relation.ANY
    return Relation.NEAR if _NEAR.search(between) else Relation.ALL


def _order(text: str) -> Order:
    if _FIRST.search(text):
        return Order.FIRST
    return Order.LAST if _LAST.search(text) else Order.BEST


@cache
def _in_text(names: frozenset[str], colour: str) -> re.Pattern[str]:
    every = sorted({*names, *map(plural, names)}, key=len, reverse=True)
    before = rf'{re.escape(colour)}\W+(?:\w+\W+)?' if colour else ''
    pattern = '|'.join(map(re.escape, every))
    return re.compile(rf'(?<!\bno )(?<!\bwithout )(?<!\bwithout a )\b{before}(?:{pattern})\b')


def _with_article(name: str) -> str:
    return with_article(name) if name else 'a thing'
