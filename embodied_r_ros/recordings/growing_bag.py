# SPDX-License-Identifier: Apache-2.0
"""A bag that is safe on the disk while it grows: a rosbag2 folder with MCAP files, mostly one.

What was written before the last `sync` is on the disk in whole chunks, whatever happens. `close`
adds the index and metadata.yaml; a folder without metadata.yaml is a bag that was never closed.
The index of a file stays in memory until the file ends, so that a long bag has several files.
"""

from __future__ import annotations

from contextlib import ExitStack, suppress
from dataclasses import dataclass
import os
from typing import Any, TYPE_CHECKING

from embodied_r_ros.errors import BagError
from embodied_r_ros.recordings.bag_lock import BagLock
from embodied_r_ros.recordings.bag_metadata import (
    bag_information,
    Channel,
    disk_errors,
    FileContent,
    information_text,
    METADATA_RECORD,
    sync_folder,
    write_metadata,
)
from embodied_r_ros.recordings.bags import RELIABLE_QOS
from embodied_r_ros.recordings.mcap_content import LIBRARY, NOTES_RECORD
from embodied_r_ros.recordings.message_types import embodied_typestore
from mcap.writer import Writer
from rosbags.rosbag2.metadata import dump_qos_v8

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from rosbags.interfaces import Qos

_CHUNK_BYTES = 1024 * 1024
# The index takes about 1 KB per chunk, and there are two chunks a second at least.
_MAX_CHUNKS = 10_000


@dataclass
class _Part(FileContent):
    """One file of a bag, and how far it has grown."""

    bytes: int = 0
    syncs: int = 0

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
        self._channels: dict[str, Channel] = {}
        self._ids: dict[str, int] = {}
        self._schemas: dict[str, tuple[int, str]] = {}
        self._lock = ExitStack()  # keeps others from recovering what is being written
        with disk_errors(folder):
            folder.mkdir(parents=True)
            with suppress(OSError):  # a disk that knows no locks is no reason not to record
                self._lock.enter_context(BagLock(folder))
            try:
                self._begin_file()
                sync_folder(folder.parent)
            except OSError:
                self._lock.close()
                raise

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
        channel_id = self._ids[topic]
        with disk_errors(self.folder):
            part = self._parts[-1]
            self._writer.add_message(channel_id, stamp_ns, data, stamp_ns, part.counts[topic])
        part.count(topic, stamp_ns)
        part.bytes += len(data)

    def add_record(self, name: str, record: Mapping[str, str]) -> None:
        """Append a metadata record: free text by name; the newest of its name counts.

        Raises:
            BagError: The disk does not take it.
        """
        with disk_errors(self.folder):
            self._writer.add_metadata(name, dict(record))

    def sync(self) -> None:
        """Bring everything written so far to the disk.

        Raises:
            BagError: The disk does not take it.
        """
        with disk_errors(self.folder):
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
        with disk_errors(self.folder):
            self._end_file()
            write_metadata(self.folder, self._information(self._parts))
        self._lock.close()

    def abandon(self) -> None:
        """Let go of the file without closing the bag."""
        with suppress(OSError):
            self._file.close()
        self._lock.close()

    def _begin_file(self) -> None:
        path = self.folder / f'{self.folder.name}_{len(self._parts)}.mcap'
        self._file = path.open('xb')
        self._parts.append(_Part(path))
        self._writer = Writer(self._file, chunk_size=_CHUNK_BYTES)
        self._writer.start(profile='ros2', library=LIBRARY)
        self._writer.add_metadata(NOTES_RECORD, self.notes)
        # Each file can be read without the others.
        self._schemas.clear()
        for channel in self._channels.copy().values():
            self._register(channel.topic, channel.type_name, channel.qos)
        self._writer.flush()
        os.fsync(self._file.fileno())
        sync_folder(self.folder)

    def _end_file(self) -> None:
        text = information_text(self._information(self._parts[-1:]))
        self._writer.add_metadata(METADATA_RECORD, {'serialized_metadata': text})
        self._writer.finish()
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()

    def _register(self, topic: str, type_name: str, qos: str) -> None:
        schema_id, type_hash = self._schema(type_name)
        described = {'offered_qos_profiles': qos, 'topic_type_hash': type_hash}
        self._ids[topic] = self._writer.register_channel(topic, 'cdr', schema_id, described)
        self._channels[topic] = Channel(topic, type_name, type_hash, qos)

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
        return bag_information(parts, self._channels.values(), self.notes)
