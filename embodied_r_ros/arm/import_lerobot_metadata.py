# SPDX-License-Identifier: Apache-2.0
"""What a dataset of LeRobot says of itself: its rate, its features, and where each episode is."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
import json
import os
from pathlib import Path
import re
from typing import Any, TYPE_CHECKING

from embodied_r_ros.arm.import_episode import short_text
from embodied_r_ros.arm.import_parquet import ParquetFile
from embodied_r_ros.bags.storage import pointer_advice
from embodied_r_ros.common.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterator

VERSIONS = ('v2.0', 'v2.1', 'v3.0')
EPISODE_COLUMN = 'episode_index'
_MAX_RATE_HZ = 10_000
_START = 64  # characters of a file that are looked at
_MAX_SECONDS = 1e9
_IS_DEPTH = ('video.is_depth_map', 'is_depth_map')
_MAX_COUNT = 10**9
# As much of Python's format language as file names of LeRobot use.
_TEMPLATE = re.compile(r'(?:[^{}]|\{[a-z_]+(?::0?\d{1,2}d)?\})*')


class MetadataRow:
    """One row of the metadata, by name."""

    def __init__(self, where: str, values: dict[str, Any]) -> None:
        """Take a row; `where` is its file and line, for messages."""
        self._where = where
        self._values = values

    def integer(self, name: str, low: int = 0) -> int:
        """A whole number of at least `low`.

        Raises:
            InputError: It is missing, or something else.
        """
        value = self._values.get(name)
        if type(value) is not int or not low <= value <= _MAX_COUNT:
            raise self._error(name, value, f'a whole number from {low} to {_MAX_COUNT}')
        return value

    def number(self, name: str, most: float) -> float:
        """A number from 0 to `most`.

        Raises:
            InputError: It is missing, or something else.
        """
        value = self._values.get(name)
        if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= most:
            return float(value)
        raise self._error(name, value, f'a number from 0 to {most:g}')

    def text(self, name: str) -> str:
        """A text that is not empty.

        Raises:
            InputError: It is something else.
        """
        value = self._values.get(name)
        if not isinstance(value, str) or not value:
            raise self._error(name, value, 'a text')
        return value

    def mapping(self, name: str) -> dict[str, dict[str, Any]]:
        """A mapping of names to mappings.

        Raises:
            InputError: It is something else.
        """
        value = self._values.get(name)
        if not isinstance(value, dict) or not all(isinstance(v, dict) for v in value.values()):
            raise self._error(name, value, 'names, and what each is')
        return value

    def task(self) -> str:
        """The first task in words; empty: none is stated.

        Raises:
            InputError: They are no texts.
        """
        name = 'tasks'
        values = self._values.get(name) or []
        if not isinstance(values, list) or not all(isinstance(value, str) for value in values):
            raise self._error(name, values, 'a list of texts')
        return str(values[0]) if values else ''

    def has(self, name: str) -> bool:
        """Tell whether it has a value."""
        return self._values.get(name) is not None

    def _error(self, name: str, value: Any, expected: str) -> InputError:
        is_missing = value is None and name not in self._values
        what = 'is missing' if is_missing else f'is {short_text(value)}'
        return InputError(f'{self._where}: column {name!r} {what}: expected {expected}')


@dataclass(frozen=True)
class LeRobotEntry:
    """Where an episode is."""

    index: int
    task: str
    data: Path
    length: int | None  # rows, as the metadata have it; None: not stated
    video: Path | None = None
    video_from_s: float = 0.0
    video_s: float | None = None  # how long it is in the video; None: not stated
    is_alone: bool = True  # in its files

    @property
    def name(self) -> str:
        """Of its bag."""
        return f'episode_{self.index:06d}'


class LeRobotMetadata:
    """The metadata of a dataset."""

    def __init__(self, root: Path, camera: str) -> None:
        """Read them.

        Args:
            root: Folder of the dataset.
            camera: Feature with the images; empty: they are not asked for.

        Raises:
            ConfigError: A library is missing.
            InputError: The dataset is of another version, has no such camera, or a part of its
                metadata is missing or damaged.
        """
        self._root = root
        self._info = read_info(root)
        self.fps = self._info.number('fps', _MAX_RATE_HZ)
        if not self.fps:
            msg = f'{root}/meta/info.json: fps is 0: expected more'
            raise InputError(msg)
        features = self._info.mapping('features') if camera else {}
        if camera and camera not in features:
            cameras = [name for name in features if 'image' in name]
            msg = f'{root} has no camera {camera!r}: it has {", ".join(cameras) or "none"}'
            raise InputError(msg)
        feature = features.get(camera, {})
        about = feature.get('info') or feature.get('video_info') or {}
        if isinstance(about, dict) and any(about.get(key) is True for key in _IS_DEPTH):
            msg = f'{root}: camera {camera!r} is of depth: map one with images of colours'
            raise InputError(msg)
        self._video = camera if feature.get('dtype') == 'video' else ''

    def entries(self) -> list[LeRobotEntry]:
        """Every episode that is listed, in order of the indices.

        Raises:
            InputError: A row is not what it should be, or one is missing or there twice.
        """
        meta = self._root / 'meta'
        is_v3 = self._info.text('codebase_version') == 'v3.0'
        listing = meta / ('episodes' if is_v3 else 'episodes.jsonl')
        entry_of = self._entry_v3 if is_v3 else self._entry_v2
        rows = _rows_v3(listing, self._video) if is_v3 else _rows_v2(listing)
        entries = sorted((entry_of(row) for row in rows), key=lambda entry: entry.index)
        if not entries:
            msg = f'{listing} lists no episodes: expected some'
            raise InputError(msg)
        for entry, later in pairwise(entries):
            if entry.index == later.index:
                msg = f'{listing} lists episode {entry.index} more than once: expected once'
                raise InputError(msg)
        if self._info.has('total_episodes'):
            total = self._info.integer('total_episodes')
            if total != len(entries):
                msg = (
                    f'{listing} lists {len(entries)} episodes, and total_episodes of '
                    f'{meta}/info.json is {total}: expected as many'
                )
                raise InputError(msg)
        return entries

    def _entry_v2(self, row: MetadataRow) -> LeRobotEntry:
        index = row.integer(EPISODE_COLUMN)
        chunk = index // self._info.integer('chunks_size', 1)
        names = {'episode_chunk': chunk, 'episode_index': index}
        camera, video = self._video, None
        if camera:
            video = self._file('video_path', video_key=camera, **names)
        length = row.integer('length') if row.has('length') else None
        return LeRobotEntry(index, row.task(), self._file('data_path', **names), length, video)

    def _entry_v3(self, row: MetadataRow) -> LeRobotEntry:
        def at(key: str) -> dict[str, int]:
            return {n: row.integer(f'{key}/{n}') for n in ('chunk_index', 'file_index')}

        data, video = self._file('data_path', **at('data')), None
        begin, length_s = 0.0, None
        if self._video:
            key = f'videos/{self._video}'
            video = self._file('video_path', video_key=self._video, **at(key))
            begin = row.number(f'{key}/from_timestamp', _MAX_SECONDS)
            if row.has(f'{key}/to_timestamp'):
                length_s = row.number(f'{key}/to_timestamp', _MAX_SECONDS) - begin
        length = row.integer('length') if row.has('length') else None
        index = row.integer(EPISODE_COLUMN)
        return LeRobotEntry(
            index, row.task(), data, length, video, begin, length_s, is_alone=False
        )

    def _file(self, key: str, **names: Any) -> Path:
        """A file of the dataset, which its own description names."""
        template = self._info.text(key)
        path, known = self._root / 'meta' / 'info.json', ', '.join(names)
        try:
            if _TEMPLATE.fullmatch(template):
                return file_inside(self._root, template.format(**names), str(path))
        except (KeyError, TypeError) as error:
            msg = f'{path}: {key} has {error}: expected {known} in it'
            raise InputError(msg) from None
        msg = f'{path}: {key} is {short_text(template)}: expected a path with {known} in braces'
        raise InputError(msg)


def read_info(root: Path) -> MetadataRow:
    """What a dataset says of itself.

    Raises:
        InputError: It cannot be read, or is of another version.
    """
    path = root / 'meta' / 'info.json'
    info = MetadataRow(str(path), _json(_file_text(path), str(path)))
    version = info.text('codebase_version')
    if version not in VERSIONS:
        known = f'{", ".join(VERSIONS[:-1])} or {VERSIONS[-1]}'
        msg = f'{root} is a LeRobot dataset of {version}: expected {known}'
        raise InputError(msg)
    return info


def file_inside(root: Path, name: str | Path, source: str) -> Path:
    """A file of a dataset.

    Args:
        root: The dataset.
        name: Relative to it, or absolute.
        source: What names the file, for messages.

    Raises:
        InputError: It is outside of the dataset, or no name of a file.
    """
    # Links may lead out of the folder, as those in the cache of Hugging Face do.
    folder, path = (Path(os.path.normpath(root.absolute() / part)) for part in ('', name))
    if not path.is_relative_to(folder):
        msg = f'{source} names {path}, outside of the dataset'
        raise InputError(msg)
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError):
        pass
    except (OSError, ValueError) as error:  # too long, or with a null character
        msg = f'{source} names {short_text(str(name))}, which is no file: {error}'
        raise InputError(' '.join(msg.split())) from None
    return path


def _rows_v2(path: Path) -> Iterator[MetadataRow]:
    # No other end of a line: names of tasks may hold those that only Unicode knows.
    for number, line in enumerate(_file_text(path).split('\n'), 1):
        if line.strip():
            where = f'{path}, line {number}'
            yield MetadataRow(where, _json(line, where))


def _rows_v3(folder: Path, camera: str) -> Iterator[MetadataRow]:
    keys = ['data', *([f'videos/{camera}'] if camera else [])]
    parts = ('chunk_index', 'file_index', 'from_timestamp', 'to_timestamp')
    names = {
        EPISODE_COLUMN,
        'tasks',
        'length',
        *(f'{key}/{part}' for key in keys for part in parts),
    }
    for path in sorted(folder.rglob('*.parquet')):
        file = ParquetFile(path, names)
        columns = {name: file.values(name) for name in file.columns if name in names}
        for number in range(file.rows):
            values = {name: column[number] for name, column in columns.items()}
            yield MetadataRow(f'{path}, row {number}', values)


def _file_text(path: Path) -> str:
    try:
        text = path.read_text(encoding='utf-8')
    except (OSError, UnicodeDecodeError) as error:
        msg = f'{path} cannot be read: {error}'
        raise InputError(msg) from None
    if why := pointer_advice(text[:_START].encode()):
        msg = f'{path} cannot be read: {why}'
        raise InputError(msg)
    return text


def _json(text: str, where: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        msg = f'{where} is not JSON, most likely cut off: {error}'
        raise InputError(msg) from None
    if not isinstance(value, dict):
        msg = f'{where} is {short_text(value)}, not what LeRobot writes: expected names and values'
        raise InputError(msg)
    return value
