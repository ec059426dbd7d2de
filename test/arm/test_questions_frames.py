# SPDX-License-Identifier: Apache-2.0
"""Questions about an arm for cameras that stand anywhere."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from embodied_r_ros.arm.rows import EVERY_KIND
from embodied_r_ros.arm.table import PlacingConfig
from embodied_r_ros.arm.task_frame import rotate_quarters
from embodied_r_ros.common.errors import InputError
from embodied_r_ros.data.questions.coverage import Coverage
from embodied_r_ros.data.questions.row import Row
import pytest

from test.arm.arms import arm, camera
from test.arm.robot_rows import ROBOT, rows_of


@pytest.mark.parametrize(
    ('bearing_deg', 'quarters'), [(0, 0), (90, 1), (180, 2), (-90, 3), (20, 0), (-165, 2)]
)
def test_words_hold_for_the_camera_wherever_it_stands(bearing_deg: float, quarters: int) -> None:
    """Rows of a camera behind or beside the robot are those of one that faces it, turned."""
    shown = arm(at=camera(bearing_deg))
    rows = rows_of(shown, camera='any')
    assert rows
    for row in rows:
        index = row.meta['state_index']
        assert row.state == rotate_quarters(shown.states[index].position, quarters)
        end = f'_turned_{90 * quarters}' if quarters else ''
        assert row.frame_id == f'table_center{end}'
        assert Row.from_json(row.to_json()).question_type == row.question_type
        if row.question_type != 'movement':
            assert f'in the frame {row.frame_id}.' in row.question
    # The first way goes to +x and -y, and hardly down.
    first = next(row for row in rows if row.question_type == 'movement')
    said = set(first.solution_text().split(', '))
    expected = [
        {'forward', 'left'}, {'backward', 'left'}, {'backward', 'right'}, {'forward', 'right'}
    ]  # fmt: skip
    assert {word.removeprefix('slightly ') for word in said} - {'down', 'up'} == expected[quarters]


@pytest.mark.parametrize(
    ('at', 'why'),
    [
        (camera(180), 'stands 180 degrees round from there'),
        (camera(90), 'stands 90 degrees round'),
        (camera(45), '45 degrees aside'),
        (camera(0, 85), 'from above'),
        (None, "the pose of the camera in 'table_center' is not known"),
        (replace(camera(), frame_id='base'), 'is not known'),
    ],
)
def test_a_camera_that_does_not_face_the_robot_is_refused(at: Any, why: str) -> None:
    coverage, robot = Coverage(), replace(ROBOT, placing=PlacingConfig())
    assert rows_of(arm(at=at), robot, coverage) == []
    ((kind, reason),) = coverage.unsolved
    assert kind == EVERY_KIND
    assert why in reason
    assert rows_of(arm(at=at), robot, camera='declared')


def test_another_frame_than_the_robots_is_refused() -> None:
    with pytest.raises(InputError, match="is in frame 'base', robot 'sawyer_sim' in 'table_c"):
        rows_of(arm(at=camera(), frame_id='base'))
