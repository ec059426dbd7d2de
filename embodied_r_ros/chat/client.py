# SPDX-License-Identifier: Apache-2.0
"""`HttpChatClient`: a model behind an OpenAI server, with one deadline and a real cancel."""

from __future__ import annotations

import asyncio
from contextlib import contextmanager, suppress
from dataclasses import dataclass
import json
from pathlib import Path
import time
from typing import Any, TYPE_CHECKING, TypeVar

from embodied_r_ros.chat.protocol import (
    ChatMessage,
    ChatRequest,
    error_detail,
    EventReader,
    optional_parts,
    REFUSALS,
    RefusedError,
    request_body,
)
from embodied_r_ros.chat.settings import CA_VARIABLE, holds_weights, model_digest, tls_context
from embodied_r_ros.common.errors import CancelledError, DeadlineError, ModelError
from embodied_r_ros.types.answers import Sampling
from embodied_r_ros.types.deltas import ModelInfo
import httpx

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Coroutine, Iterator, Mapping
    import ssl
    import threading

    from embodied_r_ros.chat.protocol import ChatChunk
    from embodied_r_ros.chat.settings import ChatConfig

_OK = 200
_PASSING = {408, 425, 429, 500, 502, 503, 504}  # may be different next time
_NO_ACCESS = {401, 403}
# A server that ignores max_tokens is cut off; tokens of common vocabularies are shorter [chars].
_TOKEN_CHARS = 256


class _PassingError(ModelError):
    """A failure that may be gone at the next attempt."""


@dataclass(frozen=True)
class _Served:
    """The model and adapter that a server serves, by its own words."""

    name: str
    adapter: str = ''
    folders: tuple[Path, ...] = ()  # of the model, then of its adapter; empty: not on this machine


class HttpChatClient:
    """A `ChatClient` over HTTP. Its methods may be called from several threads at once."""

    def __init__(self, config: ChatConfig) -> None:
        """Prepare; nothing is sent yet.

        Raises:
            ConfigError: The token or the certificates cannot be read, or the token would travel
                unencrypted.
        """
        self._config = config
        self._base = config.base_url()
        self._headers = {'Content-Type': 'application/json', 'Accept': 'text/event-stream'}
        self._token = config.token()
        if self._token:
            self._headers['Authorization'] = f'Bearer {self._token}'
        # An SSL context takes 10 ms to make, so it is made once, and only where one is needed.
        secure = self._base.startswith('https:')
        self._verify: ssl.SSLContext | bool = tls_context() if secure else False
        self._lacking: frozenset[str] = frozenset()  # optional parts that the server refused
        self._served: _Served | None = None
        self._adapters: dict[str, _Served] = {}  # those that served so far, by name

    def stream(
        self, request: ChatRequest, deadline_s: float, cancel: threading.Event | None = None
    ) -> Iterator[ChatChunk]:
        """Yield the completion as it is generated (see `ChatClient.stream`).

        A failure before the first piece of text is retried as the config says, within the
        deadline. Dropping the iterator ends the generation on the server, like `cancel`.

        Raises:
            DeadlineError: It was not complete in time.
            CancelledError: `cancel` was set.
            ModelError: The server failed or refused.
        """
        watch = Watch(deadline_s, cancel, self._base)
        for attempt in range(self._config.retries + 1):
            has_text = False
            try:
                if self._config.adapters:
                    self._served = self._identify(watch)
                for chunk in self._attempt(request, watch, EventReader()):
                    has_text = True
                    yield chunk
                return
            except _PassingError:
                self._served = None
                if has_text or attempt == self._config.retries:
                    raise
            watch.sleep(self._config.backoff_s * 2**attempt)

    def info(self, deadline_s: float) -> ModelInfo:
        """Name and digest of the model that serves (see `ChatClient.info`).

        The server is queried the first time and after a failure. The digest is that of the files
        as they are now, and empty where they are not on this machine.

        Raises:
            ModelError: The server is not reachable or serves another model.
        """
        watch = Watch(deadline_s, None, self._base)
        model = self._served = self._served or self._identify(watch)
        digest = model_digest(*model.folders, check=watch.left_s) if model.folders else ''
        # A folder is known by its own name: where it lies differs from machine to machine.
        name = Path(model.name).name if model.folders else model.name
        return ModelInfo(name, digest, model.adapter)

    def reach(self, deadline_s: float) -> None:
        """See that the server is there; no model is asked, and no state changes.

        Raises:
            DeadlineError: It did not reply in time.
            ModelError: It is not reachable, or fails.
        """
        self._list_models(Watch(deadline_s, None, self._base))

    def _attempt(
        self, request: ChatRequest, watch: Watch, reader: EventReader
    ) -> Iterator[ChatChunk]:
        """Ask once; once more without its optional parts where the server refuses them."""
        lacking = self._lacking
        optional = optional_parts(request) - lacking
        has_text = False
        try:
            for chunk in self._ask(request, watch, reader, lacking):
                has_text = True
                yield chunk
        except RefusedError:
            if has_text or not optional:
                raise
            yield from self._ask(request, watch, reader, lacking | optional)
            self._lacking = lacking | optional
        served, spoke = self._served, _plain(reader.model)
        if served and spoke and spoke != (served.adapter or served.name):
            # Adapters come and go while others speak; any other change is one of the server.
            self._served = self._adapters.get(spoke)

    def _ask(
        self, request: ChatRequest, watch: Watch, reader: EventReader, without: frozenset[str]
    ) -> Iterator[ChatChunk]:
        """One request, from its connection to its end."""
        most = request.sampling.max_tokens * _TOKEN_CHARS
        adapter = self._served.adapter if self._served and self._config.adapters else ''
        body = request_body(request, adapter or self._config.model, without)
        call = self._call('POST', '/v1/chat/completions', body)
        with self._translate(), Reply(call, watch) as reply:
            self._require_stream(reply)
            for line in reply.lines():
                chunk = reader.read(self._blot(line))
                if chunk is not None:
                    most -= max(1, len(chunk.text))
                    if most < 0:
                        msg = f'{self._base} ignores max_tokens {request.sampling.max_tokens}'
                        raise ModelError(msg)
                    yield chunk
                if reader.is_complete:
                    return
        msg = f'{self._base} ended the reply before the completion was complete'
        raise _PassingError(msg)

    def _call(self, method: str, path: str, body: bytes = b'') -> HttpCall:
        return HttpCall(
            method,
            self._base + path,
            self._headers,
            body,
            self._config.connect_timeout_s,
            self._verify,
            # A proxy of the company does not know the servers of this machine.
            trust_env=not self._config.is_loopback(),
        )

    def _require_stream(self, reply: Reply) -> None:
        """Raise the error in a reply that is no stream of events."""
        if reply.status == _OK and reply.content_type.startswith('text/event-stream'):
            return
        detail = error_detail(self._blot(reply.text()))
        if reply.status == _OK:
            kind = self._blot(reply.content_type) or 'no type'
            msg = (
                f'{self._base} answers with {kind} instead of a '
                f'stream of events: is it a model server? It says: {detail}'
            )
            raise ModelError(msg)
        if reply.status in _NO_ACCESS:
            variable = self._config.token_variable
            msg = (
                f'{self._base} wants an access token ({reply.status}): '
                f'set {variable}, or {variable}_FILE'
            )
            raise ModelError(msg)
        request = f', asked for model {self._config.model!r}' if self._config.model else ''
        msg = f'{self._base} failed with status {reply.status}{request}: {detail}'
        kinds = {**dict.fromkeys(_PASSING, _PassingError), **dict.fromkeys(REFUSALS, RefusedError)}
        raise kinds.get(reply.status, ModelError)(msg)

    def _blot(self, text: str) -> str:
        """A server's text without the token: texts are shown and recorded, and some repeat it."""
        return text.replace(self._token, '...') if self._token else text

    @contextmanager
    def _translate(self) -> Iterator[None]:
        """Turn what the connection does into errors that say what to do."""
        try:
            yield
        except (httpx.ConnectError, httpx.ConnectTimeout) as error:
            reason = str(error) or 'no connection in time'
            if 'CERTIFICATE_VERIFY_FAILED' in reason:
                msg = (
                    f'{self._base} is not to be trusted ({reason}): '
                    f'give the certificate of its authority in {CA_VARIABLE}'
                )
                raise ModelError(msg) from error
            msg = (
                f'no model server at {self._base} ({reason}): '
                'start one with `embodied-r serve`, or correct the URL'
            )
            raise _PassingError(msg) from error
        except httpx.HTTPError as error:
            reason = str(error) or type(error).__name__
            msg = f'{self._base} broke the connection: {reason}'
            raise _PassingError(msg) from error

    def _identify(self, watch: Watch) -> _Served:
        """Ask the server what it serves, and refuse another model than the config names."""
        model = self._config.model
        models = self._list_models(watch)
        prefix = self._config.adapters
        newest = [name for name in models if prefix and name.startswith(prefix)][-1:]
        name = model if model in models else self._probe(watch) if not newest else ''
        if model and name and not _same_model(model, name):
            names = ', '.join(models) or name
            msg = f'{self._base} serves {names}, not {model!r}: correct the model or the URL'
            raise ModelError(msg)
        name = newest[0] if newest else name
        entry = models.get(name, {})
        base = str(entry.get('parent') or '')
        roots = [models.get(base, {}).get('root') or base] if base else []
        folders = [Path(str(root)) for root in (*roots, entry.get('root') or name)]
        if not self._config.is_loopback() or not all(map(_is_at_hand, folders)):
            folders = []
        served = _Served(base or name, name if base else '', tuple(folders))
        if served.adapter:
            self._adapters[served.adapter] = served
        return served

    def _list_models(self, watch: Watch) -> dict[str, dict[str, Any]]:
        """Entries of the server's list of models by id; empty where it has none to give."""
        # `transformers serve` lists a download cache instead, and fails where there is none.
        with self._translate(), Reply(self._call('GET', '/v1/models'), watch) as reply:
            text = self._blot(reply.text()) if reply.status == _OK else ''
        try:
            return {str(entry['id']): entry for entry in json.loads(text)['data']}
        except (ValueError, KeyError, TypeError, RecursionError):
            return {}

    def _probe(self, watch: Watch) -> str:
        """Have one token generated, and read from the reply which model generated it."""
        message = ChatMessage('user', 'Say yes.')
        reader = EventReader()
        for _ in self._attempt(ChatRequest((message,), Sampling(max_tokens=1)), watch, reader):
            pass
        return _plain(reader.model) or self._config.model


def _plain(name: str) -> str:
    """Name of a model without the revision that `transformers serve` adds."""
    return name.removesuffix('@main')


def _is_at_hand(folder: Path) -> bool:
    try:
        return folder.is_absolute() and holds_weights(folder)
    except (OSError, ValueError):  # what a server says is no path that could be
        return False


def _same_model(model: str, name: str) -> bool:
    # Servers add a version or a path to the name in the request.
    return name.startswith(model) or Path(name).name == Path(model).name


Value = TypeVar('Value')
# How late a cancel may be noticed [s]; an Event cannot be waited for by asyncio.
_POLL_S = 0.05
_CLOSE_S = 1.0  # most that closing a connection may take [s]
# Of a line, or of a body that is read whole. Parsing holds the interpreter, and with it every
# callback of the node: a few milliseconds for so much.
_MAX_BYTES = 512 * 1024


class Watch:
    """When to stop waiting: at a deadline, or when the caller cancels."""

    def __init__(self, deadline_s: float, cancel: threading.Event | None, url: str) -> None:
        """Start the clock; `url` is named in errors."""
        self._end = time.monotonic() + deadline_s
        self._deadline_s = deadline_s
        self._cancel = cancel
        self._url = url

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
                f'{self._url} was not done within {self._deadline_s:.1f} s: allow more time, '
                'fewer tokens, or use a faster model'
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
            self.content_type = str(self._response.headers.get('content-type', ''))
        except BaseException:
            self.close()
            raise

    def lines(self) -> Iterator[str]:
        """Yield the lines of the body as they come.

        Raises:
            DeadlineError, CancelledError: As the watch says.
            ModelError: A line is longer than 512 KiB.
            httpx.HTTPError: The connection failed.
        """
        # httpx also splits lines at characters that JSON strings may hold, such as U+2028.
        rest = b''
        for piece in self._pieces():
            rest += piece
            if b'\n' in piece:
                *lines, rest = rest.split(b'\n')
                for line in lines:
                    yield line.decode(errors='replace').rstrip('\r')
            if len(rest) > _MAX_BYTES:
                msg = f'{self._url} sent a line of more than {_MAX_BYTES} bytes'
                raise ModelError(msg)
        if rest:
            yield rest.decode(errors='replace')

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

    def _pieces(self) -> Iterator[bytes]:
        assert self._response is not None  # mypy.
        pieces = self._response.aiter_bytes()
        while (piece := self._wait(_next(pieces))) is not None:
            yield piece

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


async def _next(pieces: AsyncIterator[bytes]) -> bytes | None:
    async for piece in pieces:
        return piece
    return None
