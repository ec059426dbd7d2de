# SPDX-License-Identifier: Apache-2.0
"""Playing a recording: as a bag whose messages leave when they are due, as they were recorded.

What is no bag, a video or a folder of images, becomes one for the time being (`playable`). A
`Pace` lays bag time over the monotonic clock; a `Player` keeps the pace in a thread of its own and
hands each serialised message to a callback.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
import tempfile
import threading
import time
from typing import TYPE_CHECKING

from embodied_r_ros.bags.depth import depth_to_msg, find_depth_topic, NO_DEPTH
from embodied_r_ros.bags.images import camera_info_topic, choose_image_topic
from embodied_r_ros.bags.message_types import BagMessageFactory
from embodied_r_ros.bags.messages import COMPRESSED_IMAGE, encoded_image_to_msg, RAW_IMAGE
from embodied_r_ros.bags.reader import is_bag, open_bag, topics_of_type
from embodied_r_ros.bags.sources import open_source
from embodied_r_ros.bags.writer import BagWriter, SENSOR_DATA_QOS
from embodied_r_ros.common.settings import setting, Settings
from embodied_r_ros.core.types.geometry import NS_PER_S
from embodied_r_ros.core.types.images import encode_image

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator

    from embodied_r_ros.bags.sources import DepthSource, ImageSource


_SUFFIX = '/compressed'
_TOPIC = f'/image{_SUFFIX}'
_DEPTH = '/depth'
_JPEG_QUALITY = 95
# Stamps of a video count from zero, and a stamp of zero means 'unset' in ROS.
_EPOCH_NS = 1_000_000_000


@dataclass(frozen=True)
class Playable:
    """A bag, and the topics in it that the pipeline listens to."""

    bag: Path
    image: str  # base name, without '/compressed'
    image_transport: str  # 'raw' or 'compressed'
    camera_info: str = ''  # empty: there is none
    odom: str = ''  # empty: there is none
    duration_s: float = 0.0
    depth: str = ''  # base name; empty: there is none
    depth_transport: str = 'raw'  # 'raw', 'compressed' or 'compressedDepth'

    def topics(self) -> list[str]:
        """Names of the topics to play."""
        image = self.image + (_SUFFIX if self.image_transport == 'compressed' else '')
        suffix = '' if self.depth_transport == 'raw' else f'/{self.depth_transport}'
        depth = self.depth and self.depth + suffix
        return [topic for topic in (image, self.camera_info, self.odom, depth) if topic]


@contextmanager
def as_bag(
    source: Path, topic: str | None = None, depth: DepthSource | None = None
) -> Iterator[Path]:
    """A recording as a bag: itself where it is one, else a bag of its images for the time being.

    The depth of a folder becomes the topic `/depth`, in millimetres.

    Args:
        source: The recording.
        topic: As `open_source` takes it, where it is no bag.
        depth: Where depth comes from; None: as `open_source` finds it.

    Raises:
        SourceError: There are no images, or several streams, or one cannot be decoded.
        BagError: The bag cannot be written.
    """
    if source.exists() and is_bag(source):
        yield source
        return
    with (
        tempfile.TemporaryDirectory(prefix='embodied-r-images-') as scratch,
        open_source(source, topic, depth=depth) as images,
    ):
        yield _from_images(images, Path(scratch) / 'source').bag


def playable(
    source: Path, scratch: Path, topic: str | None = None, depth: DepthSource | None = None
) -> Playable:
    """Make a source playable.

    Args:
        source: A video, a folder of images, a rosbag2 folder, or a .mcap or .db3 file.
        scratch: Folder in which a bag may be made.
        topic: As `open_source` takes it.
        depth: Where depth comes from; None: as `open_source` finds it.

    Raises:
        SourceError: There are no images, several image topics to choose from, or the first image
            cannot be decoded.
        BagError: The bag cannot be read.
    """
    with open_source(source, topic, depth=depth) as images:
        is_bag = images.kind == 'bag'
        if not is_bag:
            return _from_images(images, scratch / 'source')
        next(iter(images))  # what cannot be decoded is refused before it is played
    with open_bag(source) as reader:
        chosen = choose_image_topic(reader, topic)
        odometry = [
            name
            for name in topics_of_type(reader, 'nav_msgs/msg/Odometry')
            if reader.topics[name].msgcount
        ]
        info = camera_info_topic(reader, chosen)
        duration_s = reader.duration / 1e9
        kind = reader.topics[chosen].msgtype
        wanted = depth.topic if depth else ''
        found_depth = wanted or find_depth_topic(reader, chosen)
        depth_topic = '' if found_depth == NO_DEPTH else found_depth
    odom = odometry[0] if len(odometry) == 1 else ''
    depth_parts = _split_transport(depth_topic)
    if kind == RAW_IMAGE:
        return Playable(source, chosen, 'raw', info, odom, duration_s, *depth_parts)
    if kind != COMPRESSED_IMAGE or not chosen.endswith(_SUFFIX):
        # The nodes expect compressed images under the name that image_transport gives them.
        with open_source(source, topic, depth=depth) as images:
            return _from_images(images, scratch / 'source')
    base = chosen[: -len(_SUFFIX)]
    return Playable(source, base, 'compressed', info, odom, duration_s, *depth_parts)


def _split_transport(topic: str) -> tuple[str, str]:
    """Base name of a depth topic, and its transport as image_transport names it."""
    base, _, last = topic.rpartition('/')
    return (base, last) if last in {'compressed', 'compressedDepth'} else (topic, 'raw')


def _from_images(images: ImageSource, bag: Path) -> Playable:
    factory = BagMessageFactory()
    first_ns = last_ns = 0
    with BagWriter(bag) as writer:
        writer.add_topic(_TOPIC, COMPRESSED_IMAGE, SENSOR_DATA_QOS)
        has_depth = False
        for image in images:
            encoded = image.encoded or encode_image(image.image, _JPEG_QUALITY)
            last_ns = image.stamp_ns + _EPOCH_NS
            first_ns = first_ns or last_ns
            msg = encoded_image_to_msg(factory, last_ns, image.frame_id, encoded)
            writer.write(_TOPIC, msg, last_ns)
            if image.depth is None:
                continue
            if not has_depth:
                writer.add_topic(_DEPTH, RAW_IMAGE, SENSOR_DATA_QOS)
                has_depth = True
            depth = depth_to_msg(factory, last_ns, image.frame_id, image.depth)
            writer.write(_DEPTH, depth, last_ns)
    duration_s = (last_ns - first_ns) / 1e9
    depth = _DEPTH if has_depth else ''
    base = _TOPIC[: -len(_SUFFIX)]
    return Playable(bag, base, 'compressed', duration_s=duration_s, depth=depth)


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
        """The pace, continued from where it stood."""
        return replace(self, bag_ns=self.bag_time_ns(now_ns), at_ns=now_ns, is_paused=False)

    def at_rate(self, rate: float, now_ns: int) -> Pace:
        """The pace, continued from here at another speed."""
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
        """Resume playing."""
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
