# SPDX-License-Identifier: Apache-2.0
"""`embodied-r replay BAG`: what other models say to the questions of a recording."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

from embodied_r_ros.cli.arguments import some_path, some_seconds, some_text
from embodied_r_ros.common.errors import InputError
from embodied_r_ros.episodes.episode import read_answers
from embodied_r_ros.episodes.replay import (
    ask_again,
    never_answered,
    prepare_replays,
    replay_table,
    replay_to_json,
)
from embodied_r_ros.serving.servers import served_model
from tqdm import tqdm

if TYPE_CHECKING:
    import argparse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of the verb."""
    add = parser.add_argument
    add('bag', type=some_path, metavar='BAG', help='bag with recorded answers')
    add(
        '--model',
        type=some_text,
        action='append',
        required=True,
        metavar='DIR_OR_URL',
        help='folder with a model, or URL of a model server (URL#MODEL: one of its models); '
        'repeat to compare several',
    )
    add('--deadline', type=some_seconds, default=120.0, metavar='S', help='time per answer [s]')
    add('--json', action='store_true', help='print one JSON object per question')


def main(args: argparse.Namespace) -> int:
    """Ask every recorded question again, and print what changed; 1: a model failed them all."""
    replays = prepare_replays(read_answers(args.bag))
    if not replays:
        msg = f'{args.bag} holds no answer that a model was asked for: record with the reasoner'
        raise InputError(msg)
    for model in args.model:
        with served_model(model, _say) as chat:
            bar = tqdm(replays, unit=' questions', disable=None)
            replays = ask_again(bar, chat, args.deadline)
    if args.json:
        for replay in replays:
            print(json.dumps(replay_to_json(replay), ensure_ascii=False))
    else:
        print(replay_table(replays, args.model))
    failures = never_answered(replays, args.model)
    for failure in failures:
        _say(f'embodied-r: failed: {failure}')
    return 1 if failures else 0


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
