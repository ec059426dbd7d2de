# SPDX-License-Identifier: Apache-2.0
"""`/diagnostics` tells the truth: of a node in every state and its neighbours."""

from __future__ import annotations

from functools import partial
import time
from typing import Any, TYPE_CHECKING

from builtin_interfaces.msg import Time
from diagnostic_msgs.msg import DiagnosticArray, DiagnosticStatus
from embodied_r_msgs.msg import EpisodeMark, Keyframe, SemanticDelta
from embodied_r_ros.bags.messages import camera_info_to_msg, stamp_to_msg
from embodied_r_ros.core.types.geometry import Intrinsics
from embodied_r_ros.nodes import diagnostics, topics, watches
from embodied_r_ros.nodes.keyframe_extractor import KeyframeExtractorNode
from embodied_r_ros.nodes.proposal_gate import ProposalGate
from embodied_r_ros.nodes.semantic_perceiver import SemanticPerceiver
from embodied_r_ros.nodes.spatial_reasoner import SpatialReasoner
from embodied_r_ros.nodes.topics import ROS_MESSAGES
import numpy as np
import pytest
from rclpy.qos import DurabilityPolicy, QoSProfile, ReliabilityPolicy
from rosgraph_msgs.msg import Clock
from sensor_msgs.msg import CameraInfo, Image

from test.chat_server import ChatServer, Script
from test.nodes.graph import ACTIVATE, CONFIGURE, DEACTIVATE, wait_for

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from test.nodes.graph import Graph

OK, WARN, ERROR = b'\x00', b'\x01', b'\x02'
RELIABLE_IMAGE = {'qos_overrides__/image__subscription__reliability': 'reliable'}
VOLATILE = QoSProfile(depth=1)
LATCHED_SUBSCRIPTION = QoSProfile(depth=1, durability=DurabilityPolicy.TRANSIENT_LOCAL)
LATE_S = 60.0  # on a busy machine


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Discovery in a test is quick, and a model server near."""
    monkeypatch.setattr(diagnostics, '_DISCOVERY_S', 1.0)
    monkeypatch.setattr(watches, '_MODELS_S', 0.2)
    monkeypatch.setattr(watches, '_REPLY_S', 0.5)


@pytest.fixture
def server() -> Iterator[ChatServer]:
    right = Script(('<think>So.</think>', '<answer>B</answer>'))
    with ChatServer(default=right, models=[{'id': 'scripted'}]) as made:
        yield made


class Monitor:
    """Hears `/diagnostics`, as a person's monitor does."""

    def __init__(self, graph: Graph) -> None:
        self.arrays = graph.inbox(DiagnosticArray, '/diagnostics', 100)

    def newest(self, task: str) -> DiagnosticStatus | None:
        """The newest status of a task such as 'echo: echo'."""
        statuses = [s for array in self.arrays for s in array.status if s.name == task]
        return statuses[-1] if statuses else None

    def wait(
        self,
        task: str,
        *levels: bytes,
        text: str = '',
        also: Callable[[dict[str, str]], bool] = lambda values: True,
    ) -> DiagnosticStatus:
        """Wait until a task has one of some levels, and a text in its message."""

        def matching() -> DiagnosticStatus | None:
            status = self.newest(task)
            fits = status and status.level in levels and text in status.message
            return status if status and fits and also(values_of(status)) else None

        try:
            status: DiagnosticStatus = wait_for(matching, f'{task}: {text}', LATE_S)
        except AssertionError:
            raise AssertionError((text, self.newest(task))) from None
        return status


def values_of(status: DiagnosticStatus) -> dict[str, str]:
    return {value.key: value.value for value in status.values}


EXTRACTOR = 'keyframe_extractor: keyframe_extractor'
REASONER = 'spatial_reasoner: spatial_reasoner'
PERCEIVER = 'semantic_perceiver: semantic_perceiver'


def test_node_says_in_every_state_that_it_is_not_active(graph: Graph) -> None:
    monitor = Monitor(graph)
    node = graph.add(ProposalGate)
    task = 'proposal_gate: proposal_gate'
    status = monitor.wait(task, WARN, text='unconfigured: not activated for ')
    assert values_of(status)['state'] == 'unconfigured'
    graph.change(node, CONFIGURE)
    monitor.wait(task, WARN, text='inactive: not activated for ')
    graph.change(node, ACTIVATE)
    monitor.wait(task, WARN, text='no publisher of /keypoint_proposal: start spatial_reasoner')
    graph.change(node, DEACTIVATE)
    since = monitor.wait(task, WARN, text='inactive: not activated for ')
    assert float(values_of(since)['state_age_s']) < 10


def test_node_that_cannot_be_configured_is_an_error_with_the_reason(graph: Graph) -> None:
    monitor = Monitor(graph)
    node = graph.add(SpatialReasoner, chat__url='http://127.0.0.1:9', chat__retries=0)
    monitor.wait(REASONER, WARN, text='unconfigured')
    assert not graph.try_change(node, CONFIGURE)
    monitor.wait(REASONER, ERROR, text='not configured: no model server at http://127.0.0.1:9')


def test_report_that_fails_is_an_error(graph: Graph, server: ChatServer) -> None:
    monitor = Monitor(graph)
    node = graph.active(SpatialReasoner, chat__url=server.url, chat__model='scripted')
    node.report = lambda: 1 / 0  # type: ignore[method-assign, assignment, return-value]
    monitor.wait(REASONER, ERROR, text='health is not known: ZeroDivisionError')


def test_neighbour_that_is_gone_is_a_warning(graph: Graph) -> None:
    monitor = Monitor(graph)
    graph.active(SemanticPerceiver, perceiver='classical')
    monitor.wait(PERCEIVER, WARN, text='no publisher of /keyframe: start keyframe_extractor')
    sender = graph.outsider.create_publisher(Keyframe, '/keyframe', topics.RESULT)
    monitor.wait(PERCEIVER, OK)
    graph.outsider.destroy_publisher(sender)
    monitor.wait(PERCEIVER, WARN, text='no publisher of /keyframe')


@pytest.mark.parametrize(
    ('kind', 'topic', 'profile', 'reason'),
    [
        (Image, '/image', topics.SENSOR, 'Best effort publisher and reliable subscription'),
        (EpisodeMark, '/episode_mark', VOLATILE, 'Volatile publisher and transient local'),
        (Keyframe, '/keyframe', LATCHED_SUBSCRIPTION, 'Volatile publisher and transient local'),
    ],
)
def test_silence_hides_no_incompatible_qos(
    graph: Graph, kind: Any, topic: str, profile: QoSProfile, reason: str
) -> None:
    monitor = Monitor(graph)
    graph.active(KeyframeExtractorNode, silence_s=0.1, **RELIABLE_IMAGE)
    if profile is LATCHED_SUBSCRIPTION:
        other = graph.outsider.create_subscription(kind, topic, print, profile)
    else:
        other = graph.outsider.create_publisher(kind, topic, profile)
    status = monitor.wait(EXTRACTOR, WARN, text=f'incompatible QoS on {topic}')
    assert 'no image for' in status.message
    assert reason in values_of(status)[f'qos of {topic}']
    assert '/outsider' in values_of(status)[f'qos of {topic}']
    graph.outsider.destroy_subscription(other) or graph.outsider.destroy_publisher(other)
    no_image = 'no publisher of /image'
    wait_for(
        lambda: (newest := monitor.newest(EXTRACTOR)) and newest.message.startswith(no_image),
        'a fit QoS',
    )


def test_model_server_that_is_down_is_an_error_before_anyone_asks(graph: Graph) -> None:
    monitor = Monitor(graph)
    reliable = QoSProfile(depth=1, reliability=ReliabilityPolicy.RELIABLE)
    graph.outsider.create_publisher(SemanticDelta, '/semantic_delta', reliable)
    with ChatServer(models=[{'id': 'scripted'}]) as server:
        port = server.port or int(server.url.rpartition(':')[2])
        graph.active(SpatialReasoner, chat__url=server.url, chat__model='scripted')
        monitor.wait(REASONER, OK, text='ready')
    monitor.wait(REASONER, ERROR, text='primary model server: no model server at')
    with ChatServer(models=[{'id': 'scripted'}], port=port) as server:
        monitor.wait(REASONER, OK, text='ready')
        assert server.requests == []


def test_model_server_with_another_one_beside_it_is_a_warning(
    graph: Graph, server: ChatServer
) -> None:
    monitor = Monitor(graph)
    with ChatServer(models=[{'id': 'large'}]) as other:
        graph.active(SpatialReasoner, chat__url=other.url, chat__model='large', local=server.url)
    monitor.wait(REASONER, WARN, text='primary model server: no model server at')


def test_perceiver_without_its_model_server_is_a_warning(graph: Graph) -> None:
    monitor = Monitor(graph)
    graph.outsider.create_publisher(Keyframe, '/keyframe', topics.RESULT)
    with ChatServer(models=[{'id': 'large'}]) as other:
        words = {'perceiver': 'vlm', 'chat__url': other.url, 'chat__model': 'large'}
        graph.active(SemanticPerceiver, **words)
        monitor.wait(PERCEIVER, OK)
    monitor.wait(PERCEIVER, WARN, text='primary model server: no model server at')


def picture(index: int) -> Image:
    """A picture that differs much from the one before."""
    noise = np.random.default_rng(index).integers(0, 255, (60, 80, 3), np.uint8)
    pixels = np.repeat(np.repeat(noise, 4, 0), 4, 1)
    msg = Image(encoding='bgr8', width=320, height=240, step=960)
    msg.data = pixels.tobytes()
    return msg


class Camera:
    """A camera driver that sends on and on, by a clock that is some seconds ahead."""

    def __init__(
        self, graph: Graph, period_s: float = 0.2, ahead_s: float = 0.0, *, has_info: bool = True
    ) -> None:
        self.publisher = graph.publisher(Image, '/image', topics.SENSOR)
        self.infos = graph.publisher(CameraInfo, '/camera_info', topics.SENSOR)
        self.node, self.count, self.has_info = graph.outsider, 0, has_info
        self.ahead_ns = round(ahead_s * 1e9)
        self.timer = self.node.create_timer(period_s, self.send)

    def send(self) -> None:
        self.count += 1
        stamp_ns = time.time_ns() + self.ahead_ns
        msg = picture(self.count // 10)
        msg.header.stamp = stamp_to_msg(ROS_MESSAGES, stamp_ns)
        if self.has_info:
            lens = Intrinsics(msg.width, msg.height, 200.0, 200.0, msg.width / 2, msg.height / 2)
            self.infos.publish(camera_info_to_msg(ROS_MESSAGES, stamp_ns, '', lens))
        self.publisher.publish(msg)


def test_images_that_are_dropped_are_told_with_the_share_that_is_evaluated(
    graph: Graph, server: ChatServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monitor = Monitor(graph)
    node = graph.active(KeyframeExtractorNode)
    graph.active(SemanticPerceiver, perceiver='classical')
    graph.active(SpatialReasoner, chat__url=server.url, chat__model='scripted')
    process = node._extractor.process

    def slow(*arguments: Any) -> Any:
        time.sleep(0.5)
        return process(*arguments)

    monkeypatch.setattr(node._extractor, 'process', slow)
    camera = Camera(graph, period_s=0.05)
    status = monitor.wait(EXTRACTOR, WARN, text='% of the images are evaluated, ')
    values = values_of(status)
    assert 0 < float(values['evaluated_share']) < 0.5
    assert float(values['delay_s']) >= 0.5
    assert 'lower the rate or the size of the images' in status.message
    monkeypatch.undo()
    camera.timer.timer_period_ns = 300_000_000
    monitor.wait(EXTRACTOR, OK, text='images come in')


@pytest.mark.parametrize(
    ('camera', 'text'),
    [
        ({'ahead_s': 30.0}, 'stamps of the images are 30 s ahead of the clock: set use_sim_time'),
        ({'ahead_s': -60.0}, 's behind the clock: set use_sim_time, or synchronise the hosts'),
        ({'has_info': False}, 'the lens is not known: /camera_info says nothing, and no file'),
    ],
)
def test_camera_without_a_lens_or_of_another_clock_is_no_healthy_one(
    graph: Graph, camera: dict[str, Any], text: str
) -> None:
    monitor = Monitor(graph)
    graph.active(KeyframeExtractorNode)
    Camera(graph, **camera)
    monitor.wait(EXTRACTOR, WARN, text=text)


def test_topic_of_the_type_that_is_missed_is_named(graph: Graph) -> None:
    monitor = Monitor(graph)
    graph.outsider.create_publisher(Image, '/q/image_raw', topics.SENSOR)
    graph.outsider.create_publisher(CameraInfo, '/q/images', topics.SENSOR)  # of another type
    graph.active(partial(KeyframeExtractorNode, cli_args=['--ros-args', '-r', '__ns:=/q']))
    told = 'no publisher of /q/image: start the camera driver; of its type there is /q/image_raw'
    monitor.wait('q/keyframe_extractor: keyframe_extractor', WARN, text=told)


def test_node_without_time_says_so(graph: Graph) -> None:
    monitor = Monitor(graph)
    graph.active(KeyframeExtractorNode, use_sim_time=True)
    monitor.wait(EXTRACTOR, WARN, text='there is no time: use_sim_time is set, and nothing is')
    clock = graph.publisher(Clock, '/clock')
    clock.publish(Clock(clock=Time(sec=5)))
    monitor.wait(EXTRACTOR, WARN, text='no publisher of /image')
    wait_for(lambda: 'no time' not in str(monitor.newest(EXTRACTOR)), 'the time')
