# SPDX-License-Identifier: Apache-2.0
"""Rosbags without ROS: write one that is either complete or not there, and open any that is given.

Recordings are rosbag2 folders with one MCAP file; the message definitions travel in it. What the
messages mean is known to `conversions`.
"""

from __future__ import annotations

from contextlib import contextmanager
from pathlib import Path
import shutil
import tempfile
from typing import Any, TYPE_CHECKING

from embodied_r_ros.errors import BagError
from embodied_r_ros.recordings.bag_advice import advice, check_looks_like_bag
from embodied_r_ros.recordings.bag_limits import check_chunks
from embodied_r_ros.recordings.definitions import check_definition
from embodied_r_ros.recordings.message_types import embodied_typestore
from rosbags.highlevel import AnyReader
from rosbags.interfaces import (
    Qos,
    QosDurability,
    QosHistory,
    QosLiveliness,
    QosReliability,
    QosTime,
)
from rosbags.rosbag2 import CompressionFormat, CompressionMode, StoragePlugin, Writer

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from rosbags.interfaces import Connection

_FOREVER = QosTime(9223372036, 854775807)  # as rosbag2 writes an unlimited duration


def _qos(depth: int, reliability: QosReliability, durability: QosDurability) -> Qos:
    keep, alive = QosHistory.KEEP_LAST, QosLiveliness.AUTOMATIC
    return Qos(keep, depth, reliability, durability, _FOREVER, _FOREVER, alive, _FOREVER, False)


RELIABLE_QOS = _qos(10, QosReliability.RELIABLE, QosDurability.VOLATILE)
SENSOR_DATA_QOS = _qos(5, QosReliability.BEST_EFFORT, QosDurability.VOLATILE)
LATCHED_QOS = _qos(1, QosReliability.RELIABLE, QosDurability.TRANSIENT_LOCAL)


class BagWriter:
    """Writes a rosbag2 folder; it gets its name only when it is complete.

    Use it as a context manager: leaving it normally closes the bag, leaving it with an exception
    removes what was written.
    """

    def __init__(self, path: Path) -> None:
        """Say where the bag is to be.

        Args:
            path: Folder that does not exist yet, or is empty.

        Raises:
            BagError: Something is there already.
        """
        if path.exists() and not (path.is_dir() and not any(path.iterdir())):
            msg = f'{path} exists already: remove it, or choose another name'
            raise BagError(msg)
        self.path = path
        self._connections: dict[str, Connection] = {}
        self._folder: Path | None = None
        self._writer: Writer | None = None

    def __enter__(self) -> BagWriter:
        """Start to write beside the final place, under a hidden name.

        Raises:
            BagError: The folder cannot be made.
        """
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            hidden = tempfile.mkdtemp(prefix=f'.{self.path.name}-', dir=self.path.parent)
        except OSError as error:
            msg = f'cannot write {self.path}: {error.strerror}'
            raise BagError(msg) from None
        self._folder = Path(hidden)
        # The writer names the file after its folder, so that only the parent may be hidden.
        self._writer = Writer(
            self._folder / self.path.name, version=9, storage_plugin=StoragePlugin.MCAP
        )
        self._writer.set_compression(CompressionMode.STORAGE, CompressionFormat.ZSTD)
        self._writer.open()
        return self

    def add_topic(self, topic: str, type_name: str, qos: Qos = RELIABLE_QOS) -> None:
        """Announce a topic; topics without messages are listed in the bag too.

        Args:
            topic: Name as it will be in the bag, such as '/odom'.
            type_name: Message type such as 'nav_msgs/msg/Odometry'.
            qos: What a player offers when it publishes the topic again.
        """
        self._connections[topic] = self._open_writer().add_connection(
            topic, type_name, typestore=embodied_typestore(), offered_qos_profiles=[qos]
        )

    def write(self, topic: str, msg: Any, stamp_ns: int) -> None:
        """Write a message of the `rosbags` family.

        Args:
            topic: A topic that was added.
            msg: Message of the topic's type.
            stamp_ns: When it was received [ns].
        """
        type_name = self._connections[topic].msgtype
        self.write_serialized(topic, embodied_typestore().serialize_cdr(msg, type_name), stamp_ns)

    def write_serialized(self, topic: str, data: bytes | memoryview, stamp_ns: int) -> None:
        """Write a message that is serialised already (CDR), untouched.

        Raises:
            BagError: The disk does not take it.
        """
        try:
            self._open_writer().write(self._connections[topic], stamp_ns, data)
        except OSError as error:
            msg = f'cannot write {self.path}: {error.strerror}'
            raise BagError(msg) from None

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Close the bag and give it its name, or remove it after an exception."""
        writer, folder = self._open_writer(), self._folder
        self._writer = None
        assert folder is not None
        try:
            if kind is None:
                writer.close()
                (folder / self.path.name).replace(self.path)
            else:
                writer.abort()
        except OSError as failure:
            msg = f'cannot write {self.path}: {failure.strerror}'
            raise BagError(msg) from None
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def _open_writer(self) -> Writer:
        if self._writer is None:
            msg = f'bag {self.path} is not open: use BagWriter in a with statement'
            raise BagError(msg)
        return self._writer


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
    wanted = tuple(topics)
    types = {c.topic: c.msgtype for c in reader.connections}
    found = read_serialized(reader, wanted)
    for topic in wanted:
        check_definition(reader, topic, types[topic])
    return _deserialized(reader, found, types)


def read_serialized(reader: AnyReader, topics: Iterable[str]) -> Iterator[tuple[str, int, bytes]]:
    """Read the messages of some topics like `read_messages`, as they are in the bag (CDR).

    Raises:
        BagError: A topic is not in the bag, or (while iterating) the bag is damaged.
    """
    wanted = set(topics)
    known = {connection.topic for connection in reader.connections}
    if absent := sorted(wanted - known):
        msg = (
            f'bag {reader.paths[0]} has no topic {absent[0]!r}: it has '
            f'{", ".join(sorted(known)) or "none"}'
        )
        raise BagError(msg)
    return _messages(reader, [c for c in reader.connections if c.topic in wanted])


def _messages(
    reader: AnyReader, connections: list[Connection]
) -> Iterator[tuple[str, int, bytes]]:
    if not connections:
        return
    try:
        for connection, stamp_ns, data in reader.messages(connections):
            yield connection.topic, stamp_ns, data
    except Exception as error:  # whatever a damaged file makes of the parser
        raise _damaged(reader, error) from None


def _deserialized(
    reader: AnyReader, found: Iterator[tuple[str, int, bytes]], types: Mapping[str, str]
) -> Iterator[tuple[str, int, Any]]:
    for topic, stamp_ns, data in found:
        try:
            msg = reader.deserialize(data, types[topic])
        except Exception as error:  # whatever a damaged message makes of the parser
            raise _damaged(reader, error) from None
        yield topic, stamp_ns, msg


def _damaged(reader: AnyReader, error: Exception) -> BagError:
    return BagError(f'bag {reader.paths[0]} has a damaged message ({_reason(error)})')


def _reason(error: Exception) -> str:
    return f'{type(error).__name__}: {error}' if str(error) else type(error).__name__
