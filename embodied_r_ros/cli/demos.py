# SPDX-License-Identifier: Apache-2.0
"""`embodied-r demos import`: datasets of demonstrations become bags."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from embodied_r_ros.cli.arguments import some_path
from embodied_r_ros.episodes.import_dataset import import_dataset
from tqdm import tqdm

if TYPE_CHECKING:
    import argparse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare what can be done with demonstrations."""
    actions = parser.add_subparsers(metavar='ACTION', required=True)
    summary = 'LeRobot datasets (v2.1, v3.0) and folders of RLBench to one bag per episode'
    add = actions.add_parser('import', help=summary, description=summary).add_argument
    add('path', type=some_path, metavar='PATH', help='folder of the dataset')
    help_text = 'YAML: which numbers are what (docs/robot_keypoints.md)'
    add('--mapping', type=some_path, required=True, metavar='FILE', help=help_text)
    add('--out', type=some_path, required=True, metavar='DIR', help='new or empty folder')


def main(args: argparse.Namespace) -> int:
    """Import a dataset."""
    bags = import_dataset(args.path, args.mapping, args.out, _tell_failed)
    for bag in tqdm(bags, unit=' bags', disable=None):
        print(bag)
    return 0


def _tell_failed(name: str) -> None:
    sys.stderr.write(f'{name} did not succeed: left out\n')
