# SPDX-License-Identifier: Apache-2.0
"""`embodied-r ask SOURCE QUESTION`: one answer about a recording, with its reasoning."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

from embodied_r_ros.cli.arguments import some_count, some_path, some_text
from embodied_r_ros.common.errors import InputError
from embodied_r_ros.common.resources import shared_path
from embodied_r_ros.episodes.offline import (
    answer_to_json,
    ask_about,
    check_source,
    see,
    with_landmarks,
)
from embodied_r_ros.reasoning.question import Phase, Question, question_problem, ReasonerConfig
from embodied_r_ros.serving.servers import served_model
from tqdm import tqdm

if TYPE_CHECKING:
    import argparse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of the verb."""
    add = parser.add_argument
    add('source', type=some_path, metavar='SOURCE', help='video, images, bag, or MAP.json')
    add('question', metavar='QUESTION', help='what to ask')
    add('-o', '--option', action='append', default=[], help='an option; repeat, at least twice')
    add(
        '--model',
        type=some_text,
        metavar='DIR_OR_URL',
        help='folder with a model, or URL of a model server; URL#MODEL names one of several',
    )
    add('--topic', help='image topic of a bag, where it has several')
    add('--rate', type=float, metavar='HZ', help='images per second of a folder, default 10')
    add(
        '--map',
        action='store_true',
        help='let the prompt hold the landmark map of SOURCE too, for a model that knows maps',
    )
    add('--temperature', type=float, default=0.0, help='0, the default: greedy')
    add(
        '--max-tokens',
        type=some_count,
        default=ReasonerConfig.max_tokens,
        metavar='N',
        help='tokens that reasoning and answer may have (default: %(default)s)',
    )
    add('--json', action='store_true', help='print one JSON object')


def main(args: argparse.Namespace) -> int:
    """Answer one question; the reasoning goes to stderr as it is generated."""
    problem = question_problem(args.question, args.option)
    if problem:
        raise InputError(problem)
    question = Question(args.question, tuple(args.option))
    config = ReasonerConfig(temperature=args.temperature, max_tokens=args.max_tokens)
    model = args.model or str(shared_path('models', 'nano'))
    check_source(args.source, args.topic, args.rate)
    with served_model(model, _say) as chat:
        scene = see(
            args.source,
            args.topic,
            args.rate,
            lambda images, length: tqdm(images, total=length, unit=' images', disable=None),
        )
        if args.map:
            scene = with_landmarks(scene)
        answer = ask_about(scene, question, chat, config, _hear)
    print(file=sys.stderr)
    values = answer_to_json(answer)
    print(json.dumps(values, ensure_ascii=False) if args.json else values['answer'])
    return 0


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _hear(phase: Phase, text: str) -> None:
    if phase in {Phase.THINK, Phase.ANSWER}:
        print(text, end='', file=sys.stderr, flush=True)
