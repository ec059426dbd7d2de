# SPDX-License-Identifier: Apache-2.0
"""What the silhouette of an object proves of its shape, whole or in part.

A silhouette is a mask of the image, True inside. Shape (H, W).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import cv2
from embodied_r_ros.vocabulary import roundness, shape_word
import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

_WHOLE_SOLIDITY = 0.85  # below, something hides a part
_HALF_ROUND = 0.94  # roundness of a half and its mirror image
_HALF_ASPECT = 1.25  # a half ball and its mirror image are no more drawn out, either way
_MIN_HALF_PX = 5


def hull(patch: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """The convex hull of a silhouette. Shape (H, W)."""
    corners = cv2.convexHull(np.argwhere(patch)[:, ::-1].astype(np.int32))
    return cv2.fillConvexPoly(np.zeros(patch.shape, np.uint8), corners, 1).astype(bool)


def solidity(patch: NDArray[np.bool_]) -> float:
    """Share of its convex hull that a silhouette fills."""
    return float(patch.sum() / hull(patch).sum())


def is_cut(patch: NDArray[np.bool_]) -> bool:
    """Whether an edge of the image may hide a part."""
    return bool(patch[[0, -1]].any() or patch[:, [0, -1]].any())


def shape_of(patch: NDArray[np.bool_], aspect: float, elevation_rad: float) -> str:
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


def _shape_of_cut(patch: NDArray[np.bool_], aspect: float, elevation_rad: float) -> str:
    """What is cut off is at least as wide, or as high, as what is left of it."""
    is_narrowed, is_shortened = patch[:, [0, -1]].any(), patch[[0, -1]].any()
    word = shape_word(aspect, 0.0, elevation_rad)
    if solidity(patch) < _WHOLE_SOLIDITY or (is_narrowed and is_shortened):
        return ''
    return word if word == ('tall' if is_shortened else 'flat') else ''


def _has_round_half(patch: NDArray[np.bool_]) -> bool:
    """Whether a half of the silhouette, seen from one of four sides, is that of a ball."""
    rows, columns = np.nonzero(patch)
    box = patch[rows.min() : rows.max() + 1, columns.min() : columns.max() + 1]
    return any(_is_half_ball(np.rot90(box, quarter)) for quarter in range(4))


def _is_half_ball(box: NDArray[np.bool_]) -> bool:
    """Whether the part down to the widest row is the half of a ball."""
    widths = box.sum(axis=1)
    middle = int(np.mean(np.nonzero(widths == widths.max())[0]))
    if middle < _MIN_HALF_PX:
        return False
    whole = np.concatenate([box[: middle + 1], box[:middle][::-1]])
    aspect = len(whole) / widths.max()
    fits = 1 / _HALF_ASPECT <= aspect <= _HALF_ASPECT
    return bool(fits and roundness(whole) >= _HALF_ROUND)
