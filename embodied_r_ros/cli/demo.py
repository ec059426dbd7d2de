# SPDX-License-Identifier: Apache-2.0
"""`embodied-r demo`: a recording through the real nodes, and questions about it."""

from __future__ import annotations

from pathlib import Path
import sys
from typing import Any, TYPE_CHECKING

from embodied_r_ros.cli.arguments import (
    add_settings,
    depth_source,
    given_settings,
    say,
    some_path,
    SourceConfig,
)
from embodied_r_ros.common.errors import ConfigError, InputError
from embodied_r_ros.common.files import shared_path
from embodied_r_ros.core.perception.detector import DetectorConfig
from embodied_r_ros.core.reasoning.question import Question, question_problem

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterable


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of the verb."""
    parser.add_argument('--source', type=some_path, help='video, folder of images, or bag')
    parser.add_argument('--topic', help='image topic of a bag, or stream of a folder, of several')
    # Both go into one list, in order: an option belongs to the question before it.
    parser.add_argument(
        '--question',
        dest='words',
        action='append',
        default=[],
        metavar='QUESTION',
        type=lambda text: ('question', text),
        help='what to ask; repeat for more; default: three questions of its own',
    )
    parser.add_argument(
        '-o',
        '--option',
        dest='words',
        action='append',
        metavar='OPTION',
        type=lambda text: ('option', text),
        help='an option of the question before it; repeat, one each',
    )
    parser.add_argument('--out', type=some_path, required=True, help='new or empty folder')
    add_settings(parser, {'source': SourceConfig, 'detector': DetectorConfig})


def main(args: argparse.Namespace) -> int:
    """Run the demonstration."""
    questions = _questions(args.words)
    try:
        from embodied_r_ros.nodes.demo.demo import Audience, DemoRequest, run_demo
    except ImportError as error:
        msg = f'ROS 2 is not there ({error}): source it, or run `make demo` in the clone'
        raise ConfigError(msg) from None
    source = args.source or shared_path('samples', 'indoor', 'episode_00000')
    request = DemoRequest(
        source, args.out, questions, args.topic, depth_source(args), _perceiver(args)
    )
    report = run_demo(request, Audience(say, _hear))
    right = [entry['right'] for entry in report['questions'] if entry['right'] is not None]
    score = f', {sum(right)} of {len(right)} right' if right else ''
    say(f'done: {len(report["questions"])} questions{score}; see {args.out}/contact_sheet.png')
    say(f'label the answers in the browser: {_command()} review {args.out}/bag')
    return 0


def _command() -> str:
    """This command as it was called, such as `.venv/bin/embodied-r`."""
    called = Path(sys.argv[0])
    return str(called) if called.name == 'embodied-r' else 'embodied-r'


def _questions(words: Iterable[tuple[str, str]]) -> tuple[Question, ...]:
    """The questions with their options, from the arguments in their order.

    Raises:
        InputError: One of them is not allowed, or there are options alone.
    """
    requests: list[tuple[str, list[str]]] = []
    early: list[str] = []  # options before the first question, which are its own
    for kind, text in words:
        if kind == 'question':
            requests.append((text, [] if requests else early))
        else:
            (requests[-1][1] if requests else early).append(text)
    if early and not requests:
        msg = 'options without a question: give --question too'
        raise InputError(msg)
    for text, options in requests:
        if problem := question_problem(text, options):
            raise InputError(problem)
    return tuple(Question(text, tuple(options)) for text, options in requests)


def _perceiver(args: argparse.Namespace) -> dict[str, Any]:
    """Parameters of the perceiver: rendered things have no names, real ones get them."""
    if detector := given_settings(args, 'detector'):
        return {'perceiver': 'detector', 'detector': detector}
    return {'perceiver': 'auto' if args.source else 'classical'}


def _hear(text: str) -> None:
    print(text, end='', file=sys.stderr, flush=True)
