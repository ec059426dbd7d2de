# SPDX-License-Identifier: Apache-2.0
"""`embodied-r mcp`: recordings or the running robot for assistants (MCP), read only."""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING

from embodied_r_ros.apps.mcp_server import make_server, recording_server, RecordingTools
from embodied_r_ros.cli.arguments import say, some_path, some_text
from embodied_r_ros.common.errors import ConfigError, InputError
from embodied_r_ros.serving.profiles import reasoner_config
from embodied_r_ros.serving.served import served_model

if TYPE_CHECKING:
    import argparse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of the verb."""
    add = parser.add_argument
    help_text = 'a recording, or a folder of recordings'
    add('dir', nargs='?', type=some_path, metavar='DIR', help=help_text)
    add('--ros', action='store_true', help='the running robot, in place of recordings')
    add('--namespace', type=some_text, metavar='NS', help='with --ros, namespace of its nodes')
    add('--sim-time', action='store_true', help='with --ros, its time is that of /clock')
    add(
        '--model',
        type=some_text,
        metavar='DIR_OR_URL',
        help='answers questions about each recording too: folder with a model, or URL of a server',
    )


def main(args: argparse.Namespace) -> int:
    """Serve on stdin and stdout until stdin ends."""
    of_recordings, of_robot = args.dir or args.model, args.namespace or args.sim_time
    if of_recordings if args.ros else of_robot or args.dir is None:
        msg = 'give DIR (with --model), or --ros (with --namespace, --sim-time) for the robot'
        raise InputError(msg)
    if args.ros:
        return _serve_robot(args)
    config = reasoner_config(args.model) if args.model else None
    with served_model(args.model, say) if args.model else nullcontext() as chat:
        tools = RecordingTools(args.dir, chat, config)
        server = recording_server(tools)
        say(f'{len(tools)} recordings of {args.dir} for assistants, read only; Ctrl-C ends it')
        server.run('stdio')
    return 0


def _serve_robot(args: argparse.Namespace) -> int:
    try:
        from embodied_r_ros.nodes.live_scene import listening
    except ImportError as error:
        msg = f'ROS 2 is not there ({error}): source it, or run `make setup` in the clone'
        raise ConfigError(msg) from None
    with listening(args.namespace or '', use_sim_time=args.sim_time) as scene:
        server = make_server('The running robot, now:', scene.scene, [scene.latest])
        say(f'the robot in {scene.get_namespace()} for assistants, read only; Ctrl-C ends it')
        server.run('stdio')
    return 0
