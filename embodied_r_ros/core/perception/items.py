# SPDX-License-Identifier: Apache-2.0
"""Items of a delta from the coloured objects of one view or of two, tracked and ranged.

How far things are, a depth image of the same view tells, else the floor or two views.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
import math
from typing import TYPE_CHECKING, TypeVar

from embodied_r_ros.common.errors import ImageError
from embodied_r_ros.core.perception.trust import by_size, seen_twice
from embodied_r_ros.core.types.deltas import Item, ItemStatus, MotionSource, ScaleSource, SURE
from embodied_r_ros.core.types.geometry import (
    rays_of_pixels,
    read_only,
    rotation_from_ypr,
    vector_of_direction,
    wrap_angle_rad,
)
from embodied_r_ros.core.types.vocabulary import (
    class_of,
    DEPTHS,
    family_of,
    item_label,
    standing_size,
)
import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from embodied_r_ros.core.perception.coloured_objects import ColouredObject
    from embodied_r_ros.core.types.arrays import Bools, Float32s, Float64s
    from embodied_r_ros.core.types.deltas import Box, Motion
    from embodied_r_ros.core.types.geometry import Intrinsics, Pose
    from embodied_r_ros.core.types.images import PackedDepth, PackedMask

_Boxed = TypeVar('_Boxed', 'ColouredObject', 'Item')
_MASK_PX = 160  # width and height at which boxes are compared with a mask
_FIXED = 0.6  # share of a box: what lies there is the robot itself
_STEP = 0.02  # of a histogram of depth, as a share of it
_BLUR = 2  # bins to either side over which the histogram is smoothed
_LEAST_KNOWN = 0.05  # share of a box whose depth must be known
_LEAST_PIXELS = 8
_LEAST_PEAK = 0.5  # a thing fills at least this share of what the fullest depth does
_FOOT = 0.25  # share of its peak at which a thing ends, nearer and farther
_OUTERMOST = 0.05  # share of a thing's pixels at either end of its depth that do not count
_WIDTH = 0.3  # standard deviation of a pixel's weight, of the box's sides: middles count most
_SIDE_PX = 96  # a larger box is looked at in steps
# From the side that is seen to the middle, as a share of the smaller of width and height: between
# that of a cube, 0.5, and that of a picture on a wall.
_TO_MIDDLE = 0.25
_DEEPEST_M = 1.0  # nothing is taken to be deeper


def depth_of(packed: PackedDepth | None) -> Float32s | None:
    """Depth of a keyframe [m], (h, w), read-only; None: there is none, or it is damaged.

    A damaged one costs the distances that it would have given, and nothing else.
    """
    try:
        return read_only(packed.unpack()) if packed else None
    except ImageError:
        return None


def outside_fixed(things: Sequence[_Boxed], mask: PackedMask | None) -> list[_Boxed]:
    """The things of an image whose boxes do not lie on what is fixed to its camera.

    Args:
        things: Those without a box stay.
        mask: Of the image; None, or damaged: nothing is known.
    """
    try:
        fixed = mask.unpack(_MASK_PX, _MASK_PX) if mask else None
    except ImageError:
        fixed = None
    if fixed is None:
        return list(things)
    return [thing for thing in things if thing.box is None or _share(fixed, thing.box) < _FIXED]


def _share(fixed: Bools, box: Box) -> float:
    """Share of a box that is fixed to the camera, 0..1."""
    left, top, right, bottom = (int(edge * _MASK_PX) for edge in box)
    inside = fixed[max(0, top) : max(0, top) + max(1, bottom - top), max(0, left) :]
    inside = inside[:, : max(1, right - left)]
    return float(inside.mean()) if inside.size else 0.0


def distance_in_box(depth: Float32s, box: Box, intrinsics: Intrinsics | None) -> float:
    """Distance to the middle of the thing in a box, along the ray of the box's middle [m].

    A box shows what is around its thing as well. The thing is the nearest depth that fills much of
    the box, above all of its middle. Its middle lies behind the side that is seen, by what things
    of its width and height usually are deep.

    Args:
        depth: Depth along the optical axis [m]; 0 or not finite: unknown. Shape (h, w).
        box: Left, top, right, bottom as shares of the view, 0..1.
        intrinsics: Of the camera, at any size of its view; None: the depth of what is seen is all
            that can be told.

    Returns:
        The distance; NaN where too little of the box has a depth.
    """
    surface_m = depth_in_box(depth, box)
    if intrinsics is None or math.isnan(surface_m):
        return surface_m
    columns = np.array([box[0], (box[0] + box[2]) / 2, box[2]]) * intrinsics.width - 0.5
    rows = np.array([box[1], (box[1] + box[3]) / 2, box[3]]) * intrinsics.height - 0.5
    crossing = [(columns[i], rows[1]) for i in range(3)] + [(columns[1], rows[i]) for i in (0, 2)]
    left, middle, right, top, bottom = surface_m * rays_of_pixels(intrinsics, np.array(crossing))
    side = min(np.linalg.norm(right - left), np.linalg.norm(bottom - top))
    return float(np.linalg.norm(middle) + min(_TO_MIDDLE * side, _DEEPEST_M / 2))


def depth_in_box(depth: Float32s, box: Box) -> float:
    """Depth of the middle of what is seen of the thing in a box [m]; NaN: not known.

    Args:
        depth: Depth along the optical axis [m]; 0 or not finite: unknown. Shape (h, w).
        box: Left, top, right, bottom as shares of the view, 0..1.
    """
    height, width = depth.shape
    left, right = (round(min(1.0, max(0.0, edge)) * width) for edge in (box[0], box[2]))
    top, bottom = (round(min(1.0, max(0.0, edge)) * height) for edge in (box[1], box[3]))
    # What is smaller than a pixel of depth is in the pixel around it.
    left, top = min(left, width - 1), min(top, height - 1)
    part = depth[top : max(bottom, top + 1), left : max(right, left + 1)]
    part = part[:: max(1, part.shape[0] // _SIDE_PX), :: max(1, part.shape[1] // _SIDE_PX)]
    known = np.isfinite(part) & (part > 0)
    least = min(part.size, max(_LEAST_PIXELS, round(_LEAST_KNOWN * part.size)))
    if known.sum() < least:
        return math.nan
    weights = np.outer(_weights(part.shape[0]), _weights(part.shape[1]))[known]
    return _nearest_of_the_full(part[known].astype(np.float64), np.asarray(weights, np.float64))


def _weights(count: int) -> Float64s:
    """Weights of rows or columns, the largest in the middle. Shape (count,)."""
    places = (np.arange(count) + 0.5) / count - 0.5
    return np.exp(-0.5 * (places / _WIDTH) ** 2)


def _nearest_of_the_full(depths: Float64s, weights: Float64s) -> float:
    """Middle of the nearest peak of depths that is nearly as high as the highest one."""
    bins = np.floor(np.log(depths) / _STEP).astype(np.int64)
    first = int(bins.min())
    bins -= first
    # Depth of 1 mm to 65 m has some 560 bins.
    counts = np.bincount(bins, weights, int(bins.max()) + 1)
    smooth = np.convolve(counts, np.ones(2 * _BLUR + 1))[_BLUR:-_BLUR]
    peak = int(np.argmax(smooth >= _LEAST_PEAK * smooth.max()))
    while peak + 1 < len(smooth) and smooth[peak + 1] >= smooth[peak]:
        peak += 1
    low = high = peak
    while low > 0 and smooth[low - 1] >= _FOOT * smooth[peak]:
        low -= 1
    while high + 1 < len(smooth) and smooth[high + 1] >= _FOOT * smooth[peak]:
        high += 1
    of_thing = (bins >= low) & (bins <= high)
    return _middle(depths[of_thing], weights[of_thing])


def _middle(values: Float64s, weights: Float64s) -> float:
    """Half-way between the near and the far end of values, without the outermost ones.

    The sides of a thing that lead away from the camera cover fewer pixels than they are deep.
    """
    order = np.argsort(values)
    total = np.cumsum(weights[order])
    ends = np.searchsorted(total, total[-1] * np.array([_OUTERMOST, 1 - _OUTERMOST]))
    return float(values[order][ends].mean())


# What is off its arc by less is at rest: a part for the noise of directions, and a share of the
# size, because the middle of an object shifts with the side that it shows.
_WHOLE = (math.radians(1.5), 0.08)
_CUT = (math.radians(3.0), 0.3)  # where an edge hides the middle
# The same of boxes, whose edges are less sure.
_BOX = (math.radians(2.5), 0.2)
_CUT_BOX = (math.radians(4.0), 0.5)
_ASIDE_RAD = math.radians(2.0)  # what went less far across the view went to no side
_GROWN = 1.15  # apparent height of what came nearer
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
        earlier: Objects in the earlier view.
        later: Objects in the later view.
        motion: Of the camera in between.
        slack_rad: How far the motion may be wrong.
    """
    alike = [
        (old, new)
        for new, later_object in enumerate(later)
        for old, earlier_object in enumerate(earlier)
        if _may_be_one(earlier_object, later_object)
    ]
    if motion.source is MotionSource.UNKNOWN:
        partners = _by_likeness(alike)
    else:
        partners = _by_direction(earlier, later, alike, motion, slack_rad)
    pairs = [
        partners.get(index, Pairing(ItemStatus.APPEARED, None, index))
        for index in range(len(later))
    ]
    present = {pair.earlier for pair in pairs}
    if motion.source is MotionSource.UNKNOWN:
        # Of several alike none can be named as the one that left.
        present |= {old for old, _ in alike}
    absent = [i for i in range(len(earlier)) if i not in present]
    return pairs + [Pairing(ItemStatus.LEFT, index, None) for index in absent]


def _may_be_one(earlier: ColouredObject, later: ColouredObject) -> bool:
    """Whether two views may show one thing: by names where both have one, else by colour."""
    if earlier.name and later.name:
        return family_of(earlier.name) == family_of(later.name)
    return bool(earlier.colour) and earlier.colour == later.colour


def _by_likeness(alike: list[tuple[int, int]]) -> dict[int, Pairing]:
    """Without a motion: a thing like one seen before counts as in view, and no more."""
    olds, news = (Counter(pair[side] for pair in alike) for side in (0, 1))
    return {
        new: Pairing(ItemStatus.VISIBLE, old if news[new] == olds[old] == 1 else None, new)
        for old, new in alike
    }


def _by_direction(
    earlier: Sequence[ColouredObject],
    later: Sequence[ColouredObject],
    alike: list[tuple[int, int]],
    motion: Motion,
    slack_rad: float,
) -> dict[int, Pairing]:
    """Pair what is alike, the nearest to where it should be first."""
    old_counts, new_counts = (Counter(pair[side] for pair in alike) for side in (0, 1))
    costs = sorted((_cost(earlier[old], later[new], motion), old, new) for old, new in alike)
    partners: dict[int, Pairing] = {}
    olds_in_use: set[int] = set()
    for _, old, new in costs:
        off = off_arc(earlier[old], later[new], motion)
        at_rest = off <= _tolerance(earlier[old], later[new]) + slack_rad
        moved = old_counts[old] == new_counts[new] == 1 and off <= _REACH_RAD
        if old not in olds_in_use and new not in partners and (at_rest or moved):
            status = ItemStatus.VISIBLE if at_rest else ItemStatus.MOVED
            partners[new] = Pairing(status, old, new)
            olds_in_use.add(old)
    return partners


def _cost(earlier: ColouredObject, later: ColouredObject, motion: Motion) -> float:
    looks = ((earlier.shape, later.shape), (earlier.colour, later.colour))
    is_other = any(before and now and before != now for before, now in looks)
    return off_arc(earlier, later, motion) + (_SHAPE_COST_RAD if is_other else 0.0)


def _tolerance(one: ColouredObject, other: ColouredObject) -> float:
    is_cut = one.is_cut or other.is_cut
    if one.name or other.name:
        least, share = _CUT_BOX if is_cut else _BOX
    else:
        least, share = _CUT if is_cut else _WHOLE
    return least + share * max(one.width_rad, one.height_rad, other.width_rad, other.height_rad)


def off_arc(earlier: ColouredObject, later: ColouredObject, motion: Motion) -> float:
    """Angle between where an object is seen and where it could be seen at rest [rad]."""
    start = vector_of_direction(earlier.bearing_rad, earlier.elevation_rad)
    rotation = rotation_from_ypr(motion.yaw_rad, motion.pitch_rad, motion.roll_rad)
    end = rotation @ vector_of_direction(later.bearing_rad, later.elevation_rad)
    places = _arc(start, np.array(motion.way))
    return math.acos(float(np.clip((places @ end).max(), -1.0, 1.0)))


def _arc(start: Float64s, translation: Float64s) -> Float64s:
    """Directions of a point at rest after a translation, over its possible distances. (N, 3)."""
    inverse = np.linspace(0.0, 1.0 / _NEAREST, 400)[:, None]
    places = start - inverse * translation
    return np.asarray(places / np.linalg.norm(places, axis=1, keepdims=True))


_MIN_DEPRESSION_RAD = math.radians(2.0)  # a flatter ray meets the floor anywhere
_MIN_PARALLAX_RAD = math.radians(3.0)
_BOX_PARALLAX = 0.3  # of its size, for the middle of a box


@dataclass(frozen=True)
class Floor:
    """A level floor, as seen from a camera above it."""

    height_m: float  # of the camera above it
    level: Float64s  # (3, 3): turns body axes so that z points straight up


def floor_below(pose: Pose | None, camera_height_m: float) -> Floor | None:
    """The floor that the camera is above; None: not known.

    Args:
        pose: Of the camera link, in a frame whose z axis points up from the floor; None: unknown,
            and the camera is taken to be level.
        camera_height_m: Height of the camera above the floor [m]; 0: the pose has it.
    """
    level = np.eye(3) if pose is None else pose.rotation()
    height = camera_height_m or (pose.position[2] if pose else 0.0)
    return Floor(height, level) if height > 0 else None


def distance_on_floor(item: ColouredObject, floor: Floor) -> float:
    """Distance to the middle of an object that stands on the floor [m]; NaN: it does not."""
    largest = standing_size(item.name)
    x, y, z = floor.level @ np.array(item.lowest)
    if (
        largest is None
        or item.is_cut_below
        or math.atan2(-z, math.hypot(x, y)) < _MIN_DEPRESSION_RAD
    ):
        return math.nan
    to_base = floor.height_m * math.hypot(x, y) / -z
    half_width = to_base * math.tan(min(item.width_rad, 2.0) / 2)
    height = 2 * to_base * math.tan(min(item.height_rad, 2.0) / 2)
    if 2 * half_width > largest[0] or height > largest[1]:
        return math.nan
    middle = floor.level @ vector_of_direction(item.bearing_rad, item.elevation_rad)
    if item.shape == 'round':
        # A ball of angular radius a, seen at a depression d, is s sin(a) + s sin(d) below us.
        return float(floor.height_m / (math.sin(item.height_rad / 2) - middle[2]))
    # The ray meets the near side of the base; the middle is half an object further.
    half_depth = half_width * DEPTHS.get(class_of(item.name), 1.0)
    return float((to_base + half_depth) / math.hypot(middle[0], middle[1]))


def triangulated_distance(earlier: Float64s, later: Float64s, offset: Float64s) -> float:
    """Distance from the later viewpoint to where two rays meet [m]; NaN: nearly parallel.

    Args:
        earlier: Direction from the earlier viewpoint, unit length. Shape (3,).
        later: Direction from the later viewpoint in the same axes, unit length. Shape (3,).
        offset: From the earlier to the later viewpoint [m]. Shape (3,).
    """
    normal = np.cross(earlier, later)
    sine = float(np.linalg.norm(normal))
    if sine < math.sin(_MIN_PARALLAX_RAD):
        return math.nan
    distance = float(np.cross(offset, earlier) @ normal) / sine**2
    return distance if distance > 0 else math.nan


@dataclass(frozen=True)
class ItemView:
    """What one keyframe shows, and the floor that it is seen above."""

    objects: Sequence[ColouredObject]
    floor: Floor | None  # None: not known
    # What is too unsure to speak of, but tells that a thing of the other view did not leave.
    unsure: Sequence[ColouredObject] = ()
    depth: Float32s | None = None  # registered [m], (h, w); None: not known
    intrinsics: Intrinsics | None = None  # of the camera


def items_in_view(view: ItemView) -> list[Item]:
    """Items of a view by itself, the largest first."""
    return _largest_first([_item_alone(f, ItemStatus.VISIBLE, view) for f in view.objects])


def items_between(
    earlier: ItemView, later: ItemView, motion: Motion, slack_rad: float = 0.0
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
    olds, news = list(earlier.objects), list(later.objects)
    if motion.source is not MotionSource.UNKNOWN:
        # Without a motion nothing is known of the places, and the name alone is too little.
        olds += earlier.unsure
        news += later.unsure
    for pair in associate(olds, news, motion, slack_rad):
        old = None if pair.earlier is None else olds[pair.earlier]
        new = None if pair.later is None else news[pair.later]
        is_sure = old in earlier.objects or new in later.objects
        if old and new is None:
            # What was doubtful need not have been there.
            is_told = is_sure and (not old.name or old.confidence >= SURE)
            items += [] if not is_told else [_item_alone(old, ItemStatus.LEFT, earlier)]
        elif new and is_sure:
            at_rest = old if pair.status is ItemStatus.VISIBLE else None
            place = _by_depth(new, later) or _by_two_views(at_rest, new, motion)
            place = place or _by_floor(new, later) or _NOWHERE
            item = _item(_known_of(old, new), pair.status, place)
            if old and pair.status is ItemStatus.MOVED:
                item = replace(item, moving=_way(old, new, motion))
            items.append(item)
    return _largest_first(items)


def _way(old: ColouredObject, new: ColouredObject, motion: Motion) -> str:
    """Where a thing that moved went, as the camera sees it; empty: only up or down."""
    aside = wrap_angle_rad(new.bearing_rad - old.bearing_rad + motion.yaw_rad)
    if abs(aside) >= _ASIDE_RAD:
        return 'left' if aside > 0 else 'right'
    growth = new.height_rad / max(old.height_rad, 1e-6)
    is_cut = old.is_cut or new.is_cut
    if is_cut or 1 / _GROWN < growth < _GROWN:
        return ''
    return 'nearer' if growth > 1 else 'away'


def _known_of(old: ColouredObject | None, new: ColouredObject) -> ColouredObject:
    """The newer look at a thing, with what only the older one shows: it may be hidden in part.

    Two looks that give it one name are surer than each.
    """
    if old is None:
        return new
    confidence = old.confidence if old.name and not new.name else new.confidence
    if old.name and new.name:
        confidence = seen_twice(old.confidence, new.confidence)
    colour, shape, name = new.colour or old.colour, new.shape or old.shape, new.name or old.name
    return replace(new, colour=colour, shape=shape, name=name, confidence=confidence)


def _largest_first(items: list[Item]) -> list[Item]:
    return sorted(items, key=lambda item: -item.size_rad)


def _item_alone(coloured: ColouredObject, status: ItemStatus, view: ItemView) -> Item:
    place = _by_depth(coloured, view) or _by_floor(coloured, view) or _NOWHERE
    return _item(coloured, status, place)


def _item(coloured: ColouredObject, status: ItemStatus, place: _Range) -> Item:
    distance_m, scale = place
    confidence = coloured.confidence
    if coloured.name and math.isfinite(distance_m):
        sides = (
            2 * distance_m * math.tan(min(angle, 3.0) / 2)
            for angle in (coloured.width_rad, coloured.height_rad)
        )
        confidence = by_size(confidence, coloured.name, *sides, cut=coloured.is_cut)
    return Item(
        label=item_label(coloured.colour, coloured.shape, coloured.name),
        status=status,
        bearing_rad=coloured.bearing_rad,
        elevation_rad=coloured.elevation_rad,
        size_rad=max(coloured.width_rad, coloured.height_rad),
        distance_m=distance_m,
        confidence=confidence,
        box=coloured.box if status is not ItemStatus.LEFT else None,
        scale=scale,
    )


_Range = tuple[float, ScaleSource]  # distance [m], and what it rests on
_NOWHERE: _Range = (math.nan, ScaleSource.UNKNOWN)


def _by_depth(coloured: ColouredObject, view: ItemView) -> _Range | None:
    if view.depth is None or coloured.box is None:
        return None
    return _ranged(distance_in_box(view.depth, coloured.box, view.intrinsics), ScaleSource.DEPTH)


def _by_floor(coloured: ColouredObject, view: ItemView) -> _Range | None:
    if view.floor is None:
        return None
    return _ranged(distance_on_floor(coloured, view.floor), ScaleSource.FLOOR)


def _by_two_views(
    old: ColouredObject | None, new: ColouredObject, motion: Motion
) -> _Range | None:
    if old is None:
        return None
    is_odometry = motion.source is MotionSource.ODOMETRY
    scale = ScaleSource.ODOMETRY if is_odometry else motion.scale
    return _ranged(_two_view_range(old, new, motion), scale)


def _ranged(distance_m: float, scale: ScaleSource) -> _Range | None:
    return (distance_m, scale) if math.isfinite(distance_m) else None


def _two_view_range(old: ColouredObject, new: ColouredObject, motion: Motion) -> float:
    """Distance in the later view by triangulation [m]; NaN: one is cut off, or no baseline."""
    if not motion.is_metric or old.is_cut or new.is_cut:
        return math.nan
    rotation = rotation_from_ypr(motion.yaw_rad, motion.pitch_rad, motion.roll_rad)
    before = vector_of_direction(old.bearing_rad, old.elevation_rad)
    now = rotation @ vector_of_direction(new.bearing_rad, new.elevation_rad)
    if new.name and before @ now > math.cos(_BOX_PARALLAX * max(new.width_rad, new.height_rad)):
        return math.nan  # the edges of boxes waver by as much
    return triangulated_distance(before, now, np.array(motion.translation))
