# SPDX-License-Identifier: Apache-2.0
"""The way to a model server: one HTTP request with one deadline and a real cancel, and its terms.

Terms are what a server takes, as learned from its refusals.
"""

from __future__ import annotations

import asyncio
import base64
from contextlib import suppress
from dataclasses import dataclass, replace
from email.utils import parsedate_to_datetime
from itertools import chain
import json
import re
import time
from typing import Any, TYPE_CHECKING, TypeVar

from embodied_r_ros.common.errors import CancelledError, DeadlineError, ModelError
from embodied_r_ros.common.work import METER
from embodied_r_ros.core.chat.protocol import ChatMessage
import httpx
from httpx_sse import EventSource

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Coroutine, Iterator, Mapping, Sequence
    import ssl
    import threading

    from embodied_r_ros.core.chat.protocol import ChatRequest
    from embodied_r_ros.core.types.images import EncodedImage

Value = TypeVar('Value')
# How late a cancel may be noticed [s]; an Event cannot be waited for by asyncio.
_POLL_S = 0.05
_CLOSE_S = 1.0  # most that closing a connection may take [s]
_AFTER_END_S = 1.0  # in which more may come after a server has said that a reply is complete [s]
# Of an event, or of a body that is read whole. Parsing holds the interpreter, and with it every
# callback of the node: a few milliseconds for so much.
_MAX_BYTES = 512 * 1024
_BYTE_ORDER_MARK = b'\xef\xbb\xbf'
_EVENT_START = re.compile(rb'(?:data|event|id|retry)?:|\{')


class Watch:
    """When to stop waiting: at a deadline, or when the caller cancels."""

    def __init__(self, deadline_s: float, cancel: threading.Event | None, url: str) -> None:
        """Start the clock; `url` is named in errors."""
        self._end = time.monotonic() + deadline_s
        self._deadline_s = deadline_s
        self._cancel = cancel
        self._url = url
        self.failure = ''  # of the attempt before this one

    def left_s(self) -> float:
        """Time that is left [s].

        Raises:
            DeadlineError: None is.
            CancelledError: The caller does not wait any more.
        """
        if self._cancel is not None and self._cancel.is_set():
            msg = f'the request to {self._url} was cancelled'
            raise CancelledError(msg)
        left_s = self._end - time.monotonic()
        if left_s <= 0:
            msg = (
                f'{self.failure}{self._url} was not done within {self._deadline_s:.1f} s: '
                'allow more time, fewer tokens, or use a faster model'
            )
            raise DeadlineError(msg)
        return left_s

    def sleep(self, duration_s: float) -> None:
        """Wait, but not beyond the deadline or a cancel, which are raised as in `left_s`."""
        end = time.monotonic() + duration_s
        while (rest_s := end - time.monotonic()) > 0:
            time.sleep(min(_POLL_S, rest_s, self.left_s()))


@dataclass(frozen=True)
class HttpCall:
    """One HTTP request."""

    method: str
    url: str
    headers: Mapping[str, str]
    body: bytes = b''
    connect_timeout_s: float = 5.0
    verify: ssl.SSLContext | bool = True
    trust_env: bool = False  # whether proxies named in the environment are used


class Reply:
    """An HTTP reply whose body has not been read yet. Close it, in the thread that opened it."""

    def __init__(self, call: HttpCall, watch: Watch) -> None:
        """Send the request and wait for the reply's status.

        Raises:
            DeadlineError, CancelledError: As `watch` says.
            httpx.HTTPError: The connection failed.
        """
        self._watch = watch
        self._url = call.url
        self._loop = asyncio.new_event_loop()
        self._response: httpx.Response | None = None
        self._body: AsyncIterator[bytes] | None = None
        self._start = b''  # of the body, which was looked at
        self._since_event = 0  # bytes
        self._patience_s: float | None = None
        # The watch bounds every wait but the one for a connection, which has its own bound.
        timeout = httpx.Timeout(None, connect=call.connect_timeout_s)
        self._client = httpx.AsyncClient(
            verify=call.verify, timeout=timeout, trust_env=call.trust_env
        )
        try:
            request = self._client.build_request(
                call.method, call.url, headers=dict(call.headers), content=call.body or None
            )
            self._response = self._wait(self._client.send(request, stream=True))
            self.status = self._response.status_code
            self.headers = self._response.headers
            self.content_type = str(self.headers.get('content-type', ''))
        except BaseException:
            self.close()
            raise

    def has_events(self) -> bool:
        """Tell whether the body is a stream of events, or JSON: by its type, or its beginning.

        Raises:
            DeadlineError, CancelledError: As the watch says.
            httpx.HTTPError: The connection failed.
        """
        is_stream = 'event-stream' in self.content_type.casefold()
        return is_stream or bool(_EVENT_START.match(self._begin()))

    def events(self) -> Iterator[str]:
        """Yield the data of the events as they come; a body of JSON is one.

        Raises:
            DeadlineError, CancelledError: As the watch says.
            ModelError: An event has more than 512 KiB.
            httpx.HTTPError: The connection failed.
        """
        if self._begin().startswith(b'{'):
            yield self.text()
            return
        # An event that the end of the body cuts off counts too.
        stream = chain(self._bounded(), [b'\n\n'])
        kind = {'Content-Type': 'text/event-stream; charset=utf-8'}
        for event in EventSource(httpx.Response(_OK, headers=kind, content=stream)).iter_sse():
            self._since_event = 0
            if event.data.strip():
                yield event.data

    def end_soon(self) -> None:
        """Note that the reply is complete: only what is there already is read."""
        self._patience_s = _AFTER_END_S

    def _begin(self) -> bytes:
        """The body from its first byte that is not blank, as far as it is there."""
        while not self._start and (piece := self._next_piece()) is not None:
            self._start = piece.removeprefix(_BYTE_ORDER_MARK).lstrip()
        return self._start

    def _bounded(self) -> Iterator[bytes]:
        for piece in self._pieces():
            self._since_event += len(piece)
            if self._since_event > _MAX_BYTES:
                msg = f'{self._url} sent an event of more than {_MAX_BYTES} bytes'
                raise ModelError(msg)
            yield piece

    def text(self) -> str:
        """Read the body, up to 512 KiB of it.

        Raises:
            DeadlineError, CancelledError: As the watch says.
            httpx.HTTPError: The connection failed.
        """
        data = bytearray()
        for piece in self._pieces():
            data += piece
            if len(data) > _MAX_BYTES:
                break
        return data.decode(errors='replace')

    def wanted_wait_s(self) -> float | None:
        """How long the server wants to be left alone (Retry-After) [s]; None: it does not say."""
        wanted = str(self.headers.get('retry-after', '')).strip()
        try:
            if milliseconds := self.headers.get('retry-after-ms'):
                return max(0.0, float(milliseconds) / 1000)
            return max(0.0, float(wanted)) if wanted else None
        except ValueError:
            return self._seconds_until(wanted)

    def _seconds_until(self, date: str) -> float | None:
        """Seconds from the reply's own date to another one."""
        try:
            now = parsedate_to_datetime(str(self.headers.get('date', '')))
            return max(0.0, (parsedate_to_datetime(date) - now).total_seconds())
        except (ValueError, TypeError):
            return None

    def _pieces(self) -> Iterator[bytes]:
        start, self._start = self._start, b''
        if start:
            yield start
        while (piece := self._next_piece()) is not None:
            yield piece

    def _next_piece(self) -> bytes | None:
        assert self._response is not None  # mypy.
        self._body = self._body or self._response.aiter_bytes()
        return self._wait(_next(self._body, self._patience_s))

    def close(self) -> None:
        """End the connection; the server notices."""
        if self._loop.is_closed():
            return
        try:
            self._loop.run_until_complete(asyncio.wait_for(self._hang_up(), _CLOSE_S))
        except (httpx.HTTPError, OSError, asyncio.TimeoutError):
            pass  # The outcome of this connection no longer matters.
        finally:
            self._loop.close()

    async def _hang_up(self) -> None:
        if self._response is not None:
            await self._response.aclose()
        # All is closed when the HTTP library of Ubuntu 22.04 says that a request had not begun.
        with suppress(RuntimeError):
            await self._client.aclose()
        await self._loop.shutdown_asyncgens()

    def __enter__(self) -> Reply:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _wait(self, step: Coroutine[Any, Any, Value]) -> Value:
        """Run the event loop until a step is done, looking at the watch in between."""
        task = self._loop.create_task(step)
        try:
            while not task.done():
                slice_s = min(_POLL_S, self._watch.left_s())
                self._loop.run_until_complete(asyncio.wait({task}, timeout=slice_s))
            return task.result()
        except BaseException:
            task.cancel()
            self._loop.run_until_complete(asyncio.gather(task, return_exceptions=True))
            raise


async def _next(pieces: AsyncIterator[bytes], patience_s: float | None) -> bytes | None:
    """The next piece; None: there is none, or it does not come in time."""
    with suppress(StopAsyncIteration, asyncio.TimeoutError):
        return await asyncio.wait_for(pieces.__anext__(), patience_s)
    return None


_OK = 200
# Status codes of a server that does not understand a request, or a part of it.
REFUSALS = frozenset({400, 404, 405, 413, 415, 422, 501})
# Fields that can be left out, with the words by which servers name them.
_OPTIONAL = {
    'response_format': ('response_format', 'json_schema', 'grammar', 'structured', 'guided'),
    'grammar': ('grammar',),
    'logprobs': ('logprobs',),
    'stream_options': ('stream_options', 'include_usage'),
    'parallel_tool_calls': ('parallel_tool_calls',),
    'seed': ('seed',),
    'temperature': ('temperature',),
    'top_p': ('top_p',),
}
SAMPLING_FIELDS = frozenset({'seed', 'temperature', 'top_p'})
# Of those, what a server may refuse without naming it.
_EXTRA = frozenset(_OPTIONAL) - SAMPLING_FIELDS
SYSTEM_GAP = '\n\n'  # between the system text and the user's, where they are one
_LIMITS = ('max_tokens', 'max_completion_tokens')


class RefusedError(ModelError):
    """The server does not understand the request, or a part of it: asking again is of no use."""

    def __init__(self, message: str, detail: str = '') -> None:
        """Take what to tell, and the server's own words."""
        super().__init__(message)
        self.detail = detail or message


class ImagesRefusedError(RefusedError):
    """The server takes fewer images per request; this does not change while it runs."""

    def __init__(self, message: str, limit: int) -> None:
        """Take what to tell, and the number of images that it takes; 0: it sees nothing."""
        super().__init__(message)
        self.limit = limit


@dataclass(frozen=True)
class Terms:
    """What a server takes. Nothing is known at first, and all is asked."""

    left_out: frozenset[str] = frozenset()  # optional fields that it refuses
    limit_field: str = 'max_tokens'
    most_tokens: int = 0  # for which it has room; 0: as many as are asked for
    has_system_role: bool = True
    model: str = ''  # its only model, which it wants named; empty: it need not be

    def tokens_of(self, request: ChatRequest) -> int:
        """How many tokens a reply may have."""
        return min(request.sampling.max_tokens, self.most_tokens or request.sampling.max_tokens)


def request_body(request: ChatRequest, model: str, terms: Terms | None = None) -> bytes:
    """Write the JSON body of a streaming chat request.

    Args:
        request: What to ask.
        model: Name of the model at its server; empty leaves the choice to the server.
        terms: What the server takes.
    """
    terms = terms or Terms()
    messages = request.messages if terms.has_system_role else merge_system(request.messages)
    body = {'messages': [_message(message) for message in messages], 'stream': True}
    named = {'model': model or terms.model} if model or terms.model else {}
    return json.dumps(body | named | _options(request, terms)).encode()


def _options(request: ChatRequest, terms: Terms) -> dict[str, Any]:
    """The fields of a body that say how to reply, on these terms."""
    sampling = request.sampling
    body: dict[str, Any] = {
        terms.limit_field: terms.tokens_of(request),
        'temperature': sampling.temperature,
        'top_p': sampling.top_p,
    }
    if sampling.seed:
        body['seed'] = sampling.seed
    if request.json_schema is not None:
        schema = {'name': 'reply', 'schema': request.json_schema, 'strict': True}
        body['response_format'] = {'type': 'json_schema', 'json_schema': schema}
    if request.grammar:
        body['grammar'] = request.grammar
    if request.top_logprobs and 'logprobs' not in terms.left_out:
        body |= {'logprobs': True, 'top_logprobs': request.top_logprobs}
    if request.tools:
        choice = 'auto' if request.may_call else 'none'
        body |= {'tools': request.tools, 'tool_choice': choice, 'parallel_tool_calls': True}
    if METER.asks_for_tokens:
        body['stream_options'] = {'include_usage': True}
    return {name: value for name, value in body.items() if name not in terms.left_out}


def merge_system(messages: Sequence[ChatMessage]) -> tuple[ChatMessage, ...]:
    """The messages for a model without a system role: that text stands before the user's."""
    system = SYSTEM_GAP.join(message.text for message in messages if message.role == 'system')
    others = [message for message in messages if message.role != 'system']
    if not system:
        return tuple(messages)
    if not others or others[0].role != 'user':
        return ChatMessage('user', system), *others
    return replace(others[0], text=f'{system}{SYSTEM_GAP}{others[0].text}'), *others[1:]


def _message(message: ChatMessage) -> dict[str, Any]:
    if not message.images:
        plain: dict[str, Any] = {'role': message.role, 'content': message.text}
        if message.calls:
            plain['tool_calls'] = [
                {
                    'id': call.id,
                    'type': 'function',
                    'function': {'name': call.name, 'arguments': call.arguments},
                }
                for call in message.calls
            ]
        return plain | ({'tool_call_id': message.call_id} if message.call_id else {})
    parts: list[dict[str, Any]] = [{'type': 'text', 'text': message.text}]
    parts += [
        {'type': 'image_url', 'image_url': {'url': data_url(image)}} for image in message.images
    ]
    return {'role': message.role, 'content': parts}


def data_url(image: EncodedImage) -> str:
    """Write an image as a data URL (RFC 2397); its bytes are not encoded again."""
    return f'data:image/{image.format};base64,{base64.b64encode(image.data).decode()}'


def image_count(request: ChatRequest) -> int:
    """How many images a request shows."""
    return sum(len(message.images) for message in request.messages)


RequestKind = tuple[bool, bool, bool, bool, int]  # what a server may refuse in a request


def request_kind(request: ChatRequest) -> RequestKind:
    """What of a request a server may refuse: requests of one kind are refused alike."""
    has_system = any(message.role == 'system' for message in request.messages)
    is_structured = request.json_schema is not None or bool(request.grammar)
    has_tools, has_logprobs = bool(request.tools), bool(request.top_logprobs)
    return has_system, is_structured, has_tools, has_logprobs, image_count(request)


_SYSTEM_WORDS = re.compile(
    r'system\W*(?:role|message|prompt|instruction)|role\W*system|roles? must alternate|'
    r'(?:only|expected).{0,30}\buser\b.{0,20}\bassistant\b|unknown role|invalid role|'
    r'unsupported role|developer\W*instruction',
    re.IGNORECASE,
)
_TOO_LONG = re.compile(
    r'context (?:length|size|window)|too (?:long|large|many tokens)|maximum.{0,30}tokens|exceed',
    re.IGNORECASE,
)
# How servers name the most tokens of a reply; their context; and the tokens of a prompt.
_MOST_TOKENS = re.compile(
    r'at most (\d+) (?:completion|output)|less than or equal to\W{0,3}(\d+)|'
    r'> (\d+), which is the max|range of max_\w+[^\[]{0,20}\[\s*\d+\s*,\s*(\d+)',
    re.IGNORECASE,
)
_CONTEXT = re.compile(
    r'context (?:length|window|size)\D{0,30}(\d+)|must be <= (\d+)|with (\d+) maximum context',
    re.IGNORECASE,
)
_PROMPT_TOKENS = re.compile(
    r'(\d+) (?:`?inputs?`? tokens|(?:tokens? (?:from|in)|in) the (?:input|prompt|messages))|'
    r'prompt contains (\d+)',
    re.IGNORECASE,
)
_MODEL_WANTED = re.compile(
    r"\bmodel\b.{0,60}(?:required|missing|must|not found|not exist|provide|specif|select|unknown|"
    r"invalid|empty|no such|null)|(?:required|missing|provide|specify|select|unknown|invalid|"
    r"no such|which).{0,60}\bmodel\b",
    re.IGNORECASE | re.DOTALL,
)  # fmt: skip
_BLIND = re.compile(
    r'not a (?:multi-?modal|vision)|(?:no|without|lacks?) (?:vision|image)|text[- ]only|mmproj|'
    r'(?:not|n\'t|cannot) (?:support|accept|process|handle|allow|take)\w*[^.]{0,40}'
    r'(?:image|vision|multi-?modal)|(?:image|vision|multi-?modal)[^.]{0,40}'
    r'(?:not supported|unsupported|not (?:allowed|available|enabled))|at most 0 image|'
    r'unsupported content|(?:unknown|invalid|unsupported)[^.]{0,30}(?:part|image_url)|'
    r'only (?:supports? )?text|(?:must|should) be a (?:valid )?string|expected (?:a )?str',
    re.IGNORECASE,
)
_FEW_IMAGES = re.compile(
    r'(?:at most|up to|maximum of|only|limit of|more than)\W+(?P<count>\d+|one|a single)\W+image|'
    r'limit-mm-per-prompt|(?:too many|multiple|several|two) images|'
    r'images? per (?:prompt|request|message)|single image',
    re.IGNORECASE,
)
_NO_TOOLS = re.compile(
    r'enable-auto-tool-choice|tool[- ]call[- ]parser|tools? (?:param )?requires? --jinja|'
    r'(?:not|n\'t|no) support\w* (?:tool|function)|(?:tool|function)\w*[^.]{0,30}'
    r'(?:not supported|unsupported|not (?:allowed|available|enabled))',
    re.IGNORECASE,
)
_IMAGE_LIMIT = re.compile(r'["\']?image["\']?\s*[:=]\s*(\d+)')


def reads_as_refusal(detail: str) -> bool:
    """Tell whether an error of any status is about what a server can never do.

    Some servers answer so with status 500.
    """
    patterns = (_SYSTEM_WORDS, _BLIND, _FEW_IMAGES, _NO_TOOLS)
    return any(pattern.search(detail) for pattern in patterns)


def refuses_tools(request: ChatRequest, detail: str) -> bool:
    """Tell whether a refusal is about the tools of a request."""
    return bool(request.tools and _NO_TOOLS.search(detail))


def reads_as_too_long(detail: str) -> bool:
    """Tell whether a refusal is about the length of the request."""
    return bool(_TOO_LONG.search(detail))


def room_for_tokens(detail: str, wanted: int) -> int:
    """Tokens of a reply for which a server has room that refused so many; 0: it names none."""
    text = re.sub(r'(?<=\d),(?=\d{3}\b)', '', detail)
    most, context, prompt = (
        next((int(number) for number in found.groups() if number), 0) if found else 0
        for found in (kind.search(text) for kind in (_MOST_TOKENS, _CONTEXT, _PROMPT_TOKENS))
    )
    room = most or (context - prompt if context and prompt else 0)
    return max(0, min(room, wanted - 1))  # some take less than the whole of what they name


def wants_model(detail: str) -> bool:
    """Tell whether a refusal is about a model that was not named."""
    return bool(_MODEL_WANTED.search(detail))


def image_limit(detail: str, count: int) -> int | None:
    """How many images a server takes that refused so many; None: its words do not tell."""
    if not count:
        return None
    if few := _FEW_IMAGES.search(detail):
        count_text = few['count'] or (
            number[1] if (number := _IMAGE_LIMIT.search(detail)) else '1'
        )
        limit = int(count_text) if count_text.isdecimal() else 1
        return limit if limit < count else None
    return 0 if _BLIND.search(detail) else None


def other_terms(terms: Terms, request: ChatRequest, detail: str) -> Iterator[Terms]:
    """Terms on which a refused request may be accepted, the likeliest first.

    Args:
        terms: Those on which it was refused.
        request: The request.
        detail: What the server said.
    """
    text = detail.casefold()
    fields = _OPTIONAL.keys() & _options(request, terms).keys()
    named = {name for name in fields if any(word in text for word in _OPTIONAL[name])}
    other_limit = _LIMITS[terms.limit_field == _LIMITS[0]]
    has_system = terms.has_system_role and any(m.role == 'system' for m in request.messages)
    is_long = reads_as_too_long(detail)
    if room := room_for_tokens(detail, terms.tokens_of(request)):
        yield replace(terms, most_tokens=room)
        return
    if named and not is_long:
        yield replace(terms, left_out=terms.left_out | named)
    if other_limit in text or (terms.limit_field in text and not is_long):
        yield replace(terms, limit_field=other_limit)
    if has_system and _SYSTEM_WORDS.search(detail):
        yield replace(terms, has_system_role=False)
    less = replace(terms, left_out=terms.left_out | (fields & _EXTRA))
    yield less
    if has_system and not is_long:
        yield replace(terms, has_system_role=False)
        yield replace(less, has_system_role=False)
