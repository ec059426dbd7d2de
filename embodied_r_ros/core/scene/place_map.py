# SPDX-License-Identifier: Apache-2.0
"""One map for many visits, as a robot goes: it finds itself in what it mapped before.

Each run maps in a frame of its own, in which its poses are. What earlier runs left are places:
each has a map and the keyframes by which it is recognised. Once keyframes of the run say where its
frame is in that of a place, both are one map, in which landmarks keep their ids and history. Later
keyframes that contradict this undo it; then the two are again as if they had never been one.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from functools import cached_property
from io import BytesIO
import json
import math
import os
from typing import Any, TYPE_CHECKING
import zipfile

from embodied_r_ros.common.errors import ImageError, InputError
from embodied_r_ros.common.files import write_whole
from embodied_r_ros.core.perception.egomotion import Features, find_features
from embodied_r_ros.core.perception.items import depth_of
from embodied_r_ros.core.perception.visit_joint import (
    JointSearch,
    MOST_KEYFRAMES,
    NotJoinedError,
    PARTNERS,
    place_points_between,
    VisitKeyframe,
)
from embodied_r_ros.core.scene.camera import CameraView, MAP_FRAME, START_FRAME
from embodied_r_ros.core.scene.changes import (
    behind,
    compare_visits,
    map_of,
    seen_keyframe,
    SeenKeyframe,
)
from embodied_r_ros.core.scene.landmark_map import (
    check_folder,
    LandmarkMap,
    MapEdit,
    write_scene_map,
)
from embodied_r_ros.core.types.deltas import DeltaKind, Item, SemanticDelta
from embodied_r_ros.core.types.geometry import (
    as_position,
    Intrinsics,
    NS_PER_S,
    Pose,
    wrap_angle_rad,
    yaw_pitch_roll,
)
from embodied_r_ros.core.types.images import PackedDepth
from embodied_r_ros.core.types.landmarks import newest_stamp_ns, SceneMap
import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from embodied_r_ros.core.perception.visit_joint import Joint
    from embodied_r_ros.core.scene.changes import VisitChanges
    from embodied_r_ros.core.scene.landmark_map import MapConfig
    from embodied_r_ros.core.types.arrays import Float64s
    from embodied_r_ros.core.types.keyframes import Keyframe

_VERSION = 2
_STATE, _OLD_STATE, _MAP = 'state.npz', 'state.json', 'MAP.json'
_MOST_PLACES = 4  # that are kept, the richest ones
_MOST_WAITING = 16  # keyframes that wait to be looked for
_MOST_FOUND = 40  # keyframes of a run on which it rests where it is
_DRIFT_M, _DRIFT_RAD = (
    0.1,
    math.radians(3.0),
)  # of a joint, from which on both are put together anew
_NEAR_M = 0.5  # a landmark of another map that is so near is the same
_M_PER_RAD = 2.0  # between views: a turn by a radian tells them apart as so many metres


@dataclass(frozen=True)
class PlaceKeyframe:
    """A keyframe of a place: what it showed, and what it is recognised by."""

    delta: SemanticDelta
    shot: VisitKeyframe
    depth: PackedDepth | None = None

    def seen(self, joint: Joint | None = None) -> SeenKeyframe:
        """It in the frame of the map, where a joint puts its visit."""
        return seen_keyframe(self.delta, self.shot, depth_of(self.depth), joint)


@dataclass(frozen=True)
class MappedPlace:
    """What visits have left that are in one frame."""

    landmarks: LandmarkMap
    keyframes: tuple[PlaceKeyframe, ...] = ()
    visits: tuple[int, ...] = (0,)  # stamps at which they began [ns]

    @cached_property
    def last_ns(self) -> int:
        """When it was seen last [ns]."""
        return newest_stamp_ns(self.landmarks.scene_map())


@dataclass
class _Joined:
    """A place and this run as one, in the frame of the place."""

    place: MappedPlace
    joint: Joint
    step: int  # between ids of keyframes of this run and in the place
    late_ns: int  # the same of stamps: more than 0 where the clock was set back
    both: LandmarkMap
    new: LandmarkMap = field(default_factory=LandmarkMap)

    def add(self, seen: SeenKeyframe) -> None:
        for landmarks in (self.both, self.new):
            map_of([self.moved(seen)], landmarks)

    def moved(self, seen: SeenKeyframe) -> SeenKeyframe:
        return replace(seen, delta=behind(seen.delta, self.step, self.late_ns))

    def is_at(self, joint: Joint) -> bool:
        """Whether a joint says the same as the one that the maps rest on."""
        turn = self.joint.rotation.T @ joint.rotation
        off_m = float(np.linalg.norm(self.joint.translation - joint.translation))
        return off_m <= _DRIFT_M and (np.trace(turn) - 1) / 2 >= math.cos(_DRIFT_RAD)


class PlaceMap:
    """The map of a run, and of the place once it is found. Not for use from several threads."""

    def __init__(
        self, places: Sequence[MappedPlace] = (), config: MapConfig | None = None
    ) -> None:
        """Begin a run.

        Args:
            places: What earlier runs have left.
            config: Limits of the maps.
        """
        self._config = config
        self.dropped = 0  # keyframes that nobody looked for
        self._begin(places)

    def _begin(self, places: Sequence[MappedPlace]) -> None:
        self._places = sorted(places, key=lambda one: one.landmarks.weight, reverse=True)
        self._searches = [
            JointSearch([each.shot for each in place.keyframes], _MOST_FOUND)
            for place in self._places
        ]
        self._own = LandmarkMap(self._config)
        self._keyframes: list[PlaceKeyframe] = []
        self._waiting: list[VisitKeyframe] = []
        self._looked = 0  # keyframes that were looked for
        self._start_ns: int | None = None
        self._joined: _Joined | None = None
        self._why = 'none of its keyframes was looked for yet'
        self._edits: list[tuple[MapEdit, str, Float64s]] = []
        self._changes: VisitChanges | None = None

    def add(self, delta: SemanticDelta, keyframe: Keyframe | None = None) -> None:
        """Take in what was perceived, with its keyframe where that is known."""
        lens = keyframe.intrinsics if keyframe else None
        depth = depth_of(keyframe.depth) if keyframe else None
        view = CameraView(delta.pose, lens, depth)
        self._own.add(delta, view)
        if self._own.parts > 1 and self._keyframes:  # its poses began anew, as after a restart
            self._begin(self.places())
            self._own.add(delta, view)
        self._start_ns = delta.stamp_ns if self._start_ns is None else self._start_ns
        if keyframe and lens and delta.pose and delta.pose.frame_id != START_FRAME:
            self._take_keyframe(delta, keyframe, lens)
        elif self._joined:
            pose = self._joined.joint.pose(delta.pose) if delta.pose else None
            view = CameraView(pose and replace(pose, frame_id=MAP_FRAME))
            self._joined.add(SeenKeyframe(delta, view))
            self._compare(self._joined)

    def _take_keyframe(self, delta: SemanticDelta, keyframe: Keyframe, lens: Intrinsics) -> None:
        assert delta.pose
        try:
            image = keyframe.image.decode()
        except ImageError:
            return  # of a damaged one the delta alone is known
        shot = VisitKeyframe(delta.pose, find_features(image, keyframe.fixed_mask), lens)
        depth = depth_of(keyframe.depth)
        if depth is not None:
            shot.lift(depth)
        for each in self._keyframes[-PARTNERS:]:
            place_points_between(each.shot, [shot])
        self._keyframes.append(PlaceKeyframe(delta, shot, keyframe.depth))
        if len(self._keyframes) > PARTNERS:
            settled = self._keyframes[-PARTNERS - 1]
            self._keyframes[-PARTNERS - 1] = replace(settled, shot=settled.shot.thinned())
        if len(self._keyframes) > 2 * MOST_KEYFRAMES:
            self._keyframes = _most_different(self._keyframes)
        if self._places:
            self._waiting.append(shot)
            self.dropped += len(self._waiting) > _MOST_WAITING
            del self._waiting[:-_MOST_WAITING]
        if self._joined:
            self._joined.add(self._keyframes[-1].seen(self._joined.joint))

    @property
    def words(self) -> str:
        """Where the robot is. From any thread."""
        joined = self._joined
        if joined is None:
            return f'lost: {self._why}' if self._places else 'in a new map'
        date = datetime.fromtimestamp(joined.place.last_ns / NS_PER_S, timezone.utc)
        return f'in the map of {date:%Y-%m-%d}'

    def look(self) -> bool:
        """Look for a keyframe in the places; tells whether there was one to look for.

        It takes a part of a second, in which other threads may ask what is known.
        """
        if not self._waiting:
            return False
        shot = self._waiting.pop(0)
        for search in self._searches:
            search.add(self._looked, shot)
        self._looked += 1
        joined: _Joined | None = None
        for place, search in zip(self._places, self._searches, strict=True):
            try:
                joint = search.joint()
            except NotJoinedError as error:
                self._why = error.why
                continue
            same = self._joined
            is_same = same and same.place is place and same.is_at(joint)
            joined = same if is_same else self._join(place, joint)
            break
        self._compare(joined)
        return True

    def _join(self, place: MappedPlace, joint: Joint) -> _Joined:
        """Put a place and this run together."""
        step = max((each.delta.to_id for each in place.keyframes), default=-1) + 1
        late_ns = max(0, place.last_ns + 1 - (self._start_ns or 0))
        joined = _Joined(place, joint, step, late_ns, place.landmarks.kept())
        for each in self._keyframes:
            joined.add(each.seen(joint))
        for edit, label, position in self._edits:
            _edit(joined.both, edit, label, joint.point(position))
        return joined

    def _compare(self, joined: _Joined | None) -> None:
        """Say what changed; from now on the robot is where a place was joined, or lost."""
        if joined is None:
            self._joined = self._changes = None
            return
        after = [joined.moved(each.seen(joined.joint)) for each in self._keyframes]
        before = [each.seen() for each in joined.place.keyframes]
        old = joined.place.landmarks
        self._changes = compare_visits(before, after, old, joined.new, joined.both)
        self._joined = joined

    def earlier(self) -> VisitChanges | str | None:
        """What changed since earlier visits, or why that is not known; None: there were none.

        From any thread.
        """
        return self._changes or (self._why if self._places else None)

    def scene_map(self) -> SceneMap:
        """The map as others get it: in the frame of this run, once that has begun."""
        joined, changes, own = self._joined, self._changes, self._own.scene_map()
        if joined is None or changes is None:
            if own.path or not self._places:
                return own
            return self._places[0].landmarks.scene_map()
        told = changes.scene_map
        back, visits = joined.joint.inverse(own.frame_id), joined.place.visits
        start_ns = (self._start_ns or 0) + joined.late_ns
        yaw_rad, _, _ = yaw_pitch_roll(back.rotation)
        landmarks = tuple(
            replace(
                one,
                position=as_position(back.point(np.asarray(one.position))),
                visit=bisect_right((*visits[1:], start_ns), one.last_seen_ns) + 1,
                last_seen_ns=one.last_seen_ns - joined.late_ns * (one.last_seen_ns >= start_ns),
                # Keyframes of earlier runs are gone, and their ids are given to others.
                keyframe_ids=tuple(n - joined.step for n in one.keyframe_ids if n >= joined.step),
            )
            for one in told.landmarks
        )
        path = tuple(
            replace(
                point,
                position=as_position(back.point(np.asarray(point.position))),
                yaw_rad=wrap_angle_rad(point.yaw_rad + yaw_rad),
            )
            for point in told.path
        )
        return replace(told, landmarks=landmarks, path=path, frame_id=own.frame_id)

    def edit(self, edit: MapEdit, label: str, position: Sequence[float]) -> None:
        """Forget, pin or unpin the landmark with a label at a place of `scene_map` [m]."""
        place = np.asarray(position, np.float64)
        self._edits.append((edit, label, place))
        _edit(self._own, edit, label, place)
        joined = self._joined
        if joined:
            there = joined.joint.point(place)
            for landmarks in (joined.both, joined.new, joined.place.landmarks):
                _edit(landmarks, edit, label, there)
            self._compare(joined)
        elif not self._own.path and self._places:
            _edit(self._places[0].landmarks, edit, label, place)

    def places(self) -> list[MappedPlace]:
        """What is to be kept: places, one of which this run may have become a part of."""
        places, joined = list(self._places), self._joined
        own = tuple(self._keyframes)
        start_ns = self._start_ns or 0
        if joined:
            places.remove(joined.place)
            moved = [
                replace(
                    each,
                    delta=behind(each.delta, joined.step, joined.late_ns),
                    shot=joined.joint.keyframe(each.shot.thinned()),
                )
                for each in own
            ]
            keyframes = _most_different([*joined.place.keyframes, *moved])
            visits = (*joined.place.visits, start_ns + joined.late_ns)
            places.append(MappedPlace(joined.both.kept(), tuple(keyframes), visits))
        elif self._start_ns is not None and (len(self._own) or own):
            thin = [replace(each, shot=each.shot.thinned()) for each in own]
            kept = tuple(_most_different(thin))
            places.append(MappedPlace(self._own.kept(), kept, (start_ns,)))
        return sorted(places, key=lambda one: one.landmarks.weight, reverse=True)[:_MOST_PLACES]


def _edit(landmarks: LandmarkMap, edit: MapEdit, label: str, place: Float64s) -> None:
    near = [
        (float(np.linalg.norm(one.position - place)), one.id, one)
        for one in landmarks.records
        if one.name == label
    ]
    far_m, _, record = min(near, default=(math.inf, 0, None), key=lambda entry: entry[:2])
    if record and far_m <= _NEAR_M:
        landmarks.edit(record, edit)


def _most_different(keyframes: Sequence[PlaceKeyframe]) -> list[PlaceKeyframe]:
    """Of more keyframes than are kept those whose views are farthest apart, in their order.

    Of two that are alike the newer one is kept: a memory grows with the place and not with time.
    """
    kept = list(keyframes)
    if len(kept) <= MOST_KEYFRAMES:
        return kept
    places = np.array([each.shot.pose.position for each in kept])
    ahead = np.array([each.shot.pose.rotation()[:, 0] for each in kept])
    apart = np.linalg.norm(places[:, None] - places, axis=2)
    apart += _M_PER_RAD * np.arccos(np.clip(ahead @ ahead.T, -1.0, 1.0))
    apart[np.tril_indices(len(kept))] = math.inf  # each with newer ones
    left = set(range(len(kept)))
    while len(left) > MOST_KEYFRAMES:
        older = int(np.unravel_index(apart.argmin(), apart.shape)[0])
        apart[older], apart[:, older] = math.inf, math.inf
        left.remove(older)
    return [kept[number] for number in sorted(left)]


def write_places(folder: Path, places: Sequence[MappedPlace], scene_map: SceneMap) -> None:
    """Write what `PlaceMap` gave; each file appears whole, or stays as it was.

    Raises:
        InputError: They cannot be written.
    """
    check_folder(folder)
    keyframes = [each for place in places for each in place.keyframes]
    shots, depths = [each.shot for each in keyframes], [each.depth for each in keyframes]
    state = {
        'version': _VERSION,
        'places': [
            {
                'map': place.landmarks.to_json(),
                'visits': place.visits,
                'keyframes': [_keyframe_to_json(each) for each in place.keyframes],
            }
            for place in places
        ],
    }
    buffer = BytesIO()
    np.savez(
        buffer,
        state=np.frombuffer(json.dumps(state).encode(), np.uint8),
        pixels=_rows([one.features.points for one in shots], 2).astype(np.float32),
        points=_rows([one.points for one in shots], 3).astype(np.float32),
        looks=np.rint(255 * _rows([one.features.descriptors for one in shots], 128)).astype('u1'),
        depth=np.frombuffer(b''.join(depth.data for depth in depths if depth), np.uint8),
    )
    for unfinished in folder.glob(f'.{_STATE}.*.tmp'):
        if not unfinished.name.startswith(f'.{_STATE}.{os.getpid()}-'):
            unfinished.unlink(missing_ok=True)  # of a process that was killed
    write_whole(folder / _STATE, buffer.getvalue())
    (folder / _OLD_STATE).unlink(missing_ok=True)  # of version 1: it is in the new file
    write_scene_map(folder / _MAP, scene_map)


def _rows(parts: Sequence[Any], width: int) -> Any:
    return np.concatenate([np.zeros((0, width)), *parts])


def _keyframe_to_json(keyframe: PlaceKeyframe) -> dict[str, Any]:
    delta, pose, lens = keyframe.delta, keyframe.shot.pose, keyframe.shot.lens
    return {
        'id': delta.to_id,
        'stamp_ns': delta.stamp_ns,
        'kind': delta.kind.name,
        'camera': delta.camera,
        'items': [item.to_json() for item in delta.items],
        'pose': [*pose.position, *pose.orientation],
        'lens': [
            lens.width, lens.height, lens.fx, lens.fy, lens.cx, lens.cy, *lens.distortion
        ],
        'features': len(keyframe.shot.points),
        'depth': len(keyframe.depth.data) if keyframe.depth else 0,
    }  # fmt: skip


def read_places(folder: Path, config: MapConfig | None = None) -> list[MappedPlace]:
    """Read what `write_places` wrote, in this version or an earlier one; without it nothing.

    Raises:
        InputError: What is there cannot be read.
    """
    path, old = folder / _STATE, folder / _OLD_STATE
    try:
        if path.exists():
            with np.load(path, allow_pickle=False) as arrays:
                return _places_of(dict(arrays), config)
        if old.exists():
            return [MappedPlace(LandmarkMap.from_json(json.loads(old.read_text('utf-8')), config))]
    except (
        OSError, EOFError, ArithmeticError, AttributeError, LookupError, TypeError, ValueError,
        RecursionError, zipfile.BadZipFile,
    ) as error:  # fmt: skip
        name = path if path.exists() else old
        msg = f'{name} is not a readable map: {error}'
        raise InputError(msg) from None
    return []


def _places_of(arrays: dict[str, Any], config: MapConfig | None) -> list[MappedPlace]:
    state = json.loads(arrays['state'].tobytes())
    if state['version'] != _VERSION:
        msg = f'version {state["version"]!r}, expected at most {_VERSION}'
        raise InputError(msg)
    rows = sum(int(one['features']) for place in state['places'] for one in place['keyframes'])
    if any(arrays[key].shape[:1] != (rows,) for key in ('pixels', 'points', 'looks')):
        msg = f'{rows} features are expected'
        raise InputError(msg)
    places, at, depth_at = [], 0, 0
    for place in state['places']:
        keyframes = []
        for value in place['keyframes']:
            end, depth_end = at + int(value['features']), depth_at + int(value['depth'])
            looks = arrays['looks'][at:end].astype(np.float32)
            looks /= np.maximum(np.linalg.norm(looks, axis=1, keepdims=True), 1e-9)
            features = Features(arrays['pixels'][at:end].astype(np.float64), looks)
            x, y, z, *turn = (float(number) for number in value['pose'])
            qx, qy, qz, qw = turn
            width, height, *numbers = value['lens']
            fx, fy, cx, cy, *bent = (float(number) for number in numbers)
            lens = Intrinsics(int(width), int(height), fx, fy, cx, cy, tuple(bent))
            shot = VisitKeyframe(Pose((x, y, z), (qx, qy, qz, qw), MAP_FRAME), features, lens)
            shot.points = arrays['points'][at:end].astype(np.float64)
            delta = SemanticDelta(
                int(value['stamp_ns']),
                DeltaKind[value['kind']],
                int(value['id']),
                items=tuple(map(Item.from_json, value['items'])),
                camera=str(value['camera']),
            )
            data = arrays['depth'][depth_at:depth_end].tobytes()
            keyframes.append(PlaceKeyframe(delta, shot, PackedDepth(data) if data else None))
            at, depth_at = end, depth_end
        landmarks = LandmarkMap.from_json(place['map'], config)
        places.append(MappedPlace(landmarks, tuple(keyframes), tuple(map(int, place['visits']))))
    return places
