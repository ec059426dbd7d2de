# SPDX-License-Identifier: Apache-2.0
"""A question goes down the ladder of models until one of them gives an answer that can be read."""

from __future__ import annotations

from dataclasses import replace
import time
from typing import TYPE_CHECKING

from embodied_r_ros.answers import Freshness
from embodied_r_ros.deltas import ModelInfo, Rung
from embodied_r_ros.models.chat import ChatClient, see_that_it_speaks
from embodied_r_ros.models.ladder import Ladder, LadderConfig, Step
from embodied_r_ros.reasoning.asking import Refusal, RefusalCode

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from embodied_r_ros.answers import Answer

_NS = 1_000_000_000

ChatStep = Step[ChatClient]
ChatLadder = Ladder[ChatClient]


def chat_ladder(clients: dict[Rung, ChatClient], config: LadderConfig | None = None) -> ChatLadder:
    """Ladder of the clients of several rungs, the best of which is the lowest number."""
    steps = [Step(rung, clients[rung]) for rung in sorted(clients, key=lambda r: r.value)]
    return Ladder(steps, see_that_it_speaks, config or LadderConfig())


def model_of(step: ChatStep, deadline_s: float) -> ModelInfo:
    """Which model stands on a step, with its rung.

    Raises:
        ModelError: Its server is not reachable or serves another model.
    """
    info = step.model.info(deadline_s)
    # A client that stands in for another one by itself knows its rung better.
    return info if info.rung is not Rung.UNSET else replace(info, rung=step.rung)


def ask_down(
    ladder: ChatLadder, end_ns: int, ask: Callable[[ChatStep, int], Answer], before: Answer
) -> Answer:
    """Answer of the best rung that gives one.

    Every rung that has others below it gets half of the time that is left, the last one all.

    Args:
        ladder: The models.
        end_ns: When the answer must be complete, in the monotonic clock [ns].
        ask: Asks one model until a point of that clock; refuses where it gives no answer.
        before: What is known of the answer before any model was asked.

    Raises:
        Refusal: No rung answered; its answer is the last one's, on the rung REFUSE.
        CancelledError: The asker does not wait any more.
    """
    refusals: list[tuple[ChatStep, Refusal]] = []
    steps = ladder.order()
    for index, step in enumerate(steps):
        left_ns = end_ns - time.monotonic_ns()
        if left_ns <= 0:
            break
        given_ns = left_ns if index == len(steps) - 1 else left_ns // 2
        try:
            answer = ask(step, end_ns - left_ns + given_ns)
        except Refusal as refusal:
            refusals.append((step, refusal))
            is_late = refusal.code is RefusalCode.DEADLINE
            if not is_late or given_ns >= ladder.config.patience_s * _NS:
                ladder.failed(step, str(refusal))
        else:
            ladder.worked(step)
            return answer
    raise _refusal_of_all(refusals, before)


def _refusal_of_all(refusals: Sequence[tuple[ChatStep, Refusal]], before: Answer) -> Refusal:
    """One refusal that tells why each rung gave no answer."""
    if not refusals:
        message = 'no time left for the model: raise deadline_s, or shorten what comes before it'
        return Refusal(RefusalCode.DEADLINE, message, before)
    last = refusals[-1][1]
    nobody = replace(last.answer.model, rung=Rung.REFUSE)
    answer = replace(last.answer, model=nobody, freshness=Freshness.REFUSED)
    said = [f'{step.rung.name.lower()}: {refusal}' for step, refusal in refusals]
    message = str(last) if len(said) == 1 else f'no rung could answer; {"; ".join(said)}'
    return Refusal(last.code, message, answer)
