# SPDX-License-Identifier: Apache-2.0
"""Items of a delta, from the coloured objects of one view or of two."""

from __future__ import annotations

from dataclasses import dataclass
import math
from typing import TYPE_CHECKING

from embodied_r_ros.deltas import Item, ItemStatus
from embodied_r_ros.geometry import rotation_from_ypr, vector_of_direction
from embodied_r_ros.vision.association import associate
from embodied_r_ros.vision.ranging import distance_on_floor, triangulated_distance
from embodied_r_ros.vocabulary import item_label
import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from embodied_r_ros.deltas import Motion
    from embodied_r_ros.vision.coloured_objects import ColouredObject
    from embodied_r_ros.vision.ranging import Floor


@dataclass(frozen=True)
class View:
    """What one keyframe shows, and the floor that it is seen above."""

    objects: Sequence[ColouredObject]
    floor: Floor | None  # None: not known


def items_in_view(view: View) -> list[Item]:
    """Items of a view by itself, the largest first."""
    return _largest_first([_item_alone(f, ItemStatus.VISIBLE, view) for f in view.objects])


def items_between(
    earlier: View, later: View, motion: Motion, slack_rad: float = 0.0
) -> list[Item]:
    """Items of the later view, and those that left it, the largest first.

    An item has left only when nothing of it is seen. What the edge cuts off to a remnant is still
    in view: a pair does not know what was said of the pair before, so that an item that was
    called gone with its remnant would be gone again with its end.

    Args:
        earlier: The earlier view.
        later: The later view.
        motion: Of the camera in between.
        slack_rad: How far the motion may be wrong.
    """
    items = []
    for pair in associate(earlier.objects, later.objects, motion, slack_rad):
        old = None if pair.earlier is None else earlier.objects[pair.earlier]
        new = None if pair.later is None else later.objects[pair.later]
        if old and new is None:
            items.append(_item_alone(old, ItemStatus.LEFT, earlier))
        elif new:
            at_rest = old if pair.status is ItemStatus.VISIBLE else None
            distance = _two_view_range(at_rest, new, motion) if at_rest else math.nan
            if math.isnan(distance):
                distance = _range(new, later)
            # What is hidden in part may have been seen whole before.
            shape = new.shape or (old.shape if old else '')
            items.append(_item(new, shape, pair.status, distance))
    return _largest_first(items)


def _largest_first(items: list[Item]) -> list[Item]:
    return sorted(items, key=lambda item: -item.size_rad)


def _item_alone(found: ColouredObject, status: ItemStatus, view: View) -> Item:
    return _item(found, found.shape, status, _range(found, view))


def _item(found: ColouredObject, shape: str, status: ItemStatus, distance_m: float) -> Item:
    return Item(
        label=item_label(found.colour, shape),
        status=status,
        bearing_rad=found.bearing_rad,
        elevation_rad=found.elevation_rad,
        size_rad=max(found.width_rad, found.height_rad),
        distance_m=distance_m,
        confidence=found.confidence,
    )


def _range(found: ColouredObject, view: View) -> float:
    return distance_on_floor(found, view.floor) if view.floor else math.nan


def _two_view_range(old: ColouredObject, new: ColouredObject, motion: Motion) -> float:
    """Distance in the later view by triangulation [m]; NaN: one is cut off, or no baseline."""
    if not motion.is_metric or old.is_cut or new.is_cut:
        return math.nan
    rotation = rotation_from_ypr(motion.yaw_rad, motion.pitch_rad, motion.roll_rad)
    return triangulated_distance(
        vector_of_direction(old.bearing_rad, old.elevation_rad),
        rotation @ vector_of_direction(new.bearing_rad, new.elevation_rad),
        np.array(motion.translation),
    )
