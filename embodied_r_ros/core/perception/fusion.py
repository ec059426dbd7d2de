# SPDX-License-Identifier: Apache-2.0
"""One thing, one item: names come from boxes, colours from patches and from what a box holds.

Boxes of detectors and patches of one colour become one list of things in an image; the items of a
vision-language model and those of such things become one list of items.
"""

from __future__ import annotations

from dataclasses import replace
import math
from typing import TYPE_CHECKING

from embodied_r_ros.common.untrusted import as_label
from embodied_r_ros.core.perception.coloured_objects import ColouredObject, dominant_colour
from embodied_r_ros.core.perception.trust import against, together
from embodied_r_ros.core.types.deltas import ItemStatus
from embodied_r_ros.core.types.geometry import (
    as_position,
    direction_of_vector,
    rays_of_pixels,
    wrap_angle_rad,
)
from embodied_r_ros.core.types.vocabulary import COLOUR_WORDS, family_of, is_unnamed
import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from embodied_r_ros.core.types.arrays import UInt8s
    from embodied_r_ros.core.types.deltas import Box, Item
    from embodied_r_ros.core.types.geometry import Intrinsics
    from embodied_r_ros.core.types.vocabulary import Detection

_SAME = 0.4  # intersection over union of a patch and the box around it
_PART = 0.8  # of a patch that lies in a box, where it belongs to the thing
_LARGE_PART = 0.15  # of the box that such a patch covers; a smaller one is a thing on a thing
_TWICE = 0.5  # intersection over union of two boxes of one thing, from two detectors
_WITHIN = 0.85  # of a box that lies in a surer one of the same name, where it is a part of it
# Intersection over union from which a model and a detector mean one thing: of things that both
# call alike, and of things with different names, where the place alone tells.
_ALIKE_PLACE, _SAME_PLACE = 0.3, 0.6
_SAME_BEARING_RAD = math.radians(20.0)  # the same without boxes: the words of a model are coarse
_EDGE_PX = 1.5  # a box that ends nearer to the edge of the image is cut off by it


def fused_objects(
    detections: Sequence[Detection],
    coloured: Sequence[ColouredObject],
    image: UInt8s,
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
    for detection in _distinct(detections, width, height):
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
    """The things that overlap none of the others."""
    boxes = [other.box for other in others if other.box]
    return [
        thing
        for thing in things
        if thing.box and all(overlap_of(thing.box, box) < _SAME for box in boxes)
    ]


def fused_items(named: Sequence[Item], boxed: Sequence[Item]) -> tuple[Item, ...]:
    """The items of a model that names things and of a detector in one view, each thing once.

    A thing of both has place, size and distance of the detector, and the name of the model where
    it says more: kind or shape beside the class, or a name where there is only a colour. Where
    both give one place different names, the surer one counts. None is left out.

    Args:
        named: By a vision-language model, with boxes or without.
        boxed: By a detector and by colour.
    """
    pairs = [
        (nearness, first, second)
        for first, name in enumerate(named)
        for second, box in enumerate(boxed)
        if (nearness := _nearness(name, box)) > 0
    ]
    partners: dict[int, int] = {}
    for _, first, second in sorted(pairs, key=lambda pair: (-pair[0], pair[1:])):
        if first not in partners and second not in partners.values():
            partners[first] = second
    things = [
        _one_item(item, boxed[partners[index]]) if index in partners else item
        for index, item in enumerate(named)
    ]
    taken = set(partners.values())
    return (*things, *(item for index, item in enumerate(boxed) if index not in taken))


def _nearness(named: Item, boxed: Item) -> float:
    """How near two items are, if they may be one thing; 0: they are two."""
    are_alike = _are_alike(named.label, boxed.label)
    if named.box and boxed.box:
        common = overlap_of(named.box, boxed.box)
        return common if common >= (_ALIKE_PLACE if are_alike else _SAME_PLACE) else 0.0
    colours = _colours(named.label) & _colours(boxed.label)
    apart_rad = abs(wrap_angle_rad(named.bearing_rad - boxed.bearing_rad))
    may_be_one = are_alike or (is_unnamed(boxed.label) and colours)
    if not may_be_one or not apart_rad <= _SAME_BEARING_RAD:
        return 0.0
    # Less than what boxes prove.
    return _ALIKE_PLACE * (1.0 - apart_rad / (2 * _SAME_BEARING_RAD))


def _one_item(named: Item, boxed: Item) -> Item:
    """One item of two that mean one thing."""
    # What a detector misses once has not left where a model still sees it.
    is_missed = boxed.status is ItemStatus.LEFT and named.status is not ItemStatus.LEFT
    place = named if is_missed else boxed
    sure = [one.confidence for one in (named, boxed) if math.isfinite(one.confidence)]
    return replace(place, label=_name(named, boxed), confidence=max(sure, default=math.nan))


def _name(named: Item, boxed: Item) -> str:
    """The name of a thing of both: the one that says more, or else the surer one."""
    if is_unnamed(boxed.label):
        is_better = False
    elif _are_alike(named.label, boxed.label):
        is_better = len(_kind(boxed.label)) > len(_kind(named.label))
    else:
        is_better = boxed.confidence > named.confidence
    if is_better:
        return boxed.label
    if _colours(named.label):
        return named.label
    colour = next((word for word in boxed.label.split() if word in COLOUR_WORDS), '')
    return f'{colour} {named.label}'.strip()


def _are_alike(one: str, other: str) -> bool:
    """Whether two names are of one kind, as 'office chair', 'chair' and 'couch' are."""
    kinds = _kind(one), _kind(other)
    shorter, longer = sorted(kinds, key=len)
    ends_alike = bool(shorter) and longer[-len(shorter) :] == shorter
    return ends_alike or family_of(' '.join(kinds[0])) == family_of(' '.join(kinds[1]))


def _kind(label: str) -> list[str]:
    """The words of a name, without colours."""
    return [word for word in label.lower().replace('-', ' ').split() if word not in COLOUR_WORDS]


def _colours(label: str) -> set[str]:
    return COLOUR_WORDS & set(label.lower().replace('-', ' ').split())


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


def _distinct(detections: Sequence[Detection], width: int, height: int) -> list[Detection]:
    """Detections that can be used, within the image, each thing once, the surest first.

    What several detectors call alike is surer than by each of them. Where they give one place
    different names, the surest is left, and is less sure.
    """
    sound = [_sound(one, width, height) for one in detections]
    groups: list[list[Detection]] = []
    for one in sorted((each for each in sound if each), key=lambda one: -_score(one)):
        alike = [group for group in groups if family_of(group[0].label) == family_of(one.label)]
        same = [group for group in alike if overlap_of(group[0].box, one.box) >= _TWICE]
        if same:
            same[0].append(one)
        elif not any(_is_within(one.box, group[0].box) for group in alike):
            groups.append([one])
    distinct: list[Detection] = []
    for one in sorted(map(_together, groups), key=lambda one: -_score(one)):
        rivals = [
            number
            for number, other in enumerate(distinct)
            if other.source != one.source and overlap_of(other.box, one.box) >= _SAME_PLACE
        ]
        for number in rivals:
            other = distinct[number]
            distinct[number] = replace(other, score=against(other.score, _score(one)))
        distinct += [] if rivals else [one]
    return distinct


def _is_within(box: Box, other: Box) -> bool:
    """Whether a box is a part of a thing of the same name, as the head of a dog is no dog."""
    return _common_area(box, other) >= _WITHIN * _area(box)


def _together(group: list[Detection]) -> Detection:
    """One thing of its detections, the surest first: each detector counts once."""
    by_source = {one.source: one.score for one in reversed(group)}
    first = group[0]
    return replace(first, score=together(*by_source.values())) if len(by_source) > 1 else first


def _sound(detection: Detection, width: int, height: int) -> Detection | None:
    """The detection within the image; None: there is none, or it has no name."""
    if not all(map(math.isfinite, detection.box)):
        return None
    left, right = (min(max(edge, 0.0), width) for edge in detection.box[::2])
    top, bottom = (min(max(edge, 0.0), height) for edge in detection.box[1::2])
    # Labels may come from other programs, and end in prompts.
    label = as_label(detection.label)
    if not label or right - left < 1 or bottom - top < 1:
        return None
    return replace(detection, label=label, box=(left, top, right, bottom))


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
    cut_below = bottom > height - _EDGE_PX
    at_edge = left < _EDGE_PX or top < _EDGE_PX or right > width - _EDGE_PX or cut_below
    return ColouredObject(
        '',
        '',
        bearing,
        elevation,
        abs(first - last),
        abs(upper - lower),
        as_position(rays[3]),
        at_edge,
        cut_below,
        detection.score,
        (left / width, top / height, right / width, bottom / height),
        detection.label,
    )


def _content(image: UInt8s, box: Box) -> UInt8s:
    """The middle of a box, which holds little of what is behind the thing."""
    left, top, right, bottom = box
    across, down = (right - left) / 5, (bottom - top) / 5
    rows = slice(math.floor(top + down), max(math.floor(top + down) + 1, math.ceil(bottom - down)))
    start = math.floor(left + across)
    return image[rows, start : max(start + 1, math.ceil(right - across))]
