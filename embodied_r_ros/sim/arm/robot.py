# SPDX-License-Identifier: Apache-2.0
"""The simulated arm as a robot: it gets keypoints, time passes, and its sensors are read."""

from __future__ import annotations

from typing import Any, TYPE_CHECKING

from embodied_r_ros.arm.candidates import SeenThing
from embodied_r_ros.episodes.demonstrations import CAMERA_FRAME
from embodied_r_ros.sim.arm.expert import CartesianController
from embodied_r_ros.sim.arm.tasks import HOME, TASKS
from embodied_r_ros.sim.arm.world import ArmRenderer, ArmWorld, camera_pose, GRIPPER_JOINTS, JOINTS
import numpy as np

if TYPE_CHECKING:
    from embodied_r_ros.sim.arm.tasks import ArmScene
    from embodied_r_ros.types.geometry import Intrinsics, Pose
    from embodied_r_ros.types.layout import Vector
    from numpy.typing import NDArray

_LEAD_S = 0.01  # how often the tool is led on


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
