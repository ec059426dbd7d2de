# SPDX-License-Identifier: Apache-2.0
"""A mapping to start from, by what a dataset calls its columns."""

from __future__ import annotations

import math
import re
from typing import Any, TYPE_CHECKING

from embodied_r_ros.common.errors import InputError
from embodied_r_ros.episodes.import_lerobot_metadata import read_info
from embodied_r_ros.episodes.import_rlbench import episode_folders, read_arrays
import numpy as np
import yaml

if TYPE_CHECKING:
    from pathlib import Path

_IMAGES = ('image', 'video')
_OWN = ('timestamp', 'frame_index', 'episode_index', 'index', 'task_index')  # LeRobot's
_GRIPPER = re.compile(r'grip|finger|hand|jaw|claw', re.IGNORECASE)
_HEADER = """\
# Numbers of {name} by the names of their columns: see that each is what it says, and in which
# unit (m, mm, rad or deg). docs/demonstrations.md has all keys.
# {columns}
"""


def columns_text(root: Path) -> str:
    """The columns of a dataset and how many numbers each has, and its cameras, as a sentence.

    Raises:
        InputError: It cannot be read.
    """
    columns, cameras = _columns(root)
    parts = [f'{name} ({len(names)})' for name, names in columns.items()]
    return f'Columns: {", ".join(parts) or "none"}; cameras: {", ".join(cameras) or "none"}.'


def propose_mapping(root: Path) -> str:
    """A mapping as YAML, with comments on what must be looked at.

    Raises:
        InputError: The dataset cannot be read, or has no column for a state.
    """
    columns, cameras = _columns(root)
    proposal = _of_rlbench(columns) if 'gripper_pose' in columns else _of_state(root, columns)
    if cameras:
        proposal['image'] = cameras[0]
    head = _HEADER.format(name=' '.join(root.resolve().name.split()), columns=columns_text(root))
    return head + yaml.safe_dump(proposal, default_flow_style=None, sort_keys=False, width=100)


def _of_state(root: Path, columns: dict[str, list[str]]) -> dict[str, Any]:
    column = next((name for name in columns if name.endswith('state')), '')
    if not column:
        msg = f'{root} has no column for a state: write its mapping by hand. {columns_text(root)}'
        raise InputError(msg)
    names = columns[column]
    gripper = [at for at, name in enumerate(names) if _GRIPPER.search(name)]
    joints = [at for at in range(len(names)) if at not in gripper]

    def part(at: list[int]) -> dict[str, Any]:
        return {'column': column, 'at': at, 'names': [names[place] for place in at]}

    proposal: dict[str, Any] = {}
    if joints:
        proposal['joints'] = {**part(joints), 'unit': 'rad'}
    if gripper:
        proposal |= {'gripper': part(gripper), 'closed': 0.0, 'open': float(len(gripper))}
    return proposal


def _of_rlbench(columns: dict[str, list[str]]) -> dict[str, Any]:
    proposal: dict[str, Any] = {
        'xyz': {'column': 'gripper_pose', 'at': [0, 1, 2]},
        'rotation': {'column': 'gripper_pose', 'at': [3, 4, 5, 6]},
    }
    names = {'joints': 'joint_positions', 'velocities': 'joint_velocities'}
    for key, name in (*names.items(), ('gripper', 'gripper_open')):
        if name in columns:
            proposal[key] = {'column': name, 'at': list(range(len(columns[name])))}
    return {**proposal, 'frame_id': 'world'}


def _columns(root: Path) -> tuple[dict[str, list[str]], list[str]]:
    """Names of the numbers of each column, and the cameras."""
    if not (root / 'meta').is_dir():
        folder = episode_folders(root)[0]
        _, arrays = read_arrays(folder)
        cameras = sorted(path.name for path in folder.iterdir() if path.name.endswith('_rgb'))
        numbers = {name: rows for name, rows in arrays.items() if len(rows)}
        return {name: _numbered(name, _shape(rows[0])) for name, rows in numbers.items()}, cameras
    features = read_info(root).mapping('features')
    columns, cameras = {}, []
    for name, feature in features.items():
        if feature.get('dtype') in _IMAGES:
            cameras.append(name)
        elif name not in _OWN:
            columns[name] = _names(name, feature)
    return columns, cameras


def _names(column: str, feature: dict[str, Any]) -> list[str]:
    """The names of the numbers of a feature, which LeRobot writes in several ways."""
    shape, names = feature.get('shape'), feature.get('names')
    sizes = shape if isinstance(shape, list) and all(type(n) is int for n in shape) else []
    numbered = _numbered(column, sizes)
    while isinstance(names, dict | list) and len(names) == 1:
        inner = next(iter(names.values() if isinstance(names, dict) else names))
        if not isinstance(inner, dict | list):
            break
        names = inner
    if isinstance(names, list) and len(names) == len(numbered):
        return [str(name) for name in names]
    return numbered


def _shape(row: Any) -> tuple[int, ...]:
    return np.shape(row) if isinstance(row, np.ndarray) else (len(row),) * isinstance(row, list)


def _numbered(column: str, shape: Any) -> list[str]:
    count = math.prod(shape)
    return [f'{column.rpartition(".")[2]}_{at}' for at in range(min(max(count, 0), 1000))]
