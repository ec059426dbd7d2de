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


def staleness(stamp_ns: int, now_ns: int, max_age_s: float) -> str:
    """Why an observation is too old, from the future, or of no known age; empty: it is fresh.

    Args:
        stamp_ns: Its stamp; 0: it has none, as from a camera driver that sets none.
        now_ns: The time in the same clock; 0: not known, as before the first message of /clock.
        max_age_s: Age up to which it is fresh.
    """
    age_s = (now_ns - stamp_ns) / _NS
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
    if staleness(answer.observation_stamp_ns, now_ns, max_age_s):
        return Freshness.STALE
    read = deltas[answer.deltas_omitted :]
    failed = any(delta.kind is DeltaKind.FAILED for delta in read)
    # What stood in for the perceiver counts like what stands in for the reasoner.
    rungs = {answer.model.rung, *(delta.model.rung for delta in read)}
    lower = bool(rungs - {Rung.PRIMARY, Rung.UNSET})
    return Freshness.DEGRADED if lower or failed else Freshness.FRESH
