# SPDX-License-Identifier: Apache-2.0
"""The life of a node's process, from the command line to a clean end.

SIGINT and SIGTERM shut the node down while it can still talk: goals end with a reason, bags are
closed. A second signal ends the process at once. An exception in a callback is logged and the node
goes on.
"""

from __future__ import annotations

import os
import signal
import threading
import time
import traceback
from typing import TYPE_CHECKING

import rclpy
from rclpy import logging
from rclpy.context import Context
from rclpy.executors import ExternalShutdownException, SingleThreadedExecutor
from rclpy.lifecycle import TransitionCallbackReturn
from rclpy.signals import SignalHandlerOptions

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from embodied_r_ros.nodes.lifecycle import ManagedNode

_SIGNALS = {signal.SIGINT, signal.SIGTERM}
# Time for results and last messages to leave after the node was shut down.
_LAST_WORDS_S = 0.5


def run(make: Callable[..., ManagedNode], arguments: Sequence[str] | None = None) -> int:
    """Make a node and spin it until it is told to end.

    With the parameter `autostart` the node configures and activates itself, for machines without
    a launch system or lifecycle manager; when that fails the process ends with 1.
    """
    # Blocked before any thread starts, so that only the waiting thread below takes them.
    signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
    context = Context()
    rclpy.init(args=arguments, context=context, signal_handler_options=SignalHandlerOptions.NO)
    try:
        node = make(context=context)
        executor = SingleThreadedExecutor(context=context)
        executor.add_node(node)
        stop = threading.Event()
        threading.Thread(target=_await_signal, args=(stop, executor), daemon=True).start()
        started = not node.wants_autostart() or autostart(node)
        if started:
            _spin(executor, stop)
        _shut_down(node, executor)
        return 0 if started else 1
    finally:
        rclpy.try_shutdown(context=context)


def autostart(node: ManagedNode) -> bool:
    """Configure and activate a node; tell whether both went well."""
    success = TransitionCallbackReturn.SUCCESS
    return bool(node.trigger_configure() == success and node.trigger_activate() == success)


def spin_some(executor: SingleThreadedExecutor, timeout_s: float) -> None:
    """Run one callback that is ready within a time; what it raises is logged."""
    try:
        executor.spin_once(timeout_sec=timeout_s)
    except ExternalShutdownException:
        raise
    except Exception:
        logging.get_logger('executor').error(f'in a callback:\n{traceback.format_exc()}')


def _spin(executor: SingleThreadedExecutor, stop: threading.Event) -> None:
    while not stop.is_set():
        try:
            spin_some(executor, -1.0)
        except ExternalShutdownException:
            return


def _await_signal(stop: threading.Event, executor: SingleThreadedExecutor) -> None:
    signal.sigwait(_SIGNALS)
    stop.set()
    executor.create_task(lambda: None)  # wakes the executor from its wait
    signal.sigwait(_SIGNALS)
    os._exit(130)


def _shut_down(node: ManagedNode, executor: SingleThreadedExecutor) -> None:
    node.trigger_shutdown()
    end = time.monotonic() + _LAST_WORDS_S
    while time.monotonic() < end:
        spin_some(executor, 0.05)
    executor.shutdown()
    node.destroy_node()
