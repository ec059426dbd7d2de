# SPDX-License-Identifier: Apache-2.0
"""Corners followed from image to image by optical flow (Lucas and Kanade's, in pyramids)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import cv2
import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

WORK_PX = 320
_CELL_PX = 20  # one corner is sought in each cell without one
_BORDER_PX = 4
_WINDOW_PX = 15
_LEVELS = 3
_CLOSES_PX = 0.7  # a corner that is followed back has to end so near to where it began
_LEAST_EIGENVALUE = 2e-5  # of a corner's gradients; below, noise looks like one
_QUALITY = 0.01  # of the best corner's
_CRITERIA = (cv2.TERM_CRITERIA_COUNT | cv2.TERM_CRITERIA_EPS, 20, 0.02)


def prepare(grey: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Even out exposure and faint walls: local equalisation, limited."""
    return np.asarray(_EQUALISER.apply(grey), np.uint8)


_EQUALISER = cv2.createCLAHE(2.5, (6, 6))


def follow(
    before: NDArray[np.uint8],
    now: NDArray[np.uint8],
    places: NDArray[np.float32],
    guesses: NDArray[np.float32],
) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
    """Follow places (N, 2) [px] from one image to the next.

    Args:
        before: One image, grey (H, W).
        now: The next one, of the same size.
        places: In the first image.
        guesses: Where they may be in the second.

    Returns:
        Where they are in the second image, and whether that is sure. Shapes (N, 2), (N,).
    """
    if not len(places):
        return places, np.zeros(0, bool)
    height, width = now.shape
    p = places.reshape(-1, 1, 2)
    window = (_WINDOW_PX, _WINDOW_PX)
    there, ok, _ = cv2.calcOpticalFlowPyrLK(
        before, now, p, guesses.reshape(-1, 1, 2).copy(), winSize=window, maxLevel=_LEVELS,
        criteria=_CRITERIA, flags=cv2.OPTFLOW_USE_INITIAL_FLOW,
    )  # fmt: skip
    back, ok_back, _ = cv2.calcOpticalFlowPyrLK(
        now, before, there, p.copy(), winSize=window, maxLevel=1,
        criteria=_CRITERIA, flags=cv2.OPTFLOW_USE_INITIAL_FLOW,
    )  # fmt: skip
    there = there.reshape(-1, 2)
    closes = np.linalg.norm(back.reshape(-1, 2) - places, axis=1) < _CLOSES_PX
    inside = (
        (there[:, 0] >= _BORDER_PX)
        & (there[:, 0] < width - _BORDER_PX)
        & (there[:, 1] >= _BORDER_PX)
        & (there[:, 1] < height - _BORDER_PX)
    )
    return there, (ok.ravel() > 0) & (ok_back.ravel() > 0) & closes & inside


def find_corners(grey: NDArray[np.uint8], taken: NDArray[np.float32]) -> NDArray[np.float32]:
    """The best corner of each cell that holds none of the places taken. Shapes (N, 2)."""
    height, width = grey.shape
    rows, columns = height // _CELL_PX, width // _CELL_PX
    quality = cv2.cornerMinEigenVal(grey, 5)
    quality[:_BORDER_PX] = quality[-_BORDER_PX:] = 0
    quality[:, :_BORDER_PX] = quality[:, -_BORDER_PX:] = 0
    cut = quality[: rows * _CELL_PX, : columns * _CELL_PX]
    cells = cut.reshape(rows, _CELL_PX, columns, _CELL_PX).transpose(0, 2, 1, 3)
    cells = cells.reshape(rows * columns, -1)
    best = cells.argmax(axis=1)
    values = cells[np.arange(len(best)), best]
    free = values > max(_LEAST_EIGENVALUE, _QUALITY * float(np.percentile(values, 90)))
    at = (taken // _CELL_PX).astype(int)
    at = at[(at[:, 0] < columns) & (at[:, 1] < rows)]
    free[at[:, 1] * columns + at[:, 0]] = False
    index = np.flatnonzero(free)
    index = index[np.argsort(-values[index])]
    x = (index % columns) * _CELL_PX + best[index] % _CELL_PX
    y = (index // columns) * _CELL_PX + best[index] // _CELL_PX
    found = np.stack([x, y], axis=1).astype(np.float32)
    if len(found) and len(taken):
        near = np.linalg.norm(found[:, None] - taken[None], axis=2).min(axis=1)
        found = found[near > _CELL_PX / 3]
    return found
