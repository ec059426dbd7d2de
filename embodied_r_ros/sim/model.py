# SPDX-License-Identifier: Apache-2.0
"""A room as a MuJoCo model: walls, furniture, things that can be placed, and an eye."""

from __future__ import annotations

from dataclasses import dataclass
import math
from typing import Any, TYPE_CHECKING

from embodied_r_ros.sim.signs import CENTRE_M, sign_picture, SIZE_M
from embodied_r_ros.sim.textures import PIXELS_PER_M, surface_texture
import mujoco
import numpy as np

if TYPE_CHECKING:
    from embodied_r_ros.recordings.layout import Vector
    from embodied_r_ros.sim.room import Box, Room, Thing
    from numpy.typing import NDArray

NEAR_M = 0.02
FAR_M = 30.0
_FLOOR_TILES_PX = 40
_OFF_THE_WALL_M = 0.01  # of signs, so that the wall does not shine through
_GEOMS = {
    'sphere': mujoco.mjtGeom.mjGEOM_SPHERE,
    'cylinder': mujoco.mjtGeom.mjGEOM_CYLINDER,
    'box': mujoco.mjtGeom.mjGEOM_BOX,
}


@dataclass(frozen=True)
class _Plane:
    """A rectangle that shows its texture on one side."""

    name: str
    centre: NDArray[np.float64]  # (3,) [m]
    frame: NDArray[np.float64]  # (3, 3); columns: right and up of the texture, normal
    sides: tuple[float, float]  # extents along right and up [m]
    tiles_px: int = 0


def room_model(room: Room, texture_rng: np.random.Generator | None = None) -> Any:
    """Build the model of a room.

    Things are mocap bodies called `thing_name(index)`; the camera is called 'eye' and sits on a
    mocap body of that name.

    Args:
        room: What stands where.
        texture_rng: Where the textures come from; None: none, and no signs either.

    Returns:
        A mujoco.MjModel.
    """
    spec = mujoco.MjSpec()
    spec.stat.extent = 1.0  # near and far planes are given in this unit
    spec.visual.map.znear, spec.visual.map.zfar = NEAR_M, FAR_M
    spec.visual.quality.shadowsize, spec.visual.quality.offsamples = 0, 0
    _add_lights(spec, room.size)
    for plane in _walls(room.size):
        _add_plane(spec, plane, texture_rng, room.rare_surfaces)
    _add_furniture(spec, room, texture_rng)
    if texture_rng is not None:
        _add_signs(spec, room)
    for index, thing in enumerate(room.things):
        _add_thing(spec, index, thing)
    spec.worldbody.add_body(name='eye', mocap=True).add_camera(name='eye')
    return spec.compile()


def thing_name(index: int) -> str:
    """Name of a thing's body and of its only geom."""
    return f'thing{index}'


def _add_lights(spec: Any, size: Vector) -> None:
    """Light from the ceiling and from the camera, weak enough to leave colours unsaturated."""
    spec.visual.headlight.ambient = [0.45] * 3
    spec.visual.headlight.diffuse = [0.2] * 3
    spec.visual.headlight.specular = [0.0] * 3
    for x, y in ((-0.25, -0.2), (0.3, 0.25)):
        spec.worldbody.add_light(
            pos=[x * size[0], y * size[1], size[2] - 0.1],
            dir=[0.0, 0.0, -1.0],
            diffuse=[0.25] * 3,
            specular=[0.0] * 3,
            cutoff=180.0,
            castshadow=False,
        )


def _walls(size: Vector) -> list[_Plane]:
    """The six planes of a room, facing inwards."""
    x, y, z = size
    up = np.array([0.0, 0.0, 1.0])
    planes = []
    for index, (side, reach) in enumerate(((y, x), (x, y), (y, x), (x, y))):
        angle = index * math.pi / 2  # of the outward normal: +x, +y, -x, -y
        outward = np.array([round(math.cos(angle)), round(math.sin(angle)), 0.0])
        frame = np.stack([np.cross(outward, up), up, -outward], axis=1)
        planes.append(_Plane(f'wall{index}', outward * reach / 2 + up * z / 2, frame, (side, z)))
    floor = _Plane('floor', np.zeros(3), np.eye(3), (x, y), _FLOOR_TILES_PX)
    ceiling = _Plane('ceiling', up * z, np.diag([1.0, -1.0, -1.0]), (x, y))
    return [*planes, floor, ceiling]


def _add_signs(spec: Any, room: Room) -> None:
    """Hang a sign on every wall where there are any, in turn."""
    if not room.signs:
        return
    for index, wall in enumerate(_walls(room.size)[:4]):
        centre = wall.centre + wall.frame[:, 2] * _OFF_THE_WALL_M
        centre[2] = CENTRE_M
        sign = _Plane(f'sign{index}', centre, wall.frame, SIZE_M)
        geom = _plane_geom(spec, sign)
        _add_material(spec, sign.name, sign_picture(room.signs[index % len(room.signs)]))
        geom.material = sign.name


def _add_plane(spec: Any, plane: _Plane, rng: np.random.Generator | None, rare: bool) -> None:
    geom = _plane_geom(spec, plane)
    if rng is not None:
        width, height = (round(side * PIXELS_PER_M) for side in plane.sides)
        _add_material(spec, plane.name, surface_texture(rng, width, height, plane.tiles_px, rare))
        geom.material = plane.name


def _plane_geom(spec: Any, plane: _Plane) -> Any:
    quaternion = np.zeros(4)
    mujoco.mju_mat2Quat(quaternion, np.ascontiguousarray(plane.frame).ravel())
    return spec.worldbody.add_geom(
        name=plane.name,
        type=mujoco.mjtGeom.mjGEOM_PLANE,
        size=[plane.sides[0] / 2, plane.sides[1] / 2, 0.1],
        pos=plane.centre,
        quat=quaternion,
    )


def _add_material(spec: Any, name: str, texture: NDArray[np.uint8], cube: bool = False) -> None:
    """Add a material that shows the texture once on a plane, or on each face of a box."""
    kind = mujoco.mjtTexture.mjTEXTURE_CUBE if cube else mujoco.mjtTexture.mjTEXTURE_2D
    height, width, channels = texture.shape
    made = spec.add_texture(name=name, type=kind, width=width, height=height, nchannel=channels)
    made.data = texture.tobytes()
    material = spec.add_material(name=name)
    material.textures[mujoco.mjtTextureRole.mjTEXROLE_RGB] = name


def _add_furniture(spec: Any, room: Room, rng: np.random.Generator | None) -> None:
    if rng is not None:
        face = surface_texture(rng, PIXELS_PER_M, PIXELS_PER_M, rare=room.rare_surfaces)
        _add_material(spec, 'furniture', np.concatenate([face] * 6), cube=True)
    boxes: list[Box] = [part for piece in room.furniture for part in piece.parts()]
    for box in boxes:
        geom = spec.worldbody.add_geom(
            type=mujoco.mjtGeom.mjGEOM_BOX, pos=box.centre, size=np.divide(box.size, 2)
        )
        if rng is not None:
            geom.material = 'furniture'


def _add_thing(spec: Any, index: int, thing: Thing) -> None:
    width, depth, height = np.divide(thing.size, 2)
    sizes = {
        'sphere': [width, 0, 0],
        'cylinder': [width, height, 0],
        'box': [width, depth, height],
    }
    name = thing_name(index)
    body = spec.worldbody.add_body(name=name, mocap=True, pos=thing.position)
    body.quat = [math.cos(thing.yaw_rad / 2), 0.0, 0.0, math.sin(thing.yaw_rad / 2)]
    geom = body.add_geom(name=name, type=_GEOMS[thing.solid], size=sizes[thing.solid])
    geom.rgba = [*thing.rgb, 1.0]
