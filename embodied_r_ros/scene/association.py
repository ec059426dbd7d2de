# SPDX-License-Identifier: Apache-2.0
"""Which landmark a sighting is of: by place with its uncertainty, by label, and by size."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from embodied_r_ros.scene.sightings import fused_place
import numpy as np
from scipy.optimize import linear_sum_assignment

if TYPE_CHECKING:
    from collections.abc import Sequence

    from embodied_r_ros.scene.landmark_record import LandmarkRecord
    from embodied_r_ros.scene.sightings import ItemSighting, Sighting
    from numpy.typing import NDArray

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
    if not items or not records:
        return []
    costs = np.array([[min(GATE, place_cost(one, other)) for other in records] for one in items])
    rows, columns = linear_sum_assignment(costs)
    pairs = zip(rows.tolist(), columns.tolist(), strict=True)
    return [(row, column) for row, column in pairs if costs[row, column] < GATE]


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


def _squared(off: NDArray[np.float64], covariance: NDArray[np.float64]) -> float:
    return float(off @ np.linalg.solve(covariance, off))


_CROSSING_RAYS = 3  # from different keyframes that must meet in one place
_LEAST_PARALLAX_RAD = math.radians(8.0)
_MEET = 2.5  # deviations within which a ray meets a place
_FARTHEST_M = 15.0  # from a camera that a crossing counts
_MOST_ALONG = 0.25  # standard deviation of a crossing along its rays, as a share of how far it is


def crossing(
    newest: ItemSighting, rays: Sequence[ItemSighting]
) -> tuple[NDArray[np.float64], list[int]] | None:
    """Where a ray meets earlier ones of the same thing, and which of them; None: nowhere for sure.

    Args:
        newest: A sighting without a distance.
        rays: Earlier ones that no landmark explains.
    """
    alike = [
        number
        for number, other in enumerate(rays)
        if other.sighting.keyframe_id != newest.sighting.keyframe_id
        and newest.label.difference(other.label) <= 1.0
    ]
    best: tuple[NDArray[np.float64], list[int]] | None = None
    for number in alike:
        place = _nearest_point(newest.sighting, rays[number].sighting)
        if place is None or not _meets(newest.sighting, place):
            continue
        through: dict[int, int] = {}  # a keyframe shows a thing once
        for other in alike:
            if _meets(rays[other].sighting, place):
                through.setdefault(rays[other].sighting.keyframe_id, other)
        if len(through) + 1 >= max(_CROSSING_RAYS, len(best[1]) + 2 if best else 0):
            best = place, list(through.values())
    if best is None:
        return None
    sightings = [newest.sighting, *(rays[number].sighting for number in best[1])]
    fused = fused_place(sightings, best[0])
    far_m = float(np.linalg.norm(fused.position - newest.sighting.origin))
    unsure_m = math.sqrt(float(np.linalg.eigvalsh(fused.covariance)[-1]))
    is_sure = unsure_m <= _MOST_ALONG * far_m and all(_meets(s, fused.position) for s in sightings)
    return (fused.position, best[1]) if is_sure else None


def _nearest_point(one: Sighting, other: Sighting) -> NDArray[np.float64] | None:
    """The point nearest to two rays; None: they are nearly parallel, or it is behind a camera."""
    a, b = np.asarray(one.ray), np.asarray(other.ray)
    cosine = float(a @ b)
    if math.acos(max(-1.0, min(1.0, cosine))) < _LEAST_PARALLAX_RAD or cosine < -0.99:
        return None
    between = np.subtract(other.origin, one.origin)
    s, t = np.linalg.solve(
        np.array([[1.0, -cosine], [-cosine, 1.0]]), np.array([between @ a, -between @ b])
    )
    if not (0.2 < s < _FARTHEST_M and 0.2 < t < _FARTHEST_M):
        return None
    return np.asarray((np.asarray(one.origin) + s * a + np.asarray(other.origin) + t * b) / 2)


def _meets(sighting: Sighting, place: NDArray[np.float64]) -> bool:
    to_place = place - sighting.origin
    ahead_m = float(to_place @ np.asarray(sighting.ray))
    off_m = float(np.linalg.norm(to_place - ahead_m * np.asarray(sighting.ray)))
    return ahead_m > 0 and off_m <= _MEET * sighting.across_rad * ahead_m
