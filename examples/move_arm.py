# SPDX-License-Identifier: Apache-2.0
"""Move an arm to accepted keypoints with MoveIt: `python3 -m examples.move_arm --ros-args -p …`.

Each proposal on `keypoint_accepted`, which `proposal_gate` publishes, becomes a goal of MoveIt's
ROS action `move_action`. A newer one replaces the one that the arm moves to. What the gripper is
to do stands in the log: opening and closing it is the robot's own affair. Needs moveit_msgs.
"""

from __future__ import annotations

from dataclasses import dataclass
import sys
from typing import Any, TYPE_CHECKING

from embodied_r_msgs.msg import KeypointProposal
from geometry_msgs.msg import Pose, Quaternion
from rclpy.qos import QoSProfile

from examples.action_goals import GoalSender, spin

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rclpy.node import Node

_DOWN = [1.0, 0.0, 0.0, 0.0]


@dataclass(frozen=True)
class ArmMotion:
    """How the arm moves; each field is a parameter of the node."""

    group: str = ''  # of joints, as the robot's SRDF names it
    link: str = ''  # of the end effector, whose place `current_pose` is
    tolerance_m: float = 0.005
    tolerance_rad: float = 0.05
    speed: float = 0.1  # share of the joints' limits
    planning_s: float = 5.0
    plan_only: bool = False  # plan, and do not move

    @classmethod
    def of(cls, node: Node) -> ArmMotion:
        """Read the parameters.

        Raises:
            ValueError: Group or link are not given.
        """
        values = {
            name: node.declare_parameter(name, default).value
            for name, default in vars(cls()).items()
        }
        motion = cls(**values)
        if not motion.group or not motion.link:
            msg = 'give the parameters group and link: -p group:=panda_arm -p link:=panda_hand'
            raise ValueError(msg)
        return motion


class ArmMover(GoalSender):
    """Hands keypoints to MoveIt."""

    def __init__(self) -> None:
        """Listen to accepted keypoints.

        Raises:
            ValueError: A parameter is missing, or is no orientation.
        """
        from moveit_msgs.action import MoveGroup

        super().__init__('arm_mover', MoveGroup, 'move_action', 'MoveIt')
        self._motion = ArmMotion.of(self)
        # Of the end effector, where a proposal has none: downward, if the frame's z is up.
        given = list(self.declare_parameter('orientation', _DOWN).value or ())
        if len(given) != len(_DOWN) or not any(given):
            msg = f'orientation is {given}: expected a quaternion x, y, z, w'
            raise ValueError(msg)
        self._orientation = Quaternion(**dict(zip('xyzw', given, strict=True)))
        profile = QoSProfile(depth=10)
        self.create_subscription(KeypointProposal, 'keypoint_accepted', self._take, profile)

    def reason(self, result: Any) -> str:
        """The error code of MoveIt by its name, with its message where there is one."""
        code = result.error_code
        if code.val == code.SUCCESS:
            return ''
        names = (name for name in dir(type(code)) if name.isupper())
        found = (name for name in names if getattr(code, name) == code.val)
        words = [next(found, f'error {code.val}'), str(getattr(code, 'message', ''))]
        return ': '.join(word for word in words if word)

    def _take(self, proposal: KeypointProposal) -> None:
        at = proposal.pose.pose.position
        what = (
            f'keypoint ({at.x:.3f}, {at.y:.3f}, {at.z:.3f}) m in {proposal.pose.header.frame_id}'
        )
        if proposal.gripper_valid:
            is_open = proposal.gripper == KeypointProposal.GRIPPER_OPEN
            state = 'open' if is_open else 'closed'
            self.get_logger().info(f'{what}: the gripper is to be {state}')
        self.send(self._goal(proposal), what)

    def _goal(self, proposal: KeypointProposal) -> Any:
        """A goal of MoveIt: the link within a small ball, in a given orientation."""
        from moveit_msgs.action import MoveGroup
        from moveit_msgs.msg import Constraints

        motion, goal = self._motion, MoveGroup.Goal()
        request, options = goal.request, goal.planning_options
        request.group_name = motion.group
        request.num_planning_attempts = 5
        request.allowed_planning_time = motion.planning_s
        request.max_velocity_scaling_factor = motion.speed
        request.max_acceleration_scaling_factor = motion.speed
        # From where the arm is, in the scene as MoveIt knows it.
        request.start_state.is_diff = True
        options.planning_scene_diff.is_diff = True
        options.planning_scene_diff.robot_state.is_diff = True
        options.plan_only = motion.plan_only
        request.goal_constraints = [
            Constraints(
                position_constraints=[self._place(proposal)],
                orientation_constraints=[self._attitude(proposal)],
            )
        ]
        return goal

    def _place(self, proposal: KeypointProposal) -> Any:
        from moveit_msgs.msg import BoundingVolume, PositionConstraint
        from shape_msgs.msg import SolidPrimitive

        ball = SolidPrimitive(type=SolidPrimitive.SPHERE, dimensions=[self._motion.tolerance_m])
        middle = Pose(position=proposal.pose.pose.position, orientation=Quaternion(w=1.0))
        volume = BoundingVolume(primitives=[ball], primitive_poses=[middle])
        return PositionConstraint(
            header=proposal.pose.header,
            link_name=self._motion.link,
            constraint_region=volume,
            weight=1.0,
        )

    def _attitude(self, proposal: KeypointProposal) -> Any:
        from moveit_msgs.msg import OrientationConstraint

        own = proposal.pose.pose.orientation
        limit = self._motion.tolerance_rad
        return OrientationConstraint(
            header=proposal.pose.header,
            link_name=self._motion.link,
            orientation=own if proposal.orientation_valid else self._orientation,
            absolute_x_axis_tolerance=limit,
            absolute_y_axis_tolerance=limit,
            absolute_z_axis_tolerance=limit,
            weight=1.0,
        )


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the node."""
    try:
        import moveit_msgs.action  # noqa: F401
        import shape_msgs.msg  # noqa: F401
    except ImportError as error:
        package = 'ros-$ROS_DISTRO-moveit-msgs'
        sys.stderr.write(f'move_arm: error: {error.name} is missing: apt install {package}\n')
        return 2
    return spin(ArmMover, arguments)


if __name__ == '__main__':
    sys.exit(main())
