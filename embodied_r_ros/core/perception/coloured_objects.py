# SPDX-License-Identifier: Apache-2.0
"""Salient coloured objects: what stands out of a picture, and the shape of its silhouette."""

from __future__ import annotations

from dataclasses import dataclass
import math
from typing import TYPE_CHECKING

import cv2
from embodied_r_ros.core.types.geometry import (
    as_position,
    matrix_from_quaternion,
    rays_of_pixels,
    vector_of_direction,
)
from embodied_r_ros.core.types.images import shrink
from embodied_r_ros.core.types.vocabulary import (
    COLOURS,
    hue_table,
    MIN_SATURATION,
    MIN_VALUE,
    roundness,
    shape_word,
)
import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from embodied_r_ros.core.types.arrays import Bools, Float32s, Float64s, UInt8s
    from embodied_r_ros.core.types.deltas import Box
    from embodied_r_ros.core.types.geometry import Intrinsics
    from numpy.typing import NDArray

_WHOLE_SOLIDITY = 0.85  # below, something hides a part
_HALF_ROUND = 0.94  # roundness of a half and its mirror image
_HALF_ASPECT = 1.25  # a half ball and its mirror image are no more drawn out, either way
_MIN_HALF_PX = 5


def hull(patch: Bools) -> Bools:
    """The convex hull of a silhouette. Shape (H, W)."""
    corners = cv2.convexHull(np.argwhere(patch)[:, ::-1].astype(np.int32))
    return cv2.fillConvexPoly(np.zeros(patch.shape, np.uint8), corners, 1).astype(bool)


def solidity(patch: Bools) -> float:
    """Share of its convex hull that a silhouette fills."""
    return float(patch.sum() / hull(patch).sum())


def is_cut(patch: Bools) -> bool:
    """Whether an edge of the image may hide a part."""
    return bool(patch[[0, -1]].any() or patch[:, [0, -1]].any())


def shape_of(patch: Bools, aspect: float, elevation_rad: float) -> str:
    """The shape, one of vocabulary.SHAPES, as far as the silhouette proves it; empty: unknown.

    Args:
        patch: The silhouette.
        aspect: Height divided by width, both as angles from the camera.
        elevation_rad: Of the line of sight above the horizon.
    """
    shape = ''
    if is_cut(patch):
        shape = _shape_of_cut(patch, aspect, elevation_rad)
    elif solidity(patch) >= _WHOLE_SOLIDITY:
        shape = shape_word(aspect, roundness(patch), elevation_rad)
    # A ball behind the edge of a table has straight sides too.
    return 'round' if shape in {'', 'blocky'} and _has_round_half(patch) else shape


def _shape_of_cut(patch: Bools, aspect: float, elevation_rad: float) -> str:
    """What is cut off is at least as wide, or as high, as what is left of it."""
    is_narrowed, is_shortened = patch[:, [0, -1]].any(), patch[[0, -1]].any()
    word = shape_word(aspect, 0.0, elevation_rad)
    if solidity(patch) < _WHOLE_SOLIDITY or (is_narrowed and is_shortened):
        return ''
    return word if word == ('tall' if is_shortened else 'flat') else ''


def _has_round_half(patch: Bools) -> bool:
    """Whether a half of the silhouette, seen from one of four sides, is that of a ball."""
    rows, columns = np.nonzero(patch)
    box = patch[rows.min() : rows.max() + 1, columns.min() : columns.max() + 1]
    return any(_is_half_ball(np.rot90(box, quarter)) for quarter in range(4))


def _is_half_ball(box: Bools) -> bool:
    """Whether the part down to the widest row is the half of a ball."""
    widths = box.sum(axis=1)
    middle = int(np.mean(np.nonzero(widths == widths.max())[0]))
    if middle < _MIN_HALF_PX:
        return False
    whole = np.concatenate([box[: middle + 1], box[:middle][::-1]])
    aspect = len(whole) / widths.max()
    fits = 1 / _HALF_ASPECT <= aspect <= _HALF_ASPECT
    return bool(fits and roundness(whole) >= _HALF_ROUND)


MAX_SIDE_PX = 640  # larger images are shrunk first
MIN_AREA = 0.001  # of the image
MAX_AREA = 0.4  # of the image
# In OpenCV's 8-bit CIELAB. Saturation alone would find colour in what is nearly black.
_MIN_CHROMA = 26.0
_MIN_LIGHTNESS = 50.0  # 0..255
_DOMINANT = 0.5  # of what is in a box has the colour of the thing
_SAMPLE_SIDE_PX = 96  # so much of it is enough to see that
_MIN_CONTRAST = 25.0  # between a patch and its surroundings
_RING = 0.012  # width of the surroundings, of the image's width
_MIN_GATHERED = 0.5  # of all pixels of a colour lie in its objects; else it is strewn
_THICK = 0.03  # width of what is one piece whatever its form, of the image's width
_MIN_SOLIDITY = 0.8  # of its convex hull that a patch fills
_HANGING = 0.3  # of the upper edge that a patch covers at most
_FILLING = 0.6  # of another edge
# What an edge cuts off to a strip this long for its width, or narrower than this share of the
# image's width, is too little to speak of.
_STRIP_RATIO = 3.0
_STRIP = 0.03
_PIXEL_CORNERS = np.array([[-0.5, -0.5], [0.5, -0.5], [-0.5, 0.5], [0.5, 0.5]])


@dataclass(frozen=True)
class ColouredObject:
    """A patch of one colour or a thing with a name, as directions from the camera in body axes."""

    colour: str  # a name of vocabulary.COLOURS; empty: none, or none that is clearly its own
    shape: str  # one of vocabulary.SHAPES; empty: cut off or hidden, so that it cannot be told
    bearing_rad: float  # of the middle, positive left
    elevation_rad: float  # of the middle, positive up
    width_rad: float
    height_rad: float
    lowest: tuple[float, float, float]  # ray to the lowest point
    is_cut: bool  # by an edge of the image
    is_cut_below: bool  # by the lower edge
    confidence: (
        float  # 0..1, how compact; halved where the image cuts it off; by a detector: score
    )
    # Left, top, right, bottom as shares of the image's width and height.
    box: Box | None = None
    name: str = ''  # the class that a detector gave; empty: none


def find_objects(
    image: UInt8s,
    intrinsics: Intrinsics,
    orientation: tuple[float, float, float, float] = (0.0, 0.0, 0.0, 1.0),
) -> list[ColouredObject]:
    """Find what stands out by its colour, largest first.

    Args:
        image: BGR, uint8, (H, W, 3).
        intrinsics: Of this image.
        orientation: Of the camera link in a frame whose z axis points up, as a quaternion
            x, y, z, w. It matters for the shapes of objects seen from above.
    """
    image = shrink(image, MAX_SIDE_PX)
    intrinsics = intrinsics.scaled(image.shape[1], image.shape[0])
    colours = _colour_indices(image)
    lab = cv2.cvtColor(image, cv2.COLOR_BGR2LAB).astype(np.float32)
    up = matrix_from_quaternion(orientation)[2]  # (3,), in body axes
    objects: list[tuple[float, ColouredObject]] = []
    for index, colour in enumerate(COLOURS):
        mask = colours == index
        patches = list(_patches(mask, hidden=(colours >= 0) & ~mask))
        if _is_strewn(mask, patches):
            continue
        for patch in patches:
            if not _is_scenery(patch) and _stands_out(lab, patch):
                objects.append((patch.mean(), _object(patch, intrinsics, colour.name, up)))
    return [item for _, item in sorted(objects, key=lambda pair: -pair[0])]


def dominant_colour(image: UInt8s) -> str:
    """The colour that most of an image has and no other much of it; empty: there is none.

    Args:
        image: BGR, uint8, (H, W, 3).
    """
    image = shrink(image, _SAMPLE_SIDE_PX)
    shares = [float((_colour_indices(image) == index).mean()) for index in range(len(COLOURS))]
    best = int(np.argmax(shares))
    others = sum(shares) - shares[best]
    if shares[best] < _DOMINANT or others > shares[best] / 3:
        return ''
    lab = cv2.cvtColor(image, cv2.COLOR_BGR2LAB).astype(np.float32)
    return COLOURS[best].name if _is_strong(np.median(lab.reshape(-1, 3), axis=0)) else ''


def _is_strong(colour: Float32s) -> bool:
    """Whether a colour of CIELAB is bright and far enough from grey to have a name."""
    chroma = math.hypot(colour[1] - 128, colour[2] - 128)
    return bool(colour[0] >= _MIN_LIGHTNESS and chroma >= _MIN_CHROMA)


def _colour_indices(image: UInt8s) -> NDArray[np.int8]:
    """Index in COLOURS of each pixel, -1 where it has no named colour. Shape (H, W)."""
    hsv = cv2.cvtColor(cv2.medianBlur(image, 3), cv2.COLOR_BGR2HSV)
    hue, saturation, value = cv2.split(hsv)
    indices = hue_table()[hue]
    indices[(saturation < MIN_SATURATION) | (value < MIN_VALUE)] = -1
    return np.asarray(indices)


def _patches(mask: Bools, hidden: Bools) -> Iterator[Bools]:
    """Compact patches of a mask, where those of other colours may hide a part of one."""
    kernel = cv2.getStructuringElement(cv2.MORPH_ELLIPSE, (3, 3))
    closed = cv2.morphologyEx(mask.astype(np.uint8), cv2.MORPH_CLOSE, kernel)
    count, labels, stats, _ = cv2.connectedComponentsWithStats(closed, connectivity=8)
    for label in range(1, count):
        if stats[label, cv2.CC_STAT_AREA] >= MIN_AREA * mask.size:
            patch = labels == label
            if patch.sum() >= _MIN_SOLIDITY * (hull(patch) & ~hidden).sum():
                yield patch


def _is_strewn(mask: Bools, patches: Sequence[Bools]) -> bool:
    """Whether most of a colour lies in bits and pieces, as leaves do.

    What is no compact patch, but thick everywhere, is one piece: the arm of a robot, say.
    """
    area = sum(patch.mean() for patch in patches)
    if area >= _MIN_GATHERED * mask.mean():
        return False
    side = 2 * round(_THICK * mask.shape[1] / 2) + 1
    kernel = cv2.getStructuringElement(cv2.MORPH_ELLIPSE, (side, side))
    thick = cv2.morphologyEx(mask.astype(np.uint8), cv2.MORPH_OPEN, kernel).astype(bool)
    thick |= np.any(patches, axis=0) if patches else False
    return bool(thick.mean() < _MIN_GATHERED * mask.mean())


def _is_scenery(patch: Bools) -> bool:
    """Whether the patch is too large, fills an edge, or reaches three of them.

    So does the outermost strip of something that lies mostly beyond the edge.
    """
    top, *others = edges = [patch[0], patch[-1], patch[:, 0], patch[:, -1]]
    fills = top.mean() > _HANGING or any(edge.mean() > _FILLING for edge in others)
    above, below, left, right = (bool(edge.any()) for edge in edges)
    if patch.mean() > MAX_AREA or fills or above + below + left + right > 2:
        return True
    height, width = np.ptp(np.argwhere(patch), axis=0) + 1
    least = _STRIP * patch.shape[1]
    beside = (left or right) and (height > _STRIP_RATIO * width or width < least)
    across = (above or below) and (width > _STRIP_RATIO * height or height < least)
    return bool(beside or across)


def _stands_out(lab: Float32s, patch: Bools) -> bool:
    """Whether the patch is strongly coloured, bright enough, and unlike what surrounds it."""
    side = 2 * max(2, round(_RING * patch.shape[1])) + 1
    grown, inner = (_grown(patch, size) for size in (side, 3))
    colour = np.median(lab[patch], axis=0)
    if not _is_strong(colour):
        return False
    around = lab[grown & ~inner]
    return bool(len(around) and np.median(np.linalg.norm(around - colour, axis=1)) > _MIN_CONTRAST)


def _grown(patch: Bools, side: int) -> Bools:
    return cv2.dilate(patch.astype(np.uint8), np.ones((side, side), np.uint8)).astype(bool)


def _object(patch: Bools, intrinsics: Intrinsics, colour: str, up: Float64s) -> ColouredObject:
    contours, _ = cv2.findContours(
        patch.astype(np.uint8), cv2.RETR_EXTERNAL, cv2.CHAIN_APPROX_NONE
    )
    outline = np.concatenate(contours).reshape(-1, 2).astype(np.float64)
    # Pixels are squares: their corners bound the patch, not their centres.
    corners = (outline[:, None] + _PIXEL_CORNERS).reshape(-1, 2)
    rays = rays_of_pixels(intrinsics, corners)
    bearings = np.arctan2(rays[:, 1], rays[:, 0])
    elevations = np.arctan2(rays[:, 2], np.hypot(rays[:, 0], rays[:, 1]))
    width, height = float(np.ptp(bearings)), float(np.ptp(elevations))
    bearing = float(bearings.max() - width / 2)
    elevation = float(elevations.max() - height / 2)
    above = math.asin(float(np.clip(up @ vector_of_direction(bearing, elevation), -1.0, 1.0)))
    at_edge = is_cut(patch)
    rows, columns = patch.shape
    left, top = outline.min(axis=0)
    right, bottom = outline.max(axis=0) + 1
    return ColouredObject(
        colour,
        shape_of(patch, height / width, above),
        bearing,
        elevation,
        width,
        height,
        as_position(rays[elevations.argmin()]),
        at_edge,
        bool(patch[-1].any()),
        solidity(patch) * (0.5 if at_edge else 1.0),
        (left / columns, top / rows, right / columns, bottom / rows),
    )
