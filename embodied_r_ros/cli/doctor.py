# SPDX-License-Identifier: Apache-2.0
"""`embodied-r doctor`: check the installation, and say what to do."""

from __future__ import annotations

import json
import os
import sys
from typing import TYPE_CHECKING

from embodied_r_ros.cli.arguments import some_text
from embodied_r_ros.common.errors import EmbodiedRError
from embodied_r_ros.core.chat.settings import ChatConfig
from embodied_r_ros.nodes.doctor import (
    boxes_check,
    camera_check,
    Diagnosis,
    installation_checks,
    look_for_camera,
    other_publisher_check,
    server_check,
    table,
    transport_check,
)
from embodied_r_ros.nodes.transport import transport_environment

if TYPE_CHECKING:
    import argparse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of the verb."""
    add = parser.add_argument
    add('--server', type=some_text, metavar='URL', help='model server that must be there')
    add(
        '--vlm',
        type=some_text,
        metavar='URL_OR_PROFILE',
        help='vision-language model that is shown three shapes, to see how it gives boxes',
    )
    add('--image-topic', type=some_text, help='camera that must be there')
    add('--json', action='store_true', help='print one JSON object')


def main(args: argparse.Namespace) -> int:
    """Run all checks; 1 where one fails."""
    checks = installation_checks()
    url = args.server or ChatConfig().url
    checks['server'] = server_check(url, is_wanted=args.server is not None)
    if args.vlm:
        checks['boxes'] = boxes_check(args.vlm)
    if checks['ros'].ok and checks['rmw'].ok:
        checks['camera'] = _camera(args.image_topic or '')
        print('sending 120 images from one process to another ...', file=sys.stderr)
        checks['transport'] = _transport()
        if transport_environment(os.environ):
            checks['publisher'] = _other_publisher()
    if args.json:
        print(json.dumps({name: check.to_json() for name, check in checks.items()}))
    else:
        print(table(checks))
    return 0 if all(check.ok for check in checks.values()) else 1


def _camera(topic: str) -> Diagnosis:
    return camera_check(look_for_camera(topic), topic)


def _transport() -> Diagnosis:
    # Imported here: it needs ROS, whose absence is a finding and not a failure of the doctor.
    from embodied_r_ros.nodes.transport_check import measure

    try:
        return transport_check(measure())
    except EmbodiedRError as error:
        return Diagnosis(False, str(error), 'see whether a firewall blocks UDP on this machine')


def _other_publisher() -> Diagnosis:
    from embodied_r_ros.nodes.transport_check import measure

    print('and 60 from a process with the settings of this shell ...', file=sys.stderr)
    try:
        return other_publisher_check(measure(count=60, publisher_environment=os.environ))
    except EmbodiedRError as error:
        return Diagnosis(False, str(error), 'see whether a firewall blocks UDP on this machine')
