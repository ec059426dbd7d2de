# SPDX-License-Identifier: Apache-2.0
"""Rows about a place with other names, so that a model learns to copy names it does not know.

Names are made up; or those of the classical perceiver for what is cut off by an edge of the image
or too small for a shape ('red object'), as most are on real cameras and none in simulated rooms;
or those of the fused perceiver ('red bowl').
"""

from __future__ import annotations

from dataclasses import replace
from itertools import chain
import re
from typing import TYPE_CHECKING

from embodied_r_ros.questions.wordings import MAP_WORDINGS
from embodied_r_ros.types.things import is_held_out_name, named_things, plural
from embodied_r_ros.types.vocabulary import COLOURS, SHAPES

from training.data.degrade import with_labels
from training.tiny.place_exercises import made_up_name

if TYPE_CHECKING:
    from collections.abc import Collection
    from random import Random

    from embodied_r_ros.questions.row import Row


# Of the names that are given.
_NO_SHAPE_SHARE, _COLOURED_SHARE = 0.3, 0.3
_LABEL = re.compile(
    rf'\b({"|".join(colour.name for colour in COLOURS)}) (?:{"|".join(SHAPES)}) (objects?)\b'
)
_TRAINED_NAMES = [name for name in named_things() if not is_held_out_name(name)]
# Names that are words of questions as well.
_WORDS = set(' '.join(chain.from_iterable(MAP_WORDINGS.values())).split()) & set(named_things())


def _other_name(names: Collection[str], rng: Random) -> str:
    share, colour, thing = rng.random(), rng.choice(COLOURS).name, rng.choice(_TRAINED_NAMES)
    if share < _NO_SHAPE_SHARE:
        return f'{colour} object'
    if share < _NO_SHAPE_SHARE + _COLOURED_SHARE:
        is_new = not any(thing in name or name in thing for name in names)
        return f'{colour} {thing if is_new else made_up_name(rng)}'
    return made_up_name(rng)


def rename_things(row: Row, rng: Random) -> Row:
    """The row with another name for each thing that it names, or whose map has it.

    What is absent has another name too: that a name is known does not tell that it is there.
    """
    texts = [row.question, *row.options, row.solution]
    labels = {landmark['label'] for landmark in row.landmarks}
    joined = ' '.join(texts)
    known = labels | set(named_things())
    names = {name for name in known if name in joined or name in labels} - _WORDS
    if labels & _WORDS:
        return row
    new: dict[str, str] = {}
    for name in sorted(names):
        other = _other_name(names, rng)
        other = made_up_name(rng) if other in new.values() else other
        if other in new.values():
            return row
        new[name] = other
    both = {plural(name): plural(other) for name, other in new.items()} | new
    every = '|'.join(map(re.escape, sorted(both, key=len, reverse=True)))
    pattern = re.compile(rf'\b(?:(?P<article>an?) )?(?P<name>{every})(?!\w)')

    def replaced(match: re.Match[str]) -> str:
        other = both[match['name']]
        article = 'an ' if other[0] in 'aeio' else 'a '
        return f'{article if match["article"] else ""}{other}'

    return replace(
        row,
        question=pattern.sub(replaced, row.question),
        options=tuple(pattern.sub(replaced, option) for option in row.options),
        solution=row.solution if row.options else pattern.sub(replaced, row.solution),
        landmarks=tuple(
            {**landmark, 'label': new[landmark['label']]} for landmark in row.landmarks
        ),
    )


def without_shapes(row: Row, rng: Random) -> Row:
    """The row with one kind of things of each colour whose shape is not known: 'red object'."""
    texts = [row.question, *row.options, row.solution]
    labels = {landmark['label'] for landmark in row.landmarks}
    labels |= {item['label'] for delta in row.deltas for item in delta['items']}
    known = sorted({match[0].removesuffix('s') for text in (*texts, *labels)
                    for match in _LABEL.finditer(text)})  # fmt: skip
    rng.shuffle(known)
    chosen = {label.split()[0]: label for label in known}.values()

    def replaced(match: re.Match[str]) -> str:
        is_chosen = match[0].removesuffix('s') in chosen
        return f'{match[1]} {match[2]}' if is_chosen else match[0]

    def renamed_text(text: str) -> str:
        return _LABEL.sub(replaced, text)

    return replace(
        row,
        question=renamed_text(row.question),
        options=tuple(map(renamed_text, row.options)),
        solution=row.solution if row.options else renamed_text(row.solution),
        landmarks=tuple({**each, 'label': renamed_text(each['label'])} for each in row.landmarks),
        deltas=tuple(with_labels(delta, renamed_text) for delta in row.deltas),
    )
