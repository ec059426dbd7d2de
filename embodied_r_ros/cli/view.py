# SPDX-License-Identifier: Apache-2.0
"""`embodied-r view BAG`: a recording in the Rerun viewer, or saved for it."""

from __future__ import annotations

import json
from pathlib import Path
import tempfile
from typing import TYPE_CHECKING

from embodied_r_ros.apps.rerun import open_viewer, show
from embodied_r_ros.cli.arguments import some_path

if TYPE_CHECKING:
    import argparse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of the verb."""
    add = parser.add_argument
    add('bag', type=some_path, metavar='BAG', help='rosbag2 folder, or a .mcap or .db3 file')
    add('--save', type=some_path, metavar='FILE', help='write a .rrd file; else start the viewer')


def main(args: argparse.Namespace) -> int:
    """Show a recording, and print what it shows."""
    with tempfile.TemporaryDirectory(prefix='embodied_r_view-') as folder:
        file = args.save or Path(folder) / 'view.rrd'
        print(json.dumps(show(args.bag, file)), flush=True)
        if not args.save:
            open_viewer(file)
    return 0
