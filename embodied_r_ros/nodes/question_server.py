# SPDX-License-Identifier: Apache-2.0
"""Where questions come in: a ROS action with its service twin, and the standing question.

A goal is always accepted, so that its result can say what is wrong with it. It succeeds only
where its result has no error; every other result has an error code and a message. Coroutines wait
for the outcome, which a thread of the queue delivers; the executor is never blocked. Feedback
leaves from that thread too, as the text comes.

The standing question is answered again as new deltas arrive, at most at a given rate. It is a
parameter; the service `set_standing_question` sets that parameter, and its rate, for which 0 means
the one that the node was configured with. It gives way to other questions: it is put only while no
other question waits, and in turns with those of the standing task.
"""

from __future__ import annotations

from dataclasses import dataclass
import time
from typing import Any, TYPE_CHECKING

from action_msgs.srv import CancelGoal
from embodied_r_msgs.action import Ask
from embodied_r_msgs.srv import SetStandingQuestion
from embodied_r_ros.bags.messages import duration_to_msg
from embodied_r_ros.common.errors import ConfigError
from embodied_r_ros.common.settings import setting, Settings
from embodied_r_ros.core.reasoning.question import Question, question_problem, RefusalCode
from embodied_r_ros.core.reasoning.queue import Outcome, Termination
from embodied_r_ros.nodes.topics import ROS_MESSAGES
from embodied_r_ros.nodes.worker import make_future
from rclpy.action import ActionServer, CancelResponse
from rclpy.callback_groups import ReentrantCallbackGroup
from rclpy.parameter import Parameter

if TYPE_CHECKING:
    from collections.abc import Callable

    from embodied_r_ros.core.reasoning.question import Listener, Phase
    from embodied_r_ros.nodes.node_base import ManagedNode
    from rclpy.action.server import ServerGoalHandle

    # Takes a goal or request, and delivers its outcome later; returns what cancels it, and None
    # where it ended at once.
    AskRequest = Callable[[Any, Callable[[Outcome], None], Listener], Any]

_LOOK_S = 0.1
_RESULT_S = 60  # for which a result is kept for whoever asks for it late [s]


class AskingServer:
    """An action `name` and a service `name_once`."""

    def __init__(
        self,
        node: ManagedNode,
        kinds: tuple[type[Any], type[Any]],
        name: str,
        ask: AskRequest,
        fill: Callable[[Any, Any, Outcome], Any],
        cancel: Callable[[Any], None],
    ) -> None:
        """Offer both while the node is configured.

        Args:
            node: The node.
            kinds: Type of the action and of the service.
            name: Name of the action.
            ask: Hands a goal or request to the queue.
            fill: Given the goal or request, fills its result or response, and returns it. It
                calls `fill_ending`.
            cancel: Cancels what `ask` returned.
        """
        self._node = node
        self._action, service = kinds
        self._ask, self._fill, self._cancel = ask, fill, cancel
        self._pending: dict[bytes, Any] = {}  # of goals, by their ids
        self._once: set[Any] = set()  # of requests
        # A coroutine of a service holds its group until it is done.
        group = ReentrantCallbackGroup()
        server = ActionServer(
            node,
            self._action,
            name,
            self._execute,
            cancel_callback=self._accept_cancel,
            callback_group=group,
            result_timeout=_RESULT_S,
        )
        node.while_configured.callback(server.destroy)
        node.serve(service, f'{name}_once', self._answer_once, group)
        self._canceller = node.create_client(
            CancelGoal, f'{name}/_action/cancel_goal', callback_group=group
        )
        node.while_configured.callback(node.destroy_client, self._canceller)

    async def cancel(self) -> int:
        """Cancel every goal, as its client would, and every request; returns how many."""
        for request in self._once:
            self._cancel(request)
        count = len(self._once)
        if self._pending:
            # A request that names no goal means all of them.
            response = await self._canceller.call_async(CancelGoal.Request())
            count += len(response.goals_canceling)
        return count

    async def _execute(self, handle: ServerGoalHandle) -> Any:
        key = bytes(handle.goal_id.uuid)
        outcome_later = make_future(self._node)
        feedback = _Feedback(handle, self._action.Feedback)
        pending = self._put(handle.request, outcome_later.set_result, feedback)
        if pending:
            self._pending[key] = pending
        if pending and handle.is_cancel_requested:
            self._cancel(pending)
        outcome = await outcome_later
        self._pending.pop(key, None)
        result = self._filled(handle.request, self._action.Result, outcome)
        _end(handle, result)
        return result

    async def _answer_once(self, request: Any, response: Any) -> Any:
        outcome_later = make_future(self._node)
        pending = self._put(request, outcome_later.set_result, lambda phase, text: None)
        self._once |= {pending} if pending else set()
        outcome = await outcome_later
        self._once.discard(pending)
        return self._filled(request, type(response), outcome)

    def _put(self, request: Any, deliver: Callable[[Outcome], None], listener: Listener) -> Any:
        """Hand a goal or request to the queue; where that fails, it ends at once."""
        try:
            return self._ask(request, deliver, listener)
        except Exception as error:  # without an outcome its client would learn nothing, or wait
            deliver(self._failed(error))
            return None

    def _filled(self, request: Any, kind: type[Any], outcome: Outcome) -> Any:
        """Make the result or response of an outcome."""
        try:
            return self._fill(request, kind(), outcome)
        except Exception as error:
            return self._fill(request, kind(), self._failed(error))

    def _failed(self, error: Exception) -> Outcome:
        self._node.log_problem(error)
        self._node.note_failure(error)
        text = f'the node failed, see its log: {type(error).__name__}: {error}'
        return Outcome.refusal(Question(''), '', RefusalCode.INTERNAL, text)

    def _accept_cancel(self, handle: ServerGoalHandle) -> CancelResponse:
        pending = self._pending.get(bytes(handle.goal_id.uuid))
        if pending:
            self._cancel(pending)
        return CancelResponse.ACCEPT


class _Feedback:
    """Sends each phase as it begins and each piece of text as it comes."""

    def __init__(self, handle: ServerGoalHandle, kind: type[Any]) -> None:
        self._handle, self._kind = handle, kind
        self._start_ns = time.monotonic_ns()
        self._pieces = 0

    def __call__(self, phase: Phase, text: str) -> None:
        self._pieces += bool(text)
        elapsed = duration_to_msg(ROS_MESSAGES, time.monotonic_ns() - self._start_ns)
        msg = self._kind(phase=phase.value, text=text, elapsed=elapsed)
        if hasattr(msg, 'tokens'):
            msg.tokens = self._pieces
        self._handle.publish_feedback(msg)


_ENDINGS = {
    Termination.CANCELLED: (Ask.Result.ERROR_CANCELLED, 'the question was cancelled'),
    Termination.DEACTIVATED: (Ask.Result.ERROR_NOT_ACTIVE, 'the reasoner was deactivated'),
}


def fill_ending(result: Any, outcome: Outcome) -> None:
    """Fill in how a question ended: error code, message and termination reason."""
    result.error_code, result.error_msg = Ask.Result.ERROR_NONE, outcome.message
    if outcome.code:
        result.error_code = outcome.code.value
    elif not outcome.is_completed:
        result.error_code, result.error_msg = _ENDINGS[outcome.termination]
    result.termination_reason = outcome.termination.value


def _end(handle: ServerGoalHandle, result: Any) -> None:
    """Bring a goal to the state that its result means."""
    if result.error_code == Ask.Result.ERROR_NONE:
        handle.succeed()
    elif result.error_code == Ask.Result.ERROR_CANCELLED and handle.is_cancel_requested:
        handle.canceled()
    else:
        handle.abort()


@dataclass(frozen=True)
class StandingConfig(Settings):
    """Settings of the standing question."""

    standing_question: str = setting(
        '', 'answered again as new deltas arrive; empty: there is none'
    )
    standing_options: tuple[str, ...] = setting(
        ('',), 'options of the standing question; one empty one: a free answer'
    )
    standing_rate_hz: float = setting(
        1.0, 'the standing question is answered at most this often [Hz]', between=(0.01, 10)
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        problem = question_problem(self.standing_question, self.options())
        if self.standing_question and problem:
            msg = f'standing_question: {problem}'
            raise ConfigError(msg)

    def options(self) -> tuple[str, ...]:
        """Options of the question; none: a free answer."""
        return () if self.standing_options == ('',) else self.standing_options


class StandingQuestion:
    """Puts the standing question when a new delta came."""

    def __init__(
        self, node: ManagedNode, is_free: Callable[[], bool], put: Callable[[Question], object]
    ) -> None:
        """Offer the service while the node is configured.

        Args:
            node: The node whose parameters hold the question.
            is_free: Whether nothing else is to be asked now.
            put: Asks the question; its answer is published.
        """
        self._node, self._is_free, self._put = node, is_free, put
        self._news = False
        self._since = 0.0
        self._default_hz = node.parameters.config(StandingConfig).standing_rate_hz
        node.serve(SetStandingQuestion, 'set_standing_question', self._set)

    def start(self) -> None:
        """Look for something new while the node is active."""
        self._news = False
        self._node.every(_LOOK_S, self._look)

    def news(self) -> None:
        """Note a new delta, or a new question."""
        self._news = True

    def _look(self) -> None:
        config = self._node.parameters.config(StandingConfig)
        now = time.monotonic()
        if not (self._news and config.standing_question):
            return
        if now - self._since < 1 / config.standing_rate_hz or not self._is_free():
            return
        self._news, self._since = False, now
        self._put(Question(config.standing_question, config.options(), standing=True))

    def _set(
        self, request: SetStandingQuestion.Request, response: SetStandingQuestion.Response
    ) -> SetStandingQuestion.Response:
        if not self._node.is_active:
            response.error_code = response.ERROR_NOT_ACTIVE
            response.error_msg = 'the reasoner is not active'
            return response
        rate_hz = self._default_hz
        if request.rate_hz:
            rate_hz = float(f'{request.rate_hz:.6g}')  # as it was before it became a float32
        parameters = [
            Parameter('standing_question', value=request.question),
            Parameter('standing_options', value=list(request.options) or ['']),
            Parameter('standing_rate_hz', value=rate_hz),
        ]
        result = self._node.set_parameters_atomically(parameters)
        if not result.successful:
            response.error_code = response.ERROR_BAD_QUESTION
            response.error_msg = result.reason
        return response
