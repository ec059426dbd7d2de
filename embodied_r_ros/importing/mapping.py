# SPDX-License-Identifier: Apache-2.0
"""What the numbers of a dataset mean, which no dataset says of itself: a YAML file tells."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, TYPE_CHECKING

from embodied_r_ros.errors import ConfigError, InputError
from embodied_r_ros.yaml_files import read_yaml
import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from numpy.typing import NDArray

_UNITS = {'m': 1.0, 'mm': 0.001, 'rad': 1.0, 'deg': float(np.pi / 180), '': 1.0}
_TEXTS = ('image', 'frame_id', 'task', 'urdf', 'tool_frame')


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
            InputError: There is no such column, or it is too narrow.
        """
        if self.column not in table:
            msg = f'there is no column {self.column!r}: there are {", ".join(sorted(table))}'
            raise InputError(msg)
        values = table[self.column].reshape(len(table[self.column]), -1)
        if max(self.at) >= values.shape[1]:
            msg = f'column {self.column!r} has {values.shape[1]} numbers: {max(self.at)} is none'
            raise InputError(msg)
        return np.asarray(values[:, list(self.at)] * self.scale)


@dataclass(frozen=True)
class DemoMapping:
    """Where in a dataset is what."""

    xyz: Numbers | None = None  # of the end effector in the task frame
    joints: Numbers | None = None
    velocities: Numbers | None = None  # of the joints
    gripper: Numbers | None = None  # added up, they are its opening
    closed: float = 0.0  # that sum when the gripper is closed; tells the polarity too
    open: float = 1.0
    image: str = ''  # key of the camera, or its folder; empty: no images
    rate_hz: float = 0.0  # of rows, where the dataset does not say; 0: it does
    frame_id: str = 'table_center'
    tool_frame: str = 'tool'
    task: str = ''  # in words, where the dataset does not say
    urdf: str = ''  # file beside the mapping, where there is no xyz

    @classmethod
    def from_yaml(cls, path: Path) -> DemoMapping:
        """Read a mapping.

        Raises:
            ConfigError: It cannot be read, or is none.
        """
        value = read_yaml(path)
        known = {field.name for field in fields(cls)}
        if not isinstance(value, dict) or set(value) - known:
            wrong = sorted(map(str, set(value) - known)) if isinstance(value, dict) else [value]
            msg = (
                f'{path}: {wrong[0]!r} is no part of a mapping: known: {", ".join(sorted(known))}'
            )
            raise ConfigError(msg)
        try:
            mapping = cls(**{name: _part(name, item) for name, item in value.items()})
        except (TypeError, ValueError, KeyError) as error:
            msg = f'{path} is no mapping: {error}'
            raise ConfigError(msg) from None
        if mapping.xyz is None and not (mapping.joints and mapping.urdf):
            msg = f'{path} tells no position: expected xyz, or joints with a urdf'
            raise ConfigError(msg)
        if mapping.open == mapping.closed:
            msg = f'{path}: open and closed are both {mapping.open}: expected two values'
            raise ConfigError(msg)
        return mapping


def _part(name: str, item: Any) -> Any:
    """The value of one entry.

    Raises:
        ValueError: It is none.
    """
    if name in ('xyz', 'joints', 'velocities', 'gripper'):
        return _numbers(name, item)
    if name in _TEXTS:
        return str(item)
    return float(item)


def _numbers(name: str, item: Any) -> Numbers:
    unit = item.get('unit', '') if isinstance(item, dict) else None
    if unit not in _UNITS or not item.get('at') or 'column' not in item:
        msg = f'{name} is {item!r}: expected column, at (positions), unit (m, mm, rad or deg)'
        raise ValueError(msg)
    at = tuple(int(place) for place in item['at'])
    if min(at) < 0 or (name == 'xyz' and len(at) != 3):
        msg = f'{name} is at {list(at)}: expected {"three " if name == "xyz" else ""}positions'
        raise ValueError(msg)
    names = tuple(str(text) for text in item.get('names', ())) or tuple(
        f'{name}_{place}' for place in at
    )
    if len(names) != len(at):
        msg = f'{name} has {len(names)} names for {len(at)} positions'
        raise ValueError(msg)
    return Numbers(str(item['column']), at, _UNITS[unit], names)
