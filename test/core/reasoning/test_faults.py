# SPDX-License-Identifier: Apache-2.0
"""Model servers that die, hang and lie: real processes, real HTTP, one fault each."""

from __future__ import annotations

from dataclasses import replace
import time
from typing import TYPE_CHECKING

from embodied_r_ros.core.chat.client import HttpChatClient
from embodied_r_ros.core.chat.fallback import FallbackConfig
from embodied_r_ros.core.chat.settings import ChatConfig
from embodied_r_ros.core.reasoning.question import ReasonerConfig, Refusal, RefusalCode
from embodied_r_ros.core.reasoning.reasoner import chat_fallback, models_at_start, Reasoner
from embodied_r_ros.core.types.answers import Freshness
from embodied_r_ros.core.types.deltas import Rung
import pytest

from bench.faulty_server import BEHAVIOURS, FaultyServer
from test.core.reasoning.test_reasoner import SECOND_NS, SEEN, WHERE

if TYPE_CHECKING:
    from collections.abc import Iterator

    from embodied_r_ros.core.reasoning.reasoner import ChatFallback
    from embodied_r_ros.core.types.answers import Answer

LEFT = '<think>It was left.</think><answer>left</answer>'
QUICK = FallbackConfig(
    start='any', first_wait_s=0.1, longest_wait_s=0.4, look_s=1.0, patience_s=0.5
)
TIMEOUT_S = 30.0


@pytest.fixture(scope='module')
def servers() -> Iterator[tuple[FaultyServer, FaultyServer]]:
    """A server that says right and is told to misbehave, and one that says left and is well."""
    with FaultyServer('large') as primary, FaultyServer('small', LEFT) as second:
        yield primary, second


@pytest.fixture
def primary(servers: tuple[FaultyServer, FaultyServer]) -> FaultyServer:
    """The first of them, well again."""
    if not servers[0].is_alive():
        servers[0].start()
    servers[0].behave('well')
    return servers[0]


@pytest.fixture
def fallback(
    primary: FaultyServer, servers: tuple[FaultyServer, FaultyServer]
) -> Iterator[ChatFallback]:
    """Both as rungs."""
    made = chat_fallback({Rung.PRIMARY: client(primary), Rung.LOCAL: client(servers[1])}, QUICK)
    yield made
    made.close()


def client(server: FaultyServer) -> HttpChatClient:
    return HttpChatClient(ChatConfig(server.url, server.name, retries=0))


def ask(fallback: ChatFallback, deadline_s: float = 10.0, now_s: float = 12.5) -> Answer:
    return Reasoner(fallback, ReasonerConfig()).answer(
        replace(WHERE, deadline_s=deadline_s),
        SEEN,
        answer_id='x',
        now_ns=lambda: round(now_s * SECOND_NS),
    )


def climbs_back(fallback: ChatFallback) -> Answer:
    """Ask until the primary answers again."""
    end = time.monotonic() + TIMEOUT_S
    while True:
        answer = ask(fallback)
        if answer.model.rung is Rung.PRIMARY:
            return answer
        assert answer.model.rung is Rung.LOCAL
        assert time.monotonic() < end, fallback.problems()
        time.sleep(0.05)


# How long a question may take that a fault meets; the rung below answers in the rest.
DEADLINES_S = {'hung': 2.0, 'mute': 2.0, 'slow': 2.0}


@pytest.mark.parametrize('fault', [name for name in BEHAVIOURS if name != 'well'])
def test_rung_below_answers_for_a_faulty_server_until_it_is_well_again(
    primary: FaultyServer, fallback: ChatFallback, fault: str
) -> None:
    assert ask(fallback).model.rung is Rung.PRIMARY
    primary.behave(fault)
    deadline_s = DEADLINES_S.get(fault, 10.0)
    start = time.monotonic()
    answer = ask(fallback, deadline_s)
    assert time.monotonic() - start < deadline_s
    assert (answer.text, answer.model.name, answer.model.rung) == ('left', 'small', Rung.LOCAL)
    assert answer.freshness is Freshness.DEGRADED
    if not primary.is_alive():
        primary.start()
    primary.behave('well')
    assert climbs_back(fallback).text == 'right'


def test_server_that_was_killed_is_asked_again_once_it_is_back(
    primary: FaultyServer, fallback: ChatFallback
) -> None:
    primary.kill()
    for _ in range(5):
        assert ask(fallback).model.rung is Rung.LOCAL
    assert 'no model server at' in fallback.problems()[Rung.PRIMARY]
    primary.start()
    assert climbs_back(fallback).model.name == 'large'


def test_server_that_is_absent_at_the_start_climbs_up_when_it_comes(
    primary: FaultyServer, fallback: ChatFallback
) -> None:
    primary.kill()
    assert [model.rung for model in models_at_start(fallback, 5.0)] == [Rung.LOCAL]
    assert ask(fallback).model.rung is Rung.LOCAL
    primary.start()
    assert climbs_back(fallback).model.rung is Rung.PRIMARY


def test_server_that_fails_is_not_asked_more_often_than_its_waits_allow(
    primary: FaultyServer, fallback: ChatFallback
) -> None:
    primary.behave('broken')
    start, before = time.monotonic(), primary.requests()
    while time.monotonic() - start < 1.5:
        assert ask(fallback).model.rung is Rung.LOCAL
    # After the first failure: looks at 0.1, 0.3, 0.7, 1.1, 1.5 s, and one on the way.
    assert 2 <= primary.requests() - before <= 7


def test_where_every_server_fails_the_refusal_says_why_of_each(
    primary: FaultyServer, fallback: ChatFallback
) -> None:
    primary.behave('babbling')
    absent = HttpChatClient(ChatConfig('http://127.0.0.1:9', retries=0))
    rungs = chat_fallback({Rung.PRIMARY: client(primary), Rung.LOCAL: absent}, QUICK)
    with pytest.raises(Refusal) as refusal:
        ask(rungs)
    rungs.close()
    assert refusal.value.code is RefusalCode.MODEL
    assert 'primary: the completion is not' in str(refusal.value)
    assert 'local: no model server at http://127.0.0.1:9' in str(refusal.value)
    assert refusal.value.answer.model.rung is Rung.REFUSE
    assert refusal.value.answer.freshness is Freshness.REFUSED


def test_clock_of_the_model_host_is_not_believed(
    primary: FaultyServer, fallback: ChatFallback
) -> None:
    """The server says that it is the year 2100."""
    assert ask(fallback).freshness is Freshness.FRESH
    assert ask(fallback).observation_age_ns == SECOND_NS / 2
    assert ask(fallback, now_s=60.0).freshness is Freshness.STALE


def test_all_servers_hung_end_in_a_refusal_within_the_deadline(
    primary: FaultyServer,
) -> None:
    primary.behave('hung')
    rungs = chat_fallback({Rung.PRIMARY: client(primary), Rung.LOCAL: client(primary)}, QUICK)
    start = time.monotonic()
    with pytest.raises(Refusal) as refusal:
        ask(rungs, deadline_s=1.0)
    rungs.close()
    assert time.monotonic() - start < 2.0
    assert refusal.value.code is RefusalCode.DEADLINE
