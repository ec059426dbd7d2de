# SPDX-License-Identifier: Apache-2.0
"""The seam to every language model, and the OpenAI chat protocol as bytes."""

from __future__ import annotations

from dataclasses import dataclass, field
import json
import math
import time
from typing import Any, Protocol, TYPE_CHECKING

from embodied_r_ros.chat.thoughts import content_parts, thought_text, ThoughtJoiner
from embodied_r_ros.common.errors import DeadlineError, ModelError
from embodied_r_ros.common.meter import METER, TOKENS
from embodied_r_ros.types.answers import Sampling

if TYPE_CHECKING:
    from collections.abc import Iterator
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
    ending: str = ''  # of the last piece: 'length', 'content_filter' or the like; not 'stop'


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


# Fields in which servers send thoughts, and their words for how a reply ended.
_THOUGHT_FIELDS = ('reasoning_content', 'reasoning', 'thinking')
_ENDINGS = {
    **dict.fromkeys(('stop', 'eos', 'eos_token', 'end_turn', 'stop_sequence'), ''),
    **dict.fromkeys(('max_tokens', 'max_output_tokens', 'model_length'), 'length'),
    **dict.fromkeys(('content-filter', 'safety', 'sensitive'), 'content_filter'),
}


@dataclass
class EventReader:
    """Reads the lines of a server-sent event stream, one completion from its start to its end.

    Some servers take the text inside `<think>` out of the completion and send it as a field of its
    own. It is put back, so that a completion reads the same from every server.
    """

    is_complete: bool = False  # the server said that the completion is complete
    is_over: bool = False  # nothing comes after it
    tokens: int = 0  # of prompt and reply so far; 0: the server does not tell
    model: str = ''  # what the server says it is
    _thoughts: ThoughtJoiner = field(default_factory=ThoughtJoiner)

    def read(self, line: str) -> ChatChunk | None:
        """Read one line; None where it holds no text.

        Raises:
            ModelError: The line is not of the protocol, or reports an error of the server.
        """
        if not line.startswith('data:'):
            return None
        data = line[len('data:') :].strip()
        if data == '[DONE]':
            self.is_complete = self.is_over = True
            text = self._thoughts.end()
            return ChatChunk(text) if text else None
        event = _parse(data)
        self.model = str(event.get('model') or self.model)
        self._note_usage(event.get('usage'))
        choices = event.get('choices') or []
        if not choices:
            return None
        try:
            return self._choice(choices[0])
        except (KeyError, TypeError, AttributeError, ValueError, RecursionError) as error:
            msg = f'an event is not a chat completion chunk ({error!r}): {data[:200]}'
            raise ModelError(msg) from None

    def _note_usage(self, usage: Any) -> None:
        """Count the tokens of a reply; some servers tell so with each event, of all until then."""
        total = usage.get('total_tokens') if isinstance(usage, dict) else None
        if isinstance(total, int) and total > self.tokens:
            METER.add(TOKENS, total - self.tokens)
            self.tokens = total

    def _choice(self, choice: dict[str, Any]) -> ChatChunk | None:
        delta = choice.get('delta') or {}
        # Some servers send an empty reason with every piece.
        ending = str(choice.get('finish_reason') or '')
        self.is_complete = self.is_complete or bool(ending)
        text = self._joined(delta)
        # Half of a surrogate pair is legal in JSON, and in no message.
        text = text.encode(errors='replace').decode()
        tokens = _alternatives(choice.get('logprobs'))
        ending = _ENDINGS.get(ending.casefold(), ending)
        return ChatChunk(text, tokens, ending) if text or tokens or ending else None

    def _joined(self, delta: dict[str, Any]) -> str:
        """The text of an event, with the tags at the changes between thoughts and text."""
        thought = thought_text(
            next((delta[name] for name in _THOUGHT_FIELDS if delta.get(name)), None)
        )
        pieces = [(True, thought), *content_parts(delta.get('content') or delta.get('refusal'))]
        text = ''.join(
            self._thoughts.add_thought(piece) if is_thought else self._thoughts.add_text(piece)
            for is_thought, piece in pieces
            if piece
        )
        return text + self._thoughts.end() if self.is_complete else text


class ReportedError(ModelError):
    """An error that the server reports in the stream."""

    def __init__(self, detail: str, code: int) -> None:
        """Take its words, and its status code; 0: it gives none."""
        super().__init__(f'the server gave up: {detail}')
        self.detail = detail
        self.code = code


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
        raise ReportedError(error_detail(data), code if isinstance(code, int) else 0)
    return event


def _alternatives(logprobs: dict[str, Any] | None) -> tuple[TokenAlternatives, ...]:
    """Tokens with their alternatives; what a server gives no probability is left out."""
    content = (logprobs or {}).get('content') or []
    tokens = []
    for entry in filter(None, content):
        top = tuple(
            (str(other['token']), float(other['logprob']))
            for other in filter(None, entry.get('top_logprobs') or [])
            if other.get('logprob') is not None
        )
        token, logprob = str(entry['token']), entry.get('logprob')
        if logprob is None and top:
            logprob = dict(top).get(token, -math.inf)
        if logprob is not None:
            tokens.append(TokenAlternatives(token, float(logprob), top))
    return tuple(tokens)


def ending_problem(text: str, ending: str, max_tokens: int) -> str:
    """Why a completion may be incomplete; empty: nothing is known to be wrong.

    Args:
        text: The completion.
        ending: Why it ended (see `ChatChunk`).
        max_tokens: Tokens that it could have.
    """
    if ending == 'length':
        return f'the model was cut off at its limit of {max_tokens} tokens: raise max_tokens'
    if ending == 'content_filter':
        return 'a content filter of the server ended the reply: ask in other words'
    if not text.strip():
        return 'the model said nothing: its reply is empty'
    return ''


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
