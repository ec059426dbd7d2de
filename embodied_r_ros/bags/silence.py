# SPDX-License-Identifier: Apache-2.0
"""Topics that fell silent in an episode, although they had promised to come.

A sensor promises its own rate. What is computed is promised by what it is computed from: keyframes
by images, deltas by keyframes. Memory does not grow with the episode.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


_OWN = 'embodied_r_msgs/msg/'
_KEYFRAME, _DELTA = _OWN + 'Keyframe', _OWN + 'SemanticDelta'
_INFO = 'sensor_msgs/msg/CameraInfo'
_IMAGES = {'sensor_msgs/msg/Image', 'sensor_msgs/msg/CompressedImage', _INFO}
_SENSORS = _IMAGES | {'nav_msgs/msg/Odometry', 'tf2_msgs/msg/TFMessage'}
_LATCHED = '/tf_static'
_FEW = 10  # with fewer messages, a topic has no rate
_PERIODS = 20  # of a sensor, which may be missed
_LEAST_S = 5.0  # of a silence of a sensor
_LONGEST_WORK_S = 30.0  # of a single keyframe or delta
_FED_S = 10.0  # in which several came, and nothing of them
_SEVERAL = 3
_LEAST_STILL_S = 20.0  # a camera may stand still so long in any episode
_MOST_SILENCES = 5  # that are kept of a topic
_NS = 1e9


@dataclass(frozen=True)
class _Silence:
    """A time in which a topic did not come."""

    begin_ns: int
    end_ns: int
    inputs: int = 0  # messages that should have led to some
    first_ns: int = 0  # the first and the last of them
    last_ns: int = 0

    @property
    def duration_s(self) -> float:
        return (self.end_ns - self.begin_ns) / _NS

    @property
    def fed_s(self) -> float:
        return (self.last_ns - self.first_ns) / _NS if self.inputs else 0.0

    @property
    def owed_s(self) -> float:
        return (self.end_ns - self.first_ns) / _NS if self.inputs else 0.0


@dataclass
class _Stream:
    """What is known of a topic."""

    last_ns: int  # of the newest message, or the start of the episode
    count: int = 0
    gaps: Counter[int] = field(default_factory=Counter)  # by the rounded binary logarithm of [ns]
    longest: list[_Silence] = field(default_factory=list)
    _inputs: int = 0  # since the newest message
    _input_ns: tuple[int, int] = (0, 0)

    def take(self, time_ns: int) -> None:
        """Take a message of it."""
        silence = self.silence(time_ns)
        if self.count and silence.end_ns > silence.begin_ns:
            # Four classes per octave: a median within a tenth.
            self.gaps[round(4 * math.log2(silence.end_ns - silence.begin_ns))] += 1
        if len(self.longest) < _MOST_SILENCES or _weight(silence) > _weight(self.longest[0]):
            self.longest = sorted([*self.longest, silence], key=_weight)[-_MOST_SILENCES:]
        self.count += 1
        self.last_ns = time_ns
        self._inputs = 0

    def feed(self, time_ns: int) -> None:
        """Take a message that should lead to one of it."""
        self._input_ns = (self._input_ns[0] if self._inputs else time_ns, time_ns)
        self._inputs += 1

    def silence(self, now_ns: int) -> _Silence:
        """The silence since its newest message."""
        return _Silence(self.last_ns, now_ns, self._inputs, *self._input_ns)

    def silences(self, now_ns: int) -> list[_Silence]:
        """The longest silences, in order of time."""
        return sorted([*self.longest, self.silence(now_ns)], key=lambda each: each.begin_ns)

    def period_s(self) -> float:
        """The median time between two messages [s]."""
        left = sum(self.gaps.values()) / 2
        for size, count in sorted(self.gaps.items()):
            left -= count
            if left <= 0:
                return float(2 ** (size / 4)) / _NS
        return 0.0


def _weight(silence: _Silence) -> tuple[float, float]:
    return max(silence.fed_s, silence.owed_s), silence.duration_s


class Silences:
    """Looks for topics of an episode that fell silent. Not for use from several threads."""

    def __init__(self, begin_ns: int, max_still: float) -> None:
        """Start with the episode.

        Args:
            begin_ns: Start of the episode.
            max_still: Share of the episode in which no keyframe may come while images do.
        """
        self._begin_ns, self._max_still = begin_ns, max_still
        self._types: dict[str, str] = {}
        self._streams: dict[str, _Stream] = {}
        self._fed: dict[str, list[_Stream]] = {}  # what messages of a topic should lead to

    def add_topic(self, topic: str, type_name: str) -> None:
        """Announce a topic."""
        self._types[topic] = type_name
        self._streams[topic] = _Stream(self._begin_ns)
        self._fed.clear()

    def take(self, topic: str, time_ns: int) -> None:
        """Take a message of a topic that was added."""
        self._streams[topic].take(time_ns)
        for stream in self._fed_by(topic):
            stream.feed(time_ns)

    def knows_us(self) -> bool:
        """Tell whether any topic is of this package: what others recorded promised nothing."""
        return any(kind.startswith(_OWN) for kind in self._types.values())

    def problems(self, now_ns: int, *, is_over: bool) -> dict[str, str]:
        """What is wrong, by topic; the longest silences of each.

        Args:
            now_ns: Now, or the end of the episode [ns].
            is_over: While it runs, a camera that stands still may go on.
        """
        problems = {}
        for topic, stream in sorted(self._streams.items()):
            texts = self._texts(topic, stream, now_ns, is_over=is_over)
            if texts:
                problems[topic] = f'{topic}: {"; ".join(texts)}'
        return problems

    def _texts(self, topic: str, stream: _Stream, now_ns: int, *, is_over: bool) -> list[str]:
        kind, silences = self._types[topic], stream.silences(now_ns)
        if kind in _SENSORS:
            is_regular = stream.count >= _FEW and not topic.endswith(_LATCHED)
            return self._sensor_texts(stream.period_s(), silences) if is_regular else []
        if kind == _KEYFRAME:
            limit_s = self._still_limit_s(now_ns, is_over=is_over)
            return [
                f'{self._when(each)}, while images came'
                for each in silences
                if each.fed_s > limit_s
            ]
        if kind == _DELTA:
            slack_s = 5 * stream.period_s()
            return [
                f'{self._when(each)}, while {each.inputs} keyframes came'
                for each in silences
                if _is_owed(each, slack_s)
            ]
        return []

    def _sensor_texts(self, period_s: float, silences: Sequence[_Silence]) -> list[str]:
        limit_s = max(_LEAST_S, _PERIODS * period_s)
        return [
            f'{self._when(each)}, otherwise every {period_s:.2g} s'
            for each in silences
            if each.duration_s > limit_s
        ]

    def _still_limit_s(self, now_ns: int, *, is_over: bool) -> float:
        """How long images may come without a keyframe [s]."""
        duration_s = (now_ns - self._begin_ns) / _NS
        return max(_LEAST_STILL_S, self._max_still * duration_s) if is_over else math.inf

    def _when(self, silence: _Silence) -> str:
        begin, end = ((t - self._begin_ns) / _NS for t in (silence.begin_ns, silence.end_ns))
        return f'silent from {begin:.1f} to {end:.1f} s'

    def _fed_by(self, topic: str) -> list[_Stream]:
        if topic not in self._fed:
            kind = self._types[topic]
            self._fed[topic] = [
                stream
                for other, stream in self._streams.items()
                if self._feeds(topic, kind, other)
            ]
        return self._fed[topic]

    def _feeds(self, topic: str, kind: str, other: str) -> bool:
        """Tell whether messages of a topic should lead to messages of another one."""
        other_kind = self._types[other]
        if kind in _IMAGES and other_kind == _KEYFRAME:
            return self._is_camera_of(topic, other)
        return kind == _KEYFRAME and other_kind == _DELTA

    def _is_camera_of(self, topic: str, keyframe: str) -> bool:
        """Tell by namespaces whether keyframes are those of a topic of images."""
        namespace = keyframe.rpartition('/')[0] + '/'
        cameras = [name for name, kind in self._types.items() if kind in _IMAGES]
        inside = [name for name in cameras if name.startswith(namespace)]
        return topic in (inside or cameras)


def _is_owed(silence: _Silence, slack_s: float) -> bool:
    """Tell whether what went in should have led to something."""
    has_waited = silence.owed_s > max(_LONGEST_WORK_S, slack_s)
    has_several = silence.inputs >= _SEVERAL and silence.fed_s > max(_FED_S, slack_s)
    return has_waited or has_several


def without(problems: Mapping[str, str], known: Sequence[str]) -> list[str]:
    """Those problems whose topic no known one names: one finding of a topic is enough."""
    return [
        text
        for topic, text in problems.items()
        if not any(other.startswith(f'{topic}: ') for other in known)
    ]
