# SPDX-License-Identifier: Apache-2.0
"""The simulated arm as a robot: it gets keypoints, time passes, and its sensors are read.

With two ways to move its tool: the expert that shows a task, and a controller of one keypoint.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TYPE_CHECKING

from embodied_r_ros.arm.candidates import SeenThing
from embodied_r_ros.arm.demonstration import TrueKeypoint
from embodied_r_ros.episodes.demonstrations import CAMERA_FRAME
from embodied_r_ros.sim.arm.tasks import HOME, TASKS, Waypoint
from embodied_r_ros.sim.arm.world import ArmRenderer, ArmWorld, camera_pose, GRIPPER_JOINTS, JOINTS
from embodied_r_ros.types.units import NS_PER_S
import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from embodied_r_ros.sim.arm.tasks import ArmScene
    from embodied_r_ros.types.geometry import Intrinsics, Pose
    from embodied_r_ros.types.layout import Vector
    from numpy.typing import NDArray

_LEAD_S = 0.01  # how often the tool is led on

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


def draw_scene(task: str, seed: int, index: int) -> ArmScene:
    """The scene of an episode: that of the first attempt at the demonstration of that number."""
    key = [seed, index, 0, sorted(TASKS).index(task), 0]
    return TASKS[task].draw(np.random.default_rng(key))


class SimulatedArm:
    """One arm before one scene. For one thread; use it as a context manager."""

    def __init__(self, scene: ArmScene, camera: Intrinsics | None) -> None:
        """Build the scene; without a camera it has no images, and is quick."""
        self.scene = scene
        self.camera = camera
        self.world = ArmWorld(scene)
        self._renderer: Any = ArmRenderer(self.world, camera) if camera else None
        self._controller = CartesianController(HOME)
        self._image: tuple[float, NDArray[np.uint8]] | None = None  # the newest, and its time

    @property
    def now_s(self) -> float:
        """Time since the start [s]."""
        return float(self.world.data.time)

    @property
    def task(self) -> str:
        """What is to be done, in words."""
        return self.scene.text

    def go(self, position: Vector, *, closed: bool | None) -> None:
        """Go to a keypoint [m, task frame], and there open or close the gripper; None: neither."""
        self._controller.go(position, self.now_s, closed=closed)

    def advance(self, until_s: float) -> None:
        """Let time pass until then [s since the start]."""
        while (now := self.now_s) < until_s - 1e-9:
            command = self._controller.command(now)
            self.world.lead(command.tool, closed=command.closed)
            self.world.advance(min(until_s, now + _LEAD_S))

    def is_busy(self) -> bool:
        """Tell whether it is still on its way to a keypoint."""
        return self._controller.is_busy(self.now_s)

    def is_closed(self) -> bool:
        """Tell whether the gripper was told to close."""
        return self._controller.command(self.now_s).closed

    def tool(self) -> Pose:
        """Pose of the tool in the task frame."""
        return self.world.tool()

    def image(self) -> NDArray[np.uint8]:
        """What the camera sees. Shape (H, W, 3), BGR."""
        if self._image is None or self._image[0] != self.now_s:
            self._image = self.now_s, np.asarray(self._renderer.image(), np.uint8)
        return self._image[1]

    def camera_pose(self) -> Pose:
        """Pose of the camera's optical frame in the task frame."""
        return camera_pose()

    def joints(self) -> dict[str, tuple[float, float]]:
        """Position [rad] and velocity of the arm's joints, and of the fingers [m]."""
        positions, velocities = self.world.joints()
        arm = zip(positions.tolist(), velocities.tolist(), strict=True)
        fingers = ((finger, 0.0) for finger in self.world.fingers())
        pairs = zip((*JOINTS, *GRIPPER_JOINTS), (*arm, *fingers), strict=True)
        return dict(pairs)

    def frames(self) -> dict[str, Pose]:
        """Pose of every frame in its parent."""
        return {**self.world.fixed(), **self.world.links(), CAMERA_FRAME: camera_pose()}

    def true_things(self) -> tuple[SeenThing, ...]:
        """What there is, where it truly is."""
        places = self.world.places()
        return tuple(
            SeenThing(f'{thing.colour} {thing.name}', places[thing.name])
            for thing in self.scene.things
        )

    def is_done(self) -> bool:
        """Tell whether the task has succeeded, and nothing is held that was to be put down."""
        task = TASKS[self.scene.task]
        is_held = task.lets_go and self.is_closed()
        return bool(not is_held and task.is_done(self.scene, self.world.places()))

    def __enter__(self) -> SimulatedArm:
        return self

    def __exit__(self, *_: object) -> None:
        if self._renderer:
            self._renderer.__exit__()
