# SPDX-License-Identifier: Apache-2.0
"""Ground-truth deltas of a simulated episode: what a perfect perceiver would say of its images."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
import math
from typing import TYPE_CHECKING

from embodied_r_ros.core.perception.egomotion import motion_from_poses
from embodied_r_ros.core.types.deltas import (
    action_text,
    change_text,
    DeltaKind,
    Item,
    ItemStatus,
    ModelInfo,
    SemanticDelta,
    STATIONARY,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from embodied_r_ros.core.types.layout import ImageTruth, Layout, LayoutObject, ObjectView

MODEL = ModelInfo(name='simulation')
MAX_ITEMS = 8  # of a delta, the largest first
MOVED_M = 0.1  # what moved by less between two images counts as in view only


def ground_truth_deltas(layout: Layout, stamps_ns: Sequence[int]) -> list[SemanticDelta]:
    """Ground-truth deltas of some images, one each, every one against the image before it.

    Args:
        layout: What is true of the episode.
        stamps_ns: Stamps of the images, in order.

    Raises:
        InputError: The episode has no image with such a stamp.
    """
    images = [layout.image_at(stamp_ns) for stamp_ns in stamps_ns]
    first = [_delta(layout, None, images[0], 0)] if images else []
    rest = enumerate(pairwise(images), 1)
    return first + [_delta(layout, *pair, number) for number, pair in rest]


def _delta(
    layout: Layout, earlier: ImageTruth | None, later: ImageTruth, number: int
) -> SemanticDelta:
    """What the later image adds; `earlier` None describes the first one."""
    first = earlier or later
    before, now = ({v.object_id: v for v in i.views if v.visible} for i in (first, later))
    statuses = {key: _status(layout.objects[key], before, (first, later)) for key in now}
    statuses.update(dict.fromkeys(before.keys() - now.keys(), ItemStatus.LEFT))
    items = _items(layout, statuses, {**before, **now})
    delta = SemanticDelta(
        stamp_ns=later.stamp_ns,
        kind=DeltaKind.FIRST,
        to_id=number,
        from_id=number - 1 if earlier else number,
        from_stamp_ns=first.stamp_ns,
        change=change_text(items),
        items=items,
        episode_id=layout.episode_id,
        model=MODEL,
    )
    return _with_motion(delta, layout, earlier, later) if earlier else delta


def _with_motion(
    delta: SemanticDelta, layout: Layout, earlier: ImageTruth, later: ImageTruth
) -> SemanticDelta:
    """A delta with the motion from the image before, and the kind that this makes it."""
    motion = motion_from_poses(earlier.pose(layout.frame_id), later.pose(layout.frame_id))
    action = action_text(motion)
    is_change = action != STATIONARY or any(
        i.status is not ItemStatus.VISIBLE for i in delta.items
    )
    kind = DeltaKind.CHANGE if is_change else DeltaKind.NO_CHANGE
    return replace(delta, kind=kind, action=action, motion=motion)


def _status(
    thing: LayoutObject, before: dict[int, ObjectView], images: tuple[ImageTruth, ImageTruth]
) -> ItemStatus:
    """What happened to a thing that is visible now."""
    if thing.id not in before:
        return ItemStatus.APPEARED
    then, now = (thing.position_at(image.stamp_ns) for image in images)
    if then and now and math.dist(then, now) >= MOVED_M:
        return ItemStatus.MOVED
    return ItemStatus.VISIBLE


def _items(
    layout: Layout, statuses: dict[int, ItemStatus], views: dict[int, ObjectView]
) -> tuple[Item, ...]:
    """Items of a delta, the largest first."""
    largest = sorted(statuses, key=lambda key: (-views[key].size_rad, key))
    return tuple(
        Item(
            layout.objects[key].label,
            statuses[key],
            views[key].bearing_rad,
            views[key].elevation_rad,
            views[key].size_rad,
            views[key].distance_m,
            1.0,
        )
        for key in largest[:MAX_ITEMS]
    )
