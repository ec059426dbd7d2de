# SPDX-License-Identifier: Apache-2.0
"""What changed in a place between two visits, with what each of them looked at.

Each visit has a map of its own, in one frame. A thing is gone where its place was looked at
without it; what hides a place, or an edge that cuts it off, is no look. A thing that is new has
appeared only where the first visit had looked at its place.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum
import math
from typing import Any, TYPE_CHECKING

from embodied_r_ros.core.scene.camera import CameraView, MAP_FRAME, PlaceSight, Sight
from embodied_r_ros.core.scene.landmark_map import LandmarkMap
from embodied_r_ros.core.scene.map_part import same_places
from embodied_r_ros.core.scene.sightings import LabelParts
from embodied_r_ros.core.types.deltas import DeltaKind, ItemStatus
from embodied_r_ros.core.types.geometry import as_position, pixels_of_points, vector_of_direction
from embodied_r_ros.core.types.landmarks import LandmarkStatus
import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from embodied_r_ros.core.perception.visit_joint import Joint, VisitKeyframe
    from embodied_r_ros.core.scene.landmark_record import LandmarkRecord
    from embodied_r_ros.core.types.arrays import Float32s, Float64s
    from embodied_r_ros.core.types.deltas import Item, SemanticDelta
    from embodied_r_ros.core.types.geometry import Position
    from embodied_r_ros.core.types.landmarks import SceneMap

_LEAST_SIGHTINGS, _LEAST_SURE = 2, 0.5  # and confidence of a landmark that counts
_SHOWN_SHARE = 0.3  # of a thing that must be in view: perception finds what an edge cuts off too
_LEAST_LOOKS = 2  # at a place, that tell what is not there
_FARTHER, _LEAST_SIZE_RAD = 1.6, 0.1  # than it was seen from, and its size, that a look tells
_UNSURE_M = 0.5  # of a place, from which on no look is known to be at it
_SLACK_RAD = math.radians(4.0)  # between a direction and a place in it
_ALIKE = 0.5  # difference of labels up to which a thing elsewhere may be the same
_UNSEEN_SHARE = 0.7  # of the confidence that is left to what nobody saw go
_DEPTH_PX = 160  # width of the depth that points give
_LOOKED_AT = {PlaceSight.OPEN, PlaceSight.EMPTY}


class ChangeKind(Enum):
    """What happened to a thing between two visits."""

    APPEARED = 'appeared'
    GONE = 'gone'
    MOVED = 'moved'
    PERHAPS_MOVED = 'perhaps the same'  # one like it is elsewhere; nobody looked at its old place
    NOT_LOOKED_AT = 'not looked at'  # by the second visit
    NEW_PLACE = 'not looked at before'  # it is there, at a place that the first visit did not see


# Of a thing that one visit alone has: where the other did not look at its place, and where it did.
_IF_AWAY = ChangeKind.NOT_LOOKED_AT, ChangeKind.GONE
_IF_NEW = ChangeKind.NEW_PLACE, ChangeKind.APPEARED
_WORDS = {ChangeKind.APPEARED: 'new', ChangeKind.GONE: 'gone', ChangeKind.MOVED: 'moved'}
CHANGED = tuple(_WORDS)


@dataclass(frozen=True)
class Change:
    """What happened to one thing."""

    kind: ChangeKind
    label: str
    confidence: float  # 0..1
    before: Position | None = None  # where it was [m]; None: not known
    after: Position | None = None  # where it is [m]; None: not known, or nowhere
    size_m: float = 0.0
    looks: int = 0  # keyframes of the other visit that looked at the place
    views: tuple[int | None, int | None] = (None, None)  # numbers of keyframes that show it best

    @property
    def places(self) -> tuple[Position | None, Position | None]:
        """Where it was and where it is."""
        return self.before, self.after

    @property
    def words(self) -> str:
        """What happened to it, in words."""
        way = math.dist(self.before, self.after) if self.before and self.after else math.nan
        far = f' by {way:.1f} m' if self.kind is ChangeKind.MOVED and way == way else ''
        verb = {'new': 'is new', 'gone': 'is gone', 'moved': 'has moved'}[_WORDS[self.kind]]
        return f'the {self.label} {verb}{far}'

    @property
    def sure_text(self) -> str:
        """How sure it is and what it rests on, in words."""
        looks = f'{self.looks} look{"" if self.looks == 1 else "s"} at its place'
        return f'{100 * self.confidence:.0f} %, {looks}'

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values, metres rounded to the millimetre."""
        places = {'from': self.before, 'to': self.after}
        return {
            'kind': self.kind.value,
            'label': self.label,
            **{k: [round(v, 3) for v in place] if place else None for k, place in places.items()},
            'confidence': round(self.confidence, 3),
            'looks': self.looks,
        }


@dataclass(frozen=True)
class SeenKeyframe:
    """What was perceived of a keyframe, and from where; the pose is in the frame of the map."""

    delta: SemanticDelta
    view: CameraView

    def look_at(self, place: Position | Float64s, extent_m: float) -> PlaceSight:
        """What it shows of a place [m]."""
        if self.view.pose is None or self.delta.kind is DeltaKind.FAILED:
            return PlaceSight.OUTSIDE
        sight = Sight(self.view.pose, self.view, None, self.delta.items)
        return sight.of(np.asarray(place), extent_m)

    def shows_alike(self, record: LandmarkRecord, own: Sequence[LandmarkRecord]) -> bool:
        """Whether something is seen in the direction of a landmark that may be it.

        Args:
            record: A landmark of another visit.
            own: Those of this visit, which explain what is seen where they are.
        """
        return any(
            math.isfinite(LabelParts.of(item.label).difference(record.label))
            and self._is_towards(item, record)
            for item in self._unplaced(own)
        )

    def shows_unplaced(self, label: str, own: Sequence[LandmarkRecord]) -> bool:
        """Whether it shows a thing like one with a label, which no landmark of its visit is."""
        return any(_is_alike(item.label, label) for item in self._unplaced(own))

    def _unplaced(self, own: Sequence[LandmarkRecord]) -> Iterator[Item]:
        for item in self.delta.items:
            label = LabelParts.of(item.label)
            if item.status is not ItemStatus.LEFT and not any(
                math.isfinite(label.difference(o.label)) and self._is_towards(item, o) for o in own
            ):
                yield item

    def _is_towards(self, item: Item, record: LandmarkRecord) -> bool:
        if self.view.pose is None:
            return False
        way = self.view.pose.rotation().T @ (record.position - self.view.pose.position)
        return _is_towards(vector_of_direction(item.bearing_rad, item.elevation_rad), way, record)


@dataclass(frozen=True)
class VisitChanges:
    """The map of both visits, and what changed between them."""

    changes: tuple[Change, ...]
    same: int  # landmarks that are where they were
    scene_map: SceneMap

    def of_kind(self, what: str) -> list[Change]:
        """What is 'new', 'gone' or 'moved', or 'all' of these."""
        return [change for change in self.changed if what in ('all', _WORDS[change.kind])]

    @property
    def changed(self) -> tuple[Change, ...]:
        """What appeared, is gone or has moved."""
        return tuple(change for change in self.changes if change.kind in CHANGED)


def seen_keyframe(
    delta: SemanticDelta, shot: VisitKeyframe, depth: Float32s | None, joint: Joint | None
) -> SeenKeyframe:
    """A keyframe with its pose in the frame of the map.

    Args:
        delta: What was perceived of it.
        shot: Its pose and lens, and the points that it shows.
        depth: Along its optical axis [m]; None: that of its points counts.
        joint: Where the frame of its visit is in that of the map; None: it is that of the map.
    """
    pose = replace(joint.pose(shot.pose) if joint else shot.pose, frame_id=MAP_FRAME)
    shown = depth_of_points(shot) if depth is None else depth
    return SeenKeyframe(delta, CameraView(pose, shot.lens, shown, is_sparse=depth is None))


def depth_of_points(shot: VisitKeyframe) -> Float32s:
    """Depth along the optical axis where points are known [m], 0 elsewhere. Shape (h, w)."""
    wide = min(_DEPTH_PX, shot.lens.width)
    small = shot.lens.scaled(wide, round(wide * shot.lens.height / shot.lens.width))
    depth = np.zeros((small.height, small.width), np.float32)
    local = shot.view.points(shot.points[np.isfinite(shot.points[:, 0])])
    local = local[local[:, 2] > 0]
    columns, rows = np.floor(pixels_of_points(small, local) + 0.5).astype(int).T
    inside = (columns >= 0) & (columns < small.width) & (rows >= 0) & (rows < small.height)
    depth[rows[inside], columns[inside]] = local[inside, 2]
    return depth


def behind(delta: SemanticDelta, step: int, late_ns: int) -> SemanticDelta:
    """A delta of a later visit, with ids and stamps [ns] behind those of the visits before."""
    return replace(
        delta,
        to_id=delta.to_id + step,
        from_id=delta.from_id + step,
        stamp_ns=delta.stamp_ns + late_ns,
        from_stamp_ns=delta.from_stamp_ns + late_ns,
    )


def changes_between(before: Sequence[SeenKeyframe], after: Sequence[SeenKeyframe]) -> VisitChanges:
    """Say what changed between two visits whose poses are in one frame.

    Args:
        before: Keyframes of the first visit, in order; ids and stamps differ from those of the
            second one, and are smaller.
        after: Those of the second one.
    """
    old = map_of(before)
    return compare_visits(before, after, old, map_of(after), map_of(after, old.kept()))


def compare_visits(
    before: Sequence[SeenKeyframe],
    after: Sequence[SeenKeyframe],
    old_map: LandmarkMap,
    new_map: LandmarkMap,
    both: LandmarkMap,
) -> VisitChanges:
    """Say what changed, as `changes_between`, with the maps of each visit and of both."""
    old, new = old_map.records, new_map.records
    pairs = same_places(old, new)
    away = [one for n, one in enumerate(old) if n not in {row for row, _ in pairs}]
    fresh = [one for n, one in enumerate(new) if n not in {column for _, column in pairs}]
    changes = [c for one in away if (c := _change(one, after, new, is_away=True))]
    changes += [c for one in fresh if (c := _change(one, before, old, is_away=False))]
    told = _with_same_elsewhere(changes, [old[row].name for row, _ in pairs])
    ranked = sorted(told, key=lambda one: (list(ChangeKind).index(one.kind), -one.confidence))
    views = tuple(_with_views(each, before, after) for each in ranked)
    same = sum(old[row].status is LandmarkStatus.PRESENT for row, _ in pairs)
    return VisitChanges(views, same, _with_changes(both.scene_map(), views))


def _with_changes(scene_map: SceneMap, changes: Sequence[Change]) -> SceneMap:
    """A map whose landmarks say what changed of them."""
    landmarks = list(scene_map.landmarks)
    for change in reversed(changes):  # the surest kinds last: they stand
        place = change.after or change.before
        assert place
        near = [
            (math.dist(one.position, place), number)
            for number, one in enumerate(landmarks)
            if one.label == change.label
        ]
        far_m, number = min(near, default=(math.inf, 0))
        if far_m <= _UNSURE_M:
            one = replace(landmarks[number], change=change.kind.value)
            is_gone = change.kind is ChangeKind.GONE
            landmarks[number] = replace(one, status=LandmarkStatus.GONE) if is_gone else one
    return replace(scene_map, landmarks=tuple(landmarks))


def map_of(visit: Iterable[SeenKeyframe], landmarks: LandmarkMap | None = None) -> LandmarkMap:
    """A map of keyframes whose poses are in one frame, or one of before that goes on with them."""
    landmarks = landmarks or LandmarkMap()
    for each in visit:
        if each.view.pose is None:
            landmarks.pass_over()
        else:
            landmarks.add(each.delta, each.view)
    return landmarks


def _change(
    record: LandmarkRecord,
    others: Sequence[SeenKeyframe],
    own: Sequence[LandmarkRecord],
    *,
    is_away: bool,
) -> Change | None:
    """A landmark that one visit has; None: it is too unsure, or the other visit saw it too.

    Args:
        record: The landmark.
        others: Keyframes of the other visit.
        own: Landmarks of that visit.
        is_away: Whether the first visit has it.
    """
    if not _counts(record) or any(each.shows_alike(record, own) for each in others):
        return None
    if any(_is_mislaid(record, one) for one in own):
        return None
    reach_m = max(_FARTHER * record.farthest_m, record.extent_m / _LEAST_SIZE_RAD)
    looks = sum(
        each.look_at(record.position, _SHOWN_SHARE * record.extent_m) in _LOOKED_AT
        for each in others
        if each.view.pose and math.dist(each.view.pose.position, record.position) <= reach_m
    )
    looks = 0 if record.unsure_m > _UNSURE_M else looks
    kind = (_IF_AWAY if is_away else _IF_NEW)[looks >= _LEAST_LOOKS]
    sure = record.confidence * (1 - 0.5**looks if looks else 1)
    known = [one for one in own if _counts(one)]
    is_elsewhere = any(each.shows_unplaced(record.name, known) for each in others)
    if is_elsewhere and looks >= _LEAST_LOOKS:
        kind, sure = ChangeKind.MOVED, _UNSEEN_SHARE * sure  # where the other end is, is not known
    place = as_position(record.position)
    ends: tuple[Position | None, Position | None] = (place, None) if is_away else (None, place)
    return Change(kind, record.name, sure, *ends, record.extent_m, looks)


def _is_mislaid(record: LandmarkRecord, other: LandmarkRecord) -> bool:
    """Whether a landmark is another one that was seen there, and taken for nearer or farther."""
    if not math.isfinite(record.label.difference(other.label)):
        return False
    return all(
        _is_towards(np.asarray(one.ray), other.position - one.origin, other)
        for one in record.sightings
    )


def _is_towards(ray: Float64s, way: Float64s, record: LandmarkRecord) -> bool:
    """Whether a direction (3,) is that of a landmark, which lies a way (3,) off [m]."""
    far_m = float(np.linalg.norm(way))
    slack = _SLACK_RAD + math.atan2(record.unsure_m + 0.5 * record.extent_m, far_m)
    return bool(ray @ way >= far_m * math.cos(min(slack, math.pi / 2)))


def _counts(record: LandmarkRecord) -> bool:
    is_known = record.observations >= _LEAST_SIGHTINGS and record.confidence >= _LEAST_SURE
    return is_known and record.status is LandmarkStatus.PRESENT


def _with_same_elsewhere(changes: Sequence[Change], stay: Sequence[str]) -> list[Change]:
    """Changes with those as one whose thing may be the same: one is away, one is new.

    It has moved where its old place was looked at, or where nothing else is like it; else it is
    perhaps the same.

    Args:
        changes: Of each thing alone.
        stay: Labels of things that are where they were.
    """
    away = [each for each in changes if each.after is None]
    new = [each for each in changes if each.before is None]
    told: list[Change] = []
    for one in list(away):
        heirs = [each for each in new if _is_alike(one.label, each.label)]
        rivals = [each for each in away if _is_alike(one.label, each.label)]
        if len(heirs) == len(rivals) == 1:
            away.remove(one)
            new.remove(heirs[0])
            is_unique = not any(_is_alike(one.label, label) for label in stay)
            is_sure = one.looks >= _LEAST_LOOKS or is_unique
            kind = ChangeKind.MOVED if is_sure else ChangeKind.PERHAPS_MOVED
            sure = _UNSEEN_SHARE * min(one.confidence, heirs[0].confidence)
            told.append(replace(one, kind=kind, after=heirs[0].after, confidence=sure))
    return [*told, *away, *new]


def _is_alike(one: str, other: str) -> bool:
    return LabelParts.of(one).difference(LabelParts.of(other)) <= _ALIKE


def _with_views(
    change: Change, before: Sequence[SeenKeyframe], after: Sequence[SeenKeyframe]
) -> Change:
    """A change with the keyframe of each visit that shows its place best."""
    first, second = change.before or change.after, change.after or change.before
    assert first
    assert second
    size_m = change.size_m
    views = _best_view(first, size_m, before), _best_view(second, size_m, after)
    return replace(change, views=views)


def _best_view(place: Position, extent_m: float, keyframes: Sequence[SeenKeyframe]) -> int | None:
    """The nearest keyframe that shows a place whole; None: there is none."""
    hidden = {PlaceSight.OUTSIDE, PlaceSight.HIDDEN}
    near = [
        (math.dist(each.view.pose.position, place), number)
        for number, each in enumerate(keyframes)
        if each.view.pose and each.look_at(place, extent_m) not in hidden
    ]
    return min(near, default=(0.0, None))[1]
