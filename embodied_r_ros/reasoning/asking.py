# SPDX-License-Identifier: Apache-2.0
"""What is asked of the reasoner, how, and why there may be no answer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Protocol, TYPE_CHECKING

from embodied_r_ros.answers import FocusText
from embodied_r_ros.config import check_settings, setting
from embodied_r_ros.deltas import SemanticDelta
from embodied_r_ros.errors import EmbodiedRError
from embodied_r_ros.reasoning.memory import MemoryConfig

if TYPE_CHECKING:
    import threading

    from embodied_r_ros.answers import Answer

# Looks again at the newer keyframes of some deltas: question, options, deltas, deadline [s], and
# what ends the look early by a CancelledError (None: nothing does).
Look = Callable[
    [str, Sequence[str], Sequence[SemanticDelta], float, 'threading.Event | None'],
    Sequence[FocusText],
]


@dataclass(frozen=True)
class ReasonerConfig:
    """How questions are answered."""

    token_budget: int = setting(
        1200, 'tokens that the scene may take in a prompt', between=(200, 100_000)
    )
    max_tokens: int = setting(1024, 'tokens that a completion may have', between=(16, 32_768))
    temperature: float = setting(0.0, 'sampling temperature; 0: greedy', between=(0, 2))
    top_p: float = setting(1.0, 'nucleus probability; 1: off', between=(0.01, 1))
    seed: int = setting(0, 'seed given to the server; 0: none', between=(0, 2**31 - 1))
    top_logprobs: int = setting(
        5, 'alternatives per token to ask for, for the confidence; 0: none', between=(0, 20)
    )
    focus: str = setting(
        'auto',
        'look at keyframes again for the question: never, auto (nothing seen mentions it), always',
        choices=('never', 'auto', 'always'),
    )
    focus_keyframes: int = setting(4, 'newest keyframes to look at again', between=(1, 64))
    max_age_s: float = setting(
        5.0, 'age of the newest observation up to which an answer is fresh [s]', between=(0, 1e6)
    )
    deadline_s: float = setting(
        30.0, 'time in which an answer must be complete [s]', between=(0.1, 3600)
    )
    stale: str = setting(
        'flag',
        'when the newest observation is too old: flag the answer as STALE, or refuse',
        choices=('flag', 'refuse'),
    )

    def __post_init__(self) -> None:
        check_settings(self)

    def memory(self) -> MemoryConfig:
        """How much of the scene a prompt holds."""
        return MemoryConfig(token_budget=self.token_budget)


class SceneView(Protocol):
    """What describes the scene for one question, beside the deltas themselves."""

    def describe(self, deltas: Sequence[SemanticDelta]) -> FocusText | None:
        """Describe the newest delta as a look at its keyframe; None: nothing is to be said."""


@dataclass(frozen=True)
class Question:
    """What is asked. Zeros mean the reasoner's own setting."""

    text: str
    options: tuple[str, ...] = ()
    max_age_s: float = 0.0
    deadline_s: float = 0.0
    seed: int = 0
    episode_id: str = ''
    standing: bool = False
    view: SceneView | None = None  # says where items of the scene are; None: nothing does


class Phase(Enum):
    """What the reasoner is doing (action Ask, PHASE_ constants)."""

    QUEUED = 0
    FOCUS = 1
    THINK = 2
    ANSWER = 3


class RefusalCode(Enum):
    """Why there is no answer (action Ask, ERROR_ constants)."""

    NOT_ACTIVE = 7001
    NO_OBSERVATION = 7002
    STALE = 7003
    DEADLINE = 7004
    MODEL = 7005
    FORMAT = 7006
    BAD_QUESTION = 7007
    BUSY = 7008


class Refusal(EmbodiedRError):  # noqa: N818 - a refusal is an outcome with a reason
    """There is no answer; `answer` says what is known, with freshness REFUSED."""

    def __init__(self, code: RefusalCode, message: str, answer: Answer) -> None:
        super().__init__(message)
        self.code = code
        self.answer = answer


Listener = Callable[[Phase, str], None]


def question_problem(text: str, options: Sequence[str]) -> str:
    """Say what is wrong with a question; empty: nothing."""
    if not text.strip():
        return 'the question is empty'
    for said in (text, *options):
        # Bytes of the command line that are no UTF-8 arrive as surrogates.
        if any('\ud800' <= character <= '\udfff' for character in said):
            return f'{said!r} is not text in UTF-8: write it anew'
    return _options_problem(options)


def _options_problem(options: Sequence[str]) -> str:
    if len(options) == 1:
        return f'one option alone ({options[0]!r}): give at least two, or none for a free answer'
    if len(options) > 26:
        return f'{len(options)} options: at most 26 have a letter'
    stripped = [option.strip() for option in options]
    if len(set(stripped)) < len(stripped) or '' in stripped:
        return f'options must differ and not be empty: {stripped}'
    return ''
