# SPDX-License-Identifier: Apache-2.0
"""The bag of a running episode: what was heard, the marks of its ends, labels on answers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TYPE_CHECKING

from embodied_r_ros.conversions import label_to_msg, mark_to_msg
from embodied_r_ros.reasoning.labels import AnswerBook
from embodied_r_ros.recordings.bags import LATCHED_QOS, RELIABLE_QOS
from embodied_r_ros.recordings.growing_bag import GrowingBag
from embodied_r_ros.recordings.message_types import BagMessageFactory, embodied_typestore
from embodied_r_ros.recordings.recording import Recording

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from embodied_r_ros.episodes import AnswerLabel, EpisodeMark
    from embodied_r_ros.recordings.recording import RecordingStats
    from rosbags.interfaces import Qos

_MARK = 'embodied_r_msgs/msg/EpisodeMark'
_LABEL = 'embodied_r_msgs/msg/AnswerLabel'


@dataclass(frozen=True)
class BagTopic:
    """A topic of an episode's bag."""

    name: str  # resolved, such as '/robot1/odom'
    type_name: str
    qos: Qos = RELIABLE_QOS  # how a player offers it
    is_bulk: bool = False  # gives way first when the disk is slow


@dataclass(frozen=True)
class OwnTopics:
    """Names of the topics that the recorder itself writes."""

    mark: str
    label: str


class EpisodeWriter:
    """Records one episode, from its start mark to its stop mark."""

    def __init__(
        self,
        folder: Path,
        start: EpisodeMark,
        topics: Iterable[BagTopic],
        own: OwnTopics,
        notes: Mapping[str, str],
        queue_bytes: int,
    ) -> None:
        """Open the bag; the notes and the start are on their way to the disk.

        Args:
            folder: Folder of the bag; must not exist.
            start: The mark of the start, whose id is the episode's.
            topics: What will be written.
            own: Names of the topics that are written here.
            notes: Provenance, as free text by name.
            queue_bytes: Size of the messages that may wait for the disk.

        Raises:
            BagError: The disk does not take it.
        """
        self.start = start
        self.folder = folder
        self.answers = AnswerBook()
        self._own = own
        self._topics = {topic.name: topic for topic in topics}
        bag = GrowingBag(folder, {'episode_id': start.episode_id, **notes})
        bag.add_topic(own.mark, _MARK, LATCHED_QOS)
        bag.add_topic(own.label, _LABEL)
        for topic in self._topics.values():
            bag.add_topic(topic.name, topic.type_name, topic.qos)
        self._recording = Recording(bag, queue_bytes)
        self._mark(start)

    def write(self, topic: str, data: bytes, stamp_ns: int) -> bool:
        """Record a serialised message; False where it was dropped."""
        is_bulk = self._topics[topic].is_bulk
        return self._recording.write(topic, data, stamp_ns, is_bulk=is_bulk)

    def label(self, label: AnswerLabel) -> bool:
        """Record a label on an answer; False where it was dropped."""
        msg = label_to_msg(BagMessageFactory(), label)
        return self._recording.write(self._own.label, _cdr(msg, _LABEL), label.stamp_ns)

    def stop(self, mark: EpisodeMark) -> None:
        """Record the mark of the end; `close` follows."""
        self._mark(mark)

    def close(self) -> None:
        """Write what waits and close the bag.

        Raises:
            BagError: The disk did not take it, or not in time.
        """
        self._recording.close()

    def stats(self) -> RecordingStats:
        """How the recording goes."""
        return self._recording.stats()

    def _mark(self, mark: EpisodeMark) -> None:
        msg = mark_to_msg(BagMessageFactory(), mark)
        self._recording.write(self._own.mark, _cdr(msg, _MARK), mark.stamp_ns)


def _cdr(msg: Any, type_name: str) -> bytes:
    return bytes(embodied_typestore().serialize_cdr(msg, type_name))
