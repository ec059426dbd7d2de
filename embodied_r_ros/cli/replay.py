# SPDX-License-Identifier: Apache-2.0
"""`embodied-r replay BAG`: a recording with other models, or another perceiver."""

from __future__ import annotations

import json
from typing import Any, TYPE_CHECKING

from embodied_r_ros.cli.arguments import (
    add_settings,
    check_folder_of,
    given_config,
    say,
    some_path,
    some_text,
)
from embodied_r_ros.cli.perceiver import (
    add_perceiver_arguments,
    PERCEIVER_GROUPS,
    perceiver_of,
)
from embodied_r_ros.common.errors import InputError
from embodied_r_ros.common.files import write_whole
from embodied_r_ros.core.reasoning.question import ReasonerConfig
from embodied_r_ros.data.episodes.episode import episode_id_of, read_answers
from embodied_r_ros.data.episodes.replay import (
    ask_again,
    never_answered,
    prepare_replays,
    replay_report,
    replay_table,
)
from embodied_r_ros.data.episodes.replay_deltas import OtherScene, pairs_table, perceive_again
from embodied_r_ros.serving.profiles import reasoner_config
from embodied_r_ros.serving.served import served_model
from tqdm import tqdm

if TYPE_CHECKING:
    import argparse

    from embodied_r_ros.data.episodes.replay import Replay

_NONE = 'none'
_DEADLINE_S = 120.0  # for an answer


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of the verb."""
    add = parser.add_argument
    add('bag', type=some_path, metavar='BAG', help='a recording with answers, or keyframes')
    add(
        '--model',
        type=some_text,
        action='append',
        metavar='DIR_OR_URL',
        help='folder, adapter in GGUF, or URL of a server (URL#MODEL: one of its models); repeat '
        'to compare several; none: no questions are asked, as by default with --perceiver',
    )
    add('--json', action='store_true', help='print one JSON object per keyframe and question')
    add('--out', type=some_path, metavar='FILE.json', help='write the whole report there too')
    add_perceiver_arguments(parser, 'as it was recorded')
    add_settings(parser, {**PERCEIVER_GROUPS, 'reasoner': ReasonerConfig})


def main(args: argparse.Namespace) -> int:
    """Replay a recording, and print what changed; 1: a model failed all questions."""
    _check(args)
    config = given_config(args, 'reasoner', ReasonerConfig, deadline_s=_DEADLINE_S)
    log = read_answers(args.bag)
    scene = _other_scene(args)
    replays = prepare_replays(log, scene)
    if not replays and not scene:
        msg = f'{args.bag} holds no answer that a model was asked for: record with the reasoner'
        raise InputError(msg)
    replays, models = _asked_again(args, replays, config.deadline_s)
    report = replay_report(
        args.bag.resolve().name, episode_id_of(args.bag), replays, models, scene
    )
    if args.out:
        write_whole(args.out, json.dumps(report, ensure_ascii=False) + '\n')
    if args.json:
        for value in (*report['keyframes'], *report['questions']):
            print(json.dumps(value, ensure_ascii=False))
    else:
        tables = [pairs_table(scene.pairs)] if scene else []
        tables += [replay_table(replays, models)] if models else []
        print('\n\n'.join(tables))
    failures = never_answered(replays, models)
    for failure in failures:
        say(f'embodied-r: failed: {failure}')
    return 1 if failures else 0


def _check(args: argparse.Namespace) -> None:
    """Refuse arguments that do not go together, before anything is read."""
    check_folder_of(args.out)
    if not args.model and args.perceiver in {None, 'recorded'}:
        msg = 'nothing differs from what was recorded: give --model, or --perceiver'
        raise InputError(msg)
    if args.model and _NONE in args.model and args.perceiver in {None, 'recorded'}:
        msg = '--model none goes with --perceiver alone'
        raise InputError(msg)


def _other_scene(args: argparse.Namespace) -> OtherScene | None:
    """What another perceiver says; None: none is named."""
    if args.perceiver in {None, 'recorded'}:
        if args.profile or args.settings:
            perceiver_of(args)  # says with which perceiver they go
        return None
    perceiver = perceiver_of(args)

    def progress(keyframes: Any) -> Any:
        return tqdm(keyframes, unit=' keyframes', disable=None)

    return OtherScene(args.bag, perceiver, perceive_again(args.bag, perceiver, progress))


def _asked_again(
    args: argparse.Namespace, replays: list[Replay], deadline_s: float
) -> tuple[list[Replay], list[str]]:
    """The questions with the answers of each model, and the names of those."""
    models = [model for model in args.model or () if model != _NONE] if replays else []
    for model in models:
        with served_model(model, say) as chat:
            bar = tqdm(replays, unit=' questions', disable=None)
            replays = ask_again(bar, chat, deadline_s, reasoner_config(model).writes)
    return replays, models
