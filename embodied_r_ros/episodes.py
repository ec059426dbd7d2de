# SPDX-License-Identifier: Apache-2.0
"""Episodes: what marks one in a recording, and what operators say of its answers."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class EpisodeEvent(Enum):
    """Start or end of an episode."""

    START = 0
    STOP = 1


class Outcome(Enum):
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
    outcome: Outcome = Outcome.UNSET


class Verdict(Enum):
    """What an operator says of an answer."""

    RIGHT = 0
    WRONG = 1  # and the right answer is not given
    CORRECTED = 2  # and `correction` is right


@dataclass(frozen=True)
class AnswerLabel:
    """An operator's verdict on an answer."""

    stamp_ns: int
    answer_id: str
    verdict: Verdict
    correction: str = ''
    operator_name: str = ''
