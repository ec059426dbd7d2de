# SPDX-License-Identifier: Apache-2.0
"""Drive to accepted goals with Nav2, and hear what became of them: `python3 -m examples.navigate`.

Each pose on `goal_pose`, which `goal_gate` publishes, becomes a goal of Nav2's ROS action
`navigate_to_pose`. A newer one preempts the one that the robot drives to: it goes on without a
stop. Ctrl-C cancels the last one. Needs nav2_msgs.
"""

from __future__ import annotations

import sys
from typing import Any, ClassVar, TYPE_CHECKING

from geometry_msgs.msg import PoseStamped
from rclpy.qos import QoSProfile

from examples.action_goals import GoalSender, spin

if TYPE_CHECKING:
    from collections.abc import Sequence


class Navigator(GoalSender):
    """Hands goals to Nav2."""

    preempts: ClassVar = True

    def __init__(self, action_type: Any) -> None:
        """Listen to goals.

        Args:
            action_type: Nav2's `nav2_msgs.action.NavigateToPose`.
        """
        super().__init__('goal_navigator', action_type, 'navigate_to_pose', 'Nav2')
        self._action_type = action_type
        self.create_subscription(PoseStamped, 'goal_pose', self._take, QoSProfile(depth=10))

    def _take(self, pose: PoseStamped) -> None:
        at = pose.pose.position
        what = f'goal ({at.x:.2f}, {at.y:.2f}) m in {pose.header.frame_id}'
        self.send(self._action_type.Goal(pose=pose), what)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the node."""
    try:
        from nav2_msgs.action import NavigateToPose
    except ImportError:
        package = 'ros-$ROS_DISTRO-nav2-msgs'
        sys.stderr.write(f'navigate: error: nav2_msgs is missing: apt install {package}\n')
        return 2
    return spin(lambda: Navigator(NavigateToPose), arguments)


if __name__ == '__main__':
    sys.exit(main())
