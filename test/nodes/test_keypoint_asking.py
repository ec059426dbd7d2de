# SPDX-License-Identifier: Apache-2.0
"""What the action PredictKeypoint asks is what rows ask."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from embodied_r_msgs.action import PredictKeypoint
from embodied_r_ros.errors import InputError
from embodied_r_ros.nodes.keypoint_asking import Arm, ArmConfig
from embodied_r_ros.questions.coverage import Coverage
from embodied_r_ros.questions.derive import QuestionsConfig
from embodied_r_ros.questions.robot import rows_of_arm
from embodied_r_ros.reasoning.memory import MemoryConfig
from embodied_r_ros.reasoning.prompts import build_prompt
from embodied_r_ros.robots import load_robot
from geometry_msgs.msg import Point, PoseStamped
import pytest

from test.questions.arms import arm, camera, episode, TASK

NOW_NS = 50_000_000_000


def pose(position: tuple[float, ...], frame_id: str = 'table_center', age_s: int = 0) -> Any:
    msg = PoseStamped()
    msg.header.frame_id = frame_id
    msg.header.stamp.sec = NOW_NS // 1_000_000_000 - age_s
    x, y, z = position
    msg.pose.position = Point(x=x, y=y, z=z)
    return msg


def goal(candidates: list[tuple[float, ...]], frame_id: str = 'table_center') -> Any:
    points = [Point(x=x, y=y, z=z) for x, y, z in candidates]
    return PredictKeypoint.Goal(task=TASK, frame_id=frame_id, candidates=points)


def test_the_prompt_of_the_action_is_that_of_the_row() -> None:
    shown = arm(at=camera())
    robot = load_robot('sawyer_sim')
    robot = replace(robot, questions=replace(robot.questions, kinds=('waypoint',)))
    rows = list(rows_of_arm(shown, episode('e', shown), QuestionsConfig(robot=robot), Coverage()))
    assert rows
    live = Arm(ArmConfig(robot='sawyer_sim'))
    for row in rows:
        options = [tuple(map(float, option[1:-1].split(', '))) for option in row.options]
        live.take_pose(pose(row.state))
        question = live.question_of(goal(options), NOW_NS)
        prompt = build_prompt(
            question.text, question.options, row.semantic_deltas(), (), MemoryConfig()
        )
        assert prompt == row.prompt(MemoryConfig())


def test_without_a_robot_nothing_is_told_of_one() -> None:
    question = Arm(ArmConfig()).question_of(goal([(0.1, 0.0, 0.2), (0.0, 0.0, 0.0)]), NOW_NS)
    assert 'The end effector is at' not in question.text
    assert 'gripper' not in question.text


@pytest.mark.parametrize(
    ('msg', 'frame_id', 'why'),
    [
        (None, 'table_center', 'no current_pose yet'),
        (pose((0.0, 0.0, 0.1), age_s=2), 'table_center', '2.00 s old: expected at most 0.5 s'),
        (pose((0.0, 0.0, 0.1), age_s=-2), 'table_center', '-2.00 s old'),
        (pose((0.0, 0.0, 0.1), 'base'), 'table_center', "in frame 'base', the candidates in"),
        (pose((0.0, 0.0, 0.1), 'base'), 'base', "expected the robot's frame 'table_center'"),
        (pose((0.0, 0.0, float('nan'))), 'table_center', 'is not finite'),
    ],
)
def test_an_arm_that_is_not_known_to_be_anywhere_is_refused(
    msg: Any, frame_id: str, why: str
) -> None:
    live = Arm(ArmConfig(robot='sawyer_sim'))
    if msg:
        live.take_pose(msg)
    with pytest.raises(InputError, match=why):
        live.question_of(goal([(0.1, 0.0, 0.2), (0.0, 0.0, 0.0)], frame_id), NOW_NS)
