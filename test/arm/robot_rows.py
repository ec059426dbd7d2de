# SPDX-License-Identifier: Apache-2.0
"""Rows of questions about an arm, for tests."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, TYPE_CHECKING

from embodied_r_ros.arm.robot import load_robot, Robot
from embodied_r_ros.arm.rows import rows_of_arm
from embodied_r_ros.data.questions.coverage import Coverage
from embodied_r_ros.data.questions.derive import QuestionsConfig

from test.arm.arms import arm, camera, episode

if TYPE_CHECKING:
    from embodied_r_ros.arm.demonstration import ArmEpisode
    from embodied_r_ros.data.questions.row import Row

ROBOT = load_robot('sawyer_sim')
FACING = arm(at=camera())


def rows_of(
    shown: ArmEpisode = FACING,
    robot: Robot = ROBOT,
    coverage: Coverage | None = None,
    *,
    seed: int = 0,
    **questions: Any,
) -> list[Row]:
    robot = replace(robot, questions=replace(robot.questions, **questions))
    config = QuestionsConfig(seed=seed, robot=robot)
    recorded = episode('e1', shown)
    return list(rows_of_arm(shown, recorded, config, coverage or Coverage()))


def positions(row: Row) -> list[tuple[float, ...]]:
    return [tuple(float(part) for part in option[1:-1].split(', ')) for option in row.options]
