# SPDX-License-Identifier: Apache-2.0
"""Results that come later, from another thread, without blocking the executor."""

from __future__ import annotations

from typing import Any, TYPE_CHECKING

from embodied_r_ros.nodes.diagnostics import STEADY
from rclpy.task import Future

if TYPE_CHECKING:
    from rclpy.node import Node


def deferred(node: Node) -> Any:
    """Make a future that a coroutine of the node can await and any thread can set.

    A coroutine that awaits is looked at again only when the executor wakes; a done callback is
    what makes setting the result wake it.
    """
    future = Future(executor=node.executor)
    future.add_done_callback(lambda _: None)
    return future


def in_time(node: Node, future: Any, timeout_s: float) -> Any:
    """Make a future that has the result of another one, or None where that one is late.

    Args:
        node: The node; called in its executor.
        future: What is waited for; it is left as it is.
        timeout_s: How long, by the steady clock [s].
    """
    told = deferred(node)

    def tell(result: Any) -> None:
        if not told.done():
            node.destroy_timer(timer)
            told.set_result(result)

    timer = node.create_timer(timeout_s, lambda: tell(None), clock=STEADY)
    future.add_done_callback(lambda done: tell(done.result()))
    return told
