# SPDX-License-Identifier: Apache-2.0
"""Answers, and everything that is needed to reproduce and to judge one."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field, replace
from enum import Enum
import json
from typing import Any, TYPE_CHECKING

from embodied_r_ros.core.types.deltas import ModelInfo, NAN

if TYPE_CHECKING:
    from collections.abc import Iterable

    from embodied_r_ros.core.types.geometry import Position

UNKNOWN = 'unknown'  # an answer that is always allowed


class AnswerKind(Enum):
    """What an answer is."""

    CHOICE = 0  # one of the options
    NUMBER = 1
    TEXT = 2
    UNKNOWN = 3  # the model answered so, or there was no model to ask


class Freshness(Enum):
    """Whether an answer may be acted on."""

    FRESH = 0  # newest observation within the maximum age
    STALE = 1  # older than that
    DEGRADED = 2  # fresh, but from a fallback or with failed perception in between
    REFUSED = 3  # nothing to answer from, or nothing that could answer


class Check(Enum):
    """Whether an answer and its reasoning agree with what was seen."""

    UNCHECKED = 0  # nothing in it could be checked, or it is unknown
    VERIFIED = 1
    UNSUPPORTED = 2  # a sentence of it has no support


@dataclass(frozen=True)
class FocusText:
    """What one keyframe shows about a question."""

    keyframe_id: int
    stamp_ns: int
    text: str  # empty: nothing
    camera: str = 'camera'


@dataclass(frozen=True)
class Sampling:
    """How text is sampled from a model."""

    temperature: float = 0.0  # 0: greedy
    top_p: float = 1.0  # nucleus probability; 1: off
    max_tokens: int = 1024  # upper limit of generated tokens
    seed: int = 0  # given to the server; 0: none given


@dataclass(frozen=True)
class ToolCall:
    """What a tool of the scene computed for an answer."""

    tool: str
    arguments: tuple[str, ...] = ()
    value: str = ''  # as JSON; empty: not known
    unit: str = ''
    text: str = ''  # a sentence: the value, or why it is not known
    landmark_ids: tuple[int, ...] = ()  # these and the next ones: what it rests on
    delta_ids: tuple[int, ...] = ()  # newer keyframes of deltas
    observations: tuple[int, ...] = ()  # the same deltas as the prompt counts them, from 1
    stamps_ns: tuple[int, ...] = ()
    turn: int = 0  # of the model that asked for it, from 1; 0: no model did
    request_id: str = ''  # how the model named its call
    request: str = ''  # the arguments as the model wrote them
    reply: str = ''  # what the model was told

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> ToolCall:
        """Read the fields of a call, whose tuples JSON has as lists."""
        fields: dict[str, Any] = {
            name: tuple(each) if isinstance(each, list) else each for name, each in value.items()
        }
        return cls(**fields)

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values; a value that is no JSON stays text."""
        value: Any = self.value or None
        with suppress(ValueError, RecursionError):
            value = json.loads(self.value, parse_constant=str)
        return {
            'tool': self.tool,
            'arguments': list(self.arguments),
            'value': value,
            'unit': self.unit,
            'text': self.text,
            **({'turn': self.turn, 'request': self.request} if self.turn else {}),
            **_evidence([self]),
        }


def _evidence(calls: Iterable[ToolCall]) -> dict[str, list[Any]]:
    """What calls rest on, as plain JSON values."""
    calls = list(calls)
    return {
        'landmarks': sorted({value for call in calls for value in call.landmark_ids}),
        'keyframes': sorted({value for call in calls for value in call.delta_ids}),
        'observations': sorted({value for call in calls for value in call.observations}),
        'stamps_ns': list(map(str, sorted({ns for call in calls for ns in call.stamps_ns}))),
    }


@dataclass(frozen=True)
class RejectedCompletion:
    """A completion that the answer did not become."""

    completion: str
    reason: str
    model: str = ''


@dataclass(frozen=True)
class Answer:
    """An answer with its reasoning.

    >>> print(Answer('1', 'How far?', AnswerKind.TEXT, sentence='The chair is 2.0 m away.'))
    The chair is 2.0 m away.
    """

    id: str  # unique in all bags
    question: str
    kind: AnswerKind
    options: tuple[str, ...] = ()
    option_index: int = -1  # -1: not a choice
    text: str = ''  # the option, the number as written, or the free text
    number: float = NAN
    confidence: float = NAN  # from option probabilities, 0..1
    think: str = ''
    completion: str = ''  # as it came
    delta_ids: tuple[int, ...] = ()  # newer keyframes of the deltas in the prompt
    deltas_merged: int = 0
    deltas_omitted: int = 0
    map_revision: int = 0  # of the scene map in the prompt; 0: none
    landmark_ids: tuple[int, ...] = ()  # whose places stand in the prompt
    landmark_age_ns: int = 0  # of the stalest landmark that the question names; 0: none, unknown
    focus: tuple[FocusText, ...] = ()
    prompt: str = ''  # the user message, exactly as sent
    prompt_sha256: str = ''  # of system and user message
    sampling: Sampling = field(default_factory=Sampling)
    observation_stamp_ns: int = 0  # newest observation used; 0: none
    observation_age_ns: int = 0  # when the answer was complete; 0: unknown
    freshness: Freshness = Freshness.REFUSED
    model: ModelInfo = field(default_factory=ModelInfo)
    time_to_first_token_ns: int = 0
    latency_ns: int = 0  # from the question's arrival; holds the next two
    wait_ns: int = 0  # in line, until it was taken up
    generation_ns: int = (
        0  # from the request to the model until its reply was complete; 0: unknown
    )
    standing: bool = False  # from the standing question
    frame_id: str = ''
    episode_id: str = ''
    sentence: str = ''  # the answer in a sentence: with its unit, and what it rests on
    unit: str = ''
    check: Check = Check.UNCHECKED  # of the answer given; rejected completions stay beside it
    check_reason: str = ''  # what has no support, or why nothing was checked or no goal proposed
    calls: tuple[ToolCall, ...] = ()
    turns: tuple[str, ...] = ()  # what the model said before its calls, by turn
    rejected: tuple[RejectedCompletion, ...] = ()
    has_goal: bool = False  # a goal was proposed for it
    choices: tuple[str, ...] = ()  # among which the person has to choose, where it is unknown

    def evidence(self) -> dict[str, list[Any]]:
        """What the tools' results rest on, as plain JSON values (stamps as text)."""
        return _evidence(self.calls)

    def __str__(self) -> str:
        """The answer in words."""
        return self.sentence or self.text or UNKNOWN

    def after_wait(self, wait_ns: int) -> Answer:
        """The answer, with its times counted from the arrival of the question in a line."""
        return replace(
            self,
            latency_ns=self.latency_ns + wait_ns,
            time_to_first_token_ns=self.time_to_first_token_ns + wait_ns,
            wait_ns=self.wait_ns + wait_ns,
        )


# Topic of what a candidate answers beside the model that serves: recorded, never acted on.
SHADOW_ANSWER = 'shadow_answer'
_SHADOW = '-shadow'


def is_of_shadow(topic: str) -> bool:
    """Tell whether a topic holds shadow answers, which were given to no client."""
    return topic.rpartition('/')[2] == SHADOW_ANSWER


def shadow_id(answer_id: str) -> str:
    """Id of the candidate's answer to the question of another answer."""
    return answer_id + _SHADOW


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

    @classmethod
    def of_answer(
        cls, answer: Answer, task: str, frame_id: str, position: Position, **fields: Any
    ) -> KeypointProposal:
        """The proposal that an answer means: as sure, as fresh and by the same model.

        Args:
            answer: The answer, whose id is that of the proposal.
            task: The task, in words.
            frame_id: Frame of the position.
            position: Where to go [m].
            fields: Others of the proposal, in place of what follows from the answer.
        """
        names = (
            'confidence', 'think', 'observation_stamp_ns', 'observation_age_ns', 'freshness',
            'model', 'episode_id',
        )  # fmt: skip
        of_answer: dict[str, Any] = {name: getattr(answer, name) for name in names}
        return cls(answer.id, task, frame_id, position, **{**of_answer, **fields})
