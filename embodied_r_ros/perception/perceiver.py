# SPDX-License-Identifier: Apache-2.0
"""The seam of perception: a pair of keyframes becomes a semantic delta."""

from __future__ import annotations

from collections import deque
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
import logging
import time
from typing import Protocol, TYPE_CHECKING

from embodied_r_ros.deltas import DeltaKind, SemanticDelta

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from concurrent.futures import Future

    from embodied_r_ros.answers import FocusText
    from embodied_r_ros.deltas import ModelInfo
    from embodied_r_ros.keyframes import Keyframe

_log = logging.getLogger(__name__)


class Perceiver(Protocol):
    """Turns keyframes into text. Every method may be called from several threads at once."""

    def perceive(self, earlier: Keyframe | None, later: Keyframe) -> SemanticDelta:
        """Say what the later keyframe adds; `earlier` None describes the first one.

        Blocks for at most the perceiver's own deadline and never raises for what a model or an
        image does: what cannot be told is a delta of kind FAILED with its error. `latency_ns` and
        `skipped` are the caller's to fill.
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
    perceiver: Perceiver, earlier: Keyframe | None, later: Keyframe, skipped: int = 0
) -> SemanticDelta:
    """Perceive one pair; never raises, and fills `latency_ns` and `skipped`.

    A pair from two episodes, or whose stamps run backward, is no pair: the later keyframe is then
    described like a first one.
    """
    start_ns = time.monotonic_ns()
    if earlier is not None and not _continues(earlier, later):
        earlier = None
    try:
        delta = perceiver.perceive(earlier, later)
    except Exception as error:
        _log.exception('perceiver failed on keyframe %d', later.id)
        delta = failed_delta(earlier, later, f'{type(error).__name__}: {error}')
    return replace(delta, skipped=skipped, latency_ns=time.monotonic_ns() - start_ns)


def failed_delta(earlier: Keyframe | None, later: Keyframe, error: str) -> SemanticDelta:
    """Delta that says that nothing could be told, and why."""
    first = earlier or later
    return SemanticDelta(
        stamp_ns=later.stamp_ns,
        kind=DeltaKind.FAILED,
        to_id=later.id,
        from_id=first.id,
        from_stamp_ns=first.stamp_ns,
        camera=later.camera,
        frame_id=later.frame_id,
        episode_id=later.episode_id,
        error=error,
    )


def _continues(earlier: Keyframe, later: Keyframe) -> bool:
    return earlier.episode_id == later.episode_id and earlier.stamp_ns <= later.stamp_ns


def perceive_all(
    perceiver: Perceiver, keyframes: Iterable[Keyframe], in_flight: int = 2
) -> Iterator[SemanticDelta]:
    """Perceive every keyframe, without skipping any, and yield the deltas in order.

    Args:
        perceiver: What perceives.
        keyframes: Keyframes of one camera, in order; read only as far as needed.
        in_flight: Pairs perceived at the same time, and keyframes held in memory besides one.
    """
    pending: deque[Future[SemanticDelta]] = deque()
    earlier: Keyframe | None = None
    with ThreadPoolExecutor(in_flight, 'perceive') as pool:
        try:
            for keyframe in keyframes:
                pending.append(pool.submit(perceive_pair, perceiver, earlier, keyframe))
                earlier = keyframe
                if len(pending) >= in_flight:
                    yield pending.popleft().result()
            while pending:
                yield pending.popleft().result()
        finally:
            for future in pending:
                future.cancel()
