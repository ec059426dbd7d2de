# SPDX-License-Identifier: Apache-2.0
"""The OpenAI chat protocol as bytes: a request becomes a JSON body, a server's events become text.

Source: the `/v1/chat/completions` reference of OpenAI, as served by vLLM, `transformers serve` and
llama.cpp. Nothing here opens a connection.
"""

from __future__ import annotations

import base64
from dataclasses import dataclass
import json
from typing import Any, TYPE_CHECKING

from embodied_r_ros.errors import ModelError
from embodied_r_ros.models.chat import ChatChunk, TokenAlternatives

if TYPE_CHECKING:
    from collections.abc import Iterable

    from embodied_r_ros.images import EncodedImage
    from embodied_r_ros.models.chat import ChatMessage, ChatRequest

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
    own. It is put back, so that a completion reads the same whoever served it.
    """

    done: bool = False  # the server said that the completion is complete
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
            self.done = True
            return None
        event = _parsed(data)
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
        self.done = self.done or choice.get('finish_reason') is not None
        thought = delta.get('reasoning_content') or delta.get('reasoning') or ''
        text = self._tagged(thought, delta.get('content') or '')
        # Half of a surrogate pair is legal in JSON, and in no message.
        text = text.encode(errors='replace').decode()
        tokens = _alternatives(choice.get('logprobs'))
        return ChatChunk(text, tokens) if text or tokens else None

    def _tagged(self, thought: str, text: str) -> str:
        """Join both kinds of text, with the tags at the changes between them."""
        tagged = ''
        if thought:
            tagged += thought if self._thinking else '<think>' + thought
            self._thinking = True
        if text:
            tagged += '</think>' + text if self._thinking else text
            self._thinking = False
        return tagged


def _parsed(data: str) -> dict[str, Any]:
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
