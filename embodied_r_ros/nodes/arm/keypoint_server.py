# SPDX-License-Identifier: Apache-2.0
"""Keypoints of the reasoner: the action `predict_keypoint`, and proposals for a standing task.

A request is one question, or two: the position, then the gripper. The standing task follows what
becomes of its proposals at the gate and at the end effector, and puts the next one then. Whatever
is published here is a proposal, never a command.
"""

from __future__ import annotations

from dataclasses import replace
from queue import Empty, SimpleQueue
import threading
from typing import Any, TYPE_CHECKING

from diagnostic_msgs.msg import DiagnosticStatus
from embodied_r_msgs.action import PredictKeypoint
from embodied_r_msgs.msg import Keyframe, KeypointProposal
from embodied_r_msgs.srv import PredictKeypointOnce
from embodied_r_ros.arm.task import ArmTaskConfig, StandingTask
from embodied_r_ros.bags.messages import stamp_ns_from_msg, vector_from_msg
from embodied_r_ros.common.errors import ConfigError, InputError
from embodied_r_ros.core.reasoning.gate import excerpt
from embodied_r_ros.core.reasoning.question import Question, ReasonerConfig, RefusalCode
from embodied_r_ros.core.reasoning.queue import Outcome, Termination
from embodied_r_ros.core.types.answers import AnswerKind
from embodied_r_ros.core.types.geometry import NS_PER_S
from embodied_r_ros.nodes import topics
from embodied_r_ros.nodes.arm.keypoint_request import (
    Arm,
    ArmConfig,
    fill_keypoint,
    KeypointOutcome,
    POSITION,
    RequestParts,
)
from embodied_r_ros.nodes.frames import follow_tool, Frames
from embodied_r_ros.nodes.newest_image import NoImageError
from embodied_r_ros.nodes.question_server import AskingServer
from sensor_msgs.msg import CameraInfo

if TYPE_CHECKING:
    from collections.abc import Callable

    from embodied_r_ros.core.reasoning.question import Listener, Phase
    from embodied_r_ros.core.reasoning.queue import QueuedQuestion
    from embodied_r_ros.core.scene.memory import LiveMemory
    from embodied_r_ros.nodes.arm.keypoint_request import KeypointRequest
    from embodied_r_ros.nodes.newest_image import NewestImage
    from embodied_r_ros.nodes.spatial_reasoner import SpatialReasoner
    from geometry_msgs.msg import PoseStamped

    Deliver = Callable[[Outcome], None]


# What the reasoner takes by name, with the group of parameters that each fills.
GROUPS = {ArmConfig: 'arm', ArmTaskConfig: 'arm'}
AT_CONFIGURE = frozenset({ArmConfig})

_LOOK_S = 0.1
_LEAST_S = 0.05  # for the second question
_EVER_NS = 2**63 - 1
_ENDED = {Termination.CANCELLED, Termination.DEACTIVATED}


def _silent(phase: Phase, text: str) -> None:
    """Listen to nothing of what is generated."""


class KeypointServer:
    """Serves keypoints while the node is configured."""

    def __init__(self, node: SpatialReasoner, images: NewestImage, run_id: str) -> None:
        """Read what the parameters say of the arm.

        Args:
            node: The node, whose parameters hold the task, and whose queue takes questions.
            images: Of the camera that sees the table, where models are shown them.
            run_id: Names candidates outside of episodes, for their seed.

        Raises:
            ConfigError: The file of the robot cannot be read.
        """
        self._node, self._run_id, self._images = node, run_id, images
        self._arm = Arm(node.parameters.config(ArmConfig), images=images)

    def offer(self, memory: LiveMemory) -> AskingServer:
        """Offer the action and its twin; returns what serves them.

        Args:
            memory: The deltas.

        Raises:
            ConfigError: There is a task, and no robot.
        """
        node, self._memory = self._node, memory
        self._request_scope, self._request_count = (
            '',
            0,
        )  # requests in an episode, or outside of one
        self._round = 0  # of the standing task; answers of earlier ones do not count
        self._problem = ''  # why the last question of the task gave no proposal; empty: it did
        self._had_turn = False  # the task asked since the standing question was put
        # What is to be done with answers to the standing task, in the thread of the node.
        self._answers: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self._task = StandingTask(self._config())
        self._proposals = node.publisher(KeypointProposal, 'keypoint_proposal', topics.RESULT)
        kinds = PredictKeypoint, PredictKeypointOnce
        return AskingServer(
            node, kinds, 'predict_keypoint', self._ask, self._fill, _QueuedKeypoint.cancel
        )

    def start(self) -> None:
        """Listen while the node is active."""
        self.begin_anew()
        node = self._node
        config = node.parameters.config(ArmConfig)
        frames = Frames(node) if config.camera_frame or config.tool_frame else None
        self._arm.pose_in = frames.pose_in if frames and config.camera_frame else None
        follow_tool(node, frames, config.tool_frame, self._arm.frame_id, self._take_pose)
        if self._arm.frame_id:
            info = topics.camera_topic(config.camera or '.', 'camera_info')
            node.subscribe(CameraInfo, info, self._arm.take_camera_info, topics.SENSOR)
        if self._reasoner().show_image:
            keyframe = topics.camera_topic(config.camera or '.', 'keyframe')
            extractor = 'keyframe_extractor'
            node.subscribe(Keyframe, keyframe, self._images.take, topics.RESULT, sender=extractor)
        node.subscribe(KeypointProposal, 'keypoint_accepted', self._take_accepted, topics.RESULT)
        node.subscribe(DiagnosticStatus, 'keypoint_refused', self._take_refused, topics.RESULT)
        node.every(_LOOK_S, self._look)
        node.when_clock_jumps_back(self.begin_anew)

    def begin_anew(self, since_ns: int | None = None) -> None:
        """Forget the proposal that is on its way: time, episode or task are new ones.

        Args:
            since_ns: Images from before are forgotten too; None: all are.
        """
        self._forget_proposal()
        self._images.forget(_EVER_NS if since_ns is None else since_ns)

    def _forget_proposal(self) -> None:
        self._round += 1
        self._problem = ''
        self._task.reset(self._node.now_ns())

    def reconfigure(self) -> None:
        """Take up another task.

        Raises:
            ConfigError: There is a task, and no robot.
        """
        config = self._config()
        if config.task != self._task.config.task:
            self._forget_proposal()
        self._task.config = config

    def values(self) -> dict[str, Any]:
        """How the standing task goes, for the diagnostics."""
        return {
            'task_phase': self._task.phase,
            'task_phase_s': self._task.phase_s(self._node.now_ns()),
            'task_unanswered': self._task.unanswered,
            'task_problem': self._problem,
        }

    def has_turn(self) -> bool:
        """Tell whether the standing question is to wait for one of the task."""
        if self._had_turn:
            return False
        now_ns, newest_ns = self._node.now_ns(), self._newest_ns()
        return self._task.wants(now_ns, newest_ns)

    def note_standing_question(self) -> None:
        """Note that the standing question was put."""
        self._had_turn = False

    def _config(self) -> ArmTaskConfig:
        config = self._node.parameters.config(ArmTaskConfig)
        if config.task and not self._arm.frame_id:
            msg = 'arm.task is set and arm.robot is not: its file tells where keypoints can be'
            raise ConfigError(msg)
        return config

    def _take_pose(self, msg: PoseStamped) -> None:
        self._arm.take_pose(msg)
        if msg.header.frame_id == self._arm.frame_id:
            position = vector_from_msg(msg.pose.position)
            self._task.see_pose(position, stamp_ns_from_msg(msg.header.stamp))

    def _take_accepted(self, msg: KeypointProposal) -> None:
        self._task.note_acceptance(
            msg.id, vector_from_msg(msg.pose.pose.position), self._node.now_ns()
        )

    def _take_refused(self, msg: DiagnosticStatus) -> None:
        proposal_id = next((value.value for value in msg.values if value.key == 'id'), '')
        self._task.note_refusal(proposal_id, self._node.now_ns())

    def _look(self) -> None:
        """Publish the answers to the task, and ask for the next keypoint of it."""
        is_idle = self._node.is_idle()  # before the answers: none comes in between
        while (act := self._next_answer()) is not None:
            act()
        now_ns, newest_ns = self._node.now_ns(), self._newest_ns()
        self._task.give_up_late(now_ns, is_asking=not is_idle)
        if not is_idle:
            return
        if self._task.wants(now_ns, newest_ns):
            self._request(now_ns)

    def _newest_ns(self) -> int:
        """Stamp of the newest observation; 0: there is none."""
        if self._reasoner().show_image:
            return self._images.stamp_ns()
        deltas = self._memory.deltas()
        return deltas[-1].stamp_ns if deltas else 0

    def _request(self, now_ns: int) -> None:
        """Ask for the next keypoint of the task."""
        self._had_turn = True
        self._task.note_request(now_ns)
        goal = PredictKeypoint.Goal(task=self._task.config.task, frame_id=self._arm.frame_id)
        this_round = self._round

        def deliver(outcome: Outcome) -> None:
            self._answers.put(lambda: self._propose(this_round, goal, outcome))

        self._ask(goal, deliver, _silent, standing=True)

    def _next_answer(self) -> Callable[[], None] | None:
        try:
            return self._answers.get_nowait()
        except Empty:
            return None

    def _propose(self, this_round: int, goal: Any, outcome: Outcome) -> None:
        if this_round != self._round:
            return
        result = PredictKeypoint.Result()
        fill_keypoint(goal, result, outcome)
        # Before it is published: the gate may be quick.
        self._task.note_answer(result.proposal.id, self._node.now_ns())
        self._problem = ''
        if result.proposal.id:
            self._proposals.publish(result.proposal)
            return
        self._problem = _reason(outcome, result.error_msg)
        if outcome.termination not in _ENDED:
            self._node.log_problem(InputError(f'no keypoint for arm.task: {self._problem}'))

    def _ask(
        self, goal: Any, deliver: Deliver, listener: Listener, *, standing: bool = False
    ) -> _QueuedKeypoint | None:
        config = self._config()
        try:
            request = self._arm.request_of(
                goal,
                self._node.now_ns(),
                self._memory.deltas(),
                self._seed(),
                RequestParts(config.gripper, self._reasoner().show_image),
            )
        except NoImageError as error:
            code = RefusalCode.NO_OBSERVATION
            deliver(Outcome.refusal(Question(goal.task), '', code, str(error)))
            return None
        except (InputError, ConfigError) as error:
            deliver(Outcome.refusal(Question(goal.task), '', RefusalCode.BAD_QUESTION, str(error)))
            return None
        pending = _QueuedKeypoint(self._node)
        question = replace(request.question, standing=standing)
        pending.put(
            question, lambda outcome: self._then(pending, request, outcome, deliver), listener
        )
        return pending

    def _then(
        self,
        pending: _QueuedKeypoint,
        request: KeypointRequest,
        outcome: Outcome,
        deliver: Deliver,
    ) -> None:
        """Ask for the gripper where a position was chosen. Runs in a thread of the queue."""
        keypoint, answer = _of_request(request, outcome), outcome.answer
        is_chosen = outcome.is_completed and answer.kind is AnswerKind.CHOICE
        if request.gripper is None or not is_chosen:
            deliver(keypoint)
            return
        allowed_s = request.question.deadline_s or self._reasoner().deadline_s
        question = replace(
            request.gripper,
            deadline_s=max(_LEAST_S, allowed_s - answer.latency_ns / NS_PER_S),
            standing=answer.standing,
        )

        def finish(end: Outcome) -> None:
            if end.is_completed:
                deliver(replace(keypoint, gripper=end.answer))
            else:
                deliver(_of_request(request, end, 'gripper'))

        pending.put(question, finish, _silent)

    def _reasoner(self) -> ReasonerConfig:
        return self._node.parameters.config(ReasonerConfig)

    def _seed(self) -> str:
        """Id of a request, which decides its candidates: episode or run, and a number."""
        where = self._memory.episode_id or self._run_id
        if where != self._request_scope:
            self._request_scope, self._request_count = where, 0
        self._request_count += 1
        return f'{where}/{self._request_count - 1}'

    def _fill(self, goal: Any, result: Any, outcome: Outcome) -> Any:
        if fill_keypoint(goal, result, outcome):
            self._proposals.publish(result.proposal)
        return result


def _of_request(request: KeypointRequest, end: Outcome, part: str = POSITION) -> KeypointOutcome:
    """How a request ended, by the end of one of its questions."""
    return KeypointOutcome(end.termination, end.answer, end.code, end.message, request, part=part)


def _reason(outcome: Outcome, message: str) -> str:
    """Why there is no proposal: which question failed, and how its completion begins."""
    if not isinstance(outcome, KeypointOutcome):
        return message
    reason = f'the question for the {outcome.part} failed: {message}'
    completion = excerpt(outcome.answer.completion)
    return f'{reason} (its completion begins with {completion!r})' if completion else reason


class _QueuedKeypoint:
    """The questions of one request, which are cancelled together."""

    def __init__(self, node: SpatialReasoner) -> None:
        self._node = node
        self._questions: list[QueuedQuestion] = []
        self._is_cancelled = False
        self._lock = threading.Lock()

    def put(self, question: Question, deliver: Deliver, listener: Listener) -> None:
        """Put a question, which is cancelled at once where the request was."""
        request = self._node.put(question, deliver, listener)
        with self._lock:
            self._questions.append(request)
            is_cancelled = self._is_cancelled
        if is_cancelled:
            self._node.cancel(request)

    def cancel(self) -> None:
        """Cancel them."""
        with self._lock:
            self._is_cancelled = True
            questions = list(self._questions)
        for question in questions:
            self._node.cancel(question)
