# SPDX-License-Identifier: Apache-2.0
"""Rosbags written without ROS: safe on the disk while they grow, or complete or not there.

Recordings are rosbag2 folders with MCAP files; the message definitions travel in them. One writer
makes them all: `GrowingBag` for what is recorded live, and `BagWriter`, which writes one under a
hidden name, for what is made offline.
"""

from __future__ import annotations

from contextlib import ExitStack, suppress
from dataclasses import dataclass
import fcntl
import os
from pathlib import Path
import shutil
import tempfile
from typing import Any, TYPE_CHECKING

from embodied_r_ros.bags.format import (
    bag_information,
    Channel,
    disk_errors,
    FileContent,
    information_text,
    LIBRARY,
    METADATA_RECORD,
    NOTES_RECORD,
    sync_folder,
    write_metadata,
)
from embodied_r_ros.bags.message_types import embodied_typestore
from embodied_r_ros.common.errors import BagError
from mcap.writer import Writer as McapWriter
from rosbags.interfaces import (
    Qos,
    QosDurability,
    QosHistory,
    QosLiveliness,
    QosReliability,
    QosTime,
)
from rosbags.rosbag2.metadata import dump_qos_v8

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


class BagLock:
    """Holds a folder until it is closed."""

    def __init__(self, folder: Path, kind: int = fcntl.LOCK_EX) -> None:
        """Lock a folder.

        Args:
            folder: Of a bag.
            kind: LOCK_EX to work on it, LOCK_SH to see whether another process does.

        Raises:
            BlockingIOError: Another process holds it.
            OSError: It is not there, or its disk knows no locks.
        """
        self._descriptor: int | None = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.flock(self._descriptor, kind | fcntl.LOCK_NB)
        except OSError:
            self.close()
            raise

    def __enter__(self) -> BagLock:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the folder; again does nothing."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            os.close(descriptor)


def is_locked(folder: Path) -> bool:
    """Tell whether a process holds the lock of a folder."""
    try:
        BagLock(folder, fcntl.LOCK_SH).close()
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False


_FOREVER = QosTime(9223372036, 854775807)  # as rosbag2 writes an unlimited duration


def _qos(depth: int, reliability: QosReliability, durability: QosDurability) -> Qos:
    keep, alive = QosHistory.KEEP_LAST, QosLiveliness.AUTOMATIC
    return Qos(keep, depth, reliability, durability, _FOREVER, _FOREVER, alive, _FOREVER, False)


RELIABLE_QOS = _qos(10, QosReliability.RELIABLE, QosDurability.VOLATILE)
SENSOR_DATA_QOS = _qos(5, QosReliability.BEST_EFFORT, QosDurability.VOLATILE)
LATCHED_QOS = _qos(1, QosReliability.RELIABLE, QosDurability.TRANSIENT_LOCAL)


_CHUNK_BYTES = 1024 * 1024
# The index takes about 1 KB per chunk, and there are two chunks a second at least.
_MAX_CHUNKS = 10_000
ONE_FILE = 0  # as many chunks as there are


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
        self,
        folder: Path,
        notes: Mapping[str, str],
        max_chunks: int = _MAX_CHUNKS,
        place: Path | None = None,
    ) -> None:
        """Make the folder and its file; the notes are on the disk before this returns.

        Args:
            folder: Must not exist.
            notes: Free text by name: provenance, kept as a metadata record and as custom_data.
            max_chunks: A file that has so many is ended at the next sync, and another one begun.
                ONE_FILE: there is one file, with the name of the folder.
            place: Where the bag will be in the end, which errors name; None: where it is.

        Raises:
            BagError: It exists, or the disk does not take it.
        """
        self.folder = folder
        self._place = place or folder
        self.notes = dict(notes)
        self._max_chunks = max_chunks
        self._parts: list[_Part] = []
        self._channels: dict[str, Channel] = {}
        self._ids: dict[str, int] = {}
        self._schemas: dict[str, tuple[int, str]] = {}
        self._lock = ExitStack()  # keeps others from recovering what is being written
        with disk_errors(self._place):
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

    def write(self, topic: str, data: bytes | memoryview, stamp_ns: int) -> None:
        """Append a message that is serialised already (CDR), untouched.

        Args:
            topic: A topic that was added.
            data: The serialised message.
            stamp_ns: When it was received [ns].

        Raises:
            BagError: The disk does not take it.
        """
        channel_id = self._ids[topic]
        with disk_errors(self._place):
            part = self._parts[-1]
            self._writer.add_message(channel_id, stamp_ns, data, stamp_ns, part.counts[topic])
        part.count(topic, stamp_ns)
        part.bytes += len(data)

    def write_message(self, topic: str, msg: Any, stamp_ns: int) -> None:
        """Append a message of the `rosbags` family (see `write`)."""
        type_name = self._channels[topic].type_name
        self.write(topic, embodied_typestore().serialize_cdr(msg, type_name), stamp_ns)

    def add_record(self, name: str, record: Mapping[str, str]) -> None:
        """Append a metadata record: free text by name; the newest of its name counts.

        Raises:
            BagError: The disk does not take it.
        """
        with disk_errors(self._place):
            self._writer.add_metadata(name, dict(record))

    def sync(self) -> None:
        """Bring everything written so far to the disk.

        Raises:
            BagError: The disk does not take it.
        """
        with disk_errors(self._place):
            self._writer.flush()
            os.fsync(self._file.fileno())
            self._parts[-1].syncs += 1
            if self._max_chunks and self._parts[-1].chunks >= self._max_chunks:
                self._end_file()
                self._begin_file()

    def close(self) -> None:
        """Write the index and metadata.yaml.

        Raises:
            BagError: The disk does not take it; what was synced stays recoverable.
        """
        with disk_errors(self._place):
            self._end_file()
            write_metadata(self.folder, self._information(self._parts))
        self._lock.close()

    def abandon(self) -> None:
        """Let go of the file without closing the bag."""
        with suppress(OSError):
            self._file.close()
        self._lock.close()

    def _begin_file(self) -> None:
        number = f'_{len(self._parts)}' if self._max_chunks else ''
        path = self.folder / f'{self.folder.name}{number}.mcap'
        self._file = path.open('xb')
        self._parts.append(_Part(path))
        self._writer = McapWriter(self._file, chunk_size=_CHUNK_BYTES)
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
        description = {'offered_qos_profiles': qos, 'topic_type_hash': type_hash}
        self._ids[topic] = self._writer.register_channel(topic, 'cdr', schema_id, description)
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


class BagWriter:
    """Writes a bag of one file; it gets its name only when it is complete.

    Use it as a context manager: leaving it normally closes the bag, leaving it with an exception
    removes what was written.
    """

    def __init__(self, path: Path, notes: Mapping[str, str] | None = None) -> None:
        """Say where the bag is to be.

        Args:
            path: Folder that does not exist yet, or is empty.
            notes: Provenance, as free text by name (see `GrowingBag`).

        Raises:
            BagError: Something is there already.
        """
        if path.exists() and not (path.is_dir() and not any(path.iterdir())):
            msg = f'{path} exists already: remove it, or choose another name'
            raise BagError(msg)
        self.path = path
        self._notes = notes or {}
        self._hidden: Path | None = None  # folder beside the final place
        self._bag: GrowingBag | None = None

    def __enter__(self) -> BagWriter:
        """Start to write beside the final place, under a hidden name.

        Raises:
            BagError: The folder cannot be made.
        """
        with disk_errors(self.path):
            self.path.parent.mkdir(parents=True, exist_ok=True)
            hidden = tempfile.mkdtemp(prefix=f'.{self.path.name}-', dir=self.path.parent)
        self._hidden = Path(hidden)
        # The file is named after its folder, so that only the parent may be hidden.
        place = self._hidden / self.path.name
        try:
            self._bag = GrowingBag(place, self._notes, ONE_FILE, self.path)
        except BaseException:
            shutil.rmtree(hidden, ignore_errors=True)
            raise
        return self

    def add_topic(self, topic: str, type_name: str, qos: Qos = RELIABLE_QOS) -> None:
        """Announce a topic; topics without messages are listed in the bag too."""
        self._open_bag().add_topic(topic, type_name, qos)

    def write(self, topic: str, msg: Any, stamp_ns: int) -> None:
        """Write a message of the `rosbags` family.

        Args:
            topic: A topic that was added.
            msg: Message of the topic's type.
            stamp_ns: When it was received [ns].

        Raises:
            BagError: The disk does not take it.
        """
        self._open_bag().write_message(topic, msg, stamp_ns)

    def write_serialized(self, topic: str, data: bytes | memoryview, stamp_ns: int) -> None:
        """Write a message that is serialised already (CDR), untouched.

        Raises:
            BagError: The disk does not take it.
        """
        self._open_bag().write(topic, data, stamp_ns)

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Close the bag and give it its name, or remove it after an exception."""
        bag, hidden = self._open_bag(), self._hidden
        self._bag = None
        assert hidden is not None
        try:
            if kind is None:
                bag.close()
                with disk_errors(self.path):
                    bag.folder.replace(self.path)
        finally:
            bag.abandon()
            shutil.rmtree(hidden, ignore_errors=True)

    def _open_bag(self) -> GrowingBag:
        if self._bag is None:
            msg = f'bag {self.path} is not open: use BagWriter in a with statement'
            raise BagError(msg)
        return self._bag
