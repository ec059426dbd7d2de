# SPDX-License-Identifier: Apache-2.0
"""The audit of a bag that lies on the disk."""

from __future__ import annotations

from typing import TYPE_CHECKING

from embodied_r_ros.conversions import mark_from_msg
from embodied_r_ros.episodes import EpisodeEvent
from embodied_r_ros.recordings.audit import (
    Audit,
    AuditReport,
    drops_from_record,
    DROPS_RECORD,
    expected_of,
)
from embodied_r_ros.recordings.bags import open_bag, read_messages, read_serialized, topics_of_type
from embodied_r_ros.recordings.mcap_content import NOTES_RECORD, read_content
from embodied_r_ros.recordings.recovery import bag_state, BagState, mcap_files

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from rosbags.highlevel import AnyReader

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


def _audit(reader: AnyReader, records: Mapping[str, Mapping[str, str]]) -> AuditReport:
    begin_ns, end_ns = _ends(reader)
    audit = Audit(expected_of(records.get(NOTES_RECORD, {})), begin_ns)
    types = {connection.topic: connection.msgtype for connection in reader.connections}
    for topic, type_name in sorted(types.items()):
        audit.add_topic(topic, type_name, reader.typestore)
    for topic, time_ns, data in read_serialized(reader, types):
        audit.take(topic, data, time_ns)
    audit.lost(drops_from_record(records.get(DROPS_RECORD, {})))
    return audit.report(end_ns, is_over=True)


def _ends(reader: AnyReader) -> tuple[int, int]:
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
