# SPDX-License-Identifier: Apache-2.0
"""The files of bags, MCAP, SQLite and ROS 1, each read by what it holds.

The messages in a file decide. An index, a summary or metadata.yaml is a hint that saves time where
it is there: a file without one is walked through. The reader of `rosbags` refuses a whole bag for
one topic that it cannot place, and skips topics whose QoS differs between metadata.yaml and the
file. So MCAP is read with the records of `mcap` here and SQLite with `sqlite3`; `rosbags` serves
for types, CDR and ROS 1.
"""

from __future__ import annotations

from collections import Counter
from contextlib import closing, suppress
from dataclasses import dataclass, field
from functools import lru_cache
import heapq
from io import BytesIO
import logging
from operator import itemgetter
import os
from pathlib import Path
import shutil
import sqlite3
import struct
import tempfile
from typing import Any, Protocol, TYPE_CHECKING
import zlib

from embodied_r_ros.bags.format import (
    channel_of,
    DAMAGED,
    FileContent,
    MAX_HELD,
    MAX_UNPACKED,
    McapContent,
    RECORD_HEAD,
    size_error,
    unpack_bz2,
    unpack_file,
    unpack_lz4,
    UnpackedSizeError,
    UNPACKERS,
    walk_records,
    ZSTD_MAGIC,
)
from embodied_r_ros.bags.writer import LATCHED_QOS
from embodied_r_ros.common.errors import BagError
from mcap.data_stream import ReadDataStream
from mcap.exceptions import McapError
from mcap.opcode import Opcode
from mcap.records import Channel as ChannelRecord
from mcap.records import Metadata, Statistics
from mcap.records import Schema as SchemaRecord
from mcap.writer import MCAP0_MAGIC
import numpy as np
from rosbags.rosbag2.metadata import parse_qos

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator

    from rosbags.interfaces import Qos

_LOG = logging.getLogger(__name__)
CDR, ROS1 = 'cdr', 'ros1'  # encodings of messages that can be read


class DamagedFileError(BagError):
    """A file of a bag is damaged or cut off; what helps depends on its kind."""


@dataclass(frozen=True, eq=False)
class Connection:
    """A topic of one publisher or recorder in a file."""

    topic: str
    msgtype: str  # 'sensor_msgs/msg/Image'
    encoding: str  # of its messages: 'cdr', 'ros1', or what cannot be read here
    count: int  # of its messages in the file
    definition: str = ''  # of its type, as the file has it
    definition_format: str = ''  # 'ros2msg', 'ros2idl' or 'ros1msg'
    qos_profiles: tuple[Qos, ...] = ()  # that its publishers offered; empty: not known
    key: int = 0  # in its file
    stated_count: int | None = None  # as the file's own statistics say; None: they do not


class StorageFile(Protocol):
    """A file of a bag."""

    path: Path
    connections: list[Connection]
    start_ns: int  # receipt of the first message [ns]; 0: there is none
    end_ns: int  # of the last one
    damage: dict[int, str]  # what is wrong with parts that are left out, by their place

    def messages(self, chosen: Collection[Connection]) -> Iterator[tuple[int, Connection, bytes]]:
        """Time of receipt [ns], connection and serialised message (CDR), in order of time."""

    def close(self) -> None:
        """Close the file."""


Timed = tuple[int, Connection, bytes]


def in_order_of_time(sources: Iterable[tuple[int, Callable[[], Iterator[Timed]]]]) -> Any:
    """Merge streams, each of which is opened when the first of its messages is due.

    Args:
        sources: Time of the first message [ns], and what opens the stream.
    """
    waiting = sorted(sources, key=itemgetter(0), reverse=True)
    heap: list[tuple[int, int, Timed, Iterator[Timed]]] = []
    number = 0
    while waiting or heap:
        while waiting and (not heap or waiting[-1][0] <= heap[0][0]):
            stream = waiting.pop()[1]()
            if first := next(stream, None):
                heapq.heappush(heap, (first[0], number, first, stream))
                number += 1
        if heap:
            _, order, item, stream = heap[0]
            yield item
            if following := next(stream, None):
                heapq.heapreplace(heap, (following[0], order, following, stream))
            else:
                heapq.heappop(heap)


def read_qos(profiles: Any) -> tuple[Qos, ...]:
    """QoS profiles as a bag has them, of any version; empty where they cannot be read."""
    return _read_qos(profiles) if isinstance(profiles, str) else _parse_qos(profiles)


@lru_cache(maxsize=256)
def _read_qos(profiles: str) -> tuple[Qos, ...]:
    """The same of text: topics have a few different ones, and YAML takes its time."""
    return _parse_qos(profiles)


def _parse_qos(profiles: Any) -> tuple[Qos, ...]:
    try:
        return tuple(parse_qos(profiles))
    except Exception:
        return ()


def _tell_orphans(path: Path, count: int) -> None:
    _LOG.warning('%d messages of %s are left out: it does not name their topic', count, path)


def _tell_damage(file: StorageFile) -> None:
    """Say in a line what of a file was left out."""
    if file.damage:
        text = '%d parts of %s are damaged and left out; the first: %s'
        _LOG.warning(text, len(file.damage), file.path, next(iter(file.damage.values())))


def _with_some(file: StorageFile, messages: Iterable[Timed]) -> Iterator[Timed]:
    """Messages of a file, of which damaged ones are left out.

    Raises:
        DamagedFileError: None is left.
    """
    message = None
    for message in messages:
        yield message
    if message is None and file.damage:
        raise DamagedFileError(next(iter(file.damage.values())))


def _normal_type(name: str) -> str:
    """A type's name with its kind between package and name, as ROS 2 writes it, of DDS too."""
    if '::' in name:
        name = name.replace('::dds_::', '::').replace('::', '/').removesuffix('_')
    package, _, rest = name.partition('/')
    return f'{package}/msg/{rest}' if rest and '/' not in rest else name


def _normal_encoding(name: str, schema_encoding: str = '') -> str:
    """Encoding of messages; where none is stated, the one that goes with their schema."""
    if not name and schema_encoding in {'ros2msg', 'ros2idl'}:
        return CDR
    return name.lower()


_READ = {Opcode.SCHEMA, Opcode.CHANNEL, Opcode.METADATA, Opcode.STATISTICS}
# What damaged content makes of the parser of a record.
_PARSER_ERRORS = (DamagedFileError, ValueError, struct.error, McapError, KeyError, IndexError)
# MCAP: what stands in a record behind its head.
_MESSAGE = struct.Struct('<HIQQ')  # channel, sequence, log time, publish time
_CHUNK = struct.Struct('<QQQI')  # start and end time, uncompressed size, CRC
_FOOTER = struct.Struct('<QQI')  # start of the summary and of its offsets, CRC
_INDEX = struct.Struct('<HI')  # channel, bytes of the entries


@dataclass
class _Chunk:
    offset: int  # of the record's content
    length: int
    size: int  # uncompressed [bytes]
    crc: int  # of the uncompressed content; 0: not stated
    start_ns: int
    end_ns: int
    counts: Counter[int] = field(default_factory=Counter)  # by channel, of its message index
    is_indexed: bool = False


class McapFile:
    """An MCAP file that was closed, with or without chunks, indexes and a summary.

    A chunk that is damaged is left out.
    """

    def __init__(self, path: Path) -> None:
        """Open a file and find out what it holds.

        Raises:
            BagError: It is no MCAP file, was cut off, or a chunk is too large.
            OSError: It cannot be read.
        """
        self.path = path
        self._file = path.open('rb')
        self._chunks: list[_Chunk] = []
        # Messages outside of chunks: (channel, log time, offset, length).
        self._plain: list[tuple[int, int, int, int]] = []
        self._schemas: dict[int, SchemaRecord] = {0: SchemaRecord(0, b'', '', '')}
        self._channels: dict[int, ChannelRecord] = {}
        self._statistics: Statistics | None = None
        self._is_doubtful = False  # the summary
        self._records: dict[str, dict[str, str]] = {}  # newest metadata by name
        self._summary: list[tuple[int, bytes]] = []  # its records that are read, as hints
        self.damage: dict[int, str] = {}
        try:
            self._walk()
            self._check_sizes()
            if not self._is_doubtful:
                self._take_summary()
            self._look_into_chunks()
            self._check_overlaps()
        except BaseException:
            self.close()
            raise
        counts = self._counts = Counter(item[0] for item in self._plain)
        for chunk in self._chunks:
            counts.update(chunk.counts)
        times = [(chunk.start_ns, chunk.end_ns) for chunk in self._chunks if chunk.counts.total()]
        times += [(item[1], item[1]) for item in self._plain]
        self.start_ns = min((start for start, _ in times), default=0)
        self.end_ns = max((end for _, end in times), default=0)
        self.connections = [self._connection(c, counts[key]) for key, c in self._channels.items()]
        self._by_key = {connection.key: connection for connection in self.connections}

    def close(self) -> None:
        """Close the file, and say in a line what of it was left out."""
        self._file.close()
        _tell_damage(self)

    def content(self) -> McapContent:
        """What the file holds, for metadata.yaml."""
        counts = Counter({c.topic: c.count for c in self.connections if c.count})
        content = McapContent(FileContent(self.path, counts, self.start_ns, self.end_ns))
        content.records = self._records
        for channel in self._channels.values():
            schema = self._schemas.get(channel.schema_id) or self._schemas[0]
            content.channels[channel.topic] = channel_of(channel, schema.name)
        return content

    def messages(self, chosen: Collection[Connection]) -> Iterator[Timed]:
        """Time of receipt [ns], connection and serialised message, in order of time.

        Raises:
            BagError: All that there is of them is in damaged chunks, or a chunk is too large.
        """
        keys = {connection.key for connection in chosen}
        units: list[tuple[int, Callable[[], Iterator[Timed]]]] = [
            (chunk.start_ns, lambda chunk=chunk: self._of_chunk(chunk, keys))  # type: ignore[misc]
            for chunk in self._chunks
            if keys & chunk.counts.keys()
        ]
        if plain := sorted((item for item in self._plain if item[0] in keys), key=itemgetter(1)):
            units.append((plain[0][1], lambda: self._of_plain(plain)))
        return _with_some(self, in_order_of_time(units))

    def _of_chunk(self, chunk: _Chunk, keys: set[int]) -> Iterator[Timed]:
        messages = [
            (time_ns, self._by_key[key], data)
            for key, time_ns, data in self._chunk_messages(chunk)
            if key in keys
        ]
        return iter(sorted(messages, key=itemgetter(0)))

    def _of_plain(self, items: list[tuple[int, int, int, int]]) -> Iterator[Timed]:
        for key, time_ns, offset, length in items:
            self._file.seek(offset)
            yield time_ns, self._by_key[key], self._file.read(length)

    def _walk(self) -> None:
        """Go from record to record, over the content of chunks.

        Raises:
            BagError: The file does not end as one that was closed.
        """
        size = os.fstat(self._file.fileno()).st_size
        if self._file.read(len(MCAP0_MAGIC)) != MCAP0_MAGIC:
            msg = 'it does not begin as an MCAP file'
            raise BagError(msg)
        opcode, is_over, end = -1, False, 0
        for opcode, position, length in walk_records(self._file):
            is_over = is_over or opcode == Opcode.DATA_END
            end = position + length
            if is_over:
                self._note_summary(opcode, position, length)
                continue
            try:
                self._take(opcode, position, length)
            except _PARSER_ERRORS as error:
                self.damage[position] = str(error) or type(error).__name__
        self._file.seek(end if opcode == Opcode.FOOTER else size - len(MCAP0_MAGIC))
        if self._file.read() != MCAP0_MAGIC or not (is_over or opcode == Opcode.FOOTER):
            msg = 'it was not closed, or is cut off'
            raise DamagedFileError(msg)

    def _note_summary(self, opcode: int, position: int, length: int) -> None:
        """Keep a record of the summary; at the footer, doubt all where the checksum says so."""
        self._file.seek(position)
        body = self._file.read(length)
        if opcode in _READ:
            self._summary.append((opcode, body))
        elif opcode == Opcode.FOOTER and length >= _FOOTER.size:
            start, _, crc = _FOOTER.unpack_from(body)
            self._file.seek(min(start, position))
            covered = self._file.read(max(0, position + _FOOTER.size - 4 - start))
            self._is_doubtful = bool(crc) and zlib.crc32(covered) != crc

    def _take_summary(self) -> None:
        for opcode, body in self._summary:
            with suppress(*_PARSER_ERRORS):
                self._take_record(opcode, body)

    def _take(self, opcode: int, position: int, length: int) -> None:
        self._file.seek(position)
        if opcode == DAMAGED:
            msg = f'{length} bytes with the damaged head of a record'
            raise DamagedFileError(msg)
        if opcode == Opcode.MESSAGE and length >= _MESSAGE.size:
            key, _, log_ns, _ = _MESSAGE.unpack(self._file.read(_MESSAGE.size))
            place = position + _MESSAGE.size, length - _MESSAGE.size
            self._plain.append((key, log_ns, *place))
        elif opcode == Opcode.CHUNK:
            start, end, unpacked, crc = _CHUNK.unpack(self._file.read(_CHUNK.size))
            self._chunks.append(_Chunk(position, length, unpacked, crc, start, end))
        elif opcode == Opcode.MESSAGE_INDEX and self._chunks:
            self._take_index(self._file.read(length))
        elif opcode in _READ:
            self._take_record(opcode, self._file.read(length))

    def _take_index(self, body: bytes) -> None:
        chunk = self._chunks[-1]
        key, size = _INDEX.unpack_from(body)
        times = np.frombuffer(body, '<u8', size // 8, _INDEX.size)[::2]
        if not len(times):
            return
        if not chunk.is_indexed:  # the chunk's own times are hints
            chunk.start_ns, chunk.end_ns, chunk.is_indexed = 2**63, 0, True
        chunk.counts[key] += len(times)
        chunk.start_ns = min(chunk.start_ns, int(times.min()))
        chunk.end_ns = max(chunk.end_ns, int(times.max()))

    def _take_record(self, opcode: int, body: bytes) -> None:
        stream = ReadDataStream(BytesIO(body))
        if opcode == Opcode.SCHEMA:
            schema = SchemaRecord.read(stream)
            self._schemas.setdefault(schema.id, schema)
        elif opcode == Opcode.CHANNEL:
            channel = ChannelRecord.read(stream)
            self._channels.setdefault(channel.id, channel)
        elif opcode == Opcode.METADATA:
            record = Metadata.read(stream)
            self._records[record.name] = dict(record.metadata)
        elif opcode == Opcode.STATISTICS:
            self._statistics = Statistics.read(stream)

    def _check_sizes(self) -> None:
        """Refuse chunks that are too large.

        Raises:
            BagError: One is.
        """
        if any(chunk.size > MAX_UNPACKED for chunk in self._chunks):
            what = f'a chunk of bag {self.path}'
            raise size_error(what, MAX_UNPACKED)

    def _check_overlaps(self) -> None:
        """Refuse chunks that are too large together with those of the same time.

        Raises:
            BagError: They are.
        """
        steps = [(chunk.start_ns, chunk.size) for chunk in self._chunks]
        steps += [(chunk.end_ns + 1, -chunk.size) for chunk in self._chunks]
        total = 0
        for _, size in sorted(steps):
            total += size
            if total > MAX_HELD:
                what = f'what bag {self.path} says was recorded at one time'
                raise size_error(what, MAX_HELD)

    def _look_into_chunks(self) -> None:
        """Read the chunks without an index, those of topics that nothing announces, or all.

        All are read where the index has not as many messages as the statistics state.
        """
        in_index = sum(chunk.counts.total() for chunk in self._chunks) + len(self._plain)
        is_doubtful = self._is_doubtful or bool(
            self._statistics and self._statistics.message_count != in_index
        )
        for chunk in self._chunks:
            is_known = chunk.is_indexed and all(map(self._is_announced, chunk.counts))
            if is_known and not is_doubtful:
                continue
            chunk.counts.clear()
            times = []
            for key, time_ns, _ in self._chunk_messages(chunk):
                chunk.counts[key] += 1
                times.append(time_ns)
            if times:
                chunk.start_ns, chunk.end_ns = min(times), max(times)
        if self._is_doubtful:  # what the chunks say goes before it
            self._take_summary()
            self._statistics = None
        orphans = {key for chunk in self._chunks for key in chunk.counts}
        orphans.update(item[0] for item in self._plain)
        if orphans := orphans - self._channels.keys():
            count = sum(chunk.counts[key] for chunk in self._chunks for key in orphans)
            count += sum(item[0] in orphans for item in self._plain)
            _tell_orphans(self.path, count)

    def _is_announced(self, key: int) -> bool:
        """Tell whether a channel is known, and the schema that it names."""
        channel = self._channels.get(key)
        return channel is not None and channel.schema_id in self._schemas

    def _chunk_messages(self, chunk: _Chunk) -> Iterator[tuple[int, int, bytes]]:
        """Channel, log time [ns] and data of each message of a chunk, in the file's order.

        What is damaged, and what follows it in the chunk, is left out.

        Raises:
            BagError: It unpacks to more than it may.
        """
        try:
            yield from self._parse(self._unpack(chunk))
        except UnpackedSizeError:
            raise
        except Exception as error:  # whatever damaged content makes of the parser
            self.damage.setdefault(chunk.offset, str(error) or type(error).__name__)

    def _parse(self, data: memoryview) -> Iterator[tuple[int, int, bytes]]:
        position, size = 0, len(data)
        while position + RECORD_HEAD.size <= size:
            opcode, length = RECORD_HEAD.unpack_from(data, position)
            position += RECORD_HEAD.size
            end = position + length
            if end > size:
                msg = 'a record is longer than its chunk'
                raise DamagedFileError(msg)
            if opcode == Opcode.MESSAGE and length >= _MESSAGE.size:
                key, _, log_ns, _ = _MESSAGE.unpack_from(data, position)
                yield key, log_ns, bytes(data[position + _MESSAGE.size : end])
            elif opcode in {Opcode.SCHEMA, Opcode.CHANNEL}:
                self._take_record(opcode, bytes(data[position:end]))
            position = end

    def _unpack(self, chunk: _Chunk) -> memoryview:
        self._file.seek(chunk.offset + _CHUNK.size)
        body = self._file.read(chunk.length - _CHUNK.size)
        (name_bytes,) = struct.unpack_from('<I', body)
        name = body[4 : 4 + name_bytes].decode()
        data: Any = memoryview(body)[4 + name_bytes + 8 :]
        limit = min(chunk.size, MAX_UNPACKED)
        if name in UNPACKERS:
            data = UNPACKERS[name](bytes(data), limit)
        elif name:
            msg = f'it is packed with {name!r}: expected zstd, lz4 or none'
            raise BagError(msg)
        if chunk.crc and zlib.crc32(data) != chunk.crc:
            msg = 'its content has another checksum than it states'
            raise DamagedFileError(msg)
        return memoryview(data)

    def _connection(self, channel: ChannelRecord, count: int) -> Connection:
        schema = self._schemas.get(channel.schema_id) or self._schemas[0]
        text = schema.data.decode(errors='replace')
        numbers = self._statistics.channel_message_counts if self._statistics else None
        return Connection(
            channel.topic,
            _normal_type(schema.name),
            _normal_encoding(channel.message_encoding, schema.encoding),
            count,
            text,
            schema.encoding,
            read_qos(channel.metadata.get('offered_qos_profiles', '')),
            channel.id,
            numbers.get(channel.id) if numbers else None,  # an empty map states nothing
        )


def read_content(path: Path) -> McapContent | None:
    """What an MCAP file holds; None: it was not closed.

    Raises:
        OSError: It cannot be read.
    """
    try:
        with closing(McapFile(path)) as file:
            return file.content()
    except OSError:
        raise
    except Exception:  # whatever a damaged file makes of the parser
        return None


_WAL_MODE_AT = 18  # of the header: the version that readers need, 2 with a write-ahead log


class SqliteFile:
    """A .db3 file, closed or left behind by a recorder that died."""

    def __init__(self, path: Path) -> None:
        """Open a file and find out what it holds.

        Raises:
            BagError: It is no bag, or damaged.
            OSError: It cannot be read.
        """
        self.path = path
        self.damage: dict[int, str] = {}
        self._shared = path.with_name(path.name + '-shm')
        self._had_shared = self._shared.exists()
        self._scratch: Path | None = None
        self._database = self._open()
        try:
            self.connections = self._read_connections()
            spans = 'SELECT MIN(timestamp), MAX(timestamp) FROM messages'
            start, end = self._database.execute(spans).fetchone()
            self.start_ns, self.end_ns = start or 0, end or 0
        except sqlite3.Error as error:
            self.close()
            msg = f'SQLite cannot read it: {error}'
            raise DamagedFileError(msg) from None
        except BaseException:
            self.close()
            raise
        self._by_key = {connection.key: connection for connection in self.connections}

    def close(self) -> None:
        """Close the file, and leave nothing beside it that was not there."""
        self._database.close()
        _tell_damage(self)
        if not self._had_shared:
            with suppress(OSError):
                self._shared.unlink(missing_ok=True)
        if self._scratch:
            shutil.rmtree(self._scratch, ignore_errors=True)

    def messages(self, chosen: Collection[Connection]) -> Iterator[Timed]:
        """Time of receipt [ns], connection and serialised message, in order of time.

        Raises:
            BagError: The file is damaged.
        """
        keys = sorted({connection.key for connection in chosen})
        marks = ','.join('?' * len(keys))
        query = (
            f'SELECT id, topic_id, timestamp FROM messages WHERE topic_id IN ({marks}) '
            'ORDER BY timestamp, id'
        )
        return _with_some(self, self._rows(self._database.execute(query, keys)))

    def _rows(self, places: Iterable[tuple[int, int, int]]) -> Iterator[Timed]:
        query = 'SELECT data FROM messages WHERE id = ?'
        for number, key, time_ns in places:
            try:
                [data] = self._database.execute(query, (number,)).fetchone()
            except sqlite3.DatabaseError as error:
                self.damage[number] = f'message {number}: {error}'
            else:
                yield time_ns, self._by_key[key], data

    def _open(self) -> sqlite3.Connection:
        journal = self.path.with_name(self.path.name + '-journal')
        if journal.exists() and journal.stat().st_size:
            return self._copy('-journal')  # rolled back in a copy: the bag is only read
        # A file in this mode without its log is whole, and SQLite would make one beside it.
        is_at_rest = _start(self.path)[_WAL_MODE_AT : _WAL_MODE_AT + 1] == b'\2' and not any(
            self.path.with_name(self.path.name + suffix).exists() for suffix in ('-wal', '-shm')
        )
        options = 'mode=ro&immutable=1' if is_at_rest else 'mode=ro'
        try:
            database = sqlite3.connect(f'{self.path.resolve().as_uri()}?{options}', uri=True)
            database.execute('SELECT COUNT(*) FROM sqlite_master').fetchone()
        except sqlite3.OperationalError:
            if self.path.with_name(self.path.name + '-wal').exists():
                return self._copy('-wal')  # where the folder cannot be written to
            raise
        except sqlite3.DatabaseError as error:
            msg = f'SQLite cannot read it: {error}'
            raise DamagedFileError(msg) from None
        return database

    def _copy(self, suffix: str) -> sqlite3.Connection:
        """Open a copy of the file and of the log that lies beside it."""
        self._scratch = Path(tempfile.mkdtemp(prefix='embodied-r-bag-'))
        copy = self._scratch / 'bag.db3'
        try:
            shutil.copyfile(self.path, copy)
            shutil.copyfile(self.path.with_name(self.path.name + suffix), f'{copy}{suffix}')
        except OSError as error:
            shutil.rmtree(self._scratch, ignore_errors=True)
            msg = f'a log lies beside it, and there is no room to read both: {error.strerror}'
            raise BagError(msg) from None
        return sqlite3.connect(copy)

    def _read_connections(self) -> list[Connection]:
        count = 'SELECT topic_id, COUNT(*) FROM messages GROUP BY topic_id'
        counts = dict(self._database.execute(count).fetchall())
        definitions = self._definitions()
        self._database.row_factory = sqlite3.Row
        rows = self._database.execute('SELECT * FROM topics ORDER BY id').fetchall()
        self._database.row_factory = None
        connections = []
        for row in rows:
            row = dict(row)
            text, kind = definitions.get(row['type'], ('', ''))
            connections.append(
                Connection(
                    row['name'],
                    _normal_type(row['type']),
                    _normal_encoding(row.get('serialization_format') or CDR),
                    counts.pop(row['id'], 0),
                    text,
                    kind,
                    read_qos(row.get('offered_qos_profiles', '')),
                    row['id'],
                )
            )
        if counts:
            _tell_orphans(self.path, sum(counts.values()))
        return connections

    def _definitions(self) -> dict[str, tuple[str, str]]:
        """Definition and its format by type, where the file has them (since Iron)."""
        query = 'SELECT topic_type, encoded_message_definition, encoding FROM message_definitions'
        try:
            return {name: (text, kind) for name, text, kind in self._database.execute(query)}
        except sqlite3.OperationalError:
            return {}


class Ros1File:
    """A bag of ROS 1."""

    def __init__(self, path: Path) -> None:
        """Open a file and find out what it holds.

        Raises:
            BagError: It is no such bag, or has no index.
            OSError: It cannot be read.
        """
        from rosbags.rosbag1 import Reader, ReaderError
        from rosbags.rosbag1.reader import decompressors

        self.path = path
        self.damage: dict[int, str] = {}
        try:
            self._reader = Reader(path)
            self._reader.open()
        except (ReaderError, AssertionError, struct.error, UnicodeDecodeError) as error:
            msg = f'{error or type(error).__name__}'
            raise DamagedFileError(msg) from None
        # A chunk may claim little and unpack to much.
        bounded = {'lz4': unpack_lz4, 'bz2': unpack_bz2}
        unpackers = {decompressors[name]: unpack for name, unpack in bounded.items()}
        self._reader.chunks = {
            position: chunk._replace(
                decompressor=unpackers.get(chunk.decompressor, chunk.decompressor)
            )
            for position, chunk in self._reader.chunks.items()
        }
        self._sources = dict(enumerate(self._reader.connections))
        self._indexes = self._reader.indexes
        self.connections = [
            Connection(
                source.topic,
                _ROS1_RENAMES.get(source.msgtype, source.msgtype),
                ROS1,
                source.msgcount,
                source.msgdef.data,
                'ros1msg',
                (LATCHED_QOS,) if getattr(source.ext, 'latching', 0) else (),
                key,
            )
            for key, source in self._sources.items()
        ]
        has_messages = any(connection.count for connection in self.connections)
        self.start_ns = self._reader.start_time if has_messages else 0
        self.end_ns = self._reader.end_time - 1 if has_messages else 0

    def close(self) -> None:
        """Close the file, and say in a line what of it was left out."""
        self._reader.close()
        _tell_damage(self)

    def messages(self, chosen: Collection[Connection]) -> Iterator[Timed]:
        """Time of receipt [ns], connection and message as ROS 1 serialises it.

        Raises:
            BagError: All that there is of them is in damaged chunks, or a chunk is too large.
        """
        entries = [
            [(entry, connection) for entry in self._indexes[self._sources[connection.key].id]]
            for connection in chosen
        ]
        merged = heapq.merge(*entries, key=lambda item: item[0].time)
        return _with_some(self, self._of_entries(merged))

    def _of_entries(self, entries: Iterable[tuple[Any, Connection]]) -> Iterator[Timed]:
        for entry, connection in entries:
            if entry.chunk_pos in self.damage:
                continue
            source = self._sources[connection.key]
            self._reader.indexes = {source.id: [entry]}  # of one message: the next may be whole
            try:
                for _, time_ns, data in self._reader.messages([source]):
                    yield time_ns, connection, data
            except UnpackedSizeError:
                raise
            except Exception as error:  # whatever a damaged chunk makes of the parser
                self.damage[entry.chunk_pos] = str(error) or type(error).__name__
                self._reader.current_chunk = (-1, BytesIO())  # it has closed the one before


_ROS1_RENAMES = {'tf/msg/tfMessage': 'tf2_msgs/msg/TFMessage'}
_FORMATS: dict[bytes, Callable[[Path], StorageFile]] = {
    MCAP0_MAGIC: McapFile,
    b'SQLite format 3\0': SqliteFile,
    b'#ROSBAG V': Ros1File,
}
_SUFFIX_FORMATS: dict[str, Callable[[Path], StorageFile]] = {
    '.mcap': McapFile,
    '.db3': SqliteFile,
    '.bag': Ros1File,
}
_ARCHIVES = {
    b'\x1f\x8b': 'gzip',
    b'BZh': 'bzip2',
    b'PK\x03\x04': 'zip',
    b'7z\xbc\xaf': '7-Zip',
    b'\xfd7zXZ': 'xz',
    b'\x04\x22\x4d\x18': 'lz4',
}
_START_BYTES = 64


def storage_suffix(path: Path) -> str:
    """`.mcap`, `.db3` or `.bag`, as a file is named, packed or not; empty: as none of these."""
    name = path.name.lower()
    if path.suffix.lower() in _PACKED:
        name = path.stem.lower()
    return next((suffix for suffix in _SUFFIX_FORMATS if name.endswith(suffix)), '')


_PACKED = ('.zstd', '.zst')


def is_storage_file(path: Path) -> bool:
    """Tell whether a file is one of a bag, by its name or its first bytes."""
    if not path.is_file():
        return False
    return bool(storage_suffix(path)) or _start(path).startswith(tuple(_FORMATS))


def _start(path: Path) -> bytes:
    with path.open('rb') as file:
        return file.read(_START_BYTES)


def open_storage(path: Path, scratch: Path) -> StorageFile:
    """Open a file of a bag by what it is, whatever its name says.

    Args:
        path: The file.
        scratch: Folder in which a packed file may be unpacked.

    Raises:
        BagError: It is none, or damaged; the message says what is wrong with it.
        OSError: It cannot be read.
    """
    start = _start(path)
    if why := pointer_advice(start):
        raise BagError(why)
    if start.startswith(ZSTD_MAGIC):
        return open_storage(unpack_file(path, scratch), scratch)
    for magic, kind in _FORMATS.items():
        if start.startswith(magic):
            return kind(path)
    for magic, name in _ARCHIVES.items():
        if start.startswith(magic):
            msg = f'it is packed with {name}: unpack it first'
            raise BagError(msg)
    has_log = path.with_name(path.name + '-wal').exists()
    if not start and not has_log:
        msg = 'it is empty (0 bytes)'
        raise BagError(msg)
    return _SUFFIX_FORMATS.get(storage_suffix(path), McapFile)(path)


def pointer_advice(start: bytes) -> str:
    """What to do where a file holds but a pointer to its content; empty: it does not."""
    if start.startswith(b'version https://git-lfs'):
        return 'it is a Git LFS pointer, not the file itself: run `git lfs pull`'
    if b'/annex/objects/' in start:
        return 'it is a git-annex pointer, not the file itself: run `git annex get`'
    return ''
