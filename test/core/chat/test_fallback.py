# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from contextlib import suppress
import gc
import threading
import time
from weakref import ref

from embodied_r_ros.common.errors import ConfigError, ModelError
from embodied_r_ros.core.chat.fallback import Fallback, FallbackConfig, FallbackStep, NoReplyError
from embodied_r_ros.core.types.deltas import Rung
import pytest

TIMEOUT_S = 20.0
QUICK = FallbackConfig(first_wait_s=0.02, longest_wait_s=0.1, look_s=1.0)


class Looks:
    """Looks at models, which are well or ill by name; remembers when."""

    def __init__(self) -> None:
        self.ill: set[str] = set()
        self.times: list[float] = []
        self.changed = threading.Condition()

    def __call__(self, model: str, timeout_s: float) -> None:
        with self.changed:
            self.times.append(time.monotonic())
            self.changed.notify_all()
            if model in self.ill:
                msg = f'{model} is still ill'
                raise ModelError(msg)

    def wait(self, count: int) -> None:
        with self.changed:
            assert self.changed.wait_for(lambda: len(self.times) >= count, TIMEOUT_S)


def fallback_of(looks: Looks, config: FallbackConfig = QUICK, *names: str) -> Fallback[str]:
    rungs = (Rung.PRIMARY, Rung.SECONDARY, Rung.LOCAL)
    names = names or ('first', 'second', 'third')
    return Fallback(
        [FallbackStep(r, n) for r, n in zip(rungs, names, strict=False)], looks, config
    )


def order(ladder: Fallback[str]) -> list[str]:
    return [step.model for step in ladder.order()]


def threads() -> set[threading.Thread]:
    return {thread for thread in threading.enumerate() if thread.name == 'fallback'}


def wait_until_up(ladder: Fallback[str]) -> None:
    end = time.monotonic() + TIMEOUT_S
    while ladder.problems():
        assert time.monotonic() < end, ladder.problems()
        time.sleep(0.005)


def test_what_failed_is_left_out_and_climbs_back_once_it_is_well() -> None:
    looks = Looks()
    looks.ill = {'first'}
    ladder = fallback_of(looks)
    ladder.note_failure(ladder.steps[0], 'no\n  reply')
    assert order(ladder) == ['second', 'third']
    assert ladder.problems() == {Rung.PRIMARY: 'no reply'}
    looks.wait(2)
    assert order(ladder) == ['second', 'third']
    assert ladder.problems() == {Rung.PRIMARY: 'first is still ill'}
    looks.ill = set()
    wait_until_up(ladder)
    assert order(ladder) == ['first', 'second', 'third']


def test_model_that_had_less_time_than_our_patience_is_not_to_blame() -> None:
    looks = Looks()
    looks.ill = {'first'}
    ladder = fallback_of(looks)
    for late_after_s, best in ((QUICK.patience_s - 0.1, 'first'), (QUICK.patience_s, 'second')):
        ladder.note_failure(ladder.steps[0], 'late', late_after_s)
        assert order(ladder)[0] == best
    ladder.close()


def test_each_leaves_half_of_the_time_to_those_below_it() -> None:
    shares = [left_s for _, left_s in fallback_of(Looks()).turns(1000.0)]
    assert shares == pytest.approx([500.0, 500.0, 1000.0], abs=10.0)


def test_where_nothing_works_all_are_asked() -> None:
    looks = Looks()
    looks.ill = {'first', 'second', 'third'}
    ladder = fallback_of(looks)
    for step in ladder.steps:
        ladder.note_failure(step, 'gone')
    assert order(ladder) == ['first', 'second', 'third']
    ladder.note_success(ladder.steps[1])
    assert order(ladder) == ['second']
    ladder.close()


def test_waits_between_looks_double_up_to_their_bound() -> None:
    looks = Looks()
    looks.ill = {'first'}
    ladder = fallback_of(looks, FallbackConfig(first_wait_s=0.04, longest_wait_s=0.16))
    ladder.note_failure(ladder.steps[0], 'gone')
    looks.wait(5)
    ladder.close()
    gaps = [b - a for a, b in zip(looks.times, looks.times[1:], strict=False)][:4]
    # Waits of 0.08, 0.16, 0.16, 0.16: each at least so long, and none beyond the bound by much.
    for gap, least in zip(gaps, (0.08, 0.16, 0.16, 0.16), strict=True):
        assert gap >= least - 0.005


def test_rung_that_passes_the_look_and_fails_at_the_work_is_tried_less_and_less() -> None:
    looks = Looks()
    ladder = fallback_of(looks, FallbackConfig(first_wait_s=0.05, longest_wait_s=10.0))
    failed: list[float] = []
    for _ in range(3):
        failed.append(time.monotonic())
        ladder.note_failure(ladder.steps[0], 'no answer')
        wait_until_up(ladder)
    waits = [look - fail for look, fail in zip(looks.times, failed, strict=True)]
    for wait, least in zip(waits, (0.05, 0.1, 0.2), strict=True):
        assert wait >= least - 0.005
    ladder.note_success(ladder.steps[0])
    ladder.note_failure(ladder.steps[0], 'no answer')
    assert ladder._states[Rung.PRIMARY].failures == 1
    ladder.close()


def test_failures_at_the_same_time_count_once() -> None:
    ladder = fallback_of(Looks(), FallbackConfig(first_wait_s=5.0))
    for _ in range(4):
        ladder.note_failure(ladder.steps[0], 'gone')
    assert ladder._states[Rung.PRIMARY].failures == 1
    ladder.close()


def test_look_that_breaks_in_an_unforeseen_way_is_survived() -> None:
    calls = threading.Semaphore(0)

    def fail_to_answer(model: str, timeout_s: float) -> None:
        calls.release()
        raise ZeroDivisionError

    ladder = Fallback(
        [FallbackStep(Rung.PRIMARY, 'a'), FallbackStep(Rung.LOCAL, 'b')], fail_to_answer, QUICK
    )
    ladder.note_failure(ladder.steps[0], 'gone')
    assert calls.acquire(timeout=TIMEOUT_S)
    assert calls.acquire(timeout=TIMEOUT_S)
    assert ladder.problems() == {Rung.PRIMARY: 'ZeroDivisionError'}
    ladder.close()


def test_only_rung_is_never_looked_at() -> None:
    before = threads()
    ladder = fallback_of(Looks(), QUICK, 'only')
    ladder.note_failure(ladder.steps[0], 'gone')
    assert order(ladder) == ['only']
    assert threads() <= before


@pytest.mark.parametrize('ending', ['closed', 'all well'])
def test_no_thread_is_left_behind(ending: str) -> None:
    before = threads()
    looks = Looks()
    looks.ill = {'first'} if ending == 'closed' else set()
    ladder = fallback_of(looks)
    ladder.note_failure(ladder.steps[0], 'gone')
    looks.wait(1)
    if ending == 'closed':
        ladder.close()
    end = time.monotonic() + TIMEOUT_S
    while not threads() <= before:
        assert time.monotonic() < end
        time.sleep(0.005)


def test_bound_below_the_first_wait_is_refused() -> None:
    with pytest.raises(ConfigError, match=r'longest_wait_s is 0\.1: expected at least'):
        FallbackConfig(first_wait_s=1.0, longest_wait_s=0.1)


@pytest.mark.parametrize('works', [False, True])
def test_what_was_asked_is_not_kept_by_the_reasons_why_nobody_replied(*, works: bool) -> None:
    asked: list[ref[set[int]]] = []

    def attempt(step: FallbackStep[str], given_s: float) -> str:
        del given_s
        scene = {1}
        asked.append(ref(scene))
        if works and step.model == 'second':
            return 'reply'
        msg = f'{step.model} is ill'
        raise ModelError(msg)

    ladder = fallback_of(Looks(), QUICK, 'first', 'second')
    gc.collect()
    gc.disable()
    try:
        with suppress(NoReplyError):
            ladder.ask(attempt, errors=ModelError)
        assert len(asked) == 2
        assert [one() for one in asked] == [None, None]
    finally:
        gc.enable()
        ladder.close()
