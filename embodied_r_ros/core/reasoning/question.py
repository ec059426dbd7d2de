# SPDX-License-Identifier: Apache-2.0
"""A question to the reasoner and its outcome: settings, refusals, freshness of an answer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Protocol, TYPE_CHECKING

from embodied_r_ros.common.errors import ConfigError, EmbodiedRError
from embodied_r_ros.common.settings import setting, Settings
from embodied_r_ros.core.scene.memory import MemoryConfig
from embodied_r_ros.core.types.answers import Answer, AnswerKind, FocusText, Freshness
from embodied_r_ros.core.types.deltas import DeltaKind, Rung, SemanticDelta
from embodied_r_ros.core.types.geometry import NS_PER_S

if TYPE_CHECKING:
    import threading

    from embodied_r_ros.core.scene.changes import VisitChanges
    from embodied_r_ros.core.types.images import EncodedImage
    from embodied_r_ros.core.types.landmarks import SceneMap

# Looks again at the newer keyframes of some deltas: question, options, deltas, deadline [s], and
# what ends the look early by a CancelledError (None: nothing does).
Look = Callable[
    [str, Sequence[str], Sequence[SemanticDelta], float, 'threading.Event | None'],
    Sequence[FocusText],
]


@dataclass(frozen=True)
class ReasonerConfig(Settings):
    """How questions are answered."""

    token_budget: int = setting(
        1200, 'tokens that the scene may take in a prompt', between=(200, 100_000)
    )
    check: bool = setting(
        True,
        'compare each completion with what was seen; without support, ask once more, then tools',
    )
    writes: str = setting(
        'text',
        'text: reasoning and answer; form: the same, with an option forced by a grammar of '
        "llama.cpp; calls: calls of the scene's tools, forced by a grammar",
        choices=('text', 'form', 'calls'),
    )
    least_confidence: float = setting(
        0.6,
        'least probability of calls where the reader without a model does not read the question',
        between=(0, 1),
    )
    tools: bool = setting(
        False,
        "let the model call the scene's tools, at a server that takes calls (docs/models.md)",
    )
    use_map: bool = setting(True, 'let prompts hold what a question needs of the scene map')
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
    show_image: bool = setting(
        False,
        'show the newest keyframe, not the scene, where a keypoint, point or box is asked for',
        read_only=True,
    )

    def __post_init__(self) -> None:
        """Check the settings.

        Raises:
            ConfigError: One is not allowed, or two exclude each other.
        """
        super().__post_init__()
        if self.tools and self.writes == 'calls':
            msg = "tools is true and writes is 'calls', which is for a model without: give one"
            raise ConfigError(msg)

    def memory(self) -> MemoryConfig:
        """How much of the scene a prompt holds."""
        return MemoryConfig(token_budget=self.token_budget)


class SceneView(Protocol):
    """What describes the scene for one question, beside the deltas themselves."""

    def describe(self, deltas: Sequence[SemanticDelta]) -> FocusText | None:
        """Describe the newest delta as a look at its keyframe; None: there is nothing to add."""


@dataclass(frozen=True)
class ShownImage:
    """What a camera saw, for a model that reads images."""

    image: EncodedImage  # as prompts show it
    stamp_ns: int
    frame_id: str = ''


@dataclass(frozen=True)
class Question:
    """A question. Zeros mean the reasoner's own setting.

    >>> Question('Is the chair to the left?', ('yes', 'no'), deadline_s=5.0).options
    ('yes', 'no')
    """

    text: str
    options: tuple[str, ...] = ()
    max_age_s: float = 0.0
    deadline_s: float = 0.0
    seed: int = 0
    episode_id: str = ''
    standing: bool = False
    view: SceneView | None = None  # places the items of the scene; None: nothing does
    scene_map: SceneMap | None = None  # what is known of the place; None: there is no map
    has_times: bool = True  # False: stamps count images at a rate that was assumed
    earlier: VisitChanges | str | None = None  # as of `Scene.earlier`
    of_task: bool = False  # of an arm, whose frame the tools of the scene do not know
    takes_orders: bool = False  # whether an order to go somewhere becomes a goal
    shown: ShownImage | None = None  # shown in place of all that is told; None: nothing is shown

    def unanswered(self, answer_id: str) -> Answer:
        """The answer that says nothing."""
        return Answer(
            id=answer_id,
            question=self.text,
            kind=AnswerKind.UNKNOWN,
            options=self.options,
            episode_id=self.episode_id,
            standing=self.standing,
        )


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
    INTERNAL = 7012


class Refusal(EmbodiedRError):  # noqa: N818 - a refusal is an outcome with a reason
    """There is no answer; `answer` holds what is known so far, with freshness REFUSED."""

    def __init__(self, code: RefusalCode, message: str, answer: Answer) -> None:
        super().__init__(message)
        self.code = code
        self.answer = answer


Listener = Callable[[Phase, str], None]


def question_problem(text: str, options: Sequence[str]) -> str:
    """Say what is wrong with a question; empty: nothing."""
    if not text.strip():
        return 'the question is empty'
    for part in (text, *options):
        # Bytes of the command line that are no UTF-8 arrive as surrogates.
        if any('\ud800' <= character <= '\udfff' for character in part):
            return f'{part!r} is not text in UTF-8: write it anew'
    return _options_problem(options)


def _options_problem(options: Sequence[str]) -> str:
    if len(options) == 1:
        return f'one option alone ({options[0]!r}): give at least two, or none for a free answer'
    if len(options) > 26:
        return f'{len(options)} options: at most 26 have a letter'
    texts = [option.strip() for option in options]
    if len(set(texts)) < len(texts) or '' in texts:
        return f'options must differ and not be empty: {texts}'
    return ''


# Clocks of a camera and its robot agree to about this; a stamp further ahead is no stamp.
_FUTURE_TOLERANCE_NS = 500_000_000


def staleness(stamp_ns: int, now_ns: int, max_age_s: float) -> str:
    """Why an observation is too old, from the future, or of no known age; empty: it is fresh.

    Args:
        stamp_ns: Its stamp; 0: it has none, as from a camera driver that sets none.
        now_ns: The time in the same clock; 0: not known, as before the first message of /clock.
        max_age_s: Age up to which it is fresh.
    """
    age_s = (now_ns - stamp_ns) / NS_PER_S
    if stamp_ns <= 0:
        return 'the newest observation has no stamp: set it in the camera driver'
    if now_ns <= 0:
        return 'the time is not known: publish /clock, or unset use_sim_time'
    if now_ns - stamp_ns < -_FUTURE_TOLERANCE_NS:
        return (
            f'the newest observation is {-age_s:.1f} s in the future: synchronise the clocks, or '
            'set use_sim_time where a bag is played'
        )
    if age_s > max_age_s:
        return f'the newest observation is {age_s:.1f} s old, allowed are {max_age_s:.1f} s'
    return ''


def age_ns(stamp_ns: int, now_ns: int) -> int:
    """Age of an observation, 0 where it is not known or in the future."""
    return max(0, now_ns - stamp_ns) if stamp_ns > 0 else 0


def last_look_ns(answer: Answer, deltas: Sequence[SemanticDelta]) -> int:
    """Stamp of the last image that was looked at: an observation, or one that shows the same."""
    return max([answer.observation_stamp_ns, *(delta.seen_ns for delta in deltas)])


def freshness_of(
    answer: Answer, deltas: Sequence[SemanticDelta], now_ns: int, max_age_s: float
) -> Freshness:
    """Freshness of an answer that is complete now.

    Args:
        answer: The answer, with its model and how many deltas its prompt leaves out.
        deltas: The deltas, oldest first.
        now_ns: The time in the clock of the image stamps.
        max_age_s: Age up to which its observation, or an image that shows the same, is fresh.
    """
    if staleness(last_look_ns(answer, deltas), now_ns, max_age_s):
        return Freshness.STALE
    read = deltas[answer.deltas_omitted :]
    failed = any(delta.kind is DeltaKind.FAILED for delta in read)
    # What stood in for the perceiver counts like what stands in for the reasoner.
    rungs = {answer.model.rung, *(delta.model.rung for delta in read)}
    lower = bool(rungs - {Rung.PRIMARY, Rung.UNSET})
    return Freshness.DEGRADED if lower or failed else Freshness.FRESH
