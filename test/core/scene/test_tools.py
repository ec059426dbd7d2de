# SPDX-License-Identifier: Apache-2.0
"""Tools of a scene follow the place when it is moved, and say why where they have no value."""

from __future__ import annotations

from dataclasses import replace
import math
from random import Random
import time
from typing import TYPE_CHECKING

from embodied_r_ros.core.scene.tools import called, NotKnownError, Result, ROBOT, Scene, START
from embodied_r_ros.core.types.deltas import (
    DeltaKind,
    Item,
    ItemStatus,
    ScaleSource,
    SemanticDelta,
)
from embodied_r_ros.core.types.geometry import wrap_angle_rad
from embodied_r_ros.core.types.landmarks import Landmark, LandmarkStatus, PathPoint, SceneMap
from embodied_r_ros.core.types.things import named_things
from embodied_r_ros.data.episodes.offline import map_of_deltas
from hypothesis import given
from hypothesis import strategies as st
import pytest

from test.core.scene.places import camera_at, delta_of, SECOND_NS, Thing

if TYPE_CHECKING:
    from collections.abc import Callable

    from embodied_r_ros.core.types.geometry import Position

NAMES = ('bed', 'lamp', 'sofa', 'desk', 'tv', 'plant')
QUARTER = math.pi / 2
S = SECOND_NS


@st.composite
def places(draw: st.DrawFn) -> SceneMap:
    """Six things, of sizes or without, and a way between them."""
    cells = st.tuples(st.integers(-8, 8), st.integers(-8, 8), st.integers(0, 2))
    spots = draw(st.lists(cells, min_size=6, max_size=6, unique_by=lambda cell: cell[:2]))
    sides = st.floats(0.05, 0.9)
    sizes = st.tuples(sides, sides, sides)
    is_sized = draw(st.booleans())
    landmarks = [
        Landmark(name, spot, number, draw(sizes) if is_sized else None, number * S, 9 * S)
        for number, (name, spot) in enumerate(zip(NAMES, spots, strict=True), 1)
    ]
    stations = draw(st.lists(cells, min_size=3, max_size=6))
    yaws = st.floats(-3.1, 3.1)
    path = [
        PathPoint((number + 1) * S, (x + 0.5, y + 0.5, 1.0 + z / 4), draw(yaws))
        for number, (x, y, z) in enumerate(stations)
    ]
    return SceneMap(tuple(landmarks), tuple(path), room_area_m2=20.0)


class Change:
    """A place that is turned by quarters, shifted, scaled and mirrored."""

    def __init__(
        self, quarters: int = 0, shift: Position = (0, 0, 0), scale: float = 1, *, flip: bool
    ) -> None:
        self.quarters, self.shift, self.scale, self.flip = quarters, shift, scale, flip

    def place(self, at: Position) -> Position:
        x, y, z = at
        y = -y if self.flip else y
        for _ in range(self.quarters):
            x, y = -y, x
        x, y, z = (self.scale * v + s for v, s in zip((x, y, z), self.shift, strict=True))
        return x, y, z

    def size(self, size: Position | None) -> Position | None:
        if size is None:
            return None
        x, y, z = (self.scale * side for side in size)
        return (y, x, z) if self.quarters % 2 else (x, y, z)

    def map(self, scene: SceneMap) -> SceneMap:
        side = -1 if self.flip else 1
        return replace(
            scene,
            landmarks=tuple(
                replace(e, position=self.place(e.position), size=self.size(e.size))
                for e in scene.landmarks
            ),
            path=tuple(
                replace(
                    p,
                    position=self.place(p.position),
                    yaw_rad=wrap_angle_rad(side * p.yaw_rad + self.quarters * QUARTER),
                )
                for p in scene.path
            ),
            room_area_m2=(scene.room_area_m2 or 0) * self.scale**2,
        )


shifts = st.tuples(st.floats(-50, 50), st.floats(-50, 50), st.floats(-2, 2))
changes = st.builds(
    Change, st.integers(0, 3), shifts, st.sampled_from([0.5, 1.0, 3.0]), flip=st.booleans()
)
CALLS: dict[str, Callable[[Scene], Result]] = {
    'where': lambda scene: scene.where('bed'),
    'where is the start': lambda scene: scene.where(START),
    'where from the start': lambda scene: scene.where('sofa', START),
    'where for who stands': lambda scene: scene.where('bed', 'lamp', 'sofa'),
    'distance': lambda scene: scene.distance('bed', 'desk'),
    'distance from here': lambda scene: scene.distance('tv'),
    'distance from the start': lambda scene: scene.distance('tv', START),
    'size': lambda scene: scene.size('lamp', unit='m'),
    'height of a thing': lambda scene: scene.size('lamp', 'height', unit='m'),
    'way_to': lambda scene: scene.way_to('plant'),
    'way of three legs': lambda scene: scene.way_to('tv', 'bed', 'lamp', ['sofa', 'desk']),
    'turn': lambda scene: scene.motion('turn'),
    'way': lambda scene: scene.motion('way'),
    'displacement': lambda scene: scene.motion('displacement'),
    'rise': lambda scene: scene.motion('height'),
}
LENGTHS = ('distance_m', 'level_m', 'rise_m')


def same_turn(one: float, other: float) -> bool:
    return abs(wrap_angle_rad(math.radians(one - other))) < 1e-6


@given(scene=places(), change=changes)
def test_results_follow_a_place_that_is_moved(scene: SceneMap, change: Change) -> None:
    still, moved = Scene(place=scene), Scene(place=change.map(scene))
    for call in CALLS.values():
        check_moved(call(still), call(moved), change)
    for to in ('bed', ROBOT, START):
        check_distances(still, moved, to, change)
    assert moved.floor_area().number == pytest.approx(20 * change.scale**2)
    assert still.order() == moved.order()
    assert still.order().value == NAMES
    assert still.seen('bed').number == moved.seen('bed').number


def check_moved(before: Result, after: Result, change: Change) -> None:
    assert after.is_known is before.is_known
    side = -1 if change.flip else 1
    if before.unit == 'm':
        assert after.number == pytest.approx(change.scale * before.number, abs=1e-6)
    for key in LENGTHS:
        if key in before.facts:
            assert after.facts[key] == pytest.approx(change.scale * before.facts[key], abs=1e-6)
    level_m = before.facts.get('level_m', before.facts.get('distance_m', 1.0))
    if 'bearing_deg' in before.facts and level_m > 1e-3:
        assert same_turn(after.facts['bearing_deg'], side * before.facts['bearing_deg'])
    for one, other in zip(
        before.facts.get('turns_deg', ()), after.facts.get('turns_deg', ()), strict=True
    ):
        assert same_turn(side * one, other)


def check_distances(before: Scene, after: Scene, to: str, change: Change) -> None:
    gaps = after.gaps(to)
    assert set(gaps) == set(NAMES) - {to}
    assert list(gaps.values()) == sorted(gaps.values())
    for name, gap in before.gaps(to).items():
        assert gaps[name] == pytest.approx(change.scale * gap, abs=1e-6)
    nearest = before.nearest(to)
    if not nearest.facts['is_tie']:
        assert after.nearest(to).value == nearest.value


SOFA = Landmark('sofa', (2.0, 0.0, 0.5), 1, (1, 2, 1), S, S)
CHAIRS = [Landmark('chair', (x, 1.0, 0.5), 2, None, S, 2 * S) for x in (1.0, 4.0)]
PATH = (PathPoint(S, (0, 0, 0.5), 0.0), PathPoint(3 * S, (1, 0, 0.5), QUARTER))
KNOWN = SceneMap((SOFA, *CHAIRS), PATH)
ABSENT: dict[str, Callable[[Scene], Result]] = {
    'where': lambda scene: scene.where('piano'),
    'where for who stands at it': lambda scene: scene.where('sofa', 'piano', 'chair'),
    'where for who faces it': lambda scene: scene.where('sofa', 'chair', 'piano'),
    'distance': lambda scene: scene.distance('piano'),
    'distance to it': lambda scene: scene.distance('sofa', 'piano'),
    'nearest to it': lambda scene: scene.nearest('piano'),
    'nearest of it': lambda scene: scene.nearest(ROBOT, ['sofa', 'piano']),
    'size': lambda scene: scene.size('piano'),
    'seen': lambda scene: scene.seen('piano'),
    'order': lambda scene: scene.order(['sofa', 'piano']),
    'visited': lambda scene: scene.visited(['sofa', 'piano']),
    'way to it': lambda scene: scene.way_to('piano'),
    'way past it': lambda scene: scene.way_to('sofa', via=['piano']),
    'colour': lambda scene: scene.colour('piano'),
    'motion since it': lambda scene: scene.motion('turn', 'piano'),
}
OF_THE_WAY: dict[str, Callable[[Scene], Result]] = {
    'where': lambda scene: scene.where('sofa'),
    'where is the start': lambda scene: scene.where(START),
    'distance': lambda scene: scene.distance('sofa'),
    'nearest': lambda scene: scene.nearest(),
    'way_to': lambda scene: scene.way_to('sofa'),
    'way back': lambda scene: scene.way_to(START),
    'visited': lambda scene: scene.visited(['sofa']),
    'on a side': lambda scene: scene.things('ahead'),
    **{
        what: lambda scene, what=what: scene.motion(what)  # type: ignore[misc]
        for what in ('turn', 'way', 'displacement', 'height', 'now', 'any')
    },
}


def assert_reason(result: Result) -> None:
    assert not result.is_known
    assert result.number != result.number
    assert len(result.text) > 10
    assert result.text[0] == result.text[0].upper()
    assert result.text.endswith('.')


@pytest.mark.parametrize('name', ABSENT)
def test_what_was_not_seen_has_a_reason(name: str) -> None:
    result = ABSENT[name](Scene(place=KNOWN))
    assert_reason(result)
    assert 'not seen a piano' in result.text
    assert_reason(ABSENT[name](Scene()))


def test_what_is_absent_is_counted_as_none() -> None:
    none = Scene(place=KNOWN).count('pianos')
    assert (none.number, none.facts.get('there', 0)) == (0, 0)
    assert 'not seen' in none.text


def test_as_many_things_are_counted_as_one_view_shows() -> None:
    pair = [Thing('chair', (3.0, side, 0.5)) for side in (0.3, -0.3)]
    deltas = [
        replace(delta_of(number, camera_at(0, 0), *things)[0], pose=camera_at(0, 0))
        for number, things in enumerate((pair, pair[:1]))
    ]
    known = replace(KNOWN, landmarks=(Landmark('chair', pair[0].place, 1, None, 1, 2, 2, 0.9),))
    assert Scene(place=known).count('chairs').number == 1
    count = Scene(deltas, known).count('chairs')
    assert (count.number, count.evidence.numbers) == (2, (1,))


@pytest.mark.parametrize('name', OF_THE_WAY)
def test_without_a_path_nothing_is_known_from_here(name: str) -> None:
    assert_reason(OF_THE_WAY[name](Scene(place=replace(KNOWN, path=()))))
    assert_reason(OF_THE_WAY[name](Scene()))


def test_an_empty_scene_knows_nothing() -> None:
    for scene in (Scene(), Scene(place=SceneMap())):
        assert_reason(scene.things())
        assert_reason(scene.floor_area())
        assert_reason(scene.order())
        assert_reason(scene.moves())
        with pytest.raises(NotKnownError):
            scene.gaps(ROBOT)


def test_of_several_things_all_are_told() -> None:
    scene = Scene(place=KNOWN)
    assert scene.count('chairs').number == 2
    calls = (
        scene.where('chair'), scene.distance('chair'), scene.distance('chair', 'sofa'),
        scene.where('chair', 'sofa', 'start'), scene.where('sofa', 'chair', 'start'),
    )  # fmt: skip
    for result in calls:
        assert len(result.candidates) == 2, result
    assert scene.where('chair').text.count('chair') == 2


def test_what_has_gone_is_nowhere_and_was_seen() -> None:
    gone = replace(SOFA, status=LandmarkStatus.GONE)
    scene = Scene(place=replace(KNOWN, landmarks=(gone, *CHAIRS)))
    for result in (scene.where('sofa'), scene.way_to('sofa'), scene.nearest('sofa')):
        assert_reason(result)
        assert 'gone' in result.text
    assert scene.count('sofa').number == 1
    assert scene.count('sofa').facts['there'] == 0
    assert scene.seen('sofa').is_known
    assert 'sofa' not in scene.gaps(ROBOT)
    assert 'sofa' in scene.gaps(ROBOT, from_above=True)


def test_what_a_clock_that_went_back_has_not_reached_has_no_age() -> None:
    chair = Landmark(
        'chair', (0.0, 2.0, 1.0), 7, first_seen_ns=90 * SECOND_NS, last_seen_ns=100 * SECOND_NS
    )
    place = SceneMap((chair,), (PathPoint(100 * SECOND_NS, (0.0, 0.0, 1.0), 0.0),), 'odom')
    then, again = Scene((), place, now_ns=103 * SECOND_NS), Scene((), place, now_ns=10 * SECOND_NS)
    assert (then.seen('chair').value, then.where('chair').value) == (3.0, 90.0)
    assert again.where('chair').value == 90.0
    assert 'in view now' not in again.where('chair').text
    assert again.seen('chair').text == 'When the chair was seen is not known.'
    assert again.things('here').value is None


def test_two_places_in_one_have_no_direction() -> None:
    twin = Landmark('bed', SOFA.position)
    scene = Scene(place=replace(KNOWN, landmarks=(SOFA, twin, *CHAIRS)))
    assert_reason(scene.where('chair', 'sofa', 'bed'))
    assert_reason(scene.where('bed', 'sofa', 'chair'))


def test_a_thing_may_be_called_as_a_place_is() -> None:
    robot = Landmark('robot', (5.0, 0.0, 0.5), 3)
    scene = Scene(place=replace(KNOWN, landmarks=(SOFA, robot)))
    assert scene.distance(called('robot')).number == pytest.approx(4.0)
    assert scene.distance('sofa', called('robot')).number == pytest.approx(3.0 - 0.5, abs=0.6)
    assert scene.where(ROBOT, START).facts['distance_m'] == pytest.approx(1.0)


def test_sure_names_alone_where_no_guess_is_wanted() -> None:
    labels = ('mini fridge', 'red tall object', 'backpack', 'office chair')
    place = SceneMap(tuple(Landmark(each, (2.0, n, 0.5)) for n, each in enumerate(labels)), PATH)
    guesses, sure = Scene(place=place), Scene(place=place, guesses=False)
    for name in ('refrigerator', 'red pillar', 'bakpack', 'the office chair over there'):
        assert guesses.where(name).is_known, name
        assert_reason(sure.where(name))
    for name in ('fridge', 'chairs', 'red tall object', 'the backpack'):
        assert sure.where(name).is_known, name


def many(count: int) -> SceneMap:
    """Things of different names at random places."""
    rng = Random(count)
    names = [*named_things(), *(f'gadget {letter}{n}' for letter in 'abc' for n in range(99))]
    landmarks = [
        Landmark(name, (rng.uniform(-9, 9), rng.uniform(-9, 9), 0.5), n, (0.1, 0.1, 0.1), n * S, S)
        for n, name in enumerate(names[:count], 1)
    ]
    return SceneMap(tuple(landmarks), PATH)


@pytest.mark.parametrize('count', [12, 500])
def test_all_things_are_compared(count: int) -> None:
    place = many(count)
    scene = Scene(place=place)
    labels = [each.label for each in place.landmarks]
    reference = place.landmarks[-1]
    gaps = scene.gaps(called(reference.label))
    assert set(gaps) == set(labels) - {reference.label}
    nearest = min(
        place.landmarks[:-1], key=lambda each: math.dist(each.position, reference.position)
    )
    assert set(scene.nearest(called(reference.label)).facts['gaps_m']) == set(gaps)
    assert gaps[nearest.label] <= min(gaps.values()) + 0.2
    farthest = max(place.landmarks, key=lambda each: math.dist(each.position, PATH[-1].position))
    assert scene.nearest(among=labels, farthest='yes').value == farthest.label
    assert scene.order().value == tuple(labels)
    assert set(scene.things().value or ()) == set(labels)  # type: ignore[arg-type]


def seconds_of(count: int) -> float:
    place = many(count)
    began = time.process_time()
    scene = Scene(place=place)
    for tool in (scene.things, scene.nearest, scene.order, scene.visited):
        assert tool().is_known
    return time.process_time() - began


def test_time_grows_with_things_and_not_with_their_square() -> None:
    seconds_of(500)  # vocabularies are made once
    few, lots = (min(seconds_of(count) for _ in range(3)) for count in (50, 500))
    assert lots < 60 * few


# Deltas alone.
THINGS = (Thing('sofa', (4.0, 0.5, 1.0)), Thing('lamp', (3.0, -1.0, 1.2)))
LATE = (Thing('bed', (0.5, 5.0, 0.8)), Thing('plant', (2.0, 4.0, 0.9)))
STATIONS = ((0.0, 0.0, 0.0), (0.3, 0.0, 0.0), (0.6, 0.1, 90.0), (0.6, 0.4, 90.0))
LOOKS = (THINGS, THINGS, LATE, LATE)


def walked(*, with_poses: bool = True, scale: ScaleSource = ScaleSource.DEPTH) -> (
    tuple[SemanticDelta, ...]
):  # fmt: skip
    deltas = []
    for number, (station, things) in enumerate(zip(STATIONS, LOOKS, strict=True)):
        pose = camera_at(*station)
        delta, _ = delta_of(number, pose, *things, scale=scale)
        deltas.append(replace(delta, pose=pose if with_poses else None))
    return tuple(deltas)


def test_deltas_with_poses_say_what_the_map_of_them_says() -> None:
    deltas = walked()
    alone, mapped = Scene(deltas), Scene(place=map_of_deltas(deltas))
    labels = ('sofa', 'lamp', 'bed', 'plant')
    for label in labels:
        one, other = alone.where(label), mapped.where(label)
        assert one.number == pytest.approx(other.number, abs=2)
        assert one.facts['distance_m'] == pytest.approx(other.facts['distance_m'], abs=0.1)
        assert alone.count(label).number == mapped.count(label).number == 1
    assert alone.order(labels).facts == mapped.order(labels).facts
    assert alone.nearest().value == mapped.nearest().value
    assert alone.way_to('sofa').number == pytest.approx(mapped.way_to('sofa').number, abs=2)
    for what in ('turn', 'way', 'displacement', 'height'):
        one, other = alone.motion(what), mapped.motion(what)
        assert one.number == pytest.approx(other.number, abs=1e-3), what
    assert alone.motion('turn').number == pytest.approx(90)


def test_a_way_is_as_long_as_it_winds() -> None:
    deltas = walked()
    first, second, *rest = deltas
    wound = replace(second, motion=replace(second.motion, way_m=4.5))
    assert first.pose
    assert second.pose
    chord_m = math.dist(first.pose.position, second.pose.position)
    straight, winding = Scene(deltas).motion('way'), Scene([first, wound, *rest]).motion('way')
    assert winding.number == pytest.approx(straight.number + 4.5 - chord_m)


def test_what_was_seen_before_an_unknown_motion_has_no_place() -> None:
    scene = Scene(walked(with_poses=False))
    for label in ('sofa', 'lamp'):
        assert_reason(scene.where(label))
        assert_reason(scene.distance(label))
        assert_reason(scene.way_to(label))
        assert scene.count(label).number == 1
    assert_reason(scene.distance('sofa', 'bed'))
    for what in ('turn', 'way', 'displacement', 'height', 'now'):
        assert_reason(scene.motion(what))
    # What the newest delta shows is where it shows it.
    assert scene.where('bed').number == pytest.approx(Scene(walked()).where('bed').number)
    assert scene.order(['sofa', 'bed']).value == ('sofa', 'bed')


def test_without_a_scale_there_are_directions_and_no_distances() -> None:
    scene = Scene(walked(with_poses=False, scale=ScaleSource.UNKNOWN))
    assert scene.where('bed').is_known
    assert 'distance_m' not in scene.where('bed').facts
    for result in (scene.distance('bed'), scene.distance('bed', 'plant'), scene.nearest()):
        assert_reason(result)
    for result in (scene.size('bed'), scene.floor_area(), scene.way_to('bed')):
        assert_reason(result)


def test_who_stands_at_a_thing_and_faces_it_looks_nowhere() -> None:
    place = SceneMap((Landmark('tv', (0.0, 0.0, 1.0)), Landmark('bed', (2.0, 1.0, 0.3))))
    found = Scene(place=place).way_to('bed', 'tv', 'tv')
    assert not found.is_known
    assert 'may look any way' in found.text


def test_of_two_things_the_left_one_is_on_the_left_of_the_other() -> None:
    left, right = Thing('chair', (3.0, 0.5, 0.5)), Thing('lamp', (3.0, -0.5, 0.5))
    delta, _ = delta_of(0, camera_at(0, 0), left, right)
    scene = Scene([delta])
    assert scene.beside('chair', 'lamp').value == 'left'
    assert scene.beside('lamp', 'chair').value == 'right'


def happening(*items: Item, action: str = 'stationary') -> Scene:
    """A scene in which a person stood, and two seconds later this was seen."""
    first = SemanticDelta(S, DeltaKind.FIRST, items=(Item('person', confidence=0.9),))
    second = SemanticDelta(3 * S, DeltaKind.CHANGE, 1, 0, action=action, items=items)
    return Scene((first, second), now_ns=8 * S)


def test_what_moved_came_or_went_before_a_camera_that_stands_is_told() -> None:
    scene = happening(
        Item('person', ItemStatus.MOVED, confidence=0.9, moving='left'),
        Item('chair', ItemStatus.LEFT, confidence=0.9),
        Item('cup', ItemStatus.APPEARED, confidence=0.3),  # doubtful
    )
    assert scene.happened('moved').text == 'A person moved left 5.0 s ago.'
    assert scene.happened().value == ('chair', 'person')
    assert scene.happened('moved', 'person').is_known
    assert not scene.happened('moved', 'chair').is_known
    assert scene.happened('gone').evidence.numbers == (2,)
    assert not scene.happened('new').is_known  # a cup, perhaps
    assert not Scene().happened().is_known


def test_what_comes_into_view_of_a_camera_that_moves_did_not_happen() -> None:
    items = (Item('chair', ItemStatus.APPEARED, confidence=0.9),)
    turning = happening(*items, action='turned left 30°')
    assert not turning.happened().is_known
    assert 'I did not see that a thing moved' in turning.happened('moved').text
    assert happening(*items).happened().value == ('chair',)
