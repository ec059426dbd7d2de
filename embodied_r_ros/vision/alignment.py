# SPDX-License-Identifier: Apache-2.0
"""Where each cell of one view lies in another: a mesh that follows parallax.

One homography explains a plane, and a room has many. The mesh starts from a guess, is corrected by
dense optical flow between the first view and the warped second one, and keeps what looks alike
after the correction. Everywhere else, outside the second view above all, it continues what is
known nearby around a common homography.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
import math
import threading
from typing import Any, TYPE_CHECKING

import cv2
from embodied_r_ros.vision.views import around_cells, cell_centres, CELL_PX, pixel_grid
import numpy as np

if TYPE_CHECKING:
    from embodied_r_ros.vision.views import View
    from numpy.typing import NDArray

# Variance below which brightness says nothing, so that two blank surfaces look alike [grey^2].
_FLAT_VARIANCE = 9.0
_ALIKE = 0.5  # likeness from which on a cell is trusted
_RIM_PX = 2.0  # nearer to the rim of the second view, windows reach out of it
_MIN_TRUSTED = 20  # cells; fewer say nothing of the rest
_FITTED_CELLS = 400  # at most so many decide the common homography
_FAR_PX = 1e4
_MAX_GROWTH = 25.0  # of a cell's area; more is a torn mesh
# A cell that should be in view but does not look alike is seen in three cases of four; else it is
# hidden by something nearer. Measured on rendered rooms (bench/rendered_paths.py).
_SEEN_THOUGH_UNLIKE = 0.75
# Where a block of so many cells looks like nothing that was there, something else is.
_BLOCK = np.ones((5, 5), np.uint8)
# Box sizes [cells] and weights by which trusted cells speak for their surroundings: the nearest
# decide, farther ones only where there are none.
_SURROUNDINGS = ((5, 1.0), (9, 1e-2), (31, 1e-5))


@dataclass(frozen=True)
class Alignment:
    """Where the first view's cells lie in the second. Arrays are (rows, columns)."""

    offsets: NDArray[np.float32]  # (rows, columns, 2), second minus first position [px]
    likeness: NDArray[np.float32]  # -1..1, of the two surroundings; 1: equal but for the light
    trusted: NDArray[np.bool_]  # in view, textured and alike
    comparable: NDArray[np.bool_]  # in view and textured in one of both

    @property
    def unlike(self) -> NDArray[np.bool_]:
        """What can be compared and does not look alike."""
        return self.comparable & (self.likeness < _ALIKE)

    @property
    def score(self) -> float:
        """Share of what can be compared that looks alike, 0..1."""
        return float(self.trusted.sum()) / max(1, int(self.comparable.sum()))


def no_offsets(view: View) -> NDArray[np.float32]:
    """Offsets of a camera that did not move. Shape (rows, columns, 2)."""
    return np.zeros_like(cell_centres(view.width, view.height))


def homography_offsets(view: View, homography: NDArray[np.float64]) -> NDArray[np.float32]:
    """Offsets [px] by a homography (3, 3) from a view to another. (rows, columns, 2)."""
    centres = cell_centres(view.width, view.height)
    x, y = centres[..., 0], centres[..., 1]
    u, v, w = (row[0] * x + row[1] * y + row[2] for row in homography)
    # What lies behind the camera is in no view; the middle of the image lies before it.
    middle = w[w.shape[0] // 2, w.shape[1] // 2]
    ahead = w * np.sign(middle) > 1e-3 * abs(middle)
    w = np.where(ahead, w, 1.0)
    places = np.stack([np.where(ahead, u / w, -_FAR_PX), np.where(ahead, v / w, -_FAR_PX)], -1)
    return (np.clip(places, -_FAR_PX, _FAR_PX) - centres).astype(np.float32)


def align(first: View, second: View, offsets: NDArray[np.float32], passes: int = 1) -> Alignment:
    """Correct a guess of where the cells of one view lie in another.

    Args:
        first: The view whose cells are placed.
        second: The view that they are placed in.
        offsets: The guess [px]. Shape (rows, columns, 2).
        passes: How often optical flow corrects it; once follows a camera, a guess from few
            matches takes three.
    """
    for _ in range(passes - 1):
        offsets = _continued(first, judged(first, second, _flowed(first, second, offsets)))
    found = judged(first, second, _flowed(first, second, offsets))
    return replace(found, offsets=_continued(first, found))


def judged(first: View, second: View, offsets: NDArray[np.float32]) -> Alignment:
    """Say where two views look alike, given where the cells of the first lie in the second.

    Likeness is normalised cross-correlation, which exposure and most of the lighting leave alone.
    """
    warped = _warped(first, second, offsets).astype(np.float32)
    mean = around_cells(warped)
    variance = np.maximum(around_cells(warped * warped) - mean * mean, 0.0)
    covariance = around_cells(first.brightness * warped) - first.mean * mean
    flat = _FLAT_VARIANCE
    likeness = (covariance + flat) / np.sqrt((first.variance + flat) * (variance + flat))
    places = cell_centres(first.width, first.height) + offsets
    in_view = _inside(second, places, _RIM_PX)
    textured = first.variance > flat
    return Alignment(
        offsets,
        likeness,
        in_view & textured & (likeness > _ALIKE),
        in_view & (textured | (variance > flat)),
    )


def seen_cells(first: View, second: View, alignment: Alignment) -> NDArray[np.float32]:
    """Chance that the second view shows each cell of the first, 0..1. (rows, columns)."""
    places = cell_centres(first.width, first.height) + alignment.offsets
    replaced = cv2.morphologyEx(alignment.unlike.astype(np.uint8), cv2.MORPH_OPEN, _BLOCK)
    chance = 1.0 - (1.0 - _SEEN_THOUGH_UNLIKE) * (1.0 - alignment.likeness)
    there = _inside(second, places) & (replaced == 0)
    return np.where(there, np.clip(chance, 0.0, 1.0), np.float32(0.0))


def shares(first: View, second: View, alignment: Alignment) -> tuple[float, float]:
    """Share of the first view that the second sees, and the reverse, each 0..1."""
    seen = seen_cells(first, second, alignment)
    # Area in the second view of what a cell shows there: the determinant of the mesh's gradient.
    places = cell_centres(first.width, first.height) + alignment.offsets
    along_x = np.gradient(places, axis=1) / CELL_PX
    along_y = np.gradient(places, axis=0) / CELL_PX
    growth = along_x[..., 0] * along_y[..., 1] - along_x[..., 1] * along_y[..., 0]
    ratio = first.width * first.height / (second.width * second.height)
    covered = float(np.mean(seen * np.clip(growth, 0.0, _MAX_GROWTH))) * ratio
    return float(np.mean(seen)), min(1.0, covered)


def roll(first: View, alignment: Alignment) -> float:
    """Rotation of the second view about its axis [rad], by the trusted cells."""
    before = cell_centres(first.width, first.height)[alignment.trusted]
    after = before + alignment.offsets[alignment.trusted]
    p, q = before - before.mean(axis=0), after - after.mean(axis=0)
    cross = p[:, 0] * q[:, 1] - p[:, 1] * q[:, 0]
    return math.atan2(float(cross.sum()), float((p * q).sum()))


class _OpticalFlow(threading.local):
    """Dense inverse search (Kroeger et al., ECCV 2016); it keeps buffers, so one per thread."""

    def __init__(self) -> None:
        self.dense = cv2.DISOpticalFlow.create(cv2.DISOPTICAL_FLOW_PRESET_ULTRAFAST)
        self.dense.setFinestScale(1)  # half of work size, which is small already


_FLOW = _OpticalFlow()


def _warped(first: View, second: View, offsets: NDArray[np.float32]) -> NDArray[np.uint8]:
    """The second view as the first camera would see it, given the offsets."""
    size = first.width, first.height
    moves = np.asarray(cv2.resize(offsets, size, interpolation=cv2.INTER_LINEAR), np.float32)
    return _sampled(second.grey, moves + pixel_grid(*size))


def _flowed(first: View, second: View, offsets: NDArray[np.float32]) -> NDArray[np.float32]:
    """Offsets corrected by the optical flow that is left after warping."""
    # None: no flow to start from.
    flow = _FLOW.dense.calc(first.grey, _warped(first, second, offsets), None)  # type: ignore[call-overload]
    size = offsets.shape[1], offsets.shape[0]
    cells = cv2.resize(flow, size, interpolation=cv2.INTER_AREA)
    there = pixel_grid(*size) + cells / CELL_PX
    return np.asarray(_sampled(offsets, there) + cells, np.float32)


def _sampled(values: NDArray[Any], places: NDArray[np.float32]) -> NDArray[Any]:
    """Values (h, w, ...) at places (..., 2) between its pixels; outside, those of the rim."""
    rim = cv2.BORDER_REPLICATE
    return np.asarray(cv2.remap(values, places, None, cv2.INTER_LINEAR, borderMode=rim))  # type: ignore[call-overload]


def _inside(view: View, places: NDArray[np.float32], rim_px: float = -0.5) -> NDArray[np.bool_]:
    """Which places (..., 2) [px] lie in a view, at least `rim_px` from its outermost pixels."""
    last = np.array([view.width - 1, view.height - 1], np.float32) - np.float32(rim_px)
    return np.asarray(((places >= rim_px) & (places <= last)).all(axis=-1))


def _continued(first: View, found: Alignment) -> NDArray[np.float32]:
    """Offsets in which untrusted cells follow the trusted ones around them."""
    trusted = found.trusted
    if int(trusted.sum()) < _MIN_TRUSTED:
        return found.offsets
    centres = cell_centres(first.width, first.height)
    step = max(1, int(trusted.sum()) // _FITTED_CELLS)
    before, moves = centres[trusted][::step], found.offsets[trusted][::step]
    homography = _fitted_homography(before, before + moves)
    trend = homography_offsets(first, homography)
    weight = trusted.astype(np.float32)[..., None]
    layers = np.concatenate([(found.offsets - trend) * weight, weight], axis=-1)
    total = sum(
        share * cv2.blur(layers, (size, size), borderType=cv2.BORDER_CONSTANT)
        for size, share in _SURROUNDINGS
    )
    total = np.asarray(total)
    return np.asarray(trend + total[..., :2] / (total[..., 2:] + 1e-9), np.float32)


def _fitted_homography(
    before: NDArray[np.float32], after: NDArray[np.float32]
) -> NDArray[np.float64]:
    """Least-squares homography (3, 3) between points (N, 2): direct linear transform."""
    to_before, (x, y) = _normalised(before)
    to_after, (u, v) = _normalised(after)
    one, zero = np.ones_like(x), np.zeros_like(x)
    rows = np.concatenate(
        [
            np.stack([x, y, one, zero, zero, zero, -u * x, -u * y], axis=1),
            np.stack([zero, zero, zero, x, y, one, -v * x, -v * y], axis=1),
        ]
    )  # (2 N, 8)
    # A trace of damping: cells on one line leave the rest open.
    normal = rows.T @ rows + 1e-6 * len(rows) * np.eye(8)
    solution = np.linalg.solve(normal, rows.T @ np.concatenate([u, v]))
    homography = np.append(solution, 1.0).reshape(3, 3)
    return np.asarray(np.linalg.inv(to_after) @ homography @ to_before, np.float64)


def _normalised(
    points: NDArray[np.float32],
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Transform (3, 3) to zero mean and unit spread, and the transformed points (2, N)."""
    mean, scale = points.mean(axis=0, dtype=np.float64), 1.0 / (float(points.std()) + 1e-9)
    transform = np.diag([scale, scale, 1.0])
    transform[:2, 2] = -scale * mean
    return transform, (points - mean).T * scale
