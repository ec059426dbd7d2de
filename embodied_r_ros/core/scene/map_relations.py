# SPDX-License-Identifier: Apache-2.0
"""How landmarks, the path and the pose now relate: what questions about a map ask, and its words.

Bearings and turns are level and positive to the left. Boxes are the extents of landmarks along the
axes of the map; a landmark without a size is its middle alone.
"""

from __future__ import annotations

from itertools import pairwise
import math
from typing import TYPE_CHECKING

from embodied_r_ros.core.types.geometry import NS_PER_S, wrap_angle_rad

if TYPE_CHECKING:
    from collections.abc import Sequence

    from embodied_r_ros.core.types.geometry import Position
    from embodied_r_ros.core.types.landmarks import Landmark, PathPoint

REACH_M = 1.2  # who passed a thing nearer than this has reached it
BACK_DEG = 135.0  # VSI-Bench: what is turned to by more than this is at the back


def gap_m(a: Landmark, b: Landmark) -> float:
    """Distance between the closest points of two boxes; 0 where they touch [m].

    Where either has no size it is the distance of their middles.
    """
    if not a.size or not b.size:
        return math.dist(a.position, b.position)
    return math.hypot(
        *(
            max(0.0, abs(pa - pb) - (sa + sb) / 2)
            for pa, pb, sa, sb in zip(a.position, b.position, a.size, b.size, strict=True)
        )
    )


def level_m(a: Position, b: Position) -> float:
    """Distance of two positions as seen from above [m]."""
    return math.hypot(b[0] - a[0], b[1] - a[1])


def turn_deg(at: Position, facing: Position, to: Position) -> float:
    """Turn from facing one position to facing another, in (-180, 180] [degrees]."""
    yaws = [math.atan2(p[1] - at[1], p[0] - at[0]) for p in (facing, to)]
    return math.degrees(wrap_angle_rad(yaws[1] - yaws[0]))


def bearing_deg(pose: PathPoint, to: Position) -> float:
    """Direction of a position from a pose, in (-180, 180] [degrees]."""
    yaw = math.atan2(to[1] - pose.position[1], to[0] - pose.position[0])
    return math.degrees(wrap_angle_rad(yaw - pose.yaw_rad))


def side_of_turn(degrees: float) -> str:
    """Left, right or back, as VSI-Bench has it."""
    if abs(degrees) >= BACK_DEG:
        return 'back'
    return 'left' if degrees > 0 else 'right'


def quadrant_of_turn(degrees: float) -> str:
    """The quadrant that a turn points into: 'front-left', …, 'back-right'."""
    front = 'front' if abs(degrees) < 90 else 'back'
    return f'{front}-{"left" if degrees > 0 else "right"}'


def distance_to_borders(degrees: float, borders: Sequence[float]) -> float:
    """How far a direction is from the nearest of some others [degrees]."""
    return min(abs((degrees - border + 180) % 360 - 180) for border in borders)


def route_turns(start: Position, facing: Position, stops: Sequence[Position]) -> tuple[float, ...]:
    """Turn before each leg of a route, the first one from facing something [degrees]."""
    turns = [turn_deg(start, facing, stops[0])]
    for before, at, to in zip((start, *stops), stops, stops[1:], strict=False):
        ahead = (2 * at[0] - before[0], 2 * at[1] - before[1], at[2])
        turns.append(turn_deg(at, ahead, to))
    return tuple(turns)


def turn_word(degrees: float) -> str:
    """What a robot does for a turn: 'Turn Left', 'Turn Right', 'Turn Back' or nothing."""
    return '' if abs(degrees) <= 30 else f'Turn {side_of_turn(degrees).capitalize()}'


def off_path_m(path: Sequence[PathPoint], to: Position) -> float:
    """Least distance of a path from a position, as seen from above [m]."""
    least = level_m(path[0].position, to)
    for a, b in pairwise(path):
        dx, dy = b.position[0] - a.position[0], b.position[1] - a.position[1]
        squared = dx * dx + dy * dy
        along = (to[0] - a.position[0]) * dx + (to[1] - a.position[1]) * dy
        share = min(1.0, max(0.0, along / squared)) if squared else 0.0
        off = math.hypot(a.position[0] + share * dx - to[0], a.position[1] + share * dy - to[1])
        least = min(least, off)
    return least


def first_reach_ns(path: Sequence[PathPoint], to: Position) -> int | None:
    """When a path first comes within reach of a position [ns]; None: it does not."""
    if path and level_m(path[0].position, to) <= REACH_M:
        return path[0].stamp_ns
    for a, b in pairwise(path):
        dx, dy = b.position[0] - a.position[0], b.position[1] - a.position[1]
        length = math.hypot(dx, dy)
        if not length:
            continue
        ahead = ((to[0] - a.position[0]) * dx + (to[1] - a.position[1]) * dy) / length
        aside = abs((to[0] - a.position[0]) * dy - (to[1] - a.position[1]) * dx) / length
        if aside <= REACH_M:
            entry = ahead - math.sqrt(REACH_M**2 - aside**2)
            if 0 <= entry <= length:
                return a.stamp_ns + round(entry / length * (b.stamp_ns - a.stamp_ns))
    return None


_DAY_S = 86_400
_DECIMALS_TO_M = 9.95  # distances from here on have no decimals
_ORDINAL_ENDINGS = {1: 'st', 2: 'nd', 3: 'rd'}
_WHOLE_FROM_S = 600  # ages from here on have no decimals; in days they cannot be compared


def ordinal(number: int) -> str:
    """A place in words.

    >>> ordinal(2), ordinal(11), ordinal(21)
    ('2nd', '11th', '21st')
    """
    is_teen = number % 100 in (11, 12, 13)
    return f'{number}{"th" if is_teen else _ORDINAL_ENDINGS.get(number % 10, "th")}'


def metres_text(metres: float) -> str:
    """A distance in words: '2.1m', '12m'; without a space before the unit, unlike motions."""
    return f'{metres:.1f}m' if metres < _DECIMALS_TO_M else f'{metres:.0f}m'


def turn_text(degrees: int) -> str:
    """A direction from ahead in words, positive to the left: '30° to the left', 'ahead'."""
    return f'{abs(degrees)}° to the {"left" if degrees > 0 else "right"}' if degrees else 'ahead'


def age_text(age_ns: int) -> str:
    """An age in words: '12.0 s', '754 s', '3 days'."""
    seconds = max(0, age_ns) / NS_PER_S
    if seconds >= 2 * _DAY_S:
        return f'{seconds / _DAY_S:.0f} days'
    return f'{seconds:.1f} s' if seconds < _WHOLE_FROM_S else f'{seconds:.0f} s'
