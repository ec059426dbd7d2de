# SPDX-License-Identifier: Apache-2.0
"""A question goes down the ladder of models until one of them gives an answer that can be read."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
import time
from typing import TYPE_CHECKING

from embodied_r_ros.answers import Freshness
from embodied_r_ros.deltas import ModelInfo, Rung
from embodied_r_ros.errors import ConfigError, ModelError
from embodied_r_ros.models.chat import ChatClient, NO_TIME, see_that_it_speaks
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


def models_at_start(ladder: ChatLadder, timeout_s: float) -> list[ModelInfo]:
    """Which models stand on the ladder, of those that answer, best first.

    All are asked at once. One that does not answer is left out until it does.

    Raises:
        ModelError: What the config wants to answer at the start does not, in time.
    """
    found: list[ModelInfo] = []
    problems: list[str] = []
    with ThreadPoolExecutor(len(ladder.steps), 'rungs') as pool:
        told = [pool.submit(model_of, step, timeout_s) for step in ladder.steps]
    for step, future in zip(ladder.steps, told, strict=True):
        try:
            found.append(future.result())
        except (ModelError, ConfigError) as error:
            problems.append(str(error))
            if not found and ladder.config.start == 'primary':
                raise
            ladder.failed(step, str(error))
    if not found:
        raise ModelError('; '.join(problems))
    return found


def ask_down(
    ladder: ChatLadder, end_ns: int, ask: Callable[[ChatStep, int], Answer], before: Answer
) -> Answer:
    """Answer of the best rung that gives one.

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
    for step, given_s in ladder.turns((end_ns - time.monotonic_ns()) / _NS):
        try:
            answer = ask(step, time.monotonic_ns() + round(given_s * _NS))
        except Refusal as refusal:
            refusals.append((step, refusal))
            is_late = refusal.code is RefusalCode.DEADLINE
            ladder.failed(step, str(refusal), given_s if is_late else None)
        else:
            ladder.worked(step)
            return answer
    raise _refusal_of_all(refusals, before)


def _refusal_of_all(refusals: Sequence[tuple[ChatStep, Refusal]], before: Answer) -> Refusal:
    """One refusal that tells why each rung gave no answer."""
    if not refusals:
        return Refusal(RefusalCode.DEADLINE, NO_TIME, before)
    last = refusals[-1][1]
    nobody = replace(last.answer.model, rung=Rung.REFUSE)
    answer = replace(last.answer, model=nobody, freshness=Freshness.REFUSED)
    said = [f'{step.rung.name.lower()}: {refusal}' for step, refusal in refusals]
    message = str(last) if len(said) == 1 else f'no rung could answer; {"; ".join(said)}'
    return Refusal(last.code, message, answer)
