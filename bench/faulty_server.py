# SPDX-License-Identifier: Apache-2.0
"""A model server that misbehaves when told to: a process of its own, real HTTP, no model.

with FaultyServer() as server:
HttpChatClient(ChatConfig(server.url, server.name))...
server.behave('hung')
server.kill()
server.start()
"""

from __future__ import annotations

import argparse
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
import json
import os
from pathlib import Path
import socket
import subprocess
import sys
import time
from typing import Any, TYPE_CHECKING

from embodied_r_ros.common.processes import tie_command

if TYPE_CHECKING:
    from collections.abc import Iterator

# What a server can be told to be, and what it then does with a chat request.
BEHAVIOURS = {
    'well': 'answers, piece by piece',
    'dying': 'ends its process after three pieces',
    'hung': 'sends three pieces, and then nothing for ever',
    'mute': 'takes the request and never replies',
    'slow': 'sends a piece every 0.3 s',
    'broken': 'replies with status 500',
    'garbage': 'sends a stream of what is no chat event',
    'nested': 'sends JSON that is nested deeper than a parser goes',
    'huge': 'sends an event of nearly 512 KiB that says nothing',
    'endless': 'sends one line that never ends',
    'babbling': 'completes without an answer in it',
    'other': 'serves a model of another name',
}
_COMPLETION = ('<think>', 'It ', 'was ', 'right.', '</think>', '<answer>', 'B', '</answer>')
_ROOT = Path(__file__).resolve().parents[1]
_STARTED_S = 30.0
_FOR_EVER_S = 3600.0


class FaultyServer:
    """The process, from its start to its end, any number of times at one address."""

    def __init__(self, name: str = 'faulty', completion: str = '') -> None:
        """Take the name of the model and what it says, and start."""
        self.name = name
        self._completion = completion
        self._port = free_port()
        self.url = f'http://127.0.0.1:{self._port}'
        self._process: subprocess.Popen[bytes] | None = None
        self.start()

    def start(self) -> None:
        """Start the process and wait until it listens; it is well again."""
        words = ['--port', str(self._port), '--name', self.name, '--says', self._completion]
        command = [sys.executable, '-m', 'bench.faulty_server', *words]
        self._process = subprocess.Popen(tie_command(command), stdin=subprocess.DEVNULL, cwd=_ROOT)
        end = time.monotonic() + _STARTED_S
        while not self._is_up():
            if time.monotonic() > end or self._process.poll() is not None:
                msg = f'the server of {self.url} did not start'
                raise RuntimeError(msg)
            time.sleep(0.02)

    def behave(self, behaviour: str) -> None:
        """Have it be one of BEHAVIOURS from the next request on."""
        self._request('PUT', f'/behave/{behaviour}')

    def kill(self) -> None:
        """End the process at once, as when it runs out of memory."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(_STARTED_S)

    def is_alive(self) -> bool:
        """Tell whether the process runs."""
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int:
        """Id of the process that was started last."""
        assert self._process, 'it was started'
        return self._process.pid

    def requests(self) -> int:
        """Chat requests since the process started."""
        return int(self._request('GET', '/count'))

    def __enter__(self) -> FaultyServer:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def _is_up(self) -> bool:
        try:
            return bool(self._request('GET', '/health'))
        except OSError:
            return False

    def _request(self, method: str, path: str) -> str:
        connection = HTTPConnection('127.0.0.1', self._port, timeout=_STARTED_S)
        try:
            connection.request(method, path)
            return connection.getresponse().read().decode()
        finally:
            connection.close()


def free_port() -> int:
    """A port of this machine that nobody listens on now."""
    with socket.socket() as free:
        free.bind(('127.0.0.1', 0))
        return int(free.getsockname()[1])


class _Http(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128
    behaviour = 'well'
    name = ''
    says: tuple[str, ...] = ()
    count = 0


class _Handler(BaseHTTPRequestHandler):
    server: _Http

    def do_PUT(self) -> None:
        self.server.behaviour = self.path.rpartition('/')[2]
        self._reply(200, 'ok')

    def do_GET(self) -> None:
        if self.path == '/v1/models':
            entry = {'id': self._name()}
            self._reply(200, json.dumps({'object': 'list', 'data': [entry]}))
        else:
            self._reply(200, str(self.server.count) if self.path == '/count' else 'ok')

    def do_POST(self) -> None:
        self.close_connection = True
        self.server.count += 1
        body = json.loads(self.rfile.read(int(self.headers['Content-Length'])))
        behaviour = self.server.behaviour
        if behaviour == 'mute':
            time.sleep(_FOR_EVER_S)
        if behaviour == 'broken':
            self._reply(500, '{"error": {"message": "out of memory"}}')
            return
        self.send_response(200)
        self.send_header('Content-Type', 'text/event-stream')
        self.end_headers()
        try:
            for piece in self._stream(behaviour, body):
                self.wfile.write(piece)
                self.wfile.flush()
        except OSError:
            pass  # the client went away

    def _name(self) -> str:
        return 'impostor' if self.server.behaviour == 'other' else self.server.name

    def _stream(self, behaviour: str, body: dict[str, Any]) -> Iterator[bytes]:
        if behaviour == 'garbage':
            yield b'data: \xff\xfe\x00 not JSON\n\n' * 50
            return
        if behaviour == 'nested':
            yield b'data: ' + b'[' * 1_000_000 + b'\n\n'
            return
        if behaviour == 'huge':
            yield b'data: [' + b'0,' * 250_000 + b'0]\n\n'
            return
        while behaviour == 'endless':
            yield b'data: {"x": "' + b'y' * 65_536
        words = ('I ', 'cannot ', 'say.') if behaviour == 'babbling' else self.server.says
        for count, text in enumerate(words[: int(body['max_tokens'])]):
            if count == 3 and behaviour == 'dying':
                os._exit(1)
            if count == 3 and behaviour == 'hung':
                time.sleep(_FOR_EVER_S)
            time.sleep(0.3 if behaviour == 'slow' else 0.0)
            yield self._event({'content': text})
        yield self._event({}, 'stop') + b'data: [DONE]\n\n'

    def _event(self, delta: dict[str, str], finish: str | None = None) -> bytes:
        choice = {'index': 0, 'delta': delta, 'finish_reason': finish}
        # Clocks of hosts differ: nobody may believe what this one says of time.
        event = {'model': self._name(), 'created': 4_102_444_800, 'choices': [choice]}
        return f'data: {json.dumps(event)}\n\n'.encode()

    def _reply(self, status: int, text: str) -> None:
        data = text.encode()
        self.send_response(status)
        self.send_header('Content-Type', 'application/json')
        self.send_header('Content-Length', str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing of requests."""


def main() -> None:
    """Serve until killed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument('--port', type=int, required=True)
    parser.add_argument('--name', required=True, help='name of the model')
    parser.add_argument('--says', default='', help='its completion; empty: one that answers B')
    args = parser.parse_args()
    server = _Http(('127.0.0.1', args.port), _Handler)
    server.name = args.name
    server.says = (args.says,) if args.says else _COMPLETION
    server.serve_forever(0.05)


if __name__ == '__main__':
    main()
