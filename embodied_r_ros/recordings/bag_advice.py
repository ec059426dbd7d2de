# SPDX-License-Identifier: Apache-2.0
"""What to do about a bag that cannot be read: it is none, was never closed, or is damaged."""

from __future__ import annotations

from pathlib import Path

from embodied_r_ros.errors import BagError
from embodied_r_ros.yaml_files import parse_yaml
import yaml

_STORAGE_SUFFIXES = ('.mcap', '.db3')
_ONLY_MCAP = 'only MCAP files that were cut off can be repaired: copy it again, or record again'


def check_looks_like_bag(path: Path) -> None:
    """See that a path may be a bag, before it is read.

    Raises:
        BagError: It is none, or was never closed; the message says what to do.
    """
    if path.is_dir() and not (path / 'metadata.yaml').exists():
        files = sorted(file for file in path.iterdir() if file.suffix in _STORAGE_SUFFIXES)
        if files:
            msg = (
                f'bag {path} was not closed (no metadata.yaml): '
                f'give {files[0]} itself, or run `ros2 bag reindex {path}`, '
                f'or `embodied-r episodes recover {path}`'
            )
            raise BagError(msg)
        msg = f'{path} is not a bag: expected a folder with metadata.yaml, or a .mcap or .db3 file'
        raise BagError(msg)
    # A pipe has the name of a bag but no end.
    if not path.is_dir() and (not path.is_file() or path.suffix not in _STORAGE_SUFFIXES):
        msg = f'{path} is not a bag: expected a rosbag2 folder, or a .mcap or .db3 file'
        raise BagError(msg)


def advice(path: Path) -> str:
    """What to do about a bag that cannot be read."""
    if not path.is_dir():
        return _repair(path)
    files = sorted(file for file in path.iterdir() if file.suffix in _STORAGE_SUFFIXES)
    try:
        value = parse_yaml((path / 'metadata.yaml').read_text())
        names = [str(name) for name in value['rosbag2_bagfile_information']['relative_file_paths']]
    except (OSError, UnicodeDecodeError, yaml.YAMLError, TypeError, KeyError):
        if files:
            return (
                f'its metadata.yaml is damaged: remove it, then run `ros2 bag reindex {path}` '
                f'or give {files[0]} itself'
            )
        names = ['any .mcap or .db3 file']
    if absent := [name for name in names if not (path / Path(name).name).exists()]:
        return f'the folder lacks {absent[0]}: copy the whole folder again'
    return _repair(path / names[0]) if names else _ONLY_MCAP


def _repair(file: Path) -> str:
    """How a file of a bag is repaired that may have been cut off."""
    if file.suffix != '.mcap':
        return _ONLY_MCAP
    folder, first = str(file.parent), ''
    is_of_a_bag = (file.parent / 'metadata.yaml').exists()
    if not is_of_a_bag and len(list(file.parent.glob('*.mcap'))) > 1:
        folder, first = 'FOLDER', 'move it to a folder of its own, where '
    return f'if it was cut off, {first}`embodied-r episodes recover {folder}` repairs it'
