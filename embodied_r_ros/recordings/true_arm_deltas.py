# SPDX-License-Identifier: Apache-2.0
"""True deltas of a simulated demonstration: what a perfect perceiver would say of its images."""

from __future__ import annotations

from itertools import pairwise
import math
from typing import TYPE_CHECKING

from embodied_r_ros.deltas import DeltaKind, Item, ItemStatus, SemanticDelta
from embodied_r_ros.geometry import BODY_FROM_OPTICAL, direction_of_vector
from embodied_r_ros.recordings.true_deltas import MODEL
from embodied_r_ros.wording import change_text, STATIONARY
import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from embodied_r_ros.geometry import Pose
    from embodied_r_ros.keypoints.truth import DemonstrationTruth, TrueThing

MOVED_M = 0.03  # what moved by less between two images is said to be in view only
_NS = 1_000_000_000


def true_arm_deltas(
    truth: DemonstrationTruth, camera: Pose, interval_s: float, episode_id: str = ''
) -> list[SemanticDelta]:
    """True deltas of images of a still camera, which sees everything all the time.

    Args:
        truth: Where things are at each stamp.
        camera: Pose of the optical frame in the frame of the truth.
        interval_s: Between two images that are told of [s]; 0: all are.
        episode_id: Of the recording.
    """
    chosen: list[int] = []
    for index, stamp_ns in enumerate(truth.stamps_ns):
        if not chosen or stamp_ns - truth.stamps_ns[chosen[-1]] >= interval_s * _NS:
            chosen.append(index)
    pairs = pairwise([chosen[0], *chosen]) if chosen else ()
    return [_delta(truth, camera, pair, number, episode_id) for number, pair in enumerate(pairs)]


def _delta(
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
        ItemStatus.MOVED if math.dist(before, now) >= MOVED_M else ItemStatus.VISIBLE,
        bearing,
        elevation,
        distance_m=float(np.linalg.norm(offset)),
        confidence=1.0,
    )
