# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from dataclasses import replace
import time
from typing import TYPE_CHECKING

from embodied_r_ros.common.errors import CancelledError, ConfigError, DeadlineError, ModelError
from embodied_r_ros.core.chat.fallback import FallbackConfig
from embodied_r_ros.core.chat.protocol import ChatChunk, ChatRequest
from embodied_r_ros.core.reasoning.question import Phase, ReasonerConfig, Refusal, RefusalCode
from embodied_r_ros.core.reasoning.reasoner import chat_fallback, Reasoner
from embodied_r_ros.core.types.answers import Freshness
from embodied_r_ros.core.types.deltas import ModelInfo, Rung
import pytest

from test.core.reasoning.test_reasoner import RIGHT, SECOND_NS, SEEN, WHERE

if TYPE_CHECKING:
    from collections.abc import Iterator
    import threading

    from embodied_r_ros.core.reasoning.reasoner import ChatFallback
    from embodied_r_ros.core.types.answers import Answer

LEFT = '<think>It was left.</think><answer>left</answer>'
SLOW_LOOKS = FallbackConfig(first_wait_s=600.0, longest_wait_s=600.0, patience_s=0.1)


class FakeClient:
    """A fake model: says a fixed completion, fails, or takes all the time that it is given."""

    def __init__(
        self, said: str = RIGHT, error: Exception | None = None, *, hangs: bool = False
    ) -> None:
        self.said, self.error, self.hangs = said, error, hangs
        self.given_s: list[float] = []

    def stream(
        self, request: ChatRequest, deadline_s: float, cancel: threading.Event | None = None
    ) -> Iterator[ChatChunk]:
        self.given_s.append(deadline_s)
        if self.hangs:
            time.sleep(deadline_s)
            msg = 'not done in time'
            raise DeadlineError(msg)
        yield ChatChunk(self.said)
        if self.error:
            raise self.error

    def info(self, deadline_s: float) -> ModelInfo:
        return ModelInfo('second' if self.said == LEFT else 'first')


def fallback_of(*clients: FakeClient) -> ChatFallback:
    rungs = (Rung.PRIMARY, Rung.SECONDARY, Rung.LOCAL)
    made = chat_fallback(dict(zip(rungs, clients, strict=False)), SLOW_LOOKS)
    made.close()  # nothing is looked at again: what failed stays out
    return made


def ask(ladder: ChatFallback, deadline_s: float = 10.0, **options: object) -> Answer:
    return Reasoner(ladder, ReasonerConfig()).answer(
        replace(WHERE, deadline_s=deadline_s),
        SEEN,
        answer_id='x',
        now_ns=lambda: 12 * SECOND_NS,
        **options,  # type: ignore[arg-type]
    )


def test_primary_answers_while_it_can() -> None:
    second = FakeClient(LEFT)
    answer = ask(fallback_of(FakeClient(), second))
    assert (answer.text, answer.model.rung, answer.freshness) == (
        'right',
        Rung.PRIMARY,
        Freshness.FRESH,
    )
    assert second.given_s == []


@pytest.mark.parametrize(
    'broken',
    [
        FakeClient('<think>We', ModelError('killed')),
        FakeClient('I would say so'),
        FakeClient('<think>x</think><answer>up</answer>'),
        FakeClient('', ConfigError('the folder holds no model')),
        FakeClient(hangs=True),
    ],
    ids=['killed', 'no format', 'no option', 'no weights', 'hung'],
)
def test_lower_rung_answers_for_one_that_fails_and_is_named(broken: FakeClient) -> None:
    ladder = fallback_of(broken, FakeClient(LEFT))
    answer = ask(ladder, deadline_s=2.0)
    assert (answer.text, answer.model.rung) == ('left', Rung.SECONDARY)
    assert answer.model.name == 'second'
    assert answer.freshness is Freshness.DEGRADED
    assert list(ladder.problems()) == [Rung.PRIMARY]
    # And the next question does not wait for it again.
    tries = len(broken.given_s)
    assert ask(ladder, deadline_s=2.0).model.rung is Rung.SECONDARY
    assert len(broken.given_s) == tries


def test_time_is_split_over_the_rungs_that_are_left() -> None:
    clients = FakeClient(hangs=True), FakeClient(hangs=True), FakeClient(LEFT)
    start = time.monotonic()
    answer = ask(fallback_of(*clients), deadline_s=1.0)
    assert time.monotonic() - start < 1.0
    assert answer.model.rung is Rung.LOCAL
    assert [round(client.given_s[0], 1) for client in clients[:2]] == [0.5, 0.2]


def test_refusal_of_all_tells_why_of_each_within_the_deadline() -> None:
    ladder = fallback_of(FakeClient('', ModelError('status 500')), FakeClient(hangs=True))
    start = time.monotonic()
    with pytest.raises(Refusal) as refusal:
        ask(ladder, deadline_s=0.5)
    assert 0.4 < time.monotonic() - start < 1.5
    assert refusal.value.code is RefusalCode.DEADLINE
    assert str(refusal.value) == (
        'no model could answer; primary: status 500; secondary: not done in time'
    )
    answer = refusal.value.answer
    assert (answer.model.rung, answer.freshness) == (Rung.REFUSE, Freshness.REFUSED)
    assert 'red tall object' in answer.prompt


def test_refusal_keeps_what_the_model_said() -> None:
    with pytest.raises(Refusal) as refusal:
        ask(fallback_of(FakeClient('I would say so')))
    assert refusal.value.answer.completion == 'I would say so'
    assert refusal.value.answer.model == replace(
        refusal.value.answer.model, rung=Rung.REFUSE, name='first'
    )


def test_where_all_failed_a_question_finds_the_one_that_is_well_again() -> None:
    first, second = FakeClient(error=ModelError('a')), FakeClient(error=ModelError('b'))
    ladder = fallback_of(first, second)
    with pytest.raises(Refusal):
        ask(ladder)
    first.error = None
    assert ask(ladder).model.rung is Rung.PRIMARY


def test_impatient_question_does_not_count_against_a_model() -> None:
    ladder = fallback_of(FakeClient(hangs=True), FakeClient(LEFT))
    assert ask(ladder, deadline_s=0.15).model.rung is Rung.SECONDARY
    assert ladder.problems() == {}


def test_cancel_goes_down_no_rung() -> None:
    second = FakeClient(LEFT)
    ladder = fallback_of(FakeClient('', CancelledError('asked to')), second)
    with pytest.raises(CancelledError):
        ask(ladder)
    assert second.given_s == []
    assert ladder.problems() == {}


def test_listener_is_told_that_another_model_begins_anew() -> None:
    heard: list[tuple[Phase, str]] = []
    ladder = fallback_of(FakeClient('<think>We', ModelError('killed')), FakeClient(LEFT))
    ask(ladder, listener=lambda phase, text: heard.append((phase, text)))
    assert heard == [(Phase.THINK, '<think>We'), (Phase.QUEUED, ''), (Phase.ANSWER, LEFT)]
