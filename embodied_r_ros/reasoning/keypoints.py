# SPDX-License-Identifier: Apache-2.0
"""Where an end effector could go next: candidates become the options of a question."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
import math
from typing import TYPE_CHECKING

from embodied_r_ros.answers import AnswerKind, Freshness
from embodied_r_ros.deltas import ModelInfo, NAN
from embodied_r_ros.errors import InputError
from embodied_r_ros.reasoning.asking import Question

if TYPE_CHECKING:
    from collections.abc import Sequence

    from embodied_r_ros.answers import Answer

Position = tuple[float, float, float]  # [m]


class Gripper(Enum):
    """What a gripper could do at a keypoint."""

    OPEN = 0
    CLOSED = 1


@dataclass(frozen=True)
class KeypointProposal:
    """Where the end effector could go next. A proposal, never a command."""

    id: str
    task: str
    frame_id: str
    position: Position
    orientation: tuple[float, float, float, float] | None = None  # quaternion; None: not proposed
    gripper: Gripper | None = None  # None: not proposed
    candidates: tuple[Position, ...] = ()
    candidate_index: int = -1  # -1: the position was generated
    confidence: float = NAN
    think: str = ''
    observation_stamp_ns: int = 0
    observation_age_ns: int = 0
    freshness: Freshness = Freshness.REFUSED
    model: ModelInfo = field(default_factory=ModelInfo)
    episode_id: str = ''


def keypoint_question(
    task: str, frame_id: str, candidates: Sequence[Position], labels: Sequence[str] = ()
) -> Question:
    """Ask which of some positions comes next in a task.

    Args:
        task: The task, in words.
        frame_id: Frame of the positions.
        candidates: Positions to choose from [m].
        labels: What is at each of them; as many as candidates, or none.

    Raises:
        InputError: There is nothing to choose from, or the request contradicts itself.
    """
    if not task.strip() or not frame_id:
        msg = f'task {task!r} in frame {frame_id!r}: expected both'
        raise InputError(msg)
    if labels and len(labels) != len(candidates):
        msg = f'{len(labels)} labels for {len(candidates)} candidates: expected as many, or none'
        raise InputError(msg)
    if not all(math.isfinite(value) for position in candidates for value in position):
        msg = f'candidates {list(candidates)} are not all finite'
        raise InputError(msg)
    text = (
        f'The task is: {task.strip()} Which position should the end effector go to next? '
        f'Positions are x, y, z in metres in the frame {frame_id}.'
    )
    options = [_position_text(position) for position in candidates]
    if labels:
        options = [f'{label} at {text}' for label, text in zip(labels, options, strict=True)]
    return Question(text, tuple(options))


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
    return KeypointProposal(
        id=answer.id,
        task=task,
        frame_id=frame_id,
        position=candidates[answer.option_index],
        candidates=tuple(candidates),
        candidate_index=answer.option_index,
        confidence=answer.confidence,
        think=answer.think,
        observation_stamp_ns=answer.observation_stamp_ns,
        observation_age_ns=answer.observation_age_ns,
        freshness=answer.freshness,
        model=answer.model,
        episode_id=answer.episode_id,
    )


def _position_text(position: Position) -> str:
    x, y, z = (f'{value:.3f}' for value in position)
    return f'({x}, {y}, {z})'
