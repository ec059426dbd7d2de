# SPDX-License-Identifier: Apache-2.0
"""Recordings as a dataset of LeRobot, v3.0, with questions and answers in its language columns.

Layout and columns: https://huggingface.co/docs/lerobot/lerobot-dataset-v3.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from fractions import Fraction
import json
from typing import Any, TYPE_CHECKING

import cv2
from embodied_r_ros.apps.lerobot_frames import (
    cameras_of,
    EVENTS,
    FrameLanguage,
    language_column,
    motion_rows,
    PERSISTENT,
    pictures_at,
    robot_motion,
    tracks_of,
)
from embodied_r_ros.bags.reader import open_bag
from embodied_r_ros.common.card import dataset_card
from embodied_r_ros.common.errors import ConfigError, EmbodiedRError, InputError
from embodied_r_ros.core.types.geometry import NS_PER_S
from embodied_r_ros.data.episodes.episode import read_as_recorded, read_marks
from embodied_r_ros.data.questions.proofs import recorded_questions
import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from embodied_r_ros.apps.lerobot_frames import Camera, RobotMotion
    from embodied_r_ros.bags.reader import BagReader
    from numpy.typing import NDArray

VERSION = 'v3.0'
_CHUNK = 1000  # files in a folder
_DATA = 'data/chunk-{chunk_index:03d}/file-{file_index:03d}.parquet'
_VIDEO = 'videos/{video_key}/chunk-{chunk_index:03d}/file-{file_index:03d}.mp4'
_EPISODES = 'meta/episodes/chunk-000/file-000.parquet'
_STATE, _ACTION = 'observation.state', 'action'
_NUMBERS = {
    'timestamp': 'float32',
    'frame_index': 'int64',
    'episode_index': 'int64',
    'index': 'int64',
    'task_index': 'int64',
}
_SAMPLED = 20  # images of a camera and episode whose colours count in the statistics
_NO_TASK = 'say what the camera saw'


@dataclass(frozen=True)
class ExportedEpisode:
    """What became of a recording."""

    name: str
    frames: int = 0
    questions: int = 0
    left_out: str = ''  # why it is not in the dataset; empty: it is


@dataclass
class _Statistics:
    """Sums over values, shape (D,)."""

    count: int = 0
    total: Any = 0.0
    squares: Any = 0.0
    low: Any = np.inf
    high: Any = -np.inf

    def add(self, values: NDArray[np.float64]) -> None:
        """Take values, shape (N, D)."""
        sums = values.sum(axis=0), (values**2).sum(axis=0)
        self.add_all(_Statistics(len(values), *sums, values.min(axis=0), values.max(axis=0)))

    def add_all(self, other: _Statistics) -> None:
        """Take what another one has."""
        self.count += other.count
        self.total, self.squares = self.total + other.total, self.squares + other.squares
        self.low, self.high = np.minimum(self.low, other.low), np.maximum(self.high, other.high)

    def figures(self, shape: tuple[int, ...]) -> dict[str, Any]:
        """What LeRobot keeps, each in the shape of the feature."""
        mean = self.total / self.count
        spread = np.sqrt(np.maximum(self.squares / self.count - mean**2, 0.0))
        named = {'min': self.low, 'max': self.high, 'mean': mean, 'std': spread}
        figures = {name: np.reshape(value, shape).tolist() for name, value in named.items()}
        return {**figures, 'count': [self.count]}


@dataclass
class LeRobotExport:
    """A dataset that grows by one recording after the other."""

    out: Path
    fps: int
    poses: str  # whose pose every recording knows, as of `known_poses`
    _names: dict[str, tuple[str, ...]] = field(default_factory=dict)  # of state and action
    _tasks: dict[str, int] = field(default_factory=dict)
    _sizes: dict[str, tuple[int, int]] = field(default_factory=dict)  # height, width by camera
    _rows: list[dict[str, Any]] = field(default_factory=list)  # of meta/episodes
    _stats: defaultdict[str, _Statistics] = field(default_factory=lambda: defaultdict(_Statistics))
    _frames: int = 0

    def add(self, bag: Path) -> ExportedEpisode:
        """Add a recording; what cannot be in the dataset is left out, with its reason.

        Raises:
            ConfigError: A library is missing.
            OSError: The disk does not take it.
        """
        _libraries()
        try:
            return self._added(bag)
        except EmbodiedRError as error:
            if isinstance(error, ConfigError):
                raise
            for video in self.out.glob(_place(_VIDEO, len(self._rows), video_key='*')):
                video.unlink()
            return ExportedEpisode(bag.name, left_out=' '.join(str(error).split()))

    def _added(self, bag: Path) -> ExportedEpisode:
        episode = read_as_recorded(bag)
        with open_bag(bag) as reader:
            cameras = cameras_of(reader)
            tracks = tracks_of(reader, cameras)
            start_ns = max(track.first_ns for track in tracks.values())
            end_ns = max(track.last_ns for track in tracks.values())
            count = max(0, (end_ns - start_ns) * self.fps // NS_PER_S) + 1
            stamps = [start_ns + frame * NS_PER_S // self.fps for frame in range(count)]
            self._check_cameras(cameras)
            motion = self._motion(reader, stamps, tracks[cameras[0].key].frame_id)
            sizes, colours = self._write_videos(reader, cameras, stamps)
            task = next((mark.task for mark in read_marks(reader) if mark.task), _NO_TASK)
        questions = recorded_questions(episode) if episode else []
        language = FrameLanguage(stamps, [camera.key for camera in cameras], self.fps)
        for question in questions:
            language.add_question(question)
        persistent = motion_rows(episode, stamps, self.fps) if episode else []
        number = len(self._rows)
        columns = self._columns(number, count, self._tasks.setdefault(task, len(self._tasks)))
        if motion:
            columns |= {_STATE: motion.states, _ACTION: motion.actions}
            self._names = {_STATE: motion.state_names, _ACTION: motion.action_names}
        self._sizes |= sizes
        figures = self._count(columns, colours)
        self._write_data(columns, language.events, persistent, number)
        self._rows.append(self._episode_row(number, count, task, cameras, figures))
        self._frames += count
        return ExportedEpisode(bag.name, count, language.count)

    def _check_cameras(self, cameras: Sequence[Camera]) -> None:
        """See that a recording has the cameras of those before it.

        Raises:
            InputError: It has others.
        """
        keys = {camera.key for camera in cameras}
        if self._sizes and keys != set(self._sizes):
            msg = (
                f'it has the cameras {", ".join(sorted(keys))}, and the recordings before it '
                f'{", ".join(sorted(self._sizes))}'
            )
            raise InputError(msg)

    def _motion(
        self, reader: BagReader, stamps: Sequence[int], frame_id: str
    ) -> RobotMotion | None:
        """Where the robot was and what it did; None: not every recording knows.

        Raises:
            InputError: It is not known of this one, or not as of those before it.
        """
        if not self.poses:
            return None
        motion = robot_motion(reader, self.poses, stamps, self.fps, frame_id)
        if (before := self._names.get(_STATE, motion.state_names)) != motion.state_names:
            msg = (
                f'its state is {", ".join(motion.state_names)}, and that of the recordings before '
                f'it {", ".join(before)}'
            )
            raise InputError(msg)
        return motion

    def _write_videos(
        self, reader: BagReader, cameras: Sequence[Camera], stamps: Sequence[int]
    ) -> tuple[dict[str, tuple[int, int]], dict[str, _Statistics]]:
        """Write a video of each camera; returns their heights and widths, and their colours.

        Raises:
            InputError: The pictures are not as large as those of the recordings before.
        """
        sizes, colours = {}, {}
        for camera in cameras:
            path = self.out / _place(_VIDEO, len(self._rows), video_key=camera.key)
            path.parent.mkdir(parents=True, exist_ok=True)
            pictures = pictures_at(reader, camera, stamps)
            size, colours[camera.key] = _write_video(path, pictures, self.fps, len(stamps))
            if self._sizes.get(camera.key, size) != size:
                height, width = self._sizes[camera.key]
                msg = (
                    f'its pictures have {size[1]}x{size[0]} pixels, and those of the recordings '
                    f'before it {width}x{height}'
                )
                raise InputError(msg)
            sizes[camera.key] = size
        return sizes, colours

    def _columns(self, number: int, count: int, task: int) -> dict[str, NDArray[Any]]:
        """The numbers of each frame, by column."""
        frames = np.arange(count)
        return {
            'timestamp': (frames / self.fps).astype(np.float32),
            'frame_index': frames,
            'episode_index': np.full(count, number),
            'index': self._frames + frames,
            'task_index': np.full(count, task),
        }

    def _count(
        self, columns: dict[str, NDArray[Any]], colours: dict[str, _Statistics]
    ) -> dict[str, dict[str, Any]]:
        """Count in an episode's values; returns its own figures, by feature."""
        figures = {}
        for name, values in columns.items():
            own = _Statistics()
            own.add(values.reshape(len(values), -1).astype(np.float64))
            self._stats[name].add_all(own)
            figures[name] = own.figures((-1,))
        for key, own in colours.items():
            self._stats[key].add_all(own)
            figures[key] = own.figures((3, 1, 1))
        return figures

    def _write_data(
        self,
        columns: dict[str, NDArray[Any]],
        events: Sequence[list[dict[str, Any]]],
        persistent: list[dict[str, Any]],
        number: int,
    ) -> None:
        import pyarrow as pa

        arrays: dict[str, Any] = {
            name: pa.array(values, pa.type_for_alias(_NUMBERS[name]))
            for name, values in columns.items()
            if name in _NUMBERS
        }
        for name in columns.keys() & self._names.keys():
            kind = pa.list_(pa.float32(), len(self._names[name]))
            arrays[name] = pa.array(list(columns[name].astype(np.float32)), kind)
        arrays[PERSISTENT] = language_column([persistent] * len(events), is_event=False)
        arrays[EVENTS] = language_column(events, is_event=True)
        _write_table(self.out / _place(_DATA, number), pa.table(arrays))

    def _episode_row(
        self,
        number: int,
        count: int,
        task: str,
        cameras: Sequence[Camera],
        figures: dict[str, dict[str, Any]],
    ) -> dict[str, Any]:
        """What meta/episodes says of an episode."""
        chunk = {'chunk_index': number // _CHUNK, 'file_index': number % _CHUNK}
        row: dict[str, Any] = {
            'episode_index': number,
            'tasks': [task],
            'length': count,
            'dataset_from_index': self._frames,
            'dataset_to_index': self._frames + count,
            **{f'data/{name}': value for name, value in chunk.items()},
            'meta/episodes/chunk_index': 0,
            'meta/episodes/file_index': 0,
        }
        for camera in cameras:
            own = {**chunk, 'from_timestamp': 0.0, 'to_timestamp': count / self.fps}
            row |= {f'videos/{camera.key}/{name}': value for name, value in own.items()}
        for name, values in figures.items():
            row |= {f'stats/{name}/{figure}': value for figure, value in values.items()}
        return row

    def end(self) -> None:
        """Write what the dataset says of itself.

        Raises:
            InputError: No recording is in it.
            OSError: The disk does not take it.
        """
        if not self._rows:
            msg = 'no recording could be exported'
            raise InputError(msg)
        import pyarrow as pa

        _write_table(self.out / _EPISODES, pa.Table.from_pylist(self._rows))
        _write_table(self.out / 'meta' / 'tasks.parquet', _task_table(list(self._tasks)))
        shapes = dict.fromkeys(self._sizes, (3, 1, 1))
        stats = {name: one.figures(shapes.get(name, (-1,))) for name, one in self._stats.items()}
        info = self._info()
        for name, content in (('stats', stats), ('info', info)):
            text = json.dumps(content, indent=4) + '\n'
            (self.out / 'meta' / f'{name}.json').write_text(text, encoding='utf-8')
        (self.out / 'README.md').write_text(_card(info), encoding='utf-8')

    def _info(self) -> dict[str, Any]:
        features: dict[str, Any] = {
            name: {'dtype': kind, 'shape': [1], 'names': None} for name, kind in _NUMBERS.items()
        }
        for key, (height, width) in self._sizes.items():
            features[key] = {
                'dtype': 'video',
                'shape': [height, width, 3],
                'names': ['height', 'width', 'channels'],
                'info': {
                    'video.height': height,
                    'video.width': width,
                    'video.codec': 'h264',
                    'video.pix_fmt': 'yuv420p',
                    'video.is_depth_map': False,
                    'video.fps': self.fps,
                    'video.channels': 3,
                    'has_audio': False,
                },
            }
        for name, parts in self._names.items():
            features[name] = {'dtype': 'float32', 'shape': [len(parts)], 'names': list(parts)}
        for name in (PERSISTENT, EVENTS):
            features[name] = {'dtype': 'language', 'shape': [1], 'names': None}
        return {
            'codebase_version': VERSION,
            'robot_type': None,
            'total_episodes': len(self._rows),
            'total_frames': self._frames,
            'total_tasks': len(self._tasks),
            'chunks_size': _CHUNK,
            'data_files_size_in_mb': 100,
            'video_files_size_in_mb': 200,
            'fps': self.fps,
            'splits': {'train': f'0:{len(self._rows)}'},
            'data_path': _DATA,
            'video_path': _VIDEO,
            'features': features,
        }


def _card(info: dict[str, Any]) -> str:
    head = {
        'task_categories': ['robotics'],
        'tags': ['LeRobot'],
        'configs': [{'config_name': 'default', 'data_files': 'data/*/*.parquet'}],
    }
    columns = {name: f'{one["dtype"]} {one["shape"]}' for name, one in info['features'].items()}
    counts = {name: info[f'total_{name}'] for name in ('episodes', 'frames', 'tasks')}
    text = f'Recordings as a dataset of LeRobot, {VERSION}, {info["fps"]} frames a second.'
    return dataset_card('Recordings', text, head, columns, counts)


def _libraries() -> None:
    """See that the libraries are there.

    Raises:
        ConfigError: One is missing.
    """
    try:
        import av  # noqa: F401
        import pyarrow  # noqa: F401
    except ImportError as error:
        msg = f'datasets of LeRobot need the libraries av and pyarrow: pip install {error.name}'
        raise ConfigError(msg) from None


def _write_video(
    path: Path, pictures: Iterable[NDArray[np.uint8]], fps: int, count: int
) -> tuple[tuple[int, int], _Statistics]:
    """Write pictures as a video; returns their height and width, and what their colours are."""
    import av

    colours, every = _Statistics(), max(1, count // _SAMPLED)
    with av.open(str(path), 'w') as container:
        stream: Any = container.add_stream('libx264', rate=Fraction(fps))
        stream.pix_fmt, stream.options = 'yuv420p', {'g': str(fps), 'crf': '23'}
        size = (0, 0)
        for number, picture in enumerate(pictures):
            # Colours are coded for two by two pixels.
            height, width = (side // 2 * 2 for side in picture.shape[:2])
            if not number:
                size = stream.height, stream.width = height, width
            if (height, width) != size:
                msg = f'its pictures change from {size[1]}x{size[0]} to {width}x{height} pixels'
                raise InputError(msg)
            even = np.ascontiguousarray(picture[:height, :width])
            if number % every == 0:
                small = cv2.resize(even, (64, 64), interpolation=cv2.INTER_AREA)
                colours.add(small[..., ::-1].reshape(-1, 3).astype(np.float64) / 255.0)
            frame = av.VideoFrame.from_ndarray(even, format='bgr24')
            container.mux(stream.encode(frame))
        container.mux(stream.encode())
    return size, colours


def _place(template: str, number: int, **names: str) -> str:
    """Path of the file of an episode: each has its own."""
    chunk, file = divmod(number, _CHUNK)
    return template.format(chunk_index=chunk, file_index=file, **names)


def _task_table(tasks: Sequence[str]) -> Any:
    """The tasks as pandas writes a frame whose index is named task."""
    import pyarrow as pa

    columns = [
        {'name': name, 'field_name': name, 'pandas_type': kind, 'numpy_type': numpy_kind}
        for name, kind, numpy_kind in (
            ('task_index', 'int64', 'int64'),
            ('task', 'unicode', 'object'),
        )
    ]
    described = [{**column, 'metadata': None} for column in columns]
    pandas = {'index_columns': ['task'], 'column_indexes': [], 'columns': described}
    table = pa.table({'task_index': pa.array(range(len(tasks)), pa.int64()), 'task': list(tasks)})
    return table.replace_schema_metadata({'pandas': json.dumps({**pandas, 'pandas_version': '2'})})


def _write_table(path: Path, table: Any) -> None:
    from pyarrow import parquet

    path.parent.mkdir(parents=True, exist_ok=True)
    parquet.write_table(table, path)
