# SPDX-License-Identifier: Apache-2.0
"""`embodied-r keypoints BAG`: where the arm of a demonstration comes to, and why that counts."""

from __future__ import annotations

from dataclasses import replace
import json
from pathlib import Path
import sys
from typing import TYPE_CHECKING

from embodied_r_ros.arm.demonstration_bag import read_demonstration, setup_of
from embodied_r_ros.arm.keypoint_rules import find_keypoints, RULES
from embodied_r_ros.arm.robot import ArmSetup, load_robot, Robot
from embodied_r_ros.arm.sheets import images_at, write_keypoint_sheet
from embodied_r_ros.bags.reader import open_bag
from embodied_r_ros.cli.arguments import some_path

if TYPE_CHECKING:
    import argparse

    from embodied_r_ros.arm.demonstration import Keypoint

_HEADING = '  sample      time        x        y        z   gripper  reason'


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of the verb."""
    add = parser.add_argument
    add('bag', type=some_path, metavar='BAG', help='bag with one demonstration of an arm')
    add(
        '--rule',
        choices=RULES,
        default='seconds',
        help='seconds: for real robots; arm: that of the papers, in frames of 20 Hz',
    )
    help_text = 'YAML: what topics, frames and joints are called; else as the bag says'
    add('--setup', type=some_path, metavar='FILE', help=help_text)
    help_text = 'of config/robots, or a YAML file: its `setup`, and what its `stops` are'
    add('--robot', metavar='ROBOT', help=help_text)
    add('--json', action='store_true', help='one JSON object per line')
    help_text = 'write a PNG: speed, gripper and keypoints over time, and the images there'
    add('--picture', type=some_path, metavar='FILE', help=help_text)


def main(args: argparse.Namespace) -> int:
    """List the keypoints of a demonstration."""
    chosen_setup = ArmSetup.from_yaml(args.setup) if args.setup else None
    robot = load_robot(args.robot) if args.robot else Robot()
    with open_bag(args.bag) as reader:
        setup = chosen_setup or robot.setup or setup_of(reader)
        if chosen_setup and chosen_setup.urdf:  # as it lies beside its setup
            setup = replace(chosen_setup, urdf=str(Path(args.setup).parent / chosen_setup.urdf))
        demonstration = read_demonstration(reader, setup)
        samples, keypoints = find_keypoints(demonstration, args.rule, robot.stops)
        if args.picture:
            images = images_at(reader, setup, [keypoint.stamp_ns for keypoint in keypoints])
            write_keypoint_sheet(args.picture, samples, keypoints, images)
    if demonstration.positions is None:
        print('no positions: the bag has joints alone, and no URDF of them', file=sys.stderr)
    if not args.json:
        print(_HEADING)
    for keypoint in keypoints:
        line = _row(keypoint, int(demonstration.stamps_ns[0]))
        print(json.dumps(keypoint.to_json()) if args.json else line)
    return 0


def _row(keypoint: Keypoint, start_ns: int) -> str:
    place = [f'{value:8.3f}' for value in keypoint.position or ()] or [f'{"-":>8}'] * 3
    gripper = {True: 'open', False: 'closed', None: '-'}[keypoint.is_open]
    seconds = (keypoint.stamp_ns - start_ns) / 1e9
    return (
        f'{keypoint.index:8d}  {seconds:8.3f} {" ".join(place)}   {gripper:>7}  {keypoint.reason}'
    )
