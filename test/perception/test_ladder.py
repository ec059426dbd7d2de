# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from typing import TYPE_CHECKING

from embodied_r_ros.answers import FocusText
from embodied_r_ros.deltas import DeltaKind, ModelInfo, Rung, SemanticDelta
from embodied_r_ros.errors import ModelError
from embodied_r_ros.perception.ladder import LadderPerceiver
import pytest

from test.test_conversions import keyframe

if TYPE_CHECKING:
    from collections.abc import Sequence

    from embodied_r_ros.keyframes import Keyframe


class FakePerceiver:
    """Perceives, or fails as told."""

    def __init__(self, rung: Rung, fails: bool = False) -> None:
        self.model, self.fails = ModelInfo(rung.name, rung=rung), fails

    def perceive(self, earlier: Keyframe | None, later: Keyframe) -> SemanticDelta:
        kind = DeltaKind.FAILED if self.fails else DeltaKind.CHANGE
        return SemanticDelta(later.stamp_ns, kind, model=self.model, error=self.model.name)

    def focus(
        self, question: str, options: Sequence[str], keyframe: Keyframe, deadline_s: float
    ) -> FocusText:
        if self.fails:
            raise ModelError(self.model.name)
        return FocusText(keyframe.id, keyframe.stamp_ns, self.model.name)

    def info(self) -> ModelInfo:
        return self.model


def ladder(first_fails: bool, second_fails: bool = False) -> LadderPerceiver:
    first = FakePerceiver(Rung.PRIMARY, first_fails)
    return LadderPerceiver(first, FakePerceiver(Rung.LOCAL, second_fails))


def test_first_rung_speaks_while_it_can() -> None:
    perceiver = ladder(first_fails=False)
    assert perceiver.perceive(None, keyframe()).model.rung is Rung.PRIMARY
    assert perceiver.focus('what?', (), keyframe(), 1.0).text == 'PRIMARY'
    assert perceiver.stood_in == 0


def test_second_rung_stands_in_and_says_so() -> None:
    perceiver = ladder(first_fails=True)
    delta = perceiver.perceive(None, keyframe())
    assert (delta.kind, delta.model.rung) == (DeltaKind.CHANGE, Rung.LOCAL)
    assert perceiver.focus('what?', (), keyframe(), 1.0).text == 'LOCAL'
    assert perceiver.stood_in == 1
    assert perceiver.info().rung is Rung.PRIMARY


def test_failure_of_both_is_the_failure_of_the_first() -> None:
    perceiver = ladder(first_fails=True, second_fails=True)
    delta = perceiver.perceive(None, keyframe())
    assert (delta.kind, delta.error) == (DeltaKind.FAILED, 'PRIMARY')
    assert perceiver.stood_in == 0
    with pytest.raises(ModelError, match='LOCAL'):
        perceiver.focus('what?', (), keyframe(), 1.0)
