# SPDX-License-Identifier: Apache-2.0
"""Who could choose between candidates instead of a model: chance, nearness, and who knows the way.

The floor is an option by lot and the one at the nearest object; the ceiling is the option nearest
to where the expert would go next. All choose the gripper too.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
import math
from random import Random
from typing import TYPE_CHECKING

from embodied_r_ros.sim.arm_tasks import TASKS

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from embodied_r_ros.keypoints.candidates import Position, SeenThing
    from embodied_r_ros.sim.arm_tasks import ArmScene, Waypoint

_AT_THING_M = 0.06  # nearer to a thing, the nearest option closes the gripper
_REACHED_M = 0.06  # candidates are not exactly where the expert goes


@dataclass(frozen=True)
class View:
    """What there is to choose from, and what is known then."""

    things: tuple[SeenThing, ...]
    tool: Position  # [m]
    candidates: tuple[Position, ...]  # [m]


@dataclass(frozen=True)
class Chosen:
    """Where to go, and the gripper there."""

    index: int  # of the candidate
    closed: bool


class Chooser(ABC):
    """Chooses, and is told where the tool has come to."""

    @abstractmethod
    def choose(self, view: View) -> Chosen:
        """Choose a candidate."""

    def reached(self, position: Position, *, closed: bool) -> None:  # noqa: B027 - most do not care
        """Take that the tool is at a keypoint now [m]."""


class RandomChooser(Chooser):
    """Any candidate, the gripper open or closed, by lot."""

    def __init__(self, seed: str) -> None:
        self._rng = Random(f'random:{seed}')

    def choose(self, view: View) -> Chosen:
        """Choose a candidate by lot."""
        return Chosen(self._rng.randrange(len(view.candidates)), self._rng.random() < 0.5)


class NearestChooser(Chooser):
    """The candidate nearest to the thing that is nearest to the tool, closed where it is there."""

    def choose(self, view: View) -> Chosen:
        """Choose the candidate at the nearest thing; without any, the one nearest to the tool."""
        places = [thing.position for thing in view.things] or [view.tool]
        place = min(places, key=lambda at: math.dist(at, view.tool))
        index = _nearest(view.candidates, place)
        return Chosen(index, math.dist(view.candidates[index], place) < _AT_THING_M)


class OracleChooser(Chooser):
    """The candidate nearest to the expert's next waypoint."""

    def __init__(self, waypoints: Sequence[Waypoint]) -> None:
        """Follow waypoints, in order."""
        self._left = list(waypoints)

    @classmethod
    def of_scene(cls, scene: ArmScene, *, stay: bool) -> OracleChooser:
        """Follow the expert; without candidates where the tool stays, grip where it arrives."""
        plan = TASKS[scene.task].plan(scene)
        return cls(plan if stay else gripping_on_arrival(plan))

    def choose(self, view: View) -> Chosen:
        """Choose the candidate nearest to the next waypoint; after the last one, that again."""
        waypoint = self._left[0]
        return Chosen(_nearest(view.candidates, waypoint.position), waypoint.closed)

    def reached(self, position: Position, *, closed: bool) -> None:
        """Go on to the next waypoint where this one is reached."""
        now = self._left[0]
        is_there = math.dist(position, now.position) < _REACHED_M and closed == now.closed
        if is_there and len(self._left) > 1:
            self._left.pop(0)


def gripping_on_arrival(waypoints: Sequence[Waypoint]) -> tuple[Waypoint, ...]:
    """The same way where the gripper acts at the end of a motion, not afterwards."""
    merged: list[Waypoint] = []
    for waypoint in waypoints:
        if waypoint.is_grip and merged:
            merged[-1] = replace(merged[-1], closed=waypoint.closed)
        elif not waypoint.is_grip:
            merged.append(waypoint)
    return tuple(merged)


def choosers(scene: ArmScene, seed: str, *, stay: bool) -> dict[str, Callable[[], Chooser]]:
    """Makes each chooser for an episode, by name."""
    return {
        'oracle': lambda: OracleChooser.of_scene(scene, stay=stay),
        'random': lambda: RandomChooser(seed),
        'nearest': NearestChooser,
    }


def _nearest(candidates: Sequence[Position], place: Position) -> int:
    return min(range(len(candidates)), key=lambda i: math.dist(candidates[i], place))
