# SPDX-License-Identifier: Apache-2.0
"""Folders as RLBench writes them: `…/episodes/episodeN` with images, and numbers beside them.

RLBench keeps its numbers as a pickle, and a pickle runs whatever its author wants when it is read.
So they are read from `low_dim.npz` or `low_dim.json` instead: arrays by name, a row per frame.
"""

from __future__ import annotations

from functools import partial
import json
import re
from typing import Any, TYPE_CHECKING

from embodied_r_ros.common.errors import ImageError, InputError
from embodied_r_ros.episodes.import_mapping import SourceEpisode
from embodied_r_ros.types.images import decode_image, encode_image
import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from embodied_r_ros.episodes.import_mapping import DemoMapping
    from embodied_r_ros.types.images import EncodedImage
    from numpy.typing import NDArray

_PICKLE = 'low_dim_obs.pkl'
_DEFAULT_RATE_HZ = 20.0


def rlbench_episodes(root: Path, mapping: DemoMapping) -> Iterator[SourceEpisode]:
    """Episodes of a folder, in order of their numbers.

    Raises:
        InputError: There are none, or one has only a pickle, or cannot be read.
    """
    folders = sorted(
        (path for path in root.rglob('episode*') if path.is_dir() and path.name != 'episodes'),
        key=lambda path: [int(part) for part in re.findall(r'\d+', str(path.relative_to(root)))],
    )
    if not folders:
        msg = f'{root} has no folders episode0, episode1, …: expected those that RLBench writes'
        raise InputError(msg)
    for folder in folders:
        table = _numbers(folder)
        count = min((len(values) for values in table.values()), default=0)
        files = _image_files(folder, mapping.image)
        seconds = np.arange(count) / (mapping.rate_hz or _DEFAULT_RATE_HZ)
        name = '-'.join(folder.relative_to(root).parts)
        images = partial(map, _image, files) if files else None
        yield SourceEpisode(name, '', seconds, table, images)


def _numbers(folder: Path) -> dict[str, NDArray[np.float64]]:
    arrays, text = folder / 'low_dim.npz', folder / 'low_dim.json'
    try:
        if arrays.exists():
            with np.load(arrays, allow_pickle=False) as archive:
                return {name: _array(archive[name]) for name in archive.files}
        if text.exists():
            return {str(name): _array(rows) for name, rows in json.loads(text.read_text()).items()}
    except (OSError, ValueError, TypeError, AttributeError, RecursionError) as error:
        msg = f'the numbers of {folder} cannot be read: {" ".join(str(error).split())}'
        raise InputError(msg) from None
    if (folder / _PICKLE).exists():
        msg = (
            f'{folder / _PICKLE} is a pickle, which can run code when it is read: where '
            'RLBench is installed, load it and save gripper_pose, gripper_open, joint_positions '
            f'and joint_velocities with np.savez as {arrays}'
        )
        raise InputError(msg)
    msg = f'{folder} has neither low_dim.npz nor low_dim.json'
    raise InputError(msg)


def _array(rows: Any) -> NDArray[np.float64]:
    return np.asarray(rows, np.float64)


def _image_files(folder: Path, key: str) -> list[Path]:
    if not key:
        return []
    files = list((folder / key).glob('*.png')) + list((folder / key).glob('*.jpg'))
    if not files:
        msg = f'{folder / key} has no images: set image to a folder of {folder} that has'
        raise InputError(msg)
    return sorted(files, key=lambda file: [int(part) for part in re.findall(r'\d+', file.stem)])


def _image(file: Path) -> EncodedImage:
    try:
        return encode_image(decode_image(file.read_bytes()))
    except (OSError, ImageError) as error:
        msg = f'{file} cannot be read: {error}'
        raise InputError(msg) from None
