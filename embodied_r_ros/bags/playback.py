# SPDX-License-Identifier: Apache-2.0
"""Playing a bag: its messages leave when they are due, as they were recorded.

A `Pace` lays bag time over the monotonic clock; a `Player` keeps the pace in a thread of its own
and hands each serialised message to a callback.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
import threading
import time
from typing import TYPE_CHECKING

from embodied_r_ros.bags.reader import open_bag
from embodied_r_ros.common.settings import setting, Settings
from embodied_r_ros.types.units import NS_PER_S

if TYPE_CHECKING:
    from collections.abc import Callable, Collection
    from pathlib import Path


@dataclass(frozen=True)
class PlaybackConfig(Settings):
    """How a bag is played."""

    rate: float = setting(
        1.0, 'speed; 2 plays twice as fast as it was recorded', between=(0.01, 100)
    )
    loop: bool = setting(False, 'start again at the end; time then jumps back')
    start_paused: bool = setting(False, 'wait for the service `resume`', read_only=True)
    clock_hz: float = setting(
        0.0, 'rate at which /clock is published [Hz]; 0: not at all', between=(0, 1000)
    )
    late_s: float = setting(
        0.1,
        'a message that leaves later than this after its time is counted [s]',
        between=(0, 60),
    )


@dataclass(frozen=True)
class Pace:
    """A point of bag time that is also a point of monotonic time, and the speed from there."""

    bag_ns: int
    at_ns: int  # monotonic
    rate: float
    is_paused: bool = False

    def bag_time_ns(self, now_ns: int) -> int:
        """Time in the bag at a monotonic time [ns]."""
        passed = 0 if self.is_paused else round((now_ns - self.at_ns) * self.rate)
        return self.bag_ns + passed

    def wait_s(self, stamp_ns: int, now_ns: int) -> float:
        """Time until a message is due [s]; negative: how late it is; infinite while paused."""
        if self.is_paused:
            return float('inf')
        return ((stamp_ns - self.bag_ns) / self.rate - (now_ns - self.at_ns)) / NS_PER_S

    def paused(self, now_ns: int) -> Pace:
        """The pace that stands still from now on."""
        return replace(self, bag_ns=self.bag_time_ns(now_ns), at_ns=now_ns, is_paused=True)

    def resumed(self, now_ns: int) -> Pace:
        """The pace that goes on from where it stood."""
        return replace(self, bag_ns=self.bag_time_ns(now_ns), at_ns=now_ns, is_paused=False)

    def at_rate(self, rate: float, now_ns: int) -> Pace:
        """The pace that goes on from here at another speed."""
        return replace(self, bag_ns=self.bag_time_ns(now_ns), at_ns=now_ns, rate=rate)


@dataclass(frozen=True)
class PlaybackStats:
    """How the playing goes."""

    published: int = 0
    late: int = 0  # left later after their time than allowed
    loops: int = 0  # times the end was reached
    is_paused: bool = False
    is_finished: bool = False
    error: str = ''  # why it ended early; empty: it did not


class Player:
    """Plays a bag in a thread of its own."""

    def __init__(
        self,
        path: Path,
        topics: Collection[str],
        config: PlaybackConfig,
        publish: Callable[[str, bytes], None],
        tick: Callable[[int], None],
    ) -> None:
        """Take what to play; `start` begins.

        Args:
            path: The bag.
            topics: Topics to play.
            config: How to play.
            publish: Called with the topic and the serialised message (CDR).
            tick: Called with the time in the bag [ns], `clock_hz` times a second.
        """
        self._path = path
        self._topics = topics
        self._config = config
        self._publish = publish
        self._tick = tick
        self._next_tick_ns = 0
        self._pace: Pace | None = None
        self._stats = PlaybackStats(is_paused=config.start_paused)
        self._is_closing = False
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._run, name='player', daemon=True)

    def start(self) -> None:
        """Begin to play."""
        self._thread.start()

    def pause(self) -> None:
        """Stand still until `resume`."""
        self._adjust(True)

    def resume(self) -> None:
        """Go on."""
        self._adjust(False)

    def configure(self, config: PlaybackConfig) -> None:
        """Take another rate, loop or clock from now on."""
        with self._changed:
            self._config = config
            if self._pace:
                self._pace = self._pace.at_rate(config.rate, time.monotonic_ns())
            self._changed.notify()

    def stats(self) -> PlaybackStats:
        """How the playing goes."""
        with self._changed:
            return self._stats

    def close(self, timeout_s: float = 5.0) -> None:
        """Stop playing and end the thread."""
        with self._changed:
            self._is_closing = True
            self._changed.notify()
        if self._thread.ident:
            self._thread.join(timeout_s)

    def _adjust(self, is_paused: bool) -> None:
        now = time.monotonic_ns()
        with self._changed:
            self._stats = replace(self._stats, is_paused=is_paused)
            if self._pace:
                self._pace = self._pace.paused(now) if is_paused else self._pace.resumed(now)
            self._changed.notify()

    def _run(self) -> None:
        try:
            while self._play_once():
                pass
        except Exception as error:  # whatever a damaged bag makes of the parser
            self._note(error=str(error) or type(error).__name__)
        self._note(is_finished=True)

    def _play_once(self) -> bool:
        """Play the bag from its start; tell whether to play it again."""
        with self._changed:
            self._pace = None
        with open_bag(self._path) as reader:
            connections = [c for c in reader.connections if c.topic in self._topics]
            for connection, stamp_ns, data in reader.messages(connections):
                if not self._wait_until(stamp_ns):
                    return False
                self._publish(connection.topic, bytes(data))
                self._note(published=self._stats.published + 1)
        self._note(loops=self._stats.loops + 1)
        return self._config.loop and bool(connections)

    def _wait_until(self, stamp_ns: int) -> bool:
        """Wait until a message is due, with the clock ticking; False: the player is closing."""
        while True:
            self._tick_when_due()
            with self._changed:
                if self._is_closing:
                    return False
                now = time.monotonic_ns()
                if self._pace is None:
                    was_paused = self._stats.is_paused
                    self._pace = Pace(stamp_ns, now, self._config.rate, was_paused)
                wait_s = self._pace.wait_s(stamp_ns, now)
                if wait_s <= 0:
                    late = self._stats.late + (-wait_s > self._config.late_s)
                    self._stats = replace(self._stats, late=late)
                    return True
                self._changed.wait(min(wait_s, self._until_tick_s(now)))

    def _until_tick_s(self, now_ns: int) -> float:
        # Without a clock it is enough to look up once a second; changes notify.
        return max(0.0, (self._next_tick_ns - now_ns) / NS_PER_S) if self._config.clock_hz else 1.0

    def _tick_when_due(self) -> None:
        with self._changed:
            now, pace = time.monotonic_ns(), self._pace
            if not self._config.clock_hz or pace is None or now < self._next_tick_ns:
                return
            self._next_tick_ns = now + round(NS_PER_S / self._config.clock_hz)
            bag_ns = pace.bag_time_ns(now)
        self._tick(bag_ns)

    def _note(self, **changes: int | str) -> None:
        with self._changed:
            self._stats = replace(self._stats, **changes)  # type: ignore[arg-type]
