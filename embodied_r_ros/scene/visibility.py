# SPDX-License-Identifier: Apache-2.0
"""Whether a keyframe should show what is at a place: so a map learns that a thing is gone."""

from __future__ import annotations

from enum import Enum
import math
from typing import Any, TYPE_CHECKING

from embodied_r_ros.types.geometry import BODY_FROM_OPTICAL, pixels_of_points
import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from embodied_r_ros.scene.camera_track import CameraView
    from embodied_r_ros.types.deltas import Box, Item
    from embodied_r_ros.types.geometry import Intrinsics, Pose
    from numpy.typing import NDArray

_MARGIN = 0.06  # share of the view at its edges, where perception misses what is cut off
_NEAREST_M = 0.3
_LEAST_EVIDENCE = 0.02  # of a learned lens: sum of squared tangents of directions
_PATCH = 3  # pixels of depth to every side of a place
_BEHIND_M, _BEHIND_SHARE = 0.15, 0.06  # by how much depth must differ to tell


class PlaceSight(Enum):
    """What a keyframe shows of a place."""

    OUTSIDE = 'outside'  # of the view, or at its edge
    HIDDEN = 'hidden'  # something is in front of it
    FILLED = 'filled'  # depth meets something there
    EMPTY = 'empty'  # depth looks through it
    OPEN = 'open'  # in view, and nothing that was perceived hides it


class ItemLens:
    """The lens of a camera without intrinsics, learned from boxes and directions of items.

    Sums of a linear fit, so that it is a pinhole and takes constant memory.
    """

    def __init__(self) -> None:
        self._sums = np.zeros((2, 2))  # per axis: products with the share, squares

    def learn(self, items: Sequence[Item]) -> None:
        """Learn from the items of a delta."""
        for item in items:
            if item.box is None or not (abs(item.bearing_rad) < 1.2 > abs(item.elevation_rad)):
                continue
            left, top, right, bottom = item.box
            if min(item.box) <= 0.0 or max(item.box) >= 1.0:
                continue  # cut off: the middle of what is left is not the middle
            tangents = (
                math.tan(item.bearing_rad),
                math.tan(item.elevation_rad) / math.cos(item.bearing_rad),
            )
            for axis, tangent in enumerate(tangents):
                share = 0.5 - ((left + right) / 2, (top + bottom) / 2)[axis]
                self._sums[axis] += (share * tangent, tangent**2)

    @property
    def focal_shares(self) -> tuple[float, float] | None:
        """Focal length as a share of width and of height; None: not known yet."""
        (fx, xx), (fy, yy) = self._sums
        if xx < _LEAST_EVIDENCE or yy < _LEAST_EVIDENCE or fx <= 0 or fy <= 0:
            return None
        return fx / xx, fy / yy

    def to_json(self) -> list[list[float]]:
        """Its state."""
        state: list[list[float]] = self._sums.tolist()
        return state

    def restore(self, value: Any) -> None:
        """Take a state that `to_json` gave."""
        self._sums = np.array(value, np.float64).reshape(2, 2)


class Sight:
    """One keyframe with its trusted pose, asked what it shows of places."""

    def __init__(
        self, pose: Pose, view: CameraView, lens: tuple[float, float] | None, items: Sequence[Item]
    ) -> None:
        """Prepare.

        Args:
            pose: Of the camera link in the frame of the map.
            view: Intrinsics and depth, where they are known.
            lens: As learned, for a camera without intrinsics.
            items: What was perceived.
        """
        self._rotation, self.origin = pose.rotation(), np.asarray(pose.position)
        self._intrinsics, self._depth, self._lens = view.intrinsics, view.depth, lens
        self._items = [item for item in items if item.box]

    @property
    def focal_shares(self) -> tuple[float, float] | None:
        """Focal length as a share of width and of height; None: not known."""
        if self._intrinsics:
            lens = self._intrinsics
            return lens.fx / lens.width, lens.fy / lens.height
        return self._lens

    def of(self, position: NDArray[np.float64], extent_m: float) -> PlaceSight:
        """What the keyframe shows of a place.

        Args:
            position: In the map (3,) [m].
            extent_m: Size of what should be there [m].
        """
        in_body = self._rotation.T @ (position - self.origin)
        shares = self._shares(in_body)
        focal = self.focal_shares
        if shares is None or focal is None or in_body[0] < _NEAREST_M:
            return PlaceSight.OUTSIDE
        (u, v), ahead_m = shares, float(in_body[0])
        half = [extent_m / 2 / ahead_m * share for share in focal]
        inside = all(
            abs(share - 0.5) <= 0.5 - _MARGIN - part
            for share, part in zip((u, v), half, strict=True)
        )
        if not inside:
            return PlaceSight.OUTSIDE
        if self._depth is not None:
            return self._by_depth(u, v, ahead_m, extent_m)
        far_m = float(np.linalg.norm(in_body))
        is_hidden = any(
            _contains(item.box, u, v) and not item.distance_m > far_m for item in self._items
        )
        return PlaceSight.HIDDEN if is_hidden else PlaceSight.OPEN

    def size_of(self, item: Item) -> tuple[float, float] | None:
        """Width and height of an item [m]; None: not known, or cut off by the image's edge."""
        focal = self.focal_shares
        if focal is None or item.box is None or not math.isfinite(item.distance_m):
            return None
        if min(item.box) <= _MARGIN / 10 or max(item.box) >= 1 - _MARGIN / 10:
            return None
        left, top, right, bottom = item.box
        ahead_m = item.distance_m * math.cos(item.bearing_rad) * math.cos(item.elevation_rad)
        return (right - left) / focal[0] * ahead_m, (bottom - top) / focal[1] * ahead_m

    def _shares(self, in_body: NDArray[np.float64]) -> tuple[float, float] | None:
        """Where a place is in the image, as shares of width and height; None: nowhere."""
        if in_body[0] <= 0:
            return None
        if self._intrinsics:
            return _shares_by(self._intrinsics, in_body)
        if self._lens is None:
            return None
        x, y, z = (float(value) for value in in_body)
        return 0.5 - self._lens[0] * y / x, 0.5 - self._lens[1] * z / x

    def _by_depth(self, u: float, v: float, ahead_m: float, extent_m: float) -> PlaceSight:
        assert self._depth is not None
        height, width = self._depth.shape
        column, row = min(width - 1, int(u * width)), min(height - 1, int(v * height))
        part = self._depth[
            max(0, row - _PATCH) : row + _PATCH + 1, max(0, column - _PATCH) : column + _PATCH + 1
        ]
        known = part[np.isfinite(part) & (part > 0)]
        if not known.size:
            return PlaceSight.HIDDEN
        depth_m = float(np.median(known))
        margin_m = max(_BEHIND_M, 0.5 * extent_m) + _BEHIND_SHARE * ahead_m
        if depth_m > ahead_m + margin_m:
            return PlaceSight.EMPTY
        return PlaceSight.HIDDEN if depth_m < ahead_m - margin_m else PlaceSight.FILLED


def _shares_by(lens: Intrinsics, in_body: NDArray[np.float64]) -> tuple[float, float] | None:
    in_optical = BODY_FROM_OPTICAL.T @ in_body
    # Polynomials of a lens fold what is far outside back into the image.
    if max(abs(in_optical[0]), abs(in_optical[1])) > 3 * in_optical[2]:
        return None
    u, v = pixels_of_points(lens, in_optical[None])[0]
    return (float(u) + 0.5) / lens.width, (float(v) + 0.5) / lens.height


def _contains(box: Box | None, u: float, v: float) -> bool:
    return box is not None and box[0] <= u <= box[2] and box[1] <= v <= box[3]
