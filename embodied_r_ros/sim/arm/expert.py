# SPDX-License-Identifier: Apache-2.0
"""Two ways to move the tool: the expert that shows a task, and a controller of one keypoint."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from embodied_r_ros.arm.ground_truth import TrueKeypoint
from embodied_r_ros.sim.arm.tasks import HOME, Waypoint
from embodied_r_ros.types.units import NS_PER_S
import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from embodied_r_ros.types.layout import Vector

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
            stamp_ns=start_ns + round(leg.arrive_s * NS_PER_S),
            until_ns=start_ns + round(leg.end_s * NS_PER_S),
            position=leg.waypoint.position,
            closed=leg.waypoint.closed,
            reason='gripper' if leg.waypoint.is_grip else 'last' if leg is legs[-1] else 'stop',
        )
        for leg in legs
    )


_CONTROL_SPEED_M_S = 0.25  # mean over a way
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
        arrive = now_s + max(_LEAST_MOVE_S, way / _CONTROL_SPEED_M_S) if way > _STILL_M else now_s
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
