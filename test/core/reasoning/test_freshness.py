# SPDX-License-Identifier: Apache-2.0
"""No answer is called fresh that is not: clocks that jump, stamps that lie, models that lag."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from embodied_r_ros.core.reasoning.question import (
    age_ns,
    ReasonerConfig,
    Refusal,
    RefusalCode,
    staleness,
)
from embodied_r_ros.core.reasoning.reasoner import Reasoner
from embodied_r_ros.core.types.answers import Freshness
from embodied_r_ros.core.types.deltas import DeltaKind, ModelInfo, Rung, SemanticDelta
import pytest

from test.core.reasoning.test_reasoner import RIGHT, ScriptedClient, SECOND_NS, WHERE

if TYPE_CHECKING:
    from collections.abc import Callable

    from embodied_r_ros.core.types.answers import Answer


def deltas_at(*stamps_s: float) -> list[SemanticDelta]:
    """Deltas with these stamps."""
    return [
        SemanticDelta(
            round(stamp_s * SECOND_NS), DeltaKind.CHANGE, to_id=index, camera=f'c{index}'
        )
        for index, stamp_s in enumerate(stamps_s)
    ]


def ask(deltas: list[SemanticDelta], now_ns: Callable[[], int], stale: str = 'flag') -> Answer:
    reasoner = Reasoner(ScriptedClient(RIGHT), ReasonerConfig(stale=stale))
    return reasoner.answer(WHERE, deltas, answer_id='x', now_ns=now_ns)


class Clock:
    """A clock that jumps while the model speaks: the first look is before, the others after."""

    def __init__(self, before_s: float, after_s: float) -> None:
        self.times = [before_s, after_s]

    def __call__(self) -> int:
        now_s = self.times.pop(0) if len(self.times) > 1 else self.times[0]
        return round(now_s * SECOND_NS)


@pytest.mark.parametrize(
    ('stamp_s', 'now_s', 'why'),
    [
        (10.0, 12.0, ''),
        (10.0, 15.0, ''),
        (10.0, 15.1, 'is 5.1 s old, allowed are 5.0 s'),
        (10.0, 9.6, ''),
        (10.0, 9.4, 'is 0.6 s in the future: synchronise the clocks'),
        (1e9, 12.0, 'in the future'),
        (0.0, 12.0, 'has no stamp: set it in the camera driver'),
        (0.0, 0.0, 'has no stamp'),
        (-3.0, 0.0, 'has no stamp'),
        (0.2, 0.0, 'the time is not known: publish /clock'),
        (12.0, 1.8e9, 'allowed are'),
    ],
)
def test_observation_without_a_known_age_within_the_limit_is_stale(
    stamp_s: float, now_s: float, why: str
) -> None:
    stamp_ns, now_ns = round(stamp_s * SECOND_NS), round(now_s * SECOND_NS)
    told = staleness(stamp_ns, now_ns, 5.0)
    assert why in told
    assert bool(told) == bool(why)
    freshness = ask(deltas_at(stamp_s), lambda: now_ns).freshness
    assert freshness is (Freshness.STALE if why else Freshness.FRESH)
    if why:
        with pytest.raises(Refusal) as refusal:
            ask(deltas_at(stamp_s), lambda: now_ns, stale='refuse')
        assert (refusal.value.code, str(refusal.value)) == (RefusalCode.STALE, told)


def test_age_that_is_not_known_is_told_as_such() -> None:
    assert age_ns(10, 25) == 15
    assert [age_ns(0, 25), age_ns(30, 25)] == [0, 0]


@pytest.mark.parametrize('after_s', [1.0, 40.0, 1.8e9])
def test_clock_that_jumps_while_the_model_speaks_leaves_no_fresh_answer(after_s: float) -> None:
    answer = ask(deltas_at(10.0, 12.0), Clock(12.5, after_s))
    assert answer.freshness is Freshness.STALE


@pytest.mark.parametrize(('lag_s', 'freshness'), [(4.0, Freshness.FRESH), (6.0, Freshness.STALE)])
def test_answer_ages_while_the_model_speaks(lag_s: float, freshness: Freshness) -> None:
    answer = ask(deltas_at(10.0), Clock(10.0, 10.0 + lag_s))
    assert answer.freshness is freshness
    assert answer.observation_age_ns == lag_s * SECOND_NS


@pytest.mark.parametrize(
    'doubtful',
    [
        SemanticDelta(1, DeltaKind.FAILED),
        SemanticDelta(1, DeltaKind.CHANGE, model=ModelInfo('classical', rung=Rung.LOCAL)),
    ],
    ids=['failed', 'stood in'],
)
def test_only_what_is_in_the_prompt_degrades(doubtful: SemanticDelta) -> None:
    lines = [replace(delta, change='a.' * 300, camera='') for delta in deltas_at(*range(1, 13))]
    newest = replace(lines[-1], kind=doubtful.kind, model=doubtful.model)
    reasoner = Reasoner(ScriptedClient(RIGHT), ReasonerConfig(token_budget=200))
    left_out, read = (
        reasoner.answer(WHERE, deltas, answer_id='x', now_ns=lambda: 12 * SECOND_NS)
        for deltas in ([doubtful, *lines], [*lines, newest])
    )
    assert min(left_out.deltas_omitted, read.deltas_omitted) > 0
    assert (left_out.freshness, read.freshness) == (Freshness.FRESH, Freshness.DEGRADED)


def test_one_camera_from_the_future_leaves_no_fresh_answer() -> None:
    assert ask(deltas_at(12.0, 100.0), Clock(12.5, 12.5)).freshness is Freshness.STALE


def test_camera_without_stamps_does_not_hide_one_with_them() -> None:
    answer = ask(deltas_at(12.0, 0.0), Clock(12.5, 12.5))
    assert (answer.observation_stamp_ns, answer.freshness) == (12 * SECOND_NS, Freshness.FRESH)
