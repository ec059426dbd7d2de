# SPDX-License-Identifier: Apache-2.0
"""A chooser as a model server: the reasoner asks it over HTTP as it would ask a model.

It reads the options of a prompt, and nothing else of it: with an oracle behind it, everything
between camera and controller is put to the test, and no model.
"""

from __future__ import annotations

from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
import json
import re
import threading
from typing import Any, TYPE_CHECKING

from embodied_r_ros.arm.proposal import GRIPPER_NEXT
from embodied_r_ros.core.chat.settings import ChatConfig
from embodied_r_ros.core.reasoning.completions import option_letter
from embodied_r_ros.sim.arm.trials import Choice

if TYPE_CHECKING:
    from embodied_r_ros.core.types.geometry import Position
    from embodied_r_ros.sim.arm.trials import Chooser
    from embodied_r_ros.sim.arm.world import SimulatedArm

_OPTION = re.compile(r'^[A-Z]\. .*\(([-\d., ]+)\)$', re.MULTILINE)
_UNKNOWN = '<think>Nothing is to be chosen.</think><answer>unknown</answer>'


class ChooserServer:
    """Serves one chooser at a time. Use it as a context manager."""

    def __init__(self, name: str) -> None:
        """Listen on a free port of this machine."""
        self._name = name
        self._lock = threading.Lock()
        self._chooser: Chooser | None = None
        self._view = Choice((), (0.0, 0.0, 0.0), ())
        self._closed = False
        self._http = _Http(('127.0.0.1', 0), _Handler)
        self._http.chooser_server = self
        self._thread = threading.Thread(target=self._http.serve_forever, daemon=True)

    @property
    def chat(self) -> ChatConfig:
        """How it chooses."""
        return ChatConfig(f'http://127.0.0.1:{self._http.server_address[1]}', self._name)

    def serve(self, chooser: Chooser, arm: SimulatedArm) -> None:
        """Let a chooser answer from now on, for an arm."""
        with self._lock:
            self._chooser, self._closed = chooser, False
        self._see(arm)

    def note_arrival(self, arm: SimulatedArm) -> None:
        """Take where the arm has come to."""
        with self._lock:
            if self._chooser:
                self._chooser.note_arrival(arm.tool().position, closed=arm.is_closed())
        self._see(arm)

    def _see(self, arm: SimulatedArm) -> None:
        """Take what there is, for choosers that go by it."""
        with self._lock:
            self._view = Choice(arm.true_things(), arm.tool().position, ())

    def complete(self, prompt: str) -> str:
        """The completion of a prompt."""
        with self._lock:
            if GRIPPER_NEXT.text in prompt:
                return _answer('B' if self._closed else 'A')
            candidates = tuple(_position(match[1]) for match in _OPTION.finditer(prompt))
            if self._chooser is None or not candidates:
                return _UNKNOWN
            chosen = self._chooser.choose(Choice(self._view.things, self._view.tool, candidates))
            self._closed = chosen.closed
            return _answer(option_letter(chosen.index))

    def models(self) -> dict[str, Any]:
        """What it serves, as /v1/models has it."""
        return {'object': 'list', 'data': [{'id': self._name, 'object': 'model'}]}

    def __enter__(self) -> ChooserServer:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._http.shutdown()
        self._http.server_close()


def _answer(letter: str) -> str:
    return f'<think>So it was chosen.</think><answer>{letter}</answer>'


def _position(text: str) -> Position:
    x, y, z = (float(part) for part in text.split(','))
    return x, y, z


class _Http(ThreadingHTTPServer):
    chooser_server: ChooserServer
    daemon_threads = True


class _Handler(BaseHTTPRequestHandler):
    server: _Http

    def do_GET(self) -> None:
        self._send(json.dumps(self.server.chooser_server.models()), 'application/json')

    def do_POST(self) -> None:
        chooser = self.server.chooser_server
        body = json.loads(self.rfile.read(int(self.headers['Content-Length'])))
        text = chooser.complete(str(body['messages'][-1]['content']))
        choice = {'index': 0, 'delta': {'content': text}, 'finish_reason': 'stop'}
        event = {'model': chooser.chat.model, 'choices': [choice]}
        self._send(f'data: {json.dumps(event)}\n\ndata: [DONE]\n\n', 'text/event-stream')

    def _send(self, text: str, kind: str) -> None:
        self.send_response(200)
        self.send_header('Content-Type', kind)
        self.end_headers()
        self.wfile.write(text.encode())
        self.close_connection = True

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing of each request."""
