# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import time
from typing import TYPE_CHECKING

from embodied_r_ros.common.errors import DeadlineError, ModelError
from embodied_r_ros.core.chat.fallback import FallbackConfig
from embodied_r_ros.core.perception.perceiver import FallbackPerceiver
from embodied_r_ros.core.types.answers import FocusText
from embodied_r_ros.core.types.deltas import DeltaKind, ModelInfo, Rung, SemanticDelta
import pytest

from test.bags.test_messages import keyframe

if TYPE_CHECKING:
    from collections.abc import Sequence

    from embodied_r_ros.core.types.keyframes import Keyframe


class FakePerceiver:
    """Perceives, or fails as told."""

    def __init__(self, rung: Rung, fails: bool = False) -> None:
        self.model, self.fails = ModelInfo(rung.name, rung=rung), fails
        self.asked = self.checks = 0

    def perceive(self, earlier: Keyframe | None, later: Keyframe) -> SemanticDelta:
        self.asked += 1
        kind = DeltaKind.FAILED if self.fails else DeltaKind.CHANGE
        return SemanticDelta(later.stamp_ns, kind, model=self.model, error=self.model.name)

    def focus(
        self, question: str, options: Sequence[str], keyframe: Keyframe, deadline_s: float
    ) -> FocusText:
        if self.fails:
            raise ModelError(self.model.name)
        return FocusText(keyframe.id, keyframe.stamp_ns, self.model.name)

    def check(self, deadline_s: float) -> None:
        self.checks += 1
        if self.fails:
            raise ModelError(self.model.name)

    def info(self) -> ModelInfo:
        return self.model


def fallback_with_failures(first_fails: bool, second_fails: bool = False) -> FallbackPerceiver:
    return fallback_of(
        FakePerceiver(Rung.PRIMARY, first_fails), FakePerceiver(Rung.LOCAL, second_fails)
    )


def fallback_of(*perceivers: FakePerceiver, wait_s: float = 600.0) -> FallbackPerceiver:
    config = FallbackConfig(first_wait_s=wait_s, longest_wait_s=wait_s)
    return FallbackPerceiver({one.model.rung: one for one in perceivers}, config)


def test_first_rung_speaks_while_it_can() -> None:
    perceiver = fallback_with_failures(first_fails=False)
    assert perceiver.perceive(None, keyframe()).model.rung is Rung.PRIMARY
    assert perceiver.focus('what?', (), keyframe(), 1.0).text == 'PRIMARY'
    assert perceiver.stood_in == 0


def test_second_rung_stands_in_and_says_so() -> None:
    perceiver = fallback_with_failures(first_fails=True)
    delta = perceiver.perceive(None, keyframe())
    assert (delta.kind, delta.model.rung) == (DeltaKind.CHANGE, Rung.LOCAL)
    assert perceiver.focus('what?', (), keyframe(), 1.0).text == 'LOCAL'
    assert perceiver.stood_in == 1
    assert perceiver.info().rung is Rung.PRIMARY


def test_failure_of_both_is_the_failure_of_the_first() -> None:
    perceiver = fallback_with_failures(first_fails=True, second_fails=True)
    delta = perceiver.perceive(None, keyframe())
    assert (delta.kind, delta.error) == (DeltaKind.FAILED, 'PRIMARY')
    assert perceiver.stood_in == 0
    with pytest.raises(ModelError, match='LOCAL'):
        perceiver.focus('what?', (), keyframe(), 1.0)


def test_perceiver_that_failed_is_not_asked_until_it_is_well_and_then_climbs_back() -> None:
    first, second = FakePerceiver(Rung.PRIMARY, fails=True), FakePerceiver(Rung.LOCAL)
    perceiver = fallback_of(first, second, wait_s=0.02)
    assert perceiver.perceive(None, keyframe()).model.rung is Rung.LOCAL
    assert perceiver.perceive(None, keyframe()).model.rung is Rung.LOCAL
    assert first.asked == 1
    assert perceiver.problems() == {Rung.PRIMARY: 'PRIMARY'}
    first.fails = False
    end = time.monotonic() + 20
    while perceiver.problems():
        assert time.monotonic() < end
        time.sleep(0.005)
    assert perceiver.perceive(None, keyframe()).model.rung is Rung.PRIMARY
    assert first.checks > 0


def test_three_rungs_are_tried_in_order() -> None:
    rungs = (Rung.LOCAL, Rung.PRIMARY, Rung.SECONDARY)
    perceiver = fallback_of(*(FakePerceiver(rung, rung is not Rung.LOCAL) for rung in rungs))
    assert perceiver.perceive(None, keyframe()).model.rung is Rung.LOCAL
    assert list(perceiver.problems()) == [Rung.PRIMARY, Rung.SECONDARY]
    perceiver.close()


def test_keyframe_that_nobody_can_tell_of_blames_nobody() -> None:
    perceiver = fallback_with_failures(first_fails=True, second_fails=True)
    perceiver.perceive(None, keyframe())
    assert perceiver.problems() == {}


def test_perceiver_that_breaks_in_an_unforeseen_way_is_stood_in_for() -> None:
    class Broken(FakePerceiver):
        def perceive(self, earlier: Keyframe | None, later: Keyframe) -> SemanticDelta:
            raise ZeroDivisionError

    perceiver = fallback_of(Broken(Rung.PRIMARY), FakePerceiver(Rung.LOCAL))
    assert perceiver.perceive(None, keyframe()).model.rung is Rung.LOCAL
    assert perceiver.problems() == {Rung.PRIMARY: 'ZeroDivisionError:'}
    perceiver.close()


def test_look_splits_its_time_over_the_rungs() -> None:
    given: list[float] = []

    class Late(FakePerceiver):
        def focus(
            self, question: str, options: Sequence[str], keyframe: Keyframe, deadline_s: float
        ) -> FocusText:
            given.append(deadline_s)
            msg = 'late'
            raise DeadlineError(msg)

    perceiver = fallback_of(Late(Rung.PRIMARY), Late(Rung.LOCAL))
    with pytest.raises(DeadlineError, match='late'):
        perceiver.focus('what?', (), keyframe(), 10.0)
    assert [round(one) for one in given] == [5, 10]
    assert perceiver.problems() == {}


@pytest.mark.parametrize(('deadline_s', 'to_blame'), [(10.0, True), (1.0, False)])
def test_look_that_is_late_counts_where_the_model_had_time(
    deadline_s: float, to_blame: bool
) -> None:
    class Late(FakePerceiver):
        def focus(
            self, question: str, options: Sequence[str], keyframe: Keyframe, deadline_s: float
        ) -> FocusText:
            msg = 'late'
            raise DeadlineError(msg)

    perceiver = fallback_of(Late(Rung.PRIMARY), FakePerceiver(Rung.LOCAL))
    assert perceiver.focus('what?', (), keyframe(), deadline_s).text == 'LOCAL'
    assert bool(perceiver.problems()) == to_blame
    perceiver.close()


def test_start_takes_the_best_rung_that_answers() -> None:
    class Absent(FakePerceiver):
        def info(self) -> ModelInfo:
            raise ModelError(self.model.name)

    perceiver = fallback_of(Absent(Rung.PRIMARY), FakePerceiver(Rung.LOCAL))
    assert perceiver.start().rung is Rung.LOCAL
    assert perceiver.problems() == {Rung.PRIMARY: 'PRIMARY'}
    perceiver.close()
    with pytest.raises(ModelError, match='PRIMARY; LOCAL'):
        fallback_of(Absent(Rung.PRIMARY), Absent(Rung.LOCAL)).start()
