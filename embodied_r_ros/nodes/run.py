# SPDX-License-Identifier: Apache-2.0
"""The life of a node's process, from the command line to a clean end.

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
from typing import TYPE_CHECKING

from embodied_r_ros.common.errors import ConfigError
from embodied_r_ros.nodes.diagnostics import STEADY
from embodied_r_ros.nodes.node_base import StartConfig
from embodied_r_ros.nodes.transport import remove_abandoned_segments
import rclpy
from rclpy import logging
from rclpy.context import Context
from rclpy.exceptions import NameValidationException, ParameterException
from rclpy.executors import ExternalShutdownException, SingleThreadedExecutor
from rclpy.signals import SignalHandlerOptions

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from embodied_r_ros.nodes.node_base import ManagedNode
    from rclpy.timer import Timer

_NO_SIGNALS = SignalHandlerOptions.NO
# Time for results and last messages to leave after the node was deactivated.
_LAST_WORDS_S = 0.5
# Signals that come together are one wish to end.
_TOGETHER_S = 3.0

# A callback that needs the interpreter while a thread computes waits so long for it, each time
# that it comes back from the middleware; Python's own 5 ms add up to more than a frame.
_SWITCH_S = 0.001


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
    for number in (signal.SIGINT, signal.SIGTERM):
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
