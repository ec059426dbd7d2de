# SPDX-License-Identifier: Apache-2.0
"""The bag of a running episode: where it lies, its messages, its marks, labels on answers."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from pathlib import Path
import shutil
import tempfile
from typing import Any, TYPE_CHECKING

from embodied_r_ros.bags.audit import Audit, AUDIT_RECORD, expected_of
from embodied_r_ros.bags.message_types import BagMessageFactory, embodied_typestore
from embodied_r_ros.bags.recording import Recording
from embodied_r_ros.bags.writer import GrowingBag, LATCHED_QOS, RELIABLE_QOS
from embodied_r_ros.common.errors import BagError
from embodied_r_ros.common.settings import setting, Settings
from embodied_r_ros.core.types.episodes import AnswerBook
from embodied_r_ros.data.own_messages import label_to_msg, mark_to_msg

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from embodied_r_ros.bags.audit import AuditReport
    from embodied_r_ros.bags.recording import RecordingStats
    from embodied_r_ros.core.types.episodes import AnswerLabel, EpisodeMark
    from rosbags.interfaces import Qos

_MB = 1024 * 1024


@dataclass(frozen=True)
class StorageConfig(Settings):
    """Where episodes are kept."""

    bag_dir: str = setting(
        '~/embodied_r/episodes', 'folder in which each episode gets a folder', read_only=True
    )
    min_free_mb: int = setting(
        500, 'free disk space below which no episode runs [MB]', between=(0, 10_000_000)
    )
    queue_mb: int = setting(
        64, 'messages that may wait for the disk [MB]', between=(1, 4096), read_only=True
    )
    label_wait_s: float = setting(
        5.0,
        'time in which the disk has to take a label before its operator is told that it waits [s]',
        between=(0.01, 600),
    )

    def folder(self) -> Path:
        """Folder of the episodes."""
        return Path(self.bag_dir).expanduser()

    def free_mb(self) -> int:
        """Free space on the disk of the episodes [MB]; 0 where the folder is gone."""
        try:
            return shutil.disk_usage(self.folder()).free // _MB
        except OSError:
            return 0

    def check(self) -> None:
        """Make the folder and see that it can be written and has room.

        Raises:
            BagError: It cannot, or the disk is nearly full.
        """
        folder = self.folder()
        try:
            folder.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=folder):
                pass
        except OSError as error:
            msg = f'episodes cannot be written to {folder}: {error.strerror}'
            raise BagError(msg) from None
        if self.free_mb() < self.min_free_mb:
            msg = (
                f'{folder} has {self.free_mb()} MB left, {self.min_free_mb} are needed: '
                'make room, or lower min_free_mb'
            )
            raise BagError(msg)


class DiskForecast:
    """When the disk will be too full to record, by how fast its free space shrank lately."""

    def __init__(self) -> None:
        self._samples: deque[tuple[float, int]] = deque()

    def note(self, at_s: float, free_mb: int) -> None:
        """Take the free space at a time of the monotonic clock."""
        self._samples.append((at_s, free_mb))
        while at_s - self._samples[0][0] > _FORECAST_S:
            self._samples.popleft()

    def minutes_left(self, min_free_mb: int) -> float | None:
        """Minutes until so much is left; None: too little is known yet, or nothing shrinks."""
        (begin_s, begin_mb), (end_s, end_mb) = self._samples[0], self._samples[-1]
        rate = (begin_mb - end_mb) / max(1e-9, end_s - begin_s)
        if end_s - begin_s < _FORECAST_LEAST_S or rate <= 0:
            return None
        return max(0.0, (end_mb - min_free_mb) / rate / 60)


_FORECAST_S, _FORECAST_LEAST_S = 300.0, 10.0  # of free space that is looked back on
_MARK = 'embodied_r_msgs/msg/EpisodeMark'
_LABEL = 'embodied_r_msgs/msg/AnswerLabel'


@dataclass(frozen=True)
class BagTopic:
    """A topic of an episode's bag."""

    name: str  # resolved, such as '/robot1/odom'
    type_name: str
    qos: Qos = RELIABLE_QOS  # how a player offers it
    is_bulk: bool = False  # gives way first when the disk is slow
    is_urgent: bool = False  # on the disk at once, and never dropped


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
            notes: Provenance, as free text by name; AUDIT_NOTE says what is expected.
            queue_bytes: Size of the messages that may wait for the disk.

        Raises:
            BagError: The disk does not take it.
        """
        self.start = start
        self.folder = folder
        self.answers = AnswerBook()
        self.result: AuditReport | None = None  # once the episode is over
        self._own = own
        self._topics = {topic.name: topic for topic in topics}
        bag = GrowingBag(folder, {'episode_id': start.episode_id, **notes})
        self._audit = Audit(expected_of(notes), start.stamp_ns)
        ours = BagTopic(own.mark, _MARK, LATCHED_QOS), BagTopic(own.label, _LABEL)
        for topic in (*ours, *self._topics.values()):
            bag.add_topic(topic.name, topic.type_name, topic.qos)
            self._audit.add_topic(topic.name, topic.type_name, embodied_typestore())
        self._recording = Recording(bag, queue_bytes)
        self._mark(start)

    def write(self, topic: str, data: bytes, stamp_ns: int) -> bool:
        """Record a serialised message; False where it was dropped."""
        recorded_topic = self._topics[topic]
        is_in = self._recording.write(
            topic,
            data,
            stamp_ns,
            is_bulk=recorded_topic.is_bulk,
            is_urgent=recorded_topic.is_urgent,
        )
        if is_in:
            self._audit.take(topic, data, stamp_ns)
        return is_in

    def label(self, label: AnswerLabel) -> bool:
        """Record a label on an answer; False where recording has ended."""
        msg = label_to_msg(BagMessageFactory(), label)
        return self._write_own(self._own.label, cdr(msg, _LABEL), label.stamp_ns)

    def when_safe(self, tell: Callable[[bool], None]) -> None:
        """Tell from another thread whether all that was recorded until now is on the disk."""
        self._recording.when_safe(tell)

    def stop(self, mark: EpisodeMark) -> None:
        """Record the mark of the end; `close` follows."""
        self._mark(mark)
        self.result = self._report(mark.stamp_ns, is_over=True)

    def audit(self, now_ns: int) -> AuditReport:
        """How the running episode is."""
        return self._report(now_ns, is_over=False)

    def close(self) -> None:
        """Write what waits and the result of the audit, and close the bag.

        Raises:
            BagError: The disk did not take it, or not in time.
        """
        records = {AUDIT_RECORD: self._record(self.result)} if self.result else {}
        self._recording.close(records=records)

    def stats(self) -> RecordingStats:
        """How the recording goes."""
        return self._recording.stats()

    def _mark(self, mark: EpisodeMark) -> None:
        msg = mark_to_msg(BagMessageFactory(), mark)
        self._write_own(self._own.mark, cdr(msg, _MARK), mark.stamp_ns)

    def _write_own(self, topic: str, data: bytes, stamp_ns: int) -> bool:
        is_in = self._recording.write(topic, data, stamp_ns, is_urgent=True)
        if is_in:
            self._audit.take(topic, data, stamp_ns)
        return is_in

    def _record(self, result: AuditReport) -> dict[str, str]:
        """The records of the bag about the episode: the audit, and the free space of the disk."""
        try:
            left_mb = shutil.disk_usage(self.folder).free // _MB
        except OSError:
            left_mb = 0
        return {'report': result.to_json(), 'disk_left_mb': str(left_mb)}

    def _report(self, now_ns: int, *, is_over: bool) -> AuditReport:
        self._audit.note_drops(self._recording.stats().dropped)
        return self._audit.report(now_ns, is_over=is_over)


def cdr(msg: Any, type_name: str) -> bytes:
    """A message of bags as it is written, serialised."""
    return bytes(embodied_typestore().serialize_cdr(msg, type_name))
