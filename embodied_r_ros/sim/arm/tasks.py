# SPDX-License-Identifier: Apache-2.0
"""What the simulated arm is shown: where things stand, its way, and when it has succeeded.

Positions are in the task frame: its origin lies on the table before the robot, x points away from
the robot and towards the camera, y to the robot's left, which is right in the image, z up.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from embodied_r_ros.arm.demonstration import TrueKeypoint
from embodied_r_ros.core.types.geometry import NS_PER_S
import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from embodied_r_ros.core.types.layout import Vector

HOME: Vector = (0.0, 0.0, 0.16)  # where the tool starts
BLOCK_HALF_M = 0.02
HANDLE_LIFT_M = 0.13  # of the middle of the drawer's handle over the table
COLOURS: dict[str, tuple[float, float, float]] = {
    'red': (0.85, 0.1, 0.1),
    'green': (0.1, 0.65, 0.2),
    'blue': (0.1, 0.25, 0.9),
    'yellow': (0.95, 0.8, 0.1),
}
_ABOVE_M = 0.14
_GRASP_M = 0.014  # tool over the table when it holds a block
_PUSH_GAP_M = 0.045  # from the middle of a block to the tool that pushes it
_ABOVE_HANDLE_M = 0.08
_DRAWER_WAY_M = 0.17
_NEAR_M = 0.03
GRIP_S = 0.5  # the fingers need half of it
LEAST_MOVE_S = 0.5
# Of the expert: before its first motion, between motions, and its mean speed over a way.
_IDLE_S = (0.2, 0.6)
_PAUSE_S = (0.3, 0.7)
_SPEED_M_S = (0.2, 0.35)


@dataclass(frozen=True)
class TaskThing:
    """Something that the task is about."""

    name: str  # 'block', 'support', 'mat' or 'drawer'
    colour: str
    position: Vector  # at the start: centre of a block or mat, handle of a drawer [m]


@dataclass(frozen=True)
class ArmScene:
    """What stands where, and what is to be done."""

    task: str
    text: str  # the task in words
    things: tuple[TaskThing, ...]

    def thing(self, name: str) -> TaskThing:
        """The thing of that name."""
        return next(thing for thing in self.things if thing.name == name)


@dataclass(frozen=True)
class Waypoint:
    """The tool goes somewhere, or stays and opens or closes its gripper."""

    position: Vector  # of the tool [m]
    closed: bool
    is_grip: bool = False  # only the gripper moves


@dataclass(frozen=True)
class ArmTask:
    """A kind of task."""

    draw: Callable[[np.random.Generator], ArmScene]
    plan: Callable[[ArmScene], tuple[Waypoint, ...]]
    is_done: Callable[[ArmScene, Mapping[str, Vector]], bool]  # from where things are at the end
    lets_go: bool = False  # done only once the gripper is open: what is held is not put down


class _Plan:
    """Waypoints, one after the other."""

    def __init__(self) -> None:
        self.waypoints: list[Waypoint] = []
        self._now = Waypoint(HOME, closed=False)

    def go(self, place: Vector, up_m: float = 0.0, aside_m: float = 0.0) -> _Plan:
        """Go to a place, or so far above it, or away from the robot [m]."""
        x, y, z = place
        return self._add(replace(self._now, position=(x + aside_m, y, z + up_m), is_grip=False))

    def grip(self, *, closed: bool) -> _Plan:
        """Close or open the gripper."""
        return self._add(replace(self._now, closed=closed, is_grip=True))

    def _add(self, waypoint: Waypoint) -> _Plan:
        self._now = waypoint
        self.waypoints.append(waypoint)
        return self

    def fetch(self, block: Vector) -> _Plan:
        """Get hold of a block."""
        at = (block[0], block[1], _GRASP_M)
        return self.go(at, up_m=_ABOVE_M).go(at).grip(closed=True)

    def bring(self, place: Vector) -> _Plan:
        """Put what is held down at a place, and let go."""
        return self.go(place, up_m=_ABOVE_M).go(place).grip(closed=False).go(place, up_m=_ABOVE_M)


def _colours(rng: np.random.Generator, count: int) -> list[str]:
    return [str(name) for name in rng.permutation(list(COLOURS))[:count]]


def _spot(rng: np.random.Generator, low: tuple[float, float], high: tuple[float, float]) -> Vector:
    x, y = (float(value) for value in rng.uniform(low, high))
    return x, y, BLOCK_HALF_M


def _two_spots(rng: np.random.Generator) -> tuple[Vector, Vector]:
    """Two places on the table that are not too near each other."""
    while True:
        first, second = (_spot(rng, (0.0, -0.2), (0.2, 0.2)) for _ in range(2))
        if np.hypot(first[0] - second[0], first[1] - second[1]) > 0.13:
            return first, second


def _draw_pick(rng: np.random.Generator) -> ArmScene:
    (colour,) = _colours(rng, 1)
    block = TaskThing('block', colour, _spot(rng, (0.0, -0.2), (0.2, 0.2)))
    return ArmScene('pick', f'pick up the {colour} block', (block,))


def _plan_pick(scene: ArmScene) -> tuple[Waypoint, ...]:
    at = scene.thing('block').position
    return tuple(_Plan().fetch(at).go((at[0], at[1], _GRASP_M), up_m=_ABOVE_M).waypoints)


def _is_lifted(scene: ArmScene, places: Mapping[str, Vector]) -> bool:
    return places['block'][2] > scene.thing('block').position[2] + _ABOVE_M / 2


def _draw_place(rng: np.random.Generator) -> ArmScene:
    colours = _colours(rng, 2)
    at, to = _two_spots(rng)
    things = TaskThing('block', colours[0], at), TaskThing('mat', colours[1], (to[0], to[1], 0.0))
    return ArmScene('place', f'put the {colours[0]} block on the {colours[1]} mat', things)


def _plan_place(scene: ArmScene) -> tuple[Waypoint, ...]:
    x, y, _ = scene.thing('mat').position
    plan = _Plan().fetch(scene.thing('block').position)
    plan.go(scene.thing('block').position, up_m=_ABOVE_M)
    return tuple(plan.bring((x, y, _GRASP_M + 0.004)).waypoints)


def _is_on_mat(scene: ArmScene, places: Mapping[str, Vector]) -> bool:
    del scene
    gap = np.subtract(places['block'][:2], places['mat'][:2])
    return float(np.hypot(*gap)) < _NEAR_M and places['block'][2] < 2 * BLOCK_HALF_M


def _draw_stack(rng: np.random.Generator) -> ArmScene:
    colours = _colours(rng, 2)
    at, to = _two_spots(rng)
    things = TaskThing('block', colours[0], at), TaskThing('support', colours[1], to)
    return ArmScene('stack', f'stack the {colours[0]} block on the {colours[1]} block', things)


def _plan_stack(scene: ArmScene) -> tuple[Waypoint, ...]:
    x, y, _ = scene.thing('support').position
    plan = _Plan().fetch(scene.thing('block').position)
    plan.go(scene.thing('block').position, up_m=_ABOVE_M)
    return tuple(plan.bring((x, y, _GRASP_M + 2 * BLOCK_HALF_M + 0.004)).waypoints)


def _is_stacked(scene: ArmScene, places: Mapping[str, Vector]) -> bool:
    del scene
    gap = np.subtract(places['block'], places['support'])
    return float(np.hypot(gap[0], gap[1])) < BLOCK_HALF_M and gap[2] > 1.5 * BLOCK_HALF_M


def _draw_push(rng: np.random.Generator) -> ArmScene:
    colours = _colours(rng, 2)
    at = _spot(rng, (0.02, -0.2), (0.08, 0.2))
    to = (at[0] + float(rng.uniform(0.12, 0.2)), at[1], 0.0)
    things = TaskThing('block', colours[0], at), TaskThing('mat', colours[1], to)
    return ArmScene('push', f'push the {colours[0]} block to the {colours[1]} mat', things)


def _plan_push(scene: ArmScene) -> tuple[Waypoint, ...]:
    block, mat = scene.thing('block').position, scene.thing('mat').position
    plan = _Plan().grip(closed=True)
    behind = (block[0] - 0.03, block[1], _GRASP_M)
    plan.go(behind, up_m=_ABOVE_M, aside_m=-_PUSH_GAP_M).go(behind, aside_m=-_PUSH_GAP_M)
    end = (mat[0], mat[1], _GRASP_M)
    plan.go(end, aside_m=-_PUSH_GAP_M).go(end, up_m=_ABOVE_M, aside_m=-_PUSH_GAP_M)
    return tuple(plan.waypoints)


def _draw_drawer(rng: np.random.Generator) -> ArmScene:
    drawer = TaskThing('drawer', 'green', (0.13, float(rng.uniform(-0.15, 0.15)), HANDLE_LIFT_M))
    return ArmScene('drawer', 'open the drawer', (drawer,))


def _plan_drawer(scene: ArmScene) -> tuple[Waypoint, ...]:
    x, y, z = scene.thing('drawer').position
    handle, pulled_handle = (x, y, z - 0.015), (x - _DRAWER_WAY_M, y, z - 0.015)
    plan = _Plan().go(handle, up_m=_ABOVE_HANDLE_M).go(handle).grip(closed=True).go(pulled_handle)
    return tuple(plan.grip(closed=False).go(pulled_handle, up_m=_ABOVE_HANDLE_M).waypoints)


def _is_open(scene: ArmScene, places: Mapping[str, Vector]) -> bool:
    return scene.thing('drawer').position[0] - places['drawer'][0] > 0.6 * _DRAWER_WAY_M


TASKS: dict[str, ArmTask] = {
    'pick': ArmTask(_draw_pick, _plan_pick, _is_lifted),
    'place': ArmTask(_draw_place, _plan_place, _is_on_mat, lets_go=True),
    'stack': ArmTask(_draw_stack, _plan_stack, _is_stacked, lets_go=True),
    'push': ArmTask(_draw_push, _plan_push, _is_on_mat),
    'drawer': ArmTask(_draw_drawer, _plan_drawer, _is_open),
}


def draw_scene(task: str, seed: int, index: int) -> ArmScene:
    """The scene of an episode: that of the first attempt at the demonstration of that number."""
    key = [seed, index, 0, sorted(TASKS).index(task), 0]
    return TASKS[task].draw(np.random.default_rng(key))


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
            arrive = now + max(LEAST_MOVE_S, way / pace)
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
