# SPDX-License-Identifier: Apache-2.0
"""Keyframes become deltas off the caller's thread: several pairs at once, published in order.

Each camera is a stream of its own. A keyframe is paired with the one that was taken before it;
when perception is slower than keyframes, those that wait are coalesced into the newest, and the
delta says how many were skipped. Threads run the perceiver; whichever finishes the oldest pair of
a stream also publishes it and what is ready behind it.
"""

from __future__ import annotations

from collections import Counter, deque, OrderedDict
from dataclasses import dataclass, field, replace
import logging
import threading
import time
from typing import TYPE_CHECKING

from embodied_r_ros.common.settings import setting, Settings
from embodied_r_ros.core.perception.egomotion import composed_motion
from embodied_r_ros.core.perception.perceiver import perceive_pair
from embodied_r_ros.core.types.deltas import DeltaKind

if TYPE_CHECKING:
    from collections.abc import Callable

    from embodied_r_ros.core.perception.perceiver import PairPerceiver
    from embodied_r_ros.core.types.deltas import SemanticDelta
    from embodied_r_ros.core.types.keyframes import Keyframe

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class WorkerConfig(Settings):
    """How much is perceived at once, and how much may wait."""

    in_flight: int = setting(
        2, 'pairs of keyframes perceived at the same time', between=(1, 64), read_only=True
    )
    capacity: int = setting(
        2, 'keyframes of a camera that may wait before they are coalesced', between=(1, 1000)
    )
    kept_keyframes: int = setting(
        64, 'newest keyframes of a camera that a focus can look at again', between=(1, 10_000)
    )


@dataclass(frozen=True)
class WorkerStats:
    """What a worker did since it was made, and what it is doing."""

    submitted: int  # keyframes
    published: int  # deltas, failed ones included
    failed: int  # deltas of kind FAILED
    coalesced: int  # keyframes that were skipped because perception was slower
    discarded: int  # keyframes and deltas given up by a reset or by closing
    waiting: int  # keyframes now
    in_flight: int  # pairs now
    last_latency_ns: int  # of the newest delta; 0: none yet


_COUNTED = ('submitted', 'published', 'failed', 'coalesced', 'discarded')


@dataclass
class _Pair:
    """A pair that was taken from a stream; its delta comes later."""

    earlier: Keyframe | None
    later: Keyframe
    skipped: int
    delta: SemanticDelta | None = None


@dataclass
class _Stream:
    """Keyframes of one camera since the last reset."""

    waiting: deque[Keyframe] = field(default_factory=deque)
    skipped: int = 0  # keyframes coalesced away since the last one taken
    last: Keyframe | None = None  # the last one taken
    pairs: deque[_Pair] = field(default_factory=deque)  # not yet published, oldest first
    publisher: int | None = None  # thread that is publishing
    keyframes: OrderedDict[int, Keyframe] = field(default_factory=OrderedDict)  # by id

    def add(self, keyframe: Keyframe, config: WorkerConfig) -> int:
        """Let a keyframe wait, and give the number of those that are skipped for it."""
        self.keyframes[keyframe.id] = keyframe
        while len(self.keyframes) > config.kept_keyframes:
            self.keyframes.popitem(last=False)
        self.waiting.append(keyframe)
        surplus = len(self.waiting) - 1 if len(self.waiting) > config.capacity else 0
        for _ in range(surplus):
            self._skip(self.waiting.popleft())
        self.skipped += surplus
        return surplus

    def _skip(self, keyframe: Keyframe) -> None:
        """Add the motion up to a keyframe that is passed over to that of the next one."""
        following = self.waiting[0]
        if following.reference_id == keyframe.id and keyframe.reference_id != keyframe.id:
            ways = [each.way_m for each in (keyframe, following) if each.way_m is not None]
            self.waiting[0] = replace(
                following,
                motion=composed_motion(keyframe.motion, following.motion),
                reference_id=keyframe.reference_id,
                way_m=sum(ways) if len(ways) == 2 else None,
            )

    def take(self) -> _Pair:
        """Pair the keyframe that waited longest with the last one that was taken."""
        pair = _Pair(self.last, self.waiting.popleft(), self.skipped)
        self.last, self.skipped = pair.later, 0
        self.pairs.append(pair)
        return pair


class PerceptionWorker:
    """Perceives keyframes in the background. Its methods may be called from several threads."""

    def __init__(
        self,
        perceiver: PairPerceiver,
        publish: Callable[[SemanticDelta], None],
        config: WorkerConfig | None = None,
    ) -> None:
        """Start `in_flight` threads.

        Args:
            perceiver: What perceives.
            publish: Given the deltas of each camera strictly in order, from one thread at a time
                per camera; should not block.
            config: How much at once.
        """
        self._perceiver = perceiver
        self._publish = publish
        self._config = config or WorkerConfig()
        self._streams: OrderedDict[str, _Stream] = OrderedDict()
        self._changed = threading.Condition()
        self._closing = False
        self._running = 0
        self._counts: Counter[str] = Counter()
        self._last_latency_ns = 0
        self._threads = [
            threading.Thread(target=self._work, name=f'perception-{index}', daemon=True)
            for index in range(self._config.in_flight)
        ]
        for thread in self._threads:
            thread.start()

    def submit(self, keyframe: Keyframe) -> None:
        """Hand over the next keyframe of its camera. Never blocks; ignored once closed."""
        with self._changed:
            self._counts['submitted'] += 1
            if self._closing:
                self._counts['discarded'] += 1
                return
            stream = self._streams.setdefault(keyframe.camera, _Stream())
            self._counts['coalesced'] += stream.add(keyframe, self._config)
            self._changed.notify_all()

    def keyframe(self, keyframe_id: int, camera: str = '') -> Keyframe | None:
        """A keyframe that is still kept; None where it is not. No camera: the only one."""
        with self._changed:
            if not camera and len(self._streams) == 1:
                camera = next(iter(self._streams))
            stream = self._streams.get(camera)
            return stream.keyframes.get(keyframe_id) if stream else None

    def reset(self, timeout_s: float = 1.0) -> bool:
        """Forget all keyframes; deltas of pairs that are in flight are never published.

        Args:
            timeout_s: Time that a call of `publish` that is under way may take [s].

        Returns:
            True: `publish` is not called any more with what was submitted before.
        """
        me = threading.get_ident()
        with self._changed:
            old = list(self._streams.values())
            self._counts['discarded'] += sum(len(s.waiting) + len(s.pairs) for s in old)
            self._streams.clear()
            return self._changed.wait_for(
                lambda: all(stream.publisher in {None, me} for stream in old), timeout_s
            )

    def wait_idle(self, timeout_s: float) -> bool:
        """Wait until every keyframe was perceived and published; False: not in time."""
        with self._changed:
            return self._changed.wait_for(self._is_idle, timeout_s)

    def stats(self) -> WorkerStats:
        """What was done, and what is being done."""
        with self._changed:
            waiting = sum(len(stream.waiting) for stream in self._streams.values())
            counts = {name: self._counts[name] for name in _COUNTED}
            return WorkerStats(
                **counts,
                waiting=waiting,
                in_flight=self._running,
                last_latency_ns=self._last_latency_ns,
            )

    def close(self, timeout_s: float = 5.0) -> bool:
        """Give up what waits, let pairs that are in flight finish, and end the threads.

        Returns:
            True: all threads ended. False: a perceiver took longer; its delta is not published.
        """
        end = time.monotonic() + timeout_s
        with self._changed:
            self._closing = True
            for stream in self._streams.values():
                self._counts['discarded'] += len(stream.waiting)
                stream.waiting.clear()
            self._changed.notify_all()
        for thread in self._threads:
            thread.join(max(0.0, end - time.monotonic()))
        is_over = not any(thread.is_alive() for thread in self._threads)
        if not is_over:
            self.reset(0.0)
        return is_over

    def _work(self) -> None:
        """Perceive until closed. Runs in every thread."""
        while (job := self._next_job()) is not None:
            stream, pair = job
            delta = perceive_pair(self._perceiver, pair.earlier, pair.later, pair.skipped)
            with self._changed:
                self._running -= 1
                pair.delta = delta
            self._publish_ready(pair.later.camera, stream)

    def _next_job(self) -> tuple[_Stream, _Pair] | None:
        """Wait for a pair; None once closed."""
        with self._changed:
            while not self._closing:
                for camera, stream in self._streams.items():
                    # What waits behind an older pair counts too, or it could pile up.
                    if stream.waiting and len(stream.pairs) < self._config.in_flight:
                        self._streams.move_to_end(camera)
                        self._running += 1
                        return stream, stream.take()
                self._changed.wait()
            return None

    def _publish_ready(self, camera: str, stream: _Stream) -> None:
        """Publish the oldest deltas of a stream as far as they are there."""
        while (delta := self._ready(camera, stream)) is not None:
            try:
                self._publish(delta)
            except Exception:
                _log.exception('delta %d of %s could not be published', delta.to_id, camera)

    def _ready(self, camera: str, stream: _Stream) -> SemanticDelta | None:
        """The next delta to publish, where this thread is the one to publish it."""
        me = threading.get_ident()
        with self._changed:
            self._changed.notify_all()
            if stream.publisher not in {None, me}:
                return None
            current = self._streams.get(camera) is stream
            delta = stream.pairs[0].delta if current and stream.pairs else None
            stream.publisher = me if delta is not None else None
            if delta is None:
                return None
            stream.pairs.popleft()
            self._counts['published'] += 1
            self._counts['failed'] += delta.kind is DeltaKind.FAILED
            self._last_latency_ns = delta.latency_ns
            return delta

    def _is_idle(self) -> bool:
        return self._running == 0 and not any(
            stream.waiting or stream.pairs or stream.publisher is not None
            for stream in self._streams.values()
        )
