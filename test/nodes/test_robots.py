# SPDX-License-Identifier: Apache-2.0
"""Several robots in one DDS domain, and several cameras on a robot: each hears its own."""

from __future__ import annotations

from pathlib import Path
from typing import Any, TYPE_CHECKING

from action_msgs.msg import GoalStatus
from embodied_r_msgs.action import Ask
from embodied_r_msgs.msg import Answer, SemanticDelta
from embodied_r_ros.bags.reader import open_bag
from embodied_r_ros.nodes.keyframe_extractor import KeyframeExtractorNode
from embodied_r_ros.nodes.semantic_perceiver import SemanticPerceiver
from embodied_r_ros.nodes.spatial_reasoner import SpatialReasoner
from embodied_r_ros.nodes.topics import robot_remappings

from test.chat_server import ChatServer, Script
from test.nodes.graph import wait_for
from test.nodes.test_episode_recorder import Operator
from test.nodes.test_keyframe_extractor import Camera, view

if TYPE_CHECKING:
    from test.nodes.graph import Graph

ROBOTS = ('/robot1', '/robot2')
ANSWER = Script(('<think>so</think>', '<answer>A</answer>'))


def extractor(graph: Graph, robot: str, camera: str, **parameters: Any) -> KeyframeExtractorNode:
    """The extractor of one of a robot's cameras, as the launch file starts it."""
    rules = [f'{name}:={topic}' for name, topic in robot_remappings(robot).items()]

    def make(**options: Any) -> KeyframeExtractorNode:
        words = [part for rule in rules for part in ('-r', rule)]
        return KeyframeExtractorNode(cli_args=['--ros-args', *words], **options)

    return graph.active(make, namespace=f'{robot}/{camera}', camera=camera, **parameters)


class Robot:
    """All nodes of a robot, and one who shows it something and asks."""

    def __init__(self, graph: Graph, name: str, folder: Path, url: str) -> None:
        self.graph, self.name = graph, name
        chat = {'chat__url': url, 'chat__retries': 0, 'reasoner__focus': 'never'}
        self.extractor = graph.active(KeyframeExtractorNode, namespace=name, camera=name[1:])
        graph.active(SemanticPerceiver, namespace=name)
        self.reasoner = graph.active(SpatialReasoner, namespace=name, **chat)
        self.recorder = Operator(graph, folder / name[1:], name)
        self.answers = graph.inbox(Answer, f'{name}/answer')
        graph.matched(f'{name}/answer')
        self.camera = Camera(graph, namespace=name)

    def start(self) -> Any:
        """Start an episode, and wait until the camera knows."""
        started = self.recorder.start()
        wait_for(lambda: self.extractor._episode_id == started.episode_id, 'the mark')
        return started

    def see(self) -> Any:
        """Show something; returns its keyframe and what is remembered of it."""
        self.camera.send(view(1), self.graph.outsider.get_clock().now().nanoseconds)
        [keyframe] = self.camera.keyframes.wait(1)
        return keyframe, wait_for(self.reasoner._memory.deltas, 'a delta')

    def ask(self) -> Any:
        """Ask, and wait until the answer is recorded."""
        goal = Ask.Goal(question='Which way?', options=['left', 'right'])
        handle = self.graph.send_goal(Ask, f'{self.name}/ask', goal)
        status, result = self.graph.goal_result(handle)
        assert status == GoalStatus.STATUS_SUCCEEDED
        self.answers.wait(1)
        wait_for(lambda: self.recorder.count(f'{self.name}/answer'), 'the answer in the bag')
        return result.answer


def test_two_robots_do_not_hear_each_other(graph: Graph, tmp_path: Path) -> None:
    with ChatServer(default=ANSWER, models=[{'id': 'scripted'}]) as server:
        first, second = (Robot(graph, name, tmp_path, server.url) for name in ROBOTS)
        started = first.start()
        seen = [robot.see() for robot in (first, second)]
        assert [keyframe.episode_id for keyframe, _ in seen] == [started.episode_id, '']
        heard = [[delta.camera for delta in deltas] for _, deltas in seen]
        assert heard == [['robot1'], ['robot2']]
        assert first.ask().episode_id == started.episode_id
        assert (len(first.answers), len(second.answers)) == (1, 0)
        assert second.recorder.node._episode is None
        first.recorder.stop()
    with open_bag(Path(started.bag_path)) as reader:
        counts = {connection.topic: connection.count for connection in reader.connections}
    assert not [topic for topic in counts if topic.startswith('/robot2')]
    assert (counts['/robot1/keyframe'], counts['/robot1/answer']) == (1, 1)
    assert not list((tmp_path / 'robot2').glob('*'))


def test_two_cameras_of_a_robot_are_kept_apart(graph: Graph) -> None:
    names = ('front', 'rear')
    for name in names:
        extractor(graph, '/robot1', name)
    perceiver = graph.active(SemanticPerceiver, namespace='/robot1', cameras=list(names))
    deltas = graph.inbox(SemanticDelta, '/robot1/semantic_delta')
    graph.matched('/robot1/semantic_delta')
    front, rear = (Camera(graph, namespace=f'/robot1/{name}') for name in names)
    now_ns = graph.outsider.get_clock().now().nanoseconds
    for count, seed in enumerate((1, 2, 3)):
        front.send(view(seed), now_ns + count * 10**9)
        front.keyframes.wait(count + 1)
        rear.send(view(9), now_ns + count * 10**9)  # which stands still
    rear.keyframes.wait(1)
    deltas.wait(4)
    told = sorted((msg.camera, msg.from_id, msg.to_id) for msg in deltas)
    assert told == [('front', 1, 1), ('front', 1, 2), ('front', 2, 3), ('rear', 1, 1)]
    assert {msg.camera for msg in front.keyframes} == {'front'}
    assert [msg.camera for msg in rear.keyframes] == ['rear']
    kept = [perceiver._worker.keyframe(1, name) for name in names]
    assert [keyframe.camera for keyframe in kept if keyframe] == list(names)
    assert perceiver._worker.keyframe(3, 'rear') is None
