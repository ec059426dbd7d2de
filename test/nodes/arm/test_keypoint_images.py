# SPDX-License-Identifier: Apache-2.0
"""A vision policy is shown what the camera sees: over DDS from the image topic to its server."""

from __future__ import annotations

from typing import Any, TYPE_CHECKING

import cv2
from embodied_r_msgs.action import Ask
from embodied_r_msgs.msg import Answer, EpisodeMark, Keyframe
from embodied_r_msgs.srv import AskOnce, PredictKeypointOnce
from embodied_r_ros.arm.proposal import GRIPPER_NEXT
from embodied_r_ros.bags.messages import stamp_ns_from_msg, stamp_to_msg
from embodied_r_ros.core.reasoning.image_targets import FORMS, POINT
from embodied_r_ros.core.reasoning.prompts import SHOWN_PIXELS
from embodied_r_ros.core.types.images import decode_image
from embodied_r_ros.nodes import topics
from embodied_r_ros.nodes.keyframe_extractor import KeyframeExtractorNode
from embodied_r_ros.nodes.topics import ROS_MESSAGES
from geometry_msgs.msg import Point
import numpy as np
import pytest

from test.chat_server import ChatServer, Script
from test.nodes.arm.test_keypoint_server import Bench, FRAME, HOME, says
from test.nodes.graph import wait_for
from test.nodes.test_keyframe_extractor import Camera, view

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from test.nodes.graph import Graph

PLACES = [Point(x=0.1, y=0.1, z=0.15), Point(x=0.1, y=-0.1, z=0.15)]


@pytest.fixture
def server() -> Iterator[ChatServer]:
    with ChatServer(default=says('B'), models=[{'id': 'scripted'}]) as made:
        yield made


class Eyes(Bench):
    """A reasoner that shows images, and a camera with the real extractor before it."""

    def __init__(self, graph: Graph, server: ChatServer, **parameters: Any) -> None:
        super().__init__(graph, server, reasoner__show_image=True, **parameters)
        graph.active(KeyframeExtractorNode)
        self.camera = Camera(graph)
        self.heard = self.node._images

    def show(self, pixels: NDArray[np.uint8]) -> int:
        """Send an image, and wait until the reasoner has its keyframe; returns its stamp."""
        stamp_ns = self.node.now_ns()
        self.camera.send(pixels, stamp_ns)
        wait_for(lambda: self.heard.stamp_ns() == stamp_ns, 'the keyframe')
        return stamp_ns

    def ask(self) -> Any:
        request = PredictKeypointOnce.Request(task='Pick it up.', frame_id=FRAME)
        request.candidates = PLACES
        return self.graph.call(PredictKeypointOnce, '/predict_keypoint_once', request)


def test_the_newest_image_is_shown_and_nothing_is_told(graph: Graph, server: ChatServer) -> None:
    eyes = Eyes(graph, server, arm__gripper=True)
    answers = graph.inbox(Answer, '/answer')
    graph.matched('/answer')
    eyes.show(view(1))
    stamp_ns = eyes.show(view(2))
    eyes.stand(HOME)
    response = eyes.ask()
    assert response.error_code == 0, response.error_msg
    assert response.proposal.candidate_index == 1
    assert stamp_ns_from_msg(response.proposal.observation_stamp) == stamp_ns
    first, second = server.requests
    assert first.text.startswith('Seen:\n(the image shows it)\nQuestion: The task is: Pick it up.')
    assert GRIPPER_NEXT.text in second.text
    for request in (first, second):
        [data] = request.images
        seen = decode_image(data).astype(int)
        assert np.abs(seen - view(2)).mean() < 15 < 40 < np.abs(seen - view(1)).mean()
    answer = answers.wait(2)[0]
    assert (answer.freshness, list(answer.delta_ids)) == (Answer.FRESHNESS_FRESH, [])
    assert answer.header.frame_id == 'front_optical'


def test_the_tool_is_where_it_was_in_the_image(graph: Graph, server: ChatServer) -> None:
    eyes = Eyes(graph, server)
    eyes.stand((0.05, 0.0, 0.2))
    pose = eyes.node._keypoints._arm._pose
    stamp_ns = stamp_ns_from_msg(pose.header.stamp)
    eyes.camera.send(view(1), stamp_ns)
    wait_for(lambda: eyes.heard.stamp_ns() == stamp_ns, 'the keyframe')
    eyes.stand(HOME)
    assert eyes.ask().error_code == 0
    assert 'The end effector is at (0.050, 0.000, 0.200).' in server.requests[0].text


def test_a_large_image_is_shown_smaller(graph: Graph, server: ChatServer) -> None:
    eyes = Eyes(graph, server)
    eyes.show(np.asarray(cv2.resize(view(1), (1600, 1200)), np.uint8))
    eyes.stand(HOME)
    assert eyes.ask().error_code == 0
    height, width = decode_image(server.requests[0].images[0]).shape[:2]
    assert 0.9 * SHOWN_PIXELS < height * width <= SHOWN_PIXELS


def test_a_question_for_a_point_shows_the_newest_image(graph: Graph, server: ChatServer) -> None:
    eyes = Eyes(graph, server, arm__robot='')

    def ask(question: str) -> Any:
        return graph.call(AskOnce, '/ask_once', AskOnce.Request(question=question))

    blind = ask('Point at the block.')
    assert blind.error_code == Ask.Result.ERROR_NO_OBSERVATION
    assert blind.error_msg.startswith('no image came yet')
    stamp_ns = eyes.show(view(1))
    server.default = Script(('<think>There.</think><answer>{"point_2d": [3, 4]}</answer>',))
    response = ask('Point at the block.')
    assert (response.error_code, response.answer.text) == (0, '(3, 4)')
    assert stamp_ns_from_msg(response.answer.observation_stamp) == stamp_ns
    assert server.requests[-1].images
    assert server.requests[-1].text.endswith(f'Question: Point at the block. {FORMS[POINT]}')
    server.default = Script(('<think>There.</think><answer>(3, 4000)</answer>',))
    assert ask('Point at the block.').error_code == Ask.Result.ERROR_FORMAT
    # Other questions are answered from what was perceived, which is nothing.
    assert ask('Where is the block?').error_code == Ask.Result.ERROR_NO_OBSERVATION


def test_without_a_camera_one_error_says_so(graph: Graph, server: ChatServer) -> None:
    bench = Bench(graph, server, reasoner__show_image=True)
    bench.see((0.1, 0.1, 0.02))
    bench.stand(HOME)
    response = bench.predict()
    assert response.error_code == Ask.Result.ERROR_NO_OBSERVATION
    assert response.error_msg == (
        'no image came yet that the model is to be shown (reasoner.show_image): check the camera '
        'and the keyframe_extractor, which publishes it on `keyframe`'
    )
    assert not server.requests
    keyframes = graph.publisher(Keyframe, '/keyframe')
    msg = Keyframe()
    msg.header.stamp = stamp_to_msg(ROS_MESSAGES, bench.node.now_ns())
    keyframes.publish(msg)
    wait_for(bench.node._images.stamp_ns, 'the keyframe')
    response = bench.predict()
    assert response.error_code == Ask.Result.ERROR_NO_OBSERVATION
    assert response.error_msg.startswith('the newest keyframe cannot be shown to the model: ')


def test_a_model_that_reads_text_alone_is_named(graph: Graph, server: ChatServer) -> None:
    server.default = Script(status=400, body='{"error": "this model does not support images"}')
    eyes = Eyes(graph, server)
    eyes.show(view(1))
    eyes.stand(HOME)
    response = eyes.ask()
    assert response.error_code == Ask.Result.ERROR_MODEL
    assert 'image' in response.error_msg


def test_an_image_from_before_the_episode_is_not_shown(graph: Graph, server: ChatServer) -> None:
    eyes = Eyes(graph, server)
    marks = graph.publisher(EpisodeMark, '/episode_mark', topics.LATCHED, readers=2)
    eyes.show(view(1))
    eyes.stand(HOME)
    mark = EpisodeMark(episode_id='two', event=EpisodeMark.EVENT_START)
    mark.header.stamp = stamp_to_msg(ROS_MESSAGES, eyes.node.now_ns())
    marks.publish(mark)
    wait_for(lambda: eyes.node._memory.episode_id == 'two', 'the episode')
    assert eyes.ask().error_code == Ask.Result.ERROR_NO_OBSERVATION
    eyes.show(view(1))
    assert eyes.ask().proposal.episode_id == 'two'


def test_a_standing_task_needs_no_deltas(graph: Graph, server: ChatServer) -> None:
    task = {'arm__task': 'Pick it up.', 'arm__task_rate_hz': 10.0}
    eyes = Eyes(graph, server, **task)
    eyes.stand(HOME)
    eyes.show(view(1))
    [proposal] = eyes.proposals.wait(1)
    assert len(proposal.candidates) >= 4
    assert server.requests[0].images
