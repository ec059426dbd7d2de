# SPDX-License-Identifier: Apache-2.0
"""The seam to every language model: messages in, text streamed out.

Models are servers that speak the OpenAI protocol; `ChatClient` is all that the rest of the package
knows of them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
import time
from typing import Any, Protocol, TYPE_CHECKING

from embodied_r_ros.answers import Sampling
from embodied_r_ros.errors import DeadlineError

if TYPE_CHECKING:
    from collections.abc import Iterator
    import threading

    from embodied_r_ros.deltas import ModelInfo
    from embodied_r_ros.images import EncodedImage


NO_TIME = (
    'no time left for the model: raise deadline_s, shorten what comes before it, or use a faster '
    'model'
)


@dataclass(frozen=True)
class ChatMessage:
    """One message of a conversation; the text comes before the images."""

    role: str  # 'system', 'user' or 'assistant'
    text: str
    images: tuple[EncodedImage, ...] = ()


@dataclass(frozen=True)
class ChatRequest:
    """What to ask a model."""

    messages: tuple[ChatMessage, ...]
    sampling: Sampling = field(default_factory=Sampling)
    json_schema: dict[str, Any] | None = None  # structured reply, enforced where the server can
    top_logprobs: int = 0  # alternatives to report per token; 0: none


@dataclass(frozen=True)
class TokenAlternatives:
    """A generated token and the likeliest tokens in its place."""

    token: str
    logprob: float
    top: tuple[tuple[str, float], ...]  # (token, natural-log probability), likeliest first


@dataclass(frozen=True)
class ChatChunk:
    """A piece of generated text."""

    text: str
    tokens: tuple[TokenAlternatives, ...] = ()  # empty: the server gives no probabilities


class ChatClient(Protocol):
    """A model behind some server. Every method may be called from several threads at once."""

    def stream(
        self, request: ChatRequest, deadline_s: float, cancel: threading.Event | None = None
    ) -> Iterator[ChatChunk]:
        """Yield the completion as it is generated.

        Args:
            request: What to ask.
            deadline_s: Time in which the last piece must have come [s].
            cancel: Ends the generation, on the server too, soon after it is set.

        Raises:
            DeadlineError: It was not complete in time.
            CancelledError: `cancel` was set.
            ModelError: The server failed or refused.
        """

    def info(self, deadline_s: float) -> ModelInfo:
        """Name and digest of the model that serves.

        Raises:
            ModelError: The server is not reachable or serves another model.
        """


def left_s(end: float) -> float:
    """Seconds until a point of the monotonic clock [s].

    Raises:
        DeadlineError: It has passed.
    """
    left = end - time.monotonic()
    if left <= 0:
        raise DeadlineError(NO_TIME)
    return left


def see_that_it_speaks(client: ChatClient, deadline_s: float) -> None:
    """Have a model generate one token: cheap, and more than a server's word that it is healthy.

    Raises:
        ModelError: It did not, or another model is served than the client is set to.
    """
    end = time.monotonic() + deadline_s
    request = ChatRequest((ChatMessage('user', 'Say yes.'),), Sampling(max_tokens=1))
    for _ in client.stream(request, deadline_s):
        pass
    client.info(max(0.0, end - time.monotonic()))
