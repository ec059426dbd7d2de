# SPDX-License-Identifier: Apache-2.0
"""Answering many askers: a few questions at once, a few in line, the rest turned away.

Each accepted question has a thread of its own, so that its deadline and its cancellation count
while it waits in line too. Whatever happens, every question ends with exactly one `Outcome`. Who
is delivered one may ask one more question at once. It takes over the place of the one that ends,
before whatever is in line, and is not turned away.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum
import threading
import time
from typing import TYPE_CHECKING

from embodied_r_ros.common.errors import CancelledError
from embodied_r_ros.common.settings import setting, Settings
from embodied_r_ros.core.reasoning.question import Phase, Refusal, RefusalCode
from embodied_r_ros.core.types.answers import Answer, Freshness
from embodied_r_ros.core.types.geometry import NS_PER_S

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from embodied_r_ros.core.reasoning.question import Listener, Question
    from embodied_r_ros.core.reasoning.reasoner import Reasoner
    from embodied_r_ros.core.types.deltas import SemanticDelta


@dataclass(frozen=True)
class QueueConfig(Settings):
    """How many questions are taken."""

    at_once: int = setting(
        1, 'questions answered at the same time', between=(1, 64), read_only=True
    )
    in_line: int = setting(
        4,
        'questions that may wait; more are turned away as busy',
        between=(0, 1000),
        read_only=True,
    )


class Termination(Enum):
    """Why a question ended (action Ask, TERMINATION_ constants)."""

    COMPLETED = 'completed'
    CANCELLED = 'cancelled'
    DEADLINE = 'deadline'
    DEACTIVATED = 'node_deactivated'
    REFUSED = 'refused'
    ERROR = 'error'


_TERMINATIONS = {
    RefusalCode.DEADLINE: Termination.DEADLINE,
    RefusalCode.MODEL: Termination.ERROR,
    RefusalCode.FORMAT: Termination.ERROR,
    RefusalCode.INTERNAL: Termination.ERROR,
}


@dataclass(frozen=True)
class Outcome:
    """How a question ended."""

    termination: Termination
    answer: Answer  # with freshness REFUSED where there is none
    code: RefusalCode | None = None  # None: no error
    message: str = ''  # what went wrong and what to do

    @classmethod
    def refusal(
        cls, question: Question, answer_id: str, code: RefusalCode, message: str
    ) -> Outcome:
        """The end of a question that was not answered."""
        termination = _TERMINATIONS.get(code, Termination.REFUSED)
        return cls(termination, question.unanswered(answer_id), code, message)

    @property
    def is_completed(self) -> bool:
        """Whether there is an answer."""
        return self.termination is Termination.COMPLETED


class QueuedQuestion:
    """A question that was accepted."""

    def __init__(self, question: Question, answer_id: str) -> None:
        self.question = question
        self.answer_id = answer_id
        self.cancelled = threading.Event()
        self.reason = Termination.CANCELLED

    def refusal(self, code: RefusalCode, message: str) -> Outcome:
        """The end of this question without an answer."""
        return Outcome.refusal(self.question, self.answer_id, code, message)

    def cancellation(self) -> Outcome:
        """The end of this question by its cancellation."""
        return Outcome(self.reason, self.question.unanswered(self.answer_id))

    def cancel(self, reason: Termination = Termination.CANCELLED) -> None:
        """End the question soon; the first reason counts."""
        if not self.cancelled.is_set():
            self.reason = reason
            self.cancelled.set()


class QuestionQueue:
    """Takes questions from several threads and has a reasoner answer them."""

    def __init__(
        self,
        reasoner: Reasoner,
        deltas: Callable[[], Sequence[SemanticDelta]],
        now_ns: Callable[[], int],
        config: QueueConfig,
        deadline_s: float,
        *,
        is_open: bool = True,
    ) -> None:
        """Create the queue.

        Args:
            reasoner: What answers.
            deltas: Gives the deltas at the moment a question's turn comes.
            now_ns: Gives the time in the clock of the image stamps [ns].
            config: How many questions are taken.
            deadline_s: Deadline of a question that names none [s].
            is_open: Whether it takes questions; otherwise it refuses each as not active.
        """
        self.turned_away = 0
        self._reasoner = reasoner
        self._deltas = deltas
        self._now_ns = now_ns
        self._config = config
        self._deadline_s = deadline_s
        # In order of arrival; the first ones have their turn.
        self._requests: list[QueuedQuestion] = []
        self._is_closed = not is_open
        self._changed = threading.Condition()
        self._delivery = threading.local()  # its `request`: whose end the thread delivers

    def ask(
        self,
        question: Question,
        answer_id: str,
        deliver: Callable[[Outcome], None],
        listener: Listener = lambda phase, text: None,
    ) -> QueuedQuestion:
        """Take a question and call `deliver` once: from another thread, or before this returns.

        From within `deliver` it follows the question that ends there (see the module).
        """
        request = QueuedQuestion(question, answer_id)
        with self._changed:
            place = self._place()
            is_full = place is None
            is_closed = self._is_closed
            if place is not None and not is_closed:
                self._requests.insert(place, request)
            self.turned_away += is_full
        if is_closed:
            deliver(request.refusal(RefusalCode.NOT_ACTIVE, 'the reasoner is not active'))
        elif is_full:
            text = (
                f'{len(self._requests)} questions are being answered or in line: ask again later'
            )
            deliver(request.refusal(RefusalCode.BUSY, text))
        else:
            arguments = (request, deliver, listener)
            threading.Thread(target=self._serve, args=arguments, daemon=True).start()
        return request

    def reconfigure(self, reasoner: Reasoner, deadline_s: float) -> None:
        """Have another reasoner answer, from the next question on."""
        self._reasoner, self._deadline_s = reasoner, deadline_s

    def pending(self) -> int:
        """Questions that are being answered or in line."""
        with self._changed:
            return len(self._requests)

    def cancel_all(self, reason: Termination = Termination.CANCELLED) -> int:
        """Cancel every question; returns how many there were."""
        with self._changed:
            for request in self._requests:
                self.cancel(request, reason)
            return len(self._requests)

    def cancel(self, request: QueuedQuestion, reason: Termination = Termination.CANCELLED) -> None:
        """Cancel a question, also while it is in line."""
        request.cancel(reason)
        with self._changed:
            self._changed.notify_all()

    def close(self, reason: Termination, timeout_s: float = 3.0) -> bool:
        """Take no more questions and end those that are there.

        Returns:
            False where one was still running after `timeout_s`.
        """
        with self._changed:
            self._is_closed = True
        self.cancel_all(reason)
        with self._changed:
            return self._changed.wait_for(lambda: not self._requests, timeout_s)

    def _serve(
        self, request: QueuedQuestion, deliver: Callable[[Outcome], None], listener: Listener
    ) -> None:
        try:
            outcome = self._outcome(request, listener)
        except Exception as error:  # whatever it was, the asker must hear of it
            text = f'the reasoner failed: {type(error).__name__}: {error}'
            outcome = request.refusal(RefusalCode.MODEL, text)
        self._delivery.request = request
        try:
            deliver(outcome)
        finally:
            with self._changed:
                self._requests.remove(request)
                self._changed.notify_all()

    def _place(self) -> int | None:
        """Where the next question of this thread comes in the line; None: it is full."""
        before = getattr(self._delivery, 'request', None)
        if before is not None:
            self._delivery.request = None  # one question follows
            return self._requests.index(before) + 1
        count = len(self._requests)
        return count if count < self._config.at_once + self._config.in_line else None

    def _outcome(self, request: QueuedQuestion, listener: Listener) -> Outcome:
        arrived_ns = time.monotonic_ns()
        deadline_s = request.question.deadline_s or self._deadline_s
        listener(Phase.QUEUED, '')
        self._await_turn(request, deadline_s)
        if request.cancelled.is_set():
            return request.cancellation()
        wait_ns = time.monotonic_ns() - arrived_ns
        left_s = deadline_s - wait_ns / NS_PER_S
        if left_s <= 0:
            text = f'still in line after {deadline_s:.1f} s: ask later, or raise deadline_s'
            return request.refusal(RefusalCode.DEADLINE, text)
        question = replace(request.question, deadline_s=left_s)
        deltas = self._deltas()
        try:
            answer = self._reasoner.answer(
                question,
                deltas,
                answer_id=request.answer_id,
                now_ns=self._now_ns,
                listener=listener,
                cancel=request.cancelled,
            )
        except CancelledError:
            return request.cancellation()
        except Refusal as refusal:
            termination = _TERMINATIONS.get(refusal.code, Termination.REFUSED)
            return Outcome(termination, refusal.answer, refusal.code, str(refusal))
        if self._has_forgotten(deltas):
            answer = replace(answer, freshness=Freshness.STALE)
        return Outcome(Termination.COMPLETED, answer.after_wait(wait_ns))

    def _has_forgotten(self, deltas: Sequence[SemanticDelta]) -> bool:
        """Tell whether the deltas were forgotten since: time jumped, or an episode began."""
        # A delta that was seen to hold since then is a copy with the same motion.
        return bool(deltas) and not any(
            delta.motion is deltas[-1].motion for delta in reversed(self._deltas())
        )

    def _await_turn(self, request: QueuedQuestion, timeout_s: float) -> None:
        with self._changed:
            self._changed.wait_for(
                lambda: (
                    request.cancelled.is_set() or request in self._requests[: self._config.at_once]
                ),
                timeout_s,
            )
