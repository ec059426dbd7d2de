# SPDX-License-Identifier: Apache-2.0
"""Rows about scene maps: where the maps come from, and what a row carries of them.

Also about what a map does not answer, near misses above all: their solution is 'unknown'. They are
worded as those that it answers, so that a wording alone never says which is the case.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
import math
from random import Random
from typing import TYPE_CHECKING

from embodied_r_ros.core.types.answers import UNKNOWN
from embodied_r_ros.core.types.deltas import ItemStatus
from embodied_r_ros.core.types.geometry import wrap_angle_rad
from embodied_r_ros.core.types.landmarks import Landmark, PathPoint, SceneMap, thin_path
from embodied_r_ros.core.types.things import is_held_out_name, named_things
from embodied_r_ros.core.types.vocabulary import COLOURS, item_label, SHAPES
from embodied_r_ros.data.episodes.offline import map_of_deltas
from embodied_r_ros.data.questions.indoor import ask_kinds, Draft, Moment, NoSolution
from embodied_r_ros.data.questions.map_kinds import MapMoment, VSI_KINDS
from embodied_r_ros.data.questions.path_kinds import ACTIONS, PATH_KINDS, POSITIONS
from embodied_r_ros.data.questions.people_kinds import PEOPLE_KINDS, places_to_choose, TURNS
from embodied_r_ros.data.questions.row import QuestionWithSolution, RowBuilder
from embodied_r_ros.data.questions.splits import split_of
from embodied_r_ros.data.questions.wordings import UNKNOWN_PROPERTIES, wording

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from embodied_r_ros.core.types.deltas import SemanticDelta
    from embodied_r_ros.core.types.layout import LayoutObject
    from embodied_r_ros.data.questions.coverage import Coverage
    from embodied_r_ros.data.questions.derive import QuestionsConfig
    from embodied_r_ros.data.questions.map_kinds import MapKind
    from embodied_r_ros.data.questions.row import Row

EVERY_MAP_KIND = 'every map kind'
_SAME_PLACE_M = 0.3  # what moved by more since its last sight is not asked about
_TURNED_BOX_M = 0.05  # by which an upright box that is turned reaches beyond its extents

FOREIGN_SOURCE = 'foreign'  # what is asked is of no kind that a map holds
_OF_ONE: dict[str, tuple[str, ...]] = {
    'where_is': (),  # places are drawn
    'way_to': tuple(TURNS.values()),
    'landmark_position': tuple(POSITIONS.values()),
    'action_generation': tuple(ACTIONS.values()),
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


def unknown_thing(moment: MapMoment, rng: Random, held_out: bool) -> Draft | NoSolution:
    """Where or how large a thing is that was not seen, and that is like one which was."""
    miss = _near_miss(moment, rng)
    if miss is None:
        return NoSolution(_NOTHING_ALIKE)
    item, like = miss
    kind = rng.choice(list(_OF_ONE))
    options = tuple(text.format(item=item) for text in _OF_ONE[kind])
    if kind == 'where_is':
        where, metres = rng.choice(list(TURNS)), rng.uniform(1, 6)
        options = tuple(places_to_choose(where, metres, rng))
    question = wording(kind, rng, held_out, item=item)
    return _unknown(moment, question, options, {'absent': item, 'like': like})


def unknown_relation(moment: MapMoment, rng: Random, held_out: bool) -> Draft | NoSolution:
    """How a thing that was not seen lies to one which was."""
    miss = _near_miss(moment, rng)
    if miss is None:
        return NoSolution(_NOTHING_ALIKE)
    item, like = miss
    there = [thing.label for thing in moment.singles]
    kind = rng.choice(['object_abs_distance', 'object_rel_distance', *_DIRECTIONS])
    needed = {'object_abs_distance': 1, 'object_rel_distance': 4}.get(kind, 2)
    if len(there) < needed:
        return NoSolution('too few things that their label alone names')
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


def unknown_size(moment: MapMoment, rng: Random, held_out: bool) -> Draft | NoSolution:
    """How large a thing is whose size is not known, or the room."""
    labels = sorted(thing.label for thing in moment.singles if not thing.size)
    if labels:
        item = rng.choice(labels)
        question = wording('object_size_estimation', rng, held_out, item=item)
        return _unknown(moment, question, (), {'no_size_of': item})
    if moment.scene.room_area_m2 is None and moment.source == 'map':
        question = wording('room_size_estimation', rng, held_out)
        return _unknown(moment, question, (), {'no_size_of': 'room'})
    return NoSolution('every size is known')


def unknown_property(moment: MapMoment, rng: Random, held_out: bool) -> Draft | NoSolution:
    """What no map tells of a thing: its weight, its owner, its future; a colour without a name."""
    if not moment.things:
        return NoSolution('the map has no landmarks')
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


def layout_map(moment: Moment) -> MapMoment | NoSolution:
    """What a perfect perceiver knows of a simulated place: what keyframes have shown so far."""
    layout = moment.layout
    if layout is None:
        return NoSolution('no true layout, and no map')
    landmarks: list[Landmark] = []
    doubtful: set[str] = set()
    for thing in layout.objects:
        if thing.id not in moment.sights:
            # In view between keyframes, or never: others of its label cannot be counted.
            is_twin = any(o.label == thing.label and o.id in moment.sights for o in layout.objects)
            if is_twin or 0 < thing.first_seen_ns <= moment.now_ns:
                doubtful.add(thing.label)
            continue
        landmark = _landmark(moment, thing)
        now = thing.position_at(moment.images[-1].stamp_ns)
        if now is None or math.dist(now, landmark.position) > _SAME_PLACE_M:
            doubtful.add(thing.label)
        landmarks.append(landmark)
    path = tuple(
        PathPoint(image.stamp_ns, image.position, wrap_angle_rad(image.yaw_rad))
        for image in moment.images
    )
    area = layout.room_size[0] * layout.room_size[1]
    scene = as_in_rows(SceneMap(tuple(landmarks), path, layout.frame_id, area))
    every = tuple(item_label(colour.name, shape) for colour in COLOURS for shape in SHAPES)
    return MapMoment(scene, 'layout', _TURNED_BOX_M, frozenset(doubtful), layout.labels or every)


def perceived_map(moment: Moment, split: str, slack_m: float) -> MapMoment | NoSolution:
    """What deltas and poses up to a moment made known of a place, as it would be live.

    Args:
        moment: The moment. Poses are those of its deltas, or else of its own.
        split: As in `moment_of_map`.
        slack_m: How far places may be off.
    """
    scene = map_of_deltas(moment.deltas, moment.poses)
    if not scene.landmarks:
        return NoSolution('no true layout, and nothing of what was seen has a place')
    moment_now = moment_of_map(scene, split, slack_m)
    return replace(moment_now, doubtful=_labels_without_place(moment.deltas, scene))


def _labels_without_place(deltas: Sequence[SemanticDelta], scene: SceneMap) -> frozenset[str]:
    """Labels of which a delta shows more things than the map has: it cannot count them."""
    mapped = Counter(landmark.label for landmark in scene.landmarks)
    labels: set[str] = set()
    for delta in deltas:
        items = Counter(item.label for item in delta.items if item.status is not ItemStatus.LEFT)
        labels.update(label for label, count in items.items() if count > mapped[label])
    return frozenset(labels)


def moment_of_map(scene: SceneMap, split: str, slack_m: float) -> MapMoment:
    """What a map knows that no truth proves: it is its own teacher.

    Args:
        scene: The map, up to now.
        split: Names that are held out are asked for in the split test alone.
        slack_m: How far its places may be off.
    """
    return MapMoment(as_in_rows(scene), 'map', slack_m, names=names_for(split))


def _landmark(moment: Moment, thing: LayoutObject) -> Landmark:
    """A thing as its sights at keyframes show it."""
    stamps = [moment.images[index].stamp_ns for index in moment.sights[thing.id]]
    place = thing.position_at(stamps[-1])
    assert place is not None  # it was visible
    length, width, height = thing.size
    is_across = abs(math.sin(thing.yaw_rad)) > math.sqrt(0.5)
    return Landmark(
        thing.label,
        place,
        thing.id,
        (width, length, height) if is_across else (length, width, height),
        stamps[0],
        stamps[-1],
        len(stamps),
    )


def as_in_rows(scene: SceneMap) -> SceneMap:
    """The map as rows carry it: rounded, and with at most 40 points of its path, evenly taken.

    Solutions come from it, so that a row proves its own.
    """
    rounded = SceneMap.from_json(scene.to_json())  # first, as live: points are chosen by it
    return replace(rounded, path=thin_path(rounded.path))


def names_for(split: str) -> tuple[str, ...]:
    """Names that questions of a split may ask for; held-out ones are for the split test alone."""
    return tuple(name for name in named_things() if split == 'test' or not is_held_out_name(name))


def rows_of_map(
    scene: SceneMap, name: str, config: QuestionsConfig, coverage: Coverage
) -> Iterator[Row]:
    """Rows about a map without deltas, which is what it was made to know.

    Args:
        scene: The map.
        name: Of its place: decides about the split.
        config: How many, and how far the places of the map may be off.
        coverage: Counts what had no solution.
    """
    moment = moment_of_map(scene, split_of(name, config), config.map_slack_m)
    yield from rows_of_map_moment(moment, name, config, coverage)


def rows_of_map_moment(
    moment: MapMoment, name: str, config: QuestionsConfig, coverage: Coverage
) -> Iterator[Row]:
    """Rows about what is known of a place, as many rounds of all kinds as there are moments."""
    builder = RowBuilder(name, name, split_of(name, config))
    questions: set[str] = set()
    for number in range(config.moments):
        rng = Random(f'{config.seed}:{name}:map:{number}')
        drafts = ask_kinds(MAP_KINDS, moment, builder.split, rng, coverage)
        for kind, draft, held_out in drafts:
            question = QuestionWithSolution.of_draft(kind, draft, rng)
            row = builder.row(
                f'{number}/{kind}/{question.digest}',
                question,
                (),
                meta={'truth': draft.truth, 'held_out_wording': held_out},
            )
            if draft.question not in questions:
                questions.add(draft.question)
                yield row.with_map(moment.scene)
