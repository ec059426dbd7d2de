# SPDX-License-Identifier: Apache-2.0
"""Procedural rooms: walls, grey furniture, and coloured things on the floor and on furniture.

A room is data; `world` makes a MuJoCo model of it. The origin lies on the floor in the middle of
the room, x and y run along the walls, z is up. All furniture is aligned with the walls.
"""

from __future__ import annotations

import colorsys
from dataclasses import dataclass, replace
import math
from typing import TYPE_CHECKING

from embodied_r_ros.common.errors import EmbodiedRError
from embodied_r_ros.core.types.geometry import rotation_from_ypr
from embodied_r_ros.core.types.vocabulary import COLOURS, HUES, item_label, SHAPES
import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from embodied_r_ros.core.types.layout import Vector
    from embodied_r_ros.core.types.vocabulary import Colour
    from numpy.typing import NDArray

_ATTEMPTS = 40  # per piece, before the room is given up
_GAP_M = 0.12  # between any two things that stand beside each other
_TWIN_SHARE = 0.1  # of rooms that may hold two things with the same label
_REPEAT_SHARE = 0.5  # of rooms in which a colour is used again

# Extents of things [m]: (least, most) of the width, and of the height as a share of the width.
_EXTENTS_M = {
    'round': ((0.26, 0.5), (1.0, 1.0)),
    'tall': ((0.18, 0.32), (2.4, 3.2)),
    'flat': ((0.4, 0.65), (0.13, 0.18)),
    'blocky': ((0.26, 0.5), (0.97, 1.03)),
}
_CARRIED_M = 0.8  # between two visits, at least
_ON_FURNITURE = 0.65  # what stands on furniture is smaller than on the floor by this factor


class UnfitError(EmbodiedRError):
    """A draw led nowhere; the next one may."""


@dataclass(frozen=True)
class Box:
    """An axis-aligned box."""

    centre: Vector  # [m]
    size: Vector  # extents [m]

    def distance(self, points: NDArray[np.float64]) -> NDArray[np.float64]:
        """Distance of points (N, 3) from the box [m], 0 inside. Shape (N,)."""
        outside = np.abs(points - self.centre) - np.divide(self.size, 2)
        return np.asarray(np.linalg.norm(np.maximum(outside, 0.0), axis=-1))

    def gap(self, other: Box) -> float:
        """Distance between two boxes along the axis that separates them most [m]; < 0: none."""
        apart = np.abs(np.subtract(self.centre, other.centre))
        return float(np.max(apart - np.add(self.size, other.size) / 2))


@dataclass(frozen=True)
class Furniture:
    """A piece of furniture; its `box` is where neither things nor the camera may be."""

    kind: str  # 'table', 'cabinet' or 'shelf'
    box: Box

    def parts(self) -> list[Box]:
        """The solid parts: a table is a top on four legs, all else is one block."""
        (x, y, z), (sx, sy, sz) = self.box.centre, self.box.size
        if self.kind != 'table':
            return [self.box]
        top, leg = 0.04, 0.06
        parts = [Box((x, y, z + (sz - top) / 2), (sx, sy, top))]
        for side_x in (-1, 1):
            for side_y in (-1, 1):
                foot = (x + side_x * (sx - leg) / 2, y + side_y * (sy - leg) / 2, z - top / 2)
                parts.append(Box(foot, (leg, leg, sz - top)))
        return parts


@dataclass(frozen=True)
class Part:
    """A solid of a piece of furniture, in the axes of the piece about its centre."""

    solid: str  # 'ball' (with three extents), 'cylinder' or 'box'
    size: Vector  # extents along its own axes [m]
    centre: Vector  # [m]
    finish: str  # what it is made of
    turn: Vector = (0.0, 0.0, 0.0)  # yaw, pitch and roll [rad]


@dataclass(frozen=True)
class RoomThing:
    """A thing as the room is furnished with it: a coloured solid, or a piece with a name."""

    colour: str  # a name of vocabulary.COLOURS; empty: of a piece
    shape: str  # one of vocabulary.SHAPES; empty: of a piece
    solid: str  # 'sphere', 'cylinder' or 'box'
    size: Vector  # extents along its own axes [m]
    yaw_rad: float
    rgb: Vector  # 0..1
    support: str  # 'floor', or the kind of furniture it stands on
    position: Vector  # centre [m]
    name: str = ''  # such as 'couch'; empty: it is a coloured solid
    parts: tuple[Part, ...] = ()  # of a piece; empty: it is one solid

    @property
    def label(self) -> str:
        """What a perceiver can know of it."""
        return self.name or item_label(self.colour, self.shape)

    @property
    def radius(self) -> float:
        """Radius of the upright cylinder that holds it [m]."""
        if self.solid == 'box':
            return math.hypot(self.size[0], self.size[1]) / 2
        return self.size[0] / 2

    def distance(
        self, points: NDArray[np.float64], at: NDArray[np.float64]
    ) -> NDArray[np.float64]:
        """Distance of points (N, 3) from its cylinder when it is at `at` (N, 3) [m]. (N,).

        Of a piece it is the distance from the box around it.
        """
        offset = points - at
        if self.parts:
            own = offset @ rotation_from_ypr(self.yaw_rad, 0.0, 0.0)
            return Box((0.0, 0.0, 0.0), self.size).distance(own)
        sideways = np.hypot(offset[..., 0], offset[..., 1]) - self.radius
        upright = np.abs(offset[..., 2]) - self.size[2] / 2
        return np.asarray(np.hypot(np.maximum(sideways, 0.0), np.maximum(upright, 0.0)))


@dataclass(frozen=True)
class SupportSurface:
    """A level rectangle that things stand on."""

    support: str
    low: tuple[float, float]  # least x and y [m]
    high: tuple[float, float]  # largest x and y [m]
    z: float  # height [m]

    def holds(self, x: float, y: float, radius: float) -> bool:
        """Tell whether a thing of this radius at x, y stands on it wholly."""
        return all(
            low + radius <= value <= high - radius
            for value, low, high in zip((x, y), self.low, self.high, strict=True)
        )


@dataclass(frozen=True)
class Room:
    """A furnished room."""

    size: Vector  # extents [m]
    furniture: tuple[Furniture, ...]
    things: tuple[RoomThing, ...]
    signs: tuple[str, ...] = ()  # what stands on the walls, in turn

    @property
    def is_furnished(self) -> bool:
        """Whether its things are furniture with names, and it looks like a room to live in."""
        return any(thing.parts for thing in self.things)

    def surfaces(self) -> list[SupportSurface]:
        """What things can stand on, the floor first."""
        x, y, _ = self.size
        margin = 0.1
        corner = (x / 2 - margin, y / 2 - margin)
        surfaces = [SupportSurface('floor', (-corner[0], -corner[1]), corner, 0.0)]
        for piece in self.furniture:
            (cx, cy, cz), (sx, sy, sz) = piece.box.centre, piece.box.size
            low, high = (cx - sx / 2, cy - sy / 2), (cx + sx / 2, cy + sy / 2)
            surfaces.append(SupportSurface(piece.kind, low, high, cz + sz / 2))
        return surfaces

    def clearance(self, points: NDArray[np.float64]) -> NDArray[np.float64]:
        """Distance of points (N, 3) from walls and furniture [m], negative outside. (N,)."""
        walls = np.min(np.divide(self.size[:2], 2) - np.abs(points[..., :2]), axis=-1)
        solid = [piece.box.distance(points) for piece in self.furniture]
        return np.asarray(np.min([walls, *solid], axis=0))

    def fits(self, thing: RoomThing, others: Sequence[RoomThing]) -> bool:
        """Tell whether a thing collides with neither furniture nor other things."""
        block = Box(thing.position, (2 * thing.radius, 2 * thing.radius, thing.size[2]))
        # What a thing stands on touches it from below; that is no collision.
        if any(piece.box.gap(block) < -1e-9 for piece in self.furniture):
            return False
        return all(not near(thing, other, thing.position, other.position) for other in others)


def near(one: RoomThing, other: RoomThing, at: Vector, other_at: Vector) -> bool:
    """Tell whether two things at these places overlap or nearly touch."""
    sideways = math.dist(at[:2], other_at[:2]) - one.radius - other.radius
    upright = abs(at[2] - other_at[2]) - (one.size[2] + other.size[2]) / 2
    return sideways < _GAP_M and upright < _GAP_M


def furnished_room(rng: np.random.Generator) -> Room:
    """Draw a room with furniture and five to eight things.

    Raises:
        UnfitError: Something found no place.
    """
    size = (float(rng.uniform(4, 8)), float(rng.uniform(4, 8)), float(rng.uniform(2.4, 2.9)))
    room = Room(size, (), ())
    pieces = ['shelf', str(rng.choice(['table', 'cabinet']))]
    pieces += [str(kind) for kind in rng.choice(['table', 'cabinet', 'shelf'], rng.integers(0, 3))]
    for kind in pieces:
        room = Room(size, (*room.furniture, _furniture(rng, room, kind)), ())
    things: list[RoomThing] = []
    for colour, shape in _appearances(rng, int(rng.integers(5, 9))):
        things.append(_thing(rng, room, things, colour, shape))
    return Room(size, room.furniture, tuple(things))


def possible_labels() -> tuple[str, ...]:
    """Labels that the things of such rooms may have."""
    return tuple(item_label(colour.name, shape) for colour in COLOURS for shape in SHAPES)


def _furniture(rng: np.random.Generator, room: Room, kind: str) -> Furniture:
    """Place a piece with its back to a wall."""
    for _ in range(_ATTEMPTS):
        long, deep, low, high = {
            'table': (rng.uniform(0.9, 1.6), rng.uniform(0.5, 0.8), 0.0, rng.uniform(0.6, 0.78)),
            'cabinet': (rng.uniform(0.6, 1.2), rng.uniform(0.4, 0.5), 0.0, rng.uniform(0.4, 1.0)),
            'shelf': (rng.uniform(0.8, 1.5), 0.32, (top := rng.uniform(1.0, 1.5)) - 0.04, top),
        }[kind]
        wall = int(rng.integers(4))  # +x, +y, -x, -y
        along, across = (1, 0) if wall % 2 == 0 else (0, 1)
        centre, size = [0.0, 0.0, (low + high) / 2], [deep, deep, high - low]
        size[along] = long
        centre[across] = (1 if wall < 2 else -1) * (room.size[across] - deep) / 2
        centre[along] = rng.uniform(-1, 1) * (room.size[along] - long) / 2
        box = Box((centre[0], centre[1], centre[2]), (size[0], size[1], size[2]))
        # What hangs above or below another piece would hide it: keep apart on the floor plan.
        if all(_plan(box).gap(_plan(piece.box)) > _GAP_M for piece in room.furniture):
            return Furniture(kind, box)
    msg = f'no wall has room for a {kind}'
    raise UnfitError(msg)


def _plan(box: Box) -> Box:
    return Box((*box.centre[:2], 0.0), (*box.size[:2], 0.0))


def _appearances(rng: np.random.Generator, count: int) -> list[tuple[str, str]]:
    """Draw colour and shape of each thing."""
    names = [COLOURS[index].name for index in rng.permutation(len(COLOURS))]
    colours = [names[index % len(names)] for index in range(count)]
    if count > 2 and rng.random() < _REPEAT_SHARE:
        for index in rng.choice(np.arange(1, count), int(rng.integers(1, 3)), replace=False):
            colours[index] = colours[0]
    twins = rng.random() < _TWIN_SHARE
    appearances: list[tuple[str, str]] = []
    for colour in colours:
        free = [shape for shape in SHAPES if twins or (colour, shape) not in appearances]
        appearances.append((colour, str(rng.choice(free))))
    return appearances


def _thing(
    rng: np.random.Generator, room: Room, others: Sequence[RoomThing], colour: str, shape: str
) -> RoomThing:
    surfaces = room.surfaces()
    is_elevated = rng.random() < 0.5
    rgb = _rgb(rng, next(c for c in COLOURS if c.name == colour))
    widths, heights = _EXTENTS_M[shape]
    for attempt in range(_ATTEMPTS):
        # Furniture that is full gives way to the floor.
        on_floor = not is_elevated or attempt >= _ATTEMPTS // 2
        surface = surfaces[0 if on_floor else int(rng.integers(1, len(surfaces)))]
        width = float(rng.uniform(*widths)) * (1.0 if on_floor else _ON_FURNITURE)
        height = width * float(rng.uniform(*heights))
        solid = _solid(rng, shape)
        yaw = float(rng.uniform(0, math.pi))
        x, y = (float(value) for value in rng.uniform(surface.low, surface.high))
        position = (x, y, surface.z + height / 2)
        size = (width, width, height)
        thing = RoomThing(colour, shape, solid, size, yaw, rgb, surface.support, position)
        if surface.holds(x, y, thing.radius) and room.fits(thing, others):
            return thing
    msg = f'nowhere is room for a {item_label(colour, shape)}'
    raise UnfitError(msg)


def changed_things(
    rng: np.random.Generator,
    room: Room,
    things: Sequence[RoomThing | None],
    count: int,
) -> list[RoomThing | None]:
    """Move things of a room, take some away and bring others, each at most once.

    Args:
        rng: Where chance comes from.
        room: The room; only its walls and furniture count.
        things: Those that are there; None: one that is not there any more.
        count: How many things change.

    Returns:
        The things at their numbers, with new ones behind them.

    Raises:
        UnfitError: Something found no place.
    """
    changed, idle = list(things), [int(n) for n in rng.permutation(len(things)) if things[n]]
    for kind in rng.choice(['move', 'bring', 'take'], count, p=[0.5, 0.25, 0.25]):
        if kind == 'bring' or not idle:
            colour, shape = _appearances(rng, 1)[0]
            there = [thing for thing in changed if thing]
            changed.append(_thing(rng, room, there, colour, shape))
            continue
        number = idle.pop()
        thing, changed[number] = changed[number], None
        if thing and kind == 'move':
            changed[number] = _elsewhere(rng, room, [t for t in changed if t], thing)
    return changed


def _elsewhere(
    rng: np.random.Generator, room: Room, others: Sequence[RoomThing], thing: RoomThing
) -> RoomThing:
    surfaces = room.surfaces()
    for _ in range(_ATTEMPTS):
        surface = surfaces[int(rng.integers(len(surfaces)))]
        x, y = (float(value) for value in rng.uniform(surface.low, surface.high))
        position = (x, y, surface.z + thing.size[2] / 2)
        moved = replace(thing, position=position, support=surface.support)
        is_far = math.dist(position, thing.position) >= _CARRIED_M
        if is_far and surface.holds(x, y, thing.radius) and room.fits(moved, others):
            return moved
    msg = f'nowhere else is room for a {thing.label}'
    raise UnfitError(msg)


def _solid(rng: np.random.Generator, shape: str) -> str:
    if shape == 'round':
        return 'sphere'
    return 'box' if shape == 'blocky' or rng.random() < 0.5 else 'cylinder'


def _rgb(rng: np.random.Generator, colour: Colour) -> Vector:
    """Draw a strong colour well within its range of hues."""
    spread = ((colour.last - colour.first) % HUES) / 5
    hue = (colour.hue + rng.uniform(-spread, spread)) % HUES
    return colorsys.hsv_to_rgb(hue / HUES, rng.uniform(0.8, 0.95), rng.uniform(0.8, 0.95))
