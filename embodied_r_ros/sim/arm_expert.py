# SPDX-License-Identifier: Apache-2.0
"""The expert: it leads the tool from waypoint to waypoint, so that the keypoints are known.

Between two waypoints the tool goes straight, at rest at both ends (minimum jerk), and waits there.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from embodied_r_ros.keypoints.truth import TrueKeypoint
from embodied_r_ros.sim.arm_tasks import HOME
import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from embodied_r_ros.recordings.layout import Vector
    from embodied_r_ros.sim.arm_tasks import Waypoint

_NS = 1_000_000_000
GRIP_S = 0.5  # the fingers need half of it
_IDLE_S = (0.2, 0.6)  # before the first motion
_PAUSE_S = (0.3, 0.7)
_SPEED_M_S = (0.2, 0.35)  # mean over a way
_LEAST_MOVE_S = 0.5


@dataclass(frozen=True)
class Leg:
    """The way to a waypoint, and the pause there. Times in seconds since the start."""

    waypoint: Waypoint
    start: Vector  # where the tool was before [m]
    begin_s: float
    arrive_s: float  # the motion ends; for a grip, the same as the beginning
    end_s: float

    def tool_at(self, time_s: float) -> Vector:
        """Where the tool is to be [m]."""
        share = min(1.0, (time_s - self.begin_s) / max(1e-9, self.arrive_s - self.begin_s))
        share = share**3 * (10.0 - 15.0 * share + 6.0 * share**2)
        x, y, z = np.asarray(self.start) * (1 - share) + np.asarray(self.waypoint.position) * share
        return float(x), float(y), float(z)


def schedule(waypoints: Sequence[Waypoint], rng: np.random.Generator) -> tuple[Leg, ...]:
    """When the tool goes where: pace and pauses are drawn.

    Args:
        waypoints: In order.
        rng: Draws the pace and the pauses.
    """
    legs: list[Leg] = []
    now, place = float(rng.uniform(*_IDLE_S)), HOME
    for waypoint in waypoints:
        pace, pause = float(rng.uniform(*_SPEED_M_S)), float(rng.uniform(*_PAUSE_S))
        way = float(np.linalg.norm(np.subtract(waypoint.position, place)))
        target = waypoint.position
        if waypoint.is_grip:
            arrive, end = now, now + GRIP_S
        else:
            arrive = now + max(_LEAST_MOVE_S, way / pace)
            end = arrive + pause
        legs.append(Leg(waypoint, place, now, arrive, end))
        now, place = end, target
    return tuple(legs)


def true_keypoints(legs: Sequence[Leg], start_ns: int) -> tuple[TrueKeypoint, ...]:
    """The keypoints of a schedule.

    Args:
        legs: At least one.
        start_ns: Stamp of the start.
    """
    return tuple(
        TrueKeypoint(
            stamp_ns=start_ns + round(leg.arrive_s * _NS),
            until_ns=start_ns + round(leg.end_s * _NS),
            position=leg.waypoint.position,
            closed=leg.waypoint.closed,
            reason='gripper' if leg.waypoint.is_grip else 'last' if leg is legs[-1] else 'stop',
        )
        for leg in legs
    )
