# SPDX-License-Identifier: Apache-2.0
"""Where an end effector could go next: the question, and the proposal that an answer means."""

from __future__ import annotations

from dataclasses import dataclass, replace
import math
from typing import TYPE_CHECKING

from embodied_r_ros.arm.table import table_view
from embodied_r_ros.arm.task_frame import facing_problem
from embodied_r_ros.common.errors import InputError
from embodied_r_ros.core.reasoning.question import Question
from embodied_r_ros.core.types.answers import AnswerKind, Freshness, Gripper, KeypointProposal
from embodied_r_ros.core.types.deltas import NAN
from embodied_r_ros.core.types.geometry import (
    Position,
    position_text,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from embodied_r_ros.arm.robot import Robot, RobotMetadata
    from embodied_r_ros.arm.table import TableView
    from embodied_r_ros.core.types.answers import Answer
    from embodied_r_ros.core.types.geometry import Intrinsics, Pose


@dataclass(frozen=True)
class ArmDescription:
    """The description of an arm, in its task frame."""

    robot: Robot | None = None  # None: no robot is described
    view: TableView | None = None  # its table; None: the camera's pose is unknown

    @property
    def metadata(self) -> RobotMetadata | None:
        """The robot's metadata; None: no robot is described."""
        return self.robot.metadata if self.robot else None


def describe_arm(
    robot: Robot,
    camera: Pose | None,
    tool: Position | None = None,
    intrinsics: Intrinsics | None = None,
) -> ArmDescription:
    """Describe an arm for a prompt, by how its camera stands.

    Args:
        robot: Its file; `questions.camera` says which cameras are allowed.
        camera: Pose of the optical frame in the task frame; None: as the file places it. Where
            that is unknown too, nothing can be checked.
        tool: Where the end effector was when the image was taken [m]; None: not known.
        intrinsics: Of the camera, as far as known: the reference point must be in its image.

    Raises:
        InputError: Words for axes do not hold for the camera.
    """
    view = table_view(camera, robot.metadata, robot.placing, tool)
    if view is None:
        return ArmDescription(robot)
    problem = facing_problem(view.camera, robot.metadata.reference, intrinsics)
    if problem and robot.questions.camera != 'declared':
        msg = (
            f"{problem}. Correct its pose (camera_position in the robot's file, or tf), or set "
            "`camera: declared` in the file's questions where it faces the robot"
        )
        raise InputError(msg)
    return ArmDescription(robot, view)


_NEXT = 'Which position should the end effector go to next?'
# From the best to the worst.
_FRESHNESS = (Freshness.FRESH, Freshness.DEGRADED, Freshness.STALE, Freshness.REFUSED)


def keypoint_question(
    task: str,
    frame_id: str,
    candidates: Sequence[Position],
    labels: Sequence[str] = (),
    robot: RobotMetadata | None = None,
    state: Position | None = None,
) -> Question:
    """Ask which of some positions comes next in a task.

    Args:
        task: The task, in words.
        frame_id: Frame of the positions.
        candidates: Positions to choose from [m].
        labels: What is at each of them; as many as candidates, or none.
        robot: The robot to describe; None: no robot.
        state: Where the end effector is [m]; None: not stated.

    Raises:
        InputError: There is nothing to choose from, or the request contradicts itself.
    """
    if labels and len(labels) != len(candidates):
        msg = f'{len(labels)} labels for {len(candidates)} candidates: expected as many, or none'
        raise InputError(msg)
    if not all(math.isfinite(value) for position in candidates for value in position):
        msg = f'candidates {list(candidates)} are not all finite'
        raise InputError(msg)
    text = task_text(task, _NEXT, frame_id, robot, state)
    options = [position_text(position) for position in candidates]
    if labels:
        options = [f'{label} at {text}' for label, text in zip(labels, options, strict=True)]
    return Question(text, tuple(options), of_task=True)


@dataclass(frozen=True)
class ArmQuestion:
    """A question about a task whose options are always the same."""

    text: str
    options: tuple[str, ...]

    def of_task(
        self,
        task: str,
        frame_id: str,
        robot: RobotMetadata | None = None,
        state: Position | None = None,
    ) -> Question:
        """Ask it about a task, as rows do.

        Args:
            task: The task, in words.
            frame_id: Frame of all positions.
            robot: The robot to describe; None: no robot.
            state: Where the end effector is [m]; None: not stated.

        Raises:
            InputError: As for `keypoint_question`.
        """
        text = task_text(task, self.text, frame_id, robot, state)
        return Question(text, self.options, of_task=True)


GRIPPER_NEXT = ArmQuestion(
    'Is the gripper open or closed at the next position of the end effector?', ('open', 'closed')
)


def done_question(task: str) -> Question:
    """Ask whether a task is done, of what was seen alone; 'yes' is the first option."""
    return Question(f'{task_sentence(task)} Is it done now?', ('yes', 'no'))


def task_text(
    task: str,
    question: str,
    frame_id: str,
    robot: RobotMetadata | None = None,
    state: Position | None = None,
) -> str:
    """The text of a task: task, question, coordinates, robot and end effector.

    Args:
        task: The task, in words.
        question: The question itself.
        frame_id: Frame of all positions.
        robot: The robot to describe; None: no robot.
        state: Where the end effector is [m]; None: not stated.

    Raises:
        InputError: Task or frame are empty, the robot's frame is another, or a number not finite.
    """
    words = task.strip()
    if not words or not frame_id:
        msg = f'task {task!r} in frame {frame_id!r}: expected both'
        raise InputError(msg)
    return f'{task_sentence(words)} {question} {coordinates_text(frame_id, robot, state)}'


def task_sentence(task: str) -> str:
    """What the task is, as a sentence."""
    end = '' if task.endswith(('.', '!', '?')) else '.'
    return f'The task is: {task}{end}'


def coordinates_text(
    frame_id: str, robot: RobotMetadata | None = None, state: Position | None = None
) -> str:
    """The sentences about coordinates, robot and end effector (see `task_text`).

    Raises:
        InputError: The robot's frame is another, or a number is not finite.
    """
    sentences = [f'Positions are x, y, z in metres in the frame {frame_id}.']
    if robot:
        if robot.frame_id != frame_id:
            msg = f"positions are in {frame_id!r}: expected the robot's frame {robot.frame_id!r}"
            raise InputError(msg)
        sentences.append(robot.text())
    if state:
        if not all(map(math.isfinite, state)):
            msg = f'state {state} is not finite: expected x, y, z [m]'
            raise InputError(msg)
        sentences.append(f'The end effector is at {position_text(state)}.')
    return ' '.join(sentences)


def proposal_of(
    answer: Answer, task: str, frame_id: str, candidates: Sequence[Position]
) -> KeypointProposal:
    """Make the proposal that an answer to `keypoint_question` means.

    Raises:
        InputError: The answer chooses no candidate.
    """
    if answer.kind is not AnswerKind.CHOICE:
        msg = 'the model says that it cannot know which candidate comes next'
        raise InputError(msg)
    return KeypointProposal.of_answer(
        answer,
        task,
        frame_id,
        candidates[answer.option_index],
        candidates=tuple(candidates),
        candidate_index=answer.option_index,
    )


def with_gripper(proposal: KeypointProposal, answer: Answer) -> KeypointProposal:
    """The proposal with the answer to GRIPPER_NEXT; nothing, where it is unknown.

    It is as sure, and as fresh, as the less sure and less fresh one of both answers.
    """
    if answer.kind is not AnswerKind.CHOICE:
        return proposal
    return replace(_weakened(proposal, answer), gripper=tuple(Gripper)[answer.option_index])


def _weakened(proposal: KeypointProposal, answer: Answer) -> KeypointProposal:
    """The proposal, no surer and no fresher than another answer that it rests on."""
    worst = max(proposal.freshness, answer.freshness, key=_FRESHNESS.index)
    sure = proposal.confidence, answer.confidence
    return replace(
        proposal,
        confidence=NAN if any(map(math.isnan, sure)) else min(sure),
        think='\n'.join(part for part in (proposal.think, answer.think) if part),
        freshness=worst,
    )
