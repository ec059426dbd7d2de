# SPDX-License-Identifier: Apache-2.0
"""`embodied-r review DIR`: a page in the browser to label what was answered in recordings."""

from __future__ import annotations

from contextlib import nullcontext, suppress
import getpass
from ipaddress import ip_address
import secrets
import sys
import time
from typing import Any, TYPE_CHECKING

from embodied_r_ros.cli.arguments import some_path, some_text
from embodied_r_ros.episodes.offline import ask_about, RecordingScene
from embodied_r_ros.reasoning.question import ReasonerConfig
from embodied_r_ros.serving.servers import served_model
from embodied_r_ros.view.review.library import Library
from embodied_r_ros.view.review.pages import ReviewService
from embodied_r_ros.view.review.recording import rows_by_episode
from embodied_r_ros.view.review.server import listen, make_app, serve_app

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from embodied_r_ros.chat.settings import ChatConfig
    from embodied_r_ros.reasoning.question import Question
    from embodied_r_ros.types.answers import Answer
    from embodied_r_ros.types.deltas import SemanticDelta
    from embodied_r_ros.view.review.pages import Asker

_PORT = 8350


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of the verb."""
    add = parser.add_argument
    add('dir', type=some_path, metavar='DIR', help='a recording, or a folder of recordings')
    add('--port', type=int, default=_PORT, help='default: %(default)s; 0: any that is free')
    add(
        '--host',
        default='127.0.0.1',
        type=some_text,
        help='address on which to listen (default: this machine alone); any other needs the token '
        'that is printed',
    )
    add(
        '--rows',
        type=some_path,
        metavar='ROWS.jsonl',
        help='questions with solutions, to be reviewed too, and to compare answers with',
    )
    add(
        '--model',
        type=some_text,
        metavar='DIR_OR_URL',
        help='answers new questions: folder with a model, or URL of a model server',
    )
    add(
        '--who', default='', metavar='NAME', help='name of the reviewer; default: that of the user'
    )


def main(args: argparse.Namespace) -> int:
    """Serve the page until it is interrupted; its address goes to stdout."""
    rows = rows_by_episode(args.rows) if args.rows else None
    token = '' if _is_loopback(args.host) else secrets.token_urlsafe(24)
    with (
        listen(args.host, args.port) as listening,
        served_model(args.model, _say) if args.model else nullcontext() as chat,
    ):
        library = Library(args.dir, rows)
        try:
            service = ReviewService(library, time.time_ns, _asker(chat) if chat else None)
            title = args.dir.resolve().name
            app = make_app(service, title, args.who or _user(), host=args.host, token=token)
            port = listening.getsockname()[1]
            name = f'[{args.host}]' if ':' in args.host else args.host
            print(f'http://{name}:{port}/' + (f'?token={token}' if token else ''), flush=True)
            _say(f'{len(library)} recordings; Ctrl-C ends it')
            with suppress(KeyboardInterrupt):
                serve_app(app, listening)
        finally:
            library.close()
    return 0


def _asker(chat: ChatConfig) -> Asker:
    def ask(deltas: Sequence[SemanticDelta], question: Question) -> Answer:
        return ask_about(RecordingScene(tuple(deltas)), question, chat, ReasonerConfig(), _ignore)

    return ask


def _ignore(*_: Any) -> None:
    """Hear nothing of an answer in the making."""


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == 'localhost'


def _user() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError):
        return ''


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
