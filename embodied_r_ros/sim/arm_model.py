# SPDX-License-Identifier: Apache-2.0
"""The Sawyer of Meta-World in MuJoCo: its scenes with our things, and a camera that faces it."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any, TYPE_CHECKING

from embodied_r_ros.geometry import BODY_FROM_OPTICAL, Pose, quaternion_from_matrix
from embodied_r_ros.sim.arm_tasks import BLOCK_HALF_M, COLOURS
import mujoco
import numpy as np

if TYPE_CHECKING:
    from embodied_r_ros.recordings.layout import Vector
    from embodied_r_ros.sim.arm_tasks import ArmScene, Thing
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


def _set_block(spec: Any, thing: Thing) -> None:
    """Meta-World's puck becomes a block."""
    body = next(body for body in spec.bodies if body.name == 'obj')
    body.pos = to_world(thing.position)
    _make_block(body, body.geoms[0], thing)


def _add_support(spec: Any, thing: Thing) -> None:
    body = spec.worldbody.add_body()
    body.name, body.pos = thing.name, to_world(thing.position)
    body.add_freejoint()
    geom = body.add_geom()
    geom.friction, geom.condim = [1.0, 0.1, 0.002], 4  # as Meta-World's puck
    geom.solref, geom.solimp = [0.01, 1.0], [0.99, 0.99, 0.01, 0.5, 2.0]
    _make_block(body, geom, thing)


def _make_block(body: Any, geom: Any, thing: Thing) -> None:
    body.mass, body.ipos = _BLOCK_KG, [0.0] * 3  # unsaid, it would be that of the body
    body.inertia = [_BLOCK_KG * (2 * BLOCK_HALF_M) ** 2 / 6] * 3
    body.explicitinertial = True
    geom.type, geom.size = mujoco.mjtGeom.mjGEOM_BOX, [BLOCK_HALF_M] * 3
    geom.material, geom.rgba = '', [*COLOURS[thing.colour], 1.0]


def _add_mat(spec: Any, thing: Thing) -> None:
    geom = spec.worldbody.add_geom()
    geom.name, geom.type = thing.name, mujoco.mjtGeom.mjGEOM_CYLINDER
    geom.size, geom.pos = [0.045, 0.001, 0.0], to_world(thing.position)
    geom.contype = geom.conaffinity = 0
    geom.rgba = [*COLOURS[thing.colour], 1.0]


def _set_drawer(spec: Any, thing: Thing) -> None:
    x, y, _ = thing.position
    body = next(body for body in spec.bodies if body.name == 'drawer')
    body.pos = to_world((x + _DRAWER_BEHIND_M, y, 0.0))


_ADDERS = {'block': _set_block, 'support': _add_support, 'mat': _add_mat, 'drawer': _set_drawer}
