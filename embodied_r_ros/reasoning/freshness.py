# SPDX-License-Identifier: Apache-2.0
"""Whether an answer may be acted on: how old its newest observation is, and who spoke.

Ages are differences of the clock of the image stamps and nothing else: what a model server says of
time is never read. Where that clock or the stamp says nothing, an observation is never fresh.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from embodied_r_ros.answers import Freshness
from embodied_r_ros.deltas import DeltaKind, Rung

if TYPE_CHECKING:
    from collections.abc import Sequence

    from embodied_r_ros.answers import Answer
    from embodied_r_ros.deltas import SemanticDelta

_NS = 1_000_000_000
# Clocks of a camera and its robot agree to about this; a stamp further ahead is no stamp.
_FUTURE_TOLERANCE_NS = 500_000_000


def is_stale(stamp_ns: int, now_ns: int, max_age_s: float) -> bool:
    """Tell whether an observation is too old, from the future, or of no known age.

    Args:
        stamp_ns: Its stamp; 0: it has none, as from a camera driver that sets none.
        now_ns: The time in the same clock; 0: not known, as before the first message of /clock.
        max_age_s: Age up to which it is fresh.
    """
    age_ns = now_ns - stamp_ns
    is_known = stamp_ns > 0 and now_ns > 0
    return not is_known or age_ns > max_age_s * _NS or age_ns < -_FUTURE_TOLERANCE_NS


def freshness_of(
    answer: Answer, deltas: Sequence[SemanticDelta], now_ns: int, max_age_s: float
) -> Freshness:
    """Freshness of an answer that is complete now.

    Args:
        answer: The answer, with its model and how many deltas its prompt leaves out.
        deltas: What was seen, oldest first.
        now_ns: The time in the clock of the image stamps.
        max_age_s: Age up to which its observation is fresh.
    """
    if is_stale(answer.observation_stamp_ns, now_ns, max_age_s):
        return Freshness.STALE
    read = deltas[answer.deltas_omitted :]
    failed = any(delta.kind is DeltaKind.FAILED for delta in read)
    # What stood in for the perceiver counts like what stands in for the reasoner.
    rungs = {answer.model.rung, *(delta.model.rung for delta in read)}
    lower = bool(rungs - {Rung.PRIMARY, Rung.UNSET})
    return Freshness.DEGRADED if lower or failed else Freshness.FRESH
