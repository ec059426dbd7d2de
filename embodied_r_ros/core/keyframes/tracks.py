# SPDX-License-Identifier: Apache-2.0
"""Corners of a view, and where the next view shows them: optical flow in pyramids.

The method is that of Lucas and Kanade (Bouguet 2001). Places are in pixels of `View.detailed`.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import cv2
from embodied_r_ros.core.keyframes.alignment import cell_centres, CELL_PX, cells_at, View
from embodied_r_ros.core.keyframes.overlap import two_view
from embodied_r_ros.core.keyframes.small_matrices import median
import numpy as np

if TYPE_CHECKING:
    from embodied_r_ros.core.keyframes.alignment import Alignment
    from embodied_r_ros.core.types.arrays import Bools, Float32s, UInt8s

SPACING_PX = 20  # one corner is sought in each square of this size that has none
_BORDER_PX = 4
# Window [px], pyramid levels there, and back again: from good guesses, and from coarse ones.
_QUICK, _THOROUGH = (13, 2, 0), (15, 3, 1)
_STOP = (cv2.TERM_CRITERIA_COUNT | cv2.TERM_CRITERIA_EPS, 12, 0.03)
_CLOSES_PX = 0.7  # a corner that is followed back has to end so near to where it was
_BLOCK_PX = 3
_LEAST_QUALITY = 2e-5  # smaller eigenvalue of the gradients; below, noise looks like a corner
_LEAST_CELLS, _MOST_CELLS = 20, 150  # that say how a view moved
_QUALITY_SHARE = 0.01  # of what good corners of the image have
# Where a camera stands: how far corners may lie off, their least share, and outside of the middle
# half of the view, the least number in each of the quarters that have as many, and these quarters.
_STANDS_PX, _STANDS_SHARE, _IN_QUARTER, _QUARTERS, _MIDDLE = 0.25, 0.2, 3, 3, 0.25


class TrackedView:
    """A view with its contrast evened out, so that exposure and faint walls matter less."""

    def __init__(self, view: View) -> None:
        self.view = view
        self.grey = np.asarray(cv2.createCLAHE(2.5, (6, 6)).apply(view.open_detailed), np.uint8)

    @property
    def size(self) -> tuple[int, int]:
        """Width and height [px]."""
        return self.grey.shape[1], self.grey.shape[0]

    def is_fixed(self, places: Float32s) -> Bools:
        """Which places (N, 2) [px] lie at something that is fixed to the camera. Shape (N,)."""
        if self.view.beside_fixed is None:
            return np.zeros(len(places), bool)
        return cells_at(self.view.beside_fixed, places * (self.view.width / self.size[0]))


def follow(
    before: TrackedView,
    now: TrackedView,
    places: Float32s,
    guesses: Float32s,
    *,
    is_thorough: bool = False,
) -> tuple[Float32s, Bools]:
    """Follow places from one view to the next.

    Args:
        before: The view that shows the places.
        now: The next view, of the same size.
        places: In the first view [px]. Shape (N, 2).
        guesses: Where the second may show them [px]. Shape (N, 2).
        is_thorough: Take twice the time, for views that lie far apart.

    Returns:
        Where the second view shows them, and whether that is sure. Shapes (N, 2), (N,).
    """
    if not len(places):
        return places, np.zeros(0, bool)
    window_px, levels, levels_back = _THOROUGH if is_thorough else _QUICK
    there, is_good = _flow(before.grey, now.grey, places, guesses, (window_px, levels))
    back, is_good_back = _flow(now.grey, before.grey, there, places, (window_px, levels_back))
    away_x, away_y = (back - places).T
    closes = away_x * away_x + away_y * away_y < _CLOSES_PX**2
    last = np.array(now.size) - _BORDER_PX
    inside = ((there >= _BORDER_PX) & (there < last)).all(axis=1)
    if now.view.beside_fixed is not None:
        inside &= ~now.is_fixed(there)
    return there, is_good & is_good_back & closes & inside


def _flow(
    first: UInt8s, second: UInt8s, places: Float32s, guesses: Float32s, effort: tuple[int, int]
) -> tuple[Float32s, Bools]:
    there, status, _ = cv2.calcOpticalFlowPyrLK(
        first,
        second,
        places.reshape(-1, 1, 2),
        guesses.reshape(-1, 1, 2).copy(),
        winSize=(effort[0], effort[0]),
        maxLevel=effort[1],
        criteria=_STOP,
        flags=cv2.OPTFLOW_USE_INITIAL_FLOW,
    )
    return np.asarray(there, np.float32).reshape(-1, 2), status.ravel() > 0


def coarse_guesses(before: TrackedView, now: TrackedView, places: Float32s) -> Float32s:
    """Where a view may show places of another one, by aligning the two views. Shapes (N, 2)."""
    alignment = two_view(before.view, now.view).alignment
    if alignment is None:
        return places
    scale = before.view.width / before.size[0]
    cells = (places * scale - (CELL_PX - 1) / 2) / CELL_PX
    rim = cv2.BORDER_REPLICATE
    moves = cv2.remap(
        alignment.offsets,
        cells[:, None].astype(np.float32),
        None,
        cv2.INTER_LINEAR,
        borderMode=rim,
    )  # type: ignore[call-overload]
    return np.asarray(places + moves.reshape(-1, 2) / scale, np.float32)


class Drift:
    """How a view moved since an earlier one, by where both show cells of a keyframe."""

    def __init__(self, places: Float32s, moves: Float32s) -> None:
        """Take places in the earlier view, and how they moved [work px]. Shapes (N, 2)."""
        self._places, self._moves = places, moves
        self.shift_px = median(np.hypot(moves[:, 0], moves[:, 1]))

    def guesses(self, view: TrackedView, places: Float32s) -> Float32s:
        """Where the later view may show places of the earlier one. Shapes (N, 2)."""
        scale = np.float32(view.view.width / view.size[0])
        known = _with_ones(self._places)
        affine = np.linalg.lstsq(known, self._moves, rcond=None)[0]
        return np.asarray(places + _with_ones(places * scale) @ affine / scale, np.float32)


def _with_ones(places: Float32s) -> Float32s:
    return np.column_stack([places, np.ones(len(places), np.float32)])


def drift(earlier: Float32s | None, later: Alignment) -> Drift | None:
    """How the view moved between two alignments of one keyframe.

    Args:
        earlier: Offsets of the keyframe's cells in the earlier view; None: unknown.
        later: Alignment of the keyframe with the later view.

    Returns:
        The movement. None: too little is known of it.
    """
    if earlier is None or earlier.shape != later.offsets.shape:
        return None
    chosen = np.flatnonzero(later.trusted)
    if len(chosen) < _LEAST_CELLS:
        return None
    chosen = chosen[:: -(-len(chosen) // _MOST_CELLS)]
    rows, columns = later.trusted.shape
    centres = cell_centres(columns * CELL_PX, rows * CELL_PX)
    first, earlier, offsets = (
        values.reshape(-1, 2)[chosen] for values in (centres, earlier, later.offsets)
    )
    return Drift(first + earlier, offsets - earlier)


class _Buffer(threading.local):
    """Memory for a number per pixel, one per thread: fresh memory costs more than corners."""

    def __init__(self) -> None:
        self._values = np.empty((0, 0), np.float32)

    def of_size(self, height: int, width: int) -> Float32s:
        """The memory, with whatever it holds. Shape (height, width)."""
        if self._values.shape != (height, width):
            self._values = np.empty((height, width), np.float32)
        return self._values


_BUFFER = _Buffer()


def find_corners(view: TrackedView, taken: Float32s) -> Float32s:
    """The best corner of each square that holds none of the places taken, best first. (N, 2)."""
    width, height = view.size
    columns, rows = width // SPACING_PX, height // SPACING_PX
    quality = _BUFFER.of_size(height, width)
    cv2.cornerMinEigenVal(view.grey, _BLOCK_PX, quality)
    for rim in (quality, quality.T):
        rim[:_BORDER_PX], rim[-_BORDER_PX:] = 0, 0
    if (fixed := view.view.beside_fixed) is not None:
        size = width, height
        quality[cv2.resize(fixed.astype(np.uint8), size, interpolation=cv2.INTER_NEAREST) > 0] = 0
    squares = quality[: rows * SPACING_PX, : columns * SPACING_PX]
    squares = squares.reshape(rows, SPACING_PX, columns, SPACING_PX).transpose(0, 2, 1, 3)
    squares = squares.reshape(rows * columns, -1)
    best = squares.argmax(axis=1)
    values = squares[np.arange(len(best)), best]
    free = values > max(_LEAST_QUALITY, _QUALITY_SHARE * float(np.percentile(values, 90)))
    at = (taken // SPACING_PX).astype(int)
    at = at[(at[:, 0] < columns) & (at[:, 1] < rows)]
    free[at[:, 1] * columns + at[:, 0]] = False
    index = np.flatnonzero(free)
    index = index[np.argsort(-values[index])]
    x = (index % columns) * SPACING_PX + best[index] % SPACING_PX
    y = (index // columns) * SPACING_PX + best[index] // SPACING_PX
    corners = np.stack([x, y], axis=1).astype(np.float32)
    if len(corners) and len(taken):
        away_x, away_y = corners.T[:, :, None] - taken.T[:, None]
        squares = (away_x * away_x + away_y * away_y).min(axis=1)
        corners = corners[squares > (SPACING_PX / 3) ** 2]
    return corners


def stands(earlier: View, later: View) -> bool:
    """Whether a camera stands, however much moves before it: corners all around stay in place.

    A camera that moves shifts what is near, and one that turns shifts all. What is fixed to it,
    and what lies far ahead, is not all around.
    """
    if earlier.size != later.size:
        return False
    before = TrackedView(earlier)
    corners = find_corners(before, np.empty((0, 2), np.float32))
    there, is_there = follow(before, TrackedView(later), corners, corners)
    stays = is_there & (np.hypot(*(there - corners).T) < _STANDS_PX)
    from_middle = corners / np.array(before.size, np.float32) - 0.5
    outer = from_middle[stays & (np.abs(from_middle).max(axis=1, initial=0.0) > _MIDDLE)]
    quarters = np.bincount((outer[:, 0] > 0) + 2 * (outer[:, 1] > 0), minlength=4)
    is_around = np.count_nonzero(quarters >= _IN_QUARTER) >= _QUARTERS
    return bool(is_around and np.count_nonzero(stays) >= _STANDS_SHARE * len(corners))
