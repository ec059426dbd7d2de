# SPDX-License-Identifier: Apache-2.0
"""Accepted goals reach a server of Nav2's ROS action; where missing, its interface is compiled."""

from __future__ import annotations

from pathlib import Path
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

from geometry_msgs.msg import PoseStamped
import pytest

from test.nodes.graph import wait_for
from test.nodes.interfaces import compiled_interfaces
from test.nodes.test_action_goals_example import put_first

if TYPE_CHECKING:
    from collections.abc import Iterator

    from test.nodes.graph import Graph

ROOT = Path(__file__).resolve().parents[2]
# What a client and a server exchange (nav2_msgs of Jazzy).
ACTION = """
geometry_msgs/PoseStamped pose
string behavior_tree
---
uint16 NONE=0
uint16 error_code
string error_msg
---
geometry_msgs/PoseStamped current_pose
builtin_interfaces/Duration navigation_time
builtin_interfaces/Duration estimated_time_remaining
int16 number_of_recoveries
float32 distance_remaining
"""
# Drives to x >= 0, says that it cannot to the rest, and takes its time to x = 9. As Nav2 does, a
# newer goal preempts the one that it drives to, which then is aborted.
SERVER = """
import time, rclpy
from nav2_msgs.action import NavigateToPose
from rclpy.action import ActionServer, CancelResponse
from rclpy.callback_groups import ReentrantCallbackGroup
from rclpy.executors import MultiThreadedExecutor
rclpy.init()
node, newest = rclpy.create_node('bt_navigator'), []
def drive(handle):
    x = handle.request.pose.pose.position.x
    print('goal', x, handle.request.pose.header.frame_id, flush=True)
    newest.append(handle)
    while x == 9.0 and handle is newest[-1] and not handle.is_cancel_requested:
        time.sleep(0.02)
    if handle.is_cancel_requested:
        print('cancelled', x, flush=True)
        handle.canceled()
        return NavigateToPose.Result()
    if handle is not newest[-1]:
        handle.abort()
        return NavigateToPose.Result()
    if x < 0:
        handle.abort()
        return NavigateToPose.Result(error_code=9003, error_msg='the way is blocked')
    handle.succeed()
    return NavigateToPose.Result()
server = ActionServer(node, NavigateToPose, 'navigate_to_pose', drive,
                      callback_group=ReentrantCallbackGroup(),
                      cancel_callback=lambda handle: CancelResponse.ACCEPT)
executor = MultiThreadedExecutor(4)
executor.add_node(node)
executor.spin()
"""


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    return compiled_interfaces(tmp_path, {'nav2_msgs': {'action/NavigateToPose.action': ACTION}})


@pytest.fixture
def programs(
    graph: Graph, environment: dict[str, str], tmp_path: Path
) -> Iterator[list[tuple[Path, subprocess.Popen[bytes]]]]:
    """A server of Nav2's action and the example, and what they write."""
    domain = {'ROS_DOMAIN_ID': str(graph.context.get_domain_id())}
    files = [tmp_path / 'server.txt', tmp_path / 'example.txt']
    commands = [[sys.executable, '-c', SERVER], [sys.executable, '-m', 'examples.navigate']]
    processes = []
    for file, command in zip(files, commands, strict=True):
        with file.open('w') as out:
            processes.append(
                subprocess.Popen(
                    command, env=environment | domain, stdout=out, stderr=out, cwd=ROOT
                )
            )
    yield list(zip(files, processes, strict=True))
    for process in processes:
        process.kill()
        process.wait(20)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_goals_are_driven_to_replaced_and_given_up(
    graph: Graph, programs: list[tuple[Path, subprocess.Popen[bytes]]]
) -> None:
    (server, _), (example, process) = programs
    goals = graph.publisher(PoseStamped, '/goal_pose')
    is_served = 'navigate_to_pose/_action/send_goal'
    names = graph.outsider.get_service_names_and_types
    wait_for(lambda: any(is_served in name for name, _ in names()), 'the server', 60.0)

    def put(x: float) -> None:
        msg = PoseStamped()
        msg.header.frame_id = 'map'
        msg.pose.position.x = x
        goals.publish(msg)

    def go(x: float, outcome: str) -> None:
        put(x)
        if outcome:
            line = f'goal ({x:.2f}, 0.00) m in map: {outcome}'
            wait_for(lambda: line in example.read_text(), line, 60.0)
        else:
            wait_for(lambda: f'goal {x} map' in server.read_text(), 'the goal', 60.0)

    put_first(lambda: put(2.0), example)
    go(-1.0, 'given up: the way is blocked')
    go(9.0, '')
    go(3.0, 'reached')
    line = 'goal (9.00, 0.00) m in map: replaced or cancelled'
    wait_for(lambda: line in example.read_text(), line, 60.0)
    assert 'cancelled' not in server.read_text()  # Nav2 itself ends the one before
    put(9.0)
    wait_for(lambda: server.read_text().count('goal 9.0 map') == 2, 'the last goal', 60.0)
    process.send_signal(signal.SIGINT)
    assert process.wait(60.0) == 0
    wait_for(lambda: 'cancelled 9.0' in server.read_text(), 'the end of the last goal', 60.0)
