# SPDX-License-Identifier: Apache-2.0
"""Questions about an arm are asked where its camera faces it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from embodied_r_ros.arm.rows import EVERY_KIND
from embodied_r_ros.arm.table import PlacingConfig
from embodied_r_ros.common.errors import InputError
from embodied_r_ros.data.questions.coverage import Coverage
import pytest

from test.arm.arms import arm, camera
from test.arm.robot_rows import ROBOT, rows_of


@pytest.mark.parametrize(
    ('at', 'why'),
    [
        (camera(180), 'stands 180 degrees round from there'),
        (camera(90), 'stands 90 degrees round'),
        (camera(45), '45 degrees round'),
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
