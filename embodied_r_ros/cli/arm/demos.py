# SPDX-License-Identifier: Apache-2.0
"""`embodied-r demos import`: datasets of demonstrations become bags."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from embodied_r_ros.arm.import_dataset import DatasetImport
from embodied_r_ros.arm.import_proposal import columns_text, propose_mapping
from embodied_r_ros.cli.arguments import some_path
from embodied_r_ros.common.errors import InputError
from tqdm import tqdm

if TYPE_CHECKING:
    import argparse

_MAX_NAMES = 3  # of absent episodes


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare what can be done with demonstrations."""
    actions = parser.add_subparsers(dest='action', metavar='ACTION', required=True)
    summary = 'LeRobot datasets (v2.0, v2.1, v3.0) and folders of RLBench to one bag per episode'
    add = actions.add_parser('import', help=summary, description=summary).add_argument
    add('path', type=some_path, metavar='PATH', help='folder of the dataset')
    help_text = 'YAML: which numbers are what (docs/arms.md)'
    add('--mapping', type=some_path, metavar='FILE', help=help_text)
    help_text = 'new or empty folder; episodes that a run before has finished in it are skipped'
    add('--out', type=some_path, required=True, metavar='DIR', help=help_text)
    help_text = 'leave out, and name, episodes that are not whole; otherwise one ends the import'
    add('--skip-damaged', action='store_true', help=help_text)
    summary = 'print a mapping of a dataset to start from, by the names of its columns'
    add = actions.add_parser('mapping', help=summary, description=summary).add_argument
    add('path', type=some_path, metavar='PATH', help='folder of the dataset')


def main(args: argparse.Namespace) -> int:
    """Import a dataset, or propose a mapping of it."""
    if args.action == 'mapping':
        print(propose_mapping(args.path), end='')
        return 0
    if args.mapping is None:
        msg = (
            f'--mapping is missing: start from what `embodied-r demos mapping {args.path}` '
            f'prints. {columns_text(args.path)}'
        )
        raise InputError(msg)
    with DatasetImport(args.path, args.mapping, args.out, skips_damaged=args.skip_damaged) as work:
        return _import(work)


def _import(work: DatasetImport) -> int:
    """Check, then write; each bag is a line on stdout, what is not there one on stderr."""
    total = len(work.dataset.names)
    # disable=None: no bar where stderr is not a terminal.
    for _ in tqdm(work.check(), total=total, unit=' episodes checked', disable=None):
        pass
    results, left_out = [], []
    for result in tqdm(work.write(), total=total, unit=' bags', disable=None):
        if result.reason:
            left_out.append(result)
        else:
            print(result.bag, flush=True)
            results.append(result)
    for result in left_out:
        _tell(f'{result.name} {result.reason}: left out')
    for line in work.dataset.notes():
        _tell(line)
    if absent := work.dataset.absent:
        names = ', '.join([*absent[:_MAX_NAMES], *(['…'] if len(absent) > _MAX_NAMES else [])])
        _tell(f'{len(absent)} episodes are listed, and their files absent: left out ({names})')
    if not work.has_positions:
        _tell('no positions: the mapping has neither xyz nor urdf; keypoints are those of joints')
    frames = work.dataset.decoded
    decoded = f', {frames} frames of videos decoded' if frames else ''
    before = sum(result.was_there for result in results)
    _tell(
        f'{len(results)} of {total + len(absent)} episodes are bags ({before} were there): '
        f'{sum(result.rows for result in results)} rows{decoded}'
    )
    return 0 if results else 1


def _tell(line: str) -> None:
    print(' '.join(line.split()), file=sys.stderr)
