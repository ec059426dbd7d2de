# SPDX-License-Identifier: Apache-2.0
"""Goals for a ROS action: a newer one replaces the one that is being worked on."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
import signal
import sys
import time
from typing import Any, ClassVar, TYPE_CHECKING

from action_msgs.msg import GoalStatus
from action_msgs.srv import CancelGoal
import rclpy
from rclpy.action import ActionClient
from rclpy.node import Node
from rclpy.signals import SignalHandlerOptions

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from rclpy.task import Future

_OUTCOMES = {
    GoalStatus.STATUS_SUCCEEDED: 'reached',
    GoalStatus.STATUS_CANCELED: 'replaced or cancelled',
    GoalStatus.STATUS_ABORTED: 'given up',
}
# In which a cancelled goal must end: a planner may use up its time first (MoveIt: 5 s).
_END_S = 10.0
_CANCEL_S = 5.0  # in which the last goal must end
_LOOK_S = 0.1  # between looks at signals, which do not wake a node


@dataclass(eq=False)
class _Goal:
    """A goal, and the server's handle of it."""

    message: Any
    what: str  # in words
    handle: Any = None  # None: the server has not accepted it


class GoalSender(Node):
    """Hands goals to the server of a ROS action, and says what became of each.

    Where the server `preempts`, a newer goal goes out at once and ends the one before. Else it
    cancels the one before and waits until that has ended: MoveIt's `move_group` dies of a goal
    that comes while it works on another. Of goals that wait only the newest is kept.
    """

    preempts: ClassVar = False

    def __init__(
        self, name: str, action_type: Any, action: str, server: str, **options: Any
    ) -> None:
        """Look for the server.

        Args:
            name: Name of this node.
            action_type: Type of the ROS action.
            action: Its name.
            server: What serves it, in words.
            options: Of the node, as rclpy takes them.
        """
        super().__init__(name, **options)
        self._action, self._server = action, server
        self._client = ActionClient(self, action_type, action)
        self._current: _Goal | None = None  # until it has ended
        self._next: _Goal | None = None  # waits for that
        self._is_over = False  # nothing is sent any more
        self._limit = self.create_timer(_END_S, self._give_up)
        self._limit.cancel()

    def send(self, goal: Any, what: str) -> None:
        """Send a goal, which is `what` in words, in place of the one before."""
        if self._next:
            self._tell(self._next, GoalStatus.STATUS_CANCELED)
        self._next = _Goal(goal, what)
        if self.preempts or not self._current:
            self._start_next()
            return
        self._cancel(self._current)
        if self._limit.is_canceled():
            self._limit.reset()

    @property
    def is_busy(self) -> bool:
        """Whether a goal has not ended yet."""
        return self._current is not None

    def cancel(self) -> None:
        """Cancel what was sent, and send nothing more."""
        self._is_over, self._next = True, None
        if self._current:
            self._cancel(self._current)

    def reason(self, result: Any) -> str:
        """Why a goal was given up, as its result tells; empty: it does not."""
        return str(getattr(result, 'error_msg', ''))

    def _start_next(self) -> None:
        """Send the goal that waits, if there is one."""
        self._limit.cancel()
        goal, self._next = self._next, None
        if not goal:
            return
        if not self._client.server_is_ready():
            text = f'{goal.what}: no server of {self._action}: start {self._server}'
            self.get_logger().error(text)
            return
        self._current = goal
        self._client.send_goal_async(goal.message).add_done_callback(
            lambda future: self._hear(future, goal)
        )

    def _cancel(self, goal: _Goal) -> None:
        """Cancel a goal; one that is not accepted yet is cancelled then."""
        if goal.handle:
            goal.handle.cancel_goal_async().add_done_callback(
                lambda future: self._hear_of_cancel(future, goal)
            )

    def _hear(self, future: Future, goal: _Goal) -> None:
        handle = future.result()
        if handle is None or not handle.accepted:
            self.get_logger().error(f'{goal.what}: {self._server} does not accept the goal')
            self._end(goal)
            return
        goal.handle = handle
        handle.get_result_async().add_done_callback(lambda done: self._hear_result(done, goal))
        is_replaced = self._next or goal is not self._current  # a newer goal came meanwhile
        if self._is_over or (is_replaced and not self.preempts):
            self._cancel(goal)

    def _hear_of_cancel(self, future: Future, goal: _Goal) -> None:
        """Take the answer of the server; where it was started anew, it knows no such goal."""
        response = future.result()
        is_unknown = CancelGoal.Response.ERROR_UNKNOWN_GOAL_ID
        if response and response.return_code == is_unknown and goal is self._current:
            self._tell(goal, GoalStatus.STATUS_UNKNOWN)
            self._end(goal)

    def _hear_result(self, future: Future, goal: _Goal) -> None:
        answer = future.result()
        status = answer.status if answer else GoalStatus.STATUS_UNKNOWN
        self._tell(goal, status, self.reason(answer.result) if answer else '')
        self._end(goal)

    def _end(self, goal: _Goal) -> None:
        """Go on to the goal that waits."""
        if goal is self._current:
            self._current = None
            self._start_next()

    def _give_up(self) -> None:
        """Drop the goal that waits: the one before does not end. A next one tries again."""
        self._limit.cancel()
        goal, self._next = self._next, None
        if goal:
            why = f'{self._server} has not ended the goal before within {_END_S:.0f} s'
            self.get_logger().error(f'{goal.what}: not sent: {why}')
        if self._current and not self._current.handle:  # the server never answered
            self._current = None

    def _tell(self, goal: _Goal, status: int, why: str = '') -> None:
        outcome = _OUTCOMES.get(status, f'ended with status {status}')
        if self.preempts and goal is not self._current and status == GoalStatus.STATUS_ABORTED:
            outcome, why = _OUTCOMES[GoalStatus.STATUS_CANCELED], ''
        self.get_logger().info(f'{goal.what}: {outcome}{f": {why}" if why else ""}')


def spin(make: Callable[[], GoalSender], arguments: Sequence[str] | None) -> int:
    """Run a node until a signal ends it, and cancel its last goal.

    Returns:
        The exit code; 2 where the node cannot be made.
    """
    signals: list[int] = []
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda number, frame: signals.append(number))
    # Not by rclpy: what it shuts down can cancel nothing.
    rclpy.init(args=arguments, signal_handler_options=SignalHandlerOptions.NO)
    try:
        node = make()
    except ValueError as error:
        sys.stderr.write(f'{Path(sys.argv[0]).stem}: error: {error}\n')
        return 2
    else:
        _spin_while(node, lambda: not signals)
        node.cancel()
        end_s = time.monotonic() + _CANCEL_S
        _spin_while(node, lambda: node.is_busy and time.monotonic() < end_s)
        node.destroy_node()
    finally:
        rclpy.try_shutdown()
    return 0


def _spin_while(node: GoalSender, is_wanted: Callable[[], bool]) -> None:
    while is_wanted():
        rclpy.spin_once(node, timeout_sec=_LOOK_S)
