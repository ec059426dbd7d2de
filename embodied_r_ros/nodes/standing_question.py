# SPDX-License-Identifier: Apache-2.0
"""The standing question: answered again as new deltas arrive, at most at a given rate.

It is a parameter; the service `set_standing_question` sets that parameter, and its rate, for which
0 means the one that the node was configured with. It gives way to other questions: it is
put only while no other question waits.
"""

from __future__ import annotations

from dataclasses import dataclass
import time
from typing import TYPE_CHECKING

from embodied_r_msgs.srv import SetStandingQuestion
from embodied_r_ros.common.errors import ConfigError
from embodied_r_ros.common.settings import setting, Settings
from embodied_r_ros.reasoning.question import Question, question_problem
from rclpy.parameter import Parameter

if TYPE_CHECKING:
    from collections.abc import Callable

    from embodied_r_ros.nodes.node_base import ManagedNode

_LOOK_S = 0.1


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
        self, node: ManagedNode, is_idle: Callable[[], bool], put: Callable[[Question], object]
    ) -> None:
        """Offer the service while the node is configured.

        Args:
            node: The node whose parameters hold the question.
            is_idle: Whether no question waits for its answer.
            put: Asks the question; its answer is published.
        """
        self._node, self._is_idle, self._put = node, is_idle, put
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
        if not (self._news and config.standing_question and self._is_idle()):
            return
        if now - self._since < 1 / config.standing_rate_hz:
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
