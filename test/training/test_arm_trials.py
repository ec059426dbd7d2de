# SPDX-License-Identifier: Apache-2.0
"""Rows of trials that an oracle leads."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING

import pytest

if find_spec('metaworld') is None:
    pytest.skip('Meta-World is not installed', allow_module_level=True)
pytest.importorskip('embodied_r_ros.sim.indoor.world')

from embodied_r_ros.arm.robot import load_robot
from embodied_r_ros.data.questions.row import read_rows
from embodied_r_ros.sim.arm.trials import TrialPlan

from training.data.arm_traces import read_row
from training.data.arm_trials import main, robot_of, trial_rows

if TYPE_CHECKING:
    from pathlib import Path

    from embodied_r_ros.data.questions.row import Row

ROBOT = load_robot('sawyer_sim_loop')


@pytest.fixture(scope='module')
def quick() -> list[Row]:
    return trial_rows(TrialPlan('pick', 1, 0), ROBOT, slips=0.0)


def test_rows_ask_for_the_position_and_then_the_gripper_of_each_step(quick: list[Row]) -> None:
    rows = quick
    assert [row.question_type for row in rows] == ['waypoint', 'gripper'] * 3
    assert [len(row.deltas) for row in rows] == [1, 1, 2, 2, 3, 3]
    assert [row.solution_text() for row in rows[1::2]] == ['open', 'closed', 'closed']
    for position, gripper in zip(rows[::2], rows[1::2], strict=True):
        assert position.keypoint == gripper.keypoint
        assert position.options[ord(position.solution) - ord('A')].startswith(
            f'({position.keypoint[0]:.3f}'
        )
    assert rows[2].state == pytest.approx(rows[0].keypoint, abs=0.01)


def test_rows_of_slow_answers_tell_of_what_was_seen_meanwhile(quick: list[Row]) -> None:
    plan = TrialPlan('pick', 1, 0)
    slow = trial_rows(plan, ROBOT, slips=0.0, wait_s=6.0)
    assert [row.solution_text() for row in slow] == [row.solution_text() for row in quick]
    assert len(slow[-1].deltas) > 3 * len(quick[-1].deltas)


def test_a_row_reads_as_the_oracle_answered() -> None:
    for row in trial_rows(TrialPlan('place', 1, 1), ROBOT, slips=0.2):
        trace = read_row(row)
        assert trace
        assert trace.answer == row.solution_text()


def test_a_drawer_is_led_to_with_the_candidates_of_its_robot() -> None:
    rows = trial_rows(TrialPlan('drawer', 44000, 0), robot_of('drawer'), slips=0.0)
    assert [row.solution_text() for row in rows[1::2]] == ['open', 'closed', 'closed']
    assert [round(row.keypoint[2], 2) for row in rows[::2]] == [0.18, 0.12, 0.12]


def test_who_slips_is_asked_from_other_places() -> None:
    plan = TrialPlan('pick', 1, 2)
    straight = {row.state for row in trial_rows(plan, ROBOT, slips=0.0)}
    astray = [row.state for row in trial_rows(plan, ROBOT, slips=0.3)]
    assert set(astray) - straight


def test_the_command_writes_rows_and_leaves_a_file_that_is_there(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / 'rows.jsonl'
    run = ['--tasks', 'pick', '--episodes', '1', '--seed', '1', '--out', str(out)]
    assert main(run) == 0
    assert {row.source for row in read_rows(out)} == {'oracle'}
    assert main(run) == 2
    assert 'exists already' in capsys.readouterr().err


def test_the_command_says_where_nothing_came_of_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / 'rows.jsonl'
    run = ['--tasks', 'pick', '--episodes', '1', '--seed', '1', '--out', str(out)]
    assert main([*run, '--slips', '1']) == 2
    assert 'none of 1 trials succeeded' in capsys.readouterr().err
    assert not out.exists()
    assert main([*run, '--slips', '1.5']) == 2
    with pytest.raises(SystemExit, match='2'):
        main([*run, '--tasks', 'door'])
