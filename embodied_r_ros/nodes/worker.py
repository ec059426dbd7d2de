# SPDX-License-Identifier: Apache-2.0
"""Work off the executor: a thread with a bounded queue, and results that come later."""

from __future__ import annotations

from collections import deque
import threading
from typing import Any, Generic, TYPE_CHECKING, TypeVar

from embodied_r_ros.nodes.diagnostics import STEADY
from rclpy.task import Future

if TYPE_CHECKING:
    from collections.abc import Callable

    from rclpy.node import Node


def make_future(node: Node) -> Any:
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
    later = make_future(node)

    def tell(result: Any) -> None:
        if not later.done():
            node.destroy_timer(timer)
            later.set_result(result)

    timer = node.create_timer(timeout_s, lambda: tell(None), clock=STEADY)
    future.add_done_callback(lambda original: tell(original.result()))
    return later


Item = TypeVar('Item')


class Worker(Generic[Item]):
    """Handles items one after another in a thread of its own."""

    def __init__(
        self,
        handle: Callable[[Item, int], None],
        capacity: int,
        on_error: Callable[[Exception], None],
    ) -> None:
        """Start the thread.

        Args:
            handle: Called with each item, and with how many were dropped since the last one that
                was handled.
            capacity: Items that may wait.
            on_error: Gets what `handle` raised; the thread goes on with the next item.
        """
        self.dropped = 0
        self._handle = handle
        self._on_error = on_error
        self._capacity = capacity
        self._items: deque[Item] = deque()
        self._dropped_since = 0
        self._is_closed = False
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def submit(self, item: Item) -> None:
        """Queue an item; never blocks."""
        with self._changed:
            if self._is_closed:
                return
            if len(self._items) == self._capacity:
                self._items.popleft()
                self.dropped += 1
                self._dropped_since += 1
            self._items.append(item)
            self._changed.notify()

    def close(self, timeout_s: float = 2.0) -> bool:
        """Drop what waits, let the item at hand finish, and end the thread.

        Returns:
            False where the thread was still busy after `timeout_s`; it ends after its item.
        """
        with self._changed:
            self._is_closed = True
            self._items.clear()
            self._changed.notify()
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._items or self._is_closed)
                if self._is_closed:
                    return
                item, dropped = self._items.popleft(), self._dropped_since
                self._dropped_since = 0
            try:
                self._handle(item, dropped)
            except Exception as error:
                with self._changed:  # they were not reported yet
                    self._dropped_since += dropped
                self._on_error(error)
