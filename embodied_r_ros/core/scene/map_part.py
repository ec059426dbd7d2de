# SPDX-License-Identifier: Apache-2.0
"""A connected part of a map: what was seen along a way of the camera that never broke.

Which landmark a sighting is of, by place with its uncertainty, by label and by size; and the plan
of the floor, by what depth looks through.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
import math
from typing import Any, TYPE_CHECKING

from embodied_r_ros.core.scene.camera import START_FRAME
from embodied_r_ros.core.scene.landmark_record import LandmarkRecord
from embodied_r_ros.core.scene.map_scale import MapScale, relative_scale
from embodied_r_ros.core.scene.sightings import fused_place, ItemSighting
from embodied_r_ros.core.types.deltas import Item, ScaleSource
from embodied_r_ros.core.types.geometry import as_position, rays_of_pixels, yaw_pitch_roll
from embodied_r_ros.core.types.landmarks import LandmarkStatus, PathPoint
import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from embodied_r_ros.core.scene.sightings import Sighting
    from embodied_r_ros.core.types.arrays import Float32s, Float64s
    from embodied_r_ros.core.types.geometry import Intrinsics, Pose

# Squared deviation, with what label and size add, up to which a sighting may be of a landmark.
GATE = 11.0
_RAY_GATE, _RAY_LEAD = 8.0, 3.0  # of one direction, and by how much it must beat the second best
_SLACK_M, _SLACK_SHARE = 0.04, 0.2  # middles of views from two sides differ: a part, of the size
# Nothing further off is the same: a part [m], of the size, and of the uncertainty.
_REACH_M, _REACH_SIZE, _REACH_UNSURE = 0.4, 0.5, 1.5
_SIZE_RATIO, _SIZE_COST = 2.0, 3.0
_MOST_SIZE_RATIO = 3.5
_MERGE_GATE = 5.0


def place_cost(item: ItemSighting, record: LandmarkRecord) -> float:
    """How little a placed sighting fits a landmark; infinite: it is another thing."""
    sighting = item.sighting
    extent_m = record.extent_m
    far_m = math.dist(record.position, sighting.origin)
    unsure_m = sighting.nearer_m if far_m < sighting.distance_m else sighting.along_m
    reach_m = _reach_m(extent_m, unsure_m, record)
    if math.dist(record.position, sighting.position) > reach_m:
        return math.inf
    # A thing that is nearer than it seems is smaller, too.
    scale = min(1.0, far_m / sighting.distance_m)
    size = (scale * item.size[0], scale * item.size[1]) if item.size else None
    cost = item.label.difference(record.label) + _size_cost(size, record.measured_size)
    if math.isinf(cost):
        return math.inf
    off = sighting.position - record.position
    slack = (_SLACK_M + _SLACK_SHARE * extent_m) ** 2
    return cost + _squared(off, record.covariance + sighting.covariance(far_m) + slack * np.eye(3))


def _reach_m(extent_m: float, unsure_m: float, *records: LandmarkRecord) -> float:
    """How far off the same thing may be [m]."""
    unsure = max(unsure_m, *(record.unsure_m for record in records))
    return _REACH_M + _REACH_SIZE * extent_m + _REACH_UNSURE * unsure


def ray_cost(item: ItemSighting, record: LandmarkRecord) -> float:
    """How little a sighting without a distance fits a landmark; infinite: it is another thing."""
    sighting = item.sighting
    ray, to_place = np.asarray(sighting.ray), record.position - sighting.origin
    ahead_m = float(to_place @ ray)
    far_m = float(np.linalg.norm(to_place))
    cost = item.label.difference(record.label)
    if ahead_m <= 0 or far_m > 2 * record.farthest_m + 1 or math.isinf(cost):
        return math.inf
    if record.measured_size and math.isfinite(sighting.size_rad) and not sighting.is_cut:
        wide_m = 2 * far_m * math.tan(min(sighting.size_rad, 3.0) / 2)
        cost += _size_cost((wide_m, wide_m), (record.extent_m, record.extent_m))
    off = to_place - ahead_m * ray
    slack_m = _SLACK_M + _SLACK_SHARE * record.extent_m
    across = (sighting.across_rad * far_m) ** 2 + slack_m**2
    return cost + _squared(off, record.covariance + across * np.eye(3))


def same_place_cost(one: LandmarkRecord, other: LandmarkRecord) -> float:
    """How little two landmarks are one; infinite: they are two."""
    extent_m = min(one.extent_m, other.extent_m)
    if math.dist(one.position, other.position) > _reach_m(extent_m, 0.0, one, other):
        return math.inf
    cost = one.label.difference(other.label) + _size_cost(one.measured_size, other.measured_size)
    if math.isinf(cost):
        return math.inf
    off = one.position - other.position
    slack = (_SLACK_M + _SLACK_SHARE * extent_m) ** 2
    cost += _squared(off, one.covariance + other.covariance + slack * np.eye(3))
    return cost if cost <= _MERGE_GATE else math.inf


def assign(
    items: Sequence[ItemSighting], records: Sequence[LandmarkRecord]
) -> list[tuple[int, int]]:
    """Pair placed sightings with landmarks, each with one at most, so that all fit best."""
    return cheapest_pairs([[min(GATE, place_cost(i, r)) for r in records] for i in items], GATE)


def same_places(
    some: Sequence[LandmarkRecord], others: Sequence[LandmarkRecord]
) -> list[tuple[int, int]]:
    """Pair landmarks of two maps in one frame that are the same things where they were."""
    most = 2 * _MERGE_GATE
    costs = [[min(most, same_place_cost(one, other)) for other in others] for one in some]
    return cheapest_pairs(costs, most)


def cheapest_pairs(costs: Sequence[Sequence[float]], most: float) -> list[tuple[int, int]]:
    """Pair rows with columns, each with one at most, below a cost, so that all is cheapest."""
    if not costs or not costs[0]:
        return []
    from scipy.optimize import linear_sum_assignment  # takes long, and what reads maps needs none

    table = np.array(costs)
    rows, columns = linear_sum_assignment(table)
    pairs = zip(rows.tolist(), columns.tolist(), strict=True)
    return [(row, column) for row, column in pairs if table[row, column] < most]


def assign_rays(
    items: Sequence[ItemSighting], records: Sequence[LandmarkRecord]
) -> list[tuple[int, int]]:
    """Pair sightings without a distance with the one landmark that each of them clearly fits."""
    pairs = []
    for row, one in enumerate(items):
        costs = sorted((ray_cost(one, other), column) for column, other in enumerate(records))
        costs = [entry for entry in costs if entry[0] < _RAY_GATE]
        if costs and (len(costs) == 1 or costs[1][0] - costs[0][0] >= _RAY_LEAD):
            pairs.append((costs[0][0], row, costs[0][1]))
    chosen: dict[int, int] = {}
    for _, row, column in sorted(pairs):
        chosen.setdefault(column, row)
    return [(row, column) for column, row in chosen.items()]


def _size_cost(one: tuple[float, float] | None, other: tuple[float, float] | None) -> float:
    if one is None or other is None:
        return 0.0
    ratio = max(max(a, b) / max(1e-3, min(a, b)) for a, b in zip(one, other, strict=True))
    if ratio > _MOST_SIZE_RATIO:
        return math.inf
    return _SIZE_COST if ratio > _SIZE_RATIO else 0.0


def _squared(off: Float64s, covariance: Float64s) -> float:
    return float(off @ np.linalg.solve(covariance, off))


_CROSSING_RAYS = 3  # from different keyframes that must meet in one place
_LEAST_PARALLAX_RAD = math.radians(8.0)
_MEET = 2.5  # deviations within which a ray meets a place
_FARTHEST_CROSSING_M = 15.0  # from a camera that a crossing counts
# Of lengths that are rough all the same.
RELATIVE_ALONG = 0.4
_MOST_ALONG = 0.25  # standard deviation of a crossing along its rays, as a share of how far it is


def crossing(
    newest: ItemSighting, rays: Sequence[ItemSighting], most_along: float = _MOST_ALONG
) -> tuple[Float64s, list[int]] | None:
    """Where a ray meets earlier ones of the same thing, and which of them; None: nowhere for sure.

    Args:
        newest: A sighting without a distance.
        rays: Earlier ones that no landmark explains.
        most_along: How unsure the place may be along the rays, as a share of how far it is.
    """
    alike = [
        number
        for number, other in enumerate(rays)
        if other.sighting.keyframe_id != newest.sighting.keyframe_id
        and newest.label.difference(other.label) <= 1.0
    ]
    best: tuple[Float64s, list[int]] | None = None
    for number in alike:
        place = _nearest_point(newest.sighting, rays[number].sighting)
        if place is None or not meets(newest.sighting, place):
            continue
        through: dict[int, int] = {}  # a keyframe shows a thing once
        for other in alike:
            if meets(rays[other].sighting, place):
                through.setdefault(rays[other].sighting.keyframe_id, other)
        if len(through) + 1 >= max(_CROSSING_RAYS, len(best[1]) + 2 if best else 0):
            best = place, list(through.values())
    if best is None:
        return None
    sightings = [newest.sighting, *(rays[number].sighting for number in best[1])]
    fused = fused_place(sightings, best[0])
    far_m = float(np.linalg.norm(fused.position - newest.sighting.origin))
    unsure_m = math.sqrt(float(np.linalg.eigvalsh(fused.covariance)[-1]))
    is_sure = unsure_m <= most_along * far_m and all(meets(s, fused.position) for s in sightings)
    return (fused.position, best[1]) if is_sure else None


def _nearest_point(one: Sighting, other: Sighting) -> Float64s | None:
    """The point nearest to two rays; None: they are nearly parallel, or it is behind a camera."""
    a, b = np.asarray(one.ray), np.asarray(other.ray)
    cosine = float(a @ b)
    if math.acos(max(-1.0, min(1.0, cosine))) < _LEAST_PARALLAX_RAD or cosine < -0.99:
        return None
    between = np.subtract(other.origin, one.origin)
    s, t = np.linalg.solve(
        np.array([[1.0, -cosine], [-cosine, 1.0]]), np.array([between @ a, -between @ b])
    )
    if not (0.2 < s < _FARTHEST_CROSSING_M and 0.2 < t < _FARTHEST_CROSSING_M):
        return None
    return np.asarray((np.asarray(one.origin) + s * a + np.asarray(other.origin) + t * b) / 2)


def meets(sighting: Sighting, place: Float64s) -> bool:
    """Tell whether a place lies in the direction of a sighting."""
    to_place = place - sighting.origin
    ahead_m = float(to_place @ np.asarray(sighting.ray))
    off_m = float(np.linalg.norm(to_place - ahead_m * np.asarray(sighting.ray)))
    return ahead_m > 0 and off_m <= _MEET * sighting.across_rad * ahead_m


NEIGHBOUR_M = 3.0  # landmarks that far apart are never taken for one
# Difference of labels up to which one that was found elsewhere, before its place was seen empty,
# is the thing that is gone.
_SAME = 0.5
_PATH_M, _PATH_RAD = 0.1, 0.2  # between points of the path, in place or heading
_UNKNOWN = ScaleSource.UNKNOWN
_MOST_MEASURED = 60

_CELL_M = 0.2
_COLUMNS, _ROWS = 32, 18  # of the pixels of depth that are looked at
_STEP_M = 0.1  # along rays
_NEAREST_M, _FARTHEST_M = 0.2, 8.0  # of depth that counts
_MOST_CELLS = 40_000
_LEAST_CELLS, _LONGEST_CELLS = 50, 1000  # that are a room, and from end to end
# Part of the cells of a border that is in the room: slanted rays open some of those of the wall.
_BORDER = 0.25
_WALL_M = 0.3  # between the heights at which rays end over a cell, from which on it is closed
_CLOSED = 0.95  # share of its border from which the area counts as known


class FloorPlan:
    """How large a room is, by what depth looks through and where it ends.

    Cells of a level grid are open where rays of depth pass over them, and closed where rays end
    at several heights, as at a wall, and not at one, as on the floor. The room is what is open in
    one piece, with what it encloses. Its area is known where nearly all of its border is closed;
    a door that nobody looked through, or a corner that nobody saw, leaves it open.
    """

    def __init__(self) -> None:
        self._open: set[tuple[int, int]] = set()
        # Heights between which rays end over a cell [m].
        self._ends: dict[tuple[int, int], tuple[float, float]] = {}

    def look(self, pose: Pose, depth: Float32s, intrinsics: Intrinsics) -> None:
        """Take a depth image.

        Args:
            pose: Of the camera link, in a frame whose z axis points up.
            depth: Along the optical axis [m]; 0 or not finite: unknown. Shape (h, w).
            intrinsics: Of the camera, at any size of its view.
        """
        if len(self._open) + len(self._ends) >= _MOST_CELLS:
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
        ends_3d = (rays * ahead[known, None]) @ pose.rotation().T
        ends, heights = ends_3d[:, :2], ends_3d[:, 2] + pose.position[2]
        origin = np.array(pose.position[:2])
        far = np.linalg.norm(ends, axis=1)
        steps = np.arange(0.0, _FARTHEST_M * 2, _STEP_M)
        way = steps[None, :] / np.maximum(far, 1e-6)[:, None]
        inside = way < 1 - _CELL_M / np.maximum(far, _CELL_M)[:, None]
        passed = origin + (ends[:, None, :] * way[:, :, None])[inside]
        self._open |= _cells(passed)
        for cell, height in zip(_cell_of(origin + ends), heights.tolist(), strict=True):
            low, high = self._ends.get(cell, (height, height))
            self._ends[cell] = min(low, height), max(high, height)

    @property
    def area_m2(self) -> float | None:
        """Area of the room [m²]; None: its border is not known."""
        if len(self._open) < _LEAST_CELLS:
            return None
        closed = [cell for cell, (low, high) in self._ends.items() if high - low >= _WALL_M]
        cells = np.array(sorted(self._open.union(closed)))
        low = cells.min(axis=0) - 2
        shape = tuple(cells.max(axis=0) - low + 3)
        if max(shape) > _LONGEST_CELLS:
            return None
        is_open, is_closed = np.zeros(shape, bool), np.zeros(shape, bool)
        is_open[tuple((np.array(sorted(self._open)) - low).T)] = True
        if closed:
            is_closed[tuple((np.array(closed) - low).T)] = True
        from scipy import ndimage  # as above

        pieces, count = ndimage.label(is_open)
        sizes = ndimage.sum_labels(is_open, pieces, range(1, count + 1))
        room = ndimage.binary_fill_holes(pieces == 1 + int(np.argmax(sizes)))
        border = ndimage.binary_dilation(room) & ~room
        # Rays end here and there: a cell beside a closed one counts too.
        if ndimage.binary_dilation(is_closed, np.ones((3, 3)))[border].mean() < _CLOSED:
            return None
        return float((room.sum() + _BORDER * border.sum()) * _CELL_M**2)

    def to_json(self) -> dict[str, list[Any]]:
        """Its state."""
        ends = sorted(self._ends.items())
        return {
            'open': [list(cell) for cell in sorted(self._open)],
            'ends': [[*cell, round(low, 3), round(high, 3)] for cell, (low, high) in ends],
        }

    def restore(self, value: dict[str, Any]) -> None:
        """Take a state that `to_json` gave.

        Raises:
            KeyError, TypeError, ValueError: It is none.
        """
        self._open = {(int(x), int(y)) for x, y in value['open']}
        # Where a state has no heights, each cell was closed whatever ended there.
        ends = value.get('ends', [[x, y, 0.0, _WALL_M] for x, y in value.get('closed', ())])
        self._ends = {(int(x), int(y)): (float(low), float(high)) for x, y, low, high in ends}


def _is_same_place(one: PathPoint, other: PathPoint) -> bool:
    """Whether a camera that was at both did not move on."""
    turn = abs(math.remainder(other.yaw_rad - one.yaw_rad, math.tau))
    return math.dist(one.position, other.position) < _PATH_M and turn < _PATH_RAD


def _cell_of(places: Float64s) -> list[tuple[int, int]]:
    """The cell of each place (N, 2) [m]."""
    return [(x, y) for x, y in np.floor(places / _CELL_M).astype(np.int64).tolist()]


def _cells(places: Float64s) -> set[tuple[int, int]]:
    """Cells of places (N, 2) [m]."""
    return set(_cell_of(places))


@dataclass
class MapPart:
    """A connected part of the camera's way, and what was seen from there."""

    number: int = 0
    frame_id: str = START_FRAME
    records: list[LandmarkRecord] = field(default_factory=list)
    rays: list[ItemSighting] = field(default_factory=list)
    path: list[PathPoint] = field(default_factory=list)
    path_camera: str | None = None  # the one whose path it is, of several; None: there is none yet
    plan: FloorPlan = field(default_factory=FloorPlan)
    pose_scales: Counter[ScaleSource] = field(default_factory=Counter)
    item_scales: Counter[ScaleSource] = field(default_factory=Counter)
    # Of a part in a relative unit: how many metres that has, by distances that something measured.
    measured: list[tuple[ScaleSource, float]] = field(default_factory=list)
    next_id: int = 0

    @property
    def weight(self) -> tuple[int, int]:
        """How much it tells: sightings, or else points of the path."""
        return sum(record.observations for record in self.records), len(self.path)

    @property
    def scale(self) -> MapScale:
        """What its metres rest on, mostly."""
        if self.is_relative:
            return relative_scale(self.measured, self.records)
        scales = self.pose_scales or self.item_scales
        most = max(scales, key=lambda one: (scales[one], -one.value)) if scales else _UNKNOWN
        return MapScale(most)

    @property
    def is_relative(self) -> bool:
        """Whether its lengths are in a unit that is not known."""
        return ScaleSource.RELATIVE in self.pose_scales

    def note_measured(self, scale: ScaleSource, ratio: float) -> None:
        """Note how many metres a unit has, by a distance that something measured."""
        if math.isfinite(ratio) and ratio > 0:
            self.measured = [*self.measured, (scale, ratio)][-_MOST_MEASURED:]

    def forget_distances(self) -> None:
        """Leave of all that was seen its direction alone: the camera moves in another unit."""
        seen = [
            ItemSighting(Item(record.name), sighting.without_distance(), record.label)
            for record in self.records
            for sighting in record.sightings
        ]
        self.rays = sorted([*self.rays, *seen], key=lambda one: one.sighting.stamp_ns)
        self.records = []

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

    def note_path(self, camera: str, stamp_ns: int, pose: Pose, most: int) -> None:
        """Let the path end where the camera is now.

        Of several cameras it is the path of the first one: each faces elsewhere.

        Args:
            camera: The camera.
            stamp_ns: Of the keyframe [ns].
            pose: Of the camera link.
            most: Points from which on a path is thinned.
        """
        if self.path_camera is None:
            self.path_camera = camera
        if camera != self.path_camera:
            return
        path = self.path
        yaw, _, _ = yaw_pitch_roll(pose.rotation())
        point = PathPoint(stamp_ns, pose.position, yaw)
        # Of a camera that stays, the path has where it came there and where it is now.
        stays = len(path) > 1 and _is_same_place(path[-2], path[-1])
        if stays and _is_same_place(path[-2], point):
            path[-1] = point
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
            'path_camera': self.path_camera,
            'plan': self.plan.to_json(),
            'pose_scales': {scale.name: count for scale, count in self.pose_scales.items()},
            'item_scales': {scale.name: count for scale, count in self.item_scales.items()},
            'measured': [[scale.name, ratio] for scale, ratio in self.measured],
        }

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> MapPart:
        """Read what `to_json` wrote.

        Raises:
            KeyError, TypeError, ValueError: A field is missing or has the wrong type.
        """
        path = [PathPoint(int(ns), as_position(at), float(yaw)) for ns, at, yaw in value['path']]
        plan = FloorPlan()
        plan.restore(value['plan'])
        return cls(
            int(value['number']),
            str(value['frame_id']),
            [LandmarkRecord.from_json(record) for record in value['records']],
            [ItemSighting.from_json(ray) for ray in value['rays']],
            path,
            value.get('path_camera'),
            plan,
            Counter({ScaleSource[name]: int(n) for name, n in value['pose_scales'].items()}),
            Counter({ScaleSource[name]: int(n) for name, n in value['item_scales'].items()}),
            [(ScaleSource[name], float(ratio)) for name, ratio in value.get('measured', ())],
            int(value['next_id']),
        )
