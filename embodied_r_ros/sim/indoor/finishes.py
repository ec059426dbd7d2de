# SPDX-License-Identifier: Apache-2.0
"""How furniture, floors and walls look: wood, cloth, books, boards, paint, pictures, soft shade.

No colour is so strong that it has a name: things are known by their shapes.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import cv2
from embodied_r_ros.core.types.geometry import rotation_from_ypr
import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from embodied_r_ros.core.types.layout import Vector
    from embodied_r_ros.sim.indoor.room import RoomThing
    from numpy.typing import NDArray

Picture = 'NDArray[np.uint8]'
_FACE_PX = 128
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
# What has a texture; all else is of one colour.
TEXTURED = tuple(
    sorted(
        name
        for name in TONES
        if name.split()[-1] in {'wood', 'fabric'}
        or name.split()[0] in {'books', 'screen', 'door', 'cabinet', 'basket', 'shade'}
    )
)
GLOWING = {
    'shade': 0.75,
    'screen': 0.35,
    'ceiling': 0.3,
    'glow': 0.9,
}  # how much of their colour is their own light


def _noise(
    rng: np.random.Generator, shape: tuple[int, int], cells: tuple[int, int]
) -> NDArray[np.float64]:
    """Smooth noise of unit strength with so many knots down and across. Shape (H, W)."""
    knots = rng.normal(0, 1, (max(2, cells[0]), max(2, cells[1])))
    return np.asarray(cv2.resize(knots, shape[::-1], interpolation=cv2.INTER_CUBIC))


def _plain(tone: Sequence[float], grey: NDArray[np.float64]) -> NDArray[np.float64]:
    """A colour that is lighter and darker by shares. Shape (H, W, 3)."""
    return np.asarray(np.multiply(tone, 1 + grey[..., None]))


def _edged(picture: NDArray[np.float64], depth: float, share: float = 0.12) -> NDArray[np.float64]:
    """A face that is darker towards its edges, as soft and rounded things are."""
    height, width = picture.shape[:2]
    y, x = (np.minimum(t, t[::-1]) for t in (np.linspace(0, 1, height), np.linspace(0, 1, width)))
    near = np.minimum.outer(y, x) / share
    return picture * (1 - depth * np.exp(-(np.minimum(near, 4.0) ** 2)))[..., None]


def _wood(
    rng: np.random.Generator, tone: Sequence[float], shape: tuple[int, int]
) -> NDArray[np.float64]:
    """Wood whose grain runs across the picture."""
    grain = 0.1 * _noise(rng, shape, (shape[0] // 4, 3)) + 0.06 * _noise(
        rng, shape, (shape[0] // 2, 6)
    )
    knots = _noise(rng, shape, (6, 2))
    return _plain(
        tone,
        grain
        + 0.04 * np.sin(9 * knots)
        + 0.03 * _noise(rng, shape, (shape[0] // 2, shape[1] // 3)),
    )


def _cloth(
    rng: np.random.Generator, tone: Sequence[float], shape: tuple[int, int]
) -> NDArray[np.float64]:
    rows, columns = np.indices(shape)
    weave = 0.05 * ((rows + columns) // 2 % 2) - 0.025
    folds = 0.07 * _noise(rng, shape, (4, 4)) + 0.07 * _noise(rng, shape, (24, 24))
    return _edged(_plain(tone, weave + folds + 0.05 * _noise(rng, shape, shape)), 0.45, 0.07)


def _books(rng: np.random.Generator, shape: tuple[int, int]) -> NDArray[np.float64]:
    """Spines of books that stand side by side."""
    height, width = shape
    picture = np.full((height, width, 3), 40.0)
    at = 0
    while at < width:
        thick, top = int(rng.integers(6, 13)), int(rng.integers(0, height // 5))
        tone = rng.uniform(70, 215) * (1 + rng.uniform(-0.28, 0.2, 3))
        shade = np.sin(np.linspace(0.5, math.pi - 0.3, thick))[:thick]
        spine = picture[top:, at : at + thick]
        spine[:] = (tone * shade[:, None])[: spine.shape[1]]
        for band in (0.12, 0.2, 0.8)[: int(rng.integers(1, 4))]:
            row = round(band * len(spine))
            spine[row : row + int(rng.integers(2, 9)), 1:-1] = rng.choice([50.0, 230.0, 200.0])
        at += thick
    return picture


def _panels(
    picture: NDArray[np.float64], rows: Sequence[float], columns: int
) -> NDArray[np.float64]:
    """Sunken panels with a light and a dark edge, `rows` being where each row of them ends."""
    height, width = picture.shape[:2]
    for top, bottom in zip((0.0, *rows), rows, strict=False):
        for column in range(columns):
            left, right = (round((column + part) / columns * width) for part in (0.14, 0.86))
            upper, lower = round(top * height) + 6, round(bottom * height) - 6
            cv2.rectangle(picture, (left, upper), (right, lower), (150, 146, 138), 2)
            cv2.line(picture, (left + 2, lower + 2), (right + 2, lower + 2), (250, 248, 240), 2)
    return picture


def _landscape(rng: np.random.Generator, shape: tuple[int, int]) -> NDArray[np.float64]:
    """A sky, a sun and hills, in pale colours."""
    height, width = shape
    sky = np.linspace(0, 1, height)[:, None, None]
    picture = np.ones((1, width, 1)) * (sky * (236, 222, 196) + (1 - sky) * (160, 186, 206))
    sun = (int(rng.uniform(0.2, 0.8) * width), int(rng.uniform(0.15, 0.4) * height))
    cv2.circle(picture, sun, max(2, height // 9), (250, 240, 214), -1, cv2.LINE_AA)
    picture *= rng.uniform(0.88, 1.08, 3)  # of its hour
    for hill, tone in enumerate(((150, 166, 168), (124, 146, 128), (98, 116, 94))):
        line = (
            height * (0.5 + 0.15 * hill)
            + height * 0.1 * _noise(rng, (1, width), (2, 4 + hill))[-1]
        )
        below = np.arange(height)[:, None] > line
        picture[below] = np.multiply(tone, rng.uniform(0.9, 1.1))
    return picture + 5 * _noise(rng, shape, (height // 2, width // 2))[..., None]


def _blocks(rng: np.random.Generator, shape: tuple[int, int]) -> NDArray[np.float64]:
    """Blocks of pale colours side by side and one over the other."""
    picture = np.full((*shape, 3), 216.0)
    for _ in range(9):
        top, left = (int(rng.integers(0, side - 8)) for side in shape)
        tall, wide = (int(rng.integers(8, side // 2 + 9)) for side in shape)
        tone = rng.uniform(90, 225) * rng.uniform(0.82, 1.0, 3)
        picture[top : top + tall, left : left + wide] = tone
    return picture


def face_textures(finish: str) -> NDArray[np.uint8]:
    """The six faces of what has a finish, one below the other, as a cube's texture has them.

    Raises:
        KeyError: There is no such finish.
    """
    tone = TONES[finish]
    rng = np.random.default_rng(sorted(TONES).index(finish))
    shape, kind = (_FACE_PX, _FACE_PX), finish.split()[0]
    if finish.endswith('fabric') or finish in {'basket', 'shade'}:
        side = _cloth(rng, tone, shape)
    elif finish.endswith('wood'):
        side = _edged(_wood(rng, tone, shape), 0.25, 0.03)
    elif kind == 'leaf':
        side = _plain(tone, 0.12 * _noise(rng, shape, (8, 30)))
        side[61:67] *= 1.25  # its midrib
    else:
        side = _edged(_plain(tone, 0.015 * _noise(rng, shape, (40, 40))), 0.2, 0.04)
    side = np.rot90(side) if kind in {'upright', 'bark'} else side
    front = side
    if kind == 'books':
        front = _books(rng, shape)
    elif kind == 'screen':
        front = side.copy()
        front[5:-5, 4:-4] = _landscape(rng, (_FACE_PX - 10, _FACE_PX - 8)) * 0.9
    elif kind == 'door':
        front = _panels(side.copy(), (0.35, 0.62, 0.97), 2)
    elif kind == 'cabinet':
        front = _panels(side.copy(), (0.98,), 3)
    # As seen from outside, the cube's first three faces lie on their sides or on their heads.
    faces = [np.rot90(side, 1), np.rot90(side, -1), np.rot90(side, 2), front, side, side]
    return np.clip(np.concatenate(faces), 0, 255).astype(np.uint8)


_PX_PER_M = 96
_WALLS = ((214, 206, 190), (196, 204, 200), (208, 200, 196), (200, 206, 214))
_SHADE_M = 0.16  # how soft shade is


def _shade(grey: NDArray[np.float64], boxes: Sequence[NDArray[np.float64]], depth: float) -> None:
    """Darken a surface softly where things stand before it; boxes are of (left, top, right, bottom) [px]."""
    mask = np.zeros(grey.shape)
    for box in boxes:
        left, top, right, bottom = (max(0, round(float(edge))) for edge in box)
        mask[top:bottom, left:right] = 1
    grey *= 1 - depth * cv2.GaussianBlur(mask, (0, 0), _SHADE_M * _PX_PER_M)


def _corner_light(shape: tuple[int, int]) -> NDArray[np.float64]:
    """How light a wall, floor or ceiling is: less towards its edges. Shape (H, W)."""
    y, x = (np.minimum(t := np.arange(n) + 0.5, n - t) / _PX_PER_M for n in shape)
    return np.asarray((1 - 0.2 * np.exp(-y[:, None] / 0.3)) * (1 - 0.2 * np.exp(-x[None] / 0.3)))


def floor_texture(
    rng: np.random.Generator, size: Vector, things: Sequence[RoomThing]
) -> NDArray[np.uint8]:
    """Boards and a rug, and the shade of what stands there. Rows go along -y. RGB (H, W, 3)."""
    width, height = (round(side * _PX_PER_M) for side in size[:2])
    picture, board = np.zeros((height, width, 3)), 14
    for top in range(0, height, board):
        left = -int(rng.integers(0, 80))
        while left < width:
            right = left + int(rng.integers(90, 170))
            part = picture[top : top + board, max(0, left) : max(0, right)]
            tone = np.multiply((172, 138, 102), rng.uniform(0.86, 1.1))
            part[:] = _wood(rng, tone, (board, 200))[: len(part), : part.shape[1]]
            part[:, -1:] *= 0.6
            left = right
        picture[top : top + 1] *= 0.62
    _lay_rug(rng, picture, size, things)
    light = _corner_light((height, width)) * 1.06
    _shade(light, [_floor_box(thing, size) for thing in things if thing.support == 'floor'], 0.6)
    return _as_image(picture * light[..., None])


def _lay_rug(
    rng: np.random.Generator,
    picture: NDArray[np.float64],
    size: Vector,
    things: Sequence[RoomThing],
) -> None:
    """A rug before the couch."""
    for couch in [thing for thing in things if thing.name == 'couch']:
        ahead = rotation_from_ypr(couch.yaw_rad, 0, 0) @ (0.0, -1.15, 0.0)
        x, y = np.add(couch.position, ahead)[:2]
        wide, deep = np.abs(rotation_from_ypr(couch.yaw_rad, 0, 0) @ (2.1, 1.3, 0.0))[:2]
        left, top = (
            round((x - wide / 2 + size[0] / 2) * _PX_PER_M),
            round((size[1] / 2 - y - deep / 2) * _PX_PER_M),
        )
        rug = picture[
            max(0, top) : top + round(deep * _PX_PER_M),
            max(0, left) : left + round(wide * _PX_PER_M),
        ]
        rug[:] = _plain((188, 176, 160), 0.06 * _noise(rng, rug.shape[:2], rug.shape[:2]))
        rows, columns = np.indices(rug.shape[:2])
        rug[(abs(rows % 32 - 16) + abs(columns % 32 - 16)) // 3 % 4 == 0] *= 0.72
        for edge, tone in ((0, (120, 104, 96)), (7, (222, 212, 196)), (12, (120, 104, 96))):
            cv2.rectangle(
                rug, (edge, edge), (rug.shape[1] - 1 - edge, rug.shape[0] - 1 - edge), tone, 4
            )


def _floor_box(thing: RoomThing, size: Vector) -> NDArray[np.float64]:
    wide, deep = np.abs(rotation_from_ypr(thing.yaw_rad, 0, 0) @ (*thing.size[:2], 0.0))[:2]
    x, y = thing.position[0] + size[0] / 2, size[1] / 2 - thing.position[1]
    return np.multiply([x - wide / 2, y - deep / 2, x + wide / 2, y + deep / 2], _PX_PER_M)


def wall_texture(
    rng: np.random.Generator,
    sides: tuple[float, float],
    before: Sequence[tuple[float, float, float, bool]],
) -> NDArray[np.uint8]:
    """Paper with a skirting and pictures, and the shade of what stands before it.

    Args:
        rng: Where chance comes from.
        sides: Width and height [m].
        before: Of each thing at the wall its left and right end, its height [m], and whether a
            picture may hang over it.

    Returns:
        RGB (H, W, 3).
    """
    width, height = (round(side * _PX_PER_M) for side in sides)
    tone = _WALLS[int(rng.integers(len(_WALLS)))]
    grey = 0.02 * _noise(rng, (height, width), (12, 12)) + 0.022 * _noise(
        rng, (height, width), (height // 3, width // 3)
    )
    columns = np.arange(width)
    grey += 0.03 * (columns // 12 % 2)
    picture = _plain(tone, grey)
    _print_sprigs(rng, picture)
    _hang_pictures(rng, picture, before)
    picture[-11:] = (236, 232, 224)
    picture[-12:-10] *= 0.7
    light = _corner_light((height, width)) * 1.05
    boxes = [
        np.multiply([l - 0.05, sides[1] - h - 0.05, r + 0.05, sides[1]], _PX_PER_M)
        for l, r, h, _ in before
    ]
    _shade(light, boxes, 0.42)
    return _as_image(picture * light[..., None])


def _print_sprigs(rng: np.random.Generator, picture: NDArray[np.float64]) -> None:
    """Small leaves on the paper, each turned its own way."""
    height, width = picture.shape[:2]
    for y in range(14, height - 14, 22):
        for x in range(12 + y // 22 % 2 * 12, width - 8, 24):
            turn, tone = float(rng.uniform(0, 360)), picture[y, x] * float(rng.uniform(0.78, 0.9))
            at = (x + int(rng.integers(-3, 4)), y + int(rng.integers(-3, 4)))
            for side in (-35, 35):
                cv2.ellipse(picture, at, (5, 2), turn + side, 0, 360, tone.tolist(), -1)


def _hang_pictures(
    rng: np.random.Generator,
    picture: NDArray[np.float64],
    before: Sequence[tuple[float, float, float, bool]],
) -> None:
    height, width = picture.shape[:2]
    taken = [
        (left * _PX_PER_M, right * _PX_PER_M)
        for left, right, _, may_hang in before
        if not may_hang
    ]
    for _ in range(14):
        tall, wide = int(rng.integers(44, 76)), int(rng.integers(48, 96))
        left = int(rng.integers(20, max(21, width - wide - 20)))
        if left + wide + 20 > width or any(
            left < r + 12 and l < left + wide + 12 for l, r in taken
        ):
            continue
        taken.append((left - 20, left + wide + 20))
        top = round(height - 1.62 * _PX_PER_M - tall / 2)
        frame = picture[top : top + tall, left : left + wide]
        picture[top + 3 : top + tall + 5, left + 3 : left + wide + 5] *= 0.72
        frame[:] = rng.choice([62.0, 120.0, 30.0])
        frame[4:-4, 4:-4] = 240
        draw = _landscape if rng.random() < 0.6 else _blocks
        frame[10:-10, 10:-10] = draw(rng, (tall - 20, wide - 20))


def _as_image(picture: NDArray[np.float64]) -> NDArray[np.uint8]:
    return np.clip(picture, 0, 255).astype(np.uint8)
