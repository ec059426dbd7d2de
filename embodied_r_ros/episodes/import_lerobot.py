# SPDX-License-Identifier: Apache-2.0
"""Datasets of LeRobot, v2.1 and v3.0: tables as parquet, images in them or as videos."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
import json
from typing import Any, TYPE_CHECKING

from embodied_r_ros.common.errors import ConfigError, ImageError, InputError
from embodied_r_ros.episodes.import_mapping import SourceEpisode
from embodied_r_ros.types.images import decode_image, encode_image
import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from pathlib import Path

    from embodied_r_ros.episodes.import_mapping import DemoMapping
    from embodied_r_ros.types.images import EncodedImage
    from numpy.typing import NDArray

_VERSIONS = ('v2.1', 'v3.0')


@dataclass(frozen=True)
class _Entry:
    """Where an episode is."""

    index: int
    task: str
    data: Path
    video: Path | None
    video_from_s: float = 0.0


def lerobot_episodes(root: Path, mapping: DemoMapping) -> Iterator[SourceEpisode]:
    """Episodes of a dataset, in order.

    Raises:
        ConfigError: A library is missing.
        InputError: It is of another version, or a part of it is missing or damaged.
    """
    info = _json(root / 'meta' / 'info.json')
    version = str(info.get('codebase_version'))
    if version not in _VERSIONS:
        msg = f'{root} is a LeRobot dataset of {version}: expected {" or ".join(_VERSIONS)}'
        raise InputError(msg)
    features = info.get('features', {})
    if mapping.image and mapping.image not in features:
        cameras = [name for name in features if 'image' in name]
        msg = f'{root} has no camera {mapping.image!r}: it has {", ".join(cameras) or "none"}'
        raise InputError(msg)
    is_video = bool(mapping.image) and features[mapping.image].get('dtype') == 'video'
    find = _entries_v2 if version == 'v2.1' else _entries_v3
    try:
        entries = list(find(root, info, mapping.image if is_video else ''))
    except (KeyError, TypeError, IndexError, AttributeError) as error:
        msg = f'{root}/meta lacks {error}: it is not as LeRobot {version} writes it'
        raise InputError(msg) from None
    for entry in entries:
        yield _episode(entry, mapping, float(info['fps']))


def _episode(entry: _Entry, mapping: DemoMapping, fps: float) -> SourceEpisode:
    rows = _parquet(entry.data, [('episode_index', '==', entry.index)])
    count = rows.num_rows
    if not count:
        msg = f'{entry.data} has no rows of episode {entry.index}'
        raise InputError(msg)
    names = mapping.columns() & set(rows.column_names)
    table = {name: np.array(rows[name].to_pylist(), np.float64) for name in names}
    seconds = np.arange(count) / fps
    if 'timestamp' in rows.column_names:
        seconds = np.array(rows['timestamp'].to_pylist(), np.float64)
    images: Callable[[], Iterable[EncodedImage]] | None = None
    if entry.video:
        images = partial(_video_images, entry.video, seconds + entry.video_from_s, fps)
    elif mapping.image:
        images = partial(_table_images, rows[mapping.image].to_pylist(), entry.data)
    return SourceEpisode(f'episode_{entry.index:06d}', entry.task, seconds, table, images)


def _entries_v2(root: Path, info: dict[str, Any], camera: str) -> Iterator[_Entry]:
    # No other end of a line: names of tasks may hold those that only Unicode knows.
    lines = _text(root / 'meta' / 'episodes.jsonl').split('\n')
    for line in filter(str.strip, lines):
        row = json.loads(line)
        index = int(row['episode_index'])
        names = {'episode_chunk': index // int(info['chunks_size']), 'episode_index': index}
        video = _inside(root, info['video_path'], video_key=camera, **names) if camera else None
        task = str(row['tasks'][0]) if row.get('tasks') else ''
        yield _Entry(index, task, _inside(root, info['data_path'], **names), video)


def _entries_v3(root: Path, info: dict[str, Any], camera: str) -> Iterator[_Entry]:
    for file in sorted((root / 'meta' / 'episodes').rglob('*.parquet')):
        for row in _parquet(file).to_pylist():
            place = {name: int(row[f'data/{name}']) for name in ('chunk_index', 'file_index')}
            data, video, begin = _inside(root, info['data_path'], **place), None, 0.0
            if camera:
                key = f'videos/{camera}'
                at = {name: int(row[f'{key}/{name}']) for name in ('chunk_index', 'file_index')}
                video = _inside(root, info['video_path'], video_key=camera, **at)
                begin = float(row[f'{key}/from_timestamp'])
            task = str(row['tasks'][0]) if row.get('tasks') else ''
            yield _Entry(int(row['episode_index']), task, data, video, begin)


def _inside(root: Path, template: str, **names: Any) -> Path:
    """A file of the dataset, which its own description names."""
    path = (root / template.format(**names)).resolve()
    if not path.is_relative_to(root.resolve()):
        msg = f'{root}/meta/info.json names {path}, outside of the dataset'
        raise InputError(msg)
    return path


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        msg = f'{path} cannot be read: {error}'
        raise InputError(msg) from None


def _json(path: Path) -> dict[str, Any]:
    try:
        value = json.loads(_text(path))
    except (ValueError, RecursionError) as error:
        msg = f'{path} is not JSON: {error}'
        raise InputError(msg) from None
    if not isinstance(value, dict):
        msg = f'{path} is not what LeRobot writes: expected an object'
        raise InputError(msg)
    return value


def _parquet(path: Path, filters: Sequence[tuple[str, str, int]] | None = None) -> Any:
    try:
        from pyarrow import parquet
    except ImportError:
        msg = 'datasets of LeRobot need the library pyarrow: pip install pyarrow'
        raise ConfigError(msg) from None
    try:
        return parquet.read_table(path, filters=filters, partitioning=None)
    except Exception as error:  # whatever a damaged file makes of the library
        msg = f'{path} cannot be read: {" ".join(str(error).split())}'
        raise InputError(msg) from None


def _table_images(cells: Iterable[Any], path: Path) -> Iterator[EncodedImage]:
    for cell in cells:
        try:
            yield encode_image(decode_image(cell['bytes']))
        except (ImageError, KeyError, TypeError) as error:
            msg = f'an image in {path} cannot be read: {error}'
            raise InputError(msg) from None


def _video_images(path: Path, seconds: NDArray[np.float64], fps: float) -> Iterator[EncodedImage]:
    """The frame of a video at each time: the newest one up to half a period later."""
    try:
        import av
    except ImportError:
        msg = 'videos of LeRobot need the library av: pip install av'
        raise ConfigError(msg) from None
    try:
        with av.open(str(path)) as container:
            frames = container.decode(video=0)
            current, coming = None, next(frames, None)
            for second in seconds:
                while coming is not None and coming.time <= second + 0.5 / fps:
                    current, coming = coming, next(frames, None)
                if current is None or (coming is None and second - current.time > 1.5 / fps):
                    return
                yield encode_image(np.asarray(current.to_ndarray(format='bgr24'), np.uint8))
    except (av.FFmpegError, OSError) as error:
        msg = f'{path} cannot be read as a video: {error}'
        raise InputError(msg) from None
