# SPDX-License-Identifier: Apache-2.0
"""Rooms that people know: a couch, a table with chairs, a shelf, a lamp, a plant, a tv, a door.

A piece of furniture is made of simple solids. In its own axes x goes right and y away from who
looks at its front, z is up; a `bottom` is the middle of the lower side.
"""

from __future__ import annotations

from dataclasses import replace
import math
from typing import TYPE_CHECKING

from embodied_r_ros.core.types.geometry import rotation_from_ypr
from embodied_r_ros.sim.indoor.room import Part, Room, RoomThing
import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from embodied_r_ros.core.types.layout import Vector
    from numpy.typing import NDArray

_OFF_THE_WALL_M = 0.01
_ASKEW_RAD = 0.2  # by which a chair may be turned
_FABRICS = ('blue fabric', 'green fabric', 'red fabric')
_NO_TURN: Vector = (0.0, 0.0, 0.0)


def _box(finish: str, size: Vector, bottom: Vector, turn: Vector = _NO_TURN) -> Part:
    x, y, z = bottom
    return Part('box', size, (x, y, z + size[2] / 2), finish, turn)


def _drum(finish: str, width: float, height: float, bottom: Vector = (0.0, 0.0, 0.0)) -> Part:
    x, y, z = bottom
    return Part('cylinder', (width, width, height), (x, y, z + height / 2), finish)


def _legs(finish: str, side: float, span: tuple[float, float], height: float) -> list[Part]:
    """Four legs under the corners of a rectangle."""
    x, y = (extent / 2 - side / 2 for extent in span)
    feet = [(sx * x, sy * y, 0.0) for sx in (-1, 1) for sy in (-1, 1)]
    return [_box(finish, (side, side, height), foot) for foot in feet]


def _couch(rng: np.random.Generator) -> list[Part]:
    width, fabric, arm = float(rng.uniform(1.8, 2.1)), str(rng.choice(_FABRICS)), 0.2
    seats = 2 if width < 1.95 else 3
    seat = (width - 2 * arm) / seats
    parts = _legs('dark wood', 0.06, (width - 0.1, 0.8), 0.1)
    parts.append(_box(fabric, (width - 2 * arm, 0.85, 0.2), (0, 0.02, 0.1)))
    parts.append(_box(fabric, (width - 0.06, 0.2, 0.64), (0, 0.35, 0.1)))
    parts += [_box(fabric, (arm, 0.9, 0.5), (s * (width - arm) / 2, 0, 0.1)) for s in (-1, 1)]
    for x in ((number - (seats - 1) / 2) * seat for number in range(seats)):
        parts.append(_box(fabric, (seat - 0.01, 0.68, 0.16), (x, -0.11, 0.29)))
        parts.append(_box(fabric, (seat - 0.02, 0.17, 0.42), (x, 0.19, 0.44), (0, 0, -0.17)))
    for side, finish in ((-1, 'mustard fabric'), (1, 'pale fabric')):
        at = (side * (width / 2 - arm - 0.21), 0.03, 0.44)
        parts.append(_box(finish, (0.4, 0.11, 0.36), at, (side * 0.3, 0, -0.3)))
    return parts


def _chair(rng: np.random.Generator) -> list[Part]:
    del rng  # the chairs of all rooms are alike
    parts = _legs('upright wood', 0.04, (0.42, 0.42), 0.43)
    parts += [_box('upright wood', (0.04, 0.03, 0.5), (s * 0.19, 0.195, 0.43)) for s in (-1, 1)]
    parts += [_box('wood', (0.36, 0.02, 0.09), (0, 0.195, z)) for z in (0.56, 0.7, 0.84)]
    parts.append(_box('wood', (0.44, 0.44, 0.035), (0, 0, 0.42)))
    return [*parts, _box('pale fabric', (0.38, 0.38, 0.03), (0, -0.01, 0.455))]


def _table(rng: np.random.Generator) -> list[Part]:
    width, depth = float(rng.uniform(1.2, 1.5)), float(rng.uniform(0.75, 0.85))
    parts = _legs('upright wood', 0.07, (width - 0.06, depth - 0.06), 0.7)
    parts.append(_box('wood', (width - 0.14, depth - 0.14, 0.08), (0, 0, 0.62)))
    parts.append(_box('wood', (width, depth, 0.04), (0, 0, 0.7)))
    parts += [_drum('white', w, 0.03, (0.1, 0.05, z)) for w, z in ((0.14, 0.74), (0.3, 0.77))]
    for x, y, finish in ((0.04, 0.05, 'orange'), (0.15, 0.11, 'lemon'), (0.14, 0, 'orange')):
        parts.append(Part('ball', (0.1, 0.1, 0.1), (x, y, 0.84), finish))
    return parts + [_drum('white', 0.24, 0.015, (s * 0.4, -s * 0.18, 0.74)) for s in (-1, 1)]


def _shelf(rng: np.random.Generator) -> list[Part]:
    width, height, depth = float(rng.uniform(0.8, 1.1)), float(rng.uniform(1.6, 1.9)), 0.3
    step = (height - 0.03) / 4
    parts = [_box('upright wood', (0.03, depth, height), (s * width / 2, 0, 0)) for s in (-1, 1)]
    parts.append(_box('dark wood', (width, 0.02, height), (0, depth / 2 - 0.01, 0)))
    parts += [_box('wood', (width, depth, 0.03), (0, 0, step * row)) for row in range(5)]
    for row in range(4):
        full, side, z = float(rng.uniform(0.5, 0.75)) * width, row % 2 * 2 - 1, step * row + 0.03
        books = (full, 0.2, step * float(rng.uniform(0.62, 0.8)))
        parts.append(_box(f'books {row % 3}', books, (side * (width - full - 0.05) / 2, 0.02, z)))
        beside = (-side * full / 2, 0.0, z)
        vase, basket = _drum('vase', 0.12, 0.22, beside), _box('basket', (0.2, 0.2, 0.16), beside)
        parts.append(vase if row % 2 else basket)
    return parts


def _lamp(rng: np.random.Generator) -> list[Part]:
    height = float(rng.uniform(1.45, 1.65))
    parts = [_drum('metal', 0.3, 0.03), _drum('metal', 0.035, height - 0.1)]
    rings = [(0.46 - 0.05 * ring, height - 0.32 + 0.08 * ring) for ring in range(4)]
    return parts + [_drum('shade', width, 0.08, (0, 0, z)) for width, z in rings]


def _plant(rng: np.random.Generator) -> list[Part]:
    parts = [_drum('pot', 0.24 + 0.04 * ring, 0.1, (0, 0, 0.1 * ring)) for ring in range(3)]
    parts += [_drum('pot', 0.37, 0.05, (0, 0, 0.29)), _drum('soil', 0.32, 0.02, (0, 0, 0.325))]
    parts.append(_drum('bark', 0.04, 0.6, (0, 0, 0.34)))
    for leaf, share in enumerate(np.linspace(0, 1, 20)):
        yaw, rise = leaf * 2.4, 0.1 + 1.0 * share + float(rng.uniform(-0.1, 0.1))
        length = 0.5 - 0.12 * share
        x, y = (length / 2 * math.cos(rise) * part for part in (math.cos(yaw), math.sin(yaw)))
        at = (x, y, 0.6 + 0.36 * share + length / 2 * math.sin(rise))
        parts.append(Part('ball', (length, 0.17, 0.02), at, f'leaf {leaf % 2}', (yaw, -rise, 0)))
    return parts


def _cabinet(rng: np.random.Generator) -> list[Part]:
    width = float(rng.uniform(1.4, 1.6))
    parts = [_box('dark wood', (width - 0.1, 0.36, 0.06), (0, 0.01, 0))]
    parts.append(_box('cabinet', (width, 0.42, 0.38), (0, 0, 0.06)))
    return [*parts, _box('wood', (width + 0.04, 0.44, 0.03), (0, 0, 0.44))]


def _tv(rng: np.random.Generator) -> list[Part]:
    width = float(rng.uniform(1.0, 1.2))
    parts = [
        _box('metal', (0.4, 0.2, 0.015), (0, 0, 0)),
        _box('metal', (0.1, 0.03, 0.1), (0, 0, 0)),
    ]
    return [*parts, _box('screen', (width, 0.05, width * 0.58), (0, 0, 0.07))]


def _door(rng: np.random.Generator) -> list[Part]:
    del rng
    parts = [_box('white', (0.09, 0.07, 2.05), (s * 0.48, 0, 0)) for s in (-1, 1)]
    parts += [_box('white', (1.05, 0.07, 0.09), (0, 0, 2.05))]
    parts.append(_box('door', (0.88, 0.04, 2.05), (0, 0.01, 0)))
    return [*parts, _box('metal', (0.13, 0.03, 0.025), (0.33, -0.05, 1.02))]


_MAKERS: dict[str, Callable[[np.random.Generator], list[Part]]] = {
    'couch': _couch, 'chair': _chair, 'table': _table, 'shelf': _shelf, 'lamp': _lamp,
    'plant': _plant, 'cabinet': _cabinet, 'tv': _tv, 'door': _door,
}  # fmt: skip
NAMES = tuple(_MAKERS)


def corners_of(part: Part) -> NDArray[np.float64]:
    """Corners of the box around a part, in the axes of its piece [m]. Shape (8, 3)."""
    signs = np.array([[x, y, z] for x in (-1, 1) for y in (-1, 1) for z in (-1, 1)])
    return np.asarray(
        signs * np.divide(part.size, 2) @ rotation_from_ypr(*part.turn).T + part.centre
    )


def _piece(name: str, parts: Sequence[Part], yaw_rad: float, bottom: Vector) -> RoomThing:
    """A piece whose outline stands with the middle of its lower side at a place."""
    corners = np.concatenate([corners_of(part) for part in parts])
    low, high = corners.min(axis=0), corners.max(axis=0)
    middle, (width, depth, height) = (low + high) / 2, high - low
    moved = tuple(
        Part(p.solid, p.size, tuple(np.subtract(p.centre, middle).tolist()), p.finish, p.turn)
        for p in parts
    )
    x, y, z = bottom
    size = (float(width), float(depth), float(height))
    return RoomThing(
        '',
        '',
        'box',
        size,
        yaw_rad,
        (0.5, 0.5, 0.5),
        'floor',
        (x, y, z + size[2] / 2),
        name,
        moved,
    )


def living_room(rng: np.random.Generator) -> Room:
    """Draw a room with furniture that has names: a couch before a tv, a table between them.

    Args:
        rng: Where chance comes from.
    """
    size = (
        float(rng.uniform(5.2, 6.2)),
        float(rng.uniform(4.8, 5.6)),
        float(rng.uniform(2.4, 2.6)),
    )
    side, turns = int(rng.choice((-1, 1))), int(rng.integers(4))
    shift = [float(value) for value in rng.uniform(-0.5, 0.5, 3)]

    def at_wall(name: str, wall: int, along: float) -> RoomThing:
        """A piece with its back to the wall at +x, +y, -x or -y."""
        yaw = (wall - 1) * math.pi / 2
        piece = _piece(name, _MAKERS[name](rng), yaw, (0.0, 0.0, 0.0))
        back = size[wall % 2] / 2 - piece.size[1] / 2 - _OFF_THE_WALL_M
        c, s = round(math.cos(yaw)), round(math.sin(yaw))
        return replace(
            piece, position=(c * along - s * back, s * along + c * back, piece.position[2])
        )

    couch, cabinet = at_wall('couch', 1, shift[0]), at_wall('cabinet', 3, shift[1])
    lamp = at_wall('lamp', 1, couch.position[0] + side * (couch.size[0] / 2 + 0.35))
    plant = at_wall('plant', 3, side * (size[0] / 2 - 0.58))
    beside = 2 - 2 * (side < 0)  # the wall without the lamp
    shelf = at_wall('shelf', beside, side * float(rng.uniform(-0.1, size[1] / 2 - 0.9)))
    door = at_wall('door', 2 - beside, side * float(rng.uniform(-0.3, size[1] / 2 - 0.8)))
    tv = _piece('tv', _tv(rng), cabinet.yaw_rad, (*cabinet.position[:2], cabinet.size[2]))
    table = _piece('table', _table(rng), 0.0, (shift[2], float(rng.uniform(-0.4, 0.1)), 0.0))
    things = [couch, cabinet, lamp, plant, shelf, door, tv, table, *_chairs(rng, table)]
    return _turned(Room(size, (), tuple(things)), turns)


def _chairs(rng: np.random.Generator, table: RoomThing) -> list[RoomThing]:
    """Two to four chairs at a table, half under it and a little askew."""
    places = ((-1, -0.3), (1, 0.3), (-1, 0.3), (1, -0.3))[: int(rng.integers(2, 5))]
    chairs = []
    for front, along in places:
        out = front * (table.size[1] / 2 + float(rng.uniform(0.05, 0.2)))
        yaw = (0 if front > 0 else math.pi) + float(rng.uniform(-1, 1)) * _ASKEW_RAD
        x, y, _ = table.position
        chairs.append(_piece('chair', _chair(rng), yaw, (x + along, y + out, 0.0)))
    return chairs


def _turned(room: Room, turns: int) -> Room:
    """A room that is turned by quarters."""
    things, (width, depth, height) = room.things, room.size
    for _ in range(turns):
        width, depth = depth, width
        things = tuple(
            replace(
                t, yaw_rad=t.yaw_rad + math.pi / 2, position=(-t.position[1], *t.position[::2])
            )
            for t in things
        )
    return replace(room, size=(width, depth, height), things=things)
