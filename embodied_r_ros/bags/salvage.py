# SPDX-License-Identifier: Apache-2.0
"""What is whole in an MCAP file that was cut off or damaged, written anew and verified.

Records are read in order up to the first one that is not whole. A chunk whose content is damaged,
but whose end is known, is left out, and reading goes on behind it.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, replace
import errno
import hashlib
from io import BytesIO
import os
import struct
from typing import Any, BinaryIO, TYPE_CHECKING

from embodied_r_ros.bags.format import (
    bag_information,
    channel_of,
    DAMAGED,
    FileContent,
    information_text,
    is_plausible,
    LIBRARY,
    MAX_UNPACKED,
    McapContent,
    METADATA_RECORD,
    RECORD_HEAD,
    UNPACKERS,
    walk_records,
)
from embodied_r_ros.common.errors import BagError
from mcap.data_stream import ReadDataStream
from mcap.opcode import Opcode
from mcap.reader import make_reader
from mcap.records import Attachment, Channel, Chunk, Message, Metadata, Schema
from mcap.stream_reader import breakup_chunk
from mcap.writer import MCAP0_MAGIC, Writer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

RECOVERY_RECORD = 'embodied_r_recovery'
# A recorder that dies leaves at most the chunk that it was writing.
_MOST_OF_A_CUT = 16 * 1024 * 1024
_PIECE = 1024 * 1024  # read at once [bytes]
_START = 64  # of a record, which is looked at [bytes]
_PLAIN = {
    int(Opcode.SCHEMA): Schema,
    int(Opcode.CHANNEL): Channel,
    int(Opcode.METADATA): Metadata,
    int(Opcode.ATTACHMENT): Attachment,
}


class StoppedError(BagError):
    """The work was ended before it was done; nothing was changed."""


@dataclass
class Salvage:
    """What became of a file."""

    content: McapContent
    lost_bytes: int = 0  # behind the last whole record
    damaged_chunks: int = 0  # left out between whole ones
    orphans: int = 0  # messages whose topic was declared in a damaged chunk
    ends_in_record: bool = True  # what was lost is the begin of one record, or empty

    @property
    def was_only_cut(self) -> bool:
        """Whether nothing is missing but the end, as a recorder that died leaves it."""
        inside = self.damaged_chunks or self.orphans or not self.ends_in_record
        return not inside and self.lost_bytes <= _MOST_OF_A_CUT


def salvage(path: Path, new: Path, is_wanted: Callable[[], bool] = lambda: True) -> Salvage:
    """Write what is whole in a file to a new one, and verify that by its index.

    Args:
        path: MCAP file; it is only read.
        new: File to write; on the disk when this returns.
        is_wanted: Called now and then; False ends the work.

    Returns:
        What the new file holds, and what it lacks.

    Raises:
        BagError: It is no MCAP file, or the new one does not read as it was written.
        StoppedError: It is no longer wanted.
        OSError: A disk fails, or is full.
    """
    with path.open('rb') as source, new.open('wb') as target:
        records = _Records(source, path)
        copy = _Copy(target, path)
        for record in records:
            if isinstance(record, Chunk) and not is_wanted():
                msg = f'{path} was not recovered: the work was ended'
                raise StoppedError(msg)
            copy.take(record)
        damage = records.lost_bytes, records.damaged, copy.orphans, records.ends_in_record
        result = Salvage(copy.content, *damage)
        copy.finish(result)
        target.flush()
        os.fsync(target.fileno())
    _verify(new, copy)
    return result


class _Records:
    """The whole records of a file, those of a chunk after the chunk."""

    def __init__(self, file: BinaryIO, path: Path) -> None:
        self.damaged = 0  # chunks
        self.ends_in_record = True
        self._size = os.fstat(file.fileno()).st_size
        self._file = file
        self._whole = 0  # where the last whole record ends
        start = file.read(len(MCAP0_MAGIC))
        if start != MCAP0_MAGIC[: len(start)]:
            msg = f'{path} is no MCAP file: nothing can be recovered, it was left as it is'
            raise BagError(msg)
        self._whole = len(start)

    @property
    def lost_bytes(self) -> int:
        """What lies behind the last whole record."""
        return self._size - self._whole

    def __iter__(self) -> Iterator[Any]:
        # A summary repeats what a damaged chunk may have declared.
        for opcode, position, length in walk_records(self._file):
            if opcode in {Opcode.SCHEMA, Opcode.CHANNEL}:
                self._file.seek(position)
                yield from self._read(opcode, self._file.read(length))
        self.damaged = 0
        for opcode, position, length in walk_records(self._file):
            if opcode in {Opcode.DATA_END, Opcode.FOOTER}:  # an index follows, which is made anew
                self._whole = self._size
                return
            self._file.seek(position)
            self._whole = position + length
            yield from self._read(opcode, self._file.read(length))
        self._file.seek(self._whole)
        head = self._file.read(RECORD_HEAD.size + _START)
        if len(head) >= RECORD_HEAD.size:
            opcode, length = RECORD_HEAD.unpack_from(head)
            # A zero is no record: after a power failure the end of a file may be empty.
            is_cut = is_plausible(opcode, length, head[RECORD_HEAD.size :])
            self.ends_in_record = is_cut if opcode else self._is_empty()

    def _is_empty(self) -> bool:
        """Tell whether nothing but zeros lies behind the last whole record."""
        self._file.seek(self._whole)
        return not any(any(piece) for piece in iter(lambda: self._file.read(_PIECE), b''))

    def _read(self, opcode: int, body: bytes) -> list[Any]:
        stream = ReadDataStream(BytesIO(body))
        try:
            if opcode == Opcode.CHUNK:
                chunk = Chunk.read(stream)
                return [chunk, *breakup_chunk(_unpack(chunk), validate_crc=True)]
            if opcode == Opcode.MESSAGE:
                return [Message.read(stream, len(body))]
            self.damaged += opcode == DAMAGED
            return [_PLAIN[opcode].read(stream)] if opcode in _PLAIN else []
        except Exception:  # whatever damaged content makes of the parser
            self.damaged += 1
            return []


def _unpack(chunk: Any) -> Any:
    """A chunk without compression, so that a small file cannot fill the memory.

    Raises:
        BagError: It unpacks to another size than it says, or to more than a recorder writes.
    """
    if not (unpack := UNPACKERS.get(chunk.compression)):
        return chunk
    data = unpack(chunk.data, min(chunk.uncompressed_size, MAX_UNPACKED))
    if len(data) != chunk.uncompressed_size:
        msg = f'a chunk of {chunk.uncompressed_size} bytes unpacks to {len(data)}'
        raise BagError(msg)
    return replace(chunk, compression='', data=data)


class _Copy:
    """Writes records to a new file, which numbers schemas and topics anew."""

    def __init__(self, target: BinaryIO, path: Path) -> None:
        self.content = McapContent(FileContent(path))
        self.digest = hashlib.sha256()  # of all messages
        self.orphans = 0
        self._writer = Writer(target)
        self._writer.start(profile='ros2', library=LIBRARY)
        self._schemas: dict[int, tuple[int, str]] = {0: (0, '')}  # new number and name
        self._channels: dict[int, tuple[int, str]] = {}  # new number and topic

    def take(self, record: Any) -> None:
        """Copy a record; what the new file gets of its own is left out."""
        if isinstance(record, Message):
            self._take_message(record)
        elif isinstance(record, Schema) and record.id not in self._schemas:
            number = self._writer.register_schema(record.name, record.encoding, record.data)
            self._schemas[record.id] = number, record.name
        elif isinstance(record, Channel) and record.id not in self._channels:
            self._take_channel(record)
        elif isinstance(record, Metadata) and record.name != METADATA_RECORD:
            self._writer.add_metadata(record.name, record.metadata)
            self.content.records[record.name] = dict(record.metadata)
        elif isinstance(record, Attachment):
            header = record.create_time, record.log_time, record.name, record.media_type
            self._writer.add_attachment(*header, record.data)

    def finish(self, result: Salvage) -> None:
        """Say what is missing, and close the file."""
        losses = {
            'lost_bytes': str(result.lost_bytes),
            'damaged_chunks': str(result.damaged_chunks),
            'orphans': str(result.orphans),
        }
        self._writer.add_metadata(RECOVERY_RECORD, losses)
        content = self.content
        information = bag_information([content.file], content.channels.values(), content.notes)
        text = information_text(information)
        self._writer.add_metadata(METADATA_RECORD, {'serialized_metadata': text})
        self._writer.finish()

    def _take_channel(self, record: Any) -> None:
        if record.schema_id not in self._schemas:  # it stood in a damaged chunk
            return
        number, type_name = self._schemas[record.schema_id]
        new = self._writer.register_channel(
            record.topic, record.message_encoding, number, record.metadata
        )
        self._channels[record.id] = new, record.topic
        self.content.channels[record.topic] = channel_of(record, type_name)

    def _take_message(self, record: Any) -> None:
        if record.channel_id not in self._channels:
            self.orphans += 1
            return
        number, topic = self._channels[record.channel_id]
        self._writer.add_message(
            number, record.log_time, record.data, record.publish_time, record.sequence
        )
        self.content.file.count(topic, record.log_time)
        _add(self.digest, topic, record)


def _verify(new: Path, copy: _Copy) -> None:
    """Read a file by its index, and see that it holds what was written.

    Raises:
        BagError: It does not.
    """
    try:
        digest, count = _read_by_index(new)
    except OSError:
        raise
    except Exception as error:  # whatever a damaged file makes of the parser
        msg = f'{new} was written and cannot be read ({error}): check the disk'
        raise BagError(msg) from None
    total = copy.content.file.counts.total()
    if digest != copy.digest.digest() or count != total:
        msg = f'{new} holds {count} messages that are not the {total} written: check the disk'
        raise BagError(msg)


def is_whole(path: Path) -> bool:
    """Tell whether a file that was closed can be read to its end, with right checksums.

    Raises:
        OSError: The disk fails.
    """
    damaged: list[int] = []
    try:
        _read_by_index(path)
        with path.open('rb') as file:
            deque(walk_records(file, damaged), maxlen=0)
    except OSError as error:
        if error.errno == errno.EINVAL:  # an index that names a place that no file has
            return False
        raise
    except Exception:  # whatever a damaged file makes of the parser
        return False
    return not damaged


def _read_by_index(path: Path) -> tuple[bytes, int]:
    """Digest and number of the messages of a file, as `mcap` itself reads it.

    Raises:
        Exception: It is damaged.
    """
    digest, count = hashlib.sha256(), 0
    with path.open('rb') as file:
        reader = make_reader(file, validate_crcs=True)
        for _, channel, message in reader.iter_messages(log_time_order=False):
            _add(digest, channel.topic, message)
            count += 1
        summary = reader.get_summary()
    stated = summary.statistics.message_count if summary and summary.statistics else count
    if stated != count:
        msg = f'it states {stated} messages and has {count}'
        raise BagError(msg)
    return digest.digest(), count


def _add(digest: Any, topic: str, message: Any) -> None:
    times = message.log_time, message.publish_time, message.sequence, len(message.data)
    digest.update(struct.pack('<QQQQ', *times))
    digest.update(topic.encode())
    digest.update(message.data)
