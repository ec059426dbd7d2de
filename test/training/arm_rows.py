# SPDX-License-Identifier: Apache-2.0
"""Rows about an arm that puts a red block on a blue mat, as a perfect perceiver tells it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, TYPE_CHECKING

from embodied_r_ros.arm.demonstration import DemonstrationTruth, TrueThing
from embodied_r_ros.arm.episodes import ground_truth_arm_deltas
from embodied_r_ros.arm.robot import load_robot
from embodied_r_ros.arm.rows import rows_of_arm
from embodied_r_ros.data.questions.coverage import Coverage
from embodied_r_ros.data.questions.derive import QuestionsConfig

from test.arm.arms import arm, camera, episode

if TYPE_CHECKING:
    from embodied_r_ros.data.questions.row import Row

BLOCK, MAT = (0.1, -0.15, 0.02), (0.15, 0.1, 0.0)


def arm_rows(**questions: Any) -> list[Row]:
    """The rows, with these settings of questions."""
    shown = arm(at=camera())
    gripped, released = shown.keypoints[2], shown.keypoints[6]
    block = []
    for index in range(len(shown.states)):
        x, y, z = shown.states[min(index, released)].position
        block.append((x, y, z + 0.006) if index > gripped else BLOCK)
    things = (
        TrueThing('block', 'red block', tuple(block)),
        TrueThing('mat', 'blue mat', (MAT,) * len(block)),
    )
    stamps = tuple(state.stamp_ns for state in shown.states)
    truth = DemonstrationTruth(stamps, things, (), shown.frame_id)
    deltas = tuple(ground_truth_arm_deltas(truth, camera(), 0.05))
    robot = load_robot('sawyer_sim')
    robot = replace(robot, questions=replace(robot.questions, stride=3, **questions))
    recorded = replace(episode('e', shown), deltas=deltas)
    return list(rows_of_arm(shown, recorded, QuestionsConfig(robot=robot), Coverage()))
