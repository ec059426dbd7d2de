# SPDX-License-Identifier: Apache-2.0
"""Processes of nodes: the life of one, from the command line to a clean end, and starting several.

SIGINT and SIGTERM shut the node down while it can still talk: goals end with a reason, bags are
closed. A signal some seconds later ends the process at once: the first one may come twice, from a
terminal or service manager and from launch. An exception in a callback is logged, told on
`/diagnostics`, and the node goes on.
"""

from __future__ import annotations

import os
from pathlib import Path
import re
import signal
import socket
import sys
import threading
import time
import traceback
from typing import Any, TYPE_CHECKING

from embodied_r_ros.common.errors import ConfigError, EmbodiedRError
from embodied_r_ros.common.processes import ChildProcess
from embodied_r_ros.nodes.diagnostics import STEADY
from embodied_r_ros.nodes.node_base import StartConfig
from embodied_r_ros.nodes.transport import remove_abandoned_segments, transport_environment
import rclpy
from rclpy import logging
from rclpy.context import Context
from rclpy.exceptions import NameValidationException, ParameterException
from rclpy.executors import ExternalShutdownException, SingleThreadedExecutor
from rclpy.signals import SignalHandlerOptions
import yaml

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from embodied_r_ros.nodes.node_base import ManagedNode
    from rclpy.timer import Timer

_NO_SIGNALS = SignalHandlerOptions.NO
_ENDING = (signal.SIGINT, signal.SIGTERM)
# Time for results and last messages to leave after the node was deactivated.
_LAST_WORDS_S = 0.5
# Signals that come together are one wish to end.
_TOGETHER_S = 3.0

# A callback that needs the interpreter while a thread computes waits so long for it, each time
# that it comes back from the middleware; Python's own 5 ms add up to more than a frame.
_SWITCH_S = 0.001

_GRACE_S = 10.0  # between asking a node to end and making it
_LOG_LINES = 3
# Domains above this share ports with programs that take any free one (Linux).
_DOMAINS = range(10, 101)


def run(make: Callable[..., ManagedNode], arguments: Sequence[str] | None = None) -> int:
    """Make a node and spin it until a signal ends it.

    With the parameter `autostart` the node configures and activates itself, for machines without
    a lifecycle manager. When that fails it is tried again after `autostart_retry_s`; without that
    the process ends with 1. ROS arguments that mean nothing end it with 2, in one line.
    """
    signals = _signals_to_socket()
    sys.setswitchinterval(_SWITCH_S)
    remove_abandoned_segments()
    context = Context()
    try:
        try:
            rclpy.init(args=arguments, context=context, signal_handler_options=_NO_SIGNALS)
            node = make(context=context)
        except (RuntimeError, ParameterException, NameValidationException) as error:
            sys.stderr.write(f'{Path(sys.argv[0]).name}: error: {_one_line(error)}\n')
            return 2
        executor = SingleThreadedExecutor(context=context)
        executor.add_node(node)
        end = _End(executor)
        node.end_process = end
        threading.Thread(target=_obey_signals, args=(signals, end), daemon=True).start()
        Autostart(node, end)
        _spin(node, executor, end)
        _shut_down(node, executor)
        return end.code
    finally:
        rclpy.try_shutdown(context=context)
        for number in _ENDING:  # while the interpreter ends, it would be put back to its default
            signal.signal(number, signal.SIG_IGN)


class _End:
    """Whether the process is to end, and with which exit code; called to end it."""

    def __init__(self, executor: SingleThreadedExecutor) -> None:
        self.code = 0
        self.is_near = False
        self._executor = executor

    def __call__(self, code: int = 0) -> None:
        self.code, self.is_near = code, True
        self._executor.create_task(lambda: None)  # wakes it from its wait


class Autostart:
    """Brings a node to active by itself, where its parameters ask for that.

    A start that failed is tried again, until it succeeds or somebody else changes the state.
    """

    def __init__(self, node: ManagedNode, end: Callable[[int], None]) -> None:
        """Try, now; `end` is called with 1 where that fails for good."""
        self._node = node
        self._timer: Timer | None = None
        try:
            config = node.parameters.config(StartConfig)
        except ConfigError as error:
            node.get_logger().error(str(error))
            end(1)
            return
        if not config.autostart:
            name = node.get_fully_qualified_name()
            text = f'waits to be configured: ros2 lifecycle set {name} configure, then activate'
            node.get_logger().info(f'{text}; with -p autostart:=true it does both by itself')
            return
        node.retry_s = config.autostart_retry_s
        if self._succeeds():
            node.retry_s = 0.0
        elif node.retry_s:
            self._timer = node.create_timer(node.retry_s, self._try_again, clock=STEADY)
        else:
            end(1)

    def _succeeds(self) -> bool:
        if self._node.state == 'unconfigured':
            self._node.trigger_configure()
        if self._node.state == 'inactive':
            self._node.trigger_activate()
        self._state = self._node.state
        return self._state == 'active'

    def _try_again(self) -> None:
        if self._timer and (self._node.state != self._state or self._succeeds()):
            self._node.destroy_timer(self._timer)
            self._timer, self._node.retry_s = None, 0.0


def _one_line(error: Exception) -> str:
    """What rclpy says of ROS arguments, without the places in its sources."""
    text = re.sub(r',? at /\S+:\d+', '', ' '.join(str(error).split()))
    return f'unknown ROS arguments {text}' if text.startswith('[') else text


def spin_some(
    executor: SingleThreadedExecutor,
    timeout_s: float,
    on_error: Callable[[Exception], None] = lambda error: None,
) -> None:
    """Run one callback that is ready within a time; failures go to log and diagnostics."""
    try:
        executor.spin_once(timeout_sec=timeout_s)
    except ExternalShutdownException:
        raise
    except Exception as error:
        on_error(error)
        logging.get_logger('executor').error(f'in a callback:\n{traceback.format_exc()}')


def _spin(node: ManagedNode, executor: SingleThreadedExecutor, end: _End) -> None:
    while not end.is_near:
        try:
            spin_some(executor, -1.0, node.note_failure)
        except ExternalShutdownException:
            return


def _signals_to_socket() -> socket.socket:
    """Let SIGINT and SIGTERM arrive as bytes of a socket.

    The main thread waits inside the middleware, where no Python signal handler runs.
    """
    reader, writer = socket.socketpair()
    writer.setblocking(False)
    for number in _ENDING:
        signal.signal(number, lambda number, frame: None)
    signal.set_wakeup_fd(writer.detach())
    return reader


def _obey_signals(signals: socket.socket, end: _End) -> None:
    signals.recv(1)
    end()
    first = time.monotonic()
    while time.monotonic() < first + _TOGETHER_S:
        signals.recv(1)
    os._exit(130)


def _shut_down(node: ManagedNode, executor: SingleThreadedExecutor) -> None:
    if node.is_active:
        node.trigger_deactivate()
        end = time.monotonic() + _LAST_WORDS_S
        while time.monotonic() < end:
            spin_some(executor, 0.05)
    if node.state != 'finalized':
        node.trigger_shutdown()
    executor.shutdown()
    node.destroy_node()


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
