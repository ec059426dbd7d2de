# SPDX-License-Identifier: Apache-2.0
"""Recording without waiting for the disk, and without losing more than a second in a crash.

A `Recording` takes messages into a bounded queue; its thread writes them to a `GrowingBag` and
syncs that bag so often that no message stays unsynced for longer than a second. What is urgent, an
answer or what people say of it, is synced at once and never dropped.
"""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass
import threading
import time
from typing import TYPE_CHECKING

from embodied_r_ros.bags.audit import DROPS_RECORD
from embodied_r_ros.common.errors import BagError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from embodied_r_ros.bags.writer import GrowingBag

# Half of the second that is promised; the other half is for the disk.
SYNC_PERIOD_S = 0.5
_CLOSE_TIMEOUT_S = 20.0


@dataclass(frozen=True)
class RecordingStats:
    """How a recording goes."""

    messages: Mapping[str, int]  # written, by topic
    dropped: Mapping[str, int]  # lost because the disk was slower than the messages, by topic
    queued_bytes: int
    longest_unsynced_s: float  # longest time from a message's arrival to its being synced, or now
    error: str  # why recording ended early; empty: it did not


@dataclass(frozen=True)
class _Message:
    topic: str
    data: bytes
    stamp_ns: int
    arrived_s: float  # monotonic clock
    is_urgent: bool


@dataclass
class _Taken:
    """What the thread works on next."""

    messages: list[_Message]
    wishes: list[Callable[[bool], None]]  # called when all before is on the disk

    @property
    def is_urgent(self) -> bool:
        return bool(self.wishes) or any(message.is_urgent for message in self.messages)


class Recording:
    """Writes messages to a bag in a thread of its own."""

    def __init__(self, bag: GrowingBag, queue_bytes: int = 64 * 1024 * 1024) -> None:
        """Start the thread; the bag is its own from now on.

        Args:
            bag: A bag whose topics were added.
            queue_bytes: Size of the messages that may wait for the disk.
        """
        self._bag = bag
        self._limit = queue_bytes
        self._queue: deque[_Message] = deque()
        self._wishes: list[Callable[[bool], None]] = []
        self._records: Mapping[str, Mapping[str, str]] = {}  # of the end
        self._queued_bytes = 0
        self._write_counts: Counter[str] = Counter()
        self._drop_counts: Counter[str] = Counter()
        self._noted_drops = 0  # of them the bag knows
        self._unsynced_since: float | None = None
        self._longest_unsynced_s = 0.0
        self._error = ''
        self._is_closing = False
        self._is_over = False  # the thread ends, and takes no more wishes
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._run, name='recording', daemon=True)
        self._thread.start()

    def write(
        self,
        topic: str,
        data: bytes,
        stamp_ns: int,
        *,
        is_bulk: bool = False,
        is_urgent: bool = False,
    ) -> bool:
        """Queue a message; never waits.

        Args:
            topic: A topic of the bag.
            data: The serialised message.
            stamp_ns: When it was received [ns].
            is_bulk: Images give way first: they get half of the queue.
            is_urgent: Synced at once, and queued however long the queue is.

        Returns:
            False where it was dropped: the disk is too slow, or recording has ended.
        """
        message = _Message(topic, data, stamp_ns, time.monotonic(), is_urgent)
        with self._changed:
            room = self._limit // 2 if is_bulk else self._limit
            full = not is_urgent and self._queued_bytes + len(data) > room
            if full or self._error or self._is_closing:
                self._drop_counts[topic] += 1
                return False
            self._queue.append(message)
            self._queued_bytes += len(data)
            self._changed.notify()
        return True

    def when_safe(self, tell: Callable[[bool], None]) -> None:
        """Sync, and tell whether all that was queued until now is on the disk.

        Args:
            tell: Called with the result, from another thread or at once.
        """
        with self._changed:
            is_over = self._is_over
            if not is_over:
                self._wishes.append(tell)
                self._changed.notify()
        if is_over:
            tell(not self._error)

    def close(
        self,
        timeout_s: float = _CLOSE_TIMEOUT_S,
        records: Mapping[str, Mapping[str, str]] | None = None,
    ) -> None:
        """Write what waits and close the bag.

        Args:
            timeout_s: How long to wait for it [s].
            records: Metadata by name, for the end of the bag.

        Raises:
            BagError: The disk did not take it, or not in time.
        """
        with self._changed:
            self._is_closing = True
            self._records = records or {}
            self._changed.notify()
        self._thread.join(timeout_s)
        if self._thread.is_alive():
            msg = f'closing {self._bag.folder} takes longer than {timeout_s} s: check the disk'
            raise BagError(msg)
        if self._error:
            raise BagError(self._error)

    def stats(self) -> RecordingStats:
        """How the recording goes."""
        since = self._unsynced_since  # of the thread; what it was a moment ago will do
        now_s = 0.0 if since is None else time.monotonic() - since
        with self._changed:
            return RecordingStats(
                dict(self._write_counts),
                dict(self._drop_counts),
                self._queued_bytes,
                max(self._longest_unsynced_s, now_s),
                self._error,
            )

    def _run(self) -> None:
        batch = _Taken([], [])
        try:
            while not self._is_done():
                batch = self._take()
                self._write(batch.messages)
                self._sync_when_due(is_urgent=batch.is_urgent)
                _tell(batch.wishes, is_safe=True)
                batch.wishes = []
            self._end()
        except Exception as error:  # whatever ends the thread must be reported
            self._bag.abandon()
            with self._changed:
                self._error = str(error) or type(error).__name__
                self._queue.clear()
                self._queued_bytes = 0
        with self._changed:
            self._is_over = True
            wishes, self._wishes = [*batch.wishes, *self._wishes], []
        _tell(wishes, is_safe=not self._error)

    def _end(self) -> None:
        self._note_drops()
        for name, record in self._records.items():
            self._bag.add_record(name, record)
        self._bag.close()

    def _is_done(self) -> bool:
        with self._changed:
            return self._is_closing and not self._queue and not self._wishes

    def _take(self) -> _Taken:
        """Wait for messages, at most until the next sync is due."""
        with self._changed:
            wait_s = SYNC_PERIOD_S
            if self._unsynced_since is not None:
                wait_s = self._unsynced_since + SYNC_PERIOD_S - time.monotonic()
            self._changed.wait_for(self._has_work, max(0.0, wait_s))
            batch = _Taken(list(self._queue), self._wishes)
            self._queue.clear()
            self._wishes = []
            return batch

    def _has_work(self) -> bool:
        return bool(self._queue or self._wishes or self._is_closing)

    def _write(self, messages: list[_Message]) -> None:
        for message in messages:
            self._bag.write(message.topic, message.data, message.stamp_ns)
            if self._unsynced_since is None:
                self._unsynced_since = message.arrived_s
            with self._changed:
                self._queued_bytes -= len(message.data)
                self._write_counts[message.topic] += 1

    def _sync_when_due(self, *, is_urgent: bool) -> None:
        since = self._unsynced_since
        if since is None or (not is_urgent and time.monotonic() < since + SYNC_PERIOD_S):
            return
        self._note_drops()
        self._bag.sync()
        self._unsynced_since = None
        with self._changed:
            self._longest_unsynced_s = max(self._longest_unsynced_s, time.monotonic() - since)

    def _note_drops(self) -> None:
        """Say in the bag what was lost, so that it is known even if the bag is never closed."""
        with self._changed:
            dropped = dict(self._drop_counts)
        if sum(dropped.values()) > self._noted_drops:
            self._noted_drops = sum(dropped.values())
            record = {topic: str(count) for topic, count in dropped.items()}
            self._bag.add_record(DROPS_RECORD, record)


def _tell(wishes: Iterable[Callable[[bool], None]], *, is_safe: bool) -> None:
    for tell in wishes:
        tell(is_safe)
