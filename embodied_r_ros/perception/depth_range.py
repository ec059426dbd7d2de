# SPDX-License-Identifier: Apache-2.0
"""How far things are, by a depth image of the same view."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from embodied_r_ros.common.errors import ImageError
from embodied_r_ros.types.geometry import rays_of_pixels
import numpy as np

if TYPE_CHECKING:
    from embodied_r_ros.types.deltas import Box
    from embodied_r_ros.types.geometry import Intrinsics
    from embodied_r_ros.types.images import PackedDepth
    from numpy.typing import NDArray

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


def depth_of(packed: PackedDepth | None) -> NDArray[np.float32] | None:
    """Depth of a keyframe [m], (h, w), read-only; None: there is none, or it is damaged.

    A damaged one costs the distances that it would have given, and nothing else.
    """
    try:
        depth = packed.unpack() if packed else None
    except ImageError:
        return None
    if depth is not None:
        depth.setflags(write=False)
    return depth


def distance_in_box(depth: NDArray[np.float32], box: Box, intrinsics: Intrinsics | None) -> float:
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


def depth_in_box(depth: NDArray[np.float32], box: Box) -> float:
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


def _weights(count: int) -> NDArray[np.float64]:
    """Weights of rows or columns, the largest in the middle. Shape (count,)."""
    places = (np.arange(count) + 0.5) / count - 0.5
    return np.exp(-0.5 * (places / _WIDTH) ** 2)


def _nearest_of_the_full(depths: NDArray[np.float64], weights: NDArray[np.float64]) -> float:
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


def _middle(values: NDArray[np.float64], weights: NDArray[np.float64]) -> float:
    """Half-way between the near and the far end of values, without the outermost ones.

    The sides of a thing that lead away from the camera cover fewer pixels than they are deep.
    """
    order = np.argsort(values)
    total = np.cumsum(weights[order])
    ends = np.searchsorted(total, total[-1] * np.array([_OUTERMOST, 1 - _OUTERMOST]))
    return float(values[order][ends].mean())
