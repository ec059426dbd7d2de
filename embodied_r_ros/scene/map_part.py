# SPDX-License-Identifier: Apache-2.0
"""A connected part of a map: what was seen along a way of the camera that never broke.

With the plan of its floor, by what depth looks through.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
import math
from typing import Any, TYPE_CHECKING

from embodied_r_ros.scene.association import same_place_cost
from embodied_r_ros.scene.camera_track import START_FRAME
from embodied_r_ros.scene.landmark_record import LandmarkRecord
from embodied_r_ros.scene.sightings import ItemSighting
from embodied_r_ros.types.deltas import ScaleSource
from embodied_r_ros.types.geometry import rays_of_pixels, yaw_pitch_roll
from embodied_r_ros.types.landmarks import LandmarkStatus, PathPoint
import numpy as np
from scipy import ndimage

if TYPE_CHECKING:
    from embodied_r_ros.types.geometry import Intrinsics, Pose
    from numpy.typing import NDArray

NEIGHBOUR_M = 3.0  # landmarks that far apart are never taken for one
# Difference of labels up to which one that was found elsewhere, before its place was seen empty,
# is the thing that is gone.
_SAME = 0.5
_PATH_M, _PATH_RAD = 0.1, 0.2  # between points of the path, in place or heading
_UNKNOWN = ScaleSource.UNKNOWN

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
    """How large a room is, by what depth looks through and where it ends.

    Cells of a level grid are open where rays of depth pass over them, and closed where rays end.
    The room is what is open in one piece, with what it encloses. Its area is known where nearly
    all of its border is closed; a door that nobody looked through, or a corner that nobody saw,
    leaves it open.
    """

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


@dataclass
class MapPart:
    """A connected part of the camera's way, and what was seen from there."""

    number: int = 0
    frame_id: str = START_FRAME
    records: list[LandmarkRecord] = field(default_factory=list)
    rays: list[ItemSighting] = field(default_factory=list)
    path: list[PathPoint] = field(default_factory=list)
    plan: FloorPlan = field(default_factory=FloorPlan)
    pose_scales: Counter[ScaleSource] = field(default_factory=Counter)
    item_scales: Counter[ScaleSource] = field(default_factory=Counter)
    next_id: int = 0

    @property
    def weight(self) -> tuple[int, int]:
        """How much it tells: sightings, or else points of the path."""
        return sum(record.observations for record in self.records), len(self.path)

    @property
    def scale(self) -> ScaleSource:
        """What its metres rest on, mostly."""
        scales = self.pose_scales or self.item_scales
        return max(scales, key=lambda one: (scales[one], -one.value)) if scales else _UNKNOWN

    def twin(self, record: LandmarkRecord) -> LandmarkRecord | None:
        """The landmark that is the same thing; None: there is none."""
        costs = [
            (same_place_cost(record, other), other.id, other)
            for other in self.records
            if other is not record
            and other.status is LandmarkStatus.PRESENT
            and other.id not in record.apart_from
            and record.id not in other.apart_from
            and abs(other.position[0] - record.position[0]) < NEIGHBOUR_M
        ]
        cost, _, twin = min(costs, default=(math.inf, 0, None), key=lambda entry: entry[:2])
        return twin if math.isfinite(cost) else None

    def heir(self, gone: LandmarkRecord) -> LandmarkRecord | None:
        """The one landmark that a thing that is gone has become, elsewhere; None: it is unsure."""
        alike = [
            one
            for one in self.records
            if one is not gone and one.label.difference(gone.label) <= _SAME
        ]
        heirs = [one for one in alike if one.first_seen_ns > gone.last_seen_ns]
        return heirs[0] if len(heirs) == len(alike) == 1 else None

    def note_path(self, stamp_ns: int, pose: Pose, most: int) -> None:
        """Add a point where the camera moved on; a path of more than `most` is thinned."""
        path = self.path
        yaw, _, _ = yaw_pitch_roll(pose.rotation())
        point = PathPoint(stamp_ns, pose.position, yaw)
        if path:
            last = path[-1]
            turn = abs(math.remainder(yaw - last.yaw_rad, math.tau))
            if math.dist(last.position, pose.position) < _PATH_M and turn < _PATH_RAD:
                return
        path.append(point)
        if len(path) > most:
            self.path = [*path[:-1:2], point]

    def to_json(self) -> dict[str, Any]:
        """Its state."""
        return {
            'number': self.number,
            'frame_id': self.frame_id,
            'next_id': self.next_id,
            'records': [record.to_json() for record in self.records],
            'rays': [ray.to_json() for ray in self.rays],
            'path': [[point.stamp_ns, point.position, point.yaw_rad] for point in self.path],
            'plan': self.plan.to_json(),
            'pose_scales': {scale.name: count for scale, count in self.pose_scales.items()},
            'item_scales': {scale.name: count for scale, count in self.item_scales.items()},
        }

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> MapPart:
        """Read what `to_json` wrote.

        Raises:
            KeyError, TypeError, ValueError: A field is missing or has the wrong type.
        """
        path = []
        for stamp_ns, position, yaw_rad in value['path']:
            x, y, z = (float(number) for number in position)
            path.append(PathPoint(int(stamp_ns), (x, y, z), float(yaw_rad)))
        plan = FloorPlan()
        plan.restore(value['plan'])
        return cls(
            int(value['number']),
            str(value['frame_id']),
            [LandmarkRecord.from_json(record) for record in value['records']],
            [ItemSighting.from_json(ray) for ray in value['rays']],
            path,
            plan,
            Counter({ScaleSource[name]: int(n) for name, n in value['pose_scales'].items()}),
            Counter({ScaleSource[name]: int(n) for name, n in value['item_scales'].items()}),
            int(value['next_id']),
        )
