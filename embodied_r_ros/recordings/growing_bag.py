# SPDX-License-Identifier: Apache-2.0
"""A bag that is safe on the disk while it grows: a rosbag2 folder with MCAP files, mostly one.

What was written before the last `sync` is on the disk in whole chunks, whatever happens. `close`
adds the index and metadata.yaml; a folder without metadata.yaml is a bag that was never closed.
The index of a file stays in memory until the file ends, so that a long bag has several files.
"""

from __future__ import annotations

from collections import Counter
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
import os
from typing import Any, TYPE_CHECKING

from embodied_r_ros.errors import BagError
from embodied_r_ros.recordings.bags import RELIABLE_QOS
from embodied_r_ros.recordings.message_types import embodied_typestore
from mcap.writer import Writer
from rosbags.rosbag2.metadata import dump_qos_v8
import yaml

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from rosbags.interfaces import Qos

# The newest layout of metadata.yaml that Humble reads too; later versions write QoS differently.
_METADATA_VERSION = 8
_CHUNK_BYTES = 1024 * 1024
# The index takes about 1 KB per chunk, and there are two chunks a second at least.
_MAX_CHUNKS = 10_000


@dataclass
class _Channel:
    id: int
    topic: str
    type_name: str
    type_hash: str
    qos: str


@dataclass
class _Part:
    """One file of a bag, and what was written to it."""

    path: Path
    counts: Counter[str] = field(default_factory=Counter)  # messages by topic
    first_ns: int = 0
    last_ns: int = 0
    bytes: int = 0
    syncs: int = 0

    def take(self, topic: str, stamp_ns: int, size: int) -> None:
        first = not self.counts
        self.first_ns = stamp_ns if first else min(self.first_ns, stamp_ns)
        self.last_ns = stamp_ns if first else max(self.last_ns, stamp_ns)
        self.counts[topic] += 1
        self.bytes += size

    @property
    def chunks(self) -> int:
        """At most so many chunks: each ends with a sync, or when it is full."""
        return self.syncs + self.bytes // _CHUNK_BYTES


class GrowingBag:
    """A rosbag2 folder that is being written. Not for use from several threads."""

    def __init__(
        self, folder: Path, notes: Mapping[str, str], max_chunks: int = _MAX_CHUNKS
    ) -> None:
        """Make the folder and its file; the notes are on the disk before this returns.

        Args:
            folder: Must not exist.
            notes: Free text by name: provenance, kept as a metadata record and as custom_data.
            max_chunks: A file that has so many is ended at the next sync, and another one begun.

        Raises:
            BagError: It exists, or the disk does not take it.
        """
        self.folder = folder
        self.notes = dict(notes)
        self._max_chunks = max_chunks
        self._parts: list[_Part] = []
        self._channels: dict[str, _Channel] = {}
        self._schemas: dict[str, tuple[int, str]] = {}
        with _disk_errors(folder):
            folder.mkdir(parents=True)
            self._begin_file()
            _sync_folder(folder.parent)

    @property
    def path(self) -> Path:
        """The file that is being written."""
        return self._parts[-1].path

    def add_topic(self, topic: str, type_name: str, qos: Qos = RELIABLE_QOS) -> None:
        """Announce a topic, with the definition of its type.

        Args:
            topic: Name as it will be in the bag, such as '/odom'.
            type_name: Message type such as 'nav_msgs/msg/Odometry'.
            qos: What a player offers when it publishes the topic again.

        Raises:
            BagError: The type is not known.
        """
        self._register(topic, type_name, dump_qos_v8([qos]))

    def write(self, topic: str, data: bytes, stamp_ns: int) -> None:
        """Append a message that is serialised already (CDR), untouched.

        Args:
            topic: A topic that was added.
            data: The serialised message.
            stamp_ns: When it was received [ns].

        Raises:
            BagError: The disk does not take it.
        """
        channel = self._channels[topic]
        with _disk_errors(self.folder):
            part = self._parts[-1]
            self._writer.add_message(channel.id, stamp_ns, data, stamp_ns, part.counts[topic])
        part.take(topic, stamp_ns, len(data))

    def sync(self) -> None:
        """Bring everything written so far to the disk.

        Raises:
            BagError: The disk does not take it.
        """
        with _disk_errors(self.folder):
            self._writer.flush()
            os.fsync(self._file.fileno())
            self._parts[-1].syncs += 1
            if self._parts[-1].chunks >= self._max_chunks:
                self._end_file()
                self._begin_file()

    def close(self) -> None:
        """Write the index and metadata.yaml.

        Raises:
            BagError: The disk does not take it; what was synced stays recoverable.
        """
        with _disk_errors(self.folder):
            self._end_file()
            information = self._information(self._parts)
            self._write_metadata({'rosbag2_bagfile_information': information})

    def abandon(self) -> None:
        """Let go of the file without closing the bag."""
        with suppress(OSError):
            self._file.close()

    def _begin_file(self) -> None:
        path = self.folder / f'{self.folder.name}_{len(self._parts)}.mcap'
        self._file = path.open('xb')
        self._parts.append(_Part(path))
        self._writer = Writer(self._file, chunk_size=_CHUNK_BYTES)
        self._writer.start(profile='ros2', library='embodied_r_ros')
        self._writer.add_metadata('embodied_r', self.notes)
        # Each file can be read without the others.
        self._schemas.clear()
        for channel in self._channels.copy().values():
            self._register(channel.topic, channel.type_name, channel.qos)
        self._writer.flush()
        os.fsync(self._file.fileno())
        _sync_folder(self.folder)

    def _end_file(self) -> None:
        text = yaml.safe_dump(self._information(self._parts[-1:]), sort_keys=False)
        self._writer.add_metadata('rosbag2', {'serialized_metadata': text})
        self._writer.finish()
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()

    def _register(self, topic: str, type_name: str, qos: str) -> None:
        schema_id, type_hash = self._schema(type_name)
        described = {'offered_qos_profiles': qos, 'topic_type_hash': type_hash}
        channel_id = self._writer.register_channel(topic, 'cdr', schema_id, described)
        self._channels[topic] = _Channel(channel_id, topic, type_name, type_hash, qos)

    def _schema(self, type_name: str) -> tuple[int, str]:
        if type_name not in self._schemas:
            store = embodied_typestore()
            if type_name not in store.fielddefs:
                msg = f'the definition of {type_name} is not known: it cannot be recorded'
                raise BagError(msg)
            text, _ = store.generate_msgdef(type_name, ros_version=2)
            schema_id = self._writer.register_schema(type_name, 'ros2msg', text.encode())
            self._schemas[type_name] = schema_id, store.hash_rihs01(type_name)
        return self._schemas[type_name]

    def _information(self, parts: Sequence[_Part]) -> dict[str, Any]:
        """Content of metadata.yaml (rosbag2, version 8) for some of the files."""
        return {
            'version': _METADATA_VERSION,
            'storage_identifier': 'mcap',
            'relative_file_paths': [part.path.name for part in parts],
            **_span(parts),
            'topics_with_message_count': [
                {
                    'topic_metadata': {
                        'name': channel.topic,
                        'type': channel.type_name,
                        'serialization_format': 'cdr',
                        'offered_qos_profiles': channel.qos,
                        'type_description_hash': channel.type_hash,
                    },
                    'message_count': sum(part.counts[channel.topic] for part in parts),
                }
                for channel in self._channels.values()
            ],
            'compression_format': '',
            'compression_mode': '',
            'files': [{'path': part.path.name, **_span([part])} for part in parts],
            'custom_data': self.notes,
            'ros_distro': 'embodied_r_ros',
        }

    def _write_metadata(self, content: dict[str, Any]) -> None:
        temporary = self.folder / 'metadata.yaml.tmp'
        with temporary.open('w') as file:
            yaml.safe_dump(content, file, sort_keys=False)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(self.folder / 'metadata.yaml')
        _sync_folder(self.folder)


def _span(parts: Sequence[_Part]) -> dict[str, Any]:
    filled = [part for part in parts if part.counts]
    first_ns = min((part.first_ns for part in filled), default=0)
    last_ns = max((part.last_ns for part in filled), default=0)
    return {
        'starting_time': {'nanoseconds_since_epoch': first_ns},
        'duration': {'nanoseconds': last_ns - first_ns},
        'message_count': sum(part.counts.total() for part in parts),
    }


@contextmanager
def _disk_errors(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        msg = f'cannot write {folder}: {error.strerror or error}'
        raise BagError(msg) from None


def _sync_folder(folder: Path) -> None:
    """Make the names in a folder survive a crash too."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
