# SPDX-License-Identifier: Apache-2.0
"""metadata.yaml: what rosbag2 wants to know of a bag without opening its files.

Its layout is that of version 8, the newest that Humble reads too; later versions write QoS
differently.
"""

from __future__ import annotations

from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass, field
import os
from typing import Any, TYPE_CHECKING

from embodied_r_ros.errors import BagError
import yaml

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

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
    filled = [file for file in files if file.counts]
    first_ns = min((file.first_ns for file in filled), default=0)
    last_ns = max((file.last_ns for file in filled), default=0)
    return {
        'starting_time': {'nanoseconds_since_epoch': first_ns},
        'duration': {'nanoseconds': last_ns - first_ns},
        'message_count': sum(file.counts.total() for file in files),
    }
