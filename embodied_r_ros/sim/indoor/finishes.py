# SPDX-License-Identifier: Apache-2.0
"""How furniture, floors and walls look: wood, cloth, books, boards, paint, pictures, soft shade.

No colour is so strong that it has a name: things are known by their shapes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

import cv2
from embodied_r_ros.core.types.geometry import rotation_from_ypr
import numpy as np

Pair: TypeAlias = 'tuple[float, float]'
Picture: TypeAlias = 'NDArray[np.float64]'  # rows of RGB, or of grey, in no fixed range
if TYPE_CHECKING:
    from collections.abc import Sequence

    from embodied_r_ros.sim.indoor.room import Room, RoomThing
    from numpy.typing import NDArray

_FACE = (128, 128)  # pixels of a face of a solid
TONES: dict[str, tuple[int, int, int]] = {
    'wood': (178, 132, 88), 'upright wood': (168, 122, 80), 'dark wood': (86, 62, 48),
    'cabinet': (226, 222, 212), 'door': (232, 228, 218), 'white': (238, 236, 230),
    'blue fabric': (92, 118, 152), 'green fabric': (98, 132, 92), 'red fabric': (164, 104, 100),
    'mustard fabric': (200, 160, 84), 'pale fabric': (216, 206, 190), 'metal': (58, 58, 62),
    'shade': (255, 238, 200), 'pot': (178, 104, 76), 'soil': (56, 44, 36), 'bark': (112, 88, 64),
    'leaf 0': (76, 116, 70), 'leaf 1': (96, 142, 88), 'orange': (228, 142, 60),
    'lemon': (222, 186, 96), 'basket': (172, 140, 100), 'vase': (196, 208, 214),
    'screen': (20, 20, 24), 'books 0': (70, 52, 42), 'books 1': (70, 52, 42),
    'books 2': (70, 52, 42), 'ceiling': (226, 224, 218),
    'glow': (255, 250, 236),
}  # fmt: skip
_KINDS = {'wood', 'fabric', 'books', 'screen', 'door', 'cabinet', 'basket', 'shade'}
# What has a texture; all else is of one colour.
TEXTURED = tuple(name for name in TONES if _KINDS & set(name.split()))
# How much of their colour is their own light.
GLOWING = {'shade': 0.75, 'screen': 0.35, 'ceiling': 0.3, 'glow': 0.9}


def _noise(rng: np.random.Generator, shape: tuple[int, ...], down: int, across: int) -> Picture:
    """Smooth noise of unit strength with so many knots. Shape (H, W)."""
    knots = rng.normal(0, 1, (max(2, down), max(2, across)))
    return np.asarray(cv2.resize(knots, shape[1::-1], interpolation=cv2.INTER_CUBIC))


def _plain(tone: Sequence[float], grey: Picture) -> Picture:
    """A colour that is lighter and darker by shares. Shape (H, W, 3)."""
    return np.asarray(np.multiply(tone, 1 + grey[..., None]))


def _edged(picture: Picture, depth: float, share: float) -> Picture:
    """A square face that is darker towards its edges, as soft and rounded things are."""
    ramp = np.linspace(0, 1, len(picture))
    near = np.minimum.outer(*[np.minimum(ramp, ramp[::-1]) / share] * 2)
    return np.asarray(picture * (1 - depth * np.exp(-(near**2)))[..., None])


def _wood(rng: np.random.Generator, tone: Sequence[float], shape: tuple[int, int]) -> Picture:
    """Wood whose grain runs across the picture."""
    tall, wide = shape
    grain = 0.1 * _noise(rng, shape, tall // 4, 3) + 0.06 * _noise(rng, shape, tall // 2, 6)
    fibres = 0.03 * _noise(rng, shape, tall // 2, wide // 3)
    return _plain(tone, grain + fibres + 0.04 * np.sin(9 * _noise(rng, shape, 6, 2)))


def _cloth(rng: np.random.Generator, tone: Sequence[float]) -> Picture:
    weave = 0.05 * (np.indices(_FACE).sum(axis=0) // 2 % 2) - 0.025
    folds = 0.07 * _noise(rng, _FACE, 4, 4) + 0.07 * _noise(rng, _FACE, 24, 24)
    return _edged(_plain(tone, weave + folds + 0.05 * rng.normal(0, 1, _FACE)), 0.45, 0.07)


def _books(rng: np.random.Generator) -> Picture:
    """Spines of books that stand side by side."""
    height, width = _FACE
    picture = np.full((height, width, 3), 40.0)
    for left in np.cumsum(rng.integers(6, 13, width // 6)):
        spine = picture[int(rng.integers(0, height // 5)) :, left : left + 12]
        tone = rng.uniform(70, 215) * (1 + rng.uniform(-0.28, 0.2, 3))
        spine[:] = (tone * np.sin(np.linspace(0.5, 2.8, 12))[:, None])[: spine.shape[1]]
        for band in rng.choice((0.12, 0.2, 0.8), 2):
            row = round(band * len(spine))
            spine[row : row + int(rng.integers(2, 9)), 1:-1] = rng.choice([50.0, 230.0, 200.0])
    return picture


def _panels(picture: Picture, rows: Sequence[float], columns: int) -> None:
    """Sunken panels with a light and a dark edge, `rows` being where each row of them ends."""
    height, width = picture.shape[:2]
    for top, bottom in zip((0.0, *rows), rows, strict=False):
        for column in range(columns):
            left, right = (round((column + part) / columns * width) for part in (0.14, 0.86))
            upper, lower = round(top * height) + 6, round(bottom * height) - 6
            cv2.rectangle(picture, (left, upper), (right, lower), (150, 146, 138), 2)
            cv2.line(picture, (left + 2, lower + 2), (right + 2, lower + 2), (250, 248, 240), 2)


def _landscape(rng: np.random.Generator, shape: tuple[int, int]) -> Picture:
    """A sky, a sun and hills, in pale colours."""
    height, width = shape
    sky = np.linspace(0, 1, height)[:, None, None]
    picture = np.ones((1, width, 1)) * (sky * (236, 222, 196) + (1 - sky) * (160, 186, 206))
    sun = (int(rng.uniform(0.2, 0.8) * width), int(rng.uniform(0.15, 0.4) * height))
    cv2.circle(picture, sun, max(2, height // 9), (250, 240, 214), -1, cv2.LINE_AA)
    picture *= rng.uniform(0.88, 1.08, 3)  # of its hour
    for hill, tone in enumerate(((150, 166, 168), (124, 146, 128), (98, 116, 94))):
        ridge = 0.5 + 0.15 * hill + 0.1 * _noise(rng, (1, width), 2, 4 + hill)
        picture[sky[..., 0] > ridge] = np.multiply(tone, rng.uniform(0.9, 1.1))
    return np.asarray(picture + 5 * _noise(rng, shape, height // 2, width // 2)[..., None])


def _blocks(rng: np.random.Generator, shape: tuple[int, int]) -> Picture:
    """Blocks of pale colours, one over the other."""
    picture = np.full((*shape, 3), 216.0)
    for _ in range(9):
        top, left = (int(rng.integers(0, side - 8)) for side in shape)
        tall, wide = (int(rng.integers(8, side // 2 + 9)) for side in shape)
        tone = rng.uniform(90, 225) * rng.uniform(0.82, 1.0, 3)
        picture[top : top + tall, left : left + wide] = tone
    return picture


def face_textures(finish: str) -> NDArray[np.uint8]:
    """The six faces of what has a finish, one below the other, as a cube's texture has them."""
    tone, rng = TONES[finish], np.random.default_rng(list(TONES).index(finish))
    if finish.endswith('fabric') or finish in {'basket', 'shade'}:
        side = _cloth(rng, tone)
    elif finish.endswith('wood'):
        side = _edged(_wood(rng, tone, _FACE), 0.25, 0.03)
    else:
        side = _edged(_plain(tone, 0.015 * _noise(rng, _FACE, 40, 40)), 0.2, 0.04)
    if finish == 'upright wood':
        side = np.rot90(side)
    front = side.copy()
    if finish.startswith('books'):
        front = _books(rng)
    elif finish == 'screen':
        front[5:-5, 4:-4] = _landscape(rng, (_FACE[0] - 10, _FACE[1] - 8)) * 0.9
    elif finish == 'door':
        _panels(front, (0.35, 0.62, 0.97), 2)
    elif finish == 'cabinet':
        _panels(front, (0.98,), 3)
    # As seen from outside, the cube's first three faces lie on their sides or on their heads.
    faces = [np.rot90(side, 1), np.rot90(side, -1), np.rot90(side, 2), front, side, side]
    return _as_image(np.concatenate(faces))


_PX_PER_M = 96
_WALLS = ((214, 206, 190), (196, 204, 200), (208, 200, 196), (200, 206, 214))
_SHADE_M = 0.16  # how soft shade is
_BOARD_PX = 14


def _shaded(picture: Picture, boxes: Sequence[Picture], depth: float) -> NDArray[np.uint8]:
    """A surface with less light at its edges, and where things stand before it.

    Args:
        picture: The surface.
        boxes: Left, top, right and bottom of each thing [m].
        depth: How dark it is there.
    """
    mask = np.zeros(picture.shape[:2])
    for box in boxes:
        left, top, right, bottom = np.maximum(0, np.round(box * _PX_PER_M)).astype(int)
        mask[top:bottom, left:right] = 1
    light = 1.06 * (1 - depth * cv2.GaussianBlur(mask, (0, 0), _SHADE_M * _PX_PER_M))
    y, x = (np.minimum(t := np.arange(n) + 0.5, n - t) / _PX_PER_M for n in mask.shape)
    light *= (1 - 0.2 * np.exp(-y[:, None] / 0.3)) * (1 - 0.2 * np.exp(-x / 0.3))
    return _as_image(picture * light[..., None])


def floor_texture(rng: np.random.Generator, room: Room) -> NDArray[np.uint8]:
    """Boards, a rug before each couch, and the shade of what stands there. RGB (H, W, 3)."""
    width, height = (round(side * _PX_PER_M) for side in room.size[:2])
    picture = np.zeros((height, width, 3))
    for top in range(0, height, _BOARD_PX):
        ends = np.cumsum(rng.integers(90, 170, width // 90 + 1)) - 60
        for left, right in zip((0, *ends), ends, strict=False):
            light = float(rng.uniform(0.86, 1.1))
            tone = [172 * light, 138 * light, 102 * light]
            part = picture[top : top + _BOARD_PX, left:right]
            part[:] = _wood(rng, tone, (_BOARD_PX, 170))[: len(part), : part.shape[1]]
            part[:, -1:] *= 0.6
        picture[top] *= 0.62
    for couch in [thing for thing in room.things if thing.name == 'couch']:
        box = _plan(room, couch, (0.0, -1.15), (2.1, 1.3)) * _PX_PER_M
        left, top, right, bottom = (max(0, round(edge)) for edge in box.tolist())
        _weave_rug(rng, picture[top:bottom, left:right])
    standing = [thing for thing in room.things if thing.support == 'floor']
    return _shaded(picture, [_plan(room, one, (0.0, 0.0), one.size[:2]) for one in standing], 0.6)


def _weave_rug(rng: np.random.Generator, rug: Picture) -> None:
    rug[:] = _plain((188, 176, 160), 0.06 * rng.normal(0, 1, rug.shape[:2]))
    rows, columns = np.indices(rug.shape[:2]) % 32 - 16
    rug[(abs(rows) + abs(columns)) // 3 % 4 == 0] *= 0.72
    height, width = rug.shape[:2]
    for edge, tone in ((0, (120, 104, 96)), (7, (222, 212, 196)), (12, (120, 104, 96))):
        cv2.rectangle(rug, (edge, edge), (width - 1 - edge, height - 1 - edge), tone, 4)


def _plan(room: Room, thing: RoomThing, ahead: Pair, sides: Pair) -> Picture:
    """Left, top, right and bottom of a place by a thing on the floor's picture [m]."""
    turn = rotation_from_ypr(thing.yaw_rad, 0.0, 0.0)[:2, :2]
    x, y = thing.position[:2] + turn @ ahead
    half = np.abs(turn @ sides) / 2
    middle = np.array([x + room.size[0] / 2, room.size[1] / 2 - y])
    return np.concatenate([middle - half, middle + half])


def wall_texture(
    rng: np.random.Generator, sides: Pair, boxes: Sequence[Picture]
) -> NDArray[np.uint8]:
    """Paper with a skirting and pictures, and the shade of what stands before it. RGB (H, W, 3).

    Args:
        rng: Where chance comes from.
        sides: Width and height [m].
        boxes: Left, top, right and bottom of each thing at the wall [m].
    """
    width, height = (round(side * _PX_PER_M) for side in sides)
    shape = (height, width)
    grey = 0.02 * _noise(rng, shape, 12, 12) + 0.022 * _noise(rng, shape, height // 3, width // 3)
    stripes = 0.03 * (np.arange(width) // 12 % 2)
    picture = _plain(_WALLS[int(rng.integers(len(_WALLS)))], grey + stripes)
    for y in range(14, height - 14, 22):
        for x in range(12 + y // 22 % 2 * 12, width - 8, 24):
            turn, tone = float(rng.uniform(0, 360)), picture[y, x] * rng.uniform(0.78, 0.9)
            at = (x + int(rng.integers(-3, 4)), y + int(rng.integers(-3, 4)))
            for side in (-35, 35):  # two leaves of a sprig
                cv2.ellipse(picture, at, (5, 2), turn + side, 0, 360, tone.tolist(), -1)
    _hang_pictures(rng, picture, boxes)
    picture[-11:] = (236, 232, 224)
    picture[-12:-10] *= 0.7
    return _shaded(picture, boxes, 0.42)


def _hang_pictures(rng: np.random.Generator, wall: Picture, boxes: Sequence[Picture]) -> None:
    """Hang pictures beside each other, and beside what reaches up to them."""
    height, width = wall.shape[:2]
    middle = round(height - 1.62 * _PX_PER_M)
    taken = [box[::2] * _PX_PER_M for box in boxes if box[1] * _PX_PER_M < middle + 40]
    for _ in range(14):
        tall, wide = int(rng.integers(44, 76)), int(rng.integers(48, 96))
        left, top = int(rng.integers(20, width - wide - 20)), middle - tall // 2
        if any(left < right + 12 and start < left + wide + 12 for start, right in taken):
            continue
        taken.append(np.array([left - 20, left + wide + 20]))
        wall[top + 3 : top + tall + 5, left + 3 : left + wide + 5] *= 0.72
        frame = wall[top : top + tall, left : left + wide]
        frame[:] = rng.choice([62.0, 120.0, 30.0])
        frame[4:-4, 4:-4] = 240
        draw = _landscape if rng.random() < 0.6 else _blocks
        frame[10:-10, 10:-10] = draw(rng, (tall - 20, wide - 20))


def _as_image(picture: Picture) -> NDArray[np.uint8]:
    return np.clip(picture, 0, 255).astype(np.uint8)
