# SPDX-License-Identifier: Apache-2.0
"""What the numbers of a dataset mean, by a YAML file."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
import hashlib
import json
import math
from typing import Any, TYPE_CHECKING

from embodied_r_ros.common.errors import ConfigError, InputError
from embodied_r_ros.common.settings import read_yaml
from embodied_r_ros.core.types.geometry import Intrinsics, Pose
import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from numpy.typing import NDArray

_UNITS = {'m': 1.0, 'mm': 0.001, 'rad': 1.0, 'deg': float(np.pi / 180), '': 1.0}
_TEXTS = ('image', 'frame_id', 'task', 'urdf', 'tool_frame')
_COUNTS = {'xyz': 3, 'rotation': 4, 'success': 1}
_MAX_RATE_HZ = 10_000
_IN_IMAGE = ('width', 'height', 'fx', 'fy', 'cx', 'cy')


@dataclass(frozen=True)
class MappedCamera:
    """The camera of a dataset, which stands still."""

    position: tuple[float, float, float]  # of its optical frame in the task frame [m]
    orientation: tuple[float, float, float, float]  # likewise, as a quaternion x, y, z, w
    intrinsics: Intrinsics | None = None  # None: not known

    def pose(self, frame_id: str) -> Pose:
        """Pose of its optical frame in the task frame."""
        return Pose(self.position, self.orientation, frame_id)


@dataclass(frozen=True)
class Numbers:
    """Some numbers of a column."""

    column: str
    at: tuple[int, ...]  # positions in the column
    scale: float = 1.0  # to m or rad
    names: tuple[str, ...] = ()

    def of(self, table: Mapping[str, NDArray[np.float64]]) -> NDArray[np.float64]:
        """The numbers of every row, in SI units. Shape (N, K).

        Raises:
            InputError: The column is too narrow.
        """
        values = table[self.column].reshape(len(table[self.column]), -1)
        if max(self.at) >= values.shape[1]:
            msg = f'column {self.column!r} has {values.shape[1]} numbers: no index {max(self.at)}'
            raise InputError(msg)
        return np.asarray(values[:, list(self.at)] * self.scale)


@dataclass(frozen=True)
class DemoMapping:
    """Where in a dataset is what."""

    xyz: Numbers | None = None  # of the end effector in the task frame
    rotation: Numbers | None = None  # likewise, as a quaternion x, y, z, w
    joints: Numbers | None = None
    velocities: Numbers | None = None  # of the joints
    gripper: Numbers | None = None  # added up, they are its opening
    closed: float = 0.0  # that sum when the gripper is closed; gives the polarity too
    open: float = 1.0
    image: str = ''  # key of the camera, or its folder; empty: no images
    rate_hz: float = 0.0  # of rows, where the dataset does not say; 0: it does
    frame_id: str = 'table_center'
    tool_frame: str = 'tool'
    task: str = ''  # in words, where the dataset does not say
    urdf: str = ''  # file beside the mapping, where there is no xyz; neither: no positions
    success: Numbers | None = None  # its last row tells whether the demonstration succeeded
    camera: MappedCamera | None = None  # that of the images; None: not known

    def columns(self) -> set[str]:
        """The columns that it names."""
        return {part.column for part in self.parts()}

    def parts(self) -> tuple[Numbers, ...]:
        """The numbers that it names."""
        parts = (self.xyz, self.rotation, self.joints, self.velocities, self.gripper, self.success)
        return tuple(part for part in parts if part)

    def digest(self) -> str:
        """SHA-256 of what it says, hex; comments and order in the file do not count."""
        return hashlib.sha256(json.dumps(asdict(self), sort_keys=True).encode()).hexdigest()

    @classmethod
    def from_yaml(cls, path: Path) -> DemoMapping:
        """Read a mapping.

        Raises:
            ConfigError: It cannot be read, or is none.
        """
        value = read_yaml(path)
        names = {field.name for field in fields(cls)}
        if not isinstance(value, dict) or set(value) - names:
            wrong = sorted(map(str, set(value) - names)) if isinstance(value, dict) else [value]
            msg = (
                f'{path}: {wrong[0]!r} is no part of a mapping: known: {", ".join(sorted(names))}'
            )
            raise ConfigError(msg)
        try:
            mapping = cls(**{name: _part(name, item) for name, item in value.items()})
        except (TypeError, ValueError, KeyError, OverflowError) as error:
            msg = f'{path} is no mapping: {error}'
            raise ConfigError(msg) from None
        if why := mapping.problem():
            msg = f'{path}: {why}'
            raise ConfigError(msg)
        return mapping

    def problem(self) -> str:
        """What contradicts itself in it; empty: nothing."""
        joints, speeds = self.joints, self.velocities
        finite = all(map(math.isfinite, (self.rate_hz, self.open, self.closed)))
        problems = {
            'it names neither xyz nor joints: expected one of them': not (self.xyz or joints),
            'it names a urdf without joints: expected both, or xyz': self.urdf and not joints,
            'it names velocities without joints: expected both': speeds and not joints,
            'rate_hz, open and closed are not all numbers': not finite,
            f'rate_hz is {self.rate_hz}: expected 0 to {_MAX_RATE_HZ}': not (
                0 <= self.rate_hz <= _MAX_RATE_HZ
            ),
            f'open and closed are both {self.open}: expected two values': (
                self.open == self.closed
            ),
        }
        return next((text for text, is_so in problems.items() if is_so), '')


def _part(name: str, item: Any) -> Any:
    """The value of one entry.

    Raises:
        ValueError: It is none.
    """
    if name in ('xyz', 'rotation', 'joints', 'velocities', 'gripper', 'success'):
        return _numbers(name, item)
    if name == 'camera':
        return _camera(item)
    if name in _TEXTS:
        return '' if item is None else str(item)
    return float(item)


def _numbers(name: str, item: Any) -> Numbers:
    unit = item.get('unit', '') if isinstance(item, dict) else None
    if unit not in _UNITS or not item.get('at') or 'column' not in item:
        msg = f'{name} is {item!r}: expected column, at (positions), unit (m, mm, rad or deg)'
        raise ValueError(msg)
    at = tuple(int(place) for place in item['at'])
    count = _COUNTS.get(name, len(at))
    if min(at) < 0 or len(at) != count:
        msg = f'{name} is at {list(at)}: expected {count} positions'
        raise ValueError(msg)
    names = tuple(str(text) for text in item.get('names', ())) or tuple(
        f'{name}_{place}' for place in at
    )
    if len(set(names)) != len(at):
        msg = f'{name} has {len(set(names))} names for {len(at)} positions: expected one for each'
        raise ValueError(msg)
    return Numbers(str(item['column']), at, _UNITS[unit], names)


def _camera(item: Any) -> MappedCamera:
    """The camera of a dataset.

    Raises:
        ValueError: It is none.
    """
    lens_keys = [name for name in _IN_IMAGE if isinstance(item, dict) and name in item]
    is_known = isinstance(item, dict) and set(item) <= {'position', 'orientation', *_IN_IMAGE}
    if not is_known or len(lens_keys) not in (0, len(_IN_IMAGE)):
        msg = (
            f'camera is {item!r}: expected position [x, y, z], orientation [x, y, z, w], and all '
            f'of {", ".join(_IN_IMAGE)} or none'
        )
        raise ValueError(msg)
    x, y, z = _floats(item, 'position', 3)
    a, b, c, d = _floats(item, 'orientation', 4)
    if not any((a, b, c, d)):
        msg = 'the orientation of camera is all zeros: expected a quaternion x, y, z, w'
        raise ValueError(msg)
    return MappedCamera((x, y, z), (a, b, c, d), _intrinsics(item) if lens_keys else None)


def _intrinsics(item: dict[str, Any]) -> Intrinsics:
    fx, fy, cx, cy = (float(item[name]) for name in _IN_IMAGE[2:])
    return Intrinsics(int(item['width']), int(item['height']), fx, fy, cx, cy)


def _floats(item: dict[str, Any], name: str, count: int) -> list[float]:
    values = item.get(name)
    if not isinstance(values, list) or len(values) != count:
        msg = f'camera has {name} {values!r}: expected {count} numbers'
        raise ValueError(msg)
    numbers = [float(value) for value in values]
    if not all(map(math.isfinite, numbers)):
        msg = f'camera has {name} {values!r}: expected numbers that are finite'
        raise ValueError(msg)
    return numbers
