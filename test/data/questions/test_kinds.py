# SPDX-License-Identifier: Apache-2.0
"""A hand-made episode: start, 2 m ahead, a left turn, and what stands where is known."""

from __future__ import annotations

from dataclasses import replace
import math
import random

from embodied_r_ros.core.types.deltas import DeltaKind, SemanticDelta
from embodied_r_ros.core.types.geometry import Pose, quaternion_from_matrix, rotation_from_ypr
from embodied_r_ros.core.types.layout import ImageTruth, Layout, LayoutObject, ObjectView, Span
from embodied_r_ros.data.episodes.episode import Episode
from embodied_r_ros.data.questions.coverage import Coverage
from embodied_r_ros.data.questions.derive import QuestionsConfig, rows_of_episode
from embodied_r_ros.data.questions.indoor import (
    Draft,
    KINDS,
    Moment,
    NoSolution,
    plain_questions,
    quarter_name,
)
from embodied_r_ros.data.questions.splits import split_of
import pytest

SECOND_NS = 1_000_000_000
# x, y, z, yaw in degrees at each keyframe: ahead, turn left, up, and on to the left.
STATIONS = ((0, 0, 1.0, 0), (2, 0, 1.0, 0), (2, 0, 1.0, 90), (2, 1, 1.5, 90))
# label, place, seen at these keyframes
THINGS = (
    ('red tall object', (5.0, 0.0, 1.0), (0, 1)),
    ('blue round object', (2.0, 4.0, 1.0), (2, 3)),
    ('green flat object', (2.5, 3.0, 1.0), (3,)),
    ('yellow blocky object', (-3.0, 0.0, 1.0), ()),
)


def pose(index: int) -> Pose:
    x, y, z, yaw = STATIONS[index]
    rotation = rotation_from_ypr(math.radians(yaw), 0.0, 0.0)
    return Pose((x, y, z), quaternion_from_matrix(rotation), 'odom')


def view(thing: int, index: int) -> ObjectView:
    return ObjectView(thing, index in THINGS[thing][2], 1.0, 0.1, 0.0, 0.0, 1.0, 0.1)


def layout() -> Layout:
    images = tuple(
        ImageTruth(
            (i + 1) * SECOND_NS, (x, y, z), math.radians(yaw), 0.0, 0.0,
            tuple(view(thing, i) for thing in range(len(THINGS))),
        )
        for i, (x, y, z, yaw) in enumerate(STATIONS)
    )  # fmt: skip
    objects = tuple(
        LayoutObject(
            i, label, label.split()[0], label.split()[1], (0.3, 0.3, 0.3), 0.0, 'floor',
            (Span(0, 100 * SECOND_NS, place, place),),
            (seen[0] + 1) * SECOND_NS if seen else 0, (seen[-1] + 1) * SECOND_NS if seen else 0,
        )
        for i, (label, place, seen) in enumerate(THINGS)
    )  # fmt: skip
    return Layout('e1', 's1', (10.0, 10.0, 3.0), objects, images)


DELTAS = tuple(
    SemanticDelta((i + 1) * SECOND_NS, DeltaKind.CHANGE if i else DeltaKind.FIRST, to_id=i)
    for i in range(len(STATIONS))
)
POSES = tuple(pose(i) for i in range(len(STATIONS)))
MOMENT = Moment(DELTAS, POSES, layout())


def draft(kind: str, moment: Moment = MOMENT, seed: int = 0) -> Draft:
    for attempt in range(seed, seed + 50):
        made = KINDS[kind](moment, random.Random(attempt), False)
        if isinstance(made, Draft):
            return made
    pytest.fail(f'{kind}: {made}')


@pytest.mark.parametrize(
    ('kind', 'solution'),
    [
        ('net_turn', 'to the left of it'),
        ('net_displacement', 'ahead of the start'),
        ('height_change', 'higher'),
        ('first_sight', 'red tall object'),
        ('nearest', 'green flat object'),
        ('unanswerable', 'unknown'),
    ],
)
def test_solution_follows_from_the_layout(kind: str, solution: str) -> None:
    made = draft(kind)
    assert made.solution == solution
    assert made.solution in (*made.options, 'unknown')


def test_direction_of_an_item_out_of_view_is_told_from_where_it_stands() -> None:
    # From (2, 1), facing +y, the red object at (5, 0) lies behind to the right: too near a border.
    answers = {
        made.truth['item']: made.solution
        for seed in range(40)
        if isinstance(made := KINDS['item_direction'](MOMENT, random.Random(seed), False), Draft)
    }
    assert answers['blue round object'] == 'ahead'
    assert 'yellow blocky object' not in answers
    earlier = Moment(DELTAS[:3], POSES[:3], layout())
    made = draft('item_direction', Moment(earlier.deltas, earlier.poses, layout()))
    assert {'red tall object': 'right', 'blue round object': 'ahead'}[
        made.truth['item']
    ] == made.solution


def test_count_is_of_what_was_seen() -> None:
    for seed in range(30):
        made = KINDS['how_many'](MOMENT, random.Random(seed), False)
        if isinstance(made, Draft):
            seen = {'red': 1, 'blue': 1, 'green': 1}
            assert int(made.solution) == seen.get(made.truth['colour'], 0)


def test_without_poses_and_layout_nothing_is_made_up() -> None:
    bare = Moment(DELTAS)
    for kind, ask in KINDS.items():
        made = ask(bare, random.Random(3), False)
        assert isinstance(made, NoSolution) or made.source == 'foreign', kind


def test_odometry_alone_proves_motion() -> None:
    made = draft('net_turn', Moment(DELTAS, POSES))
    assert (made.source, made.solution) == ('odometry', 'to the left of it')


def at(x: float, y: float, z: float, yaw_deg: float) -> Pose:
    rotation = rotation_from_ypr(math.radians(yaw_deg), 0.0, 0.0)
    return Pose((x, y, z), quaternion_from_matrix(rotation), 'odom')


@pytest.mark.parametrize(
    ('end', 'solution'),
    [
        (at(0.2, -0.1, 1.0, 20), 'back at the start, facing the same way'),
        (at(0.2, -0.1, 1.0, -170), 'back at the start, facing another way'),
        (at(0.9, -0.9, 1.0, 0), 'away from the start'),
    ],
)
def test_return_is_to_the_first_place_and_the_first_view(end: Pose, solution: str) -> None:
    made = draft(
        'revisit', Moment(DELTAS, (at(0, 0, 1, 0), at(2, 0, 1, 90), at(2, 2, 1, 90), end))
    )
    assert (made.source, made.solution) == ('odometry', solution)


@pytest.mark.parametrize(
    ('middle', 'end', 'reason'),
    [
        (at(2, 0, 1, 0), at(0.6, 0, 1, 0), 'the robot is near its start, but not at it'),
        (at(2, 0, 1, 0), at(0, 0, 1.5, 0), 'the robot is near its start, but not at it'),
        (at(2, 0, 1, 0), at(0, 0, 1, 45), 'the view is near the border between two options'),
        (at(0.5, 0, 1, 0), at(0, 0, 1, 0), 'the robot has not been away from its start'),
    ],
)
def test_doubtful_return_is_not_asked(middle: Pose, end: Pose, reason: str) -> None:
    moment = Moment(DELTAS, (at(0, 0, 1, 0), middle, end))
    assert KINDS['revisit'](moment, random.Random(0), False) == NoSolution(reason)


@pytest.mark.parametrize('tilt_deg', [0, 20, 45, 60])
@pytest.mark.parametrize('heading_deg', [-150, -90, 30, 90, 150, 180])
def test_turn_is_of_the_level_heading(tilt_deg: float, heading_deg: float) -> None:
    start, turned = (
        Pose(
            (0.0, 0.0, 1.0),
            quaternion_from_matrix(
                rotation_from_ypr(math.radians(yaw), math.radians(tilt_deg), 0.0)
            ),
            'odom',
        )
        for yaw in (25, 25 + heading_deg)
    )
    turn = math.degrees(Moment(DELTAS, (start, turned)).turn_rad)
    assert math.isclose(math.cos(math.radians(turn - heading_deg)), 1.0, abs_tol=1e-9)


def test_what_was_seen_is_never_asked_as_unseen_because_of_a_twin() -> None:
    seen = layout()
    red = seen.objects[0]
    twin = replace(red, id=len(seen.objects), first_seen_ns=0, last_seen_ns=0)
    moment = Moment(DELTAS, POSES, replace(seen, objects=(*seen.objects, twin)))
    asked = {
        made.truth.get('item')
        for seed in range(400)
        if isinstance(made := KINDS['unanswerable'](moment, random.Random(seed), False), Draft)
    }
    assert red.label not in asked
    assert len(asked) > 10


def test_what_no_such_world_has_is_not_asked_for() -> None:
    possible = ('pink flat object', *(thing.label for thing in layout().objects))
    moment = Moment(DELTAS, POSES, replace(layout(), labels=possible))
    made = [KINDS['unanswerable'](moment, random.Random(seed), False) for seed in range(100)]
    asked = {draft.truth.get('item') for draft in made if isinstance(draft, Draft)}
    assert 'pink flat object' in asked
    assert asked <= {None, *possible}


@pytest.mark.parametrize(
    ('angle', 'name'),
    [(0, 'ahead'), (90, 'left'), (180, 'behind'), (-180, 'behind'), (270, 'right'), (45, None)],
)
def test_quarters_leave_out_their_borders(angle: float, name: str | None) -> None:
    assert quarter_name(angle) == name


def episode() -> Episode:
    return Episode('e1', 's1', 'camera', DELTAS, 'true', POSES, layout())


def test_rows_are_the_same_for_the_same_seed() -> None:
    config = QuestionsConfig(seed=4)
    once = [row.to_json() for row in rows_of_episode(episode(), config, Coverage())]
    again = [row.to_json() for row in rows_of_episode(episode(), config, Coverage())]
    assert once == again
    assert len(once) >= 10


def test_solutions_are_spread_over_the_letters() -> None:
    letters = [
        row.solution
        for seed in range(60)
        for row in rows_of_episode(episode(), QuestionsConfig(seed=seed), Coverage())
        if row.question_type == 'net_turn'
    ]
    assert all(letters.count(letter) > len(letters) / 8 for letter in 'ABCD')


def test_coverage_says_why_there_is_no_solution() -> None:
    coverage = Coverage()
    list(rows_of_episode(Episode('e', 's', 'c', DELTAS, 'recorded'), QuestionsConfig(), coverage))
    assert coverage.unsolved['net_turn', 'no odometry, no transforms and no true layout'] > 0
    assert 'no odometry, no transforms and no true layout' in coverage.table()


def test_split_depends_on_scene_and_seed_alone() -> None:
    config = QuestionsConfig()
    splits = [split_of(f's{i}', config) for i in range(2000)]
    assert 0.07 < splits.count('test') / 2000 < 0.13
    assert 0.07 < splits.count('validation') / 2000 < 0.13
    assert splits != [split_of(f's{i}', QuestionsConfig(seed=1)) for i in range(2000)]


def test_things_with_names_are_asked_about_in_the_words_of_people() -> None:
    seen = layout()
    names = ('couch', 'plant', 'tv', 'table')
    objects = tuple(
        replace(thing, label=name, colour='', shape='')
        for thing, name in zip(seen.objects, names, strict=True)
    )
    first = replace(seen.images[0], views=(*seen.images[0].views[:3], view(0, 0)))
    table = replace(first, views=(*first.views[:3], replace(first.views[3], object_id=3)))
    named = replace(seen, objects=objects, images=(table, *seen.images[1:]))
    assert plain_questions(Moment(DELTAS, POSES, named)) == [
        ('Where is the sofa?', 'right'),
        ('Did you see the plant before the tv?', 'yes'),
        ('How far is the table?', '5.1 m'),
    ]
    assert plain_questions(Moment(DELTAS, POSES, replace(seen, objects=objects))) == []
    assert plain_questions(MOMENT) == []
