# SPDX-License-Identifier: Apache-2.0
"""`HttpChatClient`: a model behind an OpenAI server, with one deadline and a real cancel."""

from __future__ import annotations

from contextlib import contextmanager, ExitStack
from dataclasses import dataclass, replace
import json
import logging
from pathlib import Path
import ssl
import threading
from typing import Any, TYPE_CHECKING
from urllib.parse import urljoin

from embodied_r_ros.common.errors import ModelError
from embodied_r_ros.common.work import CALLS, METER
from embodied_r_ros.core.chat.connection import (
    HttpCall,
    image_count,
    image_limit,
    ImagesRefusedError,
    other_terms,
    reads_as_refusal,
    reads_as_too_long,
    REFUSALS,
    RefusedError,
    refuses_tools,
    Reply,
    request_body,
    request_kind,
    SAMPLING_FIELDS,
    Terms,
    wants_model,
    Watch,
)
from embodied_r_ros.core.chat.protocol import (
    ChatMessage,
    ChatRequest,
    error_detail,
    EventReader,
    ReportedError,
)
from embodied_r_ros.core.chat.settings import CA_VARIABLE, holds_weights, model_digest, tls_context
from embodied_r_ros.core.types.answers import Sampling
from embodied_r_ros.core.types.deltas import ModelInfo
from embodied_r_ros.core.types.images import encode_image
import httpx
import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from embodied_r_ros.core.chat.connection import RequestKind
    from embodied_r_ros.core.chat.protocol import ChatChunk
    from embodied_r_ros.core.chat.settings import ChatConfig
    from embodied_r_ros.core.types.images import EncodedImage

_log = logging.getLogger(__name__)
_OK = 200
_BUSY = {429, 503, 529}  # as long as it loads, or others ask it
_BROKEN = 500
_PASSING = _BUSY | {_BROKEN, 408, 425, 502, 504}  # may be different next time
_SENT_ON = {301, 302, 307, 308}
_MOST_HOPS = 4
_NO_ACCESS = {401, 403}
_TURN_S = 0.05  # how late a cancel may be noticed while another request has the turn
_LEAST_WAIT_S = 0.05  # where a server says 0
_LONGEST_WAIT_S = 2.0  # between attempts, where it does not say how long
_NAMES = 8  # of models in a message
# A server that ignores max_tokens is cut off; tokens of common vocabularies are shorter [chars].
_TOKEN_CHARS = 256


class _PassingError(ModelError):
    """A failure that may be gone at the next attempt."""

    def __init__(self, message: str, wait_s: float | None = None, status: int = 0) -> None:
        """Take what to tell, what the server wants to be left alone [s], and its status."""
        super().__init__(message)
        self.wait_s = wait_s
        self.status = status


class _Attempts:
    """The attempts at one request, and the waits between them."""

    def __init__(self, config: ChatConfig, watch: Watch) -> None:
        self._config = config
        self._watch = watch
        self._retries = 0

    def wait_after(self, error: _PassingError) -> bool:
        """Wait before the next attempt: as long as the server says, else as the config says.

        A busy server is asked until the deadline.

        Returns:
            Whether there is a further attempt.

        Raises:
            ModelError: It would come after the deadline.
        """
        wait_s, advice = error.wait_s, 'it wants to be left alone for'
        if wait_s is None:
            if error.status not in _BUSY and self._retries >= self._config.retries:
                return False
            wait_s = min(self._config.backoff_s * 2 ** min(self._retries, 9), _LONGEST_WAIT_S)
            self._retries += 1
            advice = 'allow more time: the next attempt would be in'
        if wait_s >= (left_s := self._watch.left_s()):
            msg = f'{error}; {advice} {wait_s:.0f} s, of {left_s:.1f} s left'
            raise ModelError(msg) from error
        self._watch.failure = f'{error}; '
        self._watch.sleep(max(wait_s, _LEAST_WAIT_S))
        return True


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
        token = config.token()
        if token:
            self._headers['Authorization'] = f'Bearer {token}'
        own, secrets = config.own_headers()
        self._headers |= own
        self._secrets = [secret for secret in (token, *secrets) if secret]
        # An SSL context takes 10 ms to make, so it is made once, and only where one is needed.
        secure = self._base.startswith('https:')
        self._verify: ssl.SSLContext | bool = tls_context() if secure else False
        self._terms = Terms()
        self._accepted_kinds: set[RequestKind] = set()
        self._turn = threading.Lock()  # of the first request of a kind
        self._images_refused: ImagesRefusedError | None = None
        self._breaks = 0  # requests that broke the server and could be asked otherwise, in a row
        self._spoke = ''  # name that the server gave with its last reply
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
        attempts = _Attempts(self._config, watch)
        while True:
            has_text = False
            try:
                if self._config.adapters:
                    self._served = self._identify(watch)
                for chunk in self._attempt(request, watch, EventReader()):
                    has_text = True
                    yield chunk
                return
            except _PassingError as error:
                self._served = None
                if has_text or not attempts.wait_after(error):
                    raise

    def info(self, deadline_s: float) -> ModelInfo:
        """Name and digest of the model that serves (see `ChatClient.info`).

        The server is queried the first time and after a failure. The digest is that of the files
        as they are now, and empty where they are not on this machine.

        Raises:
            ModelError: The server is not reachable or serves another model.
        """
        watch = Watch(deadline_s, None, self._base)
        attempts = _Attempts(self._config, watch)
        while (model := self._served) is None:
            try:
                model = self._served = self._identify(watch)
                break
            except _PassingError as error:
                if not attempts.wait_after(error):
                    raise
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
        """Ask once; again on other terms where the server refuses those that were asked."""
        kind = request_kind(request)
        with self._first_turn(kind, watch) as end_turn:
            if self._images_refused and image_count(request) > self._images_refused.limit:
                raise ImagesRefusedError(str(self._images_refused), self._images_refused.limit)
            tried = [self._terms]
            first: RefusedError | None = None  # it is about what was really asked
            while True:
                has_text = False
                try:
                    for chunk in self._ask(request, watch, reader, tried[-1]):
                        if not has_text:
                            self._accept(tried[-1], kind)
                            end_turn()
                        has_text = True
                        yield chunk
                    break
                except RefusedError as error:
                    if has_text:
                        raise
                    first = first or error.with_traceback(None)
                    others = self._others(tried[-1], request, error.detail, watch)
                    other = next((each for each in others if each not in tried), None)
                if other is None:
                    raise self._explained(request, first, watch)
                tried.append(other)
            self._accept(tried[-1], kind)
            self._note(_plain(reader.model))

    @contextmanager
    def _first_turn(self, kind: RequestKind, watch: Watch) -> Iterator[Callable[[], None]]:
        """Have the first request of a kind for itself, until its turn is ended: others learn."""
        if kind in self._accepted_kinds:
            yield lambda: None
            return
        while not self._turn.acquire(timeout=min(_TURN_S, watch.left_s())):
            pass
        with ExitStack() as stack:
            stack.callback(self._turn.release)
            yield stack.close

    def _accept(self, terms: Terms, kind: RequestKind) -> None:
        """Note on which terms a request was accepted."""
        self._accepted_kinds.add(kind)
        if ignored := sorted(SAMPLING_FIELDS & (terms.left_out - self._terms.left_out)):
            _log.warning('%s refuses %s: it samples as it likes', self._base, ', '.join(ignored))
        self._terms = terms

    def _note(self, spoke: str) -> None:
        """Note which model spoke."""
        if self._spoke not in ('', spoke):  # another model may take other requests
            self._images_refused = None
        self._spoke = spoke
        served = self._served
        if served and spoke and spoke != (served.adapter or served.name):
            # Adapters come and go while others speak; any other change is one of the server.
            self._served = self._adapters.get(spoke)

    def _others(
        self, terms: Terms, request: ChatRequest, detail: str, watch: Watch
    ) -> Iterator[Terms]:
        """Other terms on which to ask, the likeliest first."""
        if image_limit(detail, image_count(request)) is not None or refuses_tools(request, detail):
            return
        is_named = self._config.model or terms.model
        if not is_named and wants_model(detail) and (model := self._sole_model(watch)):
            yield replace(terms, model=model)
        yield from other_terms(terms, request, detail)
        if not is_named and 'model' in detail.casefold() and not reads_as_too_long(detail):
            yield replace(terms, model=self._sole_model(watch))

    def _sole_model(self, watch: Watch) -> str:
        """The model of a server that wants it named; empty: it lists none.

        Raises:
            ModelError: It has several.
        """
        models = self._list_models(watch)
        names = [name for name, entry in models.items() if not entry.get('parent')]
        if len(names) > 1:
            msg = (
                f'{self._base} serves several models ({_listing(names)}): '
                f'name one, as {self._base}#{names[0]}'
            )
            raise ModelError(msg)
        return names[0] if names else ''

    def _explained(
        self, request: ChatRequest, refusal: RefusedError, watch: Watch
    ) -> RefusedError:
        """A refusal; where it is one of images, as that, and it is not asked for again.

        It is made anew: raised, an error holds what all its callers do, the images as well.
        """
        if refuses_tools(request, refusal.detail):
            msg = (
                f'{self._base} takes no tools: start it so that it does (vLLM: '
                '--enable-auto-tool-choice --tool-call-parser hermes, or the parser of the model; '
                f'llama.cpp: --jinja), or set reasoner.tools: false; it says: {refusal.detail}'
            )
            return RefusedError(msg, refusal.detail)
        count = image_count(request)
        limit = image_limit(refusal.detail, count)
        if count and limit is None and not reads_as_too_long(refusal.detail):
            limit = self._probe_images(count, watch)
        if not count or limit is None:
            return RefusedError(str(refusal), refusal.detail)
        if limit:
            msg = (
                f'{self._base} takes {limit} image{"s" * (limit > 1)} per request, not {count}: '
                f"start it with room for {count} (vLLM: --limit-mm-per-prompt '"
                f'{{"image": {count}}}\'); it says: {refusal.detail}'
            )
        else:
            msg = (
                f'{self._base} has no vision: name a server of a vision-language model '
                f'(llama.cpp: with --mmproj); it says: {refusal.detail}'
            )
        self._images_refused = ImagesRefusedError(msg, limit)
        return ImagesRefusedError(msg, limit)

    def _probe_images(self, count: int, watch: Watch) -> int | None:
        """How many of so many small images a server takes; None: all, or not even text."""
        for number in dict.fromkeys((count, 1, 0)):
            message = ChatMessage('user', 'Say yes.', (_small_image(),) * number)
            request = ChatRequest((message,), Sampling(max_tokens=1))
            try:
                for _ in self._ask(request, watch, EventReader(), self._terms):
                    pass
            except RefusedError:
                continue
            return number if number < count else None
        return None

    def _ask(
        self, request: ChatRequest, watch: Watch, reader: EventReader, terms: Terms
    ) -> Iterator[ChatChunk]:
        """One request; a second one in a row that breaks the server is refused.

        Some have no more to say where a chat template has no system role, or of probabilities.
        """
        can_differ = any(other != terms for other in other_terms(terms, request, ''))
        try:
            yield from self._ask_once(request, watch, reader, terms)
        except _PassingError as error:
            is_break = can_differ and error.status == _BROKEN and not reader.has_text
            self._breaks += is_break
            if is_break and self._breaks > 1:
                raise RefusedError(str(error)) from None
            raise
        self._breaks = 0

    def _ask_once(
        self, request: ChatRequest, watch: Watch, reader: EventReader, terms: Terms
    ) -> Iterator[ChatChunk]:
        """One request, from its connection to its end."""
        adapter = self._served.adapter if self._served and self._config.adapters else ''
        body = request_body(request, adapter or self._config.model, terms)
        call = self._call('POST', 'chat/completions', body)
        METER.add(CALLS)
        try:
            with self._translate(), self._reply(call, watch) as reply:
                self._require_events(reply)
                yield from self._chunks(reply, reader, request.sampling.max_tokens)
        except _PassingError:
            if not reader.may_end:
                raise
        if not reader.may_end:
            msg = f'{self._base} ended the reply before the completion was complete'
            raise _PassingError(msg, status=_BROKEN)
        if chunk := reader.end(terms.tokens_of(request)):
            is_asked = request.tools or not chunk.calls
            yield chunk if is_asked else replace(chunk, ending='tool_calls', calls=())

    def _chunks(self, reply: Reply, reader: EventReader, max_tokens: int) -> Iterator[ChatChunk]:
        """The pieces of a reply until nothing comes after them."""
        most = max_tokens * _TOKEN_CHARS
        for event in reply.events():
            for chunk in self._read(reader, event):
                most -= max(1, len(chunk.text))
                if most < 0:
                    msg = f'{self._base} ignores max_tokens {max_tokens}'
                    raise ModelError(msg)
                yield chunk
            if reader.is_over:
                return
            if reader.is_complete:
                reply.end_soon()

    def _read(self, reader: EventReader, event: str) -> list[ChatChunk]:
        try:
            return reader.read(self._blot(event))
        except ReportedError as error:
            if error.code in _PASSING - {_BROKEN}:
                raise _PassingError(str(error), status=error.code) from None
            if error.code in REFUSALS or reads_as_refusal(error.detail):
                raise RefusedError(str(error), error.detail) from None
            raise

    def _call(self, method: str, path: str, body: bytes = b'') -> HttpCall:
        return HttpCall(
            method,
            self._config.address(path),
            self._headers,
            body,
            self._config.connect_timeout_s,
            self._verify,
            # A proxy of the company does not know the servers of this machine.
            trust_env=not self._config.is_loopback(),
        )

    @contextmanager
    def _reply(self, call: HttpCall, watch: Watch) -> Iterator[Reply]:
        """The reply to a request, from where the server sends it on to."""
        for _ in range(_MOST_HOPS):
            with Reply(call, watch) as reply:
                place = reply.headers.get('location') if reply.status in _SENT_ON else None
                if place is None:
                    yield reply
                    return
            call = self._sent_on(call, self._blot(place))
        msg = f'{self._base} sends requests on and on: give the URL where they are to go'
        raise ModelError(msg)

    def _sent_on(self, call: HttpCall, place: str) -> HttpCall:
        """The call to where a server sends it: not to another host, which would get the token."""
        try:
            url, before = httpx.URL(urljoin(call.url, place)), httpx.URL(call.url)
            is_safer = (before.scheme, url.scheme) == ('http', 'https')
            is_same = url.host == before.host and (url.scheme == before.scheme or is_safer)
        except (httpx.InvalidURL, ValueError):
            is_same = False
        if not is_same:
            msg = f'{self._base} sends requests on to {place}: give that URL, if it is meant'
            raise ModelError(msg)
        return replace(call, url=str(url), verify=tls_context() if is_safer else call.verify)

    def _require_events(self, reply: Reply) -> None:
        """Raise the error in a reply that is no stream of events."""
        if reply.status == _OK and reply.has_events():
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
        if reply.status in REFUSALS or (reply.status not in _BUSY and reads_as_refusal(detail)):
            raise RefusedError(msg, detail)
        if reply.status in _PASSING:
            raise _PassingError(msg, reply.wanted_wait_s(), reply.status)
        raise ModelError(msg)

    def _blot(self, text: str) -> str:
        """A server's text without secrets: texts are shown and recorded, and some repeat them."""
        for secret in self._secrets:
            text = text.replace(secret, '...')
        return text

    @contextmanager
    def _translate(self) -> Iterator[None]:
        """Turn what the connection does into errors that say what to do."""
        try:
            yield
        except (httpx.ConnectError, httpx.ConnectTimeout, ssl.SSLError) as error:
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
            raise _PassingError(msg, status=_BROKEN) from error

    def _identify(self, watch: Watch) -> _Served:
        """Ask the server what it serves, and refuse another model than the config names."""
        model = self._config.model
        models = self._list_models(watch)
        prefix = self._config.adapters
        newest = [name for name in models if prefix and name.startswith(prefix)][-1:]
        try:
            name = model if model in models else self._probe(watch) if not newest else ''
        except RefusedError:
            if not model or not models:
                raise
            name = next(iter(models))
        if model and name and not _same_model(model, name):
            msg = (
                f'{self._base} serves {_listing(models) or name}, not {model!r}: '
                'correct the model or the URL'
            )
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
        with self._translate(), self._reply(self._call('GET', 'models'), watch) as reply:
            if reply.status in _BUSY:
                msg = f'{self._base} failed with status {reply.status}'
                raise _PassingError(msg, reply.wanted_wait_s(), reply.status)
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


def _listing(names: Iterable[str]) -> str:
    names = list(names)
    return ', '.join(names[:_NAMES]) + ', ...' * (len(names) > _NAMES)


def _small_image() -> EncodedImage:
    """An image that every model could take."""
    return encode_image(np.full((56, 56, 3), 127, np.uint8))


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
