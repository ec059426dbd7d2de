# SPDX-License-Identifier: Apache-2.0
"""What a recording is and whether it may be used: digest, audit, and state in a list."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
import hashlib
import json
import shutil
from typing import TYPE_CHECKING

from embodied_r_ros.bags.audit import (
    Audit,
    AUDIT_RECORD,
    AuditReport,
    drops_from_record,
    DROPS_RECORD,
    expected_of,
)
from embodied_r_ros.bags.format import METADATA, NOTES_RECORD
from embodied_r_ros.bags.message_types import check_definition, embodied_typestore
from embodied_r_ros.bags.reader import (
    open_bag,
    read_messages,
    read_serialized,
    stated_counts,
    storage_files,
    topics_of_type,
)
from embodied_r_ros.bags.recovery import bag_state, BagState, mcap_files
from embodied_r_ros.bags.storage import read_content
from embodied_r_ros.bags.writer import BagLock
from embodied_r_ros.common.errors import BagError
from embodied_r_ros.core.types.episodes import EpisodeEvent
from embodied_r_ros.data.episodes.labels import LABELS, labels_path, read_labels
from embodied_r_ros.data.own_messages import mark_from_msg

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from embodied_r_ros.bags.reader import BagReader

_PIECE = 8 * 1024 * 1024


@dataclass(frozen=True)
class BagDigest:
    """SHA-256 sums of a bag, hex."""

    files: dict[str, str]  # by file name, in order of the names
    sha256: str  # over the sums of the files: of a single file, over its sum


def bag_digest(bag: Path) -> BagDigest:
    """Digest of a recording: of the files of a bag, of a video, or of a folder of images.

    Raises:
        BagError: A file cannot be read.
    """
    paths = [bag]
    if bag.is_dir():
        paths = storage_files(bag) or [file for file in bag.iterdir() if file.is_file()]
    files = {path.name: file_sha256(path) for path in sorted(paths)}
    total = hashlib.sha256('\n'.join(files.values()).encode())
    return BagDigest(files, total.hexdigest())


def file_sha256(path: Path) -> str:
    """SHA-256 of a file, hex; it is read in pieces.

    Raises:
        BagError: It cannot be read.
    """
    digest = hashlib.sha256()
    try:
        with path.open('rb') as file:
            while piece := file.read(_PIECE):
                digest.update(piece)
    except OSError as error:
        msg = f'{path} cannot be read: {error.strerror}'
        raise BagError(msg) from None
    return digest.hexdigest()


def labels_sha256(bag: Path) -> str:
    """SHA-256 of the labels beside a recording, hex; empty: there are none.

    Raises:
        BagError: They cannot be read.
    """
    path = labels_path(bag)
    return file_sha256(path) if path.exists() else ''


FORCE = '--force uses it all the same'
_MARK = 'embodied_r_msgs/msg/EpisodeMark'


def audit_bag(bag: Path) -> AuditReport:
    """Audit a bag: what its recorder expected of it, else only what no bag may have.

    Args:
        bag: A rosbag2 folder, or a bare .mcap or .db3 file.

    Raises:
        BagError: It is no bag, or cannot be read.
        OSError: The disk fails.
    """
    if why := _why_not_whole(bag):
        return AuditReport(0.0, (), (why,))
    with open_bag(bag) as reader:
        return _audit(reader, _records(bag))


def why_unfit(bag: Path) -> str:
    """Why a bag is not to be used for training; empty: it may be.

    Raises:
        BagError: It is no bag, or cannot be read.
        OSError: The disk fails.
    """
    if why := _why_not_whole(bag):
        return why
    problems = audit_bag(bag).problems
    return f'it fails its audit: {"; ".join(problems)} ({FORCE})' if problems else ''


def _why_not_whole(bag: Path) -> str:
    """Why a bag cannot be read yet; empty: it can, or it is no folder of MCAP files."""
    state = bag_state(bag) if bag.is_dir() and mcap_files(bag) else BagState.CLOSED
    if state is BagState.BUSY:
        return f'bag {bag} is being recorded, or recovered'
    if state is BagState.UNCLOSED:
        return f'bag {bag} was not closed: run `embodied-r episodes recover {bag}`'
    return ''


def _audit(reader: BagReader, records: Mapping[str, Mapping[str, str]]) -> AuditReport:
    begin_ns, end_ns = _ends(reader)
    audit = Audit(expected_of(records.get(NOTES_RECORD, {})), begin_ns)
    topics = {connection.topic: connection for connection in reader.connections}
    left_out = reader.left_out()
    for topic, connection in sorted(topics.items()):
        try:
            store = reader.store_of(connection)
            check_definition(reader.path, topic, connection.msgtype, store)
        except BagError as error:  # an audit counts what nobody can read, too
            store = embodied_typestore()
            left_out.append(f'topic {topic} is counted alone: {error}')
        audit.add_topic(topic, connection.msgtype, store)
    counts: Counter[str] = Counter()
    for topic, time_ns, data in read_serialized(reader, topics):
        audit.take(topic, data, time_ns)
        counts[topic] += 1
    audit.note_drops(drops_from_record(records.get(DROPS_RECORD, {})))
    report = audit.report(end_ns, is_over=True)
    problems = (*reader.damage(), *report.problems, *_count_problems(reader, counts))
    return replace(report, problems=problems, left_out=tuple(left_out))


def _count_problems(reader: BagReader, counts: Mapping[str, int]) -> list[str]:
    """Where a bag says that it holds more or fewer messages than were read."""
    problems = []
    for where, stated in (
        ('metadata.yaml', stated_counts(reader.path)),
        ('the file', reader.stated_counts()),
    ):
        for topic, count in sorted(stated.items()):
            if count != counts.get(topic, 0) and topic not in {c.topic for c in reader.foreign}:
                read = counts.get(topic, 0)
                problems.append(f'{topic}: {read} messages where {where} says {count}')
    return problems


def _ends(reader: BagReader) -> tuple[int, int]:
    """Start and end of the episode [ns]: its marks, else its first and last message."""
    if not reader.message_count:
        return 0, 0
    begin_ns, end_ns = reader.start_time, reader.end_time
    for _, time_ns, msg in read_messages(reader, topics_of_type(reader, _MARK)):
        if mark_from_msg(msg).event is EpisodeEvent.START:
            begin_ns = time_ns
        else:
            end_ns = time_ns
    return begin_ns, end_ns


def _records(bag: Path) -> dict[str, dict[str, str]]:
    """Metadata in the files of a bag, the newest of each name."""
    paths = mcap_files(bag) if bag.is_dir() else [bag]
    contents = [read_content(path) for path in paths if path.suffix == '.mcap']
    return {name: record for c in contents if c for name, record in c.records.items()}


_OWN_NAMES = {METADATA, LABELS}
_OWN_SUFFIXES = {'.mcap', '.db3', '.damaged', '.recovering', '.zstd', '.tmp'}


@dataclass(frozen=True)
class EpisodeSummary:
    """An episode in short, from the indexes of its files."""

    episode: Path
    state: BagState
    bytes: int
    messages: int = 0  # in files that were closed
    start_ns: int = 0  # receipt of the first message; 0: there is none
    duration_s: float = 0.0
    audit: str = ''  # what the recorder found: ok or fails; empty: it did not say
    labels: int = 0  # questions with a label beside the recording
    people: tuple[str, ...] = ()  # who gave them
    damaged_labels: int = 0  # lines of them that cannot be read


def summarize(episode: Path) -> EpisodeSummary:
    """Say in short what an episode holds; its messages are not read.

    Raises:
        OSError: It cannot be read.
        InputError: Its labels cannot.
    """
    state, layer = bag_state(episode), read_labels(episode)
    size = sum(path.stat().st_size for path in episode.iterdir() if path.is_file())
    contents = [c for path in mcap_files(episode) if (c := read_content(path))]
    files = [content.file for content in contents if content.file.counts]
    start_ns = min((file.first_ns for file in files), default=0)
    end_ns = max((file.last_ns for file in files), default=0)
    audits = [c.records[AUDIT_RECORD] for c in contents if AUDIT_RECORD in c.records]
    return EpisodeSummary(
        episode,
        state,
        size,
        sum(file.counts.total() for file in files),
        start_ns,
        (end_ns - start_ns) / 1e9,
        _verdict(audits[-1]) if audits else '',
        len(layer.by_question()),
        tuple(layer.people()),
        len(layer.damage),
    )


def delete_episode(episode: Path) -> None:
    """Delete an episode with its labels, as a whole or not at all.

    Raises:
        BagError: It is in use, or holds what is not of a bag.
        OSError: The disk does not let go of it.
    """
    if episode.is_symlink():
        msg = f'{episode} is a link and was kept: remove it by hand'
        raise BagError(msg)
    for path in episode.iterdir():
        is_own = path.name in _OWN_NAMES or path.suffix in _OWN_SUFFIXES
        if not is_own or not path.is_file():
            msg = f'{episode} was kept: it holds {path.name}, which is not of a bag'
            raise BagError(msg)
    try:
        lock = BagLock(episode)
    except BlockingIOError:
        msg = f'{episode} was kept: it is being recorded, or recovered'
        raise BagError(msg) from None
    with lock:
        hidden = episode.with_name(f'.deleted-{episode.name}')
        shutil.rmtree(hidden, ignore_errors=True)  # of a process that was killed
        episode.rename(hidden)
        shutil.rmtree(hidden)


def _verdict(record: dict[str, str]) -> str:
    try:
        return 'fails' if json.loads(record['report'])['problems'] else 'ok'
    except (ValueError, KeyError, TypeError):
        return ''
