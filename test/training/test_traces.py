# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import pairwise
import math
from random import Random
import re

from embodied_r_ros.perception.egomotion import motion_from_poses
from embodied_r_ros.questions.indoor import Draft, KINDS, Moment
from embodied_r_ros.questions.row import Row
from embodied_r_ros.scene.memory import MemoryConfig
from embodied_r_ros.types.deltas import (
    action_text,
    change_text,
    DeltaKind,
    Item,
    ItemStatus,
    NOTHING_SEEN,
    SemanticDelta,
)
from embodied_r_ros.types.geometry import Pose, quaternion_from_matrix, rotation_from_ypr
import pytest

from training.data.degrade import bare, degrade_deltas, retell_motions
from training.data.scene_reader import read_scene, SceneItem
from training.data.traces import read_row
from training.eval.execution import executed_conclusion

MEMORY = MemoryConfig()
SIDES = ('ahead', 'left', 'right', 'behind')
FACINGS = (
    'the same way as at the start',
    'to the left of it',
    'to the right of it',
    'the opposite way',
)
RED = Item('red tall object', ItemStatus.APPEARED, 0.5236, -0.1745, 0.1, 2.1)
BLUE = Item('blue round object', ItemStatus.VISIBLE, 0.0, 0.0, 0.1, 1.4)
GREEN = Item('green flat object', ItemStatus.APPEARED, -0.5236, 0.1745, 0.1)


def delta(index: int, action: str, *items: Item) -> SemanticDelta:
    kind = DeltaKind.CHANGE if action else DeltaKind.FIRST
    change = change_text(items)
    return SemanticDelta(index * 10**9, kind, action=action, change=change, items=items)


DELTAS = (
    delta(0, '', RED, BLUE),
    delta(2, 'moved forward 1.2 m, turned left 90°', GREEN, Item(BLUE.label, ItemStatus.LEFT)),
    delta(4, 'moved backward 1.2 m, moved up 0.4 m, turned left 45°'),
)


def row(
    kind: str, question: str, options: tuple[str, ...], deltas: tuple[SemanticDelta, ...]
) -> Row:
    rows = tuple(d.to_row() for d in deltas)
    answer_kind = 'choice' if options else 'number'
    return Row(
        'r', 'e', 's', 'train', 'layout', 'c', kind, question, answer_kind, options, 'A', rows
    )  # fmt: skip


def test_scene_is_read_back_as_far_as_its_text_tells() -> None:
    first, second, third = read_scene(row('x', 'q?', (), DELTAS).prompt(MEMORY).user)
    assert first.steps == ()
    assert not first.is_unknown
    assert first.items == (SceneItem(RED.label, 30.0, 2.1), SceneItem(BLUE.label, 0.0, 1.4))
    assert [step.text() for step in second.steps] == ['moved forward 1.2 m', 'turned left 90°']
    assert (second.items[0].label, second.items[0].bearing_deg) == (GREEN.label, -30.0)
    assert second.gone == (BLUE.label,)
    assert third.items == ()


def test_merged_line_is_read() -> None:
    walk = tuple(delta(i, 'moved forward 1.0 m' if i else '', RED) for i in range(200))
    lines = read_scene(row('x', 'q?', (), walk).prompt(MemoryConfig(token_budget=300)).user)
    assert lines[0].label.startswith('1-')
    assert lines[0].labels == (RED.label,)
    assert lines[0].steps[0].amount == float(lines[0].label[2:]) - 1


@pytest.mark.parametrize(
    ('kind', 'question', 'options', 'answer'),
    [
        ('net_turn', 'Which way?', FACINGS, 'to the left of it'),
        ('height_change', 'Higher?', ('higher', 'lower', 'at the same height'), 'higher'),
        ('item_direction', 'Where is the red tall object now?', SIDES, 'right'),
        ('item_direction', 'Where is the pink flat object now?', SIDES, 'unknown'),
        ('first_sight', 'First?', (GREEN.label, RED.label), RED.label),
        ('how_many', 'How many red objects?', ('0', '1', '2'), '1'),
        ('how_many', 'How many pink objects?', (), '0'),
        ('unanswerable', 'Who are you?', ('Ann', 'Bob'), 'unknown'),
    ],
)
def test_oracle_answers(kind: str, question: str, options: tuple[str, ...], answer: str) -> None:
    trace = read_row(row(kind, question, options, DELTAS), MEMORY)
    assert trace is not None
    assert trace.answer == answer


def test_reasoning_names_no_letter_and_ends_in_the_answer() -> None:
    trace = read_row(row('net_turn', 'Which way?', FACINGS, DELTAS), MEMORY)
    assert trace is not None
    assert trace.think == (
        'To [3]: [1] 0: 0. [2] 90 left: 90 left. [3] 45 left: 135 left.'
        ' In all 135 left, so to the left of it.'
    )


BACK = 'back at the start, facing the same way'
TURNED = 'back at the start, facing another way'
AWAY = 'away from the start'
RETURNS = (TURNED, AWAY, BACK)


@pytest.mark.parametrize(
    ('last', 'answer', 'end'),
    [
        ('moved forward 1.0 m', TURNED, 'ahead 0.2 left 0.0, 0.2 m off, facing 180 left'),
        ('moved forward 1.2 m, turned left 180°', BACK, 'ahead 0.0 left 0.0, 0.0 m off, facing 0'),
        ('turned left 90°', AWAY, 'ahead 1.2 left 0.0, 1.2 m off'),
        ('cannot tell', 'unknown', ''),
        ('moved forward', 'unknown', ''),
    ],
)
def test_return_to_the_start_follows_from_the_path(last: str, answer: str, end: str) -> None:
    out = delta(2, 'moved forward 1.2 m, turned left 90°')
    deltas = (DELTAS[0], out, delta(4, 'turned left 90°'), delta(6, last))
    trace = read_row(row('revisit', 'Is it back?', RETURNS, deltas), MEMORY)
    assert trace is not None
    assert trace.answer == answer
    assert trace.think.endswith(f'In all {end}, so {answer}.' if end else f'So {answer}.')


def roundabout(rng: Random) -> tuple[Pose, ...]:
    """Poses of a tour of twelve legs, of which every other one leads back to its start."""
    places = [(rng.uniform(-3, 3), rng.uniform(-3, 3)) for _ in range(11)]
    end = (rng.uniform(-0.2, 0.2), rng.uniform(-0.2, 0.2)) if rng.random() < 0.5 else places[3]
    headings = [0.0, *(rng.uniform(-math.pi, math.pi) for _ in range(11))]
    headings.append(rng.choice([0.0, 0.3, 1.5, 3.0]))
    turns = [quaternion_from_matrix(rotation_from_ypr(yaw, 0.0, 0.0)) for yaw in headings]
    way = [(0.0, 0.0), *places, end]
    return tuple(Pose((x, y, 1.0), q, 'odom') for (x, y), q in zip(way, turns, strict=True))


def test_solutions_of_returns_can_be_read_from_the_deltas() -> None:
    right, read = Counter[str](), Counter[str]()
    for seed in range(300):
        poses = roundabout(Random(seed))
        told = [action_text(motion_from_poses(*pair)) for pair in pairwise(poses)]
        deltas = tuple(delta(i, action) for i, action in enumerate(('', *told)))
        made = KINDS['revisit'](Moment(deltas, poses), Random(seed), False)
        if isinstance(made, Draft):
            asked = row('revisit', made.question, made.options, deltas)
            trace = read_row(asked, MEMORY)
            assert trace is not None
            read[made.solution] += 1
            right[made.solution] += trace.answer == made.solution
    assert min(read.values()) > 20
    assert right.total() > 0.97 * read.total()


def test_path_is_followed_in_the_axes_of_the_start() -> None:
    trace = read_row(row('net_displacement', 'Where?', ('behind', 'ahead'), DELTAS), MEMORY)
    assert trace is not None
    assert trace.think == (
        'To [3]: [1] 0. [2] forward 1.2: ahead 1.2 left 0.0, at ahead 1.2 left 0.0;'
        ' turn 90 left: 90 left. [3] backward 1.2: ahead 0.0 right 1.2, at ahead 1.2 right 1.2;'
        ' turn 45 left: 135 left. In all ahead 1.2 right 1.2, so ahead.'
    )


def test_item_is_looked_back_at_from_where_the_path_ended() -> None:
    trace = read_row(row('item_direction', f'Where is the {RED.label}?', SIDES, DELTAS), MEMORY)
    assert trace is not None
    assert trace.think.startswith(
        'red tall object 30° left 10° down 2.1 m [1], now [3]. [2] forward 1.2:'
    )
    assert trace.think.endswith(
        'At ahead 1.8 left 1.0, from ahead 1.2 right 1.2: ahead 0.6 left 2.2, 75 left,'
        ' facing 135 left: 60 right, so right.'
    )


def test_only_the_last_sight_of_the_item_counts() -> None:
    again = (*DELTAS, delta(6, 'cannot tell', RED), delta(8, 'turned right 40°'))
    trace = read_row(row('item_direction', f'Where is the {RED.label}?', SIDES, again), MEMORY)
    assert trace is not None
    assert trace.think == (
        'red tall object 30° left 10° down 2.1 m [4], now [5].'
        ' [5] turn 40 right: 40 right. At 30 left, facing 40 right: 70 left, so left.'
    )


def test_items_of_the_same_colour_are_told_apart_on_the_way_back() -> None:
    flat = replace(RED, label='red flat object')
    deltas = (delta(0, '', flat, RED, BLUE), delta(2, 'turned left 30°', BLUE, flat))
    questions = [f'Where is the {form} object?' for form in ('red tall', 'red round')]
    asked = [row('item_direction', question, SIDES, deltas) for question in questions]
    found, missed = (read_row(each, MEMORY) for each in asked)
    assert found is not None
    assert found.think.startswith('red tall object 30° left 10° down 2.1 m [1], now [2]. [2] turn')
    assert missed is not None
    assert missed.think == 'red round object not seen, so unknown.'
    assert executed_conclusion(missed.think, SIDES) == missed.answer == 'unknown'


@pytest.mark.parametrize(
    ('kind', 'question', 'options', 'think'),
    [
        (
            'first_sight',
            'First?',
            (GREEN.label, BLUE.label, RED.label),
            'green flat object [2]; blue round object [1]; red tall object [1];'
            ' in [1] red tall object, then blue round object; First is red tall object.',
        ),
        (
            'first_sight',
            'First?',
            (GREEN.label, BLUE.label),
            'green flat object [2]; blue round object [1]; First is blue round object.',
        ),
        (
            'how_many',
            'How many red objects?',
            (),
            'red round object not seen; red tall object [1] 1; red flat object not seen;'
            ' red blocky object not seen; red objects: 1.',
        ),
        (
            'nearest',
            'Nearest?',
            (BLUE.label, RED.label),
            '[1] blue round object ahead 1.4 m; red tall object 30° left 10° down 2.1 m;'
            ' nearest is blue round object.',
        ),
    ],
)
def test_each_item_that_is_asked_about_is_looked_up(
    kind: str, question: str, options: tuple[str, ...], think: str
) -> None:
    deltas = DELTAS[:1] if kind == 'nearest' else DELTAS
    trace = read_row(row(kind, question, options, deltas), MEMORY)
    assert trace is not None
    assert trace.think == think
    assert executed_conclusion(trace.think, options) == trace.answer


@pytest.mark.parametrize('kind', ['net_turn', 'net_displacement', 'height_change'])
def test_motion_that_cannot_be_told_leaves_the_answer_unknown(kind: str) -> None:
    deltas = (DELTAS[0], replace(DELTAS[1], action='cannot tell'), DELTAS[2])
    trace = read_row(row(kind, 'Which?', FACINGS, deltas), MEMORY)
    assert trace is not None
    assert trace.answer == 'unknown'
    assert '[2] cannot tell' in trace.think


def test_item_seen_after_what_cannot_be_told_is_still_known() -> None:
    deltas = (DELTAS[0], replace(DELTAS[1], action='cannot tell'))
    asked = row('item_direction', 'Where is the green flat object?', SIDES, deltas)
    lost = row('item_direction', 'Where is the red tall object?', SIDES, deltas)
    assert [trace.answer for r in (asked, lost) if (trace := read_row(r, MEMORY))] == [
        'ahead',
        'unknown',
    ]


def test_a_bare_row_tells_of_motions_alone() -> None:
    full = row('net_turn', 'Which way?', FACINGS, DELTAS)
    text = bare(full).prompt(MEMORY).user
    assert NOTHING_SEEN in text
    assert not any(item['label'] in text for delta in full.deltas for item in delta['items'])
    assert [delta['action'] for delta in bare(full).deltas] == [d['action'] for d in full.deltas]


def test_degraded_rows_lose_distances_or_motions_and_nothing_else() -> None:
    full = row('net_displacement', 'Where?', SIDES, DELTAS)
    texts = {degrade_deltas(full, Random(seed)).prompt(MEMORY).user for seed in range(60)}
    assert any('cannot tell' in text for text in texts)
    assert any(' m' not in text.replace('moved', '') for text in texts)
    assert all(re.search('red (tall )?object 30° left', text) for text in texts)


def test_an_item_without_distance_does_not_mean_a_motion_without_length() -> None:
    full = row('net_displacement', 'Where?', SIDES, DELTAS)
    texts = {degrade_deltas(full, Random(seed)).prompt(MEMORY).user for seed in range(60)}
    vague = [text for text in texts if '30° left 10° down 2.1 m' not in text]
    assert {bool(re.search(r'moved \w+ [\d.]+ m', text)) for text in vague} == {True, False}


def test_retold_rows_have_other_motions_and_an_answer_of_their_own() -> None:
    full = row('net_turn', 'Which way?', FACINGS, DELTAS)
    made = [retell_motions(full, Random(seed)) for seed in range(60)]
    texts = [r.prompt(MEMORY).user for r in made]
    assert len(set(texts)) > 50
    assert any('turned left 90°' in text or 'turned right 90°' in text for text in texts)
    assert all('red tall object 30° left' in text for text in texts)
    answers = {trace.answer for r in made if (trace := read_row(r, MEMORY))}
    assert answers == set(FACINGS)


def test_what_a_merged_line_leaves_out_is_no_part_of_a_label() -> None:
    (line,) = read_scene('[1-39] 0.0-9.0 s: Seen: red tall object; blue round object and 4 more.')
    assert line.labels == ('red tall object', 'blue round object')
