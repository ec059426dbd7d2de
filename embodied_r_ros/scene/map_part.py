# SPDX-License-Identifier: Apache-2.0
"""A connected part of a map: what was seen along a way of the camera that never broke."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
import math
from typing import Any, TYPE_CHECKING

from embodied_r_ros.scene.association import same_place_cost
from embodied_r_ros.scene.camera_track import START_FRAME
from embodied_r_ros.scene.floor_plan import FloorPlan
from embodied_r_ros.scene.landmark_record import LandmarkRecord
from embodied_r_ros.scene.sightings import ItemSighting
from embodied_r_ros.types.deltas import ScaleSource
from embodied_r_ros.types.geometry import yaw_pitch_roll
from embodied_r_ros.types.landmarks import LandmarkStatus, PathPoint

if TYPE_CHECKING:
    from embodied_r_ros.types.geometry import Pose

NEIGHBOUR_M = 3.0  # landmarks that far apart are never taken for one
# Difference of labels up to which one that was found elsewhere, before its place was seen empty,
# is the thing that is gone.
_SAME = 0.5
_PATH_M, _PATH_RAD = 0.1, 0.2  # between points of the path, in place or heading
_UNKNOWN = ScaleSource.UNKNOWN


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
