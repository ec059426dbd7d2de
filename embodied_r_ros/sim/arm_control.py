# SPDX-License-Identifier: Apache-2.0
"""A simple Cartesian controller: straight to a keypoint at rest, and there the gripper acts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from embodied_r_ros.sim.arm_expert import GRIP_S, Leg
from embodied_r_ros.sim.arm_tasks import Waypoint
import numpy as np

if TYPE_CHECKING:
    from embodied_r_ros.recordings.layout import Vector

_SPEED_M_S = 0.25  # mean over a way
_LEAST_MOVE_S = 0.5
_STILL_M = 0.005  # nearer, it does not move at all
_SETTLE_S = 0.3


@dataclass(frozen=True)
class Command:
    """What the tool and the gripper are to do at one moment."""

    tool: Vector  # [m]
    closed: bool


class CartesianController:
    """Minimum-jerk ways, one after the other; the gripper acts where one ends."""

    def __init__(self, tool: Vector, *, closed: bool = False) -> None:
        """Rest where the tool is [m]."""
        self._leg = Leg(Waypoint(tool, closed), tool, 0.0, 0.0, 0.0)
        self._closed_after = closed

    def go(self, position: Vector, now_s: float, *, closed: bool | None = None) -> None:
        """Go to a keypoint, from wherever the tool is being led to now.

        Args:
            position: Where to [m].
            now_s: The time [s].
            closed: Whether the gripper is closed there; None: as before.
        """
        now = self.command(now_s)
        way = float(np.linalg.norm(np.subtract(position, now.tool)))
        arrive = now_s + max(_LEAST_MOVE_S, way / _SPEED_M_S) if way > _STILL_M else now_s
        self._closed_after = now.closed if closed is None else closed
        end = arrive + (GRIP_S if self._closed_after != now.closed else 0.0) + _SETTLE_S
        self._leg = Leg(Waypoint(position, now.closed), now.tool, now_s, arrive, end)

    def command(self, now_s: float) -> Command:
        """What to do at a time [s] that is not before the last keypoint was given."""
        leg = self._leg
        closed = leg.waypoint.closed if now_s < leg.arrive_s else self._closed_after
        return Command(leg.tool_at(now_s), closed)

    def is_busy(self, now_s: float) -> bool:
        """Tell whether the tool is on its way, or its gripper acts, or it has not settled."""
        return now_s < self._leg.end_s
