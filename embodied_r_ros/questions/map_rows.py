# SPDX-License-Identifier: Apache-2.0
"""Rows about scene maps: where the maps come from, and what a row carries of them."""

from __future__ import annotations

from dataclasses import replace
from itertools import zip_longest
import math
from random import Random
from typing import TYPE_CHECKING

from embodied_r_ros.questions.indoor import Moment, Unsolved
from embodied_r_ros.questions.map_kinds import MapMoment
from embodied_r_ros.questions.map_unknown import MAP_KINDS
from embodied_r_ros.questions.row import QuestionWithSolution, RowBuilder
from embodied_r_ros.questions.splits import split_of
from embodied_r_ros.scene.camera_track import CameraView
from embodied_r_ros.scene.landmark_map import LandmarkMap
from embodied_r_ros.types.geometry import wrapped
from embodied_r_ros.types.landmarks import Landmark, PathPoint, SceneMap, thinned
from embodied_r_ros.types.things import is_held_out_name, named_things
from embodied_r_ros.types.vocabulary import COLOURS, item_label, SHAPES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from embodied_r_ros.questions.coverage import Coverage
    from embodied_r_ros.questions.derive import QuestionsConfig
    from embodied_r_ros.questions.indoor import Draft
    from embodied_r_ros.questions.row import Row
    from embodied_r_ros.types.layout import LayoutObject

EVERY_MAP_KIND = 'every map kind'
_SAME_PLACE_M = 0.3  # what moved by more since its last sight is not asked about
_TURNED_BOX_M = 0.05  # by which an upright box that is turned reaches beyond its extents


def layout_map(moment: Moment) -> MapMoment | Unsolved:
    """What a perfect perceiver knows of a simulated place: what keyframes have shown so far."""
    layout = moment.layout
    if layout is None:
        return Unsolved('no true layout, and no map')
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
        PathPoint(image.stamp_ns, image.position, wrapped(image.yaw_rad))
        for image in moment.images
    )
    area = layout.room_size[0] * layout.room_size[1]
    scene = as_in_rows(SceneMap(tuple(landmarks), path, layout.frame_id, area))
    every = tuple(item_label(colour.name, shape) for colour in COLOURS for shape in SHAPES)
    return MapMoment(scene, 'layout', _TURNED_BOX_M, frozenset(doubtful), layout.labels or every)


def perceived_map(moment: Moment, split: str, slack_m: float) -> MapMoment | Unsolved:
    """What deltas and poses up to a moment made known of a place, as it would be live.

    Args:
        moment: The moment. Poses are those of its deltas, or else of its own.
        split: As in `moment_of_map`.
        slack_m: How far places may be off.
    """
    landmarks = LandmarkMap()
    for delta, pose in zip_longest(moment.deltas, moment.poses):
        landmarks.add(delta, CameraView(delta.pose or pose))
    scene = landmarks.scene_map()
    if not scene.landmarks:
        return Unsolved('no true layout, and nothing of what was seen has a place')
    return moment_of_map(scene, split, slack_m)


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
    return SceneMap.from_json(replace(scene, path=thinned(scene.path)).to_json())


def map_drafts(
    moment: MapMoment, split: str, rng: Random, coverage: Coverage
) -> Iterator[tuple[str, Draft, bool]]:
    """Ask every kind of a map: the kind, the question, and whether its wording is held out."""
    for kind, ask in MAP_KINDS.items():
        # Half of the test rows are worded as no training row is.
        held_out = split == 'test' and rng.random() < 0.5
        draft = ask(moment, rng, held_out)
        if isinstance(draft, Unsolved):
            coverage.unsolved[kind, draft.reason] += 1
        else:
            yield kind, draft, held_out


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
        for kind, draft, held_out in map_drafts(moment, builder.split, rng, coverage):
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
