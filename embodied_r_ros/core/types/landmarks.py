# SPDX-License-Identifier: Apache-2.0
"""The scene map: things with places in a fixed frame, and the way that the camera took."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
import json
from typing import Any, TYPE_CHECKING

from embodied_r_ros.common.errors import InputError
from embodied_r_ros.core.types.deltas import ScaleSource
import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from embodied_r_ros.core.types.arrays import Float64s
    from embodied_r_ros.core.types.geometry import Position


SCALE_WORDS = {
    ScaleSource.UNKNOWN: 'nothing',
    ScaleSource.ODOMETRY: 'poses of the camera',
    ScaleSource.DEPTH: 'depth',
    ScaleSource.FLOOR: 'the height above the floor',
    ScaleSource.IMU: 'accelerations',
    ScaleSource.MODEL: "a model's guess",
    ScaleSource.SIZES: 'usual sizes of named things',
}


def scale_text(scale: ScaleSource, error: float | None = None) -> str:
    """What the metres of a map rest on, in words."""
    if scale is ScaleSource.RELATIVE:
        return (
            'no metres: neither depth, poses, a height nor usual sizes of named things give them'
        )
    off = '' if error is None else f' (within {100 * error:.0f} %)'
    return f'metres rest on {SCALE_WORDS[scale]}{off}'


_OF_VISITS = ('visit', 'change', 'pinned')  # in JSON where they say something
_MOST_PATH_POINTS = 40  # that rows carry and prompts are made from
LARGEST_M = 1e9  # number in a map: more is no place


class LandmarkStatus(Enum):
    """Whether a landmark still is where it was."""

    PRESENT = 'present'
    GONE = 'gone'  # its place was in view without it


@dataclass(frozen=True)
class Landmark:
    """A thing with a place, seen once or often.

    >>> Landmark('chair', (2.0, 0.0, 0.5)).status.name
    'PRESENT'
    """

    label: str
    position: Position  # its middle in the map's frame, z up [m]
    id: int = 0
    size: Position | None = None  # extent along x, y, z [m]; None: not known
    first_seen_ns: int = 0
    last_seen_ns: int = 0
    observations: int = 1
    confidence: float = 1.0  # 0..1
    status: LandmarkStatus = LandmarkStatus.PRESENT
    keyframe_ids: tuple[int, ...] = ()  # those that show it best, best first
    visit: int = 0  # of the map that last showed it, from 1; 0: not known
    change: str = ''  # since the visits before, as `ChangeKind`; empty: none that is known
    pinned: bool = False  # it stays in the map, whatever is seen

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values, metres rounded to the millimetre."""
        return {
            'id': self.id,
            'label': self.label,
            'position': _rounded(self.position),
            'size': _rounded(self.size) if self.size else None,
            'first_seen_ns': self.first_seen_ns,
            'last_seen_ns': self.last_seen_ns,
            'observations': self.observations,
            'confidence': round(self.confidence, 3),
            'status': self.status.value,
            'keyframe_ids': list(self.keyframe_ids),
            **{key: value for key in _OF_VISITS if (value := getattr(self, key))},
        }

    @classmethod
    def from_json(cls, value: Any, number: int) -> Landmark:
        """Read what `to_json` wrote. Only label and position are needed.

        A label like 'Trash_Can' is read as questions write it, 'trash can'.

        Args:
            value: A JSON object.
            number: Its place in the list, from 0: the id of one that has none.

        Raises:
            InputError: A field is missing or has the wrong type.
        """
        name = f'landmark {number}'
        label = value.get('label') if isinstance(value, dict) else None
        if not isinstance(label, str) or not label.strip():
            msg = f'{name} is {value!r}: expected an object with label (text) and position'
            raise InputError(msg)
        size = value.get('size')
        words = [status.value for status in LandmarkStatus]
        if value.get('status', words[0]) not in words:
            msg = f'{name}: status is {value["status"]!r}, expected {" or ".join(words)}'
            raise InputError(msg)
        return cls(
            label=' '.join(label.lower().replace('_', ' ').split()),
            position=_metres(value.get('position'), f'{name}: position'),
            id=_integer(value.get('id', number), f'{name}: id'),
            size=None if size is None else _metres(size, f'{name}: size'),
            first_seen_ns=_integer(value.get('first_seen_ns', 0), f'{name}: first_seen_ns'),
            last_seen_ns=_integer(value.get('last_seen_ns', 0), f'{name}: last_seen_ns'),
            observations=_integer(value.get('observations', 1), f'{name}: observations'),
            confidence=_number(value.get('confidence', 1.0), f'{name}: confidence'),
            status=LandmarkStatus(value.get('status', words[0])),
            keyframe_ids=tuple(
                _integer(item, f'{name}: keyframe_ids')
                for item in _list(value.get('keyframe_ids', []), f'{name}: keyframe_ids')
            ),
            visit=_integer(value.get('visit', 0), f'{name}: visit'),
            change=str(value.get('change', '')),
            pinned=value.get('pinned') is True,
        )


@dataclass(frozen=True)
class PathPoint:
    """Where the camera was at a keyframe.

    >>> PathPoint(1_000_000_000, (0.0, 0.0, 0.5), yaw_rad=0.0).position
    (0.0, 0.0, 0.5)
    """

    stamp_ns: int
    position: Position  # of the camera link in the map's frame [m]
    yaw_rad: float  # level heading, positive left of the x axis


@dataclass(frozen=True)
class SceneMap:
    """What is known of a place.

    >>> chair = Landmark('chair', (2.0, 0.0, 0.5))
    >>> SceneMap((chair,), (PathPoint(0, (0.0, 0.0, 0.5), 0.0),)).landmarks[0].label
    'chair'
    """

    landmarks: tuple[Landmark, ...] = ()
    path: tuple[PathPoint, ...] = ()
    frame_id: str = 'map'
    room_area_m2: float | None = None  # None: not known
    # What its metres rest on; RELATIVE: it has none, and lengths in one unit that is not known.
    scale: ScaleSource = ScaleSource.UNKNOWN
    scale_error: float | None = None  # standard deviation of all lengths, as a share
    revision: int = 0  # counts up with each change of a live map; no part of a MAP.json
    has_times: bool = True  # False: stamps count images at a rate that was assumed

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values."""
        return {
            'frame_id': self.frame_id,
            'landmarks': [landmark.to_json() for landmark in self.landmarks],
            'path': [
                {
                    'stamp_ns': point.stamp_ns,
                    'position': _rounded(point.position),
                    'yaw_rad': round(point.yaw_rad, 4),
                }
                for point in self.path
            ],
            'room_area_m2': None if self.room_area_m2 is None else round(self.room_area_m2, 2),
            'scale': self.scale.name.lower(),
            **({} if self.scale_error is None else {'scale_error': round(self.scale_error, 3)}),
            **({} if self.has_times else {'has_times': False}),
        }

    @classmethod
    def from_json(cls, value: Any) -> SceneMap:
        """Read what `to_json` wrote; of a map made by others only `landmarks` is needed.

        Raises:
            InputError: A field is missing or has the wrong type.
        """
        if not isinstance(value, dict) or 'landmarks' not in value:
            msg = 'a scene map is a JSON object with a list of landmarks'
            raise InputError(msg)
        frame_id, area = value.get('frame_id', 'map'), value.get('room_area_m2')
        error = value.get('scale_error')
        if isinstance(area, (int, float)) and area < 0:
            msg = f'room_area_m2 is {area}, expected at least 0'
            raise InputError(msg)
        if not isinstance(frame_id, str):
            msg = f'frame_id is {frame_id!r}, expected a text'
            raise InputError(msg)
        scale = value.get('scale', ScaleSource.UNKNOWN.name.lower())
        words = [source.name.lower() for source in ScaleSource]
        if scale not in words:
            msg = f'scale is {scale!r}, expected one of {", ".join(words)}'
            raise InputError(msg)
        landmarks = _list(value['landmarks'], 'landmarks')
        path = _list(value.get('path') or [], 'path')
        return cls(
            tuple(Landmark.from_json(item, number) for number, item in enumerate(landmarks)),
            tuple(_path_point(item, f'path point {number}') for number, item in enumerate(path)),
            frame_id,
            None if area is None else _number(area, 'room_area_m2'),
            ScaleSource[scale.upper()],
            None if error is None else _number(error, 'scale_error'),
            has_times=value.get('has_times') is not False,
        )


def thin_path(path: Sequence[PathPoint]) -> tuple[PathPoint, ...]:
    """The points of a path that rows carry: its ends, and those that keep where it was when.

    Of the others, each time the one is added that is farthest from where the points so far have
    the camera at its stamp (top-down, by synchronized Euclidean distance).
    """
    if len(path) <= _MOST_PATH_POINTS:
        return tuple(path)
    places = np.array([[*point.position, point.stamp_ns - path[0].stamp_ns] for point in path])
    chosen = [0, len(path) - 1]
    stretches = [_farthest(places, 0, len(path) - 1)]
    while len(chosen) < _MOST_PATH_POINTS:
        worst = max(stretches)
        stretches.remove(worst)
        _, _, first, middle, last = worst
        chosen.append(middle)
        stretches += [_farthest(places, first, middle), _farthest(places, middle, last)]
    return tuple(path[index] for index in sorted(chosen))


def _farthest(places: Float64s, first: int, last: int) -> tuple[float, int, int, int, int]:
    """The point of a stretch that is farthest from the straight way between its ends.

    Args:
        places: Positions [m] and times [ns] of a path. Shape (N, 4).
        first: Index of the point at which the stretch begins.
        last: Index of the one at which it ends.

    Returns:
        How far it is off [m], how many points are between the ends, and the indices of beginning,
        point and end; -1 m where there is none between.
    """
    if last - first < 2:
        return -1.0, 0, first, first, last
    start, end, between = places[first], places[last], places[first + 1 : last]
    seconds = end[3] - start[3]
    shares = (between[:, 3] - start[3]) / seconds if seconds > 0 else np.zeros(len(between))
    straight = start[:3] + shares[:, None] * (end[:3] - start[:3])
    off = np.linalg.norm(between[:, :3] - straight, axis=1)
    # Of a camera that stayed, the middle.
    index = int(np.argmax(off)) if off.max() > 0 else len(off) // 2
    return float(off[index]), len(between), first, first + 1 + index, last


def newest_stamp_ns(scene_map: SceneMap) -> int:
    """Stamp of the newest thing that a map knows; 0: it has none."""
    stamps = [landmark.last_seen_ns for landmark in scene_map.landmarks]
    return max((*stamps, *(point.stamp_ns for point in scene_map.path[-1:])), default=0)


def read_scene_map(path: Path) -> SceneMap:
    """Read a MAP.json.

    Raises:
        InputError: There is no such file, or it holds no scene map; the message names the field.
    """
    try:
        text = path.read_text(encoding='utf-8')
    except (OSError, UnicodeDecodeError) as error:
        msg = f'{path} is unreadable: {error}'
        raise InputError(msg) from None
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        msg = f'{path} is not JSON ({error})'
        raise InputError(msg) from None
    try:
        return SceneMap.from_json(value)
    except InputError as error:
        msg = f'{path}: {error}'
        raise InputError(msg) from None


def _path_point(value: Any, name: str) -> PathPoint:
    if not isinstance(value, dict):
        msg = f'{name} is {value!r}: expected an object with position'
        raise InputError(msg)
    return PathPoint(
        _integer(value.get('stamp_ns', 0), f'{name}: stamp_ns'),
        _metres(value.get('position'), f'{name}: position'),
        _number(value.get('yaw_rad', 0.0), f'{name}: yaw_rad'),
    )


def _rounded(metres: Position) -> list[float]:
    return [round(value, 3) for value in metres]


def _metres(value: Any, name: str) -> Position:
    if not isinstance(value, list) or len(value) != 3:
        msg = f'{name} is {value!r}, expected three numbers [m]'
        raise InputError(msg)
    x, y, z = (_number(item, name) for item in value)
    return x, y, z


def _number(value: Any, name: str) -> float:
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not is_number or not -LARGEST_M <= value <= LARGEST_M:
        msg = f'{name} is {repr(value)[:40]}, expected a number of at most {LARGEST_M:.0e}'
        raise InputError(msg)
    return float(value)


def _integer(value: Any, name: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        msg = f'{name} is {value!r}, expected a whole number'
        raise InputError(msg)
    return value


def _list(value: Any, name: str) -> list[Any]:
    if not isinstance(value, list):
        msg = f'{name} is {value!r}, expected a list'
        raise InputError(msg)
    return value
