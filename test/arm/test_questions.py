# SPDX-License-Identifier: Apache-2.0
"""Questions about an arm: rows that prove themselves, and the prompt of the live action."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import pairwise
import math

from embodied_r_ros.arm.proposal import (
    keypoint_question,
)
from embodied_r_ros.common.errors import InputError
from embodied_r_ros.core.reasoning.prompts import build_prompt
from embodied_r_ros.core.scene.memory import MemoryConfig
from embodied_r_ros.core.types.geometry import position_text
from embodied_r_ros.core.types.movement import Movement
from embodied_r_ros.data.questions.coverage import Coverage
import pytest

from test.arm.arms import episode, KEYPOINTS, TASK
from test.arm.robot_rows import FACING, positions, ROBOT, rows_of


def test_every_tenth_state_is_asked_about_in_three_ways() -> None:
    rows = rows_of()
    asked = Counter((row.meta['state_index'], row.question_type) for row in rows)
    assert set(asked.values()) == {1}
    assert {index for index, _ in asked} == set(range(0, len(FACING.states) - 1, 10))
    kinds = {'waypoint', 'current_state', 'movement'}
    assert {kind for _, kind in asked} == kinds
    for row in rows:
        assert row.keypoint == FACING.states[row.meta['keypoint_index']].position
        later = [index for index in FACING.keypoints if index > row.meta['state_index']]
        assert row.meta['keypoint_index'] == min(later)


def test_solutions_are_the_keypoint_the_state_and_the_words_between_them() -> None:
    for row in rows_of():
        way = Movement.between(row.state, row.keypoint, 0.005)
        solutions = {
            'waypoint': position_text(row.keypoint),
            'current_state': position_text(row.state),
            'movement': way.words() if way else 'none',
        }
        assert row.solution_text() == solutions[row.question_type]
        assert len(row.options) == len(set(row.options)) == 4
        assert row.frame_id == 'table_center'


def test_the_prompt_of_a_row_is_that_of_the_live_action() -> None:
    memory = MemoryConfig()
    for row in rows_of():
        if row.question_type != 'waypoint':
            continue
        question = keypoint_question(
            TASK,
            'table_center',
            [(x, y, z) for x, y, z in positions(row)],
            robot=ROBOT.metadata,
            state=(row.state[0], row.state[1], row.state[2]),
        )
        live = build_prompt(question.text, question.options, row.semantic_deltas(), (), memory)
        assert row.prompt(memory) == live
        assert 'The end effector is at' in live.user


def test_only_what_was_seen_by_then_is_told() -> None:
    for row in rows_of():
        seen = [
            delta
            for delta in episode('e1', FACING).deltas
            if delta.stamp_ns <= row.meta['stamp_ns']
        ]
        assert len(row.deltas) == len(seen)


def test_the_state_is_not_told_where_it_is_asked_for() -> None:
    for row in rows_of():
        assert ('The end effector is at' in row.question) == (row.question_type != 'current_state')


def test_no_movement_is_asked_of_a_way_that_is_silent() -> None:
    coverage = Coverage()
    rows = rows_of(coverage=coverage, deadband_m=0.3)
    assert 'movement' not in {row.question_type for row in rows}
    reason = 'the way to the keypoint is not longer than the deadband'
    assert coverage.unsolved['movement', reason] == len(rows) / 2


def test_the_seed_decides() -> None:
    first, again, other = ([row.to_json() for row in rows_of(seed=seed)] for seed in (0, 0, 1))
    assert first == again
    assert first != other


def test_what_else_is_asked_does_not_change_a_question() -> None:
    alone = [row.to_json() for row in rows_of(kinds=('movement',))]
    among = [row.to_json() for row in rows_of(gripper=True) if row.question_type == 'movement']
    assert alone == among


def test_the_gripper_is_asked_for_only_when_wanted() -> None:
    assert {row.question_type for row in rows_of()} == {'waypoint', 'current_state', 'movement'}
    for row in rows_of(gripper=True):
        if row.question_type == 'gripper':
            number = FACING.keypoints.index(row.meta['keypoint_index'])
            assert row.solution_text() == ('closed' if KEYPOINTS[number][1] else 'open')
            assert set(row.options) == {'open', 'closed'}


@pytest.mark.parametrize('keypoints', [(3, 2), (2, 2), (-1,), (2, 113)])
def test_keypoints_that_are_no_rising_indices_are_refused(keypoints: tuple[int, ...]) -> None:
    with pytest.raises(InputError, match='expected rising indices of 113 states'):
        replace(FACING, keypoints=keypoints)


def test_stamps_that_stand_still_are_refused() -> None:
    with pytest.raises(InputError, match='order of time'):
        replace(FACING, states=(FACING.states[0],) * 3, keypoints=(2,))


def test_on_arrival_the_gripper_is_that_of_the_keypoint_before() -> None:
    """Four keypoints open, closed, open, … at places that differ; grips are none of their own."""
    shown = FACING.gripping_on_arrival()
    kept = [shown.states[index] for index in shown.keypoints]
    places = [state.position for state in kept]
    assert [state.closed for state in kept] == [False, True, True, True, False, False]
    assert all(math.dist(a, b) > 0.1 for a, b in pairwise(places))
    assert shown.states[0] == FACING.states[0]
    rows = rows_of(grip='arrival')
    assert rows
    assert all(math.dist(row.state, row.keypoint) >= 0.03 for row in rows)
    assert any(math.dist(row.state, row.keypoint) < 0.03 for row in rows_of())
