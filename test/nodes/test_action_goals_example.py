# SPDX-License-Identifier: Apache-2.0
"""Goals of the examples: one at a time, of those that wait the newest, and no wait for ever.

The server is a process of its own, which can be killed as a robot's can.
"""

from __future__ import annotations

from contextlib import suppress
import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

from action_msgs.msg import GoalStatus
from embodied_r_msgs.action import Ask
import pytest
from std_msgs.msg import String

from examples import action_goals
from examples.action_goals import GoalSender
from test.nodes.graph import wait_for

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from typing import Any

    from test.nodes.graph import Graph

# Works on a goal `long` until it is cancelled and takes its time to stop; on one that is
# `stubborn` for ever. Notes which goals it began, and which came while it worked on another; of
# one that is `watched`, that it was cancelled.
SERVER = """
import time, rclpy
from embodied_r_msgs.action import Ask
from rclpy.action import ActionServer, CancelResponse
from rclpy.callback_groups import ReentrantCallbackGroup
from rclpy.executors import MultiThreadedExecutor
rclpy.init()
node = rclpy.create_node('server')
working = []
def work(handle):
    name = handle.request.question
    print('overlap' if working else 'begun', name, flush=True)
    working.append(name)
    is_long = name in ('long', 'watched')
    while name == 'stubborn' or is_long and not handle.is_cancel_requested:
        time.sleep(0.02)
    if name == 'long':
        time.sleep(0.5)
    elif name == 'watched':
        print('cancelled', name, flush=True)
    working.remove(name)
    handle.canceled() if handle.is_cancel_requested else handle.succeed()
    return Ask.Result()
server = ActionServer(node, Ask, 'move', work, callback_group=ReentrantCallbackGroup(),
                      cancel_callback=lambda handle: CancelResponse.ACCEPT)
executor = MultiThreadedExecutor(4)
executor.add_node(node)
executor.spin()
"""

EXAMPLE = """
from embodied_r_msgs.action import Ask
from std_msgs.msg import String
from examples.action_goals import GoalSender, spin
class Example(GoalSender):
    def __init__(self):
        super().__init__('example', Ask, 'move', 'the server')
        self.create_subscription(String, 'go_there', self.take, 10)
    def take(self, msg):
        self.send(Ask.Goal(question=msg.data), msg.data)
raise SystemExit(spin(Example, None))
"""


def put_first(put: Callable[[], None], log: Path) -> None:
    """Give an example, whose log is given, its first goal, and wait until that is reached.

    A test may find the server before the example does, which says so then and drops the goal.
    """
    tries = 0

    def is_reached() -> bool:
        nonlocal tries
        text = log.read_text()
        if text.count('no server') == tries:
            tries += 1
            put()
        return ': reached' in text

    wait_for(is_reached, 'the first goal', 60.0)


class Sender(GoalSender):
    """Sends goals that are named on a topic, and keeps what became of them."""

    def __init__(self, **options: Any) -> None:
        super().__init__('sender', Ask, 'move', 'the server', **options)
        self.outcomes: list[tuple[str, int]] = []
        self.create_subscription(String, 'go', self._take, 10)

    def _take(self, msg: String) -> None:
        self.send(Ask.Goal(question=msg.data), msg.data)

    def _tell(self, goal: Any, status: int, why: str = '') -> None:
        self.outcomes.append((goal.what, status))
        super()._tell(goal, status, why)


class Moving:
    """A server and one who sends it goals."""

    def __init__(self, graph: Graph, folder: Path) -> None:
        self.graph = graph
        self._log = folder / 'server.txt'
        self._log.touch()
        self.start_server()
        self.sender = graph.add(Sender)
        self._names = graph.publisher(String, '/go')
        wait_for(self.sender._client.server_is_ready, 'the server', 60.0)

    def start_server(self) -> None:
        domain = str(self.graph.context.get_domain_id())
        with self._log.open('a') as out:
            self.server = subprocess.Popen(
                [sys.executable, '-c', SERVER],
                env={**os.environ, 'ROS_DOMAIN_ID': domain},
                stdout=out,
                text=True,
            )
        self.graph.processes.append(self.server)

    def go(self, name: str) -> None:
        self._names.publish(String(data=name))

    def said(self) -> list[str]:
        """What the server noted."""
        return self._log.read_text().splitlines()

    def await_last(self, line: str) -> None:
        wait_for(lambda: self.said()[-1:] == [line], line, 60.0)


@pytest.fixture
def moving(graph: Graph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Moving:
    monkeypatch.setattr(action_goals, '_END_S', 3.0)
    return Moving(graph, tmp_path)


def test_the_newest_goal_waits_until_the_one_before_has_ended(moving: Moving) -> None:
    moving.go('long')
    moving.await_last('begun long')
    for name in ('second', 'third', 'last'):
        moving.go(name)
    moving.await_last('begun last')
    assert moving.said() == ['begun long', 'begun last']
    outcomes = moving.sender.outcomes
    wait_for(lambda: len(outcomes) == 4, 'the end of all')
    assert outcomes == [
        ('second', GoalStatus.STATUS_CANCELED),
        ('third', GoalStatus.STATUS_CANCELED),
        ('long', GoalStatus.STATUS_CANCELED),
        ('last', GoalStatus.STATUS_SUCCEEDED),
    ]


def test_goals_that_come_before_the_first_is_accepted_do_not_meet_it(moving: Moving) -> None:
    for name in ('long', 'long', 'last'):
        moving.go(name)
    moving.await_last('begun last')
    assert moving.said() == ['begun long', 'begun last']


def test_a_goal_does_not_wait_for_ever(moving: Moving) -> None:
    moving.go('stubborn')
    moving.await_last('begun stubborn')
    moving.go('second')
    wait_for(lambda: moving.sender._next, 'the goal that waits')
    wait_for(lambda: moving.sender._next is None, 'its end')
    assert moving.said() == ['begun stubborn']
    assert moving.sender.outcomes == []
    # A server that was started anew knows nothing of the first one. Until discovery has found it,
    # goals are dropped or replaced.
    moving.server.kill()
    moving.start_server()
    for _ in range(30):
        moving.go('third')
        with suppress(AssertionError):
            wait_for(lambda: moving.said()[-1] == 'begun third', 'the third', 1.0)
            break
    outcomes = moving.sender.outcomes
    wait_for(lambda: ('third', GoalStatus.STATUS_SUCCEEDED) in outcomes, 'its end')
    assert ('stubborn', GoalStatus.STATUS_UNKNOWN) in outcomes


def test_server_that_preempts_gets_a_newer_goal_at_once(
    moving: Moving, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Sender, 'preempts', True)
    moving.go('long')
    moving.await_last('begun long')
    moving.go('watched')
    moving.await_last('overlap watched')
    assert moving.sender.outcomes == []  # what preempts ends the one before, not the example
    moving.graph.result(moving.sender.executor.create_task(moving.sender.cancel))
    wait_for(lambda: not moving.sender.is_busy, 'the end of the last')
    assert moving.sender.outcomes == [('watched', GoalStatus.STATUS_CANCELED)]


def test_goal_that_a_newer_one_preempted_is_told_as_replaced(
    moving: Moving, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Sender, 'preempts', True)
    before = action_goals._Goal(None, 'the one before')
    moving.sender._tell(before, GoalStatus.STATUS_ABORTED, 'preempted')
    assert 'the one before: replaced or cancelled\n' in capfd.readouterr().err


@pytest.mark.parametrize('number', [signal.SIGINT, signal.SIGTERM])
def test_end_of_an_example_cancels_the_last_goal(moving: Moving, number: int) -> None:
    domain = str(moving.graph.context.get_domain_id())
    example = subprocess.Popen(
        [sys.executable, '-c', EXAMPLE], env={**os.environ, 'ROS_DOMAIN_ID': domain}, text=True
    )
    moving.graph.processes.append(example)
    names = moving.graph.publisher(String, '/go_there')
    while not moving.said():  # until the example has found the server, goals are dropped
        names.publish(String(data='watched'))
        with suppress(AssertionError):
            wait_for(moving.said, 'the goal', 3.0)
    moving.await_last('begun watched')
    example.send_signal(number)
    assert example.wait(60.0) == 0
    assert moving.said()[-1] == 'cancelled watched'
