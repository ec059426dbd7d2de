# SPDX-License-Identifier: Apache-2.0
"""The seam of perception: a pair of keyframes becomes a semantic delta."""

from __future__ import annotations

from typing import Protocol, TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from embodied_r_ros.answers import FocusText
    from embodied_r_ros.deltas import ModelInfo, SemanticDelta
    from embodied_r_ros.keyframes import Keyframe


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
