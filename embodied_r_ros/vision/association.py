# SPDX-License-Identifier: Apache-2.0
"""Which object of the earlier view is which in the later one, and which moved by itself.

The camera's motion says where an object at rest may be seen again: on the arc from its old
direction (were it infinitely far) to where the camera came from (were it very near). Off that arc,
it moved by itself. Where colours repeat, or the motion is unknown, less is claimed.
"""

from __future__ import annotations

from dataclasses import dataclass
import math
from typing import TYPE_CHECKING

from embodied_r_ros.deltas import ItemStatus, MotionSource
from embodied_r_ros.geometry import rotation_from_ypr, vector_of_direction
import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from embodied_r_ros.deltas import Motion
    from embodied_r_ros.vision.coloured_objects import ColouredObject
    from numpy.typing import NDArray

# What is off its arc by less is at rest: a part for the noise of directions, and a share of the
# size, because the middle of an object shifts with the side that it shows.
_WHOLE = (math.radians(1.5), 0.08)
_CUT = (math.radians(3.0), 0.3)  # where an edge hides the middle
_REACH_RAD = math.radians(45.0)  # nothing moves further across the view between keyframes
_SHAPE_COST_RAD = math.radians(6.0)  # of a silhouette that is another one from here
_NEAREST = 0.3  # [m], or in units of an unknown baseline


@dataclass(frozen=True)
class Pairing:
    """An object of one view, and what became of it in the other."""

    status: ItemStatus
    earlier: int | None  # position in the earlier view; None: not seen there
    later: int | None  # position in the later view; None: not seen there


def associate(
    earlier: Sequence[ColouredObject],
    later: Sequence[ColouredObject],
    motion: Motion,
    slack_rad: float = 0.0,
) -> list[Pairing]:
    """Pair the objects of two views: the later view's in their order, then those that left.

    Args:
        earlier: What the earlier view shows.
        later: What the later view shows.
        motion: Of the camera in between.
        slack_rad: How far the motion may be wrong.
    """
    partners = {}
    for colour in sorted({item.colour for item in later}):
        olds = [i for i, item in enumerate(earlier) if item.colour == colour]
        news = [i for i, item in enumerate(later) if item.colour == colour]
        if motion.source is MotionSource.UNKNOWN:
            partners.update(_by_colour(olds, news))
        else:
            partners.update(_by_direction(earlier, later, (olds, news), motion, slack_rad))
    pairs = [
        partners.get(index, Pairing(ItemStatus.APPEARED, None, index))
        for index in range(len(later))
    ]
    kept = {pair.earlier for pair in pairs}
    if motion.source is MotionSource.UNKNOWN:
        # Of several alike none can be named as the one that left.
        colours = {item.colour for item in later}
        kept |= {i for i, item in enumerate(earlier) if item.colour in colours}
    gone = [i for i in range(len(earlier)) if i not in kept]
    return pairs + [Pairing(ItemStatus.LEFT, index, None) for index in gone]


def _by_colour(olds: list[int], news: list[int]) -> dict[int, Pairing]:
    """Without a motion: what has a colour that was seen before is in view, and no more is said."""
    if not olds:
        return {}
    same = olds[0] if len(olds) == len(news) == 1 else None
    return {new: Pairing(ItemStatus.VISIBLE, same, new) for new in news}


def _by_direction(
    earlier: Sequence[ColouredObject],
    later: Sequence[ColouredObject],
    groups: tuple[list[int], list[int]],
    motion: Motion,
    slack_rad: float,
) -> dict[int, Pairing]:
    """Pair the objects of one colour, the nearest to where they should be first."""
    olds, news = groups
    is_single = len(olds) == len(news) == 1
    costs = sorted(
        (_cost(earlier[old], later[new], motion), old, new) for old in olds for new in news
    )
    partners: dict[int, Pairing] = {}
    taken: set[int] = set()
    for _, old, new in costs:
        off = off_arc(earlier[old], later[new], motion)
        at_rest = off <= _tolerance(earlier[old], later[new]) + slack_rad
        moved = is_single and off <= _REACH_RAD
        if old not in taken and new not in partners and (at_rest or moved):
            status = ItemStatus.VISIBLE if at_rest else ItemStatus.MOVED
            partners[new] = Pairing(status, old, new)
            taken.add(old)
    return partners


def _cost(earlier: ColouredObject, later: ColouredObject, motion: Motion) -> float:
    is_other = earlier.shape and later.shape and earlier.shape != later.shape
    return off_arc(earlier, later, motion) + (_SHAPE_COST_RAD if is_other else 0.0)


def _tolerance(one: ColouredObject, other: ColouredObject) -> float:
    least, share = _CUT if one.is_cut or other.is_cut else _WHOLE
    return least + share * max(one.width_rad, one.height_rad, other.width_rad, other.height_rad)


def off_arc(earlier: ColouredObject, later: ColouredObject, motion: Motion) -> float:
    """Angle between where an object is seen and where it could be seen at rest [rad]."""
    start = vector_of_direction(earlier.bearing_rad, earlier.elevation_rad)
    rotation = rotation_from_ypr(motion.yaw_rad, motion.pitch_rad, motion.roll_rad)
    end = rotation @ vector_of_direction(later.bearing_rad, later.elevation_rad)
    places = _arc(start, np.array(motion.translation))
    return math.acos(float(np.clip((places @ end).max(), -1.0, 1.0)))


def _arc(start: NDArray[np.float64], translation: NDArray[np.float64]) -> NDArray[np.float64]:
    """Directions of a point at rest after a translation, over its possible distances. (N, 3)."""
    inverse = np.linspace(0.0, 1.0 / _NEAREST, 400)[:, None]
    places = start - inverse * translation
    return np.asarray(places / np.linalg.norm(places, axis=1, keepdims=True))
