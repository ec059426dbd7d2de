# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import threading
import time
from typing import Any, TYPE_CHECKING

from embodied_r_ros.nodes.worker import make_future, Worker
from rclpy.callback_groups import ReentrantCallbackGroup
from rclpy.node import Node
from std_srvs.srv import Trigger

from test.nodes.graph import wait_for

if TYPE_CHECKING:
    from test.nodes.graph import Graph


def test_items_are_handled_in_order() -> None:
    handled: list[int] = []
    worker: Worker[int] = Worker(lambda item, _: handled.append(item), 10, print)
    for item in range(5):
        worker.submit(item)
    wait_for(lambda: len(handled) == 5, 'five items')
    assert handled == [0, 1, 2, 3, 4]
    assert worker.close()


def test_oldest_are_dropped_and_counted_when_the_worker_is_behind() -> None:
    started, go = threading.Event(), threading.Event()
    handled: list[tuple[int, int]] = []

    def handle(item: int, dropped: int) -> None:
        started.set()
        go.wait(10)
        handled.append((item, dropped))

    worker: Worker[int] = Worker(handle, 2, print)
    worker.submit(0)
    assert started.wait(10)
    for item in range(1, 6):
        worker.submit(item)
    go.set()
    wait_for(lambda: len(handled) == 3, 'three items')
    assert handled == [(0, 0), (4, 3), (5, 0)]
    assert worker.dropped == 3
    assert worker.close()


def test_error_is_told_and_the_next_item_is_handled() -> None:
    errors: list[Exception] = []

    def handle(item: int, dropped: int) -> None:
        raise ZeroDivisionError(item)

    worker: Worker[int] = Worker(handle, 10, errors.append)
    worker.submit(0)
    worker.submit(0)
    wait_for(lambda: len(errors) == 2, 'two errors')
    assert worker.close()


def test_dropped_are_told_with_the_next_item_that_is_handled() -> None:
    started, go = threading.Event(), threading.Event()
    handled: list[tuple[str, int]] = []

    def handle(item: str, dropped: int) -> None:
        started.set()
        go.wait(10)
        if item == 'bad':
            raise ZeroDivisionError(item)
        handled.append((item, dropped))

    worker: Worker[str] = Worker(handle, 2, lambda error: None)
    worker.submit('bad')
    assert started.wait(10)
    for item in ('lost', 'lost', 'bad', 'good'):
        worker.submit(item)
    go.set()
    wait_for(lambda: handled, 'the good one')
    assert handled == [('good', 2)]
    assert worker.close()


def test_close_does_not_wait_longer_than_asked() -> None:
    started, go = threading.Event(), threading.Event()

    def handle(item: int, dropped: int) -> None:
        started.set()
        go.wait(10)

    worker: Worker[int] = Worker(handle, 2, print)
    worker.submit(0)
    assert started.wait(10)
    assert not worker.close(timeout_s=0.01)
    go.set()
    assert worker.close()


class Slow(Node):
    """Answers when a thread says so; nothing else ever wakes it."""

    def __init__(self, **options: Any) -> None:
        super().__init__('slow', **options)
        group = ReentrantCallbackGroup()
        self.create_service(Trigger, 'slow', self.answer, callback_group=group)

    async def answer(self, request: Trigger.Request, response: Trigger.Response) -> Any:
        later = make_future(self)
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
