# SPDX-License-Identifier: Apache-2.0
"""From a goal of PredictKeypoint to its question, with the description of the arm."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, TYPE_CHECKING

from embodied_r_msgs.action import PredictKeypoint
from embodied_r_ros.arm.candidates import propose_candidates
from embodied_r_ros.arm.proposal import (
    ArmDescription,
    describe_arm,
    GRIPPER_NEXT,
    keypoint_question,
    proposal_of,
    with_gripper,
)
from embodied_r_ros.arm.robot import load_robot
from embodied_r_ros.arm.table import seen_things
from embodied_r_ros.bags.messages import (
    intrinsics_from_camera_info,
    pose_from_msg,
    stamp_ns_from_msg,
    vector_from_msg,
    vector_to_msg,
)
from embodied_r_ros.common.errors import InputError
from embodied_r_ros.common.settings import setting, Settings
from embodied_r_ros.core.reasoning.question import RefusalCode
from embodied_r_ros.core.reasoning.queue import Outcome, Termination
from embodied_r_ros.core.types.answers import KeypointProposal
from embodied_r_ros.core.types.deltas import NAN
from embodied_r_ros.core.types.poses import NoPose, PoseBuffer
from embodied_r_ros.data.own_messages import proposal_to_msg
from embodied_r_ros.nodes.newest_image import NewestImage
from embodied_r_ros.nodes.node_base import seconds
from embodied_r_ros.nodes.question_server import fill_ending
from embodied_r_ros.nodes.topics import ROS_MESSAGES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from embodied_r_ros.arm.candidates import Candidate
    from embodied_r_ros.core.reasoning.question import Question, ShownImage
    from embodied_r_ros.core.types.answers import Answer
    from embodied_r_ros.core.types.deltas import SemanticDelta
    from embodied_r_ros.core.types.geometry import Intrinsics, Pose, Position


@dataclass(frozen=True)
class ArmConfig(Settings):
    """Settings of the description of an arm in keypoint questions."""

    robot: str = setting(
        '', 'robot of config/robots, or a YAML file, told with `current_pose`; empty: none'
    )
    max_pose_age_s: float = setting(
        0.5, 'age up to which `current_pose` counts [s]', between=(0.01, 60)
    )
    camera: str = setting('', 'camera that sees the table; empty: the only one')
    camera_frame: str = setting(
        '', 'its optical frame, which tf knows in the frame of the robot; empty: its file tells'
    )

    tool_frame: str = setting(
        '', 'its end effector, for tf in the frame of the robot; empty: `current_pose` tells'
    )


@dataclass(frozen=True)
class KeypointRequest:
    """A keypoint request: its questions, and the positions that the options mean."""

    task: str
    frame_id: str
    candidates: tuple[Position, ...]  # [m]
    question: Question
    gripper: Question | None = None  # comes after the position; None: there is none


POSITION = 'position'  # the part of a request that is asked first


@dataclass(frozen=True)
class KeypointOutcome(Outcome):
    """How the questions of a request ended: the first one that failed, or both answers."""

    request: KeypointRequest | None = None
    gripper: Answer | None = None
    part: str = POSITION  # of the request that failed, where one did

    def proposal(self) -> KeypointProposal:
        """What is proposed.

        Raises:
            InputError: The answer chooses no candidate.
        """
        assert self.request
        task, frame_id = self.request.task, self.request.frame_id
        proposal = proposal_of(self.answer, task, frame_id, self.request.candidates)
        return with_gripper(proposal, self.gripper) if self.gripper else proposal


@dataclass(frozen=True)
class RequestParts:
    """What a keypoint request asks beside the position, and how."""

    gripper: bool = False  # ask for the gripper
    # Show the newest keyframe. The end effector is then where it was at its stamp, where known.
    image: bool = False


POSITION_ALONE = RequestParts()
_SPACING_NS = 10_000_000  # of poses that are kept: 500 of them reach over seconds


PoseIn = Callable[[str, str, int], 'Pose | NoPose']  # of a frame in another one, at a stamp [ns]


class Arm:
    """An arm: its file, its poses, and how a camera sees its table."""

    def __init__(
        self, config: ArmConfig, pose_in: PoseIn | None = None, images: NewestImage | None = None
    ) -> None:
        """Read its file.

        Args:
            config: Which file, camera and frames.
            pose_in: Knows frames; None: only the file does.
            images: Of the camera that sees the table, where models are shown them.

        Raises:
            ConfigError: It cannot be read.
        """
        self._config = config
        self._robot = load_robot(config.robot) if config.robot else None
        self._max_pose_age_ns = round(config.max_pose_age_s * 1e9)
        self._pose: Any = None
        self._intrinsics: Intrinsics | None = None
        self._poses = PoseBuffer(spacing_ns=_SPACING_NS)
        self._images = images or NewestImage()
        self.pose_in = pose_in

    @property
    def frame_id(self) -> str:
        """The task frame; empty: there is no robot."""
        return self._robot.metadata.frame_id if self._robot else ''

    def take_pose(self, msg: Any) -> None:
        """Remember a PoseStamped of the end effector."""
        self._pose = msg
        with suppress(ValueError):  # no rotation, or not finite: it is no place to look at
            stamp_ns = stamp_ns_from_msg(msg.header.stamp)
            self._poses.add(stamp_ns, pose_from_msg(msg.pose, msg.header.frame_id))

    def take_camera_info(self, msg: Any) -> None:
        """Remember the CameraInfo of the camera that sees the table."""
        self._intrinsics = intrinsics_from_camera_info(msg)

    def request_of(
        self,
        goal: Any,
        now_ns: int,
        deltas: Sequence[SemanticDelta],
        seed: str,
        parts: RequestParts = POSITION_ALONE,
    ) -> KeypointRequest:
        """Make what a goal or request of PredictKeypoint asks for.

        Args:
            goal: Task and frame; and candidates, or none: they are sampled.
            now_ns: The time now [ns].
            deltas: The deltas, oldest first.
            seed: Decides what chance decides of the sampled candidates.
            parts: What is asked for beside the position, and how.

        Raises:
            NoImageError: There is no image to show.
            InputError: It contradicts itself, has nothing to choose from, where the arm is is
                not known, or words for axes do not hold for the camera.
            ConfigError: Candidates cannot be sampled with the file of the robot.
        """
        shown, description = self._sight(goal.frame_id, deltas, show_image=parts.image)
        if not goal.candidates:
            sampled = self._sample(goal.frame_id, now_ns, deltas, seed, description)
            goal = PredictKeypoint.Goal(
                task=goal.task,
                frame_id=goal.frame_id,
                candidates=[
                    vector_to_msg(ROS_MESSAGES, 'Point', each.position) for each in sampled
                ],
                max_age_s=goal.max_age_s,
                deadline_s=goal.deadline_s,
            )
            if self._robot and self._robot.candidates.labels:
                goal.candidate_labels = [each.label for each in sampled]
        state = self._described_state(goal.frame_id, now_ns, description, shown)
        question = replace(_question_of(goal, description, state), shown=shown)
        gripper = None
        if parts.gripper:
            text_parts = goal.frame_id, description.metadata, state
            asked = GRIPPER_NEXT.of_task(goal.task, *text_parts)
            gripper = replace(question, text=asked.text, options=asked.options)
        return KeypointRequest(
            goal.task,
            goal.frame_id,
            tuple(vector_from_msg(point) for point in goal.candidates),
            question,
            gripper,
        )

    def _sight(
        self, frame_id: str, deltas: Sequence[SemanticDelta], *, show_image: bool
    ) -> tuple[ShownImage | None, ArmDescription]:
        """The newest image, where it is shown, and the arm as it was then or in the last delta."""
        shown = self._images.shown() if show_image else None
        seen_ns = shown.stamp_ns if shown else deltas[-1].stamp_ns if deltas else 0
        return shown, self._describe(frame_id, seen_ns)

    def _sample(
        self,
        frame_id: str,
        now_ns: int,
        deltas: Sequence[SemanticDelta],
        seed: str,
        description: ArmDescription,
    ) -> tuple[Candidate, ...]:
        """Candidates by the things in view and the end effector."""
        robot, view = description.robot, description.view
        if robot is None:
            msg = (
                'no candidates: give some, or set arm.robot, whose file tells how they are sampled'
            )
            raise InputError(msg)
        if view is None:
            msg = (
                'no candidates: they are sampled where things are seen, and where the camera is '
                "is not known: set camera_position in the robot's file, or arm.camera_frame"
            )
            raise InputError(msg)
        tool = self._state(frame_id, now_ns)
        things = seen_things(deltas, view)
        return propose_candidates(things, tool, robot.metadata, robot.candidates, seed)

    def _describe(self, frame_id: str, seen_ns: int) -> ArmDescription:
        """Describe the arm for positions of a frame, and how its camera saw the table then.

        Raises:
            InputError: It is another frame than the robot's, tf does not know where the camera
                was (at 0: is), or words for axes do not hold for it.
        """
        if self._robot is None:
            return ArmDescription()
        task_frame, frame = self.frame_id, self._config.camera_frame
        if frame_id != task_frame:
            msg = f"positions are in {frame_id!r}: expected the robot's frame {task_frame!r}"
            raise InputError(msg)
        if frame and self.pose_in is None:
            return ArmDescription(self._robot)
        camera = self.pose_in(frame, task_frame, seen_ns) if frame and self.pose_in else None
        if isinstance(camera, NoPose):
            msg = (
                f'arm.camera_frame is {frame!r}, and where the camera was, is not known: '
                f'{camera.reason}; publish its transforms, or correct the name'
            )
            raise InputError(msg)
        then = self._poses.at(seen_ns)
        tool = then.position if then and then.frame_id == task_frame else None
        description = describe_arm(self._robot, camera, tool, self._intrinsics)
        return replace(
            description,
            view=description.view and replace(description.view, name=self._config.camera),
        )

    def _described_state(
        self,
        frame_id: str,
        now_ns: int,
        description: ArmDescription,
        shown: ShownImage | None,
    ) -> Position | None:
        """Where the end effector is [m]; None: not stated.

        It is where it was in the image that is shown, as in rows; without one, or where that is
        not known, where it is now.
        """
        if not description.robot:
            return None
        return self._tool(frame_id, now_ns, shown).position

    def _tool(self, frame_id: str, now_ns: int, shown: ShownImage | None) -> Pose:
        """Pose of the end effector: in the image that is shown, else, and without one, now.

        Raises:
            InputError: It is not known.
        """
        self._state(frame_id, now_ns)
        then = self._poses.at(shown.stamp_ns) if shown else None
        if then and then.frame_id == frame_id:
            return then
        return pose_from_msg(self._pose.pose, frame_id)

    def _state(self, frame_id: str, now_ns: int) -> Position:
        """Where the end effector is now, in the frame of the candidates [m]."""
        if self._pose is None:
            msg = (
                'no current_pose yet, which the prompt is to tell: publish it, name a frame that '
                'tf knows as arm.tool_frame, or unset arm.robot'
            )
            raise InputError(msg)
        header = self._pose.header
        age_ns = now_ns - stamp_ns_from_msg(header.stamp)
        if abs(age_ns) > self._max_pose_age_ns:
            limit_s = self._max_pose_age_ns / 1e9
            msg = f'current_pose is {age_ns / 1e9:.2f} s old: expected at most {limit_s} s'
            raise InputError(msg)
        if header.frame_id != frame_id:
            msg = f'current_pose is in frame {header.frame_id!r}, the candidates in {frame_id!r}'
            raise InputError(msg)
        return vector_from_msg(self._pose.pose.position)


def _question_of(goal: Any, description: ArmDescription, state: Position | None) -> Question:
    """The question that a goal with candidates means."""
    candidates = [vector_from_msg(point) for point in goal.candidates]
    question = keypoint_question(
        goal.task, goal.frame_id, candidates, goal.candidate_labels, description.metadata, state
    )
    max_age_s = seconds(goal.max_age_s, 'max_age_s')
    deadline_s = seconds(goal.deadline_s, 'deadline_s')
    return replace(question, max_age_s=max_age_s, deadline_s=deadline_s, view=description.view)


# Not at a place, so that it is not mistaken for one.
_NO_PROPOSAL = KeypointProposal(id='', task='', frame_id='', position=(NAN, NAN, NAN))


def fill_keypoint(goal: Any, result: Any, outcome: Outcome) -> KeypointProposal | None:
    """Fill a result or response; returns the proposal, and None where there is an error."""
    fill_ending(result, outcome)
    result.proposal = proposal_to_msg(ROS_MESSAGES, _NO_PROPOSAL)
    if not isinstance(outcome, KeypointOutcome):  # no question was put
        if not goal.candidates and outcome.code is RefusalCode.BAD_QUESTION:
            result.error_code = PredictKeypoint.Result.ERROR_NO_CANDIDATES
        return None
    if outcome.code or not outcome.is_completed:
        return None
    try:
        proposal = outcome.proposal()
    except InputError as error:
        result.error_code = PredictKeypoint.Result.ERROR_NO_PROPOSAL
        result.error_msg = str(error)
        result.termination_reason = Termination.REFUSED.value
        return None
    result.proposal = proposal_to_msg(ROS_MESSAGES, proposal)
    return proposal
