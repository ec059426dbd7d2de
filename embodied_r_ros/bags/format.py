# SPDX-License-Identifier: Apache-2.0
"""The format of bags: what packs them, what an MCAP file holds, metadata.yaml.

What is in bags is unpacked within limits, however large it claims to be.
"""

from __future__ import annotations

from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from io import BytesIO
import os
import struct
import sys
from typing import Any, BinaryIO, TYPE_CHECKING

from embodied_r_ros.common.errors import BagError
import lz4.frame  # type: ignore[import-untyped]
from mcap.data_stream import ReadDataStream
from mcap.opcode import Opcode
from mcap.records import Header
from mcap.writer import MCAP0_MAGIC
from rosbags.rosbag2.errors import ReaderError
from rosbags.rosbag2.metadata import dump_qos_v8, parse_qos
import yaml

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

_MB = 1024 * 1024
# A raw 4K image has 24 MB; writers close a chunk after a few megabytes, or one large message.
MAX_UNPACKED = 512 * _MB  # of a chunk or a message [bytes]
# Readers hold the chunks that overlap in time together.
MAX_HELD = 2048 * _MB
# Files that are packed as a whole: black images pack well, but not that well.
_MAX_FILE_RATIO = 500
_PIECE = 4 * _MB
ZSTD_MAGIC = b'\x28\xb5\x2f\xfd'


def unpack_zstd(data: bytes, limit: int = MAX_UNPACKED) -> bytes:
    """Unpack Zstandard data.

    Raises:
        BagError: It becomes larger than the limit [bytes].
    """
    with zstd.open(BytesIO(data), 'rb') as file:
        unpacked: bytes = file.read(limit + 1)
    if len(unpacked) > limit:
        what = f'{len(data)} bytes of zstd'
        raise size_error(what, limit)
    return unpacked


def unpack_lz4(data: bytes, limit: int = MAX_UNPACKED) -> bytes:
    """Unpack an LZ4 frame.

    Raises:
        BagError: It becomes larger than the limit [bytes], or is cut off.
    """
    return _unpack_whole('lz4', lz4.frame.LZ4FrameDecompressor(), data, limit)


def unpack_bz2(data: bytes, limit: int = MAX_UNPACKED) -> bytes:
    """Unpack bzip2 data.

    Raises:
        BagError: It becomes larger than the limit [bytes], or is cut off.
    """
    from bz2 import BZ2Decompressor

    return _unpack_whole('bz2', BZ2Decompressor(), data, limit)


def _unpack_whole(kind: str, unpacker: Any, data: bytes, limit: int) -> bytes:
    unpacked: bytes = unpacker.decompress(data, max_length=limit + 1)
    what = f'{len(data)} bytes of {kind}'
    if len(unpacked) > limit:
        raise size_error(what, limit)
    if not unpacker.eof:
        msg = f'{what} are cut off'
        raise BagError(msg)
    return unpacked


# How chunks of MCAP may be packed.
UNPACKERS = {'zstd': unpack_zstd, 'lz4': unpack_lz4}


class UnpackedSizeError(BagError):
    """Something unpacks to more than a recorder writes."""


def size_error(what: str, limit: int) -> BagError:
    """What unpacks to more than a limit [bytes], as an error."""
    return UnpackedSizeError(
        f'{what} unpacks to more than {limit // _MB} MB: no recorder writes that'
    )


def unpack_file(path: Path, folder: Path) -> Path:
    """Unpack a Zstandard file into a folder.

    Raises:
        BagError: It is damaged, unpacks to more than a recorder writes, or there is no room.
    """
    target = folder / path.stem
    if target.exists():  # it was packed again and again
        msg = f'{path.name} is packed more than twice: unpack it first'
        raise BagError(msg)
    limit = max(MAX_UNPACKED, path.stat().st_size * _MAX_FILE_RATIO)
    count = 0
    try:
        with path.open('rb') as packed, zstd.open(packed, 'rb') as file, target.open('wb') as out:
            while piece := file.read(_PIECE):
                count += len(piece)
                if count > limit:
                    raise size_error(str(path), limit)
                out.write(piece)
    except OSError as error:
        msg = f'{path} cannot be unpacked to {folder}: {error.strerror or error}: make room'
        raise BagError(msg) from None
    except (zstd.ZstdError, EOFError) as error:
        msg = f'{path} cannot be unpacked ({error}): it is cut off or damaged, copy it again'
        raise BagError(msg) from None
    return target


NOTES_RECORD = 'embodied_r'  # provenance of an episode
LIBRARY = 'embodied_r_ros'  # who wrote a file, as its first record says
RECORD_HEAD = struct.Struct('<BQ')  # opcode and length of each record
_HEADER_BYTES = 1024  # at most, of those that are ours
_HEAD_BYTES = 64  # of a record's content, which are looked at
_FOOTER = RECORD_HEAD.pack(Opcode.FOOTER, 20)
_TAIL_BYTES = len(_FOOTER) + 20 + len(MCAP0_MAGIC)
_KNOWN = frozenset(map(int, Opcode))
DAMAGED = 0  # instead of an opcode
_CHUNK_MARK = bytes([Opcode.CHUNK])


def walk_records(
    file: BinaryIO, damaged: list[int] | None = None
) -> Iterator[tuple[int, int, int]]:
    """Go from record to record of an MCAP file, to the footer or the first that is not whole.

    A chunk tells its length without its head. Behind another record whose head is damaged, it goes
    on at the next chunk, or at the footer.

    Args:
        file: The file.
        damaged: Takes the places of damaged heads.

    Returns:
        Iterator of opcode, place of the content and its length; DAMAGED with what was passed over.
    """
    size, position, opcode = os.fstat(file.fileno()).st_size, len(MCAP0_MAGIC), -1
    while opcode != Opcode.FOOTER and position + RECORD_HEAD.size <= size:
        file.seek(position)
        head = file.read(RECORD_HEAD.size + _HEAD_BYTES)
        opcode, length = RECORD_HEAD.unpack_from(head)
        start = position + RECORD_HEAD.size
        if start + length <= size and is_plausible(opcode, length, head[RECORD_HEAD.size :]):
            yield opcode, start, length
            position = start + length
            continue
        following = start + _chunk_length(head[RECORD_HEAD.size :])
        if start < following <= size:
            yield int(Opcode.CHUNK), start, following - start
        elif following := _next_start(file, position + 1, size):
            yield DAMAGED, position, following - position
        else:
            return
        if damaged is not None:
            damaged.append(position)
        position, opcode = following, DAMAGED


def is_plausible(opcode: int, length: int, start: bytes) -> bool:
    """Tell whether a record begins as one whose opcode and length are not damaged.

    Chunks and their indexes hold their length once more.
    """
    if opcode == Opcode.CHUNK and len(start) == _HEAD_BYTES:
        return length == _chunk_length(start)
    if opcode == Opcode.MESSAGE_INDEX and len(start) >= 6:
        return bool(length == 6 + struct.unpack_from('<I', start, 2)[0])
    return opcode in _KNOWN


def _chunk_length(start: bytes) -> int:
    """Length of a chunk by the begin of its content; 0: it is none."""
    if len(start) < _HEAD_BYTES:
        return 0
    (size,) = struct.unpack_from('<I', start, 28)
    at = 32 + min(size, 24)  # behind the name of the compression
    is_named = start[32:at].isalnum() or not size
    return at + 8 + int(struct.unpack_from('<Q', start, at)[0]) if is_named else 0


def _next_start(file: BinaryIO, position: int, size: int) -> int:
    """Where the next chunk begins, else the footer; 0: there is none."""
    needed = RECORD_HEAD.size + _HEAD_BYTES
    for at in range(position, size, _PIECE):
        file.seek(at)
        piece = file.read(_PIECE + needed)
        found = piece.find(_CHUNK_MARK)
        while 0 <= found < _PIECE:
            head = piece[found : found + needed]
            opcode, length = RECORD_HEAD.unpack_from(head.ljust(needed, b'\0'))
            is_inside = at + found + RECORD_HEAD.size + length <= size
            if len(head) == needed and is_inside and is_plausible(opcode, length, head[9:]):
                return at + found
            found = piece.find(_CHUNK_MARK, found + 1)
    file.seek(max(0, size - _TAIL_BYTES))
    tail = file.read()
    return size - _TAIL_BYTES if tail.startswith(_FOOTER) and tail.endswith(MCAP0_MAGIC) else 0


@dataclass
class McapContent:
    """What a file holds."""

    file: FileContent
    channels: dict[str, Channel] = field(default_factory=dict)  # by topic
    records: dict[str, dict[str, str]] = field(default_factory=dict)  # newest metadata by name

    @property
    def notes(self) -> dict[str, str]:
        """Provenance, free text by name."""
        return self.records.get(NOTES_RECORD, {})


def may_be_of_others(path: Path) -> bool:
    """Tell whether an MCAP file, closed or not, may be one that other software writes.

    Raises:
        OSError: It cannot be read.
    """
    with path.open('rb') as file:
        start = file.read(_HEADER_BYTES)
    if start[: len(MCAP0_MAGIC)] != MCAP0_MAGIC[: len(start)]:
        return False
    stream = ReadDataStream(BytesIO(start[len(MCAP0_MAGIC) + RECORD_HEAD.size :]))
    try:
        return bool(Header.read(stream).library != LIBRARY)
    except Exception:  # whatever a header that is not whole makes of the parser
        return True


def channel_of(record: Any, type_name: str) -> Channel:
    """The topic that a record of a file announces."""
    qos = _qos_of_version_8(record.metadata.get('offered_qos_profiles', ''))
    return Channel(record.topic, type_name, record.metadata.get('topic_type_hash', ''), qos)


@lru_cache(maxsize=256)
def _qos_of_version_8(profiles: str) -> str:
    """Offered profiles; empty: unreadable. Topics have a few different ones, and YAML is slow."""
    try:
        return str(dump_qos_v8(parse_qos(profiles)))
    except (ReaderError, KeyError, TypeError):
        return ''


METADATA = 'metadata.yaml'
# Name of the MCAP metadata record that says the same of one file.
METADATA_RECORD = 'rosbag2'
_VERSION = 8


@dataclass
class Channel:
    """A topic as a bag describes it."""

    topic: str
    type_name: str
    type_hash: str
    qos: str  # offered profiles, as YAML of version 8


@dataclass
class FileContent:
    """What was written to one file of a bag."""

    path: Path
    counts: Counter[str] = field(default_factory=Counter)  # messages by topic
    first_ns: int = 0  # of the earliest message; 0: there is none
    last_ns: int = 0

    def count(self, topic: str, stamp_ns: int) -> None:
        """Count a message that was received at a time [ns]."""
        first = not self.counts
        self.first_ns = stamp_ns if first else min(self.first_ns, stamp_ns)
        self.last_ns = stamp_ns if first else max(self.last_ns, stamp_ns)
        self.counts[topic] += 1


def bag_information(
    files: Sequence[FileContent], channels: Iterable[Channel], notes: Mapping[str, str]
) -> dict[str, Any]:
    """Describe some files of a bag, in their order.

    Args:
        files: What is in each.
        channels: Their topics.
        notes: Free text by name, kept as custom_data.
    """
    return {
        'version': _VERSION,
        'storage_identifier': 'mcap',
        'relative_file_paths': [file.path.name for file in files],
        **_span(files),
        'topics_with_message_count': [
            {
                'topic_metadata': {
                    'name': channel.topic,
                    'type': channel.type_name,
                    'serialization_format': 'cdr',
                    'offered_qos_profiles': channel.qos,
                    'type_description_hash': channel.type_hash,
                },
                'message_count': sum(file.counts[channel.topic] for file in files),
            }
            for channel in channels
        ],
        'compression_format': '',
        'compression_mode': '',
        'files': [{'path': file.path.name, **_span([file])} for file in files],
        'custom_data': dict(notes),
        'ros_distro': 'embodied_r_ros',
    }


def information_text(information: dict[str, Any]) -> str:
    """The text of a METADATA_RECORD."""
    return yaml.safe_dump(information, sort_keys=False)


def write_metadata(folder: Path, information: dict[str, Any]) -> None:
    """Write metadata.yaml, so that it is on the disk whole or not at all.

    Raises:
        OSError: The disk does not take it.
    """
    temporary = folder / f'{METADATA}.tmp'
    with temporary.open('w') as file:
        yaml.safe_dump({'rosbag2_bagfile_information': information}, file, sort_keys=False)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(folder / METADATA)
    sync_folder(folder)


@contextmanager
def disk_errors(folder: Path) -> Iterator[None]:
    """Say which folder the disk did not take.

    Raises:
        BagError: The disk did not take something.
    """
    try:
        yield
    except OSError as error:
        msg = f'cannot write {folder}: {error.strerror or error}'
        raise BagError(msg) from None


def sync_folder(folder: Path) -> None:
    """Make the names in a folder survive a crash too."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _span(files: Sequence[FileContent]) -> dict[str, Any]:
    parts = [file for file in files if file.counts]
    first_ns = min((file.first_ns for file in parts), default=0)
    last_ns = max((file.last_ns for file in parts), default=0)
    return {
        'starting_time': {'nanoseconds_since_epoch': first_ns},
        'duration': {'nanoseconds': last_ns - first_ns},
        'message_count': sum(file.counts.total() for file in files),
    }
