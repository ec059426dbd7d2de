# SPDX-License-Identifier: Apache-2.0
"""The seam to every language model, and the OpenAI chat protocol as bytes."""

from __future__ import annotations

import base64
from dataclasses import dataclass, field
import json
import time
from typing import Any, Protocol, TYPE_CHECKING

from embodied_r_ros.common.errors import DeadlineError, ModelError
from embodied_r_ros.types.answers import Sampling

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    import threading

    from embodied_r_ros.types.deltas import ModelInfo
    from embodied_r_ros.types.images import EncodedImage

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
    remaining_s = end - time.monotonic()
    if remaining_s <= 0:
        raise DeadlineError(NO_TIME)
    return remaining_s


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


# Status codes of a server that does not understand a request, or a part of it.
REFUSALS = frozenset({400, 404, 415, 422, 501})
# What not every server accepts; a request is sent again without what was refused.
STRUCTURED, PROBABILITIES = 'response_format', 'logprobs'


class RefusedError(ModelError):
    """The server does not understand the request, or a part of it."""


def optional_parts(request: ChatRequest) -> frozenset[str]:
    """Name the parts of a request that a server may refuse and that can be left out."""
    parts = {STRUCTURED} if request.json_schema is not None else set()
    return frozenset(parts | ({PROBABILITIES} if request.top_logprobs else set()))


def request_body(request: ChatRequest, model: str, without: Iterable[str] = ()) -> bytes:
    """Write the JSON body of a streaming chat request.

    Args:
        request: What to ask.
        model: Name of the model at its server; empty leaves the choice to the server.
        without: Optional parts to leave out.
    """
    sampling, left_out = request.sampling, set(without)
    body: dict[str, Any] = {
        'messages': [_message(message) for message in request.messages],
        'stream': True,
        'max_tokens': sampling.max_tokens,
        'temperature': sampling.temperature,
        'top_p': sampling.top_p,
    }
    if model:
        body['model'] = model
    if sampling.seed:
        body['seed'] = sampling.seed
    if request.json_schema is not None and STRUCTURED not in left_out:
        schema = {'name': 'reply', 'schema': request.json_schema, 'strict': True}
        body['response_format'] = {'type': 'json_schema', 'json_schema': schema}
    if request.top_logprobs and PROBABILITIES not in left_out:
        body['logprobs'] = True
        body['top_logprobs'] = request.top_logprobs
    return json.dumps(body).encode()


def _message(message: ChatMessage) -> dict[str, Any]:
    if not message.images:
        return {'role': message.role, 'content': message.text}
    parts: list[dict[str, Any]] = [{'type': 'text', 'text': message.text}]
    parts += [
        {'type': 'image_url', 'image_url': {'url': data_url(image)}} for image in message.images
    ]
    return {'role': message.role, 'content': parts}


def data_url(image: EncodedImage) -> str:
    """Write an image as a data URL (RFC 2397); its bytes are not encoded again."""
    return f'data:image/{image.format};base64,{base64.b64encode(image.data).decode()}'


@dataclass
class EventReader:
    """Reads the lines of a server-sent event stream, one completion from its start to its end.

    Some servers take the text inside `<think>` out of the completion and send it as a field of its
    own. It is put back, so that a completion reads the same from every server.
    """

    is_complete: bool = False  # the server said that the completion is complete
    model: str = ''  # what the server says it is
    _thinking: bool = False

    def read(self, line: str) -> ChatChunk | None:
        """Read one line; None where it holds no text.

        Raises:
            ModelError: The line is not of the protocol, or reports an error of the server.
        """
        if not line.startswith('data:'):
            return None
        data = line[len('data:') :].strip()
        if data == '[DONE]':
            self.is_complete = True
            return None
        event = _parse(data)
        self.model = str(event.get('model') or self.model)
        choices = event.get('choices') or []
        if not choices:
            return None
        try:
            return self._choice(choices[0])
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            msg = f'an event is not a chat completion chunk ({error!r}): {data[:200]}'
            raise ModelError(msg) from None

    def _choice(self, choice: dict[str, Any]) -> ChatChunk | None:
        delta = choice.get('delta') or {}
        self.is_complete = self.is_complete or choice.get('finish_reason') is not None
        thinking = delta.get('reasoning_content') or delta.get('reasoning') or ''
        text = self._tag(thinking, delta.get('content') or '')
        # Half of a surrogate pair is legal in JSON, and in no message.
        text = text.encode(errors='replace').decode()
        tokens = _alternatives(choice.get('logprobs'))
        return ChatChunk(text, tokens) if text or tokens else None

    def _tag(self, thinking: str, text: str) -> str:
        """Join both kinds of text, with the tags at the changes between them."""
        tagged = ''
        if thinking:
            tagged += thinking if self._thinking else '<think>' + thinking
            self._thinking = True
        if text:
            tagged += '</think>' + text if self._thinking else text
            self._thinking = False
        return tagged


def _parse(data: str) -> dict[str, Any]:
    """JSON object of an event.

    Raises:
        ModelError: It is none, or it is the server's own error.
    """
    try:
        event = json.loads(data)
    except (ValueError, RecursionError):
        # `transformers serve` does not escape the messages of its errors.
        msg = f'the stream holds what is not JSON: {data[:200]}'
        raise ModelError(msg) from None
    if not isinstance(event, dict):
        msg = f'the stream holds JSON that is no object: {data[:200]}'
        raise ModelError(msg)
    if error := event.get('error'):
        # vLLM begins the stream before it looks at every part of the request.
        code = error.get('code') if isinstance(error, dict) else None
        msg = f'the server gave up: {error_detail(data)}'
        is_refusal = isinstance(code, int) and code in REFUSALS
        raise (RefusedError if is_refusal else ModelError)(msg)
    return event


def _alternatives(logprobs: dict[str, Any] | None) -> tuple[TokenAlternatives, ...]:
    content = (logprobs or {}).get('content') or []
    return tuple(
        TokenAlternatives(
            str(entry['token']),
            float(entry['logprob']),
            tuple((str(t['token']), float(t['logprob'])) for t in entry.get('top_logprobs') or []),
        )
        for entry in content
    )


def error_detail(body: str) -> str:
    """What a server says went wrong, in one bounded line: OpenAI's, FastAPI's or plain text."""
    try:
        value: Any = json.loads(body)
    except (ValueError, RecursionError):
        value = body
    for key in ('error', 'message', 'detail'):
        if isinstance(value, dict) and key in value:
            value = value[key]
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return ' '.join(text.split())[:300]
