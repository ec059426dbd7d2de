# SPDX-License-Identifier: Apache-2.0
"""Random rooms, without rendering.

A room is furnished with named things of typical sizes that do not overlap, a camera walks through
it between them, and the map holds what it had within its view, as a perfect perceiver knows it.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, replace
import math
from random import Random
from typing import TYPE_CHECKING

from embodied_r_ros.core.types.geometry import NS_PER_S, wrap_angle_rad
from embodied_r_ros.core.types.landmarks import Landmark, LandmarkStatus, PathPoint, SceneMap
from embodied_r_ros.core.types.things import BENCHMARK_NAMES, named_things
from embodied_r_ros.data.questions.map_kinds import MapMoment
from embodied_r_ros.data.questions.map_rows import (
    as_in_rows,
    names_for,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from embodied_r_ros.core.types.geometry import Position
    from embodied_r_ros.core.types.things import NamedThing

_CELL_M = 0.25  # of the grid on which ways are found
_ROBOT_M = 0.2  # half its width
_CAMERA_M = (0.6, 1.6)  # its height
_SPEED_M_S = 0.5
_TURN_RAD_S = 0.8
_STEP_NS = NS_PER_S // 2  # between two points of a path
_HALF_VIEW_RAD = math.radians(38)
_VIEW_M = 6.0
_MIN_WIDE_RAD = 0.02  # what looks smaller is not noticed
_PLACES = 60  # tried for a thing
_WEIGHTS = {'floor': 9, 'top': 6, 'wall': 4, 'ceiling': 1}
_COMMON = 0.5  # share of the draws that are among names of the benchmark
_REPEATED = 0.3  # share of kinds of things of which there are several
_UNSIZED, _GONE = 0.06, 0.02  # shares of landmarks
_NO_AREA = 0.15  # share of maps


@dataclass(frozen=True)
class _Body:
    """A thing in a room."""

    name: str
    position: Position  # its middle [m]
    size: Position  # extents along x, y, z [m]

    def covers(self, x: float, y: float, margin: float) -> bool:
        """Tell whether it stands over a point of the floor, or nearer to it than a margin."""
        is_along = abs(x - self.position[0]) < self.size[0] / 2 + margin
        return is_along and abs(y - self.position[1]) < self.size[1] / 2 + margin

    def overlaps(self, other: _Body) -> bool:
        """Tell whether two boxes have a part in common."""
        return all(
            abs(a - b) < (sa + sb) / 2 - 1e-9
            for a, b, sa, sb in zip(
                self.position, other.position, self.size, other.size, strict=True
            )
        )


def random_map_moment(seed: int | str, names: Sequence[str] = ()) -> MapMoment:
    """A random room as a camera knows it after a walk through it, and what it did not see.

    Args:
        seed: Of everything.
        names: Of the things that may be in it; empty: those for training.
    """
    rng = Random(f'room:{seed}')
    names = tuple(names) or names_for('train')
    for _ in range(20):
        room = rng.uniform(3.2, 9.0), rng.uniform(3.2, 9.0), rng.uniform(2.4, 3.0)
        things = _furnished(room, names, rng)
        path = _walk(room, things, rng)
        if len(path) >= 8:
            break
    landmarks, missing = _landmarks(things, path, rng)
    area = None if rng.random() < _NO_AREA else room[0] * room[1]
    scene = as_in_rows(_from_start(SceneMap(landmarks, path, room_area_m2=area)))
    return MapMoment(scene, 'layout', doubtful=frozenset(missing), names=names)


def _furnished(room: Position, names: Sequence[str], rng: Random) -> list[_Body]:
    """Things in a room: large ones first, since small ones stand on them."""
    by_support: dict[str, list[NamedThing]] = {support: [] for support in _WEIGHTS}
    for name in names:
        by_support[named_things()[name].support].append(named_things()[name])
    things: list[_Body] = []
    density = min(1.0, room[0] * room[1] / 40)
    for support, weight in _WEIGHTS.items():
        count = round(weight * density * rng.uniform(0.6, 1.6))
        for kind in _kinds(by_support[support], count, rng):
            several = rng.randint(2, 5) if rng.random() < _REPEATED else 1
            for _ in range(several):
                thing = _place(kind, room, things, rng)
                things += [thing] if thing else []
    return things


def _kinds(every: Sequence[NamedThing], count: int, rng: Random) -> list[NamedThing]:
    """Different kinds of things; half of the draws are among those that VSI-Bench asks for."""
    common = [kind for kind in every if kind.name in BENCHMARK_NAMES]
    kinds: dict[str, NamedThing] = {}
    for _ in range(count if every else 0):
        kind = rng.choice(common if common and rng.random() < _COMMON else every)
        kinds[kind.name] = kind
    return list(kinds.values())


def _place(kind: NamedThing, room: Position, things: Sequence[_Body], rng: Random) -> _Body | None:
    """A thing where there is room for it; None: there is none."""
    scale = rng.uniform(0.85, 1.2)
    length, width, height = (scale * extent for extent in kind.size)
    for _ in range(_PLACES):
        is_across = rng.random() < 0.5
        size = (width, length, height) if is_across else (length, width, height)
        position = _spot(kind.support, size, room, things, rng)
        if position is None:
            continue
        thing = _Body(kind.name, position, size)
        inside = all(
            abs(position[axis]) + size[axis] / 2 <= room[axis] / 2 + 1e-9 for axis in (0, 1)
        )
        is_high = position[2] + size[2] / 2 > room[2] or position[2] < size[2] / 2 - 1e-9
        if inside and not is_high and not any(thing.overlaps(other) for other in things):
            return thing
    return None


def _spot(
    support: str, size: Position, room: Position, things: Sequence[_Body], rng: Random
) -> Position | None:
    """A place for a box of a size: its middle [m]; None: it cannot be there."""
    reach = [(room[axis] - size[axis]) / 2 for axis in (0, 1)]
    if min(reach) <= 0:
        return None
    x, y = (rng.uniform(-limit, limit) for limit in reach)
    if support == 'ceiling':
        return x, y, room[2] - size[2] / 2
    if support == 'wall' or (support == 'floor' and rng.random() < 0.6):
        # Flat against one of the walls: along it with its longer side.
        axis = int(size[0] >= size[1])
        side = rng.choice((-1, 1))
        x, y = (x, side * reach[1]) if axis else (side * reach[0], y)
    if support == 'wall':
        low = 0.0 if size[2] > 1.6 else rng.uniform(0.6, 1.5)
        return x, y, low + size[2] / 2
    carriers = [
        thing for thing in things
        if 0.3 <= thing.size[2] <= 1.3 and thing.position[2] <= thing.size[2] / 2 + 1e-6
        and thing.size[0] >= size[0] and thing.size[1] >= size[1]
    ]  # fmt: skip
    if support == 'floor' or not carriers:
        return x, y, size[2] / 2
    carrier = rng.choice(carriers)
    x, y = (
        carrier.position[axis] + rng.uniform(-1, 1) * (carrier.size[axis] - size[axis]) / 2
        for axis in (0, 1)
    )
    return x, y, carrier.size[2] + size[2] / 2


def _walk(room: Position, things: Sequence[_Body], rng: Random) -> tuple[PathPoint, ...]:
    """A walk between some places where the robot can stand, and a look around at each of them."""
    free = _free_cells(room, things)
    if len(free) < 12:
        return ()
    height = rng.uniform(*_CAMERA_M)
    cells = sorted(free)
    at = rng.choice(cells)
    yaw, stamp_ns = rng.uniform(-math.pi, math.pi), NS_PER_S
    path = [PathPoint(stamp_ns, _middle(at, height), yaw)]
    for _ in range(rng.randint(2, 6)):
        way = _way(free, at, rng.choice(cells))
        stops = [_middle(cell, height) for cell in way[:: rng.choice((1, 2, 2, 3))]]
        for stop in [*stops[1:], _middle(way[-1], height)]:
            path += _move(path[-1], stop)
        at = way[-1]
        look = rng.choice((0.0, 0.6, -0.6, 1.2, -1.2, math.pi))
        path += _turn(path[-1], path[-1].yaw_rad + look)
    return tuple(path)


def _free_cells(room: Position, things: Sequence[_Body]) -> set[tuple[int, int]]:
    """Cells of the floor that the robot can stand in."""
    blocks = [thing for thing in things if thing.position[2] - thing.size[2] / 2 < 1.2]
    blocks = [thing for thing in blocks if thing.size[2] > 0.03]
    limits = [math.floor((room[axis] / 2 - _ROBOT_M) / _CELL_M) for axis in (0, 1)]
    return {
        (i, j)
        for i in range(-limits[0], limits[0] + 1)
        for j in range(-limits[1], limits[1] + 1)
        if not any(thing.covers(i * _CELL_M, j * _CELL_M, _ROBOT_M) for thing in blocks)
    }


def _middle(cell: tuple[int, int], height: float) -> Position:
    return cell[0] * _CELL_M, cell[1] * _CELL_M, height


def _way(
    free: set[tuple[int, int]], start: tuple[int, int], end: tuple[int, int]
) -> list[tuple[int, int]]:
    """The shortest way over free cells, or as far as the nearest cell that can be reached."""
    before = {start: start}
    queue = deque([start])
    while queue:
        i, j = queue.popleft()
        for cell in ((i + 1, j), (i - 1, j), (i, j + 1), (i, j - 1)):
            if cell in free and cell not in before:
                before[cell] = (i, j)
                queue.append(cell)
    at = min(before, key=lambda cell: (math.dist(cell, end), cell))
    way = [at]
    while at != start:
        at = before[at]
        way.append(at)
    return way[::-1]


def _move(point: PathPoint, to: Position) -> list[PathPoint]:
    """Turn towards a place, and go there."""
    metres = math.dist(point.position, to)
    if metres < 1e-6:
        return []
    yaw = math.atan2(to[1] - point.position[1], to[0] - point.position[0])
    points = _turn(point, yaw)
    begin_ns = (points or [point])[-1].stamp_ns
    stamp_ns = begin_ns + round(metres / _SPEED_M_S * NS_PER_S)
    return [*points, PathPoint(stamp_ns, to, wrap_angle_rad(yaw))]


def _turn(point: PathPoint, yaw: float) -> list[PathPoint]:
    """Turn on the spot, a point every half second."""
    angle = wrap_angle_rad(yaw - point.yaw_rad)
    steps = math.ceil(abs(angle) / (_TURN_RAD_S * _STEP_NS / NS_PER_S) - 1e-9)
    return [
        PathPoint(
            point.stamp_ns + step * _STEP_NS,
            point.position,
            wrap_angle_rad(point.yaw_rad + angle * step / steps),
        )
        for step in range(1, steps + 1)
    ]


def _landmarks(
    things: Sequence[_Body], path: Sequence[PathPoint], rng: Random
) -> tuple[tuple[Landmark, ...], set[str]]:
    """What the camera had in view, and those labels of which it had not all."""
    landmarks: list[Landmark] = []
    missing: set[str] = set()
    for thing in things:
        stamps = [point.stamp_ns for point in path if _is_in_view(point, thing)]
        size = None if rng.random() < _UNSIZED else thing.size
        is_gone = rng.random() < _GONE
        if not stamps:
            missing.add(thing.name)
            continue
        landmark = Landmark(
            thing.name,
            thing.position,
            len(landmarks),
            size,
            stamps[0],
            stamps[-1],
            len(stamps),
            status=LandmarkStatus.GONE if is_gone else LandmarkStatus.PRESENT,
        )
        landmarks.append(landmark)
    labels = {landmark.label for landmark in landmarks}
    return tuple(landmarks), missing & labels


def _is_in_view(point: PathPoint, thing: _Body) -> bool:
    """Tell whether a thing is in view and large enough; what stands in the way is left out."""
    metres = math.dist(point.position, thing.position)
    if metres > _VIEW_M or max(thing.size) < _MIN_WIDE_RAD * metres:
        return False
    dx, dy = (thing.position[axis] - point.position[axis] for axis in (0, 1))
    return abs(wrap_angle_rad(math.atan2(dy, dx) - point.yaw_rad)) <= _HALF_VIEW_RAD


def _from_start(scene: SceneMap) -> SceneMap:
    """The same map with its origin on the floor at the start, as odometry has it."""
    x, y, _ = scene.path[0].position if scene.path else (0.0, 0.0, 0.0)

    def moved(place: Position) -> Position:
        return place[0] - x, place[1] - y, place[2]

    return replace(
        scene,
        frame_id='odom',
        landmarks=tuple(
            replace(landmark, position=moved(landmark.position)) for landmark in scene.landmarks
        ),
        path=tuple(replace(point, position=moved(point.position)) for point in scene.path),
    )
