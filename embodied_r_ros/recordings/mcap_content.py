# SPDX-License-Identifier: Apache-2.0
"""What an MCAP file holds, by its index."""

from __future__ import annotations

from dataclasses import dataclass, field
from io import BytesIO
import os
import struct
from typing import Any, BinaryIO, TYPE_CHECKING

from embodied_r_ros.recordings.bag_metadata import Channel, FileContent
from mcap.data_stream import ReadDataStream
from mcap.opcode import Opcode
from mcap.reader import make_reader
from mcap.records import Footer, Header
from mcap.writer import MCAP0_MAGIC
from rosbags.rosbag2.errors import ReaderError
from rosbags.rosbag2.metadata import dump_qos_v8, parse_qos

if TYPE_CHECKING:
    from pathlib import Path

NOTES_RECORD = 'embodied_r'  # provenance of an episode
LIBRARY = 'embodied_r_ros'  # who wrote a file, as its first record says
RECORD_HEAD = struct.Struct('<BQ')  # opcode and length of each record
_FOOTER_BYTES = 20
_HEADER_BYTES = 1024  # at most, of those that are ours


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


def read_content(path: Path) -> McapContent | None:
    """What the index of a file says that it holds; None: it was not closed, or has no index.

    Raises:
        OSError: It cannot be read.
    """
    try:
        with path.open('rb') as file:
            if not _has_footer(file):
                return None
            file.seek(0)
            reader = make_reader(file)
            summary = reader.get_summary()
            if summary is None or summary.statistics is None:
                return None
            return _content(path, summary, list(reader.iter_metadata()))
    except OSError:
        raise
    except Exception:  # whatever a damaged index makes of the parser
        return None


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
    try:
        qos = dump_qos_v8(parse_qos(record.metadata.get('offered_qos_profiles', '')))
    except (ReaderError, KeyError, TypeError):
        qos = ''
    return Channel(record.topic, type_name, record.metadata.get('topic_type_hash', ''), qos)


def _has_footer(file: BinaryIO) -> bool:
    tail = RECORD_HEAD.size + _FOOTER_BYTES + len(MCAP0_MAGIC)
    if file.seek(0, os.SEEK_END) < tail:
        return False
    file.seek(-tail, os.SEEK_END)
    opcode, length = RECORD_HEAD.unpack(file.read(RECORD_HEAD.size))
    footer = Footer.read(ReadDataStream(file))
    is_there = opcode == int(Opcode.FOOTER) and length == _FOOTER_BYTES
    return bool(is_there and footer.summary_start > 0 and file.read() == MCAP0_MAGIC)


def _content(path: Path, summary: Any, metadata: list[Any]) -> McapContent:
    numbers = summary.statistics
    content = McapContent(FileContent(path))
    content.file.first_ns = numbers.message_start_time
    content.file.last_ns = numbers.message_end_time
    for channel in summary.channels.values():
        schema = summary.schemas.get(channel.schema_id)
        content.channels[channel.topic] = channel_of(channel, schema.name if schema else '')
        if count := numbers.channel_message_counts.get(channel.id, 0):
            content.file.counts[channel.topic] += count
    content.records = {record.name: dict(record.metadata) for record in metadata}
    return content
