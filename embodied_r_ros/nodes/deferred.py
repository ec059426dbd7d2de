# SPDX-License-Identifier: Apache-2.0
"""Results that come later, from another thread, without blocking the executor."""

from __future__ import annotations

from typing import Any, TYPE_CHECKING

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
