# SPDX-License-Identifier: Apache-2.0
"""`embodied-r doctor`: check the installation, and say what to do."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

from embodied_r_ros.doctor import Check, installation_checks, table, transport_check
from embodied_r_ros.errors import EmbodiedRError

if TYPE_CHECKING:
    import argparse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of the verb."""
    parser.add_argument('--json', action='store_true', help='print one JSON object')


def main(args: argparse.Namespace) -> int:
    """Run all checks; 1 where one fails."""
    checks = installation_checks()
    if checks['ros'].ok:
        print('sending 120 images from one process to another ...', file=sys.stderr)
        checks['transport'] = _transport()
    if args.json:
        print(json.dumps({name: check.to_json() for name, check in checks.items()}))
    else:
        print(table(checks))
    return 0 if all(check.ok for check in checks.values()) else 1


def _transport() -> Check:
    # Imported here: it needs ROS, whose absence is a finding and not a failure of the doctor.
    from embodied_r_ros.nodes.transport_check import measure

    try:
        return transport_check(measure())
    except EmbodiedRError as error:
        return Check(False, str(error), 'see whether a firewall blocks UDP on this machine')
