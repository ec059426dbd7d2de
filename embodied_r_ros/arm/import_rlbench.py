# SPDX-License-Identifier: Apache-2.0
"""Folders as RLBench writes them: `…/episodes/episodeN` with images, and numbers beside them.

RLBench keeps its numbers as a pickle, and a pickle runs whatever its author wants when it is read.
So they are read from `low_dim.npz` or `low_dim.json` instead: arrays by name, a row per frame.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
import json
import re
from typing import Any, TYPE_CHECKING

from embodied_r_ros.arm.import_episode import (
    check_columns,
    check_source_image,
    decode_source_image,
    short_text,
    SourceEpisode,
    SourcePlace,
)
from embodied_r_ros.arm.import_parquet import readable
from embodied_r_ros.common.errors import InputError
import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from embodied_r_ros.arm.import_mapping import DemoMapping
    from numpy.typing import NDArray

_DEFAULT_RATE_HZ = 20.0
_MAX_BYTES = 2**28  # of the numbers of an episode, unpacked
_NUMBER_KINDS = 'fiub'  # of NumPy: floats, integers, and bools


class RlbenchDataset:
    """The episodes of a folder."""

    absent: tuple[str, ...] = ()  # there is no list of them
    decoded = 0  # there are no videos

    def __init__(self, root: Path, mapping: DemoMapping) -> None:
        """Find the episodes of a folder.

        Raises:
            InputError: There are none, or two of the same name.
        """
        self._mapping = mapping
        folders = episode_folders(root)
        names = ['-'.join(folder.relative_to(root).parts) for folder in folders]
        for name, count in Counter(names).items():
            if count > 1:
                msg = f'{root} has {count} episodes whose bag would be {name}: rename a folder'
                raise InputError(msg)
        self._folders = dict(zip(names, folders, strict=True))

    @property
    def names(self) -> Sequence[str]:
        """The episodes, in order of their numbers."""
        return tuple(self._folders)

    def notes(self) -> Iterator[str]:
        """What is left out, which is nothing."""
        return iter(())

    def read(self, name: str) -> SourceEpisode:
        """Read the numbers of an episode; its images are read as they are asked for.

        Raises:
            InputError: It has only a pickle, cannot be read, or its arrays differ in length.
        """
        folder = self._folders[name]
        file, arrays = read_arrays(folder)
        place = SourcePlace(file, folder.name)
        check_columns(self._mapping, arrays, file)
        first, *others = sorted(arrays, key=lambda each: -len(arrays[each]))
        count = len(arrays[first])
        for other in others:
            if len(arrays[other]) != count:
                msg = (
                    f'{file}: column {other!r} has {len(arrays[other])} rows, and {first!r} has '
                    f'{count}: expected as many'
                )
                raise InputError(msg)
        images = None
        if self._mapping.image:
            images = _Images(folder / self._mapping.image, place, count)
        seconds = np.arange(count) / (self._mapping.rate_hz or _DEFAULT_RATE_HZ)
        table = {
            column: _numbers(arrays[column], column, place) for column in self._mapping.columns()
        }
        return SourceEpisode(name, place, '', seconds, table, images)


@dataclass(frozen=True)
class _Images:
    """Images in a folder, whose names are their numbers."""

    folder: Path
    place: SourcePlace
    count: int  # as many as rows

    def check(self) -> None:
        files = self._files()
        for file in files.values():
            check_source_image(self._read(file), str(file))

    def read(self) -> Iterator[NDArray[np.uint8]]:
        for file in self._files().values():
            yield decode_source_image(self._read(file), str(file))

    def _files(self) -> dict[int, Path]:
        """By their numbers, in order.

        Raises:
            InputError: They do not count on by one, or are not as many as rows.
        """
        files = [file for end in ('*.png', '*.jpg') for file in self.folder.glob(end)]
        by_number: dict[int, Path] = {}
        for file in files:
            digits = re.findall(r'\d+', file.stem)
            number = int(digits[-1]) if digits else -1
            if not digits or number in by_number:
                msg = f'{file}: expected one image for each number, such as 0.png'
                raise InputError(msg)
            by_number[number] = file
        if len(files) != self.count:
            where = f'{self.folder} has {len(files)} images, and {self.place.file} has'
            msg = f'{where} {self.count} rows: expected as many (the mapping sets image)'
            raise InputError(msg)
        low = min(by_number)
        for number in range(low, low + self.count):
            if number not in by_number:
                msg = (
                    f'{self.folder} has no image of number {number}: expected {self.count} of them'
                )
                raise InputError(msg)
        return dict(sorted(by_number.items()))

    def _read(self, file: Path) -> bytes:
        try:
            return file.read_bytes()
        except OSError as error:
            msg = f'{file} cannot be read: {error.strerror}'
            raise InputError(msg) from None


def episode_folders(root: Path) -> list[Path]:
    """The folders of episodes, in order of their numbers.

    Raises:
        InputError: There are none.
    """
    folders = sorted(
        (path for path in root.rglob('episode*') if path.is_dir() and path.name != 'episodes'),
        key=lambda path: [int(part) for part in re.findall(r'\d+', str(path.relative_to(root)))],
    )
    if not folders:
        msg = f'{root} has no folders episode0, episode1, …: expected those that RLBench writes'
        raise InputError(msg)
    return folders


def read_arrays(folder: Path) -> tuple[Path, dict[str, Any]]:
    """The file with the numbers of an episode, and its arrays or lists by name, a row per frame.

    Raises:
        InputError: It has only a pickle, or none of its files can be read.
    """
    arrays, text, pickle = (folder / f'low_dim{end}' for end in ('.npz', '.json', '_obs.pkl'))
    file = next((file for file in (arrays, text) if file.exists()), None)
    if file is None:
        msg = f'{folder} has neither {arrays.name} nor {text.name}'
        if pickle.exists():
            msg = (
                f'{pickle} is a pickle, which can run code when it is read: where RLBench is '
                'installed, load it and save gripper_pose, gripper_open, joint_positions and '
                f'joint_velocities with np.savez as {arrays}'
            )
        raise InputError(msg)
    with readable(f'{file} cannot be read', file):
        content = _content(file)
    is_table = isinstance(content, dict) and content
    for name, rows in content.items() if is_table else [('', None)]:
        if not isinstance(rows, list) and not getattr(rows, 'shape', ()):
            msg = f'{file}: column {name!r} has no rows: expected arrays by name'
            raise InputError(msg)
    return file, content


def _content(file: Path) -> Any:
    if file.suffix == '.json':
        return json.loads(file.read_text(encoding='utf-8'))
    with np.load(file, allow_pickle=False) as archive:
        size = sum(part.file_size for part in archive.zip.infolist())
        if size > _MAX_BYTES:
            msg = f'{file} unpacks to {size:,} bytes: expected at most {_MAX_BYTES:,}'
            raise InputError(msg)
        return {name: archive[name] for name in archive.files}


def _numbers(rows: Any, column: str, place: SourcePlace) -> NDArray[np.float64]:
    """A column as numbers. Shape (N, …).

    Raises:
        InputError: A row holds none, or is of another length than the others.
    """
    if isinstance(rows, np.ndarray):
        if rows.dtype.kind not in _NUMBER_KINDS:
            msg = f'{place.of(column)} is of type {rows.dtype}: expected numbers'
            raise InputError(msg)
        return rows.astype(np.float64)
    arrays = [_row(cells, place.of(column, number)) for number, cells in enumerate(rows)]
    shapes = Counter(array.shape for array in arrays)
    usual = shapes.most_common(1)[0][0] if shapes else ()
    for number, array in enumerate(arrays):
        if array.shape != usual:
            msg = f'{place.of(column, number)} has shape {array.shape}: expected {usual} as others'
            raise InputError(msg)
    return np.array(arrays, np.float64)


def _row(cells: Any, where: str) -> NDArray[np.float64]:
    try:
        array = np.array(cells)
        if array.dtype.kind in _NUMBER_KINDS:
            return array.astype(np.float64)
    except (ValueError, TypeError, OverflowError, RecursionError):
        pass
    msg = f'{where} is {short_text(cells)}: expected numbers'
    raise InputError(msg)
