# SPDX-License-Identifier: Apache-2.0
"""`embodied-r review DIR`: a page in the browser to label what was answered in recordings."""

from __future__ import annotations

from contextlib import nullcontext, suppress
import getpass
import secrets
import time
from typing import Any, TYPE_CHECKING

from embodied_r_ros.apps.review.library import Library
from embodied_r_ros.apps.review.pages import ReviewService
from embodied_r_ros.apps.review.recording import rows_by_episode
from embodied_r_ros.apps.review.server import listen, make_app, serve_app
from embodied_r_ros.cli.arguments import say, some_path, some_text
from embodied_r_ros.core.chat.settings import is_loopback
from embodied_r_ros.data.episodes.offline import ask_about, RecordingScene
from embodied_r_ros.data.episodes.replay import read_report
from embodied_r_ros.serving.profiles import reasoner_config
from embodied_r_ros.serving.served import served_model

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from embodied_r_ros.apps.review.pages import Asker
    from embodied_r_ros.apps.review.recording import RowQuestion
    from embodied_r_ros.core.chat.settings import ChatConfig
    from embodied_r_ros.core.reasoning.question import Question, ReasonerConfig
    from embodied_r_ros.core.types.answers import Answer
    from embodied_r_ros.core.types.deltas import SemanticDelta

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
        help='address on which the page listens (default: this machine alone); any other needs '
        'the token that is printed',
    )
    add(
        '--rows',
        type=some_path,
        metavar='ROWS.jsonl',
        help='questions with solutions, to be reviewed too, and to compare answers with',
    )
    add(
        '--replay',
        type=some_path,
        action='append',
        default=[],
        metavar='FILE.json',
        help='a report of `replay --out`, to be shown beside its recording; repeat for '
        'several recordings',
    )
    add(
        '--model',
        type=some_text,
        metavar='DIR_OR_URL',
        help='answers new questions: folder with a model, or URL of a model server',
    )


def main(args: argparse.Namespace) -> int:
    """Serve the page of a folder until it is interrupted."""
    rows = rows_by_episode(args.rows) if args.rows else None
    reports = [read_report(path) for path in args.replay]
    with served_model(args.model, say) if args.model else nullcontext() as chat:
        ask = _asker(chat, reasoner_config(args.model)) if chat else None
        _serve_page(args, rows, ask, reports)
    return 0


def _serve_page(
    args: argparse.Namespace,
    rows: dict[str, list[RowQuestion]] | None,
    ask: Asker | None,
    replays: Sequence[dict[str, Any]],
) -> None:
    """Serve the page until it is interrupted; its address goes to stdout."""
    token = '' if is_loopback(args.host) else secrets.token_urlsafe(24)
    with listen(args.host, args.port) as listening:
        library = Library(args.dir, rows, replays)
        try:
            service = ReviewService(library, time.time_ns, ask)
            title = args.dir.resolve().name
            app = make_app(service, title, _user(), host=args.host, token=token)
            port = listening.getsockname()[1]
            name = f'[{args.host}]' if ':' in args.host else args.host
            print(f'http://{name}:{port}/' + (f'?token={token}' if token else ''), flush=True)
            say(f'{len(library)} recordings; Ctrl-C ends it')
            with suppress(KeyboardInterrupt):
                serve_app(app, listening)
        finally:
            library.close()


def _asker(chat: ChatConfig, config: ReasonerConfig) -> Asker:
    def ask(deltas: Sequence[SemanticDelta], question: Question) -> Answer:
        return ask_about(RecordingScene(tuple(deltas)), question, chat, config, _ignore)

    return ask


def _ignore(*_: Any) -> None:
    """Hear nothing of an answer in the making."""


def _user() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError):
        return ''
