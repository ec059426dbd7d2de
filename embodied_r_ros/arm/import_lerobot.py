# SPDX-License-Identifier: Apache-2.0
"""Datasets of LeRobot, v2.0, v2.1 and v3.0: tables as parquet, images in them or as videos."""

from __future__ import annotations

from collections import defaultdict
from contextlib import contextmanager
from dataclasses import dataclass
import os
from pathlib import Path
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
from embodied_r_ros.arm.import_lerobot_metadata import (
    EPISODE_COLUMN,
    file_inside,
    LeRobotMetadata,
)
from embodied_r_ros.arm.import_parquet import ParquetFile, readable
from embodied_r_ros.common.errors import ConfigError, InputError
import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from embodied_r_ros.arm.import_episode import EpisodeImages
    from embodied_r_ros.arm.import_lerobot_metadata import LeRobotEntry
    from embodied_r_ros.arm.import_mapping import DemoMapping
    from numpy.typing import NDArray

_FRAME, _TIME = 'frame_index', 'timestamp'
_JITTER = 0.25  # share of a duration
_UNITS = {1000: 'milliseconds', 10**6: 'microseconds', 10**9: 'nanoseconds'}


class VideoFrames:
    """The frames of a video, in order of time. One reader at a time."""

    def __init__(self, path: Path) -> None:
        """Open a video and list its frames, without decoding any.

        Raises:
            ConfigError: PyAV is missing.
            InputError: It is no video that can be read.
        """
        try:
            import av
        except ImportError:
            msg = 'videos of LeRobot need the library av: pip install av'
            raise ConfigError(msg) from None
        self.path = path
        self.decoded = 0  # frames so far
        self._coming: Iterator[Any] = iter(())
        self._next_tick: float = np.inf  # no frame before it comes any more
        with self._readable():
            self._container = av.open(str(path))
            self._stream = self._container.streams.video[0]
            if re.match(r'gray(9|1\d)', self._stream.codec_context.pix_fmt or ''):
                msg = f'{path} is of depth (grey, more than 8 bits): map a camera of colours'
                raise InputError(msg)
            # Otherwise decoders make up what is damaged.
            self._stream.codec_context.options = {'err_detect': 'explode'}
            packets = [
                (packet.pts, packet.is_keyframe)
                for packet in self._container.demux(self._stream)
                if packet.pts is not None and not packet.is_discard
            ]
            base = float(self._stream.time_base)
        self._ticks = sorted({tick for tick, _ in packets})
        self._keys = np.array(sorted(tick for tick, is_key in packets if is_key), np.int64)
        self.seconds: NDArray[np.float64] = np.array(self._ticks, np.float64) * base  # (N,)

    def __len__(self) -> int:
        """Give the number of frames."""
        return len(self._ticks)

    def close(self) -> None:
        """Close the file."""
        self._container.close()

    def read(self, first: int, count: int) -> Iterator[NDArray[np.uint8]]:
        """Some frames in order, BGR (H, W, 3).

        Where the last call ended before them, decoding goes on from there, unless a keyframe lies
        between; otherwise it begins at the keyframe before them.

        Raises:
            InputError: One cannot be decoded.
        """
        with self._readable():
            self._go_to(self._ticks[first])
        for number in range(first, first + count):
            with self._readable(f', frame {number},'):
                image = self._image(self._ticks[number])
            if image is None:
                msg = f'{self.path}, frame {number}, cannot be decoded: the video is damaged'
                raise InputError(msg)
            yield image

    def _go_to(self, tick: int) -> None:
        keys = self._keys[self._keys <= tick]
        key = int(keys[-1]) if len(keys) else self._ticks[0]
        if key <= self._next_tick <= tick:
            return
        self._container.seek(key, stream=self._stream)
        self._coming = self._container.decode(self._stream)
        self._next_tick = key

    def _image(self, tick: int) -> NDArray[np.uint8] | None:
        """The frame of a tick; None: the decoder does not give it whole."""
        for frame in self._coming:
            self.decoded += 1
            if frame.pts is None:
                continue
            self._next_tick = frame.pts + 1
            if frame.pts >= tick:
                is_whole = frame.pts == tick and not frame.is_corrupt
                return np.asarray(frame.to_ndarray(format='bgr24'), np.uint8) if is_whole else None
        return None

    @contextmanager
    def _readable(self, where: str = '') -> Iterator[None]:
        try:
            with readable(f'{self.path}{where} cannot be read as a video', self.path):
                yield
        except InputError:
            self._next_tick = np.inf  # the decoder is of no use any more
            raise


class LeRobotDataset:
    """The episodes of a dataset; leaving it as a context manager closes its video."""

    def __init__(self, root: Path, mapping: DemoMapping) -> None:
        """Read the metadata of a dataset.

        Raises:
            ConfigError: A library is missing.
            InputError: It is of another version, or a part of it is missing or damaged.
        """
        self._root = root
        self._mapping = mapping
        metadata = LeRobotMetadata(root, mapping.image)
        self._fps = metadata.fps
        entries = metadata.entries()
        self._all_entries = entries
        is_there = {
            entry: all(file.is_file() for file in (entry.data, entry.video) if file)
            for entry in entries
        }
        self._entries = {entry.name: entry for entry in entries if is_there[entry]}
        self.absent = tuple(entry.name for entry in entries if not is_there[entry])
        self._data: ParquetFile | None = None  # of the newest episode, as the video
        self._indices: NDArray[np.int64] = np.zeros(0, np.int64)
        self._video: VideoFrames | None = None
        self._decoded = 0
        self._frames_of: defaultdict[Path, dict[int, range]] = defaultdict(dict)
        self._lengths: dict[Path, int] = {}  # of videos, in frames
        self._unlisted: dict[Path, int] = {}  # rows of files

    def __enter__(self) -> LeRobotDataset:
        return self

    def __exit__(self, *_: object) -> None:
        self._close_video()

    @property
    def names(self) -> Sequence[str]:
        """The episodes whose files are there, in order."""
        return tuple(self._entries)

    @property
    def decoded(self) -> int:
        """Frames of videos that were decoded so far."""
        return self._decoded + (self._video.decoded if self._video else 0)

    def notes(self) -> Iterator[str]:
        """What there is that no metadata lists, once each episode was read."""
        entries = {entry.data for entry in self._all_entries}
        folder = Path(os.path.normpath(self._root.absolute())) / 'data'  # as entries name it
        files = sorted(set(folder.rglob('*.parquet')) - entries)
        if files:
            names = f'{files[0].name}, …' if len(files) > 1 else files[0].name
            yield f'{len(files)} files that the metadata do not list ({names}): left out'
        if count := sum(self._unlisted.values()):
            yield f'{count} rows of episodes that the metadata do not list: left out'
        for path, taken in self._frames_of.items():
            episodes = sum(entry.video == path for entry in self._all_entries)
            more = self._lengths[path] - sum(map(len, taken.values()))
            if more and episodes == len(taken):
                yield f'{path} has {more} images of no episode: left out'

    def read(self, name: str) -> SourceEpisode:
        """Read the numbers of an episode; its images are read as they are asked for.

        Raises:
            ConfigError: A library is missing.
            InputError: A file cannot be read, or a row is not what it should be.
        """
        entry = self._entries[name]
        data = self._data_file(entry.data)
        place = SourcePlace(entry.data, f'episode {entry.index}')
        begin, count = self._rows_of(entry)
        check_columns(self._mapping, data.columns, entry.data)
        columns = self._mapping.columns() | ({_TIME, _FRAME} & set(data.columns))
        table = {column: data.numbers(column, begin, count, place) for column in sorted(columns)}
        if _FRAME in table:
            _check_frames(table[_FRAME].reshape(count, -1)[:, 0], place)
        seconds: NDArray[np.float64] = np.arange(count) / self._fps
        if _TIME in table:
            seconds = table[_TIME].reshape(count, -1)[:, 0]
        self.check_duration(seconds, place.of(_TIME))
        images: EpisodeImages | None = None
        if entry.video:
            images = _VideoImages(self, entry, seconds)
        elif self._mapping.image:
            cells = _Cells(data, self._mapping.image, begin, count)
            images = _TableImages(self._root, cells, place, entry.name)
        return SourceEpisode(name, place, entry.task, seconds, table, images)

    def check_duration(self, seconds: NDArray[np.float64], where: Path | str) -> None:
        """See that times (N,) go with the rate that the metadata state.

        Raises:
            InputError: They last longer, or shorter, by more than jitter; names `where`.
        """
        count = len(seconds) - 1
        with np.errstate(invalid='ignore'):
            lasts_s = float(np.ptp(seconds))
            usual_s = float(np.median(np.diff(seconds, prepend=0.0)[-count:])) * count
        stated_s, jitter_s = count / self._fps, _JITTER * count / self._fps
        # One time that is damaged is named elsewhere; no time at all, such as NaN, too.
        is_off = abs(lasts_s - stated_s) > jitter_s + 1 / self._fps
        if not (is_off and abs(usual_s - stated_s) > jitter_s):
            return
        near = (unit for unit in _UNITS if abs(lasts_s / unit - stated_s) <= jitter_s)
        hint = next((f'; they look like {_UNITS[u]}: divide them by {u:,}' for u in near), '')
        msg = (
            f'{where}: {len(seconds)} times last {lasts_s:,.2f} s, and {stated_s:,.2f} s at the '
            f'fps {self._fps:g} of meta/info.json: expected as long{hint}'
        )
        raise InputError(msg)

    def frames_of(self, entry: LeRobotEntry, seconds: NDArray[np.float64]) -> range:
        """The frames of a video that are of an episode, one for each row.

        Raises:
            InputError: There are not as many, or they are of another episode too.
        """
        assert entry.video
        video, path, index = self.video(entry.video), entry.video, entry.index
        if entry.is_alone:
            first, available = 0, len(video)
            is_right = available == len(seconds)
        else:
            first = int(np.searchsorted(video.seconds, entry.video_from_s - 0.5 / self._fps))
            available = len(video) - first
            if entry.video_s is not None:
                available = min(available, round(entry.video_s * self._fps))
                is_right = available == len(seconds)
            else:
                is_right = available >= len(seconds)
        if not is_right:
            msg = (
                f'{path} has {available} images of episode {index}, and its table has '
                f'{len(seconds)} rows: expected as many'
            )
            raise InputError(msg)
        frames = range(first, first + len(seconds))
        if not entry.is_alone:
            self._check_times(entry, seconds, frames)
        for other, taken in self._frames_of[path].items():
            if other != index and max(taken[0], frames[0]) <= min(taken[-1], frames[-1]):
                msg = f'{path}: episodes {other} and {index} have images in common: expected none'
                raise InputError(msg)
        self._frames_of[path][index] = frames
        return frames

    def _check_times(
        self, entry: LeRobotEntry, seconds: NDArray[np.float64], frames: range
    ) -> None:
        assert entry.video
        video = self.video(entry.video)
        expected = entry.video_from_s + seconds - seconds[0]
        off = np.abs(video.seconds[frames.start : frames.stop] - expected)
        if off.max() > 0.75 / self._fps:
            row = int(np.argmax(off > 0.75 / self._fps))
            msg = (
                f'{entry.video} has no image of row {row} of episode {entry.index} at '
                f'{expected[row]:.3f} s: expected one every {1 / self._fps:.4f} s'
            )
            raise InputError(msg)

    def video(self, path: Path) -> VideoFrames:
        """A video, which stays open until another one is asked for."""
        if self._video is None or self._video.path != path:
            self._close_video()
            self._video = VideoFrames(path)
            self._lengths[path] = len(self._video)
        return self._video

    def _close_video(self) -> None:
        if self._video:
            self._decoded += self._video.decoded
            self._video.close()
            self._video = None

    def _data_file(self, path: Path) -> ParquetFile:
        if self._data is None or self._data.path != path:
            names = {*self._mapping.columns(), EPISODE_COLUMN, _FRAME, _TIME}
            self._data = None
            data = ParquetFile(path, names)
            self._indices = data.whole_numbers(EPISODE_COLUMN)
            self._unlisted[path] = int(
                np.isin(
                    self._indices, [each.index for each in self._all_entries], invert=True
                ).sum()
            )
            self._data = data
        return self._data

    def _rows_of(self, entry: LeRobotEntry) -> tuple[int, int]:
        """First row of an episode in its file, and how many it has."""
        rows = np.flatnonzero(self._indices == entry.index)
        count = len(rows)
        others = np.flatnonzero((self._indices != entry.index) & entry.is_alone)
        expected = count if entry.length is None else entry.length
        if len(others):
            row = int(others[0])
            where = f'{entry.data}: column {EPISODE_COLUMN!r}, row {row}'
            msg = f'{where} is {self._indices[row]}: expected {entry.index}'
        elif not count or count != expected:
            msg = (
                f'{entry.data} has {count} rows of episode {entry.index}, and the metadata state '
                f'length {entry.length}: expected as many'
            )
        elif rows[-1] - rows[0] != count - 1:
            row = int(rows[np.argmax(np.diff(rows) > 1)]) + 1
            msg = (
                f'{entry.data}: column {EPISODE_COLUMN!r}, row {row} is {self._indices[row]}, in '
                f'the midst of episode {entry.index}: expected its rows together'
            )
        else:
            return int(rows[0]), count
        raise InputError(msg)


@dataclass(frozen=True)
class _Cells:
    """Cells of a column of images."""

    file: ParquetFile
    column: str
    begin: int
    count: int


@dataclass(frozen=True)
class _TableImages:
    """Images in a column of a table, as bytes, or as paths of files."""

    root: Path
    cells: _Cells
    place: SourcePlace
    episode: str

    def check(self) -> None:
        rows = 0
        for row, cell in enumerate(self._each()):
            self._encoded(row, cell)
            rows += 1
        if rows != self.cells.count:
            msg = f'{self.place.of(self.cells.column)} has {rows} of {self.cells.count} images'
            raise InputError(msg)

    def read(self) -> Iterator[NDArray[np.uint8]]:
        for row, cell in enumerate(self._each()):
            where = self.place.of(self.cells.column, row)
            yield decode_source_image(self._encoded(row, cell), where)

    def _each(self) -> Iterator[Any]:
        cells = self.cells
        return cells.file.cells(cells.column, cells.begin, cells.count)

    def _encoded(self, row: int, cell: Any) -> bytes:
        where = self.place.of(self.cells.column, row)
        parts = cell if isinstance(cell, dict) else {'bytes': cell}
        data, path = parts.get('bytes') or b'', parts.get('path')
        if not data and isinstance(path, str) and path:
            data = self._file(path, where)
        if not isinstance(data, bytes):
            msg = f'{where} is {short_text(data)}: expected bytes of an image, or a path of one'
            raise InputError(msg)
        check_source_image(data, where)
        return data

    def _file(self, name: str, where: str) -> bytes:
        """The file at a path: in the dataset, beside the table, or where LeRobot has images."""
        images = self.root / 'images' / self.cells.column / self.episode
        for folder in (self.root, self.place.file.parent, images):
            path = file_inside(self.root, folder / name, where)
            try:
                if path.is_file():
                    return path.read_bytes()
            except OSError as error:
                msg = f'{where} names {path}, which cannot be read: {error.strerror}'
                raise InputError(msg) from None
        msg = f'{where} has no bytes and names {short_text(name)}, which is not in the dataset'
        raise InputError(msg)


@dataclass(frozen=True)
class _VideoImages:
    """Images in a video."""

    dataset: LeRobotDataset
    entry: LeRobotEntry
    seconds: NDArray[np.float64]

    def check(self) -> None:
        frames = self.dataset.frames_of(self.entry, self.seconds)
        assert self.entry.video
        video = self.dataset.video(self.entry.video)
        self.dataset.check_duration(video.seconds[frames.start : frames.stop], video.path)

    def read(self) -> Iterator[NDArray[np.uint8]]:
        frames = self.dataset.frames_of(self.entry, self.seconds)
        assert self.entry.video
        return self.dataset.video(self.entry.video).read(frames.start, len(frames))


def _check_frames(frames: NDArray[np.float64], place: SourcePlace) -> None:
    """See that rows count from 0 on."""
    odd = np.flatnonzero(frames != np.arange(len(frames)))
    if len(odd):
        row = int(odd[0])
        msg = (
            f'{place.of(_FRAME, row)} is {frames[row]:g}: expected {row}; rows are missing or out '
            'of order, or there are two takes'
        )
        raise InputError(msg)
