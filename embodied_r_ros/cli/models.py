# SPDX-License-Identifier: Apache-2.0
"""`embodied-r models ACTION`: model files that others publish, such as detectors."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from embodied_r_ros.cli.arguments import some_path, some_text
from embodied_r_ros.serving import model_files
from embodied_r_ros.serving.model_files import fetch, model_file, model_folder
from tqdm import tqdm

if TYPE_CHECKING:
    import argparse

_MB = 1e6


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of the verb."""
    actions = parser.add_subparsers(dest='action', metavar='ACTION', required=True)
    summary = 'list the files, with their licences, and whether they are here'
    actions.add_parser('list', help=summary, description=summary)
    summary = 'download a file, verify it, and print its path'
    action = actions.add_parser('fetch', help=summary, description=summary)
    add = action.add_argument
    add('name', metavar='NAME', help=f'which one: {", ".join(model_files.MODEL_FILES)}')
    add('--to', type=some_path, metavar='DIR', help='folder (default: in ~/.local/share)')
    add('--url', type=some_text, help='a mirror of the file; its SHA-256 must be the same')


def main(args: argparse.Namespace) -> int:
    """Do the action; paths and the list go to stdout."""
    if args.action == 'list':
        for name, entry in model_files.MODEL_FILES.items():
            path = model_folder() / entry.file_name
            print(f'{name:<15} {entry.size / _MB:6.1f} MB  {entry.licence:<11} ', end='')
            print(f'{entry.description}; {path if path.is_file() else "not fetched"}')
        return 0
    entry = model_file(args.name)
    print(f'{entry.description}, {entry.licence}: {args.url or entry.url}', file=sys.stderr)
    # disable=None: no bar where stderr is not a terminal.
    with tqdm(total=entry.size, unit='B', unit_scale=True, disable=None) as bar:
        path = fetch(entry, args.to or model_folder(), args.url or '', bar.update)
    print(path)
    return 0
