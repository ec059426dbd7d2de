# SPDX-License-Identifier: Apache-2.0
"""`embodied-r sim`: recordings of simulated worlds, with the truth beside them."""

from __future__ import annotations

import argparse
import re
import sys
from typing import Any, TYPE_CHECKING

from embodied_r_ros.cli.arguments import some_path, some_text
from embodied_r_ros.config import setting_infos
from embodied_r_ros.sim import require_arm, require_simulator
from embodied_r_ros.sim.config import ArmConfig, IndoorConfig
from tqdm import tqdm

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the worlds and their arguments."""
    worlds = parser.add_subparsers(metavar='WORLD', required=True)
    _add_indoor(worlds)
    _add_arm(worlds)


def _add_indoor(worlds: Any) -> None:
    summary = 'a camera on its way through furnished rooms, one bag per episode'
    indoor = worlds.add_parser('indoor', help=summary, description=summary)
    indoor.set_defaults(world=_indoor)
    add = indoor.add_argument
    default = IndoorConfig()
    _add_run(indoor)
    add('--rate', type=float, default=default.rate_hz, metavar='HZ', help='images per second, 10')
    size = (default.width_px, default.height_px)
    add('--size', type=_size, default=size, metavar='WxH', help='of the images, 320x240')
    duration = default.duration_s
    add('--duration', type=float, default=duration, metavar='S', help='of an episode [s], 20')
    add('--no-images', action='store_true', help='odometry and truth alone: quick')
    kinds = ('all', 'common', 'rare')
    help_text = "of things: 'rare' worlds have kinds and surfaces that 'common' ones never have"
    add('--kinds', choices=kinds, default=default.kinds, help=help_text)
    help_text = 'on the walls, in letters and as QR codes: a text, or a file with one on each line'
    add('--signs', type=some_text, metavar='FILE_OR_TEXT', help=help_text)


def _add_arm(worlds: Any) -> None:
    summary = 'an arm that is shown a task, seen from before it, one bag per demonstration'
    arm = worlds.add_parser('arm', help=summary, description=summary)
    arm.set_defaults(world=_arm)
    add = arm.add_argument
    default = ArmConfig()
    tasks = setting_infos(ArmConfig)['task'].choices
    add('--task', choices=tasks, default=default.task, help='what is shown, pick')
    _add_run(arm)
    rate = default.rate_hz
    add('--rate', type=float, default=rate, metavar='HZ', help='states and images per second, 20')
    size = (default.width_px, default.height_px)
    add('--size', type=_size, default=size, metavar='WxH', help='of the images, 320x240')
    add('--no-images', action='store_true', help='states and truth alone: quick')
    help_text = 'times the usual noise of encoders, 1'
    add('--noise', type=float, default=default.noise, metavar='X', help=help_text)


def _add_run(world: argparse.ArgumentParser) -> None:
    """Declare what all worlds take."""
    add = world.add_argument
    add('--episodes', type=int, required=True, metavar='N', help='how many to keep')
    add('--seed', type=int, required=True, metavar='S', help='seed of the run')
    add('--out', type=some_path, required=True, metavar='DIR', help='new or empty folder')
    add('--workers', type=int, default=1, metavar='N', help='processes, 1')


def main(args: argparse.Namespace) -> int:
    """Run the chosen world."""
    return int(args.world(args))


def _indoor(args: argparse.Namespace) -> int:
    require_simulator()
    from embodied_r_ros.sim.indoor import generate
    from embodied_r_ros.sim.signs import texts_of

    width, height = args.size
    signs = texts_of(args.signs) if args.signs else ()
    config = IndoorConfig(
        args.rate, args.duration, width, height, not args.no_images, args.kinds, signs
    )
    _watch(generate(config, args.seed, args.episodes, args.out, args.workers), args.episodes)
    return 0


def _arm(args: argparse.Namespace) -> int:
    require_arm()
    from embodied_r_ros.sim.arm import generate

    width, height = args.size
    images = not args.no_images
    config = ArmConfig(args.task, args.rate, width, height, images, args.noise)
    _watch(generate(config, args.seed, args.episodes, args.out, args.workers), args.episodes)
    return 0


def _watch(bags: Iterator[Path], episodes: int) -> None:
    quiet = not sys.stderr.isatty()
    for _ in tqdm(bags, total=episodes, unit=' episodes', disable=quiet):
        pass


def _size(text: str) -> tuple[int, int]:
    match = re.fullmatch(r'(\d+)x(\d+)', text)
    if not match:
        msg = f'{text!r} is not a size: expected WxH, such as 320x240'
        raise argparse.ArgumentTypeError(msg)
    return int(match[1]), int(match[2])
