# SPDX-License-Identifier: Apache-2.0
"""A bag that is safe on the disk while it grows: a rosbag2 folder with one MCAP file.

What was written before the last `sync` is on the disk in whole chunks, whatever happens. `close`
adds the index and metadata.yaml; a folder without metadata.yaml is a bag that was never closed.
"""

from __future__ import annotations

from contextlib import contextmanager, suppress
from dataclasses import dataclass
import os
from typing import Any, TYPE_CHECKING

from embodied_r_ros.errors import BagError
from embodied_r_ros.recordings.bags import RELIABLE_QOS
from embodied_r_ros.recordings.message_types import embodied_typestore
from mcap.writer import Writer
from rosbags.rosbag2.metadata import dump_qos_v8
import yaml

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from rosbags.interfaces import Qos

# The newest layout of metadata.yaml that Humble reads too; later versions write QoS differently.
_METADATA_VERSION = 8
_CHUNK_BYTES = 1024 * 1024


@dataclass
class _Channel:
    id: int
    topic: str
    type_name: str
    type_hash: str
    qos: str
    count: int = 0


class GrowingBag:
    """A rosbag2 folder that is being written. Not for use from several threads."""

    def __init__(self, folder: Path, notes: Mapping[str, str]) -> None:
        """Make the folder and its file; the notes are on the disk before this returns.

        Args:
            folder: Must not exist.
            notes: Free text by name: provenance, kept as a metadata record and as custom_data.

        Raises:
            BagError: It exists, or the disk does not take it.
        """
        self.folder = folder
        self.notes = dict(notes)
        self.path = folder / f'{folder.name}_0.mcap'
        self._channels: dict[str, _Channel] = {}
        self._schemas: dict[str, tuple[int, str]] = {}
        self._first_ns, self._last_ns = 0, 0
        with _disk_errors(folder):
            folder.mkdir(parents=True)
            self._file = self.path.open('xb')
            self._writer = Writer(self._file, chunk_size=_CHUNK_BYTES)
            self._writer.start(profile='ros2', library='embodied_r_ros')
            self._writer.add_metadata('embodied_r', self.notes)
            self.sync()
            _sync_folder(folder.parent)

    def add_topic(self, topic: str, type_name: str, qos: Qos = RELIABLE_QOS) -> None:
        """Announce a topic, with the definition of its type.

        Args:
            topic: Name as it will be in the bag, such as '/odom'.
            type_name: Message type such as 'nav_msgs/msg/Odometry'.
            qos: What a player offers when it publishes the topic again.

        Raises:
            BagError: The type is not known.
        """
        schema_id, type_hash = self._schema(type_name)
        text = dump_qos_v8([qos])
        described = {'offered_qos_profiles': text, 'topic_type_hash': type_hash}
        channel_id = self._writer.register_channel(topic, 'cdr', schema_id, described)
        self._channels[topic] = _Channel(channel_id, topic, type_name, type_hash, text)

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
            self._writer.add_message(channel.id, stamp_ns, data, stamp_ns, channel.count)
        first = not any(c.count for c in self._channels.values())
        self._first_ns = stamp_ns if first else min(self._first_ns, stamp_ns)
        self._last_ns = max(self._last_ns, stamp_ns)
        channel.count += 1

    def sync(self) -> None:
        """Bring everything written so far to the disk.

        Raises:
            BagError: The disk does not take it.
        """
        with _disk_errors(self.folder):
            self._writer.flush()
            os.fsync(self._file.fileno())

    def close(self) -> None:
        """Write the index and metadata.yaml.

        Raises:
            BagError: The disk does not take it; what was synced stays recoverable.
        """
        with _disk_errors(self.folder):
            information = self._information()
            text = yaml.safe_dump(information, sort_keys=False)
            self._writer.add_metadata('rosbag2', {'serialized_metadata': text})
            self._writer.finish()
            self._file.flush()
            os.fsync(self._file.fileno())
            self._file.close()
            self._write_metadata({'rosbag2_bagfile_information': information})

    def abandon(self) -> None:
        """Let go of the file without closing the bag."""
        with suppress(OSError):
            self._file.close()

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

    def _information(self) -> dict[str, Any]:
        """Content of metadata.yaml (rosbag2, version 8)."""
        return {
            'version': _METADATA_VERSION,
            'storage_identifier': 'mcap',
            'relative_file_paths': [self.path.name],
            **self._span(),
            'topics_with_message_count': [
                {
                    'topic_metadata': {
                        'name': channel.topic,
                        'type': channel.type_name,
                        'serialization_format': 'cdr',
                        'offered_qos_profiles': channel.qos,
                        'type_description_hash': channel.type_hash,
                    },
                    'message_count': channel.count,
                }
                for channel in self._channels.values()
            ],
            'compression_format': '',
            'compression_mode': '',
            'files': [{'path': self.path.name, **self._span()}],
            'custom_data': self.notes,
            'ros_distro': 'embodied_r_ros',
        }

    def _span(self) -> dict[str, Any]:
        return {
            'starting_time': {'nanoseconds_since_epoch': self._first_ns},
            'duration': {'nanoseconds': self._last_ns - self._first_ns},
            'message_count': sum(channel.count for channel in self._channels.values()),
        }

    def _write_metadata(self, content: dict[str, Any]) -> None:
        temporary = self.folder / 'metadata.yaml.tmp'
        with temporary.open('w') as file:
            yaml.safe_dump(content, file, sort_keys=False)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(self.folder / 'metadata.yaml')
        _sync_folder(self.folder)


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
