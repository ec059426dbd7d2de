# SPDX-License-Identifier: Apache-2.0
"""Rosbags read without ROS, however large what is packed in them claims to be.

`rosbags` unpacks whatever a file says; here its decompressors are replaced by bounded ones, for
every reader of this process.
"""

from __future__ import annotations

from contextlib import contextmanager
from io import BytesIO
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any, BinaryIO, TYPE_CHECKING, TypeVar

from embodied_r_ros.bags.message_types import check_definition, embodied_typestore
from embodied_r_ros.common.errors import BagError, EmbodiedRError
from embodied_r_ros.common.settings import parse_yaml
import lz4.frame  # type: ignore[import-untyped]
from rosbags.highlevel import AnyReader
from rosbags.rosbag2 import reader as rosbag2_reader
from rosbags.rosbag2 import storage_mcap
import yaml

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from rosbags.interfaces import Connection

_MB = 1024 * 1024
# A raw 4K image has 24 MB; writers close a chunk after a few megabytes, or one large message.
MAX_UNPACKED = 512 * _MB  # of a chunk or a message [bytes]
# Readers hold the chunks that overlap in time together.
MAX_HELD = 2048 * _MB
# Files that are packed as a whole: black images pack well, but not that well.
_MAX_FILE_RATIO = 500
_zstd: Any = vars(storage_mcap)['zstd']  # one of two packages, by the version of Python


def _too_large(what: str, limit: int) -> BagError:
    return BagError(f'{what} unpacks to more than {limit // _MB} MB: no recorder writes that')


def unpack_zstd(data: bytes, limit: int = MAX_UNPACKED) -> bytes:
    """Unpack Zstandard data.

    Raises:
        BagError: It becomes larger than the limit [bytes].
    """
    with _zstd.open(BytesIO(data), 'rb') as file:
        unpacked: bytes = file.read(limit + 1)
    if len(unpacked) > limit:
        what = f'{len(data)} bytes of zstd'
        raise _too_large(what, limit)
    return unpacked


def unpack_lz4(data: bytes, limit: int = MAX_UNPACKED) -> bytes:
    """Unpack an LZ4 frame.

    Raises:
        BagError: It becomes larger than the limit [bytes], or is cut off.
    """
    unpacker = lz4.frame.LZ4FrameDecompressor()
    unpacked: bytes = unpacker.decompress(data, max_length=limit + 1)
    if len(unpacked) > limit:
        what = f'{len(data)} bytes of lz4'
        raise _too_large(what, limit)
    if not unpacker.eof:
        msg = f'{len(data)} bytes of lz4 are cut off'
        raise BagError(msg)
    return unpacked


@contextmanager
def _open(packed: BinaryIO, mode: str) -> Iterator[_Counted]:
    size = os.fstat(packed.fileno()).st_size
    with _zstd.open(packed, mode) as file:
        yield _Counted(file, max(MAX_UNPACKED, size * _MAX_FILE_RATIO))


class _Counted:
    """A file that ends with an error where more is read of it than allowed."""

    def __init__(self, file: Any, limit: int) -> None:
        self._file, self._limit, self._count = file, limit, 0

    def read(self, size: int) -> bytes:
        data: bytes = self._file.read(size)
        self._count += len(data)
        if self._count > self._limit:
            what = 'a packed file'
            raise _too_large(what, self._limit)
        return data


def check_chunks(reader: AnyReader) -> None:
    """Refuse a bag whose chunks are too large, alone or together with those of the same time.

    Raises:
        BagError: They are.
    """
    for bag in reader.readers:
        storage: Any = getattr(bag, 'storage', None)
        for part in getattr(storage, 'storages', [storage]):
            _check_part(reader.paths[0], getattr(part, 'chunks', []))


def _check_part(path: Any, chunks: list[Any]) -> None:
    """Sweep over the chunks of one file in time, counting what is open."""
    steps = [(chunk.message_start_time, chunk.uncompressed_size) for chunk in chunks]
    steps += [(chunk.message_end_time + 1, -chunk.uncompressed_size) for chunk in chunks]
    total = 0
    for _, size in sorted(steps):
        total += size
        if size > MAX_UNPACKED:
            what = f'a chunk of bag {path}'
            raise _too_large(what, MAX_UNPACKED)
        if total > MAX_HELD:
            what = f'what bag {path} says was recorded at one time'
            raise _too_large(what, MAX_HELD)


def _with_limit(unpack: Any) -> Any:
    # What claims its size may not become larger than that either.
    return lambda data, size: unpack(data, min(size, MAX_UNPACKED))


storage_mcap.DECOMPRESSORS.update(lz4=_with_limit(unpack_lz4), zstd=_with_limit(unpack_zstd))
vars(rosbag2_reader)['zstd'] = SimpleNamespace(decompress=unpack_zstd, open=_open)
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


Value = TypeVar('Value')


def read_values(
    reader: AnyReader, topics: Iterable[str], convert: Callable[[Any], Value]
) -> Iterator[Value]:
    """Read the messages of some topics, converted, in the order of their receipt.

    Raises:
        BagError: A topic is not in the bag, or a message is damaged or has a value that is none
            of its kind.
    """
    for topic, stamp_ns, msg in read_messages(reader, topics):
        try:
            value = convert(msg)
        except EmbodiedRError:
            raise
        except (ArithmeticError, ValueError) as error:
            text = (
                f'bag {reader.paths[0]} has a damaged message: topic {topic}, received at '
                f'{stamp_ns}: {error}'
            )
            raise BagError(text) from None
        yield value


@contextmanager
def open_bag(path: Path) -> Iterator[AnyReader]:
    """Open a rosbag2 folder, or a bare .mcap or .db3 file, for reading.

    Raises:
        BagError: It is missing, not a bag, empty, cut off, was never closed, or unpacks to more
            than a recorder writes.
    """
    if not path.exists():
        msg = f'{path} does not exist: expected a rosbag2 folder, or a .mcap or .db3 file'
        raise BagError(msg)
    check_looks_like_bag(path)
    reader = None
    try:
        reader = AnyReader([path], default_typestore=embodied_typestore())
        reader.open()
    except BagError as error:
        msg = f'bag {path} cannot be read: {error}'
        raise BagError(msg) from None
    except Exception as error:  # whatever a damaged file makes of the parser
        msg = f'bag {path} cannot be read ({_reason(error)}): {advice(path)}'
        raise BagError(msg) from None
    try:
        check_chunks(reader)
        yield reader
    finally:
        reader.close()


def topics_of_type(reader: AnyReader, *type_names: str) -> list[str]:
    """Names of the topics that have one of the types, in alphabetical order."""
    return sorted({c.topic for c in reader.connections if c.msgtype in type_names})


def read_messages(reader: AnyReader, topics: Iterable[str]) -> Iterator[tuple[str, int, Any]]:
    """Read the messages of some topics in the order of their receipt.

    Args:
        reader: An open bag.
        topics: Names of topics that the bag has.

    Returns:
        Iterator of topic, time of receipt [ns] and message.

    Raises:
        BagError: A topic is not in the bag or has other messages than its type says, or (while
            iterating) a message is damaged.
    """
    names = tuple(topics)
    types = {c.topic: c.msgtype for c in reader.connections}
    messages = read_serialized(reader, names)
    for topic in names:
        check_definition(reader, topic, types[topic])
    return _deserialize(reader, messages, types)


def read_serialized(reader: AnyReader, topics: Iterable[str]) -> Iterator[tuple[str, int, bytes]]:
    """Read the messages of some topics like `read_messages`, as they are in the bag (CDR).

    Raises:
        BagError: A topic is not in the bag, or (while iterating) the bag is damaged.
    """
    names = set(topics)
    own_names = {connection.topic for connection in reader.connections}
    if absent := sorted(names - own_names):
        msg = (
            f'bag {reader.paths[0]} has no topic {absent[0]!r}: it has '
            f'{", ".join(sorted(own_names)) or "none"}'
        )
        raise BagError(msg)
    return _messages(reader, [c for c in reader.connections if c.topic in names])


def _messages(
    reader: AnyReader, connections: list[Connection]
) -> Iterator[tuple[str, int, bytes]]:
    if not connections:
        return
    try:
        for connection, stamp_ns, data in reader.messages(connections):
            yield connection.topic, stamp_ns, data
    except Exception as error:  # whatever a damaged file makes of the parser
        raise _damage_error(reader, error) from None


def _deserialize(
    reader: AnyReader, messages: Iterator[tuple[str, int, bytes]], types: Mapping[str, str]
) -> Iterator[tuple[str, int, Any]]:
    for topic, stamp_ns, data in messages:
        try:
            msg = reader.deserialize(data, types[topic])
        except Exception as error:  # whatever a damaged message makes of the parser
            raise _damage_error(reader, error) from None
        yield topic, stamp_ns, msg


def _damage_error(reader: AnyReader, error: Exception) -> BagError:
    return BagError(f'bag {reader.paths[0]} has a damaged message ({_reason(error)})')


def _reason(error: Exception) -> str:
    return f'{type(error).__name__}: {error}' if str(error) else type(error).__name__
