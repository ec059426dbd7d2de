# SPDX-License-Identifier: Apache-2.0
"""Maps of a camera alone: right up to one factor, in metres where something gives them."""

from __future__ import annotations

from dataclasses import replace
import math
from typing import TYPE_CHECKING

from embodied_r_ros.core.scene.landmark_map import LandmarkMap
from embodied_r_ros.core.scene.map_text import map_text
from embodied_r_ros.core.scene.tools import Scene
from embodied_r_ros.core.types.deltas import Motion, MotionSource, ScaleSource
from embodied_r_ros.core.types.geometry import Pose, relative_motion, yaw_pitch_roll
from embodied_r_ros.core.types.landmarks import SceneMap
from hypothesis import given, settings
from hypothesis import strategies as st
import numpy as np
import pytest

from test.core.scene.places import camera_at, delta_of, Thing

if TYPE_CHECKING:
    from collections.abc import Sequence

    from embodied_r_ros.core.types.deltas import SemanticDelta
    from numpy.typing import NDArray

CHAIR, TV = Thing('chair', (4.0, 0.8, 0.5), 0.9), Thing('tv', (5.0, -1.0, 1.2), 1.1)
FRIDGE, LAMP = Thing('refrigerator', (6.0, 0.2, 0.9), 1.75), Thing('lamp', (3.5, -0.6, 0.8), 1.5)
NAMED = (CHAIR, TV, FRIDGE, LAMP)
CODES = tuple(replace(thing, label=f'code {n}') for n, thing in enumerate(NAMED))
WAY = tuple(camera_at(0.12 * n, 0.3 * n, -2.0 * n) for n in range(8))


def step(before: Pose, after: Pose, unit_m: float, scale: ScaleSource) -> Motion:
    """The motion between two poses as a camera alone tells it, in a unit of its own."""
    rotation, way = relative_motion(before, after)
    x, y, z = (float(value) / unit_m for value in way)
    return Motion(
        MotionSource.FOLLOWED, *yaw_pitch_roll(rotation), (x, y, z), scale=scale, confidence=0.9
    )


def walked(
    things: Sequence[Thing],
    unit_m: float = 3.0,
    way: Sequence[Pose] = WAY,
    *,
    ranged: ScaleSource = ScaleSource.UNKNOWN,
    scales: dict[int, ScaleSource] | None = None,
) -> tuple[LandmarkMap, list[SemanticDelta]]:
    """The map of a way whose motions are in a unit, with what a delta's motion rests on."""
    landmarks, deltas = LandmarkMap(), []
    for number, pose in enumerate(way):
        delta, view = delta_of(number, pose, *things, scale=ranged)
        if number:
            scale = (scales or {}).get(number, ScaleSource.RELATIVE)
            delta = replace(delta, motion=step(way[number - 1], pose, unit_m, scale))
        landmarks.add(delta, replace(view, pose=None))
        deltas.append(delta)
    return landmarks, deltas


def from_start(thing: Thing) -> NDArray[np.float64]:
    """Where a thing is in the axes of the first camera [m]."""
    return np.subtract(thing.place, WAY[0].position)


@settings(max_examples=8, deadline=None)
@given(st.floats(2.5, 8.0))
def test_things_lie_where_they_are_up_to_one_factor(unit_m: float) -> None:
    landmarks, _ = walked(CODES, unit_m)
    scene_map = landmarks.scene_map()
    assert scene_map.scale is ScaleSource.RELATIVE
    places = {one.label: np.array(one.position) for one in scene_map.landmarks}
    assert sorted(places) == sorted(thing.label for thing in CODES)
    factors = [
        float(np.linalg.norm(from_start(thing)) / np.linalg.norm(places[thing.label]))
        for thing in CODES
    ]
    assert max(factors) / min(factors) < 1.15
    for thing in CODES:
        own, true = places[thing.label], from_start(thing)
        cosine = float(own @ true / np.linalg.norm(own) / np.linalg.norm(true))
        assert math.degrees(math.acos(min(1.0, cosine))) < 3


@settings(max_examples=8, deadline=None)
@given(st.floats(2.5, 8.0))
def test_usual_sizes_of_several_named_things_give_metres(unit_m: float) -> None:
    scene_map = walked(NAMED, unit_m)[0].scene_map()
    assert scene_map.scale is ScaleSource.SIZES
    assert scene_map.scale_error is not None
    assert 0 < scene_map.scale_error <= 0.25
    for thing in NAMED:
        (own,) = [one for one in scene_map.landmarks if one.label == thing.label]
        assert math.dist(own.position, (0, 0, 0)) == pytest.approx(
            float(np.linalg.norm(from_start(thing))), rel=0.25
        )
    length = math.dist(scene_map.path[0].position, scene_map.path[-1].position)
    assert length == pytest.approx(math.dist(WAY[0].position, WAY[-1].position), rel=0.25)


@pytest.mark.parametrize(
    'things',
    [
        NAMED[:1],  # one thing alone
        # What is no such thing, or a toy of it: sizes that disagree give no metres.
        (CHAIR, replace(TV, side_m=0.2), replace(FRIDGE, side_m=0.3), replace(LAMP, side_m=0.9)),
    ],
)
def test_too_few_sizes_or_sizes_that_disagree_give_no_metres(things: Sequence[Thing]) -> None:
    landmarks, _ = walked(things)
    assert landmarks.scene_map().scale is ScaleSource.RELATIVE
    assert 'no metres' in landmarks.summary()


def test_a_measured_distance_goes_before_usual_sizes() -> None:
    landmarks, _ = walked([replace(thing, side_m=3 * thing.side_m) for thing in NAMED],
                          ranged=ScaleSource.FLOOR)  # fmt: skip
    scene_map = landmarks.scene_map()
    assert scene_map.scale is ScaleSource.FLOOR
    (chair,) = [one for one in scene_map.landmarks if one.label == 'chair']
    assert chair.position == pytest.approx(tuple(from_start(CHAIR)), rel=0.15)


def test_lengths_of_two_units_are_not_put_together() -> None:
    landmarks, _ = walked(CODES, scales={4: ScaleSource.UNKNOWN})
    assert landmarks.parts == 2
    metric = Motion(
        MotionSource.FOLLOWED, 0.0, 0.0, 0.0, (0.5, 0.0, 0.0), is_metric=True,
        scale=ScaleSource.DEPTH,
    )  # fmt: skip
    landmarks, deltas = walked(CODES)
    landmarks.add(replace(deltas[-1], motion=metric, from_id=7, to_id=8))
    assert landmarks.parts == 2


def test_a_relative_map_says_the_same_after_it_was_saved() -> None:
    whole, _ = walked(NAMED, ranged=ScaleSource.FLOOR)
    told = whole.scene_map()
    assert whole.kept().scene_map() == told
    assert SceneMap.from_json(told.to_json()).scale_error == pytest.approx(
        told.scale_error, abs=1e-3
    )


def test_without_metres_directions_and_what_is_nearer_are_told_and_no_metres() -> None:
    landmarks, deltas = walked(CODES)
    scene = Scene(deltas, landmarks.scene_map())
    where, near = scene.where('code 0'), scene.nearest(among=('code 2', 'code 3'))
    x, y, _ = WAY[-1].rotation().T @ np.subtract(CHAIR.place, WAY[-1].position)
    assert where.number == pytest.approx(math.degrees(math.atan2(y, x)), abs=5)
    assert near.value == 'code 3'
    for result in (
        where,
        near,
        scene.things('all'),
        scene.things('ahead'),
        scene.way_to('code 0'),
    ):
        assert result.is_known
        assert ' m ' not in f'{result.text} '.replace('.', ' ')
        assert 'distance_m' not in result.facts
    for result in (
        scene.distance('code 0'),
        scene.distance('code 0', 'code 2'),
        scene.size('code 0'),
        scene.motion('way'),
        scene.motion('displacement'),
        scene.visited(('code 0',)),
    ):
        assert not result.is_known
        assert 'nothing gives metres here' in result.text.lower()
    assert map_text(landmarks.scene_map(), 'How far is code 0?', (), 500).text == ''


def test_things_at_about_one_distance_are_not_ranked_without_metres() -> None:
    landmarks, deltas = walked(CODES)
    near = Scene(deltas, landmarks.scene_map()).nearest(among=('code 0', 'code 3'))
    assert near.facts['is_tie']


def test_a_thing_without_a_place_has_a_direction_while_the_camera_only_turns() -> None:
    way = [camera_at(0.0, 0.0, 10.0 * n) for n in range(4)]
    far = Thing('tower', (400.0, 0.0, 1.0), 20.0)
    landmarks, deltas = walked([far], way=way)
    scene = Scene(deltas, landmarks.scene_map())
    assert not landmarks.scene_map().landmarks
    assert scene.where('tower').number == pytest.approx(-30, abs=3)


def test_a_far_thing_keeps_its_direction_as_long_as_it_stayed_the_same() -> None:
    far = Thing('tower', (4000.0, 0.0, 1.0), 20.0)
    landmarks, deltas = walked([far])
    assert Scene(deltas, landmarks.scene_map()).where('tower').number == pytest.approx(14, abs=3)
    # What was in view once, before the camera moved on, may be anywhere by now.
    deltas = [deltas[0], *(replace(delta, items=()) for delta in deltas[1:])]
    assert not Scene(deltas, landmarks.scene_map()).where('tower').is_known
