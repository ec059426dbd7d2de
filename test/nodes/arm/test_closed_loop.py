# SPDX-License-Identifier: Apache-2.0
"""An arm on its stage: what it publishes, and that it acts on what is accepted only."""

from __future__ import annotations

from typing import Any, TYPE_CHECKING

from embodied_r_msgs.msg import EpisodeMark, KeypointProposal
from embodied_r_ros.arm.task import TrialConfig
from embodied_r_ros.bags.messages import stamp_ns_from_msg, vector_from_msg
from embodied_r_ros.core.types.geometry import Intrinsics, Pose
from embodied_r_ros.nodes import topics
from embodied_r_ros.nodes.arm.closed_loop import ArmStage
from embodied_r_ros.nodes.demo.client import demo_client
from geometry_msgs.msg import Point, PoseStamped
import numpy as np
import pytest
from rosgraph_msgs.msg import Clock
from sensor_msgs.msg import CameraInfo, Image, JointState

from test.nodes.graph import wait_for

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from embodied_r_ros.arm.task import Trial
    from embodied_r_ros.nodes.demo.client import DemoClient

    from test.nodes.graph import Graph

FRAME = 'table_center'
LEVEL = (0.0, 0.0, 0.0, 1.0)
GOAL = (0.1, 0.2, 0.3)


class FakeArm:
    """An arm that is where it is told to be after half a second, and is done at its goal."""

    camera = Intrinsics.from_fov(32, 24, 1.0)
    task = 'touch the bell'

    def __init__(self) -> None:
        self.now_s = 0.0
        self.told: list[tuple[tuple[float, float, float], bool | None]] = []
        self._place = (0.0, 0.0, 0.0)
        self._busy_until_s = 0.0

    def go(self, position: tuple[float, float, float], *, closed: bool | None) -> None:
        self.told.append((position, closed))
        self._place, self._busy_until_s = position, self.now_s + 0.5

    def advance(self, until_s: float) -> None:
        self.now_s = until_s

    def is_busy(self) -> bool:
        return self.now_s < self._busy_until_s

    def is_closed(self) -> bool:
        return bool(self.told and self.told[-1][1])

    def is_done(self) -> bool:
        return not self.is_busy() and self._place == GOAL

    def tool(self) -> Pose:
        return Pose(self._place, LEVEL, FRAME)

    def image(self) -> Any:
        return np.full((24, 32, 3), 7, np.uint8)

    def camera_pose(self) -> Pose:
        return Pose((1.0, 0.0, 1.0), LEVEL, FRAME)

    def joints(self) -> dict[str, tuple[float, float]]:
        return {'one': (0.5, 0.1), 'two': (0.6, 0.2)}

    def frames(self) -> dict[str, Pose]:
        return {'tool': self.tool()}


@pytest.fixture
def client(graph: Graph, monkeypatch: pytest.MonkeyPatch) -> Iterator[DemoClient]:
    monkeypatch.setenv('ROS_DOMAIN_ID', str(graph.context.get_domain_id()))
    with demo_client(lambda line: None) as made:
        yield made


def accepted_msg(position: tuple[float, float, float], **fields: Any) -> KeypointProposal:
    x, y, z = position
    fields = {'episode_id': 'two', 'candidates': [Point(x=x, y=y, z=z)]} | fields
    frame_id = fields.pop('frame_id', FRAME)
    msg = KeypointProposal(**fields)
    msg.pose.header.frame_id = frame_id
    msg.pose.pose.position = Point(x=x, y=y, z=z)
    return msg


def play(
    client: DemoClient,
    arm: FakeArm,
    begin: Callable[[str], None],
    reached: Callable[[], None] = lambda: None,
    **limits: Any,
) -> Trial:
    stage = ArmStage(client, FRAME, speed=20.0)
    config = TrialConfig(**{'max_s': 60.0, **limits})
    return stage.play(arm, 'two', config, begin, reached, lambda: None)


def test_it_goes_where_the_gate_lets_it_and_nowhere_else(graph: Graph, client: DemoClient) -> None:
    say = {
        topic: graph.outsider.create_publisher(KeypointProposal, topic, topics.RESULT)
        for topic in ('/keypoint_proposal', '/keypoint_accepted')
    }
    told: list[str] = []

    def begin(task: str) -> None:
        told.append(task)
        if not task:
            return
        client.await_listeners({'/keypoint_accepted': 1}, 20.0)
        say['/keypoint_proposal'].publish(accepted_msg((0.4, 0.0, 0.0)))
        say['/keypoint_accepted'].publish(accepted_msg((0.5, 0.0, 0.0), episode_id='one'))
        say['/keypoint_accepted'].publish(accepted_msg((0.6, 0.0, 0.0), frame_id='base'))
        gripper = {'gripper': KeypointProposal.GRIPPER_CLOSED, 'gripper_valid': True}
        say['/keypoint_accepted'].publish(accepted_msg(GOAL, **gripper))

    arm, arrivals = FakeArm(), []
    trial = play(client, arm, begin, lambda: arrivals.append(arm.now_s))
    assert arm.told == [(GOAL, True)]
    assert trial.is_success
    assert [(step.closed, step.chosen, step.candidates) for step in trial.steps] == [
        (True, 0, (GOAL,))
    ]
    assert len(arrivals) == 1
    assert trial.warnings[-1] == (
        "2 accepted keypoints were not gone to: the last one is of episode 'two' in 'base', "
        "expected 'two' in 'table_center'"
    )
    assert told == ['touch the bell', '']


def test_a_trial_keeps_what_the_nodes_warn_of(graph: Graph, client: DemoClient) -> None:
    log = graph.outsider.get_logger()

    def begin(task: str) -> None:
        if task:
            client.await_listeners({'/rosout': 1}, 20.0)
            log.info('a keypoint is on its way')
            for _ in range(2):
                log.warning('no keypoint for arm.task')

    trial = play(client, FakeArm(), begin, max_s=20.0)
    assert trial.warnings == (f'{log.name}: no keypoint for arm.task',)
    assert trial.to_json()['warnings'] == list(trial.warnings)


def test_its_sensors_tell_one_time_and_its_episode_is_marked(
    graph: Graph, client: DemoClient
) -> None:
    kinds = {
        '/clock': Clock,
        '/image': Image,
        '/camera_info': CameraInfo,
        '/current_pose': PoseStamped,
        '/joint_states': JointState,
    }
    heard = {topic: graph.inbox(kind, topic, topics.SENSOR) for topic, kind in kinds.items()}
    marks = graph.inbox(EpisodeMark, '/episode_mark', topics.LATCHED_OF_MANY)
    begun = []

    def begin(task: str) -> None:
        if task:
            client.await_listeners(dict.fromkeys([*kinds, '/episode_mark'], 1), 20.0)
            begun.append(task)

    trial = play(client, FakeArm(), begin, max_s=3.0)
    assert (trial.is_success, trial.steps) == (False, ())
    for topic in kinds:
        heard[topic].wait(3)
    image, info = heard['/image'][-1], heard['/camera_info'][-1]
    assert (image.width, image.height, image.encoding) == (32, 24, 'bgr8')
    assert info.header.frame_id == image.header.frame_id
    shown_ns = stamp_ns_from_msg(image.header.stamp)

    def stamps() -> list[int]:
        return [stamp_ns_from_msg(msg.clock) for msg in heard['/clock']]

    wait_for(lambda: shown_ns in stamps(), 'the time of the image')
    assert stamps() == sorted(set(stamps()))
    pose = heard['/current_pose'][0]
    assert (pose.header.frame_id, vector_from_msg(pose.pose.position)) == (FRAME, (0.0, 0.0, 0.0))
    assert list(heard['/joint_states'][0].velocity) == [0.1, 0.2]
    start, stop = marks.wait(2)
    assert (start.event, start.episode_id) == (EpisodeMark.EVENT_START, 'two')
    assert (stop.event, stop.outcome) == (EpisodeMark.EVENT_STOP, EpisodeMark.OUTCOME_FAILURE)


def test_a_trial_ends_after_so_many_keypoints(graph: Graph, client: DemoClient) -> None:
    out = graph.outsider.create_publisher(KeypointProposal, '/keypoint_accepted', topics.RESULT)

    def begin(task: str) -> None:
        if task:
            client.await_listeners({'/keypoint_accepted': 1}, 20.0)
            out.publish(accepted_msg((0.4, 0.0, 0.0)))

    arm = FakeArm()
    trial = play(client, arm, begin, max_keypoints=1)
    assert (trial.is_success, len(trial.steps)) == (False, 1)
    assert not any('not gone to' in warning for warning in trial.warnings)
    assert arm.now_s < 30.0
