# SPDX-License-Identifier: Apache-2.0
"""Rooms that people know: a couch, a table with chairs, a shelf, a lamp, a plant, a tv, a door.

A piece of furniture is made of simple solids. In its own axes x goes right and y away from who
looks at its front, z is up; a `bottom` is the middle of the lower side.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from embodied_r_ros.core.types.geometry import rotation_from_ypr
from embodied_r_ros.sim.indoor.room import Box, Part, Room, RoomThing, UnfitError
import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from embodied_r_ros.core.types.layout import Vector
    from numpy.typing import NDArray

_ATTEMPTS = 80  # per piece, before the room is given up
_GAP_M = 0.15  # between pieces
_BEFORE_DOOR_M = 0.8  # kept free
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
    parts = [_box('metal', (0.4, 0.2, 0.015), (0, 0, 0)), _box('metal', (0.1, 0.03, 0.1), (0, 0, 0))]
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
    return np.asarray(signs * np.divide(part.size, 2) @ rotation_from_ypr(*part.turn).T + part.centre)


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
        '', '', 'box', size, yaw_rad, (0.5, 0.5, 0.5), 'floor', (x, y, z + size[2] / 2), name, moved
    )


class _Furnisher:
    """Places pieces in a room, one after the other."""

    def __init__(self, rng: np.random.Generator) -> None:
        self._rng = rng
        x, y, z = (float(rng.uniform(*ends)) for ends in ((4.6, 6.0), (4.2, 5.4), (2.45, 2.65)))
        self.size = (x, y, z)
        self.things: list[RoomThing] = []
        self._taken: list[Box] = []

    def parts(self, name: str) -> list[Part]:
        return _MAKERS[name](self._rng)

    def try_piece(self, piece: RoomThing, before_m: float = 0.0, gap_m: float = _GAP_M) -> bool:
        """Keep a piece where nothing stands, nor in so much before it [m]."""
        plan = _plan(piece, before_m)
        (x, y, _), (wide, deep, _) = plan.centre, plan.size
        is_in = abs(x) + wide / 2 < self.size[0] / 2 + 1e-6 and abs(y) + deep / 2 < self.size[1] / 2 + 1e-6
        if not is_in or any(plan.gap(other) < gap_m for other in self._taken):
            return False
        self.things.append(piece)
        self._taken.append(plan)
        return True

    def at_wall(
        self, name: str, walls: Sequence[int], along: tuple[float, float], off_m: float = 0.02, before_m: float = 0.4
    ) -> RoomThing:
        """Place a piece with its back to one of some walls (+x, +y, -x, -y).

        Args:
            name: What it is.
            walls: Which may be chosen.
            along: From where to where its middle may be, as shares of half of what is free there.
            off_m: From the wall to its back [m].
            before_m: What stays free before it [m].

        Raises:
            UnfitError: There is no place.
        """
        parts = self.parts(name)
        for _ in range(_ATTEMPTS):
            wall = int(self._rng.choice(walls))
            yaw = (wall - 1) * math.pi / 2
            still = _piece(name, parts, 0.0, (0.0, 0.0, 0.0))
            reach = self.size[wall % 2] / 2 - still.size[1] / 2 - off_m
            side = float(self._rng.uniform(*along)) * (self.size[1 - wall % 2] - still.size[0]) / 2
            back = np.array([math.cos(yaw + math.pi / 2), math.sin(yaw + math.pi / 2)])
            x, y = back * reach + np.array([-back[1], back[0]]) * side
            piece = _piece(name, parts, yaw, (float(x), float(y), 0.0))
            if self.try_piece(piece, before_m):
                return piece
        msg = f'no wall has room for a {name}'
        raise UnfitError(msg)

    def set_table(self) -> None:
        """Place a table with chairs round it.

        Raises:
            UnfitError: There is no place.
        """
        parts, chair = self.parts('table'), self.parts('chair')
        for _ in range(_ATTEMPTS):
            x, y = (float(self._rng.uniform(-0.5, 0.5)) * side for side in self.size[:2])
            yaw = float(self._rng.integers(2)) * math.pi / 2
            table = _piece('table', parts, yaw, (x, y, 0.0))
            kept, taken = list(self.things), list(self._taken)
            if self.try_piece(table, gap_m=0.5):
                if self._set_chairs(table, chair):
                    return
                self.things, self._taken = kept, taken
        msg = 'there is no room for a table'
        raise UnfitError(msg)

    def _set_chairs(self, table: RoomThing, chair: list[Part]) -> bool:
        self._taken.pop()  # chairs stand half under it
        c, s = math.cos(table.yaw_rad), math.sin(table.yaw_rad)
        for front, side in ((-1, -0.3), (1, 0.3), (-1, 0.3), (1, -0.3))[: int(self._rng.integers(2, 5))]:
            out = front * (table.size[1] / 2 + float(self._rng.uniform(0.05, 0.2)))
            x, y = table.position[0] + c * side - s * out, table.position[1] + s * side + c * out
            yaw = table.yaw_rad + (0 if front > 0 else math.pi) + float(self._rng.uniform(-1, 1)) * _ASKEW_RAD
            if not self.try_piece(_piece('chair', chair, yaw, (x, y, 0.0)), gap_m=0.02):
                return False
        self._taken.append(_plan(table))
        return True


def _plan(piece: RoomThing, before_m: float = 0.0) -> Box:
    """What a piece, and so much before it [m], take of the floor; no piece is askew by much."""
    turns = round(piece.yaw_rad / (math.pi / 2)) % 4
    width, depth = piece.size[0], piece.size[1] + before_m
    ahead = (0, -1), (1, 0), (0, 1), (-1, 0)
    dx, dy = (part * before_m / 2 for part in ahead[turns])
    size = (depth, width, 0.0) if turns % 2 else (width, depth, 0.0)
    return Box((piece.position[0] + dx, piece.position[1] + dy, 0.0), size)


def living_room(rng: np.random.Generator) -> Room:
    """Draw a room with furniture that has names.

    Args:
        rng: Where chance comes from.

    Raises:
        UnfitError: Something found no place.
    """
    room = _Furnisher(rng)
    wall = int(rng.integers(4))
    opposite, sides = (wall + 2) % 4, ((wall + 1) % 4, (wall + 3) % 4)
    couch = room.at_wall('couch', [wall], (-0.5, 0.5), 0.06)
    room.at_wall('door', sides, (-0.8, 0.8), 0.0, _BEFORE_DOOR_M)
    cabinet = room.at_wall('cabinet', [opposite], (-0.4, 0.4))
    x, y, _ = cabinet.position
    tv = _piece('tv', room.parts('tv'), cabinet.yaw_rad, (x, y, cabinet.size[2]))
    room.at_wall('shelf', [*sides, opposite], (-0.8, 0.8))
    room.at_wall('lamp', [couch_side for couch_side in [wall]], (-0.95, 0.95), 0.12, 0.0)
    room.at_wall('plant', [*sides, opposite], (-0.95, 0.95), 0.05, 0.0)
    room.set_table()
    return Room(room.size, (), (*room.things, tv))
