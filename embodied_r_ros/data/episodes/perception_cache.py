# SPDX-License-Identifier: Apache-2.0
"""What was perceived of recordings, kept by their content: a second question need not look again.

A key holds all that decides what is perceived, so that an entry never grows stale: the bytes of
the recording, the perceiver with its settings, and the code. An entry is two lines of JSON: deltas
and map, and the keyframes for another look, which are read only where a question wants one.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from contextlib import suppress
from dataclasses import dataclass, fields, is_dataclass
from enum import Enum
from functools import partial
import json
import logging
import os
from pathlib import Path
from typing import Any, TYPE_CHECKING

from embodied_r_ros.bags.folders import files_of_folder
from embodied_r_ros.bags.reader import is_bag
from embodied_r_ros.common.errors import InputError
from embodied_r_ros.common.files import package_version, user_folder, write_whole
from embodied_r_ros.core.chat.cache import cache_key
from embodied_r_ros.core.chat.settings import file_sum
from embodied_r_ros.core.types.deltas import (
    DeltaKind,
    Item,
    ItemStatus,
    ModelInfo,
    Motion,
    MotionSource,
    Rung,
    ScaleSource,
    SemanticDelta,
)
from embodied_r_ros.core.types.geometry import Intrinsics, Pose
from embodied_r_ros.core.types.landmarks import SceneMap

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from embodied_r_ros.core.types.keyframes import Keyframe

_LOG = logging.getLogger(__name__)
_LIMIT_BYTES = 200 * 1024 * 1024
_TYPE = '_'  # names the type of a value in JSON
_ENUMS = (DeltaKind, ItemStatus, MotionSource, Rung, ScaleSource)
_TYPES: dict[str, type[Any]] = {
    kind.__name__: kind for kind in (Intrinsics, Item, ModelInfo, Motion, Pose, SemanticDelta)
}
_NAMED: dict[str, type[Enum]] = {kind.__name__: kind for kind in _ENUMS}
# Whatever an entry holds that is none of ours.
_UNREADABLE = (OSError, ValueError, KeyError, TypeError, AttributeError, InputError)


@dataclass(frozen=True)
class Perceived:
    """What was perceived of a recording."""

    deltas: tuple[SemanticDelta, ...]
    scene_map: SceneMap
    keyframes: Callable[[], Sequence[Keyframe]] = tuple  # the newest, as they were looked at


def recording_key(path: Path, *about: str) -> str:
    """Key of what is perceived of a recording.

    Args:
        path: Of the recording.
        *about: What else decides it: the perceiver, its settings, topic and rate.

    Raises:
        OSError: It cannot be read.
    """
    files = [part for file in _files_of(path) for part in (file.name, file_sum(file))]
    return cache_key(package_version(), _code_state(), *about, *files)


def _files_of(path: Path) -> list[Path]:
    """The files of a recording."""
    if not path.is_dir():
        return [path]
    if is_bag(path):
        return sorted(file for file in path.iterdir() if file.is_file())
    return files_of_folder(path)


def _code_state() -> str:
    """State of the files of this package, which an edit in a clone changes."""
    folder = Path(__file__).parents[2]
    stats = ((file, file.stat()) for file in sorted(folder.rglob('*.py')))
    return ' '.join(f'{file.name}:{stat.st_size}:{stat.st_mtime_ns}' for file, stat in stats)


class PerceptionCache:
    """Entries in a folder; where they take too much room, those that were not used longest go."""

    def __init__(self, folder: Path | None = None, limit_bytes: int = _LIMIT_BYTES) -> None:
        """Take a folder; None: that of the user."""
        self._folder = folder or user_folder('cache', 'perception')
        self._limit_bytes = limit_bytes

    def get(self, key: str) -> Perceived | None:
        """What is kept under a key; None: nothing that can be read."""
        file = self._folder / f'{key}.json'
        try:
            scene, _, keyframes = file.read_text(encoding='utf-8').partition('\n')
            value = json.loads(scene)
            deltas = tuple(_from_plain(delta, SemanticDelta) for delta in value['deltas'])
            scene_map = SceneMap.from_json(value['map'])
        except _UNREADABLE:
            return None
        with suppress(OSError):
            os.utime(file)
        return Perceived(deltas, scene_map, partial(_read_keyframes, keyframes))

    def put(self, key: str, perceived: Perceived) -> None:
        """Keep what was perceived; where it cannot be written, that is said and nothing else."""
        scene = {
            'deltas': [_to_plain(delta) for delta in perceived.deltas],
            'map': perceived.scene_map.to_json(),
        }
        keyframes = [_to_plain(keyframe) for keyframe in perceived.keyframes()]
        try:
            lines = f'{json.dumps(scene)}\n{json.dumps(keyframes)}\n'
            write_whole(self._folder / f'{key}.json', lines, makes_folder=True)
            self._remove_oldest()
        except (OSError, InputError) as error:
            _LOG.warning('what was perceived is not kept: %s', error)

    def _remove_oldest(self) -> None:
        files = sorted(self._stats(), key=lambda pair: pair[1].st_mtime_ns, reverse=True)
        total = 0
        for file, stat in files:
            total += stat.st_size
            if total > self._limit_bytes:
                file.unlink(missing_ok=True)

    def _stats(self) -> Iterator[tuple[Path, os.stat_result]]:
        for file in self._folder.iterdir():
            with suppress(FileNotFoundError):  # another process removed it
                yield file, file.stat()


def _read_keyframes(line: str) -> tuple[Keyframe, ...]:
    """The keyframes of an entry; none where they cannot be read."""
    from embodied_r_ros.core.types.keyframes import Keyframe

    try:
        return tuple(_from_plain(value, Keyframe) for value in json.loads(line))
    except _UNREADABLE:
        return ()


def _to_plain(value: Any) -> Any:
    """Plain JSON values that `_from_plain` reads."""
    if is_dataclass(value):
        parts = {each.name: _to_plain(getattr(value, each.name)) for each in fields(value)}
        return {_TYPE: type(value).__name__, **parts}
    if isinstance(value, Enum):
        return {_TYPE: type(value).__name__, 'name': value.name}
    if isinstance(value, bytes):
        return {_TYPE: 'bytes', 'base64': b64encode(value).decode()}
    return [_to_plain(each) for each in value] if isinstance(value, (list, tuple)) else value


def _from_plain(value: Any, expected: type[Any] | None = None) -> Any:
    """Read what `_to_plain` made.

    Raises:
        TypeError: It is of another type than the expected one.
        KeyError: It is of no type that is known.
    """
    if isinstance(value, list):
        return tuple(map(_from_plain, value))
    read = _typed(value) if isinstance(value, dict) else value
    if expected and not isinstance(read, expected):
        msg = f'{type(read).__name__} instead of {expected.__name__}'
        raise TypeError(msg)
    return read


def _typed(value: dict[str, Any]) -> Any:
    name = value[_TYPE]
    if name == 'bytes':
        return b64decode(value['base64'])
    if name in _NAMED:
        return _NAMED[name][value['name']]
    kinds = _TYPES if name in _TYPES else _image_types()
    if name in kinds and issubclass(kinds[name], Enum):
        return kinds[name][value['name']]
    return kinds[name](**{key: _from_plain(part) for key, part in value.items() if key != _TYPE})


def _image_types() -> dict[str, type[Any]]:
    """Types of keyframes, whose modules take long to import."""
    from embodied_r_ros.core.types.images import EncodedImage, PackedDepth
    from embodied_r_ros.core.types.keyframes import Keyframe, KeyframeReason

    kinds = (EncodedImage, Keyframe, KeyframeReason, PackedDepth)
    return {kind.__name__: kind for kind in kinds}
