# SPDX-License-Identifier: Apache-2.0
"""`embodied-r sim`: recordings of simulated worlds, with the truth beside them."""

from __future__ import annotations

import argparse
from contextlib import ExitStack
from dataclasses import replace
import json
import re
import sys
from typing import Any, TYPE_CHECKING, TypeVar

from embodied_r_ros.cli.arguments import (
    add_settings,
    given_config,
    given_settings,
    say,
    some_path,
    some_text,
)
from embodied_r_ros.common.errors import ConfigError, InputError
from embodied_r_ros.core.reasoning.question import ReasonerConfig
from embodied_r_ros.data.arm_room import arm_room
from embodied_r_ros.serving.profiles import load_profile
from embodied_r_ros.serving.served import served_model
from embodied_r_ros.sim import require_arm, require_simulator
from embodied_r_ros.sim.runs import IndoorConfig, ROBOTS_OF_TASKS, SimArmConfig
from tqdm import tqdm

if TYPE_CHECKING:
    from collections.abc import Iterator

Made = TypeVar('Made')

# The default policy of the arm in a closed loop, and the robot on whose rows it learned.
_ARM_PROFILE, _ARM_ROBOT = 'embedded-arm', 'sawyer_sim_loop'
_ROBOT = 'sawyer_sim'  # of anybody else


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the worlds and their arguments."""
    worlds = parser.add_subparsers(metavar='WORLD', required=True)
    _add_indoor(worlds)
    _add_arm(worlds)


def _add_indoor(worlds: Any) -> None:
    summary = 'a camera on its way through furnished rooms, one bag per episode'
    indoor = worlds.add_parser('indoor', help=summary, description=summary)
    indoor.set_defaults(world=_indoor)
    _add_run(indoor)
    add_settings(indoor, {'indoor': IndoorConfig}, ['indoor.duration_s', 'indoor.images'])


def _add_arm(worlds: Any) -> None:
    summary = 'an arm that is shown a task, seen from before it, one bag per demonstration'
    arm = worlds.add_parser('arm', help=summary, description=summary)
    arm.set_defaults(world=_arm)
    _add_run(arm)
    groups = {'arm': SimArmConfig, 'reasoner': ReasonerConfig}
    add_settings(arm, groups, ['arm.task', 'arm.images'])
    _add_loop(arm)


def _add_loop(arm: argparse.ArgumentParser) -> None:
    loop = arm.add_argument_group('closed loop', 'who chooses keypoints leads the arm')
    add = loop.add_argument
    help_text = 'the real nodes lead the arm; leaves a picture of each trial and report.json'
    add('--closed-loop', action='store_true', help=help_text)
    who = loop.add_mutually_exclusive_group()
    help_text = 'the reasoner: a folder with a model, or URL of a model server; models/arm'
    who.add_argument('--model', type=some_text, metavar='DIR_OR_URL', help=help_text)
    help_text = (
        'who answers instead of a model, also over HTTP; nearest: by where things truly are, '
        'whereas nearest_baseline goes by what is seen'
    )
    who.add_argument('--chooser', choices=('oracle', 'random', 'nearest'), help=help_text)
    help_text = (
        f'of config/robots, or a YAML file; {_ROBOT}, where nobody is named {_ARM_ROBOT}, and '
        f'{ROBOTS_OF_TASKS["drawer"]} for the drawer'
    )
    add('--robot', type=some_text, metavar='ROBOT', help=help_text)
    help_text = 'how fast time passes, at most, in wall time, 1'
    add('--speed', type=float, default=1.0, metavar='X', help=help_text)
    add('--json', action='store_true', help='print one JSON object')


def _add_run(world: argparse.ArgumentParser) -> None:
    """Declare what all worlds take."""
    add = world.add_argument
    add('--episodes', type=int, required=True, metavar='N', help='how many to keep')
    add('--seed', type=int, required=True, metavar='S', help='seed of the run')
    add('--out', type=some_path, required=True, metavar='DIR', help='new or empty folder')
    add('--workers', type=int, default=1, metavar='N', help='processes, 1')
    add('--size', type=_size, default=(320, 240), metavar='WxH', help='of the images, 320x240')


def main(args: argparse.Namespace) -> int:
    """Run the chosen world."""
    return int(args.world(args))


def _indoor(args: argparse.Namespace) -> int:
    require_simulator()
    from embodied_r_ros.sim.indoor.episodes import generate
    from embodied_r_ros.sim.indoor.model import texts_of

    width, height = args.size
    size = {'width_px': width, 'height_px': height}
    config = given_config(args, 'indoor', IndoorConfig, **size)
    config = replace(config, signs=tuple(t for sign in config.signs for t in texts_of(sign)))
    _watch(generate(config, args.seed, args.episodes, args.out, args.workers), args.episodes)
    return 0


def _arm(args: argparse.Namespace) -> int:
    require_arm()
    width, height = args.size
    config = given_config(args, 'arm', SimArmConfig, width_px=width, height_px=height)
    if args.closed_loop:
        return _closed_loop(args, config)
    from embodied_r_ros.sim.arm.demonstrations import generate

    _watch(generate(config, args.seed, args.episodes, args.out, args.workers), args.episodes)
    return 0


def _closed_loop(args: argparse.Namespace, config: SimArmConfig) -> int:
    show_image = given_config(args, 'reasoner', ReasonerConfig).show_image
    if show_image and not args.model:
        msg = 'reasoner.show_image is for a --model that was trained with images: name one'
        raise InputError(msg)
    if not config.images or args.workers > 1 or not 0.01 <= args.speed <= 100:
        msg = '--closed-loop needs images, one worker, and a --speed of 0.01 to 100'
        raise InputError(msg)
    try:
        from embodied_r_ros.nodes.arm.closed_loop import closed_loop, LoopSettings
    except ImportError as error:
        msg = f'ROS 2 is not there ({error}): source it, or run `make setup` in the clone'
        raise ConfigError(msg) from None
    from embodied_r_ros.sim.arm.chooser_server import ChooserServer
    from embodied_r_ros.sim.arm.trials import ClosedLoopRun, finish, lead

    model, robot_file, budget = _leader(args)
    robot, who = arm_room().load_robot(robot_file), args.chooser or 'model'
    run = ClosedLoopRun(config, args.seed, args.episodes, args.out, robot, who)
    run.prepare()
    settings = LoopSettings(
        robot_file,
        robot,
        run.trial,
        speed=args.speed,
        token_budget=budget,
        show_image=show_image,
    )
    with ExitStack() as stack:
        server = stack.enter_context(ChooserServer(who)) if args.chooser else None
        chat = server.chat if server else stack.enter_context(served_model(model, say))
        loop = stack.enter_context(closed_loop(settings, chat, say))
        trials = _watch(lead(run, loop.play, server), run.episodes)
    report = finish(run, trials)
    print(json.dumps(report) if args.json else _in_words(report))
    return 0


def _leader(args: argparse.Namespace) -> tuple[str, str, int]:
    """Model, robot and token budget: the shipped policy for arms by default."""
    model, robot = args.model or '', _ROBOT
    reasoner: dict[str, Any] = {}
    if not args.model and not args.chooser:
        profile = load_profile(_ARM_PROFILE)
        model = profile.servers['reasoner'].model_argument()
        robot, reasoner = _ARM_ROBOT, dict(profile.reasoner)
    robot = ROBOTS_OF_TASKS.get(given_config(args, 'arm', SimArmConfig).task, robot)
    reasoner |= given_settings(args, 'reasoner')
    return model, args.robot or robot, ReasonerConfig(**reasoner).token_budget


def _in_words(report: dict[str, Any]) -> str:
    names = 'success_rate', 'oracle', 'random_baseline', 'nearest_baseline'
    rates = ', '.join(f'{name} {report[name]:.2f}' for name in names)
    return f'{report["task"]}, {report["episodes"]} episodes: {rates}'


def _watch(results: Iterator[Made], episodes: int) -> list[Made]:
    quiet = not sys.stderr.isatty()
    return list(tqdm(results, total=episodes, unit=' episodes', disable=quiet))


def _size(text: str) -> tuple[int, int]:
    match = re.fullmatch(r'(\d+)x(\d+)', text)
    if not match:
        msg = f'{text!r} is not a size: expected WxH, such as 320x240'
        raise argparse.ArgumentTypeError(msg)
    return int(match[1]), int(match[2])
