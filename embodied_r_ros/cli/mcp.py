# SPDX-License-Identifier: Apache-2.0
"""`embodied-r mcp DIR`: recordings for assistants, over the Model Context Protocol, read only."""

from __future__ import annotations

from contextlib import nullcontext
import sys
from typing import TYPE_CHECKING

from embodied_r_ros.cli.arguments import some_path, some_text
from embodied_r_ros.serving.profiles import reasoner_config
from embodied_r_ros.serving.servers import served_model
from embodied_r_ros.view.mcp_server import make_server, RecordingTools

if TYPE_CHECKING:
    import argparse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of the verb."""
    add = parser.add_argument
    add('dir', type=some_path, metavar='DIR', help='a recording, or a folder of recordings')
    add(
        '--model',
        type=some_text,
        metavar='DIR_OR_URL',
        help='answers questions about each recording too: folder with a model, or URL of a server',
    )


def main(args: argparse.Namespace) -> int:
    """Serve on stdin and stdout until stdin ends."""
    config = reasoner_config(args.model) if args.model else None
    with served_model(args.model, _say) if args.model else nullcontext() as chat:
        tools = RecordingTools(args.dir, chat, config)
        server = make_server(tools)
        _say(f'{len(tools)} recordings of {args.dir} for assistants, read only; Ctrl-C ends it')
        server.run('stdio')
    return 0


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
