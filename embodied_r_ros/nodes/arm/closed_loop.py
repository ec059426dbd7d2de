# SPDX-License-Identifier: Apache-2.0
"""An arm before its task as the other nodes see it, and the real nodes that lead it."""

from __future__ import annotations

from array import array
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
import tempfile
import time
from typing import Any, TYPE_CHECKING

from diagnostic_msgs.msg import DiagnosticStatus
from embodied_r_msgs.msg import EpisodeMark, KeypointProposal
from embodied_r_ros.arm.demonstration_bag import CAMERA_FRAME
from embodied_r_ros.arm.task import Trial, TrialConfig, TrialStep
from embodied_r_ros.bags.messages import (
    camera_info_to_msg,
    joint_state_to_msg,
    pose_stamped_to_msg,
    stamp_to_msg,
    transforms_to_msg,
    vector_from_msg,
)
from embodied_r_ros.common.errors import EmbodiedRError
from embodied_r_ros.core.reasoning.question import ReasonerConfig
from embodied_r_ros.core.types.episodes import EpisodeEvent, EpisodeOutcome
from embodied_r_ros.core.types.episodes import EpisodeMark as Mark
from embodied_r_ros.core.types.geometry import NS_PER_S
from embodied_r_ros.data.own_messages import mark_to_msg
from embodied_r_ros.nodes import topics
from embodied_r_ros.nodes.demo.client import demo_client
from embodied_r_ros.nodes.run import NodeProcesses, own_environment
from embodied_r_ros.nodes.topics import installed_class, ROS_MESSAGES
from geometry_msgs.msg import PoseStamped
from rcl_interfaces.msg import Log
from rcl_interfaces.srv import SetParameters
from rclpy.logging import LoggingSeverity
from rclpy.parameter import Parameter
from rosgraph_msgs.msg import Clock
from sensor_msgs.msg import CameraInfo, Image, JointState

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from embodied_r_ros.arm.robot import Robot
    from embodied_r_ros.arm.task import TrialArm
    from embodied_r_ros.core.chat.settings import ChatConfig
    from embodied_r_ros.nodes.demo.client import DemoClient

_TICK_S = 0.05
_IMAGE_EVERY = 2  # ticks
_HEAR_S = 0.005  # of each tick, at least, for what comes in
_LONGEST_S = 60.0
_MOST_WARNINGS = 20  # of a trial
# Time begins there, so that stamps are not taken for unset ones.
_START_NS = 1_700_000_000 * NS_PER_S


class ArmStage:
    """Shows arms to the nodes, one after the other, and lets each do what is accepted."""

    def __init__(self, client: DemoClient, frame_id: str, speed: float = 1.0) -> None:
        """Announce the sensors.

        Args:
            client: A node and its executor.
            frame_id: The task frame.
            speed: How fast time passes, at most, in wall time.
        """
        self._client, self._frame_id, self._speed = client, frame_id, speed
        self._start_ns, self._tick = _START_NS, 0
        node = client.node
        publish = node.create_publisher
        self._clock_out = publish(Clock, '/clock', topics.RESULT)
        self._image = publish(Image, 'image', topics.SENSOR)
        self._info = publish(CameraInfo, 'camera_info', topics.SENSOR)
        self._joints = publish(JointState, 'joint_states', topics.SENSOR)
        self._pose = publish(PoseStamped, 'current_pose', topics.SENSOR)
        self._marks = publish(EpisodeMark, 'episode_mark', topics.LATCHED)
        kind = installed_class('tf2_msgs/msg/TFMessage')  # which is not everywhere
        self._frames: Any = publish(kind, '/tf', topics.TRANSFORMS) if kind else None
        subscribe = node.create_subscription
        self._proposals: list[KeypointProposal] = []
        self._refusals: list[str] = []
        self._warnings: dict[str, None] = {}  # in the order in which they came, each once
        self._foreign_count = 0  # accepted keypoints of another episode or frame
        self._foreign: KeypointProposal | None = None  # the last of them
        subscribe(KeypointProposal, 'keypoint_accepted', self._proposals.append, topics.RESULT)
        subscribe(DiagnosticStatus, 'keypoint_refused', self._take_refusal, topics.RESULT)
        subscribe(Log, '/rosout', self._take_log, topics.RESULT)

    def play(
        self,
        arm: TrialArm,
        episode_id: str,
        config: TrialConfig,
        begin: Callable[[str], None],
        on_arrival: Callable[[], None],
        check: Callable[[], None],
    ) -> Trial:
        """Show an arm, and do what is accepted until its task succeeds, or for long enough.

        Args:
            arm: The arm.
            episode_id: Id of the trial.
            config: When it ends.
            begin: Given the task in words, asks for keypoints of it; empty: for none.
            on_arrival: Called where a keypoint is reached.
            check: Called now and then; what it raises ends the trial.
        """
        self._proposals.clear()
        self._refusals.clear()
        self._warnings.clear()
        self._foreign_count, self._foreign = 0, None
        self._mark(arm, episode_id, EpisodeEvent.START)
        self._show(arm)
        begin(arm.task)
        steps: list[TrialStep] = []
        was_busy, due = False, time.monotonic()
        while arm.now_s < config.max_s:
            due = self._pass_time(arm, due, check)
            if self._is_image_due():
                self._show(arm)
            is_busy = arm.is_busy()
            if was_busy and not is_busy:
                on_arrival()
            was_busy = is_busy
            if not is_busy and (arm.is_done() or len(steps) == config.max_keypoints):
                break
            steps += self._obey(arm, episode_id)
        begin('')
        outcome = EpisodeOutcome.SUCCESS if arm.is_done() else EpisodeOutcome.FAILURE
        self._mark(arm, episode_id, EpisodeEvent.STOP, outcome)
        self._start_ns = self._now_ns(arm) + NS_PER_S  # time goes on
        is_success = outcome is EpisodeOutcome.SUCCESS
        return Trial(
            episode_id,
            arm.task,
            is_success,
            arm.now_s,
            tuple(steps),
            tuple(self._refusals),
            (*self._warnings, *self._foreign_warning(episode_id)),
        )

    def _now_ns(self, arm: TrialArm) -> int:
        return self._start_ns + round(arm.now_s * NS_PER_S)

    def _is_image_due(self) -> bool:
        self._tick += 1
        return self._tick % _IMAGE_EVERY == 0

    def _pass_time(self, arm: TrialArm, due: float, check: Callable[[], None]) -> float:
        """Let a tick pass for the arm, publish its state, and take the messages that come."""
        arm.advance(arm.now_s + _TICK_S)
        self._tell(arm)
        # What was late is not made up for: the arm would hurry.
        due = max(due + _TICK_S / self._speed, time.monotonic() + _HEAR_S)
        self._client.spin_until(lambda: time.monotonic() >= due, _LONGEST_S)
        check()
        return due

    def _obey(self, arm: TrialArm, episode_id: str) -> list[TrialStep]:
        """Go to what was accepted; returns the steps that this is."""
        steps = []
        for msg in self._proposals:
            if msg.episode_id != episode_id or msg.pose.header.frame_id != self._frame_id:
                self._foreign_count, self._foreign = self._foreign_count + 1, msg
                continue
            closed = msg.gripper == msg.GRIPPER_CLOSED if msg.gripper_valid else None
            candidates = tuple(vector_from_msg(point) for point in msg.candidates)
            tool = arm.tool().position
            chosen = int(msg.candidate_index)
            steps.append(TrialStep(arm.now_s, tool, candidates, chosen, closed))
            arm.go(vector_from_msg(msg.pose.pose.position), closed=closed)
        self._proposals.clear()
        return steps

    def _foreign_warning(self, episode_id: str) -> list[str]:
        """How many accepted keypoints were not gone to; where none, nothing."""
        if self._foreign is None:
            return []
        frame_id = self._foreign.pose.header.frame_id
        return [
            f'{self._foreign_count} accepted keypoints were not gone to: the last one is of '
            f'episode {self._foreign.episode_id!r} in {frame_id!r}, expected {episode_id!r} in '
            f'{self._frame_id!r}'
        ]

    def _tell(self, arm: TrialArm) -> None:
        """Publish time and state."""
        now_ns = self._now_ns(arm)
        self._clock_out.publish(Clock(clock=stamp_to_msg(ROS_MESSAGES, now_ns)))
        self._pose.publish(pose_stamped_to_msg(ROS_MESSAGES, now_ns, arm.tool()))
        joints = arm.joints()
        positions, velocities = zip(*joints.values(), strict=True)
        self._joints.publish(
            joint_state_to_msg(ROS_MESSAGES, now_ns, list(joints), positions, velocities)
        )
        if self._frames:
            self._frames.publish(transforms_to_msg(ROS_MESSAGES, now_ns, arm.frames()))

    def _show(self, arm: TrialArm) -> None:
        """Publish what the camera sees."""
        image, now_ns = arm.image(), self._now_ns(arm)
        height, width = image.shape[:2]
        msg = Image(encoding='bgr8', width=width, height=height, step=width * 3)
        msg.data = array('B', image.tobytes())
        msg.header.stamp = stamp_to_msg(ROS_MESSAGES, now_ns)
        msg.header.frame_id = CAMERA_FRAME
        assert arm.camera
        self._info.publish(camera_info_to_msg(ROS_MESSAGES, now_ns, CAMERA_FRAME, arm.camera))
        self._image.publish(msg)

    def _mark(
        self,
        arm: TrialArm,
        episode_id: str,
        event: EpisodeEvent,
        outcome: EpisodeOutcome = EpisodeOutcome.UNSET,
    ) -> None:
        mark = Mark(self._now_ns(arm), episode_id, event, arm.task, episode_id, outcome)
        self._marks.publish(mark_to_msg(ROS_MESSAGES, mark))

    def _take_refusal(self, msg: DiagnosticStatus) -> None:
        self._refusals.append(f'{msg.name}: {msg.message}')

    def _take_log(self, msg: Log) -> None:
        """Keep what a node warns of: why there is no keypoint is said nowhere else."""
        if msg.level >= LoggingSeverity.WARN and len(self._warnings) < _MOST_WARNINGS:
            self._warnings[f'{msg.name}: {msg.msg}'] = None


_NODES = ('keyframe_extractor', 'semantic_perceiver', 'spatial_reasoner', 'proposal_gate')
_START_S = 60.0
_KEYFRAME_S = 0.5  # a still camera sees nothing new, and yet things are moved
_GATE_HZ = 5.0


@dataclass(frozen=True)
class LoopSettings:
    """The settings of the nodes, and when a trial ends."""

    robot_file: str  # name in config/robots, or path
    robot: Robot
    trial: TrialConfig = field(default_factory=TrialConfig)
    speed: float = 1.0  # how fast time passes, at most
    reasoner: ReasonerConfig = field(default_factory=ReasonerConfig)  # how the policy is asked


class ClosedLoop:
    """Nodes that run, and a stage for arms."""

    def __init__(self, client: DemoClient, nodes: NodeProcesses, settings: LoopSettings) -> None:
        """Set up the stage."""
        self._client, self._nodes, self._settings = client, nodes, settings
        frame_id = settings.robot.metadata.frame_id
        self._stage = ArmStage(client, frame_id, settings.speed)

    def play(
        self, arm: TrialArm, episode_id: str, reached: Callable[[], None] = lambda: None
    ) -> Trial:
        """Let the nodes lead an arm until its task succeeds, or for long enough.

        Args:
            arm: The arm, at its start.
            episode_id: Id of the trial.
            reached: Called where a keypoint is reached.

        Raises:
            EmbodiedRError: A node failed.
        """
        self._client.forget()
        config, check = self._settings.trial, self._nodes.check
        return self._stage.play(arm, episode_id, config, self._set_task, reached, check)

    def _set_task(self, task: str) -> None:
        request = SetParameters.Request()
        request.parameters = [Parameter('arm.task', value=task).to_parameter_msg()]
        [result] = self._client.call(
            SetParameters, 'spatial_reasoner/set_parameters', request
        ).results
        if not result.successful:
            raise EmbodiedRError(result.reason)


@contextmanager
def closed_loop(
    settings: LoopSettings, server: ChatConfig, say: Callable[[str], None]
) -> Iterator[ClosedLoop]:
    """Start the nodes in a domain of their own, and end them.

    Args:
        settings: The settings of the nodes.
        server: The model server that the reasoner asks.
        say: Gets the progress, a line at a time.

    Raises:
        EmbodiedRError: A node failed, or is not active in time.
    """
    with (
        tempfile.TemporaryDirectory(prefix='embodied_r_loop-') as scratch,
        NodeProcesses(Path(scratch), own_environment()) as nodes,
        demo_client(lambda line: None) as client,
    ):
        say('starting the nodes')
        loop = ClosedLoop(client, nodes, settings)
        for name, parameters in _parameters(settings, server).items():
            nodes.start(name, {'use_sim_time': True, **parameters})
        client.await_active(_NODES, _START_S, nodes.check)
        readers = 2 + settings.reasoner.show_image
        listeners = {'image': 1, 'keyframe': readers, 'semantic_delta': 2, 'keypoint_proposal': 1}
        client.await_listeners({**listeners, 'keypoint_accepted': 2, '/clock': 5}, _START_S)
        yield loop


def _parameters(settings: LoopSettings, server: ChatConfig) -> dict[str, dict[str, Any]]:
    """Parameters of each node."""
    low, high = settings.robot.metadata.workspace()
    arm = {
        'robot': settings.robot_file,
        'gripper': True,
        'task_rate_hz': 2.0,
        'reach_s': 1.2,  # the gripper acts and the arm settles
        'look_s': 3.0,
        'give_up_s': 8.0,
    }
    gate = {
        'workspace_frame': settings.robot.metadata.frame_id,
        'workspace_min': list(low),
        'workspace_max': list(high),
        'max_step_m': 1.0,
        'min_confidence': 0.0,  # any, an unknown one too
        'max_rate_hz': _GATE_HZ,
    }
    return {
        'keyframe_extractor': {'queue': 10, 'keyframe': {'max_interval_s': _KEYFRAME_S}},
        'semantic_perceiver': {'perceiver': 'classical'},
        'spatial_reasoner': {
            'chat': {'url': f'{server.url}#{server.model}' if server.model else server.url},
            'arm': arm,
            'reasoner': {
                'focus': 'never',
                'token_budget': settings.reasoner.token_budget,
                'max_tokens': settings.reasoner.max_tokens,
                'writes': settings.reasoner.writes,
                'show_image': settings.reasoner.show_image,
                'use_map': False,  # the policy was trained without maps
            },
        },
        'proposal_gate': gate,
    }
