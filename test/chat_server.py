# SPDX-License-Identifier: Apache-2.0
"""A model server without a model: real HTTP on loopback, the OpenAI streaming protocol, scripted.

    with ChatServer() as server:
        server.play(Script(('Hello', ' there')), Script(status=500), Script(hang_after=1))
        ...HttpChatClient(ChatConfig(url=server.url))...
        assert server.requests[0].text == 'Hi'

Requests take the scripts in turn; when they are used up, the `default` script plays.
"""

from __future__ import annotations

import base64
from collections import deque
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
import json
import select
import socket
import threading
import time
from typing import Any, TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    import ssl

_LONGEST_HANG_S = 30.0


@dataclass(frozen=True)
class Script:
    """What the server does with one chat request."""

    pieces: tuple[str, ...] = ('Hello', ' there')
    thought: str = ''  # sent first, as reasoning_content
    finish: str = 'stop'  # why the reply ends
    other_finish: str | None = None  # the same field in the events before
    headers: dict[str, str] = field(default_factory=dict)  # of a reply whose status is not 200
    status: int = 200  # 0: the connection is closed without a reply
    body: str = ''  # of a reply whose status is not 200
    delay_s: float = 0.0  # before each piece
    hang_after: int = -1  # pieces after which nothing more comes; -1: never
    cut_after: int = -1  # pieces after which the connection breaks; -1: never
    raw: tuple[str, ...] = ()  # lines to send instead of pieces
    line_end: str = '\n'  # of these
    top: tuple[tuple[str, float], ...] = ()  # alternatives reported for every piece
    content_type: str = 'text/event-stream'


@dataclass(frozen=True)
class RecordedRequest:
    """A chat request as it came."""

    body: dict[str, Any]
    headers: dict[str, str]
    path: str = ''

    @property
    def text(self) -> str:
        """Text of the last message."""
        content = self.body['messages'][-1]['content']
        return str(content if isinstance(content, str) else content[0]['text'])

    @property
    def images(self) -> list[bytes]:
        """Bytes of the images of all messages, in order."""
        parts = [
            part
            for message in self.body['messages']
            if not isinstance(message['content'], str)
            for part in message['content']
        ]
        urls = [part['image_url']['url'] for part in parts if part['type'] == 'image_url']
        return [base64.b64decode(url.split(',', 1)[1]) for url in urls]


@dataclass
class ChatServer:
    """The server. `disconnects` counts requests whose client went away before the end."""

    default: Script | Callable[[RecordedRequest], Script] = field(default_factory=Script)
    models: list[dict[str, Any]] | None = None  # of /v1/models; None: it fails
    name: str = 'scripted'  # model named in every chunk
    port: int = 0  # 0: any free one
    refused_fields: frozenset[str] = frozenset()  # fields of a body that give status 400
    token: str = ''  # access token that is asked for; empty: none
    tls: ssl.SSLContext | None = None  # None: HTTP
    listed: str = ''  # body of /v1/models, instead of `models`
    requests: list[RecordedRequest] = field(default_factory=list)
    disconnects: int = 0
    active: int = 0  # requests being answered
    most_active: int = 0

    def __post_init__(self) -> None:
        self._scripts: deque[Script] = deque()
        self.list_scripts: deque[Script] = deque()  # of the next requests for the list of models
        self._changed = threading.Condition()
        self._http = _Http(('127.0.0.1', self.port), _Handler)
        self._http.chat = self
        if self.tls:
            self._http.socket = self.tls.wrap_socket(
                self._http.socket, server_side=True, do_handshake_on_connect=False
            )
        scheme = 'https' if self.tls else 'http'
        self.url = f'{scheme}://127.0.0.1:{self._http.server_address[1]}'
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.02,), daemon=True)
        self._thread.start()

    def play(self, *scripts: Script) -> None:
        """Queue scripts for the next requests."""
        self._scripts.extend(scripts)

    def wait_for(self, condition: Callable[[ChatServer], bool], timeout_s: float = 10.0) -> bool:
        """Wait until the server is in a state, such as `lambda server: server.disconnects`."""
        with self._changed:
            return self._changed.wait_for(lambda: condition(self), timeout_s)

    def close(self) -> None:
        """Stop serving."""
        self._http.shutdown()
        self._http.server_close()
        self._thread.join(5)

    def __enter__(self) -> ChatServer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def take(self, request: RecordedRequest) -> Script:
        """Record a request and give the script for it."""
        with self._changed:
            self.requests.append(request)
            self.active += 1
            self.most_active = max(self.most_active, self.active)
            self._changed.notify_all()
            if self._scripts:
                return self._scripts.popleft()
        return self.default(request) if callable(self.default) else self.default

    def finish(self, *, disconnected: bool) -> None:
        """Note that a request was answered, or that its client went away."""
        with self._changed:
            self.active -= 1
            self.disconnects += disconnected
            self._changed.notify_all()


class _Http(ThreadingHTTPServer):
    chat: ChatServer
    daemon_threads = True


class _Handler(BaseHTTPRequestHandler):
    server: _Http

    def do_GET(self) -> None:
        chat, path = self.server.chat, self.path.partition('?')[0]
        if path == '/health':
            self._reply(200, '{"status": "ok"}')
        elif path == '/v1/models' and chat.list_scripts:
            script = chat.list_scripts.popleft()
            self._reply(script.status, script.body, script.headers)
        elif path == '/v1/models' and chat.listed:
            self._reply(200, chat.listed)
        elif path == '/v1/models' and chat.models is not None:
            self._reply(200, json.dumps({'object': 'list', 'data': chat.models}))
        else:
            self._reply(500, 'Internal Server Error')

    def do_POST(self) -> None:
        chat = self.server.chat
        body = json.loads(self.rfile.read(int(self.headers['Content-Length'])))
        request = RecordedRequest(body, dict(self.headers), self.path)
        script = chat.take(request)
        disconnected = False
        try:
            refused = sorted(chat.refused_fields & body.keys())
            if chat.token and self.headers.get('Authorization') != f'Bearer {chat.token}':
                self._reply(401, '{"error": "Unauthorized"}')
            elif refused:
                self._reply(400, json.dumps({'detail': f'unknown fields {refused}'}))
            elif not script.status:
                self.connection.shutdown(socket.SHUT_RDWR)
            elif script.status != 200:
                self._reply(script.status, script.body, script.headers)
            else:
                disconnected = not self._stream(script, body)
        except OSError:
            disconnected = True
        finally:
            self.close_connection = True
            chat.finish(disconnected=disconnected)

    def _stream(self, script: Script, body: dict[str, Any]) -> bool:
        """Send a whole reply; False where the client went away."""
        kind = {'Content-Type': script.content_type}
        self._start(200, kind if script.content_type else {})
        if script.thought:
            self._event({'reasoning_content': script.thought}, finish=script.other_finish)
        limit = body.get('max_tokens', body.get('max_completion_tokens'))
        pieces = script.raw or script.pieces[:limit]
        for count, piece in enumerate([*pieces, '']):
            if count == script.cut_after:
                self.connection.shutdown(socket.SHUT_RDWR)
                return True
            pause_s = _LONGEST_HANG_S if count == script.hang_after else script.delay_s
            if self._client_left(pause_s):
                return False
            if script.raw:
                self._write(piece + script.line_end)
            elif piece:
                top = script.top if body.get('logprobs') else ()
                self._event({'content': piece}, top, script.other_finish)
        if not script.raw:
            self._event({}, finish=script.finish)
            self._write('data: [DONE]\n\n')
        return True

    def _event(
        self,
        delta: dict[str, Any],
        top: tuple[tuple[str, float], ...] = (),
        finish: str | None = None,
    ) -> None:
        choice: dict[str, Any] = {'index': 0, 'delta': delta, 'finish_reason': finish}
        if top:
            alternatives = [{'token': token, 'logprob': logprob} for token, logprob in top]
            entry = {'token': delta['content'], 'logprob': top[0][1], 'top_logprobs': alternatives}
            choice['logprobs'] = {'content': [entry]}
        event = {'model': self.server.chat.name, 'choices': [choice]}
        self._write(f'data: {json.dumps(event, ensure_ascii=False)}\n\n')

    def _write(self, text: str) -> None:
        self.wfile.write(text.encode())
        self.wfile.flush()

    def _client_left(self, timeout_s: float) -> bool:
        """Wait until the client closes its end, or the time is up."""
        end = time.monotonic() + timeout_s
        while (left_s := end - time.monotonic()) > 0:
            readable, _, _ = select.select([self.connection], [], [], left_s)
            # Over TLS nothing can be looked at without being taken; clients send nothing more.
            flags = 0 if self.server.chat.tls else socket.MSG_PEEK
            if readable and not self.connection.recv(1, flags):
                return True
        return False

    def _reply(self, status: int, text: str, headers: dict[str, str] | None = None) -> None:
        data = text.encode()
        own = {'Content-Type': 'application/json', 'Content-Length': str(len(data))}
        self._start(status, (headers or {}) | own)
        self.wfile.write(data)

    def _start(self, status: int, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        """Keep the output of tests clean."""
