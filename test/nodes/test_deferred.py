# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import threading
import time
from typing import Any, TYPE_CHECKING

from embodied_r_ros.nodes.worker import deferred
from rclpy.callback_groups import ReentrantCallbackGroup
from rclpy.node import Node
from std_srvs.srv import Trigger

if TYPE_CHECKING:
    from test.nodes.graph import Graph


class Slow(Node):
    """Answers when a thread says so; nothing else ever wakes it."""

    def __init__(self, **options: Any) -> None:
        super().__init__('slow', **options)
        group = ReentrantCallbackGroup()
        self.create_service(Trigger, 'slow', self.answer, callback_group=group)

    async def answer(self, request: Trigger.Request, response: Trigger.Response) -> Any:
        later = deferred(self)
        threading.Timer(0.2, later.set_result, ['done']).start()
        response.message = await later
        return response


def test_result_from_another_thread_wakes_the_executor(graph: Graph) -> None:
    graph.add(Slow)
    start = time.monotonic()
    assert graph.call(Trigger, '/slow', Trigger.Request(), timeout_s=10).message == 'done'
    assert time.monotonic() - start < 5


def test_several_wait_at_once(graph: Graph) -> None:
    graph.add(Slow)
    graph.call(Trigger, '/slow', Trigger.Request())
    start = time.monotonic()
    futures = [graph.call_async(Trigger, '/slow', Trigger.Request()) for _ in range(10)]
    assert [graph.result(future).message for future in futures] == ['done'] * 10
    assert time.monotonic() - start < 1.5
