# SPDX-License-Identifier: Apache-2.0
"""Simulated time that goes back, for two robots at once, of which one has three cameras."""

from __future__ import annotations

from functools import partial
from typing import Any, TYPE_CHECKING

from builtin_interfaces.msg import Time
from embodied_r_msgs.action import Ask
from embodied_r_msgs.msg import Answer, SemanticDelta
from embodied_r_ros.nodes.live_scene import LiveScene
from embodied_r_ros.nodes.semantic_perceiver import SemanticPerceiver
from embodied_r_ros.nodes.spatial_reasoner import SpatialReasoner
from rosgraph_msgs.msg import Clock

from test.nodes.graph import wait_for
from test.nodes.test_keyframe_extractor import Camera, view
from test.nodes.test_live_scene import delta_at
from test.nodes.test_robots import extractor

if TYPE_CHECKING:
    from embodied_r_ros.nodes.node_base import ManagedNode

    from test.nodes.graph import Graph

S = 10**9
CAMERAS = {'/robot1': ('front', 'left', 'rear'), '/robot2': ('front',)}
SIM: dict[str, Any] = {'use_sim_time': True}


class Robot:
    """A robot in a simulation: its cameras, and what its nodes say."""

    def __init__(self, graph: Graph, name: str) -> None:
        self.graph, self.name, cameras = graph, name, CAMERAS[name]
        nodes = [extractor(graph, name, camera, **SIM) for camera in cameras]
        nodes.append(graph.active(SemanticPerceiver, namespace=name, cameras=list(cameras), **SIM))
        self.reasoner = graph.active(SpatialReasoner, namespace=name, profile='tools', **SIM)
        self.nodes = [*nodes, self.reasoner]
        self.deltas = graph.inbox(SemanticDelta, f'{name}/semantic_delta')
        graph.matched(f'{name}/semantic_delta')
        self.cameras = {camera: Camera(graph, namespace=f'{name}/{camera}') for camera in cameras}

    def look(self, now_s: int, seed: int) -> list[Any]:
        """Show each camera something else; the deltas that come of it."""
        before = len(self.deltas)
        for number, camera in enumerate(self.cameras.values()):
            camera.send(view(10 * seed + number), now_s * S)
        return self.deltas.wait(before + len(self.cameras))[before:]

    def has_forgotten(self) -> bool:
        return not self.reasoner._memory.deltas()

    def ask(self) -> Any:
        handle = self.graph.send_goal(Ask, f'{self.name}/ask', Ask.Goal(question='What is seen?'))
        return self.graph.goal_result(handle)[1].answer


def is_time(node: ManagedNode, now_s: int) -> bool:
    return node.now_ns() == now_s * S


def test_time_of_two_robots_goes_back(graph: Graph) -> None:
    robots = [Robot(graph, name) for name in CAMERAS]
    clock = graph.publisher(Clock, '/clock', 1, readers=sum(len(r.nodes) for r in robots))

    def set_time(now_s: int) -> None:
        clock.publish(Clock(clock=Time(sec=now_s)))
        for node in (node for robot in robots for node in robot.nodes):
            wait_for(partial(is_time, node, now_s), 'the time')

    for round_s in (100, 10):
        set_time(round_s)
        for robot in robots:
            wait_for(robot.has_forgotten, 'an empty memory')
        for step in range(2):
            set_time(round_s + step)
            for number, robot in enumerate(robots):
                deltas = robot.look(round_s + step, round_s + 2 * step + number)
                assert sorted(msg.camera for msg in deltas) == sorted(CAMERAS[robot.name])
                assert {msg.header.stamp.sec for msg in deltas} == {round_s + step}
                # Nothing of the time before is compared with what is seen now.
                kind = SemanticDelta.KIND_CHANGE if step else SemanticDelta.KIND_FIRST
                assert {msg.kind for msg in deltas} == {kind}
        set_time(round_s + 3)
        for robot in robots:
            answer = robot.ask()
            assert answer.observation_stamp.sec == round_s + 1
            assert answer.observation_age.sec == 2
            assert answer.freshness == Answer.FRESHNESS_FRESH
            remembered = robot.reasoner._memory.deltas()
            assert len(remembered) == 2 * len(CAMERAS[robot.name])


def test_assistant_is_told_nothing_of_a_time_that_has_not_come(graph: Graph) -> None:
    node = graph.add(LiveScene, **SIM)
    clock = graph.publisher(Clock, '/clock', 1)
    deltas = graph.publisher(SemanticDelta, '/semantic_delta')
    clock.publish(Clock(clock=Time(sec=100)))
    deltas.publish(delta_at(99 * S, 0, 'table'))
    wait_for(lambda: node.latest().get('age_s') == 1.0, 'the delta')
    clock.publish(Clock(clock=Time(sec=10)))
    wait_for(lambda: node.latest()['observations'] == 0, 'an empty memory')
    deltas.publish(delta_at(8 * S, 0, 'chair'))
    wait_for(lambda: node.latest().get('age_s') == 2.0, 'the delta')
    assert node.scene().labels == ('chair',)
