# SPDX-License-Identifier: Apache-2.0
"""`embodied-r serve`: start the model servers of a profile and keep them running."""

from __future__ import annotations

from contextlib import suppress
import json
import os
import shlex
from typing import TYPE_CHECKING

from embodied_r_ros.cli.arguments import say, some_path, some_text
from embodied_r_ros.common.processes import ServiceManager
from embodied_r_ros.serving.profiles import load_profile, ROLES
from embodied_r_ros.serving.served import end_warm_servers
from embodied_r_ros.serving.servers import ModelServers

if TYPE_CHECKING:
    import argparse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    add = parser.add_argument
    add('profile', nargs='?', default='embedded', help='name, or path of a YAML file')
    add('--only', choices=ROLES, default='', help='start the server of this role only')
    add('--host', default='', help='address to listen at (default: as the profile says)')
    add(
        '--follow',
        type=some_text,
        metavar='SLOT',
        help='serve what is promoted to this slot, a name or path (default: of the profile)',
    )
    add('--allow-remote', action='store_true', help='let other machines reach the servers')
    add('--log-dir', type=some_path, help='folder of the logs (default: in ~/.local/state)')
    add('--stop', action='store_true', help='end the servers that stayed after `ask`, and end')
    add('--dry-run', action='store_true', help='check everything and print the command lines')


def main(args: argparse.Namespace) -> int:
    """Serve until interrupted (0) or until a server ends (1)."""
    if args.stop:
        for model in end_warm_servers():
            say(f'{model}: ended')
        return 0
    profile = load_profile(args.profile).with_overrides(args.only, args.host, args.follow or '')
    servers = ModelServers(profile, args.log_dir, allow_remote=args.allow_remote, say=say)
    if args.dry_run:
        for command in servers.commands.values():
            print(shlex.join(command))
        return 0
    # A signal to end is the normal end.
    with suppress(KeyboardInterrupt), servers:
        for role, client in servers.clients().items():
            line = {'role': role, 'url': client.url, 'model': client.model}
            print(json.dumps(line), flush=True)
        ServiceManager(os.environ).tell('READY=1', f'STATUS=serving {profile.name}')
        servers.wait()
    return 0
