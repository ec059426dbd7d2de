# SPDX-License-Identifier: Apache-2.0
"""The seam of perception: a pair of keyframes becomes a delta; fallbacks when one fails."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from itertools import chain, pairwise
import logging
import threading
import time
from typing import Any, Protocol, TYPE_CHECKING

from embodied_r_ros.common.errors import DeadlineError, ModelError
from embodied_r_ros.common.work import done_ahead
from embodied_r_ros.core.chat.fallback import Fallback, NoReplyError
from embodied_r_ros.core.types.deltas import DeltaKind, SemanticDelta

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from embodied_r_ros.core.chat.fallback import FallbackConfig, FallbackStep
    from embodied_r_ros.core.types.answers import FocusText
    from embodied_r_ros.core.types.deltas import ModelInfo, Rung
    from embodied_r_ros.core.types.keyframes import Keyframe

_log = logging.getLogger(__name__)


class PairPerceiver(Protocol):
    """Turns keyframes into text. Every method may be called from several threads at once."""

    def perceive(self, earlier: Keyframe | None, later: Keyframe) -> SemanticDelta:
        """Say what the later keyframe adds; `earlier` None describes the first one.

        Blocks for at most the perceiver's own deadline and never raises for what a model or an
        image does: a failure is a delta of kind FAILED with its error. `latency_ns`,
        `skipped` and `pose` are the caller's to fill.
        """

    def focus(
        self, question: str, options: Sequence[str], keyframe: Keyframe, deadline_s: float
    ) -> FocusText:
        """Say what a keyframe shows about a question; empty text: nothing.

        Raises:
            ModelError: The model failed.
        """

    def info(self) -> ModelInfo:
        """Which model perceives.

        Raises:
            ModelError: The model's server is not reachable or serves another model.
        """

    def check(self, deadline_s: float) -> None:
        """See that the model works, by having it do a little.

        Raises:
            ModelError: It does not, or not within the deadline.
        """


def perceive_pair(
    perceiver: PairPerceiver, earlier: Keyframe | None, later: Keyframe, skipped: int = 0
) -> SemanticDelta:
    """Perceive one pair; never raises, and fills `latency_ns`, `skipped` and `pose`.

    A pair from two episodes, or whose stamps run backward, is no pair: the later keyframe is then
    described like a first one.
    """
    start_ns = time.monotonic_ns()
    if earlier is not None and not _continues(earlier, later):
        earlier = None
    delta = _perceive(perceiver, earlier, later)
    latency_ns = time.monotonic_ns() - start_ns
    return replace(delta, skipped=skipped, latency_ns=latency_ns, pose=later.pose)


def delta_of_pair(
    earlier: Keyframe | None, later: Keyframe, kind: DeltaKind, **fields: Any
) -> SemanticDelta:
    """The delta of a pair of keyframes, or of a first one: whose it is, and what else is given."""
    first = earlier or later
    return SemanticDelta(
        stamp_ns=later.stamp_ns,
        kind=kind,
        to_id=later.id,
        from_id=first.id,
        from_stamp_ns=first.stamp_ns,
        camera=later.camera,
        frame_id=later.frame_id,
        episode_id=later.episode_id,
        **fields,
    )


def failed_delta(earlier: Keyframe | None, later: Keyframe, error: str) -> SemanticDelta:
    """A failed delta with its reason."""
    return delta_of_pair(earlier, later, DeltaKind.FAILED, error=error)


def _continues(earlier: Keyframe, later: Keyframe) -> bool:
    return earlier.episode_id == later.episode_id and earlier.stamp_ns <= later.stamp_ns


def perceive_all(
    perceiver: PairPerceiver, keyframes: Iterable[Keyframe], in_flight: int = 2
) -> Iterator[SemanticDelta]:
    """Perceive every keyframe, without skipping any, and yield the deltas in order.

    Args:
        perceiver: What perceives.
        keyframes: Keyframes of one camera, in order; read only as far as needed.
        in_flight: Pairs perceived at the same time, and keyframes held in memory besides one.
    """
    nothing: list[Keyframe | None] = [None]
    pairs = pairwise(chain(nothing, keyframes))
    jobs = (partial(perceive_pair, perceiver, a, b) for a, b in pairs if b)
    return done_ahead(jobs, in_flight - 1, in_flight)


class FallbackPerceiver:
    """Perceives with the best model that works, and with the next one what that one cannot.

    Where all of them fail, the keyframe is to blame, and no model is left out for it.
    """

    def __init__(
        self, perceivers: Mapping[Rung, PairPerceiver], config: FallbackConfig | None = None
    ) -> None:
        """Take the perceivers by rung; the best one has the lowest number."""
        self._fallback = Fallback.by_rung(perceivers, lambda each, s: each.check(s), config)
        self._first = self._fallback.steps[0]
        self._stood_in = 0
        self._lock = threading.Lock()

    @property
    def stood_in(self) -> int:
        """How many deltas a fallback gave."""
        with self._lock:
            return self._stood_in

    @property
    def rung(self) -> Rung:
        """The rung of the model that comes first now."""
        return self._fallback.order()[0].rung

    def problems(self) -> dict[Rung, str]:
        """Why models are left out now."""
        return self._fallback.problems()

    def perceive(self, earlier: Keyframe | None, later: Keyframe) -> SemanticDelta:
        """Say what the later keyframe adds; its `model` says who said so."""

        def attempt(step: FallbackStep[PairPerceiver], _: float) -> SemanticDelta:
            delta = _perceive(step.model, earlier, later)
            if delta.kind is DeltaKind.FAILED:
                raise _FailedDeltaError(delta)
            with self._lock:
                self._stood_in += step is not self._first
            return delta

        try:
            return self._fallback.ask(
                attempt, errors=_FailedDeltaError, only_if_another_works=True
            )
        except NoReplyError as error:
            delta: SemanticDelta = error.failures[0][1].delta
            return delta

    def focus(
        self, question: str, options: Sequence[str], keyframe: Keyframe, deadline_s: float
    ) -> FocusText:
        """Say what a keyframe shows about a question.

        Raises:
            ModelError: No model could.
        """
        try:
            return self._fallback.ask(
                lambda step, given_s: step.model.focus(question, options, keyframe, given_s),
                deadline_s,
                errors=ModelError,
                is_late=lambda error: isinstance(error, DeadlineError),
                only_if_another_works=True,
            )
        except NoReplyError as error:
            if not error.failures:
                msg = f'no time left to look at keyframe {keyframe.id}'
                raise ModelError(msg) from None
            raise error.failures[-1][1] from None

    def info(self) -> ModelInfo:
        """Which model perceives while all is well.

        Raises:
            ModelError: Its server is not reachable or serves another model.
        """
        return self._first.model.info()

    def start(self) -> ModelInfo:
        """Which model perceives now: the best one that answers.

        Raises:
            ModelError: None does.
        """
        try:
            return self._fallback.ask(
                lambda step, _: step.model.info(), errors=ModelError, only_if_another_works=True
            )
        except NoReplyError as error:
            raise ModelError(str(error)) from None

    def check(self, deadline_s: float) -> None:
        """Check that the best model works.

        Raises:
            ModelError: It does not.
        """
        self._first.model.check(deadline_s)

    def close(self) -> None:
        """Look no more at models that failed."""
        self._fallback.close()


class _FailedDeltaError(Exception):
    """A perceiver gave a delta that says only why there is none."""

    def __init__(self, delta: SemanticDelta) -> None:
        super().__init__(delta.error)
        self.delta = delta


def _perceive(
    perceiver: PairPerceiver, earlier: Keyframe | None, later: Keyframe
) -> SemanticDelta:
    try:
        return perceiver.perceive(earlier, later)
    except Exception as error:  # the fallback is there for unforeseen failures, too
        _log.exception('perceiver failed on keyframe %d', later.id)
        return failed_delta(earlier, later, f'{type(error).__name__}: {error}')
