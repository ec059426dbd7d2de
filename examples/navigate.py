# SPDX-License-Identifier: Apache-2.0
"""Drive to accepted goals with Nav2, and hear what became of them: `python3 -m examples.navigate`.

Each pose on `goal_pose`, which `goal_gate` publishes, becomes a goal of Nav2's ROS action
`navigate_to_pose`. A newer one replaces the one that the robot drives to. Needs nav2_msgs.
"""

from __future__ import annotations

import sys
from typing import Any, TYPE_CHECKING

from action_msgs.msg import GoalStatus
from geometry_msgs.msg import PoseStamped
import rclpy
from rclpy.action import ActionClient
from rclpy.executors import ExternalShutdownException
from rclpy.node import Node
from rclpy.qos import QoSProfile

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rclpy.task import Future

_OUTCOMES = {
    GoalStatus.STATUS_SUCCEEDED: 'reached',
    GoalStatus.STATUS_CANCELED: 'replaced or cancelled',
    GoalStatus.STATUS_ABORTED: 'given up',
}


class Navigator(Node):
    """Hands goals to Nav2, one at a time."""

    def __init__(self, action_type: Any) -> None:
        """Listen to goals.

        Args:
            action_type: Nav2's `nav2_msgs.action.NavigateToPose`.
        """
        super().__init__('goal_navigator')
        self._action_type = action_type
        self._client = ActionClient(self, action_type, 'navigate_to_pose')
        self._count = 0  # of goals; those before the newest are not driven to any more
        self._handle: Any = None
        self.create_subscription(PoseStamped, 'goal_pose', self._take, QoSProfile(depth=10))

    def _take(self, pose: PoseStamped) -> None:
        self._count += 1
        self._replace()
        if not self._client.server_is_ready():
            self.get_logger().error(f'{_place(pose)}: no server of navigate_to_pose: start Nav2')
            return
        number = self._count
        goal = self._action_type.Goal(pose=pose)
        self._client.send_goal_async(goal).add_done_callback(
            lambda future: self._hear(future, number, pose)
        )

    def _replace(self) -> None:
        """Cancel the goal that the robot drives to, if there is one."""
        if self._handle is not None:
            self._handle.cancel_goal_async()
            self._handle = None

    def _hear(self, future: Future, number: int, pose: PoseStamped) -> None:
        handle = future.result()
        if handle is None or not handle.accepted:
            self.get_logger().error(f'{_place(pose)}: Nav2 does not accept the goal')
            return
        if number == self._count:
            self._handle = handle
        else:  # a newer goal came meanwhile
            handle.cancel_goal_async()
        handle.get_result_async().add_done_callback(lambda done: self._end(done, number, pose))

    def _end(self, future: Future, number: int, pose: PoseStamped) -> None:
        if number == self._count:
            self._handle = None
        answer = future.result()
        status = answer.status if answer else GoalStatus.STATUS_UNKNOWN
        why = getattr(answer.result, 'error_msg', '') if answer else ''  # from Jazzy on
        outcome = _OUTCOMES.get(status, f'ended with status {status}')
        self.get_logger().info(f'{_place(pose)}: {outcome}{f": {why}" if why else ""}')


def _place(pose: PoseStamped) -> str:
    at = pose.pose.position
    return f'goal ({at.x:.2f}, {at.y:.2f}) m in {pose.header.frame_id}'


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the node."""
    try:
        from nav2_msgs.action import NavigateToPose
    except ImportError:
        package = 'ros-$ROS_DISTRO-nav2-msgs'
        sys.stderr.write(f'navigate: error: nav2_msgs is missing: apt install {package}\n')
        return 2
    rclpy.init(args=arguments)
    node = Navigator(NavigateToPose)
    try:
        rclpy.spin(node)
    except (KeyboardInterrupt, ExternalShutdownException):
        pass
    finally:
        node.destroy_node()
        rclpy.try_shutdown()
    return 0


if __name__ == '__main__':
    sys.exit(main())
