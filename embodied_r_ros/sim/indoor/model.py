# SPDX-License-Identifier: Apache-2.0
"""A room as a MuJoCo model: textures, signs, furniture, things to be placed, and an eye."""

from __future__ import annotations

from dataclasses import dataclass
import math
from pathlib import Path
from typing import Any, TYPE_CHECKING

import cv2
from embodied_r_ros.apps.sheet import Line, text_block
from embodied_r_ros.common.errors import InputError
from embodied_r_ros.core.types.geometry import rotation_from_ypr
from embodied_r_ros.sim.indoor.finishes import (
    face_textures,
    floor_texture,
    GLOWING,
    TEXTURED,
    TONES,
    wall_texture,
)
from embodied_r_ros.sim.indoor.room import Part
import mujoco
import numpy as np

if TYPE_CHECKING:
    from embodied_r_ros.core.types.layout import Vector
    from embodied_r_ros.sim.indoor.room import Box, Room, RoomThing
    from numpy.typing import NDArray

PIXELS_PER_M = 96
_TINT = 0.07  # the most that a channel differs from grey; colour names need far more


def surface_texture(
    rng: np.random.Generator, width_px: int, height_px: int, tiles_px: int = 0
) -> NDArray[np.uint8]:
    """Draw a pale surface with stains, grain and printed panels.

    Args:
        rng: Where chance comes from.
        width_px: Width [px].
        height_px: Height [px].
        tiles_px: Side of the tiles whose joints are drawn [px]; 0: none.

    Returns:
        RGB image, uint8. Shape (height_px, width_px, 3).
    """
    grey = np.full((height_px, width_px), rng.uniform(125, 175))
    for cell_px, strength in ((64, 14.0), (16, 9.0), (6, 8.0), (2, 9.0)):
        grey += strength * _smooth_noise(rng, width_px, height_px, cell_px)
    if tiles_px:
        shades = rng.normal(0, 10, (height_px // tiles_px + 1, width_px // tiles_px + 1))
        grey += np.kron(shades, np.ones((tiles_px, tiles_px)))[:height_px, :width_px]
        grey[::tiles_px] -= 45
        grey[:, ::tiles_px] -= 45
    for _ in range(width_px * height_px // 4000):
        _print_panel(rng, grey)
    tint = 1 + rng.uniform(-_TINT, _TINT, 3)
    return np.clip(grey[..., None] * tint, 15, 240).astype(np.uint8)


def _smooth_noise(
    rng: np.random.Generator, width_px: int, height_px: int, cell_px: int
) -> NDArray[np.float64]:
    """Noise of unit strength that varies over `cell_px`. Shape (height_px, width_px)."""
    rows, columns = height_px // cell_px + 2, width_px // cell_px + 2
    knots = rng.normal(0, 1, (rows, columns))
    y, x = np.arange(height_px) / cell_px, np.arange(width_px) / cell_px
    top, left = y.astype(int), x.astype(int)
    fy, fx = (y - top)[:, None], (x - left)[None, :]
    upper = knots[top][:, left] * (1 - fx) + knots[top][:, left + 1] * fx
    lower = knots[top + 1][:, left] * (1 - fx) + knots[top + 1][:, left + 1] * fx
    return np.asarray(upper * (1 - fy) + lower * fy)


def _print_panel(rng: np.random.Generator, grey: NDArray[np.float64]) -> None:
    """Print a rectangle with a pattern of its own somewhere on the surface."""
    height_px, width_px = (int(value) for value in rng.integers(10, 60, 2))
    top = int(rng.integers(0, max(1, grey.shape[0] - height_px)))
    left = int(rng.integers(0, max(1, grey.shape[1] - width_px)))
    panel = grey[top : top + height_px, left : left + width_px]
    rows, columns = np.indices(panel.shape)
    step = int(rng.integers(4, 14))
    squares = rng.integers(0, 2, (height_px // step + 1, width_px // step + 1))
    pattern = (
        np.zeros(panel.shape),
        rows // step % 2,
        columns // step % 2,
        (rows // step + columns // step) % 2,
        squares[rows // step, columns // step],
    )[int(rng.integers(5))]
    panel += rng.uniform(-40, 40) + rng.choice([-1, 1]) * rng.uniform(30, 75) * pattern


MAX_CHARS = 200  # a longer text is too small to be read
SIZE_M = (1.2, 0.6)  # width and height of a sign
CENTRE_M = 1.75  # above the floor: over most furniture, and in view
_SIDE_PX = 256  # of the code, and of the letters beside it
_MARGIN_PX = 8
_QUIET = 4  # modules of white that a code needs around it
_SCALES = (1.2, 1.0, 0.8, 0.65, 0.5, 0.4, 0.3, 0.25)


def texts_of(source: str) -> tuple[str, ...]:
    """Texts of signs: the lines of a file of that name, or the text itself.

    Raises:
        InputError: There is no text, or one that no sign can hold.
    """
    try:
        lines = Path(source).read_text().splitlines() if _is_file(source) else [source]
    except (OSError, ValueError) as error:
        msg = f'cannot read signs from {source}: {error}'
        raise InputError(msg) from None
    texts = tuple(line.strip() for line in lines if line.strip())
    if not texts:
        msg = f'signs {source!r} have no text: expected a text, or a file with one on each line'
        raise InputError(msg)
    for text in texts:
        if len(text) > MAX_CHARS:
            msg = f'sign {text[:40]!r}… has {len(text)} characters: expected at most {MAX_CHARS}'
            raise InputError(msg)
    return texts


def _is_file(text: str) -> bool:
    try:
        return Path(text).is_file()
    except (OSError, ValueError):  # no file can be called so
        return False


def sign_picture(text: str) -> NDArray[np.uint8]:
    """Draw a sign.

    Returns:
        RGB image: the code on the left, letters on the right. Shape (H, W, 3).

    Raises:
        InputError: OpenCV is too old to make codes.
    """
    return np.hstack([_code(text), _letters(text)])


def _code(text: str) -> NDArray[np.uint8]:
    if not hasattr(cv2, 'QRCodeEncoder'):
        msg = f'OpenCV {cv2.__version__} makes no QR codes: install 4.5.5 or newer'
        raise InputError(msg)
    modules = np.asarray(cv2.QRCodeEncoder.create().encode(text), np.uint8)
    modules = np.pad(modules, _QUIET, constant_values=255)
    side = (_SIDE_PX, _SIDE_PX)
    grey = cv2.resize(modules, side, interpolation=cv2.INTER_NEAREST)
    return np.asarray(cv2.cvtColor(grey, cv2.COLOR_GRAY2RGB), np.uint8)


def _letters(text: str) -> NDArray[np.uint8]:
    """The text, as large as it fits; what does not fit even in small letters is cut off."""
    width = _SIDE_PX - 2 * _MARGIN_PX
    for scale in _SCALES:
        block = text_block([Line(text, scale, (0, 0, 0))], width)
        if block.shape[0] <= _SIDE_PX and _widest_px(text, scale) <= width:
            break
    bold = cv2.erode(block[:_SIDE_PX], np.ones((2, 2), np.uint8))
    picture = np.full((_SIDE_PX, _SIDE_PX, 3), 255, np.uint8)
    top = (_SIDE_PX - bold.shape[0]) // 2
    picture[top : top + bold.shape[0], _MARGIN_PX : _MARGIN_PX + width] = bold
    return picture


def _widest_px(text: str, scale: float) -> int:
    """Width of the longest word [px]."""
    font = cv2.FONT_HERSHEY_SIMPLEX
    return max(cv2.getTextSize(word, font, scale, 1)[0][0] for word in text.split())


NEAR_M = 0.02
FAR_M = 30.0
_FLOOR_TILES_PX = 40
_AT_WALL_M = 0.35  # between a wall and what shades it, at most
_LAMP_M = (0.44, 0.44, 0.12)  # of the ceiling, half of it above
_TO_LIGHT = (-0.3, -0.45, 0.84)
_FAR_LIGHT_M = 50.0  # from there it falls at one angle everywhere
_OFF_THE_WALL_M = 0.01  # of signs, so that the wall does not shine through
_GEOMS = {
    'sphere': mujoco.mjtGeom.mjGEOM_SPHERE,
    'ball': mujoco.mjtGeom.mjGEOM_ELLIPSOID,
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

    def _place(self, thing: RoomThing) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Centre and half extents of a thing along the columns of the frame [m]."""
        turn = self.frame.T @ rotation_from_ypr(thing.yaw_rad, 0.0, 0.0)
        return self.frame.T @ (thing.position - self.centre), np.abs(turn @ thing.size) / 2

    def gap_to(self, thing: RoomThing) -> float:
        """Distance of a thing [m]."""
        centre, half = self._place(thing)
        return float(centre[2] - half[2])

    def box_before(self, thing: RoomThing) -> NDArray[np.float64]:
        """Left, top, right and bottom of a thing on the texture [m]."""
        (x, y, _), (wide, high, _) = self._place(thing)
        across, down = x + self.sides[0] / 2, self.sides[1] / 2 - y
        return np.array([across - wide, down - high, across + wide, down + high])


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
    if room.is_furnished:
        _add_soft_light(spec)
        _add_finishes(spec, has_textures=texture_rng is not None)
    else:
        _add_lights(spec, room.size)
        _add_planes(spec, spec.worldbody, room, texture_rng)
    if room.furniture:
        _add_furniture(spec, room, texture_rng)
    if texture_rng is not None:
        _add_signs(spec, room)
    for index, thing in enumerate(room.things):
        _add_thing(spec, index, thing)
    if room.is_furnished:
        shell = spec.worldbody.add_body(name='shell')
        _add_part(shell, Part('cylinder', _LAMP_M, (0.0, 0.0, room.size[2]), 'glow'))
        # What is drawn last costs nothing where something stands before it.
        _add_planes(spec, shell, room, texture_rng)
    spec.worldbody.add_body(name='eye', mocap=True).add_camera(name='eye')
    return spec.compile()


def thing_name(index: int) -> str:
    """Name of a thing's body."""
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


def _add_soft_light(spec: Any) -> None:
    """Even light from above on few facets; that of corners and shade lies in the textures."""
    quality, headlight = spec.visual.quality, spec.visual.headlight
    quality.numslices, quality.numstacks, quality.numquads = 12, 6, 1
    headlight.ambient, headlight.diffuse, headlight.specular = [0.62] * 3, [0.1] * 3, [0.0] * 3
    spec.worldbody.add_light(
        pos=np.multiply(_TO_LIGHT, _FAR_LIGHT_M),
        dir=np.negative(_TO_LIGHT),
        diffuse=[0.34] * 3,
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
        geom = _plane_geom(spec.worldbody, sign)
        _add_material(spec, sign.name, sign_picture(room.signs[index % len(room.signs)]))
        geom.material = sign.name


def _add_planes(spec: Any, body: Any, room: Room, rng: np.random.Generator | None) -> None:
    for plane in _walls(room.size):
        geom = _plane_geom(body, plane)
        if room.is_furnished and plane.name == 'ceiling':
            geom.material = 'ceiling'
        elif rng is not None:
            _add_material(spec, plane.name, _plane_texture(plane, rng, room))
            geom.material = plane.name


def _plane_texture(plane: _Plane, rng: np.random.Generator, room: Room) -> NDArray[np.uint8]:
    if not room.is_furnished:
        width, height = (round(side * PIXELS_PER_M) for side in plane.sides)
        return surface_texture(rng, width, height, plane.tiles_px)
    if plane.name == 'floor':
        return floor_texture(rng, room)
    near = [thing for thing in room.things if plane.gap_to(thing) < _AT_WALL_M]
    return wall_texture(rng, plane.sides, [plane.box_before(thing) for thing in near])


def _add_finishes(spec: Any, has_textures: bool) -> None:
    """Add what furniture is made of."""
    for finish, tone in TONES.items():
        faces = face_textures(finish) if has_textures and finish in TEXTURED else None
        material = _add_material(spec, finish, faces, cube=True)
        material.emission = GLOWING.get(finish, 0.0)
        if faces is None:
            material.rgba = [*np.divide(tone, 255), 1.0]


def _plane_geom(body: Any, plane: _Plane) -> Any:
    quaternion = np.zeros(4)
    mujoco.mju_mat2Quat(quaternion, np.ascontiguousarray(plane.frame).ravel())
    return body.add_geom(
        name=plane.name,
        type=mujoco.mjtGeom.mjGEOM_PLANE,
        size=[plane.sides[0] / 2, plane.sides[1] / 2, 0.1],
        pos=plane.centre,
        quat=quaternion,
    )


def _add_material(
    spec: Any, name: str, texture: NDArray[np.uint8] | None, cube: bool = False
) -> Any:
    """Add a material that shows the texture once on a plane, or on each face of a box."""
    material = spec.add_material(name=name)
    if texture is None:
        return material
    kind = mujoco.mjtTexture.mjTEXTURE_CUBE if cube else mujoco.mjtTexture.mjTEXTURE_2D
    height, width, channels = texture.shape
    entry = spec.add_texture(name=name, type=kind, width=width, height=height, nchannel=channels)
    entry.data = texture.tobytes()
    material.textures[mujoco.mjtTextureRole.mjTEXROLE_RGB] = name
    return material


def _add_furniture(spec: Any, room: Room, rng: np.random.Generator | None) -> None:
    if rng is not None:
        face = surface_texture(rng, PIXELS_PER_M, PIXELS_PER_M)
        _add_material(spec, 'furniture', np.concatenate([face] * 6), cube=True)
    boxes: list[Box] = [part for piece in room.furniture for part in piece.parts()]
    for box in boxes:
        geom = spec.worldbody.add_geom(
            type=mujoco.mjtGeom.mjGEOM_BOX, pos=box.centre, size=np.divide(box.size, 2)
        )
        if rng is not None:
            geom.material = 'furniture'


def _add_part(body: Any, part: Part) -> None:
    x, y, z = np.divide(part.size, 2)
    quaternion = np.zeros(4)
    mujoco.mju_mat2Quat(quaternion, rotation_from_ypr(*part.turn).ravel())
    geom = body.add_geom(type=_GEOMS[part.solid], pos=part.centre, quat=quaternion)
    geom.size = [x, z, 0] if part.solid == 'cylinder' else [x, y, z]
    geom.material = part.finish


def _add_thing(spec: Any, index: int, thing: RoomThing) -> None:
    width, depth, height = np.divide(thing.size, 2)
    sizes = {
        'sphere': [width, 0, 0],
        'cylinder': [width, height, 0],
        'box': [width, depth, height],
    }
    name = thing_name(index)
    body = spec.worldbody.add_body(name=name, mocap=True, pos=thing.position)
    body.quat = [math.cos(thing.yaw_rad / 2), 0.0, 0.0, math.sin(thing.yaw_rad / 2)]
    for part in thing.parts:
        _add_part(body, part)
    if thing.parts:
        return
    geom = body.add_geom(name=name, type=_GEOMS[thing.solid], size=sizes[thing.solid])
    geom.rgba = [*thing.rgb, 1.0]
