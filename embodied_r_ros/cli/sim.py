# SPDX-License-Identifier: Apache-2.0
"""`embodied-r sim`: recordings of simulated worlds, with the truth beside them."""

from __future__ import annotations

import argparse
from dataclasses import replace
from importlib import import_module
import re
import sys
from typing import Any, TYPE_CHECKING, TypeVar

from embodied_r_ros.cli.arguments import add_settings, given_config, some_path
from embodied_r_ros.sim import require_simulator
from embodied_r_ros.sim.runs import IndoorConfig
from tqdm import tqdm

if TYPE_CHECKING:
    from collections.abc import Iterator

Made = TypeVar('Made')


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the worlds and their arguments."""
    worlds = parser.add_subparsers(metavar='WORLD', required=True)
    _add_indoor(worlds)
    _add_arm(worlds)


def _add_indoor(worlds: Any) -> None:
    summary = 'a camera that moves through furnished rooms, one bag per episode'
    indoor = worlds.add_parser('indoor', help=summary, description=summary)
    indoor.set_defaults(world=_indoor)
    _add_run(indoor)
    add_settings(indoor, {'indoor': IndoorConfig}, ['indoor.duration_s', 'indoor.images'])


def _add_arm(worlds: Any) -> None:
    summary = 'an arm that does a task before a fixed camera, one bag per demonstration'
    arm = worlds.add_parser('arm', help=summary, description=summary)
    world: Any = import_module('embodied_r_ros.cli.arm.sim')  # by its name: nobody else needs it
    arm.set_defaults(world=world.main)
    _add_run(arm)
    world.add_arguments(arm)


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
    watch(generate(config, args.seed, args.episodes, args.out, args.workers), args.episodes)
    return 0


def watch(results: Iterator[Made], episodes: int) -> list[Made]:
    """All results, with a bar of progress."""
    quiet = not sys.stderr.isatty()
    return list(tqdm(results, total=episodes, unit=' episodes', disable=quiet))


def _size(text: str) -> tuple[int, int]:
    match = re.fullmatch(r'(\d+)x(\d+)', text)
    if not match:
        msg = f'{text!r} is not a size: expected WxH, such as 320x240'
        raise argparse.ArgumentTypeError(msg)
    return int(match[1]), int(match[2])
