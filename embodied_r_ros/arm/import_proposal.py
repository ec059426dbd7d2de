# SPDX-License-Identifier: Apache-2.0
"""What kind of dataset a folder is, and a mapping to start from, by the names of its columns."""

from __future__ import annotations

from itertools import islice
import math
import re
from typing import Any, TYPE_CHECKING

from embodied_r_ros.arm.import_lerobot_metadata import read_info
from embodied_r_ros.arm.import_rlbench import episode_folders, read_arrays
from embodied_r_ros.bags.reader import is_bag
from embodied_r_ros.common.errors import InputError
import numpy as np
import yaml

if TYPE_CHECKING:
    from pathlib import Path

_IMAGES = ('image', 'video')
_OWN = ('timestamp', 'frame_index', 'episode_index', 'index', 'task_index')  # LeRobot's
_GRIPPER = re.compile(r'grip|finger|hand|jaw|claw', re.IGNORECASE)
_POSE = ('x', 'y', 'z'), ('qx', 'qy', 'qz', 'qw')
# Of a pose, too; angles other than a quaternion are not imported.
_POSE_WORDS = {*_POSE[0], *_POSE[1], 'rx', 'ry', 'rz', 'roll', 'pitch', 'yaw'}
_HEADER = """\
# Numbers of {name} by the names of their columns: see that each is what it says, and in which
# unit (m, mm, rad or deg). docs/arms.md has all keys.
# {columns}
"""
_FORGE = 'convert it to LeRobot, such as by https://github.com/arpitg1304/forge'
# Datasets of other kinds, by a file of theirs: what they are, and what helps.
_OTHERS = {
    r'.*\.(hdf5|h5)': ('HDF5, as robomimic and ALOHA write it', _FORGE),
    r'.*\.tfrecord.*|features\.json': ('RLDS, as Open X-Embodiment has it', _FORGE),
    r'\.zgroup|\.zarray|\.zattrs|zarr\.json|.*\.zarr(\.zip)?': (
        'zarr, as Diffusion Policy and UMI write it',
        _FORGE,
    ),
    r'data\.json': (
        'JSON of Unitree (xr_teleoperate)',
        'convert it to LeRobot by convert_unitree_json_to_lerobot.py of '
        'https://github.com/unitreerobotics/unitree_lerobot',
    ),
}
_MOST_FILES = 2000  # that are looked at


def is_lerobot(root: Path) -> bool:
    """Whether a folder is a dataset of LeRobot; otherwise it is as RLBench writes them.

    Raises:
        InputError: It is neither; says what it is, where that is known.
    """
    if (root / 'meta' / 'info.json').exists():
        return True
    inside = root.rglob('*') if root.is_dir() else ()
    for file in (root, *islice(inside, _MOST_FILES)):
        if file.name.startswith('low_dim') and file.suffix in {'.npz', '.json', '.pkl'}:
            return False
        for pattern, (kind, advice) in _OTHERS.items():
            if re.fullmatch(pattern, file.name.lower()):
                msg = f'{root} is a dataset of {kind} ({file.name}): {advice}'
                raise InputError(msg)
    if root.exists() and is_bag(root):
        msg = f'{root} is a recording, no dataset: see `embodied-r collect` and `keypoints`'
        raise InputError(msg)
    if not root.is_dir():
        msg = f'{root} is not a folder: expected a dataset of LeRobot, or folders of RLBench'
        raise InputError(msg)
    return (root / 'meta').is_dir()


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

    def part(at: list[int]) -> dict[str, Any]:
        return {'column': column, 'at': at, 'names': [names[place] for place in at]}

    words = [re.split('[^a-z0-9]+', name.lower())[-1] for name in names]
    pose = [_places(words, part_names) for part_names in _POSE]
    posed = {at for at, word in enumerate(words) if pose[0] and word in _POSE_WORDS}
    gripper = [at for at, name in enumerate(names) if _GRIPPER.search(name) and at not in posed]
    joints = [at for at in range(len(names)) if at not in {*gripper, *posed}]
    proposal: dict[str, Any] = {}
    if pose[0]:
        proposal |= {k: part(at) for k, at in zip(('xyz', 'rotation'), pose, strict=True) if at}
    if joints:
        proposal['joints'] = {**part(joints), 'unit': 'rad'}
    if gripper:
        proposal |= {'gripper': part(gripper), 'closed': 0.0, 'open': float(len(gripper))}
    return proposal


def _places(words: list[str], wanted: tuple[str, ...]) -> list[int]:
    """The first place of each word; none where one is missing."""
    return [words.index(word) for word in wanted] if set(wanted) <= set(words) else []


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
    if not is_lerobot(root):
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
