# SPDX-License-Identifier: Apache-2.0
"""Questions about scene maps that are known by hand, and their mirror images."""

from __future__ import annotations

from dataclasses import replace
import math
import os
from pathlib import Path
from random import Random
import re

from embodied_r_ros.core.scene.map_relations import first_reach_ns, gap_m, route_turns, turn_word
from embodied_r_ros.core.types.answers import UNKNOWN
from embodied_r_ros.core.types.landmarks import Landmark, LandmarkStatus, PathPoint, SceneMap
from embodied_r_ros.data.questions.indoor import Draft, NoSolution
from embodied_r_ros.data.questions.map_kinds import first_sights_ns, MapMoment
from embodied_r_ros.data.questions.map_rows import MAP_KINDS, UNKNOWN_KINDS
from embodied_r_ros.data.questions.wordings import MAP_WORDINGS, wording_pattern
import pytest

S = 1_000_000_000
CUBE = (0.4, 0.4, 0.4)
SEEDS = range(80)
VSI = [kind for kind in MAP_WORDINGS if kind.startswith(('object_', 'room', 'obj_', 'route'))]


def thing(
    label: str,
    x: float,
    y: float,
    seen_s: float = 1,
    until_s: float = 0,
    size: tuple[float, float, float] | None = CUBE,
) -> Landmark:
    last_s = max(seen_s, until_s)
    return Landmark(
        label,
        (x, y, 0.2),
        size=size,
        first_seen_ns=round(seen_s * S),
        last_seen_ns=round(last_s * S),
    )


def way(*stations: tuple[float, float, float]) -> tuple[PathPoint, ...]:
    """x, y, heading in degrees, a second apart from 1 s on."""
    return tuple(
        PathPoint(number * S, (x, y, 0.2), math.radians(degrees))
        for number, (x, y, degrees) in enumerate(stations, 1)
    )


def moment(*things: Landmark, path: tuple[PathPoint, ...] = (), **more: object) -> MapMoment:
    return MapMoment(SceneMap(things, path, room_area_m2=20.04), **more)  # type: ignore[arg-type]


def mirror_moment(known: MapMoment) -> MapMoment:
    """The same place with left and right exchanged."""
    scene = known.scene
    landmarks = [
        replace(e, position=(e.position[0], -e.position[1], e.position[2]))
        for e in scene.landmarks
    ]
    path = [
        replace(p, position=(p.position[0], -p.position[1], p.position[2]), yaw_rad=-p.yaw_rad)
        for p in scene.path
    ]
    return replace(known, scene=replace(scene, landmarks=tuple(landmarks), path=tuple(path)))


def drafts(kind: str, known: MapMoment) -> list[Draft]:
    made = [MAP_KINDS[kind](known, Random(seed), seed % 4 == 0) for seed in SEEDS]
    return [draft for draft in made if isinstance(draft, Draft)]


def solutions(kind: str, known: MapMoment, *keys: str) -> dict[tuple[object, ...], str]:
    """Solutions by some of the numbers and names behind them; each has one."""
    by_key: dict[tuple[object, ...], set[str]] = {}
    for draft in drafts(kind, known):
        assert not draft.options or draft.solution in draft.options
        by_key.setdefault(tuple(draft.truth[key] for key in keys), set()).add(draft.solution)
    assert all(len(values) == 1 for values in by_key.values()), by_key
    return {key: values.pop() for key, values in by_key.items()}


def reason(kind: str, known: MapMoment) -> str:
    made = {MAP_KINDS[kind](known, Random(seed), False) for seed in range(10)}
    assert len(made) == 1
    unsolved = made.pop()
    assert isinstance(unsolved, NoSolution)
    return unsolved.reason


# The lamp is ahead of the bed, the sofa ahead to the right; the stove is behind the bed.
BED, LAMP, SOFA, STOVE = (
    thing('bed', 0, 0), thing('lamp', 0, 3), thing('sofa', 2, 3), thing('stove', 0.4, -3)
)  # fmt: skip
DIRECTIONS = {
    ('bed', 'lamp', 'sofa'): ('right', 'right', 'front-right'),
    ('bed', 'sofa', 'lamp'): ('left', 'left', 'front-left'),
    ('lamp', 'bed', 'sofa'): ('left', 'left', ''),
    ('bed', 'lamp', 'stove'): ('', 'back', ''),
    ('bed', 'sofa', 'stove'): ('', '', 'back-right'),
    ('stove', 'bed', 'lamp'): ('', '', ''),
}


@pytest.mark.parametrize('is_mirrored', [False, True])
@pytest.mark.parametrize(('index', 'level'), [(0, 'easy'), (1, 'medium'), (2, 'hard')])
def test_directions_of_who_stands_at_a_thing(index: int, level: str, is_mirrored: bool) -> None:
    known = moment(BED, LAMP, SOFA, STOVE)
    known = mirror_moment(known) if is_mirrored else known
    kind = f'object_rel_direction_{level}'
    answers = solutions(kind, known, 'at', 'facing', 'item')
    other = {'left': 'right', 'right': 'left'}
    for names, expected in DIRECTIONS.items():
        answer = expected[index]
        if is_mirrored:
            answer = re.sub('left|right', lambda side: other[side[0]], answer)
        assert answers.get(names, '') == answer, names


def test_directions_need_more_margin_where_places_may_be_off() -> None:
    known = moment(BED, LAMP, SOFA)
    assert drafts('object_rel_direction_hard', known)
    assert reason('object_rel_direction_hard', replace(known, slack_m=0.5))


def test_counts_are_of_what_is_there() -> None:
    chairs = [thing('chair', x, 0) for x in (1, 2, 3)]
    gone = replace(thing('chair', 4, 0), status=LandmarkStatus.GONE)
    known = moment(*chairs, gone, BED)
    assert solutions('object_counting', known, 'item') == {('chair',): '3', ('bed',): '1'}
    seen = solutions('count_things', known, 'item')
    assert seen == {('chair',): '4', ('bed',): '1'}
    assert {
        draft.truth['item']
        for draft in drafts('object_counting', replace(known, doubtful=frozenset({'chair'})))
    } == {'bed'}


def test_office_chair_is_a_chair_too() -> None:
    known = moment(thing('chair', 0, 0), thing('office chair', 2, 0), BED)
    assert 'chair' not in known.things
    assert 'office chair' in known.things


def test_distance_is_that_of_the_closest_points() -> None:
    known = moment(thing('table', 0, 0, size=(2, 1, 0.4)), thing('tv', 3, 0, size=(0.2, 1, 0.4)))
    assert solutions('object_abs_distance', known, 'measured') == {('closest points',): '1.9'}
    bare = moment(thing('table', 0, 0), thing('tv', 3, 0, size=None))
    assert solutions('object_abs_distance', bare, 'measured') == {('middles',): '3.0'}


def test_things_that_touch_have_no_distance_to_ask() -> None:
    known = moment(thing('table', 0, 0), thing('tv', 0.5, 0))
    assert reason('object_abs_distance', known) == 'no two things are clearly apart'


def test_gap_is_that_of_boxes_in_all_three_axes() -> None:
    low = Landmark('rug', (0, 0, 0), size=(2, 2, 0))
    high = Landmark('lamp', (4, 5, 12), size=(0, 0, 0))
    assert gap_m(low, high) == pytest.approx(13.0)
    assert gap_m(low, Landmark('cat', (0.5, 0, 0), size=(1, 1, 1))) == 0


def row_of(*places: float) -> list[Landmark]:
    names = ('bed', 'lamp', 'sofa', 'stove', 'desk')
    return [thing(name, x, 0) for name, x in zip(names, places, strict=True)]


def test_closest_of_four() -> None:
    known = moment(*row_of(0, 1, 3, 6, 11))
    answers = {
        next(thing.label for thing in known.singles if thing.label not in draft.options): (
            draft.solution
        )
        for draft in drafts('object_rel_distance', known)
    }
    assert {'bed': 'lamp', 'desk': 'stove'}.items() <= answers.items()


@pytest.mark.parametrize(('x', 'is_clear'), [(-1.1, False), (-2.0, True)])
def test_nearly_equal_distances_are_not_compared(x: float, is_clear: bool) -> None:
    # The lamp begins 0.6 m from the bed, and the sofa 0.7 m or 1.6 m.
    known = moment(*row_of(0, 1, x, 30, 40))
    of_bed = [
        d for d in drafts('object_rel_distance', known) if re.search(r'the bed\b', d.question)
    ]
    assert bool(of_bed) is is_clear


def test_some_of_known_and_some_of_unknown_size_are_not_compared() -> None:
    things = row_of(0, 1, 3, 6, 11)
    assert reason('object_rel_distance', moment(*things[:4], replace(things[4], size=None)))


def test_longest_dimension_in_centimetres() -> None:
    known = moment(thing('bed', 0, 0, size=(1.4, 2.06, 0.5)))
    assert solutions('object_size_estimation', known, 'item') == {('bed',): '206'}
    assert reason('object_size_estimation', moment(thing('bed', 0, 0, size=None)))
    # Views alone give a width, for both sides.
    square = thing('bed', 0, 0, size=(1.4, 1.4, 0.5))
    assert reason('object_size_estimation', moment(square))
    layout = replace(moment(square), source='layout')
    assert solutions('object_size_estimation', layout, 'item') == {('bed',): '140'}


def test_room_size() -> None:
    assert solutions('room_size_estimation', moment(BED), 'area_m2') == {(20.04,): '20.0'}


def test_order_of_appearance() -> None:
    things = [
        thing(f'{name}', 0, x, s)
        for x, (name, s) in enumerate(
            [('tv', 4), ('bed', 1), ('sofa', 9), ('desk', 2), ('lamp', 2.2)]
        )
    ]
    for draft in drafts('obj_appearance_order', moment(*things)):
        order = [name for name in ('bed', 'desk', 'lamp', 'tv', 'sofa') if name in draft.solution]
        assert draft.solution == ', '.join(order)
        assert {'desk', 'lamp'} - set(order)  # too near in time
        assert len(set(draft.options)) == 4


def test_first_sights_are_of_what_has_gone_too() -> None:
    gone = replace(thing('chair', 4, 0, 1), status=LandmarkStatus.GONE)
    known = moment(gone, thing('chair', 1, 0, 5), thing('bed', 0, 0, 3))
    assert first_sights_ns(known) == {'chair': 1 * S, 'bed': 3 * S}


@pytest.mark.parametrize(
    ('stops', 'words'),
    [
        ([(2, 0), (2, 3)], ['', 'Turn Left']),
        ([(0, 2), (2, 2)], ['Turn Left', 'Turn Right']),
        ([(-2, 0), (-2, -2)], ['Turn Back', 'Turn Left']),
        ([(3, 0), (1, 0)], ['', 'Turn Back']),
    ],
)
def test_turns_of_a_route(stops: list[tuple[float, float]], words: list[str]) -> None:
    places = [(x, y, 0.0) for x, y in stops]
    turns = route_turns((0.0, 0.0, 0.0), (1.0, 0.0, 0.0), places)
    assert [turn_word(turn) for turn in turns] == words
    flipped = [(x, -y, z) for x, y, z in places]
    mirror = [turn_word(turn) for turn in route_turns((0.0, 0.0, 0.0), (1.0, 0.0, 0.0), flipped)]
    other = {'Turn Left': 'Turn Right', 'Turn Right': 'Turn Left'}
    assert mirror == [other.get(word, word) for word in words]


def test_route_through_a_room() -> None:
    known = moment(BED, thing('lamp', 3, 0), thing('sofa', 3, 3))
    made = [
        draft for draft in drafts('route_planning', known)
        if [draft.truth[key] for key in ('start', 'facing', 'goal')] == ['bed', 'lamp', 'sofa']
    ]  # fmt: skip
    two_legs = [draft for draft in made if 'until the lamp' in draft.question]
    assert {draft.solution for draft in two_legs} == {'Turn Left'}
    assert all(
        '1. Go forward until the lamp 2. [please fill in] 3. Go forward until the sofa'
        in d.question
        for d in two_legs
    )
    assert {tuple(sorted(draft.options)) for draft in two_legs} == {
        ('Turn Back', 'Turn Left', 'Turn Right')
    }


# East along the x axis past the tv and the bed, and then north, away from the sofa.
WALK = moment(
    thing('tv', 1, 0.5, 1), thing('bed', 4, -0.5, 3, 5), thing('sofa', -4, 0, 2, 2),
    thing('desk', 5, 5, 6, 8), thing('stove', 9, 2, 7, 8), thing('fan', 12, -3, 4, 4),
    path=way(*((x, 0, 0) for x in range(5)), *((5, y, 90) for y in range(3))),
)  # fmt: skip
QUARTERS = {'sofa': 'left', 'desk': 'ahead', 'stove': 'right', 'bed': 'behind'}
SAYS = {
    'way_to': ('straight ahead', 'to the left', 'to the right', 'behind you'),
    'action_generation': ('I go forward.', 'I turn left.', 'I turn right.', 'I turn around.'),
    'landmark_position': (
        'I face the {}.', 'I have the {} to my left.', 'I have the {} to my right.',
        'I have my back to the {}.',
    ),
}  # fmt: skip


@pytest.mark.parametrize('is_mirrored', [False, True])
@pytest.mark.parametrize('kind', sorted(SAYS))
def test_directions_from_now(kind: str, is_mirrored: bool) -> None:
    answers = solutions(kind, mirror_moment(WALK) if is_mirrored else WALK, 'item')
    places = ['ahead', 'right', 'left'] if is_mirrored else ['ahead', 'left', 'right']
    texts = dict(zip([*places, 'behind'], SAYS[kind], strict=True))
    expected = {(name,): texts[where].format(name) for name, where in QUARTERS.items()}
    assert expected.items() <= answers.items()
    # The fan is at 54 degrees to the right and behind: near a border.
    assert ('fan',) not in answers


def test_where_is_says_direction_and_distance() -> None:
    answers = solutions('where_is', WALK, 'item')
    assert answers[('stove',)] == '4.0 m to the right'
    assert answers[('desk',)] == '3.0 m straight ahead'
    assert solutions('how_far', WALK, 'item')[('desk',)] == '3.0'


def test_options_do_not_tell_by_what_is_common() -> None:
    for kind, split in (('where_is', ' m '), ('list_things', ', ')):
        for draft in drafts(kind, WALK):
            parts = [part for option in draft.options for part in option.split(split)]
            assert {parts.count(part) for part in parts} == {2}, draft.options
            assert len(set(draft.options)) == 4
            assert not any(part.startswith('0.0') for part in parts)


def test_way_back_to_the_start() -> None:
    back = moment(BED, path=way((0, 0, 0), (3, 0, 0), (3, 0, 90)))
    assert solutions('way_back', back, 'item') == {('start',): 'to the left'}
    assert solutions('way_back', mirror_moment(back), 'item') == {('start',): 'to the right'}
    assert reason('way_back', moment(BED, path=way((0, 0, 0), (0.3, 0, 0))))


def test_what_is_near() -> None:
    known = moment(
        BED,
        thing('lamp', 0.9, 0),
        *(thing(name, 9, y) for name, y in (('tv', 0), ('fan', 4), ('desk', 8))),
    )
    answers = {draft.question: draft.solution for draft in drafts('object_recall', known)}
    assert answers['What is near the bed?'] == 'lamp'
    assert not any('the tv' in question for question in answers)


@pytest.mark.parametrize(
    ('to', 'seconds'),
    [((5.0, 0.6), 5 - math.sqrt(1.44 - 0.36)), ((0.5, 0.0), 0), ((5.0, 1.3), None)],
)
def test_what_is_passed_between_two_points_is_reached(
    to: tuple[float, float], seconds: float | None
) -> None:
    path = [PathPoint(10**9 * x, (float(x), 0.0, 0.0), 0.0) for x in (0, 10)]
    stamp_ns = first_reach_ns(path, (*to, 0.0))
    assert stamp_ns == (None if seconds is None else pytest.approx(10**9 * seconds, abs=1))


def test_last_sight_in_seconds() -> None:
    # Now is 8 s.
    assert solutions('last_seen', WALK, 'item') == {
        ('tv',): '7.0', ('bed',): '3.0', ('sofa',): '6.0', ('fan',): '4.0'
    }  # fmt: skip


def test_presence_and_absence() -> None:
    answers = solutions('is_there', WALK, 'item')
    assert answers[('tv',)] == 'yes'
    absent = [name for (name,), answer in answers.items() if answer != 'yes']
    assert absent
    # Nothing that the sofa may be called, nor what is like it.
    assert not {'couch', 'loveseat', 'futon', 'bunk bed'} & set(absent)


@pytest.mark.parametrize('kind', sorted(UNKNOWN_KINDS))
def test_what_no_map_answers_is_unknown(kind: str) -> None:
    sized = replace(WALK.scene.landmarks[0], size=None)
    known = moment(sized, *WALK.scene.landmarks[1:], path=WALK.scene.path)
    made = drafts(kind, known)
    assert made
    assert {draft.solution for draft in made} == {UNKNOWN}


def test_near_misses_are_like_what_is_there_and_are_not_there() -> None:
    known = moment(
        thing('sofa', 0, 0), thing('chair', 2, 0), thing('tv', 4, 0), path=way((0, 3, 0))
    )
    for kind in ('unknown_thing', 'unknown_relation'):
        made = drafts(kind, known)
        assert made
        for draft in made:
            assert draft.truth['absent'] in draft.question
            assert draft.truth['absent'] not in {'sofa', 'couch', 'chair', 'tv', 'television'}
            assert draft.truth['absent'] in known.alike(draft.truth['like'])
    assert {'armchair', 'stool', 'bench'} <= set(known.alike('chair'))
    with_stool = moment(thing('chair', 0, 0), thing('stool', 1, 0))
    assert 'stool' not in with_stool.alike('chair')


def test_colour_is_unknown_only_where_the_name_has_none() -> None:
    asked = [
        draft.question for draft in drafts('unknown_property', moment(thing('red cup', 0, 0)))
    ]
    assert not any('colour' in question for question in asked)
    plain = [draft.question for draft in drafts('unknown_property', moment(thing('cup', 0, 0)))]
    assert any('colour' in question for question in plain)


@pytest.mark.parametrize('kind', sorted(MAP_KINDS))
def test_empty_map_and_map_without_a_path_ask_nothing_wrong(kind: str) -> None:
    empty = MapMoment(SceneMap())
    for seed in range(5):
        made = MAP_KINDS[kind](empty, Random(seed), False)
        assert (
            isinstance(made, NoSolution)
            or made.truth.get('no_size_of')
            or made.truth.get('count') == 0
        )


@pytest.mark.parametrize('kind', sorted(MAP_KINDS))
def test_same_seed_asks_the_same(kind: str) -> None:
    once, again = (
        [MAP_KINDS[kind](replace(WALK), Random(seed), False) for seed in range(6)]
        for _ in range(2)
    )
    assert once == again


@pytest.mark.parametrize('kind', sorted(MAP_WORDINGS))
def test_last_wording_is_for_tests_alone(kind: str) -> None:
    rare = wording_pattern(MAP_WORDINGS[kind][-1])
    for seed in range(30):
        made = MAP_KINDS[kind](WALK, Random(seed), False)
        assert isinstance(made, NoSolution) or not rare.fullmatch(made.question)
        made = MAP_KINDS[kind](WALK, Random(seed), True)
        assert isinstance(made, NoSolution) or rare.fullmatch(made.question)


def test_wordings_are_those_of_the_benchmark() -> None:
    folder = os.environ.get('EMBODIED_R_FOOTAGE')
    file = Path(folder or '.') / 'real' / 'vsi_bench' / 'test.parquet'
    if not folder or not file.exists():
        pytest.skip('EMBODIED_R_FOOTAGE names no folder with VSI-Bench')
    parquet = pytest.importorskip('pyarrow.parquet')
    rows = parquet.read_table(file, columns=['question_type', 'question']).to_pylist()
    asked: dict[str, list[str]] = {}
    for row in rows:
        asked.setdefault(row['question_type'], []).append(row['question'])
    assert set(asked) == set(VSI) - {'object_recall'}
    for kind, questions in asked.items():
        patterns = [wording_pattern(text) for text in MAP_WORDINGS[kind][:2]]
        patterns = patterns if kind == 'route_planning' else patterns[:1]
        fits = sum(any(p.fullmatch(q) for p in patterns) for q in questions)
        # Routes were written by hand: a dozen begin in words of their own.
        assert fits >= (0.9 if kind == 'route_planning' else 1) * len(questions), kind
