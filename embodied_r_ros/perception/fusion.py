# SPDX-License-Identifier: Apache-2.0
"""One thing, one item: names come from boxes, colours from patches and from what a box holds."""

from __future__ import annotations

from dataclasses import replace
import math
from typing import TYPE_CHECKING

from embodied_r_ros.common.untrusted import as_data
from embodied_r_ros.perception.coloured_objects import ColouredObject, dominant_colour
from embodied_r_ros.types.geometry import direction_of_vector, rays_of_pixels
from embodied_r_ros.types.vocabulary import family_of
import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from embodied_r_ros.types.deltas import Box
    from embodied_r_ros.types.geometry import Intrinsics
    from embodied_r_ros.types.vocabulary import Detection
    from numpy.typing import NDArray

_SAME = 0.4  # intersection over union of a patch and the box around it
_PART = 0.8  # of a patch that lies in a box, where it belongs to the thing
_LARGE_PART = 0.15  # of the box that such a patch covers; a smaller one is a thing on a thing
_TWICE = 0.5  # intersection over union of two boxes of one thing, from two detectors
_EDGE_PX = 1.5  # a box that ends nearer to the edge of the image is cut off by it
_LABEL_CHARS = 60


def fused_objects(
    detections: Sequence[Detection],
    coloured: Sequence[ColouredObject],
    image: NDArray[np.uint8],
    intrinsics: Intrinsics,
) -> list[ColouredObject]:
    """Things with names, each with its colour, and then the patches that none of them explains.

    Args:
        detections: What detectors found in the image, from any number of them.
        coloured: Patches of one colour in the same image.
        image: BGR, uint8, (H, W, 3).
        intrinsics: Of this image.
    """
    height, width = image.shape[:2]
    intrinsics = intrinsics.scaled(width, height)
    things = []
    left_over = list(coloured)
    for detection in _without_doubles(detections, width, height):
        thing = _thing(detection, intrinsics)
        box = thing.box
        if box is None:
            continue
        patches = [patch for patch in left_over if patch.box]
        same = [patch for patch in patches if patch.box and overlap_of(box, patch.box) >= _SAME]
        best = max(same, key=lambda patch: overlap_of(box, patch.box or box), default=None)
        colour = best.colour if best else dominant_colour(_content(image, detection.box))
        things.append(replace(thing, colour=colour))
        left_over = [p for p in left_over if p is not best and not _is_part(p, box)]
    return things + left_over


def without(
    things: Sequence[ColouredObject], others: Sequence[ColouredObject]
) -> list[ColouredObject]:
    """The things that are at the place of none of the others."""
    boxes = [other.box for other in others if other.box]
    return [
        thing
        for thing in things
        if thing.box and all(overlap_of(thing.box, box) < _SAME for box in boxes)
    ]


def overlap_of(one: Box, other: Box) -> float:
    """Intersection over union of two boxes."""
    common = _common_area(one, other)
    union = _area(one) + _area(other) - common
    return common / union if union > 0 else 0.0


def _common_area(one: Box, other: Box) -> float:
    across = min(one[2], other[2]) - max(one[0], other[0])
    down = min(one[3], other[3]) - max(one[1], other[1])
    return max(0.0, across) * max(0.0, down)


def _area(box: Box) -> float:
    return max(0.0, box[2] - box[0]) * max(0.0, box[3] - box[1])


def _is_part(patch: ColouredObject, box: Box) -> bool:
    """Whether a patch is a part of the thing in a box, such as the shirt of a person."""
    if patch.box is None:
        return False
    common = _common_area(patch.box, box)
    return common >= _PART * _area(patch.box) and common >= _LARGE_PART * _area(box)


def _without_doubles(detections: Sequence[Detection], width: int, height: int) -> list[Detection]:
    """Detections that can be used, within the image, each thing once, the surest first."""
    distinct: list[Detection] = []
    for detection in sorted(detections, key=lambda one: -_score(one)):
        if not all(map(math.isfinite, detection.box)):
            continue
        left, right = (min(max(edge, 0.0), width) for edge in detection.box[::2])
        top, bottom = (min(max(edge, 0.0), height) for edge in detection.box[1::2])
        # Labels may come from other programs, and end in prompts.
        label = ' '.join(as_data(detection.label).split())[:_LABEL_CHARS]
        sound = replace(detection, label=label, box=(left, top, right, bottom))
        is_new = all(
            family_of(label) != family_of(other.label) or overlap_of(sound.box, other.box) < _TWICE
            for other in distinct
        )
        if label and right - left >= 1 and bottom - top >= 1 and is_new:
            distinct.append(sound)
    return distinct


def _score(detection: Detection) -> float:
    return detection.score if math.isfinite(detection.score) else 0.0


def _thing(detection: Detection, intrinsics: Intrinsics) -> ColouredObject:
    """A thing by its box, without a colour. Its outline is taken to touch the middles of edges."""
    left, top, right, bottom = detection.box
    width, height = intrinsics.width, intrinsics.height
    column, row = (left + right) / 2, (top + bottom) / 2
    # Centres of pixels lie at integers, edges half a pixel before.
    points = np.array([[left, row], [right, row], [column, top], [column, bottom], [column, row]])
    rays = rays_of_pixels(intrinsics, points - 0.5)
    (first, _), (last, _), (_, upper), (_, lower), _ = map(direction_of_vector, rays)
    bearing, elevation = direction_of_vector(rays[4])
    x, y, z = (float(value) for value in rays[3])
    cut_below = bottom > height - _EDGE_PX
    at_edge = left < _EDGE_PX or top < _EDGE_PX or right > width - _EDGE_PX or cut_below
    return ColouredObject(
        '',
        '',
        bearing,
        elevation,
        abs(first - last),
        abs(upper - lower),
        (x, y, z),
        at_edge,
        cut_below,
        detection.score,
        (left / width, top / height, right / width, bottom / height),
        detection.label,
    )


def _content(image: NDArray[np.uint8], box: Box) -> NDArray[np.uint8]:
    """The middle of a box, which holds little of what is behind the thing."""
    left, top, right, bottom = box
    across, down = (right - left) / 5, (bottom - top) / 5
    rows = slice(math.floor(top + down), max(math.floor(top + down) + 1, math.ceil(bottom - down)))
    start = math.floor(left + across)
    return image[rows, start : max(start + 1, math.ceil(right - across))]
