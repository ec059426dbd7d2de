# SPDX-License-Identifier: Apache-2.0
"""Questions that a scene map does not answer, near misses above all: their solution is 'unknown'.

They are worded as those that it answers, so that a wording alone never says which is the case.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from embodied_r_ros.questions.indoor import Draft, Unsolved
from embodied_r_ros.questions.map_kinds import VSI_KINDS
from embodied_r_ros.questions.map_wordings import UNKNOWN_PROPERTIES
from embodied_r_ros.questions.path_kinds import ACTIONS, CHANGES, PATH_KINDS, POSITIONS
from embodied_r_ros.questions.people_kinds import PEOPLE_KINDS, places_to_choose, TURNS
from embodied_r_ros.questions.wordings import wording
from embodied_r_ros.reasoning.completions import UNKNOWN
from embodied_r_ros.types.vocabulary import COLOURS

if TYPE_CHECKING:
    from random import Random

    from embodied_r_ros.questions.map_kinds import MapKind, MapMoment

FOREIGN_SOURCE = 'foreign'  # what is asked is of no kind that a map holds
_OF_ONE: dict[str, tuple[str, ...]] = {
    'where_is': (),  # places are drawn
    'way_to': tuple(TURNS.values()),
    'landmark_position': tuple(POSITIONS.values()),
    'action_generation': tuple(ACTIONS.values()),
    'proximity': CHANGES,
    'how_far': (),
    'last_seen': (),
    'object_size_estimation': (),
}
_DIRECTIONS = {
    'object_rel_direction_easy': ('left', 'right'),
    'object_rel_direction_medium': ('left', 'right', 'back'),
    'object_rel_direction_hard': ('front-left', 'front-right', 'back-left', 'back-right'),
}
_NOTHING_ALIKE = 'nothing absent is like anything that is there'


def unknown_thing(moment: MapMoment, rng: Random, held_out: bool) -> Draft | Unsolved:
    """Where or how large a thing is that was not seen, and that is like one which was."""
    miss = _near_miss(moment, rng)
    if miss is None:
        return Unsolved(_NOTHING_ALIKE)
    item, like = miss
    kind = rng.choice(list(_OF_ONE))
    options = tuple(text.format(item=item) for text in _OF_ONE[kind])
    if kind == 'where_is':
        where, metres = rng.choice(list(TURNS)), rng.uniform(1, 6)
        options = tuple(places_to_choose(where, metres, rng))
    question = wording(kind, rng, held_out, item=item)
    return _unknown(moment, question, options, {'absent': item, 'like': like})


def unknown_relation(moment: MapMoment, rng: Random, held_out: bool) -> Draft | Unsolved:
    """How a thing that was not seen lies to one which was."""
    miss = _near_miss(moment, rng)
    if miss is None:
        return Unsolved(_NOTHING_ALIKE)
    item, like = miss
    there = [thing.label for thing in moment.singles]
    kind = rng.choice(['object_abs_distance', 'object_rel_distance', *_DIRECTIONS])
    needed = {'object_abs_distance': 1, 'object_rel_distance': 4}.get(kind, 2)
    if len(there) < needed:
        return Unsolved('too few things that their label alone names')
    labels = rng.sample(there, needed)
    truth = {'absent': item, 'like': like}
    if kind == 'object_rel_distance':
        names_text = ', '.join(labels)
        question = wording(kind, rng, held_out, options=names_text, reference=item)
        return _unknown(moment, question, tuple(labels), truth)
    names = [*labels, item]
    rng.shuffle(names)
    if kind == 'object_abs_distance':
        question = wording(kind, rng, held_out, a=names[0], b=names[1])
        return _unknown(moment, question, (), truth)
    slots = dict(zip(('at', 'facing', 'item'), names, strict=True))
    question = wording(kind, rng, held_out, **slots)
    return _unknown(moment, question, _DIRECTIONS[kind], truth)


def unknown_size(moment: MapMoment, rng: Random, held_out: bool) -> Draft | Unsolved:
    """How large a thing is whose size is not known, or the room."""
    labels = sorted(thing.label for thing in moment.singles if not thing.size)
    if labels:
        item = rng.choice(labels)
        question = wording('object_size_estimation', rng, held_out, item=item)
        return _unknown(moment, question, (), {'no_size_of': item})
    if moment.scene.room_area_m2 is None and moment.source == 'map':
        question = wording('room_size_estimation', rng, held_out)
        return _unknown(moment, question, (), {'no_size_of': 'room'})
    return Unsolved('every size is known')


def unknown_property(moment: MapMoment, rng: Random, held_out: bool) -> Draft | Unsolved:
    """What no map tells of a thing: its weight, its owner, its future; a colour without a name."""
    if not moment.things:
        return Unsolved('the map has no landmarks')
    item = rng.choice(sorted(moment.things))
    has_colour = any(colour.name in item.split(' ') for colour in COLOURS)
    question, options = rng.choice(
        [each for each in UNKNOWN_PROPERTIES[held_out] if not (has_colour and 'colour' in each[0])]
    )
    kind = 'choice' if options else 'text'
    truth = {'item': item}
    return Draft(question.format(item=item), options, UNKNOWN, kind, FOREIGN_SOURCE, truth)


def _near_miss(moment: MapMoment, rng: Random) -> tuple[str, str] | None:
    """A name that is not in the map, and what it is like."""
    for label in rng.sample(sorted(moment.things), len(moment.things)):
        if alike := moment.alike(label):
            return rng.choice(alike), label
    return None


def _unknown(
    moment: MapMoment, question: str, options: tuple[str, ...], truth: dict[str, str]
) -> Draft:
    kind = 'choice' if options else 'number'
    return Draft(question, options, UNKNOWN, kind, moment.source, dict(truth))


UNKNOWN_KINDS: dict[str, MapKind] = {
    'unknown_thing': unknown_thing,
    'unknown_relation': unknown_relation,
    'unknown_size': unknown_size,
    'unknown_property': unknown_property,
}
MAP_KINDS: dict[str, MapKind] = {
    **VSI_KINDS,
    **PATH_KINDS,
    **PEOPLE_KINDS,
    **UNKNOWN_KINDS,
}
