# SPDX-License-Identifier: Apache-2.0
"""Accepted keypoints reach a server of MoveIt's ROS action; where missing, it is compiled."""

from __future__ import annotations

from pathlib import Path
import subprocess
import sys
from typing import Any, TYPE_CHECKING

from embodied_r_msgs.msg import KeypointProposal
import pytest

from test.nodes.graph import wait_for
from test.nodes.interfaces import compiled_interfaces
from test.nodes.test_action_goals_example import put_first

if TYPE_CHECKING:
    from collections.abc import Iterator

    from test.nodes.graph import Graph

ROOT = Path(__file__).resolve().parents[2]
# What a client and a server exchange (moveit_msgs and shape_msgs of Jazzy), without the fields of
# which the example says nothing: they would bring further packages.
SHAPES = {
    'msg/SolidPrimitive.msg': """
uint8 BOX=1
uint8 SPHERE=2
uint8 type
float64[<=3] dimensions
"""
}
MOVEIT = {
    'msg/BoundingVolume.msg': """
shape_msgs/SolidPrimitive[] primitives
geometry_msgs/Pose[] primitive_poses
""",
    'msg/PositionConstraint.msg': """
std_msgs/Header header
string link_name
geometry_msgs/Vector3 target_point_offset
BoundingVolume constraint_region
float64 weight
""",
    'msg/OrientationConstraint.msg': """
std_msgs/Header header
geometry_msgs/Quaternion orientation
string link_name
float64 absolute_x_axis_tolerance
float64 absolute_y_axis_tolerance
float64 absolute_z_axis_tolerance
uint8 parameterization
float64 weight
""",
    'msg/Constraints.msg': """
string name
PositionConstraint[] position_constraints
OrientationConstraint[] orientation_constraints
""",
    'msg/RobotState.msg': """
sensor_msgs/JointState joint_state
bool is_diff
""",
    'msg/PlanningScene.msg': """
string name
RobotState robot_state
bool is_diff
""",
    'msg/MotionPlanRequest.msg': """
RobotState start_state
Constraints[] goal_constraints
string planner_id
string group_name
int32 num_planning_attempts
float64 allowed_planning_time
float64 max_velocity_scaling_factor
float64 max_acceleration_scaling_factor
""",
    'msg/PlanningOptions.msg': """
PlanningScene planning_scene_diff
bool plan_only
""",
    'msg/MoveItErrorCodes.msg': """
int32 val
int32 SUCCESS=1
int32 NO_IK_SOLUTION=-31
string message
""",
    'action/MoveGroup.action': """
MotionPlanRequest request
PlanningOptions planning_options
---
MoveItErrorCodes error_code
float64 planning_time
---
string state
""",
}
# Moves to x >= 0, finds no way to the rest, and takes its time to x = 9, also to stop. As
# MoveIt's, it must not get a goal while it works on another: then it says so.
SERVER = """
import time, rclpy
from moveit_msgs.action import MoveGroup
from rclpy.action import ActionServer, CancelResponse
from rclpy.callback_groups import ReentrantCallbackGroup
from rclpy.executors import MultiThreadedExecutor
rclpy.init()
node = rclpy.create_node('move_group')
working = []
def move(handle):
    if working:
        print('overlap', flush=True)
    working.append(handle)
    try:
        return moved(handle)
    finally:
        working.remove(handle)
def moved(handle):
    request, options = handle.request.request, handle.request.planning_options
    [goal] = request.goal_constraints
    [place], [attitude] = goal.position_constraints, goal.orientation_constraints
    at, q = place.constraint_region.primitive_poses[0].position, attitude.orientation
    ball = place.constraint_region.primitives[0]
    print('goal', at.x, at.y, at.z, place.header.frame_id, 'link', place.link_name, 'group',
          request.group_name, 'ball', ball.type, list(ball.dimensions), 'turn', q.x, q.z, 'diff',
          request.start_state.is_diff, options.planning_scene_diff.is_diff, 'speed',
          request.max_velocity_scaling_factor, 'only', options.plan_only, flush=True)
    while at.x == 9.0 and not handle.is_cancel_requested:
        time.sleep(0.02)
    if at.x == 9.0:
        time.sleep(0.5)
    result = MoveGroup.Result()
    if handle.is_cancel_requested:
        handle.canceled()
    elif at.x < 0:
        handle.abort()
        result.error_code.val = result.error_code.NO_IK_SOLUTION
        result.error_code.message = 'out of reach'
    else:
        handle.succeed()
        result.error_code.val = result.error_code.SUCCESS
    return result
server = ActionServer(node, MoveGroup, 'move_action', move,
                      callback_group=ReentrantCallbackGroup(),
                      cancel_callback=lambda handle: CancelResponse.ACCEPT)
executor = MultiThreadedExecutor(4)
executor.add_node(node)
executor.spin()
"""
EXAMPLE = ['examples.move_arm', '--ros-args', '-p', 'group:=arm', '-p', 'link:=tool']


@pytest.fixture
def logs(graph: Graph, tmp_path: Path) -> Iterator[list[Path]]:
    """What a server of MoveIt's action and the example write."""
    environment = compiled_interfaces(tmp_path, {'shape_msgs': SHAPES, 'moveit_msgs': MOVEIT})
    environment |= {'ROS_DOMAIN_ID': str(graph.context.get_domain_id())}
    files = [tmp_path / 'server.txt', tmp_path / 'example.txt']
    commands = [[sys.executable, '-c', SERVER], [sys.executable, '-m', *EXAMPLE]]
    processes = []
    for file, command in zip(files, commands, strict=True):
        with file.open('w') as out:
            processes.append(
                subprocess.Popen(command, env=environment, stdout=out, stderr=out, cwd=ROOT)
            )
    yield files
    for process in processes:
        process.kill()
        process.wait(20)


def proposal(x: float, **fields: Any) -> KeypointProposal:
    msg = KeypointProposal(**fields)
    msg.pose.header.frame_id = 'table'
    msg.pose.pose.position.x, msg.pose.pose.position.z = x, 0.25
    msg.pose.pose.orientation.z = 1.0
    return msg


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_keypoints_are_moved_to_replaced_and_given_up(graph: Graph, logs: list[Path]) -> None:
    server, example = logs
    accepted = graph.publisher(KeypointProposal, '/keypoint_accepted')
    is_served = 'move_action/_action/send_goal'
    names = graph.outsider.get_service_names_and_types
    wait_for(lambda: any(is_served in name for name, _ in names()), 'the server', 60.0)

    def go(msg: KeypointProposal, outcome: str) -> None:
        accepted.publish(msg)
        x = msg.pose.pose.position.x
        if outcome:
            line = f'keypoint ({x:.3f}, 0.000, 0.250) m in table: {outcome}'
            wait_for(lambda: line in example.read_text(), line, 60.0)
        else:
            wait_for(lambda: f'goal {x} ' in server.read_text(), 'the goal', 60.0)

    put_first(lambda: accepted.publish(proposal(2.0)), example)
    said = server.read_text()
    assert 'goal 2.0 0.0 0.25 table link tool group arm ball 2 [0.005]' in said
    assert 'turn 1.0 0.0 diff True True speed 0.1 only False' in said  # downward
    closed = {'gripper': KeypointProposal.GRIPPER_CLOSED, 'gripper_valid': True}
    go(proposal(3.0, orientation_valid=True, **closed), 'reached')
    assert 'turn 0.0 1.0' in server.read_text()  # as proposed
    assert 'the gripper is to be closed' in example.read_text()
    go(proposal(-1.0), 'given up: NO_IK_SOLUTION: out of reach')
    go(proposal(9.0), '')
    go(proposal(4.0), 'reached')
    line = 'keypoint (9.000, 0.000, 0.250) m in table: replaced or cancelled'
    wait_for(lambda: line in example.read_text(), line, 60.0)
    assert 'overlap' not in server.read_text()


def test_without_moveit_one_line_says_what_to_install() -> None:
    code = 'import sys; sys.modules["moveit_msgs"] = None; from examples.move_arm import main; '
    done = subprocess.run(
        [sys.executable, '-c', f'{code}sys.exit(main())'],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert done.stderr.startswith('move_arm: error: moveit_msgs')
    assert done.stderr.endswith('is missing: apt install ros-$ROS_DISTRO-moveit-msgs\n')
