# SPDX-License-Identifier: Apache-2.0
"""How long answers take, of two models side by side."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
import time
from typing import TYPE_CHECKING

from embodied_r_ros.chat.client import HttpChatClient
from embodied_r_ros.chat.protocol import ChatRequest
from embodied_r_ros.serving.servers import served_model
import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from embodied_r_ros.reasoning.prompts import Prompt
    from embodied_r_ros.types.answers import Sampling

_DEADLINE_S = 600.0


@dataclass(frozen=True)
class Latency:
    """Time from a question to its whole answer."""

    p50_s: float
    p95_s: float
    n: int


def measure(
    models: tuple[str, str],
    prompts: Sequence[Prompt],
    sampling: Sampling,
    say: Callable[[str], None] = lambda line: None,
) -> tuple[Latency, Latency]:
    """Time whole answers of two models, each served as `embodied-r ask` serves it.

    They are asked in turns, so that whatever else the machine does is shared by both.

    Raises:
        ConfigError: A model is neither a URL nor a folder that can be served.
        ModelError: A server does not start, or fails.
    """
    with ExitStack() as stack:
        clients = [HttpChatClient(stack.enter_context(served_model(m, say))) for m in models]
        for client in clients:  # the first answer of a server takes longer
            _time(client, prompts[0], sampling)
        times = [[_time(client, prompt, sampling) for client in clients] for prompt in prompts]
    first, second = np.transpose(times)
    return _latency(first), _latency(second)


def _time(client: HttpChatClient, prompt: Prompt, sampling: Sampling) -> float:
    start = time.monotonic()
    for _ in client.stream(ChatRequest(prompt.messages(), sampling), _DEADLINE_S):
        pass
    return time.monotonic() - start


def _latency(times: np.ndarray[tuple[int], np.dtype[np.float64]]) -> Latency:
    middle, high = np.quantile(times, [0.5, 0.95])
    return Latency(float(middle), float(high), len(times))
