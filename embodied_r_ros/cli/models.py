# SPDX-License-Identifier: Apache-2.0
"""`embodied-r models ACTION`: files that others publish, and slots of promoted models."""

from __future__ import annotations

from datetime import datetime, timezone
import json
import sys
from typing import Any, TYPE_CHECKING

from embodied_r_ros.cli.arguments import some_text
from embodied_r_ros.common.files import user_name
from embodied_r_ros.serving import model_files
from embodied_r_ros.serving.model_files import fetch, model_file, model_folder
from embodied_r_ros.serving.promotion import history, publish, roll_back, Signature, slot_folder
from tqdm import tqdm

if TYPE_CHECKING:
    import argparse

    from embodied_r_ros.serving.promotion import PromotedModel

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
    add('--url', type=some_text, help='a mirror of it, or a local file; its SHA-256 counts')
    summary = 'copy the promoted model of a slot to another, such as one that many robots follow'
    action = _slot_action(actions, 'publish', summary)
    action.add_argument('target', metavar='TO', type=some_text, help='slot that it goes to')
    _slot_action(actions, 'rollback', 'restore the previous model')
    _slot_action(actions, 'history', 'who promoted and took back, when and why', is_signed=False)


def _slot_action(
    actions: Any, name: str, summary: str, *, is_signed: bool = True
) -> argparse.ArgumentParser:
    action: argparse.ArgumentParser = actions.add_parser(name, help=summary, description=summary)
    action.add_argument('slot', metavar='SLOT', type=some_text, help='its name or path')
    if is_signed:
        action.add_argument('--why', default='', metavar='TEXT', help='for the history')
    return action


def main(args: argparse.Namespace) -> int:
    """Do the action; paths, lists and what is in force then go to stdout."""
    if args.action in {'publish', 'rollback'}:
        date = datetime.now(timezone.utc).isoformat(timespec='seconds')
        signature = Signature(user_name(), date, args.why)
        if args.action == 'publish':
            target = slot_folder(args.target)
            promoted: PromotedModel | None = publish(slot_folder(args.slot), target, signature)
        else:
            promoted = roll_back(slot_folder(args.slot), signature)
        print(promoted.digest if promoted else "the profile's own model")
        return 0
    if args.action == 'history':
        folder = slot_folder(args.slot)
        events = history(folder)
        for event in events:
            print(json.dumps(event))
        if not events:
            print(f'nothing was ever promoted in {args.slot} ({folder})', file=sys.stderr)
        return 0
    if args.action == 'list':
        for name, entry in model_files.MODEL_FILES.items():
            path = model_folder() / entry.file_name
            print(f'{name:<15} {entry.size / _MB:6.1f} MB  {entry.licence:<11} ', end='')
            print(f'{entry.description}; {path if path.is_file() else "not fetched"}')
        return 0
    entry = model_file(args.name)
    print(f'{entry.description}, {entry.licence}: {args.url or entry.url}', file=sys.stderr)
    # disable=None: no bar where stderr is not a terminal.
    with tqdm(total=entry.download_size, unit='B', unit_scale=True, disable=None) as bar:
        path = fetch(entry, model_folder(), args.url or '', bar.update)
    print(path)
    return 0
