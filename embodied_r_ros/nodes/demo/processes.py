# SPDX-License-Identifier: Apache-2.0
"""Nodes as separate processes, for the demonstration on machines without `ros2 launch`."""

from __future__ import annotations

import os
import signal
import sys
import time
from typing import Any, TYPE_CHECKING

from embodied_r_ros.common.child_processes import ChildProcess
from embodied_r_ros.common.errors import EmbodiedRError
from embodied_r_ros.nodes.transport import transport_environment
import yaml

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

_GRACE_S = 10.0  # between asking a node to end and making it
_LOG_LINES = 3
# Domains above this share ports with programs that take any free one (Linux).
_DOMAINS = range(10, 101)


def own_environment() -> dict[str, str]:
    """A DDS domain of this process's own, and a transport that loses no images.

    It is set here too, so that what is made afterwards is in that domain.
    """
    domain = _DOMAINS[os.getpid() % len(_DOMAINS)]
    environment = {**transport_environment(os.environ), 'ROS_DOMAIN_ID': str(domain)}
    os.environ.update(environment)
    return environment


class NodeProcesses:
    """Starts nodes, each in a process of its own, and ends them together."""

    def __init__(self, folder: Path, environment: Mapping[str, str]) -> None:
        """Take the folder for parameters and logs, and the environment of the processes."""
        self._folder = folder
        self._environment = {**os.environ, **environment}
        self._running: dict[str, ChildProcess] = {}

    def start(
        self, name: str, parameters: Mapping[str, Any], remaps: Mapping[str, str] | None = None
    ) -> None:
        """Start a node that configures and activates itself.

        Args:
            name: Name of the node, which is also that of its module.
            parameters: Its parameters; nested groups are nested mappings.
            remaps: Names that the node is to use other names for.
        """
        file = self._folder / f'{name}.yaml'
        values = {'autostart': True, **parameters}
        file.write_text(yaml.safe_dump({'/**': {'ros__parameters': values}}))
        code = f'import sys; from embodied_r_ros.nodes.{name} import main; sys.exit(main())'
        command = [sys.executable, '-c', code, '--ros-args', '--params-file', str(file)]
        for old, new in (remaps or {}).items():
            command += ['-r', f'{old}:={new}']
        log = self._folder / f'{name}.log'
        self._running[name] = ChildProcess(command, log, environment=self._environment)

    def pids(self) -> dict[str, int]:
        """Process id of each node."""
        return {name: process.pid for name, process in self._running.items()}

    def check(self) -> None:
        """See that every node still runs, or has ended well.

        Raises:
            EmbodiedRError: One ended with an error; with the end of its log.
        """
        for name, process in self._running.items():
            if code := process.poll():
                last = ' | '.join(process.log_lines()[-_LOG_LINES:])
                msg = f'{name} ended with code {code}: {last}'
                raise EmbodiedRError(msg)

    def has_ended(self, name: str) -> bool:
        """Tell whether a node has ended."""
        return self._running[name].poll() is not None

    def close(self) -> None:
        """End all nodes as Ctrl-C does, so that bags are closed; waits until they are gone."""
        for process in self._running.values():
            if process.poll() is None:
                process.signal(signal.SIGINT)
        end = time.monotonic() + _GRACE_S
        for process in self._running.values():
            process.end(max(0.1, end - time.monotonic()))

    def __enter__(self) -> NodeProcesses:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
