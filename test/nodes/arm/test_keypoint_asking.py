# SPDX-License-Identifier: Apache-2.0
"""What the action PredictKeypoint asks is what rows ask."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, TYPE_CHECKING

from embodied_r_msgs.action import PredictKeypoint
from embodied_r_ros.arm.robot import load_robot
from embodied_r_ros.arm.rows import rows_of_arm
from embodied_r_ros.arm.table import TableView
from embodied_r_ros.bags.messages import camera_info_to_msg
from embodied_r_ros.common.errors import InputError
from embodied_r_ros.common.files import shared_path
from embodied_r_ros.core.reasoning.prompts import build_prompt
from embodied_r_ros.core.scene.memory import MemoryConfig
from embodied_r_ros.core.types.deltas import DeltaKind, Item, SemanticDelta
from embodied_r_ros.core.types.geometry import (
    BODY_FROM_OPTICAL,
    direction_of_vector,
    Intrinsics,
)
from embodied_r_ros.core.types.poses import NoPose
from embodied_r_ros.data.questions.coverage import Coverage
from embodied_r_ros.data.questions.derive import QuestionsConfig
from embodied_r_ros.nodes.arm.keypoint_request import Arm, ArmConfig
from embodied_r_ros.nodes.topics import ROS_MESSAGES
from geometry_msgs.msg import Point, PoseStamped
import numpy as np
import pytest
import yaml

from test.arm.arms import arm, camera, episode, TASK

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from embodied_r_ros.core.reasoning.question import Question
    from embodied_r_ros.core.types.geometry import Pose

NOW_NS = 50_000_000_000


def pose(
    position: tuple[float, ...],
    frame_id: str = 'table_center',
    age_s: int = 0,
    stamp_ns: int = NOW_NS,
) -> Any:
    msg = PoseStamped()
    msg.header.frame_id = frame_id
    msg.header.stamp.sec, msg.header.stamp.nanosec = divmod(stamp_ns, 1_000_000_000)
    msg.header.stamp.sec -= age_s
    x, y, z = position
    msg.pose.position = Point(x=x, y=y, z=z)
    return msg


def goal(candidates: list[tuple[float, ...]], frame_id: str = 'table_center') -> Any:
    points = [Point(x=x, y=y, z=z) for x, y, z in candidates]
    return PredictKeypoint.Goal(task=TASK, frame_id=frame_id, candidates=points)


NOW = (SemanticDelta(NOW_NS, DeltaKind.FIRST, 0),)  # seen now


def question_of(
    live: Arm, msg: Any, now_ns: int = NOW_NS, deltas: Sequence[SemanticDelta] = ()
) -> Question:
    return live.request_of(msg, now_ns, deltas, 'seed').question


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
        question = question_of(live, goal(options))
        prompt = build_prompt(
            question.text, question.options, row.semantic_deltas(), (), MemoryConfig()
        )
        assert prompt == row.prompt(MemoryConfig())


def test_what_is_told_of_the_table_is_what_the_row_tells(tmp_path: Path) -> None:
    """Live deltas are not rounded as those of rows are, and yet give the same text."""
    at = camera()
    path = tmp_path / 'mine.yaml'
    placing = {'camera_position': list(at.position), 'camera_orientation': list(at.orientation)}
    path.write_text(yaml.safe_dump({'placing': placing, 'questions': {'kinds': ['waypoint']}}))
    shown = arm(at=at)
    recorded = episode('e', shown, seen=4)
    held = np.subtract(shown.states[30].position, at.position)
    bearing, elevation = direction_of_vector(BODY_FROM_OPTICAL @ at.rotation().T @ held)
    items = (
        Item('red blocky object', bearing_rad=0.123456789, elevation_rad=-0.0210987654),
        Item('blue flat object', bearing_rad=-0.10050505, elevation_rad=0.0320320321),
        Item('what it holds', bearing_rad=bearing, elevation_rad=elevation),
    )
    recorded = replace(
        recorded, deltas=tuple(replace(delta, items=items) for delta in recorded.deltas)
    )
    robot = load_robot(str(path))
    live = Arm(ArmConfig(robot=str(path)))
    told = []
    for row in rows_of_arm(shown, recorded, QuestionsConfig(robot=robot), Coverage()):
        options = [tuple(map(float, option[1:-1].split(', '))) for option in row.options]
        heard = recorded.deltas[: len(row.deltas)]
        for state in shown.states:
            if state.stamp_ns <= row.meta['stamp_ns']:
                live.take_pose(pose(state.position, stamp_ns=state.stamp_ns))
        question = question_of(live, goal(options), row.meta['stamp_ns'], heard)
        assert question.view
        look = question.view.describe(heard)
        assert look
        memory = MemoryConfig()
        prompt = build_prompt(question.text, question.options, heard, [look], memory)
        assert prompt == row.prompt(memory)
        told.append(look.text)
    assert all('red blocky object at (' in text for text in told)
    assert len({'At the end effector' in text for text in told}) == 2


def test_a_camera_that_tf_knows_is_asked_of_tf(tmp_path: Path) -> None:
    asked = []

    def pose_in(frame: str, wanted: str, stamp_ns: int) -> Pose | NoPose:
        asked.append((frame, wanted, stamp_ns))
        return camera()

    live = Arm(ArmConfig(robot='sawyer_sim', camera='front', camera_frame='eye'), pose_in)
    live.take_pose(pose((0.0, 0.0, 0.1)))
    two = goal([(0.1, 0.0, 0.2), (0.0, 0.0, 0.0)])
    view = question_of(live, two, deltas=NOW).view
    assert isinstance(view, TableView)
    assert (view.camera, view.name, view.tool) == (camera(), 'front', (0.0, 0.0, 0.1))
    question_of(live, two)
    # Where it was when it saw what is told of; where nothing was seen, where it is.
    assert asked == [('eye', 'table_center', NOW_NS), ('eye', 'table_center', 0)]


@pytest.mark.parametrize('candidates', [[], [(0.1, 0.0, 0.2), (0.0, 0.0, 0.0)]])
def test_a_camera_that_tf_does_not_know_is_refused_with_its_reason(
    candidates: list[tuple[float, ...]],
) -> None:
    live = Arm(ArmConfig(robot='sawyer_sim', camera_frame='eye'), lambda *_: NoPose('eye is gone'))
    live.take_pose(pose((0.0, 0.0, 0.1)))
    with pytest.raises(InputError, match=r"arm\.camera_frame is 'eye', .*: eye is gone"):
        question_of(live, goal(candidates), deltas=NOW)


def test_where_the_tool_was_is_known_of_a_fast_arm() -> None:
    live = Arm(ArmConfig(robot='sawyer_sim'))
    for step in range(2000):  # at 1 kHz
        live.take_pose(pose((0.0, 0.0, step / 10_000), stamp_ns=NOW_NS - (1999 - step) * 10**6))
    then_ns = NOW_NS - 1_500_000_000
    question = question_of(live, goal(TWO), deltas=(SemanticDelta(then_ns, DeltaKind.FIRST, 0),))
    assert isinstance(question.view, TableView)
    assert question.view.tool == pytest.approx((0.0, 0.0, 0.0499))
    assert 'The end effector is at (0.000, 0.000, 0.200).' in question.text  # as it is now


TWO: list[tuple[float, ...]] = [(0.1, 0.0, 0.2), (0.0, -0.1, 0.0)]


def seen_from(bearing_deg: float, allowed: str, folder: Path) -> Arm:
    """A simulated arm whose camera stands at a bearing from +x, which its file tells."""
    at = camera(bearing_deg)
    shipped = yaml.safe_load(shared_path('config', 'robots', 'sawyer_sim.yaml').read_text())
    placing = {'camera_position': list(at.position), 'camera_orientation': list(at.orientation)}
    mine = {**shipped, 'placing': placing, 'questions': {'camera': allowed}}
    path = folder / 'mine.yaml'
    path.write_text(yaml.safe_dump(mine))
    live = Arm(ArmConfig(robot=str(path)))
    live.take_pose(pose((0.05, 0.1, 0.2)))
    return live


@pytest.mark.parametrize('robot', ['sawyer_sim', 'sawyer_sim_balanced', 'sawyer_sim_loop'])
def test_the_camera_of_a_shipped_robot_faces_it(robot: str) -> None:
    live = Arm(ArmConfig(robot=robot))
    live.take_pose(pose((0.0, 0.0, 0.1)))
    assert question_of(live, goal(TWO), deltas=NOW).view


def test_words_that_do_not_hold_for_the_camera_are_not_asked_with(tmp_path: Path) -> None:
    for bearing_deg, why in (
        (180.0, 'stands 180 degrees round'),
        (45.0, r'no words .*45 degrees round.*`camera: declared`'),
    ):
        with pytest.raises(InputError, match=why):
            question_of(seen_from(bearing_deg, 'facing', tmp_path), goal(TWO))
    assert question_of(seen_from(20.0, 'facing', tmp_path), goal(TWO)).view


def test_a_reference_point_outside_the_image_is_refused_as_it_is_of_rows(tmp_path: Path) -> None:
    live = seen_from(0.0, 'facing', tmp_path)
    wide = Intrinsics(640, 480, 500.0, 500.0, 320.0, 240.0)
    live.take_camera_info(camera_info_to_msg(ROS_MESSAGES, 5, 'eye', wide))
    assert question_of(live, goal(TWO)).view
    narrow = replace(wide, cx=-900.0)
    live.take_camera_info(camera_info_to_msg(ROS_MESSAGES, 5, 'eye', narrow))
    with pytest.raises(InputError, match='the reference point is not in the image'):
        question_of(live, goal(TWO))
    shown = replace(arm(at=camera(0.0)), intrinsics=narrow)
    coverage = Coverage()
    config = QuestionsConfig(robot=load_robot(str(tmp_path / 'mine.yaml')))
    assert not list(rows_of_arm(shown, episode('one', shown), config, coverage))
    assert any('not in the image' in reason for _, reason in coverage.unsolved)


def test_a_camera_that_is_declared_to_face_the_robot_is_not_checked(tmp_path: Path) -> None:
    behind = question_of(seen_from(180.0, 'declared', tmp_path), goal(TWO))
    ahead = question_of(seen_from(0.0, 'facing', tmp_path), goal(TWO))
    assert behind.view
    assert (behind.text, behind.options) == (ahead.text, ahead.options)


def test_without_a_robot_nothing_is_told_of_one() -> None:
    question = question_of(Arm(ArmConfig()), goal([(0.1, 0.0, 0.2), (0.0, 0.0, 0.0)]))
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
        question_of(live, goal([(0.1, 0.0, 0.2), (0.0, 0.0, 0.0)], frame_id))
