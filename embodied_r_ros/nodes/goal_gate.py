# SPDX-License-Identifier: Apache-2.0
"""Node `goal_gate`: the gate of `proposal_gate` before a mobile robot.

Goals come from answers to orders such as "go to the fridge" (`goal_proposal`). What the rules
allow comes out as `goal_pose`, to which Nav2 listens, and as it came in on `goal_accepted`. The
workspace is where the robot may drive, and a step the longest way to a goal.
"""

from __future__ import annotations

from typing import ClassVar, TYPE_CHECKING

from builtin_interfaces.msg import Time
from embodied_r_ros.nodes.proposal_gate import GateNames, ProposalGate
from embodied_r_ros.nodes.run import run

if TYPE_CHECKING:
    from collections.abc import Sequence

    from embodied_r_msgs.msg import KeypointProposal
    from geometry_msgs.msg import PoseStamped


class GoalGate(ProposalGate):
    """Stands between goals and what drives."""

    names: ClassVar = GateNames(
        'goal_gate',
        'goal_proposal',
        'goal_accepted',
        'goal_pose',
        'goal_refused',
        'confirm_goal',
        'robot_pose',
    )

    def pose_of(self, msg: KeypointProposal) -> PoseStamped:
        """The pose for Nav2, with stamp zero."""
        pose = super().pose_of(msg)
        # The one stamp that is not passed on. Nav2 looks up where the goal is at its stamp, and a
        # robot that stood still saw it before the 10 s that tf2 keeps; zero means the newest
        # transform. Who asks how old the observation is finds its stamp on `goal_accepted`.
        pose.header.stamp = Time()
        return pose


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the node."""
    return run(GoalGate, arguments)
