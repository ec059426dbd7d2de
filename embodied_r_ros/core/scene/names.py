# SPDX-License-Identifier: Apache-2.0
"""Names in people's words: which labels of a scene they mean, and what was taken for what.

A name is known by the labels of the scene, by the tables of things and of detector classes, by
their other names, plurals and groups (a bag may be a backpack), by colour and shape ("the red
one"), and by a label that it resembles where it is no word of these (a typing error).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
import difflib
from functools import lru_cache
import re
from typing import TYPE_CHECKING

from embodied_r_ros.core.scene.memory import COMMON_WORDS
from embodied_r_ros.core.scene.sightings import LabelParts
from embodied_r_ros.core.types.things import named_things, other_names, plural
from embodied_r_ros.core.types.vocabulary import COCO, COLOUR_WORDS, SHAPES

if TYPE_CHECKING:
    from collections.abc import Sequence

# Names beside those of the tables: what else a label may call the thing.
_ALSO = {
    'person': ('man', 'woman', 'boy', 'girl', 'child', 'pedestrian', 'human'),
    'computer mouse': ('mouse',),
    'remote control': ('remote',),
    'hair dryer': ('hair drier',),
    'motorcycle': ('motorbike',),
    'airplane': ('plane',),
    'bicycle': ('bike',),
    'cabinet': ('cupboard', 'sideboard'),
    'shelf': ('bookshelf', 'bookcase'),
    'couch': ('settee',),
    'chair': ('armchair',),
    'tv': ('tele', 'telly'),
    'trash can': ('garbage can', 'rubbish bin', 'dustbin'),
    'plant': ('houseplant',),
    'cell phone': ('phone',),
}
_IRREGULAR = {
    **dict.fromkeys(('people', 'persons', 'humans', 'pedestrians'), 'person'),
    **dict.fromkeys(('somebody', 'someone', 'anybody', 'anyone'), 'person'),
    'men': 'man', 'women': 'woman', 'children': 'child', 'mice': 'mouse',
}  # fmt: skip
# What people call a coarse shape of `vocabulary.SHAPES`.
SHAPE_WORDS = {
    'round': ('ball', 'sphere'),
    'tall': ('pole', 'pillar', 'post', 'column', 'cylinder', 'tower'),
    'flat': ('plate', 'slab', 'board', 'mat', 'tile', 'disc', 'disk'),
    'blocky': ('box', 'cube', 'block', 'crate', 'cuboid'),
}
_SHAPE_OF = {word: shape for shape, words in SHAPE_WORDS.items() for word in words}
# Things of a shape, which may be what a label of colour and shape alone means.
_OF_SHAPE = {'bottle': 'tall', 'tube': 'tall', 'stick': 'tall', 'dish': 'flat', 'brick': 'blocky'}


SHAPE_NAMES = frozenset(_SHAPE_OF)  # of a coarse shape and no certain thing
ANYTHING = ('object', 'objects', 'thing', 'things', 'item', 'items', 'one', 'ones', 'stuff')
# Things whose name is more often another word: a name only where an article or number is before.
_VERBS = frozenset(
    {'can', 'saw', 'watch', 'stand', 'light', 'orange', 'fan', 'picture', 'cap', 'cover', 'bear',
     'sink'}
)  # fmt: skip
# Colours that are called otherwise.
_COLOUR_NAMES = {'turquoise': 'cyan', 'violet': 'purple', 'magenta': 'pink'}
# Groups of things that are other words, and words that resemble things.
_NO_GROUPS = frozenset(
    {'time', 'sport', 'music', 'office', 'climate', 'cutting', 'writing', 'laundry'}
)
_NO_TYPOS = frozenset({'closest', 'closer', 'place', 'please'})
_SELF = frozenset({'camera', 'robot', 'drone'})  # after "the": who was asked
_BEFORE_NAME = re.compile(r'(?:\b(?:an?|the|any|some|no|many|my|your|of|this|that|\d+)\s+|,\s*)$')
_CLOCK = re.compile(r"o'?\s?$")  # before "clock", where it is no thing
_AFTER_CLOCK = re.compile(r'\s+(?:direction|position|face)\b')
_AFTER_CAN = re.compile(r'\s+(?:be|i|you|u|we|one|see)\b')
_WORD = re.compile(r"[^\W\d_]+(?:'s)?")
_LEAST_LIKE = 0.8  # of a label that a word is taken for, by `difflib`
_SHORTEST = 4  # letters of a word that may be a typing error


@dataclass(frozen=True)
class Name:
    """A thing as somebody names it."""

    text: str  # the words, in lower case
    kind: str = ''  # the thing in singular; empty: any thing of the colour and shape
    colour: str = ''
    shape: str = ''
    labels: tuple[str, ...] = ()  # of the scene, which it means; none: the scene has no such thing
    start: int = 0  # where it stands in the text
    end: int = 0
    is_guess: bool = False  # taken for a label that it resembles
    is_plural: bool = False

    def fits(self, label: str) -> bool:
        """Tell whether a label of an item or landmark means it."""
        parts = LabelParts.of(label)
        if (self.colour and self.colour != parts.colour) or (
            self.shape and self.shape != parts.shape
        ):
            return False
        own = {parts.name, *other_names(parts.name)} - {''}
        return not self.kind or bool(own & names_of(self.kind))

    @property
    def in_words(self) -> str:
        """What it names, in singular: 'red chair'."""
        return ' '.join(filter(None, (self.colour, self.shape, self.kind or 'object')))


@lru_cache(1024)
def names_of(kind: str) -> frozenset[str]:
    """All names of a thing; of a group that is no thing itself, those of its members."""
    own = named_things().get(kind)
    if own is None and kind not in COCO:
        members = {each.name for each in named_things().values() if each.group == kind}
        if members:
            return frozenset(members | {kind})
    also = {kind, *_ALSO.get(kind, ()), *(key for key, names in _ALSO.items() if kind in names)}
    synonyms = {named_things()[name].synonym for name in also if name in named_things()}
    return frozenset((also | synonyms) - {''})


def is_group(kind: str) -> bool:
    """Whether things of several kinds are called so, and none alone: 'food'."""
    return kind not in named_things() and len(names_of(kind)) > 2


@lru_cache(1)
def _known_names() -> frozenset[str]:
    """Things that have a name in any scene."""
    groups = {thing.group for thing in named_things().values()} - _NO_GROUPS
    also = [name for names in _ALSO.values() for name in names]
    return frozenset({*groups, *COCO, *also, *_SHAPE_OF, *_OF_SHAPE, *named_things()})


@lru_cache(64)
def _vocabulary(labels: tuple[str, ...]) -> tuple[re.Pattern[str], dict[str, str]]:
    """What matches a known thing with its colour and shape, and the thing that each word names."""
    own = {LabelParts.of(label).name for label in labels} - _known_names() - {''}
    return _with_own_names(tuple(sorted(own)))


@lru_cache(64)
def _with_own_names(own: tuple[str, ...]) -> tuple[re.Pattern[str], dict[str, str]]:
    words = {name: name for name in (*_known_names(), *own)}
    words |= {plural(name): name for name in words}
    words |= _IRREGULAR | dict.fromkeys(ANYTHING, '')
    every = '|'.join(map(re.escape, sorted(words, key=len, reverse=True)))
    colours, shapes = '|'.join(sorted({*COLOUR_WORDS, *_COLOUR_NAMES})), '|'.join(SHAPES)
    pattern = rf'(?<!\w)(?:(?P<first>{shapes})\s+(?={colours}\b))?'
    pattern += rf'(?:(?P<colour>{colours})\s+)?(?:(?P<shape>{shapes})\s+)?'
    return re.compile(rf'{pattern}(?P<name>{every})(?!\w|-\w)'), words


def find_names(text: str, labels: Sequence[str]) -> list[Name]:
    """The things that a text names, in its order.

    Args:
        text: A person's or a model's words.
        labels: The labels of the scene.
    """
    return list(_found(text.lower(), tuple(dict.fromkeys(labels))))


@lru_cache(512)
def _found(text: str, labels: tuple[str, ...]) -> tuple[Name, ...]:
    pattern, words = _vocabulary(labels)
    names: list[Name] = []
    for match in pattern.finditer(text):
        kind, shape = words[match['name']], match['shape'] or match['first'] or ''
        colour = _COLOUR_NAMES.get(match['colour'], match['colour'] or '')
        before = text[: match.start()]
        rest = text[match.end() :]
        is_verb = match['name'] == 'can' and _AFTER_CAN.match(rest)
        if match['name'] == 'clock' and (_CLOCK.search(before) or _AFTER_CLOCK.match(rest)):
            continue
        if is_verb or not (kind or colour or shape):
            continue
        is_part = match[0] != text.strip(' .?!')
        if is_part and _is_other_word(match['name'], before, labels):
            continue
        is_plural = match['name'] != kind and plural(kind or 'object') == match['name']
        name = Name(
            match[0], kind, colour, shape, (), match.start(), match.end(), is_plural=is_plural
        )
        names.append(_with_labels(name, labels))
    names += _misspelt(text, names, labels)
    return tuple(sorted(names, key=lambda name: name.start))


def _is_other_word(word: str, before: str, labels: tuple[str, ...]) -> bool:
    if word in _SELF and word not in labels:
        return True
    return word in _VERBS and not _BEFORE_NAME.search(before)


def _with_labels(name: Name, labels: tuple[str, ...]) -> Name:
    """The name with the labels that it means: the very same, else those that may be called so."""
    own = {name.in_words, name.text, name.kind if not name.colour else name.in_words}
    is_whole = name.kind or name.shape  # "yellow things" are not the yellow object alone
    exact = tuple(label for label in labels if is_whole and label.lower() in own)
    if fitting := exact or tuple(label for label in labels if name.fits(label.lower())):
        return replace(name, labels=fitting)
    # A dining table may be what the scene knows as a table, a red cube a red object.
    rest = ' '.join(name.kind.split()[1:])
    alike = tuple(label for label in labels if (rest and label.lower() == rest))
    alike = alike or _by_shape(name, labels)
    return replace(name, labels=alike, is_guess=bool(alike))


def _by_shape(name: Name, labels: tuple[str, ...]) -> tuple[str, ...]:
    """Labels of colour and shape alone that a name of its shape may mean."""
    shape = name.shape or _SHAPE_OF.get(name.kind, '') or _OF_SHAPE.get(name.kind, '')
    parts = {label: LabelParts.of(label) for label in labels} if shape else {}
    coloured = {
        label: each
        for label, each in parts.items()
        if not each.name and (not name.colour or each.colour == name.colour)
    }
    fitting = tuple(label for label, each in coloured.items() if each.shape == shape)
    unsaid = tuple(label for label, each in coloured.items() if not each.shape)
    return fitting or unsaid


def _misspelt(text: str, names: list[Name], labels: tuple[str, ...]) -> list[Name]:
    """Words that are no known ones and resemble a label, or what it may be called as well."""
    words: dict[str, str] = {}
    known = _vocabulary(labels)[1]
    found = []
    for match in _WORD.finditer(text):
        word = match[0]
        is_part = any(name.start <= match.start() < name.end for name in names)
        is_known = word in COMMON_WORDS or word in known or word in _NO_TYPOS
        if is_part or len(word) < _SHORTEST or is_known:
            continue
        if not words:
            words = {each: label for label in labels for each in other_names(label.lower())}
            words |= {label.lower(): label for label in labels}
        close = [
            each
            for each in difflib.get_close_matches(word, words, 3, _LEAST_LIKE)
            if each[0] == word[0] and len(each) >= _SHORTEST
        ]
        if close:
            label = words[close[0]]
            kind = LabelParts.of(label).name
            found.append(
                Name(word, kind, '', '', (label,), match.start(), match.end(), is_guess=True)
            )
    return found


def resolve(words: str, labels: Sequence[str]) -> Name:
    """The thing that some words name: 'red chair', 'couches', or what no vocabulary has."""
    text = ' '.join(words.lower().split())
    if text in COLOUR_WORDS and text not in map(str.lower, labels):
        text = f'{text} thing'
    if text in ANYTHING:
        return Name(text, labels=tuple(labels), end=len(text))
    names = [n for n in find_names(text, labels) if (n.start, n.end) == (0, len(text))]
    if names:
        return names[0]
    exact = tuple(label for label in labels if label.lower() == text)
    if exact:
        parts = LabelParts.of(text)
        return Name(text, parts.name, parts.colour, parts.shape, exact, 0, len(text))
    inner = find_names(text, labels)
    if len(inner) == 1:
        return inner[0]
    colour, _, kind = text.partition(' ')
    is_coloured = colour in COLOUR_WORDS and bool(kind)
    name = Name(text, kind if is_coloured else text, colour * is_coloured)
    return _with_labels(name, tuple(labels)) if text else name
