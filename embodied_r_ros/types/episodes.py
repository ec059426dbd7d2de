# SPDX-License-Identifier: Apache-2.0
"""Episodes: what marks one in a recording, and which labels operators may give its answers."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from enum import Enum

from embodied_r_ros.common.errors import InputError


class EpisodeEvent(Enum):
    """Start or end of an episode."""

    START = 0
    STOP = 1


class EpisodeOutcome(Enum):
    """How an episode ended."""

    UNSET = 0
    SUCCESS = 1
    FAILURE = 2
    ABORTED = 3


@dataclass(frozen=True)
class EpisodeMark:
    """Start or end of an episode."""

    stamp_ns: int
    episode_id: str
    event: EpisodeEvent
    task: str = ''  # in words; empty: not stated
    scene_id: str = ''  # place; empty: the episode is its own scene
    outcome: EpisodeOutcome = EpisodeOutcome.UNSET


class LabelVerdict(Enum):
    """An operator's verdict on an answer."""

    RIGHT = 0
    WRONG = 1  # and the right answer is not given
    CORRECTED = 2  # and `correction` is right


@dataclass(frozen=True)
class AnswerLabel:
    """An operator's verdict on an answer."""

    stamp_ns: int
    answer_id: str
    verdict: LabelVerdict
    correction: str = ''
    operator_name: str = ''


_REMEMBERED = 10_000


@dataclass(frozen=True)
class AnswerNote:
    """What labels need to know of an answer."""

    options: tuple[str, ...] = ()
    text: str | None = None  # in words; None: a refusal


class AnswerBook:
    """The answers of an episode by their ids, the newest ones."""

    def __init__(self) -> None:
        self._ids: OrderedDict[str, AnswerNote] = OrderedDict()

    def note(self, answer_id: str, answer: AnswerNote | None = None) -> None:
        """Remember an answer."""
        self._ids[answer_id] = answer or AnswerNote()
        if len(self._ids) > _REMEMBERED:
            self._ids.popitem(last=False)

    def find(self, answer_id: str) -> str | None:
        """Id of the answer that is meant; an empty one means the latest; None: unknown."""
        if not answer_id and self._ids:
            return next(reversed(self._ids))
        return answer_id if answer_id in self._ids else None

    def note_of(self, answer_id: str) -> AnswerNote:
        """What is known of an answer; nothing, where it is not remembered."""
        return self._ids.get(answer_id, AnswerNote())


def check_label(verdict: int, correction: str) -> LabelVerdict:
    """The verdict that a number means, where it goes with the correction.

    Raises:
        InputError: It is none, or a correction is missing or contradicts it.
    """
    try:
        meaning = LabelVerdict(verdict)
    except ValueError:
        names = ', '.join(f'{v.value} {v.name.lower()}' for v in LabelVerdict)
        msg = f'verdict {verdict} is none: expected one of {names}'
        raise InputError(msg) from None
    if (meaning is LabelVerdict.CORRECTED) != bool(correction.strip()):
        msg = f'verdict {meaning.name.lower()} with correction {correction!r}: a correction goes '
        msg += 'with the verdict corrected, and only with it'
        raise InputError(msg)
    return meaning
