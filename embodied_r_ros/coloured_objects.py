# SPDX-License-Identifier: Apache-2.0
"""Salient coloured objects: what stands out of a picture without knowing what it is.

An object is a compact patch of one strong colour before surroundings that are different. What has
a strong colour but fills the view, hangs from its upper edge or is strewn over it (sky, water,
leaves) is scenery. Colours and shapes are those of `vocabulary`.
"""

from __future__ import annotations

from dataclasses import dataclass
import math
from typing import TYPE_CHECKING

import cv2
from embodied_r_ros.geometry import rays_of_pixels
from embodied_r_ros.vocabulary import (
    COLOURS,
    FLAT_UP_TO,
    hue_table,
    MIN_SATURATION,
    MIN_VALUE,
    roundness,
    shape_word,
    TALL_FROM,
)
import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator

    from embodied_r_ros.geometry import Intrinsics
    from numpy.typing import NDArray

MIN_AREA = 0.001  # of the image
MAX_AREA = 0.4  # of the image
# In OpenCV's 8-bit CIELAB. Saturation alone would find colour in what is nearly black.
_MIN_CHROMA = 26.0
_MIN_LIGHTNESS = 50.0  # 0..255
_MIN_CONTRAST = 25.0  # between a patch and its surroundings
_RING = 0.012  # width of the surroundings, of the image's width
_MIN_GATHERED = 0.5  # of all pixels of a colour lie in its objects; else it is strewn
_MIN_SOLIDITY = 0.8  # of its convex hull that a patch fills
_WHOLE_SOLIDITY = 0.85  # below, something hides a part
_RIM = 3.5  # length to width of a strip along the edge that is no object
_PIXEL_CORNERS = np.array([[-0.5, -0.5], [0.5, -0.5], [-0.5, 0.5], [0.5, 0.5]])


@dataclass(frozen=True)
class ColouredObject:
    """A patch of one colour, as directions from the camera in body axes."""

    colour: str  # a name of vocabulary.COLOURS
    shape: str  # one of vocabulary.SHAPES; empty: cut off or hidden, so that it cannot be told
    bearing_rad: float  # of the middle, positive left
    elevation_rad: float  # of the middle, positive up
    width_rad: float
    height_rad: float
    lowest: tuple[float, float, float]  # ray to the lowest point
    is_cut: bool  # by an edge of the image
    is_cut_below: bool  # by the lower edge
    confidence: float  # 0..1, how compact; halved where the image cuts it off


def find_objects(image: NDArray[np.uint8], intrinsics: Intrinsics) -> list[ColouredObject]:
    """Find what stands out by its colour, largest first.

    Args:
        image: BGR, uint8, (H, W, 3).
        intrinsics: Of this image.
    """
    colours = _colour_indices(image)
    lab = cv2.cvtColor(image, cv2.COLOR_BGR2LAB).astype(np.float32)
    found: list[tuple[float, ColouredObject]] = []
    for index, colour in enumerate(COLOURS):
        mask = colours == index
        patches = [patch for patch in _patches(mask) if _stands_out(lab, patch)]
        areas = [float(patch.mean()) for patch in patches]
        if sum(areas) < _MIN_GATHERED * mask.mean():
            continue
        for area, patch in zip(areas, patches, strict=True):
            found.append((area, _object(patch, intrinsics, colour.name)))
    return [item for _, item in sorted(found, key=lambda pair: -pair[0])]


def _colour_indices(image: NDArray[np.uint8]) -> NDArray[np.int8]:
    """Index in COLOURS of each pixel, -1 where it has no named colour. Shape (H, W)."""
    hsv = cv2.cvtColor(cv2.medianBlur(image, 3), cv2.COLOR_BGR2HSV)
    hue, saturation, value = cv2.split(hsv)
    indices = hue_table()[hue]
    indices[(saturation < MIN_SATURATION) | (value < MIN_VALUE)] = -1
    return np.asarray(indices)


def _patches(mask: NDArray[np.bool_]) -> Iterator[NDArray[np.bool_]]:
    """Compact patches of a mask that may be objects by their place and size."""
    kernel = cv2.getStructuringElement(cv2.MORPH_ELLIPSE, (3, 3))
    closed = cv2.morphologyEx(mask.astype(np.uint8), cv2.MORPH_CLOSE, kernel)
    count, labels, stats, _ = cv2.connectedComponentsWithStats(closed, connectivity=8)
    for label in range(1, count):
        if MIN_AREA <= stats[label, cv2.CC_STAT_AREA] / mask.size <= MAX_AREA:
            patch = labels == label
            if _solidity(patch) >= _MIN_SOLIDITY and not (_is_backdrop(patch) or _is_rim(patch)):
                yield patch


def _solidity(patch: NDArray[np.bool_]) -> float:
    hull = cv2.convexHull(np.argwhere(patch).astype(np.int32))
    # The hull runs through the centres of pixels; half of its edge lies outside it.
    area = cv2.contourArea(hull) + cv2.arcLength(hull, True) / 2 + 1
    return float(patch.sum()) / area


def _is_backdrop(patch: NDArray[np.bool_]) -> bool:
    """Whether the patch hangs from the upper edge, or reaches three edges: sky, wall, water."""
    edges = [patch[0], patch[:, 0], patch[:, -1], patch[-1]]
    return bool(patch[0].mean() > 0.3 or sum(edge.any() for edge in edges) > 2)


def _is_rim(patch: NDArray[np.bool_]) -> bool:
    """Whether the patch is but the outermost strip of something beyond the edge of the image."""
    height, width = np.ptp(np.argwhere(patch), axis=0) + 1
    beside = patch[:, 0].any() or patch[:, -1].any()
    below = patch[0].any() or patch[-1].any()
    return bool((beside and height > _RIM * width) or (below and width > _RIM * height))


def _stands_out(lab: NDArray[np.float32], patch: NDArray[np.bool_]) -> bool:
    """Whether the patch is strongly coloured, bright enough, and unlike what surrounds it."""
    side = 2 * max(2, round(_RING * patch.shape[1])) + 1
    grown, inner = (_grown(patch, size) for size in (side, 3))
    colour = np.median(lab[patch], axis=0)
    chroma = math.hypot(colour[1] - 128, colour[2] - 128)
    if colour[0] < _MIN_LIGHTNESS or chroma < _MIN_CHROMA:
        return False
    around = lab[grown & ~inner]
    return bool(len(around) and np.median(np.linalg.norm(around - colour, axis=1)) > _MIN_CONTRAST)


def _grown(patch: NDArray[np.bool_], side: int) -> NDArray[np.bool_]:
    return cv2.dilate(patch.astype(np.uint8), np.ones((side, side), np.uint8)).astype(bool)


def _object(patch: NDArray[np.bool_], intrinsics: Intrinsics, colour: str) -> ColouredObject:
    contours, _ = cv2.findContours(
        patch.astype(np.uint8), cv2.RETR_EXTERNAL, cv2.CHAIN_APPROX_NONE
    )
    outline = np.concatenate(contours).reshape(-1, 2).astype(np.float64)
    # Pixels are squares: their corners bound the patch, not their centres.
    corners = (outline[:, None] + _PIXEL_CORNERS).reshape(-1, 2)
    rays = rays_of_pixels(intrinsics, corners)
    bearings = np.arctan2(rays[:, 1], rays[:, 0])
    elevations = np.arctan2(rays[:, 2], np.hypot(rays[:, 0], rays[:, 1]))
    x, y, z = (float(value) for value in rays[elevations.argmin()])
    width, height = float(np.ptp(bearings)), float(np.ptp(elevations))
    is_cut = bool(patch[[0, -1]].any() or patch[:, [0, -1]].any())
    return ColouredObject(
        colour,
        _shape(patch, height / width),
        float(bearings.max() - width / 2),
        float(elevations.max() - height / 2),
        width,
        height,
        (x, y, z),
        is_cut,
        bool(patch[-1].any()),
        _solidity(patch) * (0.5 if is_cut else 1.0),
    )


def _shape(patch: NDArray[np.bool_], aspect: float) -> str:
    is_narrowed = bool(patch[:, 0].any() or patch[:, -1].any())
    is_shortened = bool(patch[0].any() or patch[-1].any())
    if _solidity(patch) < _WHOLE_SOLIDITY:
        return ''
    if is_narrowed:
        return 'flat' if aspect <= FLAT_UP_TO and not is_shortened else ''
    if is_shortened:
        return 'tall' if aspect >= TALL_FROM else ''
    return shape_word(aspect, roundness(patch))
