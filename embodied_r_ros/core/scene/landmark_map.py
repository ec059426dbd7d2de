# SPDX-License-Identifier: Apache-2.0
"""`LandmarkMap`: what is where in a place, from semantic deltas one after the other.

Items of one thing become one landmark; it is found again, followed where it moves, and gone where
its place was in view without it. The map is bounded by the place and not by time: a constant
amount is kept of each landmark, of the path, and of directions whose distance is not known yet.
The same deltas and views give the same map, also where it was saved and reloaded in between.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from enum import Enum
import json
import math
import os
from typing import Any, TYPE_CHECKING

from embodied_r_ros.common.errors import InputError
from embodied_r_ros.common.files import write_whole
from embodied_r_ros.common.settings import setting, Settings
from embodied_r_ros.core.scene.camera import (
    CameraTrack,
    CameraView,
    ItemLens,
    MAP_FRAME,
    PlaceSight,
    Sight,
    START_FRAME,
)
from embodied_r_ros.core.scene.landmark_record import LandmarkRecord
from embodied_r_ros.core.scene.map_part import (
    assign,
    assign_rays,
    crossing,
    MapPart,
    meets,
    NEIGHBOUR_M,
    RELATIVE_ALONG,
)
from embodied_r_ros.core.scene.sightings import ItemSighting, LabelParts, sighting_of, sound_item
from embodied_r_ros.core.types.deltas import DeltaKind, ItemStatus
from embodied_r_ros.core.types.landmarks import LandmarkStatus, scale_text, SceneMap
import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from embodied_r_ros.core.scene.sightings import Sighting
    from embodied_r_ros.core.types.deltas import Item, SemanticDelta
    from embodied_r_ros.core.types.landmarks import PathPoint

STATE_VERSION = 2
_READ_VERSIONS = (1, STATE_VERSION)
_MOVES_M = 3.0  # a thing that moved by itself is looked for as far from its new place
_ALIKE = 1.0  # difference of labels up to which a thing elsewhere may be the one that is gone
_UNSURE_M = 1.0  # of a place, from which on a thing that is not there never was

_Claims = dict[int, LandmarkRecord]  # by id: those of which a delta has a sighting


@dataclass(frozen=True)
class MapConfig(Settings):
    """How much a map keeps, and what it doubts."""

    max_landmarks: int = setting(
        500, 'landmarks at most; the least confident ones are dropped', between=(8, 10000)
    )
    max_path_points: int = setting(
        1000, 'points of the path at most; a longer one is thinned', between=(16, 100000)
    )
    max_rays: int = setting(
        100, 'directions kept until others cross them, at most', between=(0, 1000)
    )
    max_speed_m_s: float = setting(
        5.0, 'a pose that takes more speed than this is a jump [m/s]', between=(0.1, 100)
    )
    full_delta_items: int = setting(
        8, 'a delta with so many items may have left smaller ones out', between=(1, 64)
    )


class MapEdit(Enum):
    """What somebody may want to be done with a landmark. Values as in EditLandmark."""

    FORGET = 0
    PIN = 1
    UNPIN = 2


class LandmarkMap:
    """A map that grows with each delta. Not for use from several threads."""

    def __init__(self, config: MapConfig | None = None) -> None:
        """Begin an empty map."""
        self.config = config or MapConfig()
        self.counts: Counter[str] = Counter()  # deltas, failed, untrusted, items, unplaced
        self._track = CameraTrack(self.config.max_speed_m_s)
        self._lenses: dict[str, ItemLens] = {}
        self._part = MapPart()
        self._other: MapPart | None = None  # the richest one that is not connected to it
        self._is_elsewhere = False  # the newest delta was passed over
        self.has_times = True  # False: stamps count images at a rate that was assumed

    def __len__(self) -> int:
        return len(self._richest.records)

    @property
    def parts(self) -> int:
        """How many unconnected parts the way has; the one with most sightings is used."""
        return self._track.part

    @property
    def records(self) -> tuple[LandmarkRecord, ...]:
        """The landmarks of the richest part, with all that they rest on, in its own unit."""
        return tuple(self._richest.records)

    @property
    def weight(self) -> tuple[int, int]:
        """How much it tells: sightings, or else points of the path."""
        return self._richest.weight

    @property
    def path(self) -> tuple[PathPoint, ...]:
        """The camera's path through what is mapped, also where it has left that part since."""
        part = self._richest
        factor = part.scale.factor
        return tuple(
            replace(point, position=(factor * x, factor * y, factor * z))
            for point in part.path
            for x, y, z in [point.position]
        )

    @property
    def _richest(self) -> MapPart:
        other = self._other
        return other if other and other.weight > self._part.weight else self._part

    def add(self, delta: SemanticDelta, view: CameraView | None = None) -> bool:
        """Take a delta in, oldest first.

        Args:
            delta: What was perceived.
            view: The pose of its keyframe, where it is known and trusted, with intrinsics and
                depth; None: the pose follows from the motions of the deltas.

        Returns:
            False where nothing could be placed: its pose is not known, or its perception failed.
        """
        view = view or CameraView()
        self.counts['deltas'] += 1
        self.counts['failed'] += delta.kind is DeltaKind.FAILED
        pose = self._track.follow(delta, view.pose)
        if pose is None:
            self.counts['untrusted'] += 1
            return False
        if self._track.part != self._part.number:
            self._other = self._richest if self._richest.path else None
            self._part = MapPart(self._track.part, pose.frame_id)
        if self._track.is_relative and not self._part.is_relative:
            self._part.forget_distances()
        self._part.pose_scales = Counter(self._track.scales)
        self._is_elsewhere = False
        self._part.note_path(delta.camera, delta.stamp_ns, pose, self.config.max_path_points)
        if view.depth is not None and view.intrinsics:
            self._part.plan.look(pose, view.depth, view.intrinsics)
        if delta.kind is DeltaKind.FAILED:
            return False
        delta = replace(delta, items=tuple(map(sound_item, delta.items)))
        is_relative = self._part.is_relative
        shown = [replace(i, distance_m=math.nan) for i in delta.items] if is_relative else None
        sight = Sight(pose, view, self._lens(delta, view), shown or delta.items)
        items = [
            ItemSighting(
                item,
                sighting.without_distance() if is_relative else sighting,
                LabelParts.of(item.label),
                None if is_relative else sight.size_of(item),
            )
            for item in delta.items
            if item.status is not ItemStatus.LEFT
            if (sighting := sighting_of(item, pose, delta.stamp_ns, delta.to_id))
        ]
        self._take(delta, items, sight)
        return True

    def pass_over(self) -> None:
        """Note a delta of which nothing tells where its camera was."""
        self.counts['deltas'] += 1
        self.counts['untrusted'] += 1
        self._is_elsewhere = True

    def scene_map(self) -> SceneMap:
        """The map as others get it: of the richest part.

        Its path ends where the camera is now. Where the camera has left that part, and nothing
        says how the two are connected, it has none.
        """
        part = self._richest
        scale = part.scale
        return SceneMap(
            tuple(record.landmark(scale.factor) for record in part.records),
            self.path if part is self._part and not self._is_elsewhere else (),
            part.frame_id,
            part.plan.area_m2,
            scale.source,
            scale.error,
            has_times=self.has_times,
        )

    def summary(self) -> str:
        """The map in one line: how much there is, what its metres rest on, what is missing."""
        part, counts = self._richest, self.counts
        gone = sum(record.status is LandmarkStatus.GONE for record in part.records)
        words = [
            f'{len(part.records)} landmarks, {gone} of them gone',
            scale_text(part.scale.source, part.scale.error),
            f'{counts["unplaced"]} of {counts["items"]} items have no place',
        ]
        if counts['untrusted']:
            words.append(f'{counts["untrusted"]} of {counts["deltas"]} deltas have no pose')
        if counts['failed']:
            words.append(f'{counts["failed"]} of {counts["deltas"]} keyframes were not perceived')
        if self.parts > 1:
            words.append(f'the way is known in {self.parts} parts, of which the richest is told')
        if part is not self._part or self._is_elsewhere:
            words.append('the camera is elsewhere: where it is now is not known')
        return '; '.join(words)

    def _lens(self, delta: SemanticDelta, view: CameraView) -> tuple[float, float] | None:
        if view.intrinsics:
            return None
        lens = self._lenses.setdefault(delta.camera, ItemLens())
        lens.learn(delta.items)
        return lens.focal_shares

    def _take(self, delta: SemanticDelta, items: Sequence[ItemSighting], sight: Sight) -> None:
        part = self._part
        placed = [one for one in items if one.sighting.is_placed]
        claimed: _Claims = {}
        rest: list[ItemSighting] = []
        partners = dict(assign(placed, part.records))
        for row, one in enumerate(placed):
            part.item_scales[one.item.scale] += 1
            record = part.records[partners[row]] if row in partners else None
            if record is None:
                rest += [] if one.item.is_doubtful else [one]
                continue
            (record.move if _shows_move(one) else record.see)(one)
            claimed[record.id] = record
        self._take_moved(delta, rest, claimed, sight)
        directions = [one for one in items if not one.sighting.is_placed]
        rays = self._take_rays(directions, claimed, sight)
        unplaced = [one for one in rays if not one.item.is_doubtful]
        for one in rest:
            if one.item.status is ItemStatus.MOVED and one.sighting.is_cut:
                continue  # known by its pair of keyframes, and not where it seems to be
            record = self._new_record(one.sighting)
            record.see(one)
            claimed[record.id] = record
        self._cross(unplaced, claimed, sight)
        for record in claimed.values():
            self._date_back(record)
        self.counts['items'] += len(items)
        _keep_apart(list(claimed.values()))
        self._note_misses(claimed, sight, delta.items)
        self._tidy_up(claimed)

    def _take_rays(
        self, rays: Sequence[ItemSighting], claimed: _Claims, sight: Sight
    ) -> list[ItemSighting]:
        """Let directions support the landmarks that they meet; returns those that meet none."""
        free = [record for record in self._part.records if record.id not in claimed]
        partners = dict(assign_rays(rays, free))
        for row, column in partners.items():
            self._see(free[column], rays[row], sight)
            claimed[free[column].id] = free[column]
        return [one for row, one in enumerate(rays) if row not in partners]

    def _see(self, record: LandmarkRecord, one: ItemSighting, sight: Sight) -> None:
        """Take a direction as a sighting of a landmark.

        In a relative unit it gives the size in that unit, and what was measured of its distance
        how many metres that has.
        """
        if self._part.is_relative:
            far = math.dist(one.sighting.origin, record.position)
            one = replace(one, size=sight.size_of(replace(one.item, distance_m=far)))
            if far > 0:
                self._part.note_measured(one.item.scale, one.item.distance_m / far)
        record.see(one)

    def _take_moved(
        self, delta: SemanticDelta, rest: list[ItemSighting], claimed: _Claims, sight: Sight
    ) -> None:
        """Find the landmarks that are now elsewhere; what is left in `rest` is new."""
        for one in list(rest):
            free = [r for r in self._part.records if r.id not in claimed]
            alike = [r for r in free if one.label.difference(r.label) <= _ALIKE]
            twins = [o for o in rest if one.label.difference(o.label) <= _ALIKE]
            if _shows_move(one):
                record = _last_seen(alike, delta.from_stamp_ns, one.sighting)
            else:
                left = [r for r in alike if _has_left(r, sight)]
                record = left[0] if len(left) == len(twins) == 1 else None
            if record:
                record.move(one)
                claimed[record.id] = record
                rest.remove(one)

    def _cross(self, unplaced: Sequence[ItemSighting], claimed: _Claims, sight: Sight) -> None:
        """Place directions that earlier ones cross, and keep the others for later."""
        part = self._part
        for one in unplaced:
            meeting = crossing(one, part.rays, *[RELATIVE_ALONG] * part.is_relative)
            if meeting is None:
                self.counts['unplaced'] += 1
                part.rays = [*part.rays, one][-self.config.max_rays :]
                continue
            place, numbers = meeting
            record = self._new_record(one.sighting)
            record.position = place
            for number in sorted(numbers):
                self._see(record, part.rays[number], sight)
                self.counts['unplaced'] -= 1
            self._see(record, one, sight)
            claimed[record.id] = record
            part.rays = [ray for n, ray in enumerate(part.rays) if n not in numbers]

    def _date_back(self, record: LandmarkRecord) -> None:
        """Let a thing be first seen where it was, also in which direction alone was known then.

        Such a sighting changes no place: of a thing whose distance is unsure, more than one may
        lie in a direction.
        """
        for ray in self._part.rays:
            stamp_ns = ray.sighting.stamp_ns
            if stamp_ns >= record.first_seen_ns or ray.label.difference(record.label):
                continue
            fitting = {
                other.id
                for other in self._part.records
                if ray.label.difference(other.label) == 0 and meets(ray.sighting, other.position)
            }
            if fitting == {record.id}:
                record.first_seen_ns = stamp_ns

    def _new_record(self, sighting: Sighting) -> LandmarkRecord:
        part = self._part
        record = LandmarkRecord(part.next_id, sighting.position, np.eye(3))
        part.next_id += 1
        part.records.append(record)
        return record

    def _note_misses(self, claimed: _Claims, sight: Sight, items: Sequence[Item]) -> None:
        is_full = len(items) >= self.config.full_delta_items
        sizes_rad = [item.size_rad for item in items if math.isfinite(item.size_rad)]
        smallest = min(sizes_rad, default=0.0) if is_full else 0.0
        for record in self._part.records:
            far_m = float(np.linalg.norm(record.position - sight.origin))
            if (
                record.id in claimed
                or record.status is LandmarkStatus.GONE
                or far_m > 1.2 * record.farthest_m
                or record.extent_m < smallest * far_m
            ):
                continue
            shows = sight.of(record.position, record.extent_m)
            if shows in {PlaceSight.EMPTY, PlaceSight.OPEN}:
                record.miss(sight.origin, looks_through=shows is PlaceSight.EMPTY)

    def _tidy_up(self, claimed: _Claims) -> None:
        """Make one of landmarks that turn out to be one, and drop what is least sure."""
        part = self._part
        for record in list(claimed.values()):
            twin = part.twin(record)
            if twin and record in part.records:
                first, second = sorted((record, twin), key=lambda one: one.id)
                first.absorb(second)
                part.records.remove(second)
        for record in [one for one in part.records if one.status is LandmarkStatus.GONE]:
            heir = part.heir(record)
            if heir:
                heir.follow(record)
                part.records.remove(record)
            elif not record.pinned and (record.observations == 1 or record.unsure_m > _UNSURE_M):
                part.records.remove(record)  # it was a mistake
        while len(part.records) > self.config.max_landmarks:
            part.records.remove(
                min(
                    part.records,
                    key=lambda one: (
                        one.pinned,
                        one.status is LandmarkStatus.PRESENT,
                        one.confidence,
                        one.last_seen_ns,
                        one.id,
                    ),
                )
            )

    def edit(self, record: LandmarkRecord, edit: MapEdit) -> None:
        """Do what somebody wants to be done with one of `records`."""
        record.pinned = edit is MapEdit.PIN
        if edit is MapEdit.FORGET:
            self._richest.records.remove(record)

    def kept(self) -> LandmarkMap:
        """An equal map of the richest part, which goes on by poses in its own frame alone."""
        return LandmarkMap.from_json(self.to_json(), self.config)

    def to_json(self) -> dict[str, Any]:
        """What is kept of it as plain JSON values: the richest part."""
        return {
            'version': STATE_VERSION,
            'counts': dict(self.counts),
            'lenses': {camera: lens.to_json() for camera, lens in self._lenses.items()},
            'part': self._richest.to_json(),
        }

    @classmethod
    def from_json(cls, value: Any, config: MapConfig | None = None) -> LandmarkMap:
        """Make a map of what `to_json` gave, in this version or an earlier one.

        Raises:
            InputError: It is none, or of another version.
        """
        version = value.get('version') if isinstance(value, dict) else None
        if version not in _READ_VERSIONS:
            msg = f'state of a map has version {version!r}: expected at most {STATE_VERSION}'
            raise InputError(msg)
        landmarks = cls(config)
        try:
            landmarks.counts = Counter({str(k): int(n) for k, n in value['counts'].items()})
            for camera, sums in value['lenses'].items():
                landmarks._lenses.setdefault(str(camera), ItemLens()).restore(sums)
            # Version 1 kept a second part.
            parts = [MapPart.from_json(v) for v in (value['part'], value.get('other')) if v]
            part = max(parts, key=lambda one: one.weight)
            frame_id = START_FRAME if part.is_relative else MAP_FRAME
            landmarks._part = replace(part, frame_id=frame_id)
            landmarks._track.go_on(part.number, frame_id, part.pose_scales)
        except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
            msg = f'state of a map is unreadable ({error!r}): begin a new one'
            raise InputError(msg) from None
        return landmarks


def _shows_move(one: ItemSighting) -> bool:
    """Whether a thing moved by itself: the end of one that an edge cuts off moves without."""
    return one.item.status is ItemStatus.MOVED and not one.sighting.is_cut


def _keep_apart(records: Sequence[LandmarkRecord]) -> None:
    for one in records:
        for other in records:
            if one is not other and math.dist(one.position, other.position) < NEIGHBOUR_M:
                one.keep_apart(other.id)


def _last_seen(
    records: Sequence[LandmarkRecord], stamp_ns: int, sighting: Sighting
) -> LandmarkRecord | None:
    """The nearest landmark that was seen at a stamp, or else the nearest; None: none is near."""
    near = [
        (record.last_seen_ns != stamp_ns, math.dist(record.position, sighting.position), record.id)
        for record in records
    ]
    near = [entry for entry in near if entry[1] <= _MOVES_M]
    best = min(near, default=None)
    return next((record for record in records if best and record.id == best[2]), None)


def _has_left(record: LandmarkRecord, sight: Sight) -> bool:
    """Whether a landmark is not where it was, by now or by this keyframe."""
    if record.status is LandmarkStatus.GONE:
        return True
    shows = sight.of(record.position, record.extent_m)
    if shows is PlaceSight.OPEN:
        return record.is_known_from(sight.origin)
    return shows is PlaceSight.EMPTY


def check_folder(folder: Path) -> None:
    """Make the folder of a map, where it is not there.

    Raises:
        InputError: It is none, or cannot be written to.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        msg = f'cannot write to {folder}: {error.strerror}'
        raise InputError(msg) from None
    if not os.access(folder, os.W_OK | os.X_OK):
        msg = f'cannot write to {folder}: give this user the right to, or name another folder'
        raise InputError(msg)


def write_scene_map(path: Path, scene_map: SceneMap) -> None:
    """Write a MAP.json; it appears whole.

    Raises:
        InputError: It cannot be written.
    """
    write_whole(path, scene_map_text(scene_map))


def scene_map_text(scene_map: SceneMap) -> str:
    """The text of a MAP.json."""
    return json.dumps(scene_map.to_json(), indent=1) + '\n'
