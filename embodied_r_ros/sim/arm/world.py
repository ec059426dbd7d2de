# SPDX-License-Identifier: Apache-2.0
"""The simulated arm in MuJoCo: its scenes and camera, its tool led along, its sensors read off.

As a robot it gets keypoints, and time passes.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib.util import find_spec
import math
from pathlib import Path
from typing import Any, TYPE_CHECKING

from embodied_r_ros.arm.candidates import SeenThing
from embodied_r_ros.arm.demonstration_bag import CAMERA_FRAME
from embodied_r_ros.core.types.geometry import (
    BODY_FROM_OPTICAL,
    Pose,
    quaternion_from_matrix,
)
from embodied_r_ros.sim.arm.tasks import (
    BLOCK_HALF_M,
    COLOURS,
    GRIP_S,
    HANDLE_LIFT_M,
    HOME,
    LEAST_MOVE_S,
    Leg,
    TASKS,
    Waypoint,
)
import mujoco
import numpy as np

if TYPE_CHECKING:
    from embodied_r_ros.core.types.geometry import Intrinsics
    from embodied_r_ros.core.types.layout import Vector
    from embodied_r_ros.sim.arm.tasks import ArmScene, TaskThing
    from numpy.typing import NDArray

TASK_FRAME, BASE_FRAME, TOOL_FRAME = 'table_center', 'base', 'tool'
CAMERA = 'front'
# The robot of Meta-World faces +y; the task frame has x that way (REP 103).
WORLD_FROM_TASK = np.array([[0.0, -1.0, 0.0], [1.0, 0.0, 0.0], [0.0, 0.0, 1.0]])  # (3, 3)
WORLD_FROM_TASK.setflags(write=False)
_TABLE: Vector = (0.0, 0.6, 0.0)  # origin of the task frame in the world
_EYE: Vector = (0.98, 0.0, 0.72)  # camera, in the task frame
_LOOK_AT: Vector = (0.07, 0.0, 0.14)
_ARM = ('right_', 'hand', 'head', 'screen', 'rightclaw', 'leftclaw', 'rightpad', 'leftpad')
_DAMPING = 3.0  # of joints [Nms/rad]; with Meta-World's 10 they creep on when the hand is there
_BLOCK_KG = 0.2
_DRAWER_BEHIND_M = 0.17  # from the handle to the body of the drawer
_HANDLE_M = [0.03, 0.01, 0.03]  # half of the handle, in the world
_HANDLE_PLACE = [0.0, -0.16, HANDLE_LIFT_M - 0.09]  # on the drawer, which is 0.09 m high
_HANDLE_COLOUR = 'yellow'
JOINTS = tuple(f'right_j{number}' for number in range(7))
GRIPPER_JOINTS = ('gripper_right_finger_joint', 'gripper_left_finger_joint')
OPEN_M, CLOSED_M = 0.1, 0.03  # distance of the fingers
GRIPPER_SIZE_M = (0.03, 0.11, 0.09)  # open, along x, y, z of the task frame
_FINGERS = ('r_close', 'l_close')
CHAIN = ('right_arm_base_link', *(f'right_l{n}' for n in range(7)), 'right_hand', 'hand')
TOOL_M = 0.045  # from the hand to its finger tips, along its x
# How the hand points down, as MuJoCo writes quaternions: the fingers open along x, or along y,
# where the camera sees them.
_ALONG_X, _ALONG_Y = (0.5**0.5, 0.0, 0.5**0.5, 0.0), (0.5, -0.5, 0.5, 0.5)
_SETTLING_S = 3.0
LEAD_S = 0.01  # how often the tool is led on
_CONTROL_SPEED_M_S = 0.25  # mean over a way
_STILL_M = 0.005  # nearer, it does not move at all
_SETTLE_S = 0.3


def to_world(point: Vector) -> NDArray[np.float64]:
    """A point of the task frame in the world of MuJoCo [m]. Shape (3,)."""
    return np.asarray(WORLD_FROM_TASK @ point + _TABLE)


def to_task(point: NDArray[np.float64]) -> Vector:
    """A point of the world in the task frame [m]. Shape of the point (3,)."""
    x, y, z = (float(value) for value in WORLD_FROM_TASK.T @ (point - _TABLE))
    return x, y, z


def camera_pose() -> Pose:
    """Pose of the camera's optical frame in the task frame."""
    forward = np.subtract(_LOOK_AT, _EYE)
    forward /= np.linalg.norm(forward)
    left = np.cross([0.0, 0.0, 1.0], forward)
    left /= np.linalg.norm(left)
    body = np.column_stack([forward, left, np.cross(forward, left)])
    return Pose(_EYE, quaternion_from_matrix(body @ BODY_FROM_OPTICAL), TASK_FRAME)


def base_pose() -> Pose:
    """Pose of the robot's base in the task frame."""
    x, y, z = to_task(np.zeros(3))
    return Pose((x, y, z), quaternion_from_matrix(WORLD_FROM_TASK.T), TASK_FRAME)


def arm_model(scene: ArmScene) -> Any:
    """Build the model of a scene.

    Args:
        scene: What stands where.

    Returns:
        A compiled `mujoco.MjModel`.
    """
    spec = mujoco.MjSpec.from_file(str(_scene_file(scene)))
    _add_camera(spec)
    for site in spec.sites:
        site.rgba = [0.0, 0.0, 0.0, 0.0]  # markers that no camera would see
    for body in spec.bodies:
        if body.name.startswith(_ARM):
            body.gravcomp = 1.0  # as its controllers do; else the elbow sinks while the hand rests
    for joint in spec.joints:
        if joint.name.startswith('right_j'):
            joint.damping = _DAMPING
    for thing in scene.things:
        _ADDERS[thing.name](spec, thing)
    model = spec.compile()
    # As Meta-World does: the hand hangs on the mocap body in its own place and turn.
    model.eq_data[0] = [0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 5.0]
    return model


def _scene_file(scene: ArmScene) -> Path:
    spec = find_spec('metaworld')
    assert spec is not None
    assert spec.origin is not None
    name = 'sawyer_drawer.xml' if scene.task == 'drawer' else 'sawyer_pick_place_v3.xml'
    return Path(spec.origin).parent / 'assets' / 'sawyer_xyz' / name


def _add_camera(spec: Any) -> None:
    pose = camera_pose()
    # MuJoCo's cameras look along -z with y up; optical axes look along +z with y down.
    turn = WORLD_FROM_TASK @ pose.rotation() @ np.diag([1.0, -1.0, -1.0])
    camera = spec.worldbody.add_camera()
    camera.name, camera.pos = CAMERA, to_world(pose.position)
    quaternion = np.zeros(4)
    mujoco.mju_mat2Quat(quaternion, turn.ravel())
    camera.quat = quaternion


def _set_block(spec: Any, thing: TaskThing) -> None:
    """Meta-World's puck becomes a block."""
    body = next(body for body in spec.bodies if body.name == 'obj')
    body.pos = to_world(thing.position)
    _make_block(body, body.geoms[0], thing)


def _add_support(spec: Any, thing: TaskThing) -> None:
    body = spec.worldbody.add_body()
    body.name, body.pos = thing.name, to_world(thing.position)
    body.add_freejoint()
    geom = body.add_geom()
    geom.friction, geom.condim = [1.0, 0.1, 0.002], 4  # as Meta-World's puck
    geom.solref, geom.solimp = [0.01, 1.0], [0.99, 0.99, 0.01, 0.5, 2.0]
    _make_block(body, geom, thing)


def _make_block(body: Any, geom: Any, thing: TaskThing) -> None:
    body.mass, body.ipos = _BLOCK_KG, [0.0] * 3  # unsaid, it would be that of the body
    body.inertia = [_BLOCK_KG * (2 * BLOCK_HALF_M) ** 2 / 6] * 3
    body.explicitinertial = True
    geom.type, geom.size = mujoco.mjtGeom.mjGEOM_BOX, [BLOCK_HALF_M] * 3
    geom.material, geom.rgba = '', [*COLOURS[thing.colour], 1.0]


def _add_mat(spec: Any, thing: TaskThing) -> None:
    geom = spec.worldbody.add_geom()
    geom.name, geom.type = thing.name, mujoco.mjtGeom.mjGEOM_CYLINDER
    geom.size, geom.pos = [0.045, 0.001, 0.0], to_world(thing.position)
    geom.contype = geom.conaffinity = 0
    geom.rgba = [*COLOURS[thing.colour], 1.0]


def _set_drawer(spec: Any, thing: TaskThing) -> None:
    x, y, _ = thing.position
    bodies = {body.name: body for body in spec.bodies}
    bodies['drawer'].pos = to_world((x + _DRAWER_BEHIND_M, y, 0.0))
    # Meta-World's handle is out of sight, behind the case: this one stands on it, and is seen.
    geom = bodies['drawer_link'].add_geom()
    geom.type, geom.size, geom.pos = mujoco.mjtGeom.mjGEOM_BOX, _HANDLE_M, _HANDLE_PLACE
    geom.friction, geom.condim = [1.0, 0.1, 0.002], 4
    geom.contype = geom.conaffinity = 1
    geom.rgba, geom.mass = [*COLOURS[_HANDLE_COLOUR], 1.0], 0.05


_ADDERS = {'block': _set_block, 'support': _add_support, 'mat': _add_mat, 'drawer': _set_drawer}


class ArmWorld:
    """The arm and the things of a scene. For one thread at a time."""

    def __init__(self, scene: ArmScene) -> None:
        """Build the scene, and bring the tool to its home."""
        self.model = arm_model(scene)
        self.data = mujoco.MjData(self.model)
        self._scene = scene
        self._turn = _ALONG_X if scene.task == 'drawer' else _ALONG_Y
        self._moving = [int(self.model.joint(name).dofadr[0]) for name in JOINTS]
        self.lead(HOME, closed=False)
        self.advance(_SETTLING_S)
        self._put_things_back()
        self.data.time = 0.0

    def lead(self, tool: Vector, *, closed: bool) -> None:
        """Say where the tool is to be [m, task frame], and the gripper."""
        self.data.mocap_pos[0] = to_world(tool) + np.array([0.0, 0.0, TOOL_M])
        self.data.mocap_quat[0] = self._turn
        self.data.ctrl[:] = (1.0, -1.0) if closed else (-1.0, 1.0)

    def advance(self, until_s: float) -> None:
        """Let time pass until then [s since the start]."""
        while self.data.time < until_s - 1e-9:
            mujoco.mj_step(self.model, self.data)
        mujoco.mj_kinematics(self.model, self.data)  # places that go with the joints

    def _put_things_back(self) -> None:
        """Undo what the arm did to things on its way to its home."""
        robot = [*JOINTS, *_FINGERS]
        places = [int(self.model.joint(name).qposadr[0]) for name in robot]
        speeds = [int(self.model.joint(name).dofadr[0]) for name in robot]
        things = np.setdiff1d(np.arange(self.model.nq), places)
        self.data.qpos[things] = self.model.qpos0[things]
        self.data.qvel[np.setdiff1d(np.arange(self.model.nv), speeds)] = 0.0
        mujoco.mj_forward(self.model, self.data)

    def joints(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Positions [rad] and velocities [rad/s] of the arm's joints. Shapes (7,)."""
        positions = np.array([self.data.joint(name).qpos[0] for name in JOINTS])
        return positions, self.data.qvel[self._moving].copy()

    def fingers(self) -> tuple[float, float]:
        """Distance of each finger from the middle [m]; their sum is the opening."""
        right, left = (float(self.data.joint(name).qpos[0]) for name in _FINGERS)
        return OPEN_M / 2 - right, OPEN_M / 2 + left

    def tool(self) -> Pose:
        """Pose of the tool in the task frame."""
        hand = self.data.body('hand')
        turn = hand.xmat.reshape(3, 3)
        at = to_task(hand.xpos + turn[:, 0] * TOOL_M)
        return Pose(at, quaternion_from_matrix(WORLD_FROM_TASK.T @ turn), TASK_FRAME)

    def links(self) -> dict[str, Pose]:
        """Pose of every link of the arm in the one before it."""
        poses, parent, above = {}, BASE_FRAME, 'base'
        for name in CHAIN:
            up, down = self.data.body(above), self.data.body(name)
            turn = up.xmat.reshape(3, 3).T
            x, y, z = (float(value) for value in turn @ (down.xpos - up.xpos))
            rotation = quaternion_from_matrix(turn @ down.xmat.reshape(3, 3))
            poses[name] = Pose((x, y, z), rotation, parent)
            parent = above = name
        return poses

    def fixed(self) -> dict[str, Pose]:
        """Pose of frames that never move, in their parents."""
        tool = Pose((TOOL_M, 0.0, 0.0), (0.0, 0.0, 0.0, 1.0), 'hand')
        return {BASE_FRAME: base_pose(), TOOL_FRAME: tool}

    def places(self) -> dict[str, Vector]:
        """Where each thing is: centre of a block or mat, handle of a drawer [m, task frame]."""
        return {thing.name: self._place(thing.name) for thing in self._scene.things}

    def _place(self, name: str) -> Vector:
        if name == 'drawer':
            x, y, z = self._scene.thing(name).position
            slid = float(self.data.joint('goal_slidey').qpos[0])
            return x + slid, y, z
        if name == 'mat':
            return self._scene.thing(name).position
        return to_task(self.data.body('obj' if name == 'block' else name).xpos)


class ArmRenderer:
    """Renders what the camera that faces the robot sees. Use it as a context manager."""

    def __init__(self, world: ArmWorld, camera: Intrinsics) -> None:
        """Open the renderer."""
        model = world.model
        model.vis.global_.offwidth, model.vis.global_.offheight = camera.width, camera.height
        fovy = 2 * math.atan(camera.height / 2 / camera.fy)
        model.cam_fovy[model.camera(CAMERA).id] = math.degrees(fovy)
        self._data = world.data
        self._renderer = mujoco.Renderer(model, camera.height, camera.width)
        for flag in (mujoco.mjtRndFlag.mjRND_SHADOW, mujoco.mjtRndFlag.mjRND_REFLECTION):
            self._renderer.scene.flags[flag] = 0

    def image(self) -> NDArray[np.uint8]:
        """The camera's image now. Shape (H, W, 3), BGR."""
        self._renderer.update_scene(self._data, CAMERA)
        return np.ascontiguousarray(self._renderer.render()[..., ::-1])

    def __enter__(self) -> ArmRenderer:
        return self

    def __exit__(self, *_: object) -> None:
        self._renderer.close()


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
        arrive = now_s + max(LEAST_MOVE_S, way / _CONTROL_SPEED_M_S) if way > _STILL_M else now_s
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
            self.world.advance(min(until_s, now + LEAD_S))

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
