# SPDX-License-Identifier: Apache-2.0
"""The rung below a perceiver that fails: another one stands in, and the delta says which."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from embodied_r_ros.deltas import DeltaKind
from embodied_r_ros.errors import ModelError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from embodied_r_ros.answers import FocusText
    from embodied_r_ros.deltas import ModelInfo, SemanticDelta
    from embodied_r_ros.keyframes import Keyframe
    from embodied_r_ros.perception.perceiver import Perceiver


class LadderPerceiver:
    """Perceives with the first perceiver, and with the second one what the first cannot."""

    def __init__(self, first: Perceiver, second: Perceiver) -> None:
        self._first, self._second = first, second
        self._stood_in = 0
        self._lock = threading.Lock()

    @property
    def stood_in(self) -> int:
        """How many deltas the second perceiver gave."""
        with self._lock:
            return self._stood_in

    def perceive(self, earlier: Keyframe | None, later: Keyframe) -> SemanticDelta:
        """Say what the later keyframe adds; its `model` says who said so."""
        delta = self._first.perceive(earlier, later)
        if delta.kind is not DeltaKind.FAILED:
            return delta
        other = self._second.perceive(earlier, later)
        if other.kind is DeltaKind.FAILED:
            return delta
        with self._lock:
            self._stood_in += 1
        return other

    def focus(
        self, question: str, options: Sequence[str], keyframe: Keyframe, deadline_s: float
    ) -> FocusText:
        """Say what a keyframe shows about a question.

        Raises:
            ModelError: Neither could.
        """
        try:
            return self._first.focus(question, options, keyframe, deadline_s)
        except ModelError:
            return self._second.focus(question, options, keyframe, deadline_s)

    def info(self) -> ModelInfo:
        """Which model perceives while all is well.

        Raises:
            ModelError: Its server is not reachable or serves another model.
        """
        return self._first.info()
