# SPDX-License-Identifier: Apache-2.0
"""Rules that see nothing, and one that sees all that a prompt tells, on questions about arms."""

from __future__ import annotations

from dataclasses import replace
import json
import math
from typing import TYPE_CHECKING

from embodied_r_ros.data.questions.row import write_rows
import pytest

from test.training.arm_rows import arm_rows
from training.eval.arm_baselines import arm_baselines, main, most_alike, nearest_to_state

if TYPE_CHECKING:
    from pathlib import Path

    from embodied_r_ros.data.questions.row import Row

ROWS = arm_rows()


def first(kind: str) -> Row:
    return next(row for row in ROWS if row.question_type == kind)


def test_the_nearest_option_is_nearest_to_the_state_that_is_told() -> None:
    options = ('(0.300, 0.000, 0.160)', '(0.020, 0.000, 0.160)', '(0.000, 0.000, 0.260)')
    row = replace(first('waypoint'), options=options)
    assert '(0.000, 0.000, 0.160).' in row.question
    assert nearest_to_state(row) == options[1]
    assert nearest_to_state(first('current_state')) is None
    assert nearest_to_state(first('movement')) is None


def test_the_option_most_like_the_others_is_in_their_middle() -> None:
    places = ('(0.300, 0.000, 0.160)', '(0.100, 0.000, 0.160)', '(0.000, 0.000, 0.160)')
    assert most_alike(replace(first('waypoint'), options=places)) == places[1]
    words = ('left', 'slightly left, down', 'slightly left, up', 'slightly left, slightly up')
    asked = replace(first('movement'), options=('forward', 'up', 'forward, up'))
    assert most_alike(asked) == 'forward, up'
    assert most_alike(replace(asked, options=words)) is None  # the last is no movement


def test_rates_are_over_all_rows_of_a_type() -> None:
    found = arm_baselines(ROWS)
    assert set(found) == {'waypoint', 'current_state', 'movement'}
    waypoint = found['waypoint']
    own = [row for row in ROWS if row.question_type == 'waypoint']
    right = [nearest_to_state(row) == row.solution_text() for row in own]
    assert waypoint['nearest_to_state'] == pytest.approx(sum(right) / len(own))
    assert waypoint['careful_reader'] > 0.8 > waypoint['majority_letter']
    assert waypoint['chance'] == 0.25
    assert 'careful_reader' not in found['current_state']
    assert not arm_baselines([replace(ROWS[0], frame_id='')])


def test_options_of_the_paper_give_the_right_movement_away() -> None:
    """Each differs from it on one axis: it is what they have in common."""
    square, adjacent = (
        arm_baselines(arm_rows(wrong_movements=how))['movement']['most_alike']
        for how in ('square', 'adjacent')
    )
    assert adjacent > 0.8
    assert math.isclose(square, 0.25, abs_tol=0.15)


def test_a_file_of_rows_is_judged_without_a_model(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / 'rows.jsonl'
    write_rows(path, ROWS)
    assert main([str(path)]) == 0
    assert 'careful_reader' in capsys.readouterr().out
    assert main([str(path), '--json']) == 0
    assert json.loads(capsys.readouterr().out)['waypoint']['n'] > 20
    assert main([str(path), '--split', 'nowhere']) == 2
    assert 'no rows about arms' in capsys.readouterr().err
