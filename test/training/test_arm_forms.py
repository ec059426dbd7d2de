# SPDX-License-Identifier: Apache-2.0
"""Rows about arms in other forms, and how answers to them are rewarded."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING

from embodied_r_ros.arm.robot import load_robot
from embodied_r_ros.data.questions.row import read_rows, Row, write_rows
import pytest

from test.training.arm_rows import arm_rows
from training.data.arm_forms import as_perceived, in_form, main, open_ended, without_metadata
from training.data.arm_reader import read_arm
from training.data.arm_traces import read_row
from training.eval.grading import grade

if TYPE_CHECKING:
    from pathlib import Path

ROWS = arm_rows()
WAYPOINT = next(row for row in ROWS if row.question_type == 'waypoint')
MOVEMENT = next(row for row in ROWS if row.question_type == 'movement')


def reply_text(answer: str) -> str:
    return f'<think>x</think><answer>{answer}</answer>'


def test_without_metadata_the_rest_of_the_question_stays() -> None:
    bare = without_metadata(WAYPOINT).question
    assert 'grows towards' not in bare
    assert 'gripper' not in bare
    assert bare.endswith(
        'in the frame table_center. The end effector is at (0.000, 0.000, 0.160).'
    )
    state = next(row for row in ROWS if row.question_type == 'current_state')
    assert without_metadata(state).question.endswith('in the frame table_center.')
    for row in ROWS:
        assert without_metadata(row).options == row.options


def test_metadata_in_words_of_a_robot_is_left_out_too() -> None:
    told = load_robot('sawyer_sim').metadata.axes
    for row in ROWS:
        own = replace(row, question=row.question.replace(told, 'x grows towards the door.'))
        assert without_metadata(own) == without_metadata(row)
        assert without_metadata(without_metadata(row)) == without_metadata(row)


def test_an_open_question_is_answered_by_a_position() -> None:
    row = open_ended(WAYPOINT)
    assert row
    assert (row.answer_kind, row.options) == ('text', ())
    assert row.solution == WAYPOINT.solution_text()
    assert Row.from_json(row.to_json()) == row
    assert open_ended(MOVEMENT) is None
    trace = read_row(row)
    assert trace
    assert (grade(row, trace.completion()).accuracy or 0.0) > 0.95


@pytest.mark.parametrize(
    ('answer', 'accuracy'),
    [
        ('(0.100, 0.200, 0.300)', 1.0),
        ('(0.000, 0.250, 0.300)', 0.85),
        ('(0.1, 0.2, 0.3)', 1.0),
        ('(9.000, 0.000, 0.000)', 0.0),
        ('over there', 0.0),
        ('unknown', 0.0),
    ],
)
def test_a_position_is_rewarded_by_its_nearness(answer: str, accuracy: float) -> None:
    row = replace(WAYPOINT, answer_kind='text', options=(), solution='(0.100, 0.200, 0.300)')
    assert grade(row, reply_text(answer)).accuracy == pytest.approx(accuracy)


def test_a_file_of_rows_is_put_into_a_form(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, out = tmp_path / 'rows.jsonl', tmp_path / 'open.jsonl'
    write_rows(path, ROWS)
    assert main([str(path), '--kinds', 'waypoint', '--open-ended', '--out', str(out)]) == 0
    assert {(row.question_type, row.options) for row in read_rows(out)} == {('waypoint', ())}
    bare = tmp_path / 'bare.jsonl'
    assert main([str(path), '--no-metadata', '--out', str(bare)]) == 0
    assert len(list(read_rows(bare))) == len(ROWS)
    none = tmp_path / 'none.jsonl'
    given = [str(path), '--kinds', 'movement', '--open-ended', '--out', str(none)]
    assert main(given) == 2
    assert 'no rows about arms of that form' in capsys.readouterr().err
    assert not none.exists()


def test_what_is_perceived_has_colour_and_shape_and_mats_come_nearer() -> None:
    for seed in range(20):
        row = as_perceived(WAYPOINT, Random(seed))
        look = row.focus[-1]['text']
        assert 'block at' not in look
        assert 'mat' not in look
        assert 'red blocky object at (0.' in look
        before, after = read_arm(WAYPOINT), read_arm(row)
        assert before
        assert after
        assert 0 <= after.on_table['blue'][0] - before.on_table['blue'][0] <= 5
        assert abs(after.on_table['red'][0] - before.on_table['red'][0]) <= 1
        assert (row.question, row.options, row.solution) == (
            WAYPOINT.question, WAYPOINT.options, WAYPOINT.solution
        )  # fmt: skip
        assert ' m' not in str([delta['change'] for delta in row.deltas])


def test_candidates_stay_where_things_are_told_to_be() -> None:
    rows = [row for row in arm_rows(distractors='candidates') if row.question_type == 'waypoint']
    first = rows[0]
    told = read_arm(as_perceived(first, Random(1)))
    shown = read_arm(first)
    assert told
    assert shown
    assert {name: at[:2] for name, at in shown.on_table.items()}.items() <= {
        name: at[:2] for name, at in told.on_table.items()
    }.items()


def test_a_share_of_the_moments_is_told_as_perceived_all_questions_alike() -> None:
    formed = list(in_form(ROWS, (), is_open=False, has_metadata=True, perceived_share=0.5))
    changed: dict[object, set[bool]] = {}
    for row, before in zip(formed, ROWS, strict=True):
        if before.focus:
            known = changed.setdefault(row.meta['state_index'], set())
            known.add(row.focus != before.focus)
    assert all(len(kinds) == 1 for kinds in changed.values())
    assert {kind for kinds in changed.values() for kind in kinds} == {True, False}
