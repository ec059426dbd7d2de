# SPDX-License-Identifier: Apache-2.0
"""Rosbags read without ROS: whatever is in their files comes back, or one line says what does not.

A bag is a rosbag2 folder, or a file of MCAP, SQLite or ROS 1, packed or not. metadata.yaml gives
the order of the files where it is there; what is in them, they say themselves (`bags.storage`).
"""

from __future__ import annotations

from collections import Counter
from contextlib import contextmanager, suppress
from functools import partial
import logging
from pathlib import Path
import re
import tempfile
from typing import Any, NamedTuple, TYPE_CHECKING, TypeVar

from embodied_r_ros.bags.format import METADATA, unpack_zstd, ZSTD_MAGIC
from embodied_r_ros.bags.message_types import check_definition, definition_store, ros1_converter
from embodied_r_ros.bags.storage import (
    CDR,
    DamagedFileError,
    in_order_of_time,
    is_storage_file,
    open_storage,
    ROS1,
    storage_suffix,
)
from embodied_r_ros.bags.video import Pictures
from embodied_r_ros.common.errors import BagError, EmbodiedRError, SourceError
from embodied_r_ros.common.settings import parse_yaml
import yaml

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator

    from embodied_r_ros.bags.storage import Connection, StorageFile
    from rosbags.typesys.store import Typestore

_LOG = logging.getLogger(__name__)
_MOST_METADATA = 10_000_000  # values: of a bag of very many files
_KINDS = 'a rosbag2 folder, or a .mcap, .db3 or ROS 1 .bag file'
_ONLY_MCAP = 'only MCAP files that were cut off can be repaired: copy it again, or record again'


class TopicInfo(NamedTuple):
    """A topic of a bag."""

    msgtype: str
    msgcount: int


class BagReader:
    """The open files of a bag, as one. Made by `open_bag`."""

    def __init__(self, path: Path, files: list[StorageFile]) -> None:
        """Take the open files, in their order."""
        self.path = path
        self._files = files
        self._owners = {id(c): file for file in files for c in file.connections}
        self.connections, self.odd_ones = _of_one_type(
            [c for file in files for c in file.connections if is_readable(c)]
        )

    @property
    def foreign(self) -> list[Connection]:
        """Connections whose messages are neither CDR nor of ROS 1."""
        return [c for file in self._files for c in file.connections if not is_readable(c)]

    def left_out(self) -> list[str]:
        """Topics whose messages are left out, in words."""
        odd_ones = [
            f'{c.count} messages of topic {c.topic} are left out: they are {c.msgtype}, most are '
            f'{self.topics[c.topic].msgtype}'
            for c in self.odd_ones
            if c.count
        ]
        return odd_ones + [
            f'topic {c.topic} is left out: its {c.count} messages are '
            f'{c.encoding or "of an unknown encoding"}, not CDR'
            for c in self.foreign
            if c.count
        ]

    @property
    def topics(self) -> dict[str, TopicInfo]:
        """What is known of each topic whose messages can be read, by its name."""
        topics: dict[str, TopicInfo] = {}
        for c in self.connections:
            before = topics[c.topic].msgcount if c.topic in topics else 0
            topics[c.topic] = TopicInfo(c.msgtype, before + c.count)
        return topics

    @property
    def message_count(self) -> int:
        """Messages that can be read."""
        return sum(connection.count for connection in self.connections)

    @property
    def start_time(self) -> int:
        """Receipt of the first message [ns]; 0: there is none."""
        return min((file.start_ns for file in self._files if file.start_ns), default=0)

    @property
    def end_time(self) -> int:
        """Receipt of the last message [ns]; 0: there is none."""
        return max((file.end_ns for file in self._files), default=0)

    @property
    def duration(self) -> int:
        """From the first to the last message [ns]."""
        return self.end_time - self.start_time

    def damage(self) -> list[str]:
        """What of the files was damaged and left out, as far as they were read."""
        return [
            f'{file.path.name}: {len(file.damage)} parts are damaged and left out, the first: '
            f'{next(iter(file.damage.values()))}{_advice(file.path)}'
            for file in self._files
            if file.damage
        ]

    def stated_counts(self) -> dict[str, int]:
        """Messages by topic as the statistics of the files say, where they have some."""
        counts: dict[str, int] = {}
        for connection in self.connections:
            if connection.stated_count is not None:
                count = counts.get(connection.topic, 0)
                counts[connection.topic] = count + connection.stated_count
        return counts

    def messages(
        self, connections: Collection[Connection] | None = None
    ) -> Iterator[tuple[Connection, int, bytes]]:
        """Read messages in the order of their receipt.

        Args:
            connections: Whose messages to read; None: all.

        Returns:
            Iterator of connection, time of receipt [ns] and serialised message (CDR). One of ROS 1
            that its definition does not fit is empty.

        Raises:
            BagError: The bag is damaged.
        """
        connections = self.connections if connections is None else connections
        by_file: dict[int, list[Connection]] = {}
        for connection in connections:
            by_file.setdefault(id(self._owners[id(connection)]), []).append(connection)
        converters = {id(c): _ros1_converter(c) for c in connections if c.encoding == ROS1}
        units = [
            (file.start_ns, partial(file.messages, chosen))
            for file in self._files
            if (chosen := by_file.get(id(file)))
        ]
        for time_ns, connection, data in in_order_of_time(units):
            if convert := converters.get(id(connection)):
                yield connection, time_ns, convert(data)
                continue
            # metadata.yaml says whether messages are packed; their first bytes prove it.
            data = data or b''  # a database may hold none
            is_packed = data[:4] == ZSTD_MAGIC
            yield connection, time_ns, unpack_zstd(data) if is_packed else data

    def store_of(self, connection: Connection) -> Typestore:
        """Types with which the messages of a connection are read.

        Raises:
            BagError: They are defined neither in the bag nor here.
        """
        # Messages of ROS 1 were converted: the standard types read them.
        is_ros1 = connection.encoding == ROS1
        text, kind = ('', '') if is_ros1 else (connection.definition, connection.definition_format)
        try:
            return definition_store(connection.msgtype, text, kind)
        except BagError as error:
            msg = f'topic {connection.topic} of bag {self.path} cannot be read: {error}'
            raise BagError(msg) from None


def _ros1_converter(connection: Connection) -> Callable[[bytes], bytes]:
    """What turns messages of ROS 1 into CDR, and those that are not as defined into nothing."""
    try:
        convert = ros1_converter(connection.msgtype, connection.definition)
    except BagError:  # told where the topic is asked for
        return lambda data: b''

    def converted(data: bytes) -> bytes:
        try:
            return convert(data)
        except Exception:  # whatever a damaged message makes of the converter
            return b''

    return converted


def _of_one_type(connections: list[Connection]) -> tuple[list[Connection], list[Connection]]:
    """Connections of the type that most messages of their topic have, and the others."""
    counts: dict[str, Counter[str]] = {}
    for c in connections:
        counts.setdefault(c.topic, Counter())[c.msgtype] += c.count
    chosen = {topic: types.most_common(1)[0][0] for topic, types in counts.items()}
    return (
        [c for c in connections if c.msgtype == chosen[c.topic]],
        [c for c in connections if c.msgtype != chosen[c.topic]],
    )


def is_readable(connection: Connection) -> bool:
    """Tell whether messages can be read at all: CDR, or ROS 1's own."""
    return connection.encoding in {CDR, ROS1}


def is_bag(path: Path) -> bool:
    """Tell whether a path is a bag: a file of one, or a folder with some.

    Raises:
        OSError: It cannot be read.
    """
    if path.is_dir():
        return (path / 'metadata.yaml').exists() or bool(storage_files(path))
    return is_storage_file(path)


def bag_holds(path: Path, test: Callable[[BagReader], Any]) -> bool:
    """Tell whether a path is a bag that stands a test.

    Raises:
        BagError: The bag is damaged.
    """
    if not path.exists() or not is_bag(path):
        return False
    with open_bag(path) as reader:
        return bool(test(reader))


def storage_files(folder: Path) -> list[Path]:
    """The files of bags in a folder, in the order of their numbers."""
    files = [
        file
        for file in folder.iterdir()
        if storage_suffix(file) and file.is_file() and not file.name.startswith('.')
    ]
    names = {file.name for file in files}
    # Of a file that was unpacked beside its packed form, one is enough.
    return sorted((file for file in files if file.stem not in names), key=_number)


def _number(file: Path) -> tuple[int, str]:
    match = re.search(r'_([0-9]+)$', _stem(file))
    return (int(match[1]) if match else 0), file.name


def _stem(file: Path) -> str:
    """Name of a file without the endings of bags."""
    return file.name[: file.name.lower().rindex(storage_suffix(file))]


def _split_name(file: Path) -> str:
    """Name that all files of a split bag have in common."""
    return re.sub(r'_[0-9]+$', '', _stem(file))


def bag_files(path: Path) -> list[Path]:
    """The files of a bag in their order.

    Args:
        path: A rosbag2 folder, or one file.

    Raises:
        BagError: It is no bag, lacks a file, or is several bags; the message says what to do.
        OSError: It cannot be read.
    """
    if not path.exists():
        msg = f'{path} does not exist: expected {_KINDS}'
        raise BagError(msg)
    if not path.is_dir():
        # A pipe has the name of a bag but no end.
        if not is_storage_file(path):
            msg = f'{path} is not a bag: expected {_KINDS}'
            raise BagError(msg)
        return [path]
    files = storage_files(path)
    names = listed_files(path)
    if not files and not names:
        msg = f'{path} is not a bag: expected a folder with .mcap, .db3 or .bag files'
        raise BagError(msg)
    return _in_order(path, files, names) if names else _of_one_bag(path, files)


_METADATA_ERRORS = (OSError, yaml.YAMLError, TypeError, KeyError, ValueError)


def _information(folder: Path) -> Any:
    """What metadata.yaml says; one of _METADATA_ERRORS where it says nothing that can be read."""
    value = parse_yaml((folder / METADATA).read_text(), _MOST_METADATA)
    return value['rosbag2_bagfile_information']


def listed_files(folder: Path) -> list[str]:
    """Names of files that metadata.yaml lists; none where it says nothing that can be read."""
    with suppress(*_METADATA_ERRORS):
        return [Path(str(name)).name for name in _information(folder)['relative_file_paths']]
    return []


def stated_counts(folder: Path) -> dict[str, int]:
    """Messages by topic as metadata.yaml says; nothing where it does not say."""
    counts: Counter[str] = Counter()
    with suppress(*_METADATA_ERRORS):
        for topic in _information(folder)['topics_with_message_count']:
            counts[str(topic['topic_metadata']['name'])] += int(topic['message_count'])
    return counts


def _in_order(folder: Path, files: list[Path], names: list[str]) -> list[Path]:
    """The files that metadata.yaml lists, packed or not, and those of the same split bag."""
    by_name = {file.name: file for file in files}
    by_name |= {file.stem: file for file in files if file.stem in names}
    by_name |= {f'{file.name}.zstd': file for file in files}
    absent = [name for name in names if name not in by_name]
    chosen = list(dict.fromkeys(by_name[name] for name in names if name in by_name))
    if files and not chosen:  # the files were renamed
        return _of_one_bag(folder, files)
    if absent:
        msg = (
            f'bag {folder} cannot be read: the folder lacks {absent[0]}: '
            'copy the whole folder again'
        )
        raise BagError(msg)
    splits = {_split_name(file) for file in chosen}
    for file in files:
        if file in chosen:
            continue
        if _split_name(file) in splits:
            chosen.append(file)
        else:
            _LOG.warning('%s is left out: metadata.yaml of its folder does not list it', file)
    return chosen


def _of_one_bag(folder: Path, files: list[Path]) -> list[Path]:
    if len(_groups(files)) > 1:
        names = ', '.join(file.name for file in files[:4])
        msg = (
            f'{folder} has no metadata.yaml that lists its files, and they are of several bags '
            f'({names}{", ..." if len(files) > 4 else ""}): give one of them'
        )
        raise BagError(msg)
    return files


def _groups(files: list[Path]) -> dict[tuple[str, str], list[Path]]:
    """Files by the bag that they seem to be of."""
    groups: dict[tuple[str, str], list[Path]] = {}
    for file in files:
        groups.setdefault((_split_name(file), storage_suffix(file)), []).append(file)
    return groups


def loose_bags(folder: Path) -> list[Path]:
    """The bags of a folder that is one, or in which files of several lie side by side."""
    files = storage_files(folder)
    groups = _groups(files)
    if listed_files(folder) or len(groups) <= 1 or len(groups) < len(files):
        return [folder]
    return sorted(files)


def _advice(path: Path) -> str:
    """What to do about a file of a bag that cannot be read; empty: nothing helps."""
    if storage_suffix(path) == '.bag':
        return ': where it was not closed, `rosbag reindex` of ROS 1 repairs it'
    if storage_suffix(path) != '.mcap':
        return f': {_ONLY_MCAP}'
    folder, first = str(path.parent), ''
    is_of_a_bag = (path.parent / 'metadata.yaml').exists()
    if not is_of_a_bag and len(list(path.parent.glob('*.mcap'))) > 1:
        folder, first = 'FOLDER', 'move it to a folder of its own, where '
    return f': {first}`embodied-r episodes recover {folder}` keeps what is whole'


Value = TypeVar('Value')


def read_values(
    reader: BagReader, topics: Iterable[str], convert: Callable[[Any], Value]
) -> Iterator[Value]:
    """Read the messages of some topics, converted, in the order of their receipt.

    Raises:
        BagError: A topic is not in the bag, or a message is damaged or has a value that is none
            of its kind.
    """
    for topic, stamp_ns, msg in read_messages(reader, topics):
        try:
            value = convert(msg)
        except EmbodiedRError:
            raise
        except (ArithmeticError, ValueError) as error:
            text = (
                f'bag {reader.path} has a damaged message: topic {topic}, received at '
                f'{stamp_ns}: {error}'
            )
            raise BagError(text) from None
        yield value


@contextmanager
def open_bag(path: Path) -> Iterator[BagReader]:
    """Open a rosbag2 folder, or a file of one, or a bag of ROS 1, for reading.

    Topics whose messages are of another encoding are left out, and a line says so.

    Raises:
        BagError: It is missing, not a bag, empty, cut off, or unpacks to more than a recorder
            writes.
    """
    files: list[StorageFile] = []
    with tempfile.TemporaryDirectory(prefix='embodied-r-bag-') as scratch:
        try:
            try:
                for number, file in enumerate(_without_empty(bag_files(path))):
                    place = Path(scratch) / str(number)
                    place.mkdir()
                    files.append(_open_file(path, file, place))
            except OSError as error:
                msg = f'bag {path} cannot be read: {error.strerror or error}'
                raise BagError(msg) from None
            reader = BagReader(path, files)
            for text in reader.left_out():
                _LOG.warning('bag %s: %s', path, text)
            yield reader
        finally:
            for opened in files:
                opened.close()


def _without_empty(files: list[Path]) -> list[Path]:
    """Files that hold something; an empty one is what a recorder leaves that died at its start."""
    some = [f for f in files if f.stat().st_size or f.with_name(f'{f.name}-wal').exists()]
    for file in files if some else ():
        if file not in some:
            _LOG.warning('%s is left out: it is empty (0 bytes)', file)
    return some or files


def _open_file(bag: Path, path: Path, scratch: Path) -> StorageFile:
    what = f'bag {bag}' if bag == path else f'file {path.name} of bag {bag}'
    try:
        return open_storage(path, scratch)
    except DamagedFileError as error:
        msg = f'{what} cannot be read: {error}{_advice(path)}'
        raise BagError(msg) from None
    except BagError as error:
        msg = f'{what} cannot be read: {error}'
        raise BagError(msg) from None
    except OSError:
        raise
    except Exception as error:  # whatever a damaged file makes of the parser
        msg = f'{what} cannot be read ({_reason(error)}){_advice(path)}'
        raise BagError(msg) from None


def topics_of_type(reader: BagReader, *type_names: str) -> list[str]:
    """Names of the topics that have one of the types, in alphabetical order."""
    return sorted({c.topic for c in reader.connections if c.msgtype in type_names})


def readable_topics(reader: BagReader, topics: Iterable[str]) -> list[str]:
    """Topics whose messages are as this version defines their type; a line names the others."""
    names = []
    for topic in topics:
        try:
            _checked_stores(reader, _connections(reader, [topic]))
        except BagError as error:
            _LOG.warning('topic %s is left out: %s', topic, error)
        else:
            names.append(topic)
    return names


def read_messages(
    reader: BagReader,
    topics: Iterable[str],
    leave_out: Callable[[str, Exception], None] | None = None,
) -> Iterator[tuple[str, int, Any]]:
    """Read the messages of some topics in the order of their receipt.

    Args:
        reader: An open bag.
        topics: Names of topics that the bag has.
        leave_out: Takes the topic and the error of a message that is damaged, and reading goes
            on; None: it ends.

    Returns:
        Iterator of topic, time of receipt [ns] and message.

    Raises:
        BagError: A topic is not in the bag or has other messages than its type says, or (while
            iterating) a message is damaged.
    """
    connections = _connections(reader, topics)
    stores = _checked_stores(reader, connections)
    return _deserialize(reader, connections, stores, leave_out)


def tell_left_out(topic: str, error: Exception) -> None:
    """Say that a damaged message is left out, as `read_messages` takes it."""
    _LOG.warning('a message of topic %s is left out: %s', topic, error)


def first_message(reader: BagReader, topic: str) -> Any:
    """The first message of a topic that can be read; None: there is none."""
    messages = read_messages(reader, readable_topics(reader, [topic]), lambda *_: None)
    with suppress(SourceError):  # a video, which nobody has asked for yet
        return next((msg for _, _, msg in messages), None)
    return None


def _checked_stores(reader: BagReader, connections: list[Connection]) -> dict[int, Typestore]:
    """Types of connections by their identity.

    Raises:
        BagError: One is defined nowhere, or otherwise than its name says.
    """
    stores = {id(c): reader.store_of(c) for c in connections}
    for c in connections:
        check_definition(reader.path, c.topic, c.msgtype, stores[id(c)])
    return stores


def read_serialized(reader: BagReader, topics: Iterable[str]) -> Iterator[tuple[str, int, bytes]]:
    """Read the messages of some topics like `read_messages`, as they are in the bag (CDR).

    Raises:
        BagError: A topic is not in the bag, or (while iterating) the bag is damaged.
    """
    return (
        (connection.topic, time_ns, data)
        for connection, time_ns, data in _messages(reader, _connections(reader, topics))
    )


def _connections(reader: BagReader, topics: Iterable[str]) -> list[Connection]:
    names = set(topics)
    own_names = {connection.topic for connection in reader.connections}
    if absent := sorted(names - own_names):
        msg = (
            f'bag {reader.path} has no topic {absent[0]!r}: it has '
            f'{", ".join(sorted(own_names)) or "none"}'
        )
        raise BagError(msg)
    return [c for c in reader.connections if c.topic in names]


def _messages(
    reader: BagReader, connections: list[Connection]
) -> Iterator[tuple[Connection, int, bytes]]:
    try:
        yield from reader.messages(connections)
    except Exception as error:  # whatever a damaged file makes of the parser
        raise _damage_error(reader, error) from None


def _deserialize(
    reader: BagReader,
    connections: list[Connection],
    stores: dict[int, Typestore],
    leave_out: Callable[[str, Exception], None] | None,
) -> Iterator[tuple[str, int, Any]]:
    pictures = {id(c): Pictures(c.topic, c.msgtype) for c in connections}
    time_ns = 0
    for connection, time_ns, data in _messages(reader, connections):
        try:
            msg = stores[id(connection)].deserialize_cdr(data, connection.msgtype)
            found = pictures[id(connection)].take(msg)
        except SourceError:
            raise
        except Exception as error:  # whatever a damaged message makes of the parser
            where = f'topic {connection.topic}, received at {time_ns}'
            damage = _damage_error(reader, error, where)
            if leave_out is None:
                raise damage from None
            leave_out(connection.topic, damage)
            continue
        for msg in found:
            yield connection.topic, time_ns, msg
    for connection in connections:
        for msg in pictures[id(connection)].end():
            yield connection.topic, time_ns, msg


def _damage_error(reader: BagReader, error: Exception, where: str = '') -> BagError:
    what = f'{where}: {_reason(error)}' if where else _reason(error)
    return BagError(f'bag {reader.path} has a damaged message ({what})')


def _reason(error: Exception) -> str:
    return f'{type(error).__name__}: {error}' if str(error) else type(error).__name__
