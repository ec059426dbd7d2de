# SPDX-License-Identifier: Apache-2.0
"""Node `goal_gate`: the gate of `proposal_gate` before a mobile robot.

Goals come from answers to orders such as "go to the fridge" (`goal_proposal`). What the rules
allow comes out as `goal_pose`, to which Nav2 listens, and as it came in on `goal_accepted`. The
workspace is where the robot may drive, and a step the longest way to a goal.
"""

from __future__ import annotations

from typing import ClassVar, TYPE_CHECKING

from embodied_r_ros.nodes.proposal_gate import GateNames, ProposalGate
from embodied_r_ros.nodes.run import run

if TYPE_CHECKING:
    from collections.abc import Sequence


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


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the node."""
    return run(GoalGate, arguments)
