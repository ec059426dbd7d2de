# SPDX-License-Identifier: Apache-2.0
"""Goals for a ROS action, one at a time: a newer one replaces the one that is being worked on."""

from __future__ import annotations

from pathlib import Path
import sys
from typing import Any, TYPE_CHECKING

from action_msgs.msg import GoalStatus
import rclpy
from rclpy.action import ActionClient
from rclpy.executors import ExternalShutdownException
from rclpy.node import Node

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from rclpy.task import Future

_OUTCOMES = {
    GoalStatus.STATUS_SUCCEEDED: 'reached',
    GoalStatus.STATUS_CANCELED: 'replaced or cancelled',
    GoalStatus.STATUS_ABORTED: 'given up',
}


class GoalSender(Node):
    """Hands goals to the server of a ROS action, and says what became of each."""

    def __init__(self, name: str, action_type: Any, action: str, server: str) -> None:
        """Look for the server.

        Args:
            name: Name of this node.
            action_type: Type of the ROS action.
            action: Its name.
            server: What serves it, in words.
        """
        super().__init__(name)
        self._action, self._server = action, server
        self._client = ActionClient(self, action_type, action)
        self._count = 0  # of goals; those before the newest do not count any more
        self._handle: Any = None

    def send(self, goal: Any, what: str) -> None:
        """Send a goal, which is `what` in words, in place of the one before."""
        self._count += 1
        self._replace()
        if not self._client.server_is_ready():
            text = f'{what}: no server of {self._action}: start {self._server}'
            self.get_logger().error(text)
            return
        number = self._count
        self._client.send_goal_async(goal).add_done_callback(
            lambda future: self._hear(future, number, what)
        )

    def reason(self, result: Any) -> str:
        """Why a goal was given up, as its result tells; empty: it does not."""
        return str(getattr(result, 'error_msg', ''))

    def _replace(self) -> None:
        """Cancel the goal that is being worked on, if there is one."""
        if self._handle is not None:
            self._handle.cancel_goal_async()
            self._handle = None

    def _hear(self, future: Future, number: int, what: str) -> None:
        handle = future.result()
        if handle is None or not handle.accepted:
            self.get_logger().error(f'{what}: {self._server} does not accept the goal')
            return
        if number == self._count:
            self._handle = handle
        else:  # a newer goal came meanwhile
            handle.cancel_goal_async()
        handle.get_result_async().add_done_callback(lambda done: self._end(done, number, what))

    def _end(self, future: Future, number: int, what: str) -> None:
        if number == self._count:
            self._handle = None
        answer = future.result()
        status = answer.status if answer else GoalStatus.STATUS_UNKNOWN
        why = self.reason(answer.result) if answer else ''
        outcome = _OUTCOMES.get(status, f'ended with status {status}')
        self.get_logger().info(f'{what}: {outcome}{f": {why}" if why else ""}')


def spin(make: Callable[[], Node], arguments: Sequence[str] | None) -> int:
    """Run a node until a signal ends it; returns the exit code, 2 where it cannot be made."""
    rclpy.init(args=arguments)
    try:
        node = make()
        try:
            rclpy.spin(node)
        finally:
            node.destroy_node()
    except (KeyboardInterrupt, ExternalShutdownException):
        pass
    except ValueError as error:
        sys.stderr.write(f'{Path(sys.argv[0]).stem}: error: {error}\n')
        return 2
    finally:
        rclpy.try_shutdown()
    return 0
