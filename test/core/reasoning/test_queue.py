# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import threading
import time
from typing import Any

from embodied_r_ros.common.errors import CancelledError
from embodied_r_ros.core.reasoning.question import Phase, Question, Refusal, RefusalCode
from embodied_r_ros.core.reasoning.queue import Outcome, QuestionQueue, QueueConfig, Termination
from embodied_r_ros.core.types.answers import Answer, AnswerKind, Freshness
from embodied_r_ros.core.types.deltas import DeltaKind, SemanticDelta
import pytest

TIMEOUT_S = 20.0


class FakeReasoner:
    """Answers when let go, refuses or fails as told, and ends when cancelled."""

    def __init__(self) -> None:
        self.go = threading.Event()
        self.asked: list[Question] = []
        self.error: Exception | None = None
        self.started = threading.Semaphore(0)

    def answer(self, question: Question, deltas: Any, **options: Any) -> Answer:
        self.asked.append(question)
        self.started.release()
        while not self.go.wait(0.005):
            if options['cancel'].is_set():
                msg = 'cancelled'
                raise CancelledError(msg)
        if self.error:
            raise self.error
        answer_id = options['answer_id']
        fresh = Freshness.FRESH
        return Answer(
            answer_id, question.text, AnswerKind.TEXT, text='yes', latency_ns=5, freshness=fresh
        )


class Asker:
    """Remembers how its questions ended."""

    def __init__(self, reasoner: FakeReasoner, **settings: int) -> None:
        config = QueueConfig(**settings)
        self.seen: tuple[SemanticDelta, ...] = ()
        self.queue = QuestionQueue(reasoner, lambda: self.seen, lambda: 0, config, 10.0)  # type: ignore[arg-type]
        self.outcomes: dict[str, Outcome] = {}
        self.phases: list[Phase] = []
        self.changed = threading.Condition()

    def ask(self, text: str, **fields: Any) -> Any:
        def done(outcome: Outcome) -> None:
            with self.changed:
                assert text not in self.outcomes
                self.outcomes[text] = outcome
                self.changed.notify_all()

        question = Question(text, **fields)
        return self.queue.ask(
            question, f'id-{text}', done, lambda phase, _: self.phases.append(phase)
        )

    def outcome(self, text: str) -> Outcome:
        with self.changed:
            assert self.changed.wait_for(lambda: text in self.outcomes, TIMEOUT_S), text
            return self.outcomes[text]


@pytest.fixture
def reasoner() -> FakeReasoner:
    return FakeReasoner()


def test_question_is_answered(reasoner: FakeReasoner) -> None:
    reasoner.go.set()
    asker = Asker(reasoner)
    asker.ask('a')
    outcome = asker.outcome('a')
    assert (outcome.termination, outcome.code) == (Termination.COMPLETED, None)
    assert (outcome.answer.id, outcome.answer.text) == ('id-a', 'yes')
    assert asker.phases == [Phase.QUEUED]


def test_a_queue_may_begin_closed(reasoner: FakeReasoner) -> None:
    ended: list[Outcome] = []
    queue = QuestionQueue(reasoner, tuple, lambda: 0, QueueConfig(), 10.0, is_open=False)  # type: ignore[arg-type]
    queue.ask(Question('a'), 'id', ended.append)
    assert [outcome.code for outcome in ended] == [RefusalCode.NOT_ACTIVE]
    assert reasoner.asked == []


def test_questions_wait_in_line_and_are_answered_in_order(reasoner: FakeReasoner) -> None:
    asker = Asker(reasoner, at_once=1, in_line=3)
    for text in 'abc':
        asker.ask(text)
    assert reasoner.started.acquire(timeout=TIMEOUT_S)
    assert [question.text for question in reasoner.asked] == ['a']
    reasoner.go.set()
    for text in 'abc':
        assert asker.outcome(text).termination is Termination.COMPLETED
    assert [question.text for question in reasoner.asked] == ['a', 'b', 'c']


def test_waiting_takes_from_the_deadline_and_adds_to_the_latency(reasoner: FakeReasoner) -> None:
    asker = Asker(reasoner)
    asker.ask('a')
    asker.ask('b', deadline_s=5.0)
    assert reasoner.started.acquire(timeout=TIMEOUT_S)
    threading.Timer(0.2, reasoner.go.set).start()
    answer = asker.outcome('b').answer
    assert answer.latency_ns > answer.wait_ns > 150_000_000
    assert answer.latency_ns - answer.wait_ns == 5  # of the reasoner itself
    assert 0 < reasoner.asked[1].deadline_s < 4.85


def test_two_are_answered_at_once(reasoner: FakeReasoner) -> None:
    asker = Asker(reasoner, at_once=2)
    asker.ask('a')
    asker.ask('b')
    assert reasoner.started.acquire(timeout=TIMEOUT_S)
    assert reasoner.started.acquire(timeout=TIMEOUT_S)
    reasoner.go.set()
    asker.outcome('a')
    asker.outcome('b')


def test_full_line_turns_away(reasoner: FakeReasoner) -> None:
    asker = Asker(reasoner, at_once=1, in_line=1)
    for text in 'abc':
        asker.ask(text)
    outcome = asker.outcome('c')
    assert (outcome.termination, outcome.code) == (Termination.REFUSED, RefusalCode.BUSY)
    assert outcome.answer.freshness is Freshness.REFUSED
    assert asker.queue.turned_away == 1
    reasoner.go.set()


@pytest.mark.parametrize('in_line', [0, 1])
def test_what_is_asked_on_at_the_end_of_a_question_takes_its_place(
    reasoner: FakeReasoner, in_line: int
) -> None:
    asker = Asker(reasoner, at_once=1, in_line=in_line)
    counts: list[int] = []

    def ask_on(outcome: Outcome) -> None:
        counts.append(asker.queue.pending())
        asker.ask('then')
        asker.ask('and then')  # one alone follows

    asker.queue.ask(Question('first'), 'id-first', ask_on)
    assert reasoner.started.acquire(timeout=TIMEOUT_S)
    for index in range(in_line):
        asker.ask(f'waiting {index}')
    reasoner.go.set()
    assert asker.outcome('then').termination is Termination.COMPLETED
    assert asker.outcome('and then').code is RefusalCode.BUSY
    assert asker.queue.turned_away == 1
    assert counts == [1 + in_line]  # it is not idle in between


def test_what_is_asked_on_comes_before_what_is_in_line(reasoner: FakeReasoner) -> None:
    asker = Asker(reasoner, at_once=1, in_line=1)
    asker.queue.ask(Question('first'), 'id-first', lambda outcome: asker.ask('then'))
    assert reasoner.started.acquire(timeout=TIMEOUT_S)
    asker.ask('waiting')
    reasoner.go.set()
    asker.outcome('waiting')
    assert [question.text for question in reasoner.asked] == ['first', 'then', 'waiting']
    assert not asker.queue.turned_away


def test_cancelled_question_ends_soon(reasoner: FakeReasoner) -> None:
    asker = Asker(reasoner)
    ticket = asker.ask('a')
    assert reasoner.started.acquire(timeout=TIMEOUT_S)
    asker.queue.cancel(ticket)
    outcome = asker.outcome('a')
    assert (outcome.termination, outcome.code) == (Termination.CANCELLED, None)


def test_question_in_line_is_cancelled_without_its_turn(reasoner: FakeReasoner) -> None:
    asker = Asker(reasoner)
    asker.ask('a')
    ticket = asker.ask('b')
    asker.queue.cancel(ticket)
    assert asker.outcome('b').termination is Termination.CANCELLED
    assert 'a' not in asker.outcomes
    reasoner.go.set()
    asker.outcome('a')


def test_deadline_counts_in_line_too(reasoner: FakeReasoner) -> None:
    asker = Asker(reasoner)
    asker.ask('a')
    start = time.monotonic()
    asker.ask('b', deadline_s=0.1)
    outcome = asker.outcome('b')
    assert (outcome.termination, outcome.code) == (Termination.DEADLINE, RefusalCode.DEADLINE)
    assert time.monotonic() - start < 5
    reasoner.go.set()
    asker.outcome('a')


@pytest.mark.parametrize(
    ('code', 'termination'),
    [
        (RefusalCode.NO_OBSERVATION, Termination.REFUSED),
        (RefusalCode.DEADLINE, Termination.DEADLINE),
        (RefusalCode.MODEL, Termination.ERROR),
        (RefusalCode.FORMAT, Termination.ERROR),
    ],
)
def test_refusal_keeps_its_code_message_and_answer(
    reasoner: FakeReasoner, code: RefusalCode, termination: Termination
) -> None:
    draft = Answer('id-a', 'a', AnswerKind.UNKNOWN, prompt='what was seen')
    reasoner.error = Refusal(code, 'why not', draft)
    reasoner.go.set()
    asker = Asker(reasoner)
    asker.ask('a')
    assert asker.outcome('a') == Outcome(termination, draft, code, 'why not')


def test_bug_in_the_reasoner_is_told_to_the_asker(reasoner: FakeReasoner) -> None:
    reasoner.error = ZeroDivisionError('a bug')
    reasoner.go.set()
    asker = Asker(reasoner)
    asker.ask('a')
    outcome = asker.outcome('a')
    assert outcome.termination is Termination.ERROR
    assert 'ZeroDivisionError: a bug' in outcome.message
    reasoner.error = None
    asker.ask('b')
    assert asker.outcome('b').termination is Termination.COMPLETED


def test_closing_ends_everyone_with_the_reason_and_takes_no_more(reasoner: FakeReasoner) -> None:
    asker = Asker(reasoner)
    asker.ask('a')
    asker.ask('b')
    assert asker.queue.close(Termination.DEACTIVATED, TIMEOUT_S)
    assert asker.outcome('a').termination is Termination.DEACTIVATED
    assert asker.outcome('b').termination is Termination.DEACTIVATED
    asker.ask('c')
    assert asker.outcome('c').code is RefusalCode.NOT_ACTIVE
    assert asker.queue.pending() == 0


@pytest.mark.parametrize(
    ('then', 'freshness'),
    [('forgotten', Freshness.STALE), ('new', Freshness.STALE), ('more', Freshness.FRESH)],
)
def test_answer_about_what_was_forgotten_meanwhile_is_not_fresh(
    reasoner: FakeReasoner, then: str, freshness: Freshness
) -> None:
    asker = Asker(reasoner)
    before, after = (SemanticDelta(1, DeltaKind.CHANGE) for _ in range(2))
    asker.seen = (before,)
    asker.ask('a')
    assert reasoner.started.acquire(timeout=TIMEOUT_S)
    asker.seen = {'forgotten': (), 'new': (after,), 'more': (before, after)}[then]
    reasoner.go.set()
    assert asker.outcome('a').answer.freshness is freshness
