# SPDX-License-Identifier: Apache-2.0
"""`embodied-r review DIR`: a page in the browser to label what was answered in recordings."""

from __future__ import annotations

from contextlib import closing, contextmanager, nullcontext, suppress
from functools import partial
import getpass
import os
import secrets
import sys
import time
from typing import TYPE_CHECKING
import webbrowser

from embodied_r_ros.apps.review.asking import EpisodeAsker
from embodied_r_ros.apps.review.library import Library
from embodied_r_ros.apps.review.pages import ReviewService
from embodied_r_ros.apps.review.recording import rows_by_episode
from embodied_r_ros.apps.review.server import listen, make_app, serve_app
from embodied_r_ros.cli.arguments import say, some_path, some_text
from embodied_r_ros.core.chat.settings import is_loopback
from embodied_r_ros.data.episodes.replay import read_report
from embodied_r_ros.serving.profiles import reasoner_config, TOOLS
from embodied_r_ros.serving.served import served_model

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

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
        help='answers new questions: folder with a model, or URL of a model server (default: '
        'the tools of the scene alone)',
    )


def main(args: argparse.Namespace) -> int:
    """Serve the page of a folder until it is interrupted."""
    rows = rows_by_episode(args.rows) if args.rows else None
    reports = [read_report(path) for path in args.replay]
    with asker_of(args.model) as ask, closing(Library(args.dir, rows, reports)) as library:
        service = ReviewService(library, time.time_ns, ask, ask.learn)
        serve_page(service, args.dir.resolve().name, args.host, args.port)
    return 0


@contextmanager
def asker_of(model: str | None) -> Iterator[EpisodeAsker]:
    """Who answers questions: a model that is given, else the tools, as of `embodied-r ask`.

    Raises:
        ConfigError: There is no such model.
        ModelError: Its server does not start.
    """
    reach = partial(served_model, model, say) if model else nullcontext
    ask = EpisodeAsker(reach, reasoner_config(model or '', '' if model else TOOLS))
    with closing(ask):
        if model:
            ask.start()  # what is wrong with it shows at once
        yield ask


def serve_page(
    service: ReviewService, title: str, host: str, port: int, *, opens: bool = False
) -> None:
    """Serve the page until it is interrupted; its address goes to stdout.

    Args:
        service: What it shows.
        title: Of the page.
        host: Address on which it listens; any but a loopback one needs a token.
        port: 0: any that is free.
        opens: Whether a browser opens it, where there is a screen.

    Raises:
        InputError: The address cannot be used.
    """
    token = '' if is_loopback(host) else secrets.token_urlsafe(24)
    with listen(host, port) as listening:
        app = make_app(service, title, _user(), host=host, token=token)
        name = f'[{host}]' if ':' in host else host
        address = f'http://{name}:{listening.getsockname()[1]}/'
        address += f'?token={token}' if token else ''
        print(address, flush=True)
        say(f'{len(service.library)} recordings; Ctrl-C ends it')
        if opens and (sys.platform == 'darwin' or {'DISPLAY', 'WAYLAND_DISPLAY'} & {*os.environ}):
            webbrowser.open(address)
        with suppress(KeyboardInterrupt):
            serve_app(app, listening)


def _user() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError):
        return ''
