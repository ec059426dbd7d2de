# SPDX-License-Identifier: Apache-2.0
"""`embodied-r questions`: rows with solutions, from what each bag or scene map proves."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from embodied_r_ros.arm.robot import load_robot
from embodied_r_ros.bags.sources import find_bags
from embodied_r_ros.cli.arguments import some_path
from embodied_r_ros.common.errors import InputError
from embodied_r_ros.episodes.arm import keyframes_of_arm
from embodied_r_ros.episodes.episode import DELTA_SOURCES
from embodied_r_ros.perception.classical import ClassicalConfig
from embodied_r_ros.perception.pipeline import classical_perceiver, perceive_path, vlm_perceiver
from embodied_r_ros.questions.collect import MAP_SUFFIX, rows_of_bags
from embodied_r_ros.questions.coverage import Coverage, manifest_path, write_manifest
from embodied_r_ros.questions.derive import QuestionsConfig
from embodied_r_ros.questions.row import write_rows
from embodied_r_ros.serving.profiles import load_profile
from tqdm import tqdm

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from embodied_r_ros.arm.robot import Robot
    from embodied_r_ros.types.deltas import SemanticDelta


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of the verb."""
    parser.add_argument(
        'bags',
        nargs='+',
        type=some_path,
        metavar='BAG',
        help='bags, folders of bags, or scene maps (MAP.json)',
    )
    parser.add_argument(
        '--out', type=some_path, required=True, metavar='ROWS.jsonl', help='rows file'
    )
    parser.add_argument(
        '--deltas', choices=DELTA_SOURCES, help='default: recorded if there, else classical'
    )
    parser.add_argument(
        '--no-odometry',
        action='store_true',
        help='with --deltas classical: perceive from images alone, as of a robot without it; '
        'solutions know the poses still',
    )
    parser.add_argument('--seed', type=int, default=0, help='of the questions and the split')
    parser.add_argument('--moments', type=int, default=4, help='moments to ask at, per episode')
    parser.add_argument(
        '--test-share',
        type=float,
        default=QuestionsConfig.test_share,
        help='share of the scenes for the split test, half of whose wordings are held out from '
        'training (%(default)s); 1: worlds that are for tests alone',
    )
    parser.add_argument(
        '--even-answers',
        action='store_true',
        help='leave out rows whose answer has come more often than their other options, so that '
        'questions alone tell less',
    )
    parser.add_argument(
        '--maps',
        action='store_true',
        help='ask also what a scene map answers: counts, distances, directions, sizes, order, '
        'ways; of simulated bags by their true layout, of others by their own map. MAP.json '
        'files are asked that always',
    )
    parser.add_argument(
        '--map-slack',
        type=float,
        default=QuestionsConfig.map_slack_m,
        metavar='M',
        help='how far places of a map that no truth proves may be off, in metres (%(default)s): '
        'nothing is asked whose solution that could change',
    )
    parser.add_argument(
        '--apart-from',
        action='append',
        default=[],
        type=some_path,
        metavar='ROWS.jsonl',
        help='leave out scenes that these rows are of, or show too, and what they ask: so rows to '
        'test on share nothing with those that were trained on',
    )
    parser.add_argument(
        '--robot',
        metavar='NAME_OR_FILE',
        help='of demonstrations of an arm: a robot of config/robots, or the YAML file of another; '
        'default: as the bag says',
    )
    parser.add_argument('--force', action='store_true', help='use bags that fail their audit too')
    parser.add_argument('--profile', help='profile of the model servers, for --deltas vlm')


def main(args: argparse.Namespace) -> int:
    """Derive the rows and write their manifest; the coverage report goes to stderr."""
    config = QuestionsConfig(
        moments=args.moments,
        seed=args.seed,
        test_share=args.test_share,
        even_answers=args.even_answers,
        maps=args.maps,
        map_slack_m=args.map_slack,
        apart_from=tuple(map(str, args.apart_from)),
        robot=load_robot(args.robot) if args.robot else None,
    )
    manifest_path(args.out)  # refused before the work, not after it
    coverage = Coverage()
    maps = [path for path in args.bags if path.suffix == MAP_SUFFIX]
    bags = find_bags([path for path in args.bags if path not in maps])
    sources = tqdm([*bags, *maps], unit=' bags', disable=None)
    perceive = _perceiving(args, config.robot)
    seen_by = 'classical, without odometry' if args.no_odometry else args.deltas
    rows = rows_of_bags(sources, args.deltas, config, coverage, perceive, is_forced=args.force)
    count = write_rows(args.out, rows)
    write_manifest(args.out, config, seen_by, coverage)
    for bag in coverage.bags:
        if bag.left_out:
            print(f'left out: {bag.name}: {bag.left_out}', file=sys.stderr)
    print(coverage.table(), file=sys.stderr)
    return 0 if count else 1


def _perceiving(
    args: argparse.Namespace, robot: Robot | None
) -> Callable[[Path], Sequence[SemanticDelta]]:
    """What perceives the images of a bag, where its deltas are not read from it."""
    if args.no_odometry and args.deltas != 'classical':
        msg = '--no-odometry is for --deltas classical: give both, or leave it out'
        raise InputError(msg)
    if args.deltas != 'vlm':
        if args.profile:
            msg = '--profile is for --deltas vlm: give both, or neither'
            raise InputError(msg)
        sight = ClassicalConfig(use_odometry=not args.no_odometry)
        return lambda bag: list(
            perceive_path(bag, classical_perceiver(sight), keyframes_of_arm(bag, robot))
        )
    if not args.profile:
        msg = '--deltas vlm needs a model server: give --profile'
        raise InputError(msg)
    profile = load_profile(args.profile)
    perceiver = vlm_perceiver(profile.client('perceiver'), profile.vlm)
    return lambda bag: list(perceive_path(bag, perceiver, keyframes_of_arm(bag, robot)))
