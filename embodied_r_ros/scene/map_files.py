# SPDX-License-Identifier: Apache-2.0
"""Maps as files: the state that a map goes on with, and MAP.json for others."""

from __future__ import annotations

import json
import os
from typing import Any, TYPE_CHECKING

from embodied_r_ros.common.errors import InputError
from embodied_r_ros.common.files import write_whole
from embodied_r_ros.scene.landmark_map import LandmarkMap

if TYPE_CHECKING:
    from pathlib import Path

    from embodied_r_ros.scene.landmark_map import MapConfig
    from embodied_r_ros.types.landmarks import SceneMap

_STATE, _MAP = 'state.json', 'MAP.json'


def save_map(folder: Path, landmarks: LandmarkMap) -> None:
    """Write the state of a map, and its MAP.json, into a folder; each appears whole.

    Raises:
        InputError: They cannot be written.
    """
    write_map(folder, landmarks.to_json(), landmarks.scene_map())


def write_map(folder: Path, state: dict[str, Any], scene_map: SceneMap) -> None:
    """Write what `LandmarkMap.to_json` and `LandmarkMap.scene_map` gave, as `save_map` does.

    Raises:
        InputError: They cannot be written.
    """
    check_folder(folder)
    write_whole(folder / _STATE, json.dumps(state).encode())
    write_scene_map(folder / _MAP, scene_map)


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


def load_map(folder: Path, config: MapConfig | None = None) -> LandmarkMap:
    """Read a map that `save_map` wrote, to go on with it. A folder without one gives an empty map.

    A map whose poses are of odometry goes on only in the same run of that odometry: where the
    first pose is not where the last one was, it begins a new part.

    Raises:
        InputError: What is there cannot be read.
    """
    path = folder / _STATE
    try:
        if not path.exists():
            return LandmarkMap(config)
        return LandmarkMap.from_json(json.loads(path.read_text(encoding='utf-8')), config)
    except (OSError, ValueError, RecursionError) as error:
        msg = f'{path} is no map that can be gone on with: {error}'
        raise InputError(msg) from None


def write_scene_map(path: Path, scene_map: SceneMap) -> None:
    """Write a MAP.json; it appears whole.

    Raises:
        InputError: It cannot be written.
    """
    write_whole(path, (json.dumps(scene_map.to_json(), indent=1) + '\n').encode())
