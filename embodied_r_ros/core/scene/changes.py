# SPDX-License-Identifier: Apache-2.0
"""What changed in a place between two visits, with what each of them looked at.

The map of the first visit goes on with what the second one saw. A thing is gone where its place was
looked at without it; what hides a place, or an edge that cuts it off, is no look. A thing that is
new counts as having appeared only where the first visit had looked at its place.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum
import math
from typing import Any, TYPE_CHECKING

from embodied_r_ros.core.scene.camera import CameraView, PlaceSight, Sight
from embodied_r_ros.core.scene.landmark_map import LandmarkMap
from embodied_r_ros.core.scene.sightings import LabelParts
from embodied_r_ros.core.types.landmarks import LandmarkStatus
import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from embodied_r_ros.core.types.deltas import SemanticDelta
    from embodied_r_ros.core.types.geometry import Position
    from embodied_r_ros.core.types.landmarks import Landmark, SceneMap

_LEAST_SIGHTINGS = 2  # of a landmark that counts
_SHOWN_SHARE = 0.5  # of a thing that must be in view: perception finds what an edge cuts off too
_LEAST_LOOKS = 2  # at a place, that tell what is not there
_MOVED_M, _MOVED_SIZE = 0.35, 0.5  # from where it was: a part, and of its size
_ALIKE = 0.5  # difference of labels up to which a thing elsewhere may be the same
_UNSEEN_SHARE = 0.7  # of the confidence that is left to what nobody saw go
_USUAL_M = 0.4  # size of a thing whose size is not known
_LOOKED_AT = {PlaceSight.OPEN, PlaceSight.EMPTY}


class ChangeKind(Enum):
    """What happened to a thing between two visits."""

    APPEARED = 'appeared'
    GONE = 'gone'
    MOVED = 'moved'
    PERHAPS_MOVED = 'perhaps the same'  # one like it is elsewhere; nobody looked at its old place
    NOT_LOOKED_AT = 'not looked at'  # by the second visit
    NEW_PLACE = 'not looked at before'  # it is there, at a place that the first visit did not see


CHANGED = (ChangeKind.APPEARED, ChangeKind.GONE, ChangeKind.MOVED)


@dataclass(frozen=True)
class Change:
    """What happened to one thing."""

    kind: ChangeKind
    label: str
    confidence: float  # 0..1
    before: Position | None = None  # where it was [m]; None: not known
    after: Position | None = None  # where it is [m]; None: not known, or nowhere
    size_m: float = _USUAL_M
    looks: int = 0  # keyframes of the other visit that looked at the place
    keyframes: tuple[int | None, int | None] = (None, None)  # that show it best, of each visit

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values, metres rounded to the millimetre."""
        places = {'from': self.before, 'to': self.after}
        return {
            'kind': self.kind.value,
            'label': self.label,
            **{k: [round(v, 3) for v in place] if place else None for k, place in places.items()},
            'confidence': round(self.confidence, 3),
            'looks': self.looks,
            'keyframes': list(self.keyframes),
        }


@dataclass(frozen=True)
class SeenKeyframe:
    """What was perceived of a keyframe, and from where; the pose is in the frame of the map."""

    delta: SemanticDelta
    view: CameraView

    def look_at(self, place: Position, extent_m: float) -> PlaceSight:
        """What it shows of a place [m]."""
        if self.view.pose is None:
            return PlaceSight.OUTSIDE
        sight = Sight(self.view.pose, self.view, None, self.delta.items)
        return sight.of(np.asarray(place), extent_m)


@dataclass(frozen=True)
class VisitChanges:
    """The map of both visits, and what changed between them."""

    changes: tuple[Change, ...]
    same: int  # landmarks that are where they were
    scene_map: SceneMap

    @property
    def changed(self) -> tuple[Change, ...]:
        """What appeared, is gone or has moved."""
        return tuple(change for change in self.changes if change.kind in CHANGED)


def changes_between(
    before: Sequence[SeenKeyframe], after: Sequence[SeenKeyframe]
) -> VisitChanges:
    """Say what changed between two visits whose poses are in one frame.

    Args:
        before: Keyframes of the first visit, in order; ids and stamps differ from those of the
            second one, and are smaller.
        after: Those of the second one.
    """
    landmarks = LandmarkMap()
    _add(landmarks, before)
    first = landmarks.scene_map()
    _add(landmarks, after)
    last = landmarks.scene_map()
    old = {one.id: one for one in first.landmarks if _counts(one)}
    known = {one.id for one in first.landmarks}
    new = [one for one in last.landmarks if one.id not in known and _counts(one)]
    by_id = {one.id: one for one in last.landmarks}
    start_ns = after[0].delta.stamp_ns
    pairs = [(one, by_id[number]) for number, one in old.items() if number in by_id]
    changes = [_change_of(*pair, start_ns, after) for pair in pairs]
    same = sum(change is None for change in changes)
    fresh = [_fresh(one, before) for one in new]
    told = _with_same_elsewhere([*filter(None, changes), *fresh])
    ranked = sorted(told, key=lambda one: (list(ChangeKind).index(one.kind), -one.confidence))
    return VisitChanges(tuple(_with_views(each, before, after) for each in ranked), same, last)


def _add(landmarks: LandmarkMap, keyframes: Iterable[SeenKeyframe]) -> None:
    for each in keyframes:
        if each.view.pose is None:
            landmarks.pass_over()
        else:
            landmarks.add(each.delta, each.view)


def _counts(one: Landmark) -> bool:
    return one.status is LandmarkStatus.PRESENT and one.observations >= _LEAST_SIGHTINGS


def _extent_m(one: Landmark) -> float:
    return max(one.size) if one.size else _USUAL_M


def _change_of(
    old: Landmark, new: Landmark, start_ns: int, after: Sequence[SeenKeyframe]
) -> Change | None:
    """What happened to a landmark of the first visit; None: it is where it was."""
    extent_m = _extent_m(old)
    looks = _looks(old.position, extent_m, after)
    made = Change(ChangeKind.GONE, old.label, old.confidence, old.position, size_m=extent_m)
    made = replace(made, looks=looks)
    if new.status is LandmarkStatus.GONE:
        return replace(made, confidence=old.confidence * (1 - 0.5 ** max(1, looks)))
    if new.last_seen_ns < start_ns:
        return replace(made, kind=ChangeKind.NOT_LOOKED_AT)
    if math.dist(old.position, new.position) <= _MOVED_M + _MOVED_SIZE * extent_m:
        return None
    sure = min(old.confidence, new.confidence)
    return replace(made, kind=ChangeKind.MOVED, confidence=sure, after=new.position)


def _fresh(new: Landmark, before: Sequence[SeenKeyframe]) -> Change:
    """What is said of a landmark that the second visit found."""
    extent_m = _extent_m(new)
    looks = _looks(new.position, extent_m, before)
    kind = ChangeKind.APPEARED if looks >= _LEAST_LOOKS else ChangeKind.NEW_PLACE
    return Change(kind, new.label, new.confidence, None, new.position, extent_m, looks)


def _looks(place: Position, extent_m: float, keyframes: Sequence[SeenKeyframe]) -> int:
    shown_m = _SHOWN_SHARE * extent_m
    return sum(each.look_at(place, shown_m) in _LOOKED_AT for each in keyframes)


def _with_same_elsewhere(changes: Sequence[Change]) -> list[Change]:
    """Changes with those as one whose thing may be the same: one is away, one is new.

    It has moved where its old place was looked at; else it is perhaps the same.
    """
    away = [each for each in changes if each.after is None]
    new = [each for each in changes if each.before is None]
    told = [each for each in changes if each.after and each.before]
    for one in list(away):
        heirs = [each for each in new if _is_alike(one, each)]
        rivals = [each for each in (*away, *told) if _is_alike(one, each)]
        if len(heirs) == len(rivals) == 1:
            away.remove(one)
            new.remove(heirs[0])
            is_gone = one.kind is ChangeKind.GONE
            kind = ChangeKind.MOVED if is_gone else ChangeKind.PERHAPS_MOVED
            sure = _UNSEEN_SHARE * min(one.confidence, heirs[0].confidence)
            told.append(replace(one, kind=kind, after=heirs[0].after, confidence=sure))
    return [*told, *away, *new]


def _is_alike(one: Change, other: Change) -> bool:
    return LabelParts.of(one.label).difference(LabelParts.of(other.label)) <= _ALIKE


def _with_views(
    change: Change, before: Sequence[SeenKeyframe], after: Sequence[SeenKeyframe]
) -> Change:
    """A change with the keyframe of each visit that shows its place best."""
    first, second = change.before or change.after, change.after or change.before
    assert first
    assert second
    views = (
        _best_view(first, change.size_m, before),
        _best_view(second, change.size_m, after),
    )
    return replace(change, keyframes=views)


def _best_view(place: Position, extent_m: float, keyframes: Sequence[SeenKeyframe]) -> int | None:
    """The nearest keyframe that shows a place whole; None: there is none."""
    hidden = {PlaceSight.OUTSIDE, PlaceSight.HIDDEN}
    near = [
        (math.dist(each.view.pose.position, place), each.delta.to_id)
        for each in keyframes
        if each.view.pose and each.look_at(place, extent_m) not in hidden
    ]
    return min(near, default=(0.0, None))[1]
