# SPDX-License-Identifier: Apache-2.0
"""What an oracle writes about arms follows from the prompt, and from nothing else."""

from __future__ import annotations

from dataclasses import replace
import re
from typing import TYPE_CHECKING

import pytest

from test.training.arm_rows import arm_rows
from training.data.arm_reader import cm_of, cm_text, read_arm
from training.data.arm_traces import likest, movement_words, next_step, read_row

if TYPE_CHECKING:
    from embodied_r_ros.data.questions.row import Row

    from training.data.arm_reader import ArmPrompt

ROWS = arm_rows()


def of_kind(kind: str) -> list[Row]:
    return [row for row in ROWS if row.question_type == kind]


def arm_prompt(row: Row) -> ArmPrompt:
    found = read_arm(row)
    assert found
    return found


@pytest.mark.parametrize('kind', ['waypoint', 'movement'])
def test_a_oracle_is_mostly_right(kind: str) -> None:
    traces = [(row, read_row(row)) for row in of_kind(kind)]
    right = [trace is not None and trace.answer == row.solution_text() for row, trace in traces]
    assert len(right) > 20
    assert sum(right) / len(right) > 0.8


def test_a_trace_names_no_letter_and_ends_with_its_option() -> None:
    for row in ROWS:
        trace = read_row(row)
        if trace:
            assert trace.answer in row.options
            if trace.letter:
                number = 'ABCDEFGH'.index(trace.letter) + 1
                assert trace.think.endswith(f'Closest: {number}.')
                assert row.options[number - 1] == trace.answer
            else:
                assert trace.think.endswith(f': {trace.answer}.')
            assert not re.search(r'\b[A-D]\b', trace.think)


def test_only_the_prompt_is_read() -> None:
    """With other places told, the same row leads elsewhere; without them, nowhere."""
    changed = 0
    for row in of_kind('waypoint'):
        trace = read_row(row)
        blind = replace(row, focus=())
        assert read_row(blind) is None
        look = dict(row.focus[0])
        look['text'] = str(look['text']).replace('(0.100, -0.150', '(0.250, 0.200')
        other = read_row(replace(row, focus=(look,)))
        changed += other != trace
        unsaid = replace(row, keypoint=(9.0, 9.0, 9.0), state=(8.0, 8.0, 8.0), solution='A')
        assert read_row(unsaid) == trace
    assert changed > 5


def test_the_prompt_is_read_back_into_centimetres() -> None:
    first = of_kind('waypoint')[0]
    found = arm_prompt(first)
    assert (found.task, found.state) == ('put the red block on the blue mat', (0, 0, 16))
    assert found.on_table == {'red': (10, -15, 2), 'blue': (15, 10, 0)}
    held = next(row for row in of_kind('waypoint') if arm_prompt(row).at_tool)
    assert arm_prompt(held).at_tool == ('red',)
    assert arm_prompt(of_kind('current_state')[0]).state is None


def test_the_rest_of_a_centimetre_is_cut_off() -> None:
    assert cm_of('(0.149, -0.149, 0.290)') == (14, -14, 29)
    assert cm_of('(-0.009, 0.009, 0.000)') == (0, 0, 0)
    assert cm_text((14, -14, 0)) == '14 -14 00'


def test_a_second_position_is_looked_for_where_the_first_is_no_option() -> None:
    at = (0.1, -0.15, 0.014)
    row = next(row for row in of_kind('waypoint') if arm_prompt(row).state == (10, -15, 1))
    places = ('(0.010, 0.200, 0.154)', '(0.101, -0.149, 0.015)')
    trace = read_row(replace(row, options=places, keypoint=at))
    assert trace
    first = '1. x 01 10 no; 2. x 10 10 y -14 -15 z 01 16 no;'
    assert f'Next 10 -15 16: {first} Or 10 -15 01: 1. x 01 10 no; 2.' in trace.think
    assert trace.think.endswith('2. x 10 10 y -14 -15 z 01 01 yes. Closest: 2.')
    assert trace.answer == places[1]


def test_the_gripper_follows_from_hand_and_thing_where_it_acts_on_arrival() -> None:
    rows = arm_rows(gripper=True, grip='arrival', kinds=('waypoint',))
    asked = [row for row in rows if row.question_type == 'gripper']
    assert {row.solution_text() for row in asked} == {'open', 'closed'}
    traces = [(row, read_row(row)) for row in asked]
    assert all(trace and trace.answer == row.solution_text() for row, trace in traces)
    blind = [read_row(replace(row, focus=())) for row in asked]
    assert blind == [None] * len(asked)


def test_where_the_hand_is_no_text_tells() -> None:
    assert all(read_row(row) is None for row in of_kind('current_state'))


@pytest.mark.parametrize(
    ('task', 'state', 'on_table', 'at_tool', 'expected'),
    [
        ('pick up the red block', (0, 0, 16), {'red': (10, 5, 2)}, (), (10, 5, 15)),
        ('pick up the red block', (10, 5, 15), {'red': (10, 5, 2)}, (), (10, 5, 1)),
        ('pick up the red block', (10, 5, 8), {'red': (10, 5, 2)}, (), (10, 5, 1)),
        ('pick up the red block', (10, 5, 1), {}, ('red',), (10, 5, 16)),
        ('pick up the red block', (10, 5, 9), {}, ('red',), (10, 5, 16)),
        ('stack the red block on the blue block', (10, 5, 16), {'blue': (0, 9, 2)}, ('red',),
         (0, 9, 20)),
        ('stack the red block on the blue block', (0, 9, 20), {'blue': (0, 9, 2)}, ('red',),
         (0, 9, 5)),
        ('put the red block on the blue mat', (0, 9, 16), {'blue': (3, 9, 2)}, ('red',),
         (0, 9, 1)),
        ('put the red block on the blue mat', (0, 9, 9), {'blue': (3, 9, 2), 'red': (0, 9, 2)},
         (), (0, 9, 16)),
        ('push the red block to the blue mat', (0, 5, 16), {'red': (5, 5, 2), 'blue': (20, 5, 0)},
         (), (-2, 5, 15)),
        ('push the red block to the blue mat', (-3, 5, 1), {'red': (5, 5, 2), 'blue': (20, 5, 0)},
         (), (15, 5, 1)),
        ('push the red block to the blue mat', (15, 5, 1), {'red': (20, 5, 2), 'blue': (20, 5, 0)},
         (), (15, 5, 15)),
    ],
)  # fmt: skip
def test_what_comes_next_follows_from_hand_thing_and_place(
    task: str,
    state: tuple[int, int, int],
    on_table: dict[str, tuple[int, int, int]],
    at_tool: tuple[str, ...],
    expected: tuple[int, int, int],
) -> None:
    prompt = replace(
        arm_prompt(of_kind('waypoint')[0]),
        task=task, state=state, on_table=on_table, at_tool=at_tool,
    )  # fmt: skip
    step = next_step(prompt)
    assert step
    assert step.ends[0] == expected


@pytest.mark.parametrize(
    ('state', 'on_table', 'expected', 'is_closed'),
    [
        ((0, 0, 16), {'yellow': (11, -6, 13)}, (11, -6, 18), False),
        ((11, -6, 18), {'yellow': (11, -6, 13)}, (11, -6, 11), True),
        ((11, -6, 18), {}, (11, -6, 11), True),  # behind the hand
        ((11, -6, 11), {}, (-6, -6, 11), True),
        ((11, -6, 11), {'yellow': (10, -3, 13)}, (-6, -6, 11), True),  # a part of it
        ((12, -7, 14), {}, (-5, -7, 14), True),  # short of it
        ((0, 9, 4), {'yellow': (11, -6, 13)}, (0, 9, 18), False),
    ],
)
def test_a_drawer_is_opened_by_its_handle(
    state: tuple[int, int, int],
    on_table: dict[str, tuple[int, int, int]],
    expected: tuple[int, int, int],
    *,
    is_closed: bool,
) -> None:
    prompt = arm_prompt(of_kind('waypoint')[0])
    step = next_step(replace(prompt, task='open the drawer', state=state, on_table=on_table))
    assert step
    assert (step.ends[0], step.closed) == (expected, is_closed)


def test_a_drawer_that_is_not_seen_has_no_next_step() -> None:
    prompt = replace(arm_prompt(of_kind('waypoint')[0]), task='open the drawer', on_table={})
    assert next_step(replace(prompt, state=(0, 0, 16))) is None


@pytest.mark.parametrize('task', ['close the door', 'put the green block on the blue mat'])
def test_what_is_not_seen_has_no_next_step(task: str) -> None:
    assert next_step(replace(arm_prompt(of_kind('waypoint')[0]), task=task)) is None


def test_words_of_a_way_and_the_option_most_like_them() -> None:
    assert movement_words((10, -4, 0)) == 'forward, slightly left'
    assert movement_words((0, 0, 0)) == 'stay'
    options = ('up', 'forward, left', 'backward')
    assert likest('forward, slightly left', options) == 'forward, left'
    assert likest('stay', options) is None
    assert likest('up', ('somewhere', 'else')) is None
    assert cm_of('nowhere') is None
