# SPDX-License-Identifier: Apache-2.0
"""How large a room is, by what depth looks through and where it ends.

Cells of a level grid are open where rays of depth pass over them, and closed where rays end. The
room is what is open in one piece, with what it encloses. Its area is known where nearly all of its
border is closed; a door that nobody looked through, or a corner that nobody saw, leaves it open.
"""

from __future__ import annotations

from typing import Any, TYPE_CHECKING

from embodied_r_ros.types.geometry import rays_of_pixels
import numpy as np
from scipy import ndimage

if TYPE_CHECKING:
    from embodied_r_ros.types.geometry import Intrinsics, Pose
    from numpy.typing import NDArray

_CELL_M = 0.2
_COLUMNS, _ROWS = 32, 18  # of the pixels of depth that are looked at
_STEP_M = 0.1  # along rays
_NEAREST_M, _FARTHEST_M = 0.2, 8.0  # of depth that counts
_MOST_CELLS = 40_000
_LEAST_CELLS, _LONGEST_CELLS = 50, 1000  # that are a room, and from end to end
# Part of the cells of a border that is in the room: slanted rays open some of those of the wall.
_BORDER = 0.25
_CLOSED = 0.95  # share of its border from which the area counts as known


class FloorPlan:
    """Open and closed cells, as far as the camera saw."""

    def __init__(self) -> None:
        self._open: set[tuple[int, int]] = set()
        self._closed: set[tuple[int, int]] = set()

    def look(self, pose: Pose, depth: NDArray[np.float32], intrinsics: Intrinsics) -> None:
        """Take a depth image.

        Args:
            pose: Of the camera link, in a frame whose z axis points up.
            depth: Along the optical axis [m]; 0 or not finite: unknown. Shape (h, w).
            intrinsics: Of the camera, at any size of its view.
        """
        if len(self._open) + len(self._closed) >= _MOST_CELLS:
            return
        height, width = depth.shape
        rows = np.linspace(0, height - 1, _ROWS).round().astype(int)
        columns = np.linspace(0, width - 1, _COLUMNS).round().astype(int)
        pixels = np.array([(column, row) for row in rows for column in columns])
        ahead = depth[pixels[:, 1], pixels[:, 0]].astype(np.float64)
        known = np.isfinite(ahead) & (ahead > _NEAREST_M) & (ahead < _FARTHEST_M)
        if not known.any():
            return
        rays = rays_of_pixels(intrinsics.scaled(width, height), pixels[known].astype(np.float64))
        ends = ((rays * ahead[known, None]) @ pose.rotation().T)[:, :2]
        origin = np.array(pose.position[:2])
        far = np.linalg.norm(ends, axis=1)
        steps = np.arange(0.0, _FARTHEST_M * 2, _STEP_M)
        way = steps[None, :] / np.maximum(far, 1e-6)[:, None]
        inside = way < 1 - _CELL_M / np.maximum(far, _CELL_M)[:, None]
        passed = origin + (ends[:, None, :] * way[:, :, None])[inside]
        self._open |= _cells(passed)
        self._closed |= _cells(origin + ends)

    @property
    def area_m2(self) -> float | None:
        """Area of the room [m²]; None: its border is not known."""
        if len(self._open) < _LEAST_CELLS:
            return None
        cells = np.array(sorted(self._open | self._closed))
        low = cells.min(axis=0) - 2
        shape = tuple(cells.max(axis=0) - low + 3)
        if max(shape) > _LONGEST_CELLS:
            return None
        is_open, is_closed = np.zeros(shape, bool), np.zeros(shape, bool)
        is_open[tuple((np.array(sorted(self._open)) - low).T)] = True
        if self._closed:
            is_closed[tuple((np.array(sorted(self._closed)) - low).T)] = True
        pieces, count = ndimage.label(is_open)
        sizes = ndimage.sum_labels(is_open, pieces, range(1, count + 1))
        room = ndimage.binary_fill_holes(pieces == 1 + int(np.argmax(sizes)))
        border = ndimage.binary_dilation(room) & ~room
        # Rays end here and there: a cell beside a closed one counts too.
        if ndimage.binary_dilation(is_closed, np.ones((3, 3)))[border].mean() < _CLOSED:
            return None
        return float((room.sum() + _BORDER * border.sum()) * _CELL_M**2)

    def to_json(self) -> dict[str, list[list[int]]]:
        """Its state."""
        return {
            'open': [list(cell) for cell in sorted(self._open)],
            'closed': [list(cell) for cell in sorted(self._closed)],
        }

    def restore(self, value: dict[str, Any]) -> None:
        """Take a state that `to_json` gave.

        Raises:
            KeyError, TypeError, ValueError: It is none.
        """
        self._open, self._closed = (
            {(int(x), int(y)) for x, y in value[key]} for key in ('open', 'closed')
        )


def _cells(points: NDArray[np.float64]) -> set[tuple[int, int]]:
    """Cells of places (N, 2) [m]."""
    cells = np.unique(np.floor(points / _CELL_M).astype(np.int64), axis=0)
    return {(int(x), int(y)) for x, y in cells}
