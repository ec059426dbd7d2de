# SPDX-License-Identifier: Apache-2.0
"""`embodied-r sim arm`: demonstrations of a simulated arm, or trials that real nodes lead."""

from __future__ import annotations

from contextlib import ExitStack
import json
from typing import Any, TYPE_CHECKING

from embodied_r_ros.cli.arguments import (
    add_settings,
    given_config,
    given_settings,
    say,
    some_text,
)
from embodied_r_ros.cli.sim import watch
from embodied_r_ros.common.errors import ConfigError, InputError
from embodied_r_ros.core.reasoning.question import ReasonerConfig
from embodied_r_ros.serving.profiles import load_profile
from embodied_r_ros.serving.served import served_model
from embodied_r_ros.sim import require_arm
from embodied_r_ros.sim.runs import ROBOTS_OF_TASKS, SimArmConfig

if TYPE_CHECKING:
    import argparse

# The default policy of the arm in a closed loop, and the robot on whose rows it learned.
_ARM_PROFILE, _ARM_ROBOT = 'embedded-arm', 'sawyer_sim_loop'
_ROBOT = 'sawyer_sim'  # of anybody else


def add_arguments(arm: argparse.ArgumentParser) -> None:
    """Declare what demonstrations and trials take."""
    groups = {'arm': SimArmConfig, 'reasoner': ReasonerConfig}
    add_settings(arm, groups, ['arm.task', 'arm.images'])
    loop = arm.add_argument_group('closed loop', 'who chooses keypoints leads the arm')
    add = loop.add_argument
    help_text = 'the real nodes lead the arm; leaves report.json'
    add('--closed-loop', action='store_true', help=help_text)
    who = loop.add_mutually_exclusive_group()
    help_text = 'the reasoner: a folder with a model, or URL of a model server; models/arm'
    who.add_argument('--model', type=some_text, metavar='DIR_OR_URL', help=help_text)
    help_text = 'what answers in place of a model; nearest: by where things truly are'
    who.add_argument('--chooser', choices=('oracle', 'random', 'nearest'), help=help_text)
    help_text = (
        f'name in config/robots, or a YAML file (default: {_ARM_ROBOT}; {_ROBOT} with --model or '
        f'--chooser; {ROBOTS_OF_TASKS["drawer"]} for the drawer)'
    )
    add('--robot', type=some_text, metavar='ROBOT', help=help_text)
    help_text = 'how fast time passes, at most, in wall time, 1'
    add('--speed', type=float, default=1.0, metavar='X', help=help_text)
    add('--json', action='store_true', help='print one JSON object')


def main(args: argparse.Namespace) -> int:
    """Write demonstrations, or let nodes lead trials.

    Raises:
        InputError: An argument cannot be used, or the folder is not empty.
    """
    require_arm()
    width, height = args.size
    config = given_config(args, 'arm', SimArmConfig, width_px=width, height_px=height)
    if args.closed_loop:
        return _closed_loop(args, config)
    from embodied_r_ros.sim.arm.demonstrations import generate

    watch(generate(config, args.seed, args.episodes, args.out, args.workers), args.episodes)
    return 0


def _closed_loop(args: argparse.Namespace, config: SimArmConfig) -> int:
    model, robot_file, reasoner = _leader(args)
    if reasoner.show_image and not args.model:
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
    from embodied_r_ros.arm.robot import load_robot
    from embodied_r_ros.sim.arm.chooser_server import ChooserServer
    from embodied_r_ros.sim.arm.trials import ClosedLoopRun, finish, lead

    robot, who = load_robot(robot_file), args.chooser or 'model'
    run = ClosedLoopRun(config, args.seed, args.episodes, args.out, robot, who)
    run.prepare()
    settings = LoopSettings(
        robot_file,
        robot,
        run.trial,
        speed=args.speed,
        reasoner=reasoner,
    )
    with ExitStack() as stack:
        server = stack.enter_context(ChooserServer(who)) if args.chooser else None
        chat = server.chat if server else stack.enter_context(served_model(model, say))
        loop = stack.enter_context(closed_loop(settings, chat, say))
        trials = watch(lead(run, loop.play, server), run.episodes)
    report = finish(run, trials)
    print(json.dumps(report) if args.json else _in_words(report))
    return 0


def _leader(args: argparse.Namespace) -> tuple[str, str, ReasonerConfig]:
    """Model, robot and how it is asked: the shipped policy for arms by default."""
    model, robot = args.model or '', _ROBOT
    reasoner: dict[str, Any] = {}
    if not args.model and not args.chooser:
        profile = load_profile(_ARM_PROFILE)
        model = profile.servers['reasoner'].model_argument()
        robot, reasoner = _ARM_ROBOT, dict(profile.reasoner)
    robot = ROBOTS_OF_TASKS.get(given_config(args, 'arm', SimArmConfig).task, robot)
    reasoner |= given_settings(args, 'reasoner')
    return model, args.robot or robot, ReasonerConfig(**reasoner)


def _in_words(report: dict[str, Any]) -> str:
    names = 'success_rate', 'oracle', 'random_baseline', 'nearest_baseline'
    rates = ', '.join(f'{name} {report[name]:.2f}' for name in names)
    return f'{report["task"]}, {report["episodes"]} episodes: {rates}'
