# SPDX-License-Identifier: Apache-2.0
"""`HttpChatClient`: a model behind a server that speaks the OpenAI protocol.

The client holds no connection and starts no thread, so it needs no closing; every request has a
connection of its own. It must not be used from within a running asyncio event loop.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
import json
from pathlib import Path
from typing import Any, TYPE_CHECKING

from embodied_r_ros.answers import Sampling
from embodied_r_ros.deltas import ModelInfo
from embodied_r_ros.errors import ModelError
from embodied_r_ros.models.chat import ChatMessage, ChatRequest
from embodied_r_ros.models.chat_config import CA_VARIABLE, tls_context
from embodied_r_ros.models.chat_wire import (
    error_detail,
    EventReader,
    optional_parts,
    REFUSALS,
    RefusedError,
    request_body,
)
from embodied_r_ros.models.digest import model_digest
from embodied_r_ros.models.http_stream import HttpCall, Reply, Watch
from embodied_r_ros.models.weights import holds_weights
import httpx

if TYPE_CHECKING:
    from collections.abc import Iterator
    import ssl
    import threading

    from embodied_r_ros.models.chat import ChatChunk
    from embodied_r_ros.models.chat_config import ChatConfig

_OK = 200
_PASSING = {408, 425, 429, 500, 502, 503, 504}  # may be different next time
_NO_ACCESS = {401, 403}
# A server that ignores max_tokens is cut off; tokens of common vocabularies are shorter [chars].
_TOKEN_CHARS = 256


class _PassingError(ModelError):
    """A failure that may be gone at the next attempt."""


@dataclass(frozen=True)
class _Served:
    """What a server says it serves."""

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
        self._adapters: dict[str, _Served] = {}  # those that were asked, by name

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
            begun = False
            try:
                if self._config.adapters:
                    self._served = self._identify(watch)
                for chunk in self._attempt(request, watch, EventReader()):
                    begun = True
                    yield chunk
                return
            except _PassingError:
                self._served = None
                if begun or attempt == self._config.retries:
                    raise
            watch.sleep(self._config.backoff_s * 2**attempt)

    def info(self, deadline_s: float) -> ModelInfo:
        """Name and digest of the model that serves (see `ChatClient.info`).

        The server is asked the first time and after a failure; the digest is that of the files as
        they are now, and empty where they are not on this machine.

        Raises:
            ModelError: The server is not reachable or serves another model.
        """
        watch = Watch(deadline_s, None, self._base)
        served = self._served = self._served or self._identify(watch)
        digest = model_digest(*served.folders, check=watch.left_s) if served.folders else ''
        # A folder is known by its own name: where it lies differs from machine to machine.
        name = Path(served.name).name if served.folders else served.name
        return ModelInfo(name, digest, served.adapter)

    def _attempt(
        self, request: ChatRequest, watch: Watch, reader: EventReader
    ) -> Iterator[ChatChunk]:
        """Ask once; once more without its optional parts where the server refuses them."""
        lacking = self._lacking
        optional = optional_parts(request) - lacking
        begun = False
        try:
            for chunk in self._ask(request, watch, reader, lacking):
                begun = True
                yield chunk
        except RefusedError:
            if begun or not optional:
                raise
            yield from self._ask(request, watch, reader, lacking | optional)
            self._lacking = lacking | optional
        known, spoke = self._served, _plain(reader.model)
        if known and spoke and spoke != (known.adapter or known.name):
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
        with self._translated(), Reply(call, watch) as reply:
            self._require_stream(reply)
            for line in reply.lines():
                chunk = reader.read(self._blotted(line))
                if chunk is not None:
                    most -= max(1, len(chunk.text))
                    if most < 0:
                        msg = f'{self._base} ignores max_tokens {request.sampling.max_tokens}'
                        raise ModelError(msg)
                    yield chunk
                if reader.done:
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
        """Raise what a reply says that is no stream of events."""
        if reply.status == _OK and reply.content_type.startswith('text/event-stream'):
            return
        detail = error_detail(self._blotted(reply.text()))
        if reply.status == _OK:
            kind = self._blotted(reply.content_type) or 'no type'
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
        asked = f', asked for model {self._config.model!r}' if self._config.model else ''
        msg = f'{self._base} failed with status {reply.status}{asked}: {detail}'
        kinds = {**dict.fromkeys(_PASSING, _PassingError), **dict.fromkeys(REFUSALS, RefusedError)}
        raise kinds.get(reply.status, ModelError)(msg)

    def _blotted(self, text: str) -> str:
        """What a server says, without the token: it is told and recorded, and some repeat it."""
        return text.replace(self._token, '...') if self._token else text

    @contextmanager
    def _translated(self) -> Iterator[None]:
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
        wanted = self._config.model
        listed = self._listed(watch)
        prefix = self._config.adapters
        newest = [name for name in listed if prefix and name.startswith(prefix)][-1:]
        name = wanted if wanted in listed else self._probe(watch) if not newest else ''
        if wanted and name and not _same_model(wanted, name):
            known = ', '.join(listed) or name
            msg = f'{self._base} serves {known}, not {wanted!r}: correct the model or the URL'
            raise ModelError(msg)
        name = newest[0] if newest else name
        entry = listed.get(name, {})
        base = str(entry.get('parent') or '')
        roots = [listed.get(base, {}).get('root') or base] if base else []
        folders = [Path(str(root)) for root in (*roots, entry.get('root') or name)]
        if not self._config.is_loopback() or not all(map(_is_at_hand, folders)):
            folders = []
        served = _Served(base or name, name if base else '', tuple(folders))
        if served.adapter:
            self._adapters[served.adapter] = served
        return served

    def _listed(self, watch: Watch) -> dict[str, dict[str, Any]]:
        """Entries of the server's list of models by id; empty where it has none to give."""
        # `transformers serve` lists a download cache instead, and fails where there is none.
        with self._translated(), Reply(self._call('GET', '/v1/models'), watch) as reply:
            text = self._blotted(reply.text()) if reply.status == _OK else ''
        try:
            return {str(entry['id']): entry for entry in json.loads(text)['data']}
        except (ValueError, KeyError, TypeError, RecursionError):
            return {}

    def _probe(self, watch: Watch) -> str:
        """Have one token generated, and read from the reply who generated it."""
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


def _same_model(wanted: str, name: str) -> bool:
    # Servers add a version or a path to the name that they were asked for.
    return name.startswith(wanted) or Path(name).name == Path(wanted).name
