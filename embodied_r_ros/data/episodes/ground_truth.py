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
from embodied_r_ros.core.types.geometry import BODY_FROM_OPTICAL, direction_of_vector, NS_PER_S
import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from embodied_r_ros.arm.demonstration import DemonstrationTruth, TrueThing
    from embodied_r_ros.core.types.geometry import Pose
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


ARM_MOVED_M = 0.03  # what moved by less between two images counts as in view only


def ground_truth_arm_deltas(
    truth: DemonstrationTruth, camera: Pose, interval_s: float, episode_id: str = ''
) -> list[SemanticDelta]:
    """Ground-truth deltas of images of a still camera, which sees everything all the time.

    Args:
        truth: Where things are at each stamp.
        camera: Pose of the optical frame in the frame of the truth.
        interval_s: Between two images with a delta [s]; 0: all have one.
        episode_id: Of the recording.
    """
    chosen: list[int] = []
    for index, stamp_ns in enumerate(truth.stamps_ns):
        if not chosen or stamp_ns - truth.stamps_ns[chosen[-1]] >= interval_s * NS_PER_S:
            chosen.append(index)
    pairs = pairwise([chosen[0], *chosen]) if chosen else ()
    return [
        _arm_delta(truth, camera, pair, number, episode_id) for number, pair in enumerate(pairs)
    ]


def _arm_delta(
    truth: DemonstrationTruth, camera: Pose, pair: tuple[int, int], number: int, episode_id: str
) -> SemanticDelta:
    items = [_item(thing, camera, pair) for thing in truth.things]
    has_moved = any(item.status is ItemStatus.MOVED for item in items)
    kind = DeltaKind.CHANGE if has_moved else DeltaKind.NO_CHANGE
    before, now = (truth.stamps_ns[index] for index in pair)
    return SemanticDelta(
        now,
        kind if number else DeltaKind.FIRST,
        to_id=number,
        from_id=max(0, number - 1),
        from_stamp_ns=before,
        action=STATIONARY if number else '',
        change=change_text(items),
        items=tuple(items),
        episode_id=episode_id,
        model=MODEL,
    )


def _item(thing: TrueThing, camera: Pose, pair: Sequence[int]) -> Item:
    before, now = (thing.positions[index] for index in pair)
    offset = np.subtract(now, camera.position)
    bearing, elevation = direction_of_vector(BODY_FROM_OPTICAL @ camera.rotation().T @ offset)
    return Item(
        thing.label,
        ItemStatus.MOVED if math.dist(before, now) >= ARM_MOVED_M else ItemStatus.VISIBLE,
        bearing,
        elevation,
        distance_m=float(np.linalg.norm(offset)),
        confidence=1.0,
    )
