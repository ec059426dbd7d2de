# SPDX-License-Identifier: Apache-2.0
"""`embodied-r demo`: a recording through the real nodes, and questions about it."""

from __future__ import annotations

from pathlib import Path
import sys
from typing import TYPE_CHECKING

from embodied_r_ros.errors import ConfigError, InputError
from embodied_r_ros.reasoning.asking import Question, question_problem
from embodied_r_ros.resources import shared_path

if TYPE_CHECKING:
    import argparse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of the verb."""
    parser.add_argument('--source', type=Path, help='video, folder of images, or bag')
    parser.add_argument('--topic', help='image topic of a bag; default: the only one there is')
    parser.add_argument('--question', help='what to ask; default: three questions of its own')
    parser.add_argument('-o', '--option', action='append', default=[], help='repeat, one each')
    parser.add_argument('--out', type=Path, required=True, help='new or empty folder')


def main(args: argparse.Namespace) -> int:
    """Run the demonstration."""
    if args.option and not args.question:
        msg = 'options without a question: give --question too'
        raise InputError(msg)
    problem = question_problem(args.question, args.option) if args.question is not None else ''
    if problem:
        raise InputError(problem)
    try:
        from embodied_r_ros.nodes.demo import Audience, DemoRequest, run_demo
    except ImportError as error:
        msg = f'ROS 2 is not there ({error}): source it, or run `make demo` in the clone'
        raise ConfigError(msg) from None
    questions = (Question(args.question, tuple(args.option)),) if args.question else ()
    source = args.source or shared_path('samples', 'indoor', 'episode_00000')
    report = run_demo(DemoRequest(source, args.out, questions, args.topic), Audience(_say, _hear))
    right = [entry['right'] for entry in report['questions'] if entry['right'] is not None]
    known = f', {sum(right)} of {len(right)} right' if right else ''
    _say(f'done: {len(report["questions"])} questions{known}; see {args.out}/contact_sheet.png')
    return 0


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _hear(text: str) -> None:
    print(text, end='', file=sys.stderr, flush=True)
