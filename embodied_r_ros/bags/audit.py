# SPDX-License-Identifier: Apache-2.0
"""Whether an episode holds what it should: rates, gaps, order of stamps, missing topics, drops.

The same count is kept live, while the episode is recorded, and made again from its bag.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass, field
import json
import struct
from typing import Any, TYPE_CHECKING

from embodied_r_ros.bags.silence import Silences, without
from embodied_r_ros.common.errors import ConfigError
from embodied_r_ros.common.settings import config_from_mapping, setting, Settings

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from rosbags.typesys.store import Typestore

AUDIT_NOTE = 'audit'  # in the provenance of an episode: its AuditConfig
AUDIT_RECORD = 'embodied_r_audit'  # MCAP metadata: what the recorder found, at the end
DROPS_RECORD = 'embodied_r_drops'  # MCAP metadata: messages lost so far, by topic

_HEADER = 'std_msgs/msg/Header'
# Whose stamps go forward: one camera, or one source of odometry, in each topic.
_IN_ORDER = frozenset(
    {'sensor_msgs/msg/Image', 'sensor_msgs/msg/CompressedImage', 'nav_msgs/msg/Odometry'}
)
# So do those of keyframes, but a bag that was made of several runs is no bad bag: where expected.
_IN_ORDER_IF_EXPECTED = frozenset({'embodied_r_msgs/msg/Keyframe'})
# A topic of a low rate may miss this many of its periods, however long they are.
_PERIODS = 3


@dataclass(frozen=True)
class AuditConfig(Settings):
    """What an episode must have to be used for training."""

    topics: tuple[str, ...] = setting(
        ('keyframe', 'semantic_delta'),
        "topics that must come, by the end of their names; 'odom 20': at 20 Hz; empty: none",
    )
    min_rate: float = setting(
        0.5, 'share of its expected rate below which a topic fails', between=(0, 1)
    )
    max_gap_s: float = setting(
        2.0, 'longest silence of a topic with an expected rate [s]', between=(0.01, 3600)
    )
    max_still: float = setting(
        0.5,
        'share of the episode, 20 s at least, in which no keyframe may come while images do',
        between=(0, 1),
    )
    max_disorder: float = setting(
        0.01, 'share of images or poses with a stamp before the last one', between=(0, 1)
    )
    max_dropped: float = setting(
        0.01, 'share of the messages of a topic that the disk was too slow for', between=(0, 1)
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        self.expected_rates()

    def expected_rates(self) -> dict[str, float]:
        """Rate of each topic that must come [Hz]; 0: none is stated.

        Raises:
            ConfigError: A topic is not written as it should be.
        """
        rates = {}
        for text in filter(str.strip, self.topics):
            name, *rate = text.split()
            try:
                rates[name] = float(rate[0]) if rate else 0.0
            except ValueError:
                rates[name] = -1.0
            if len(rate) > 1 or not 0.0 <= rates[name] <= 10_000:
                msg = f"topics has {text!r}: expected a name, or a name and a rate: 'odom 20'"
                raise ConfigError(msg)
        return rates

    def to_json(self) -> str:
        """One line of JSON."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> AuditConfig:
        """Read what `to_json` wrote.

        Raises:
            ConfigError: It is something else.
        """
        try:
            value = json.loads(text)
            value['topics'] = tuple(value['topics'])
        except (ValueError, TypeError, KeyError) as error:
            msg = f'audit settings {text[:60]!r} are not readable: {error}'
            raise ConfigError(msg) from None
        return config_from_mapping(cls, value)


@dataclass(frozen=True)
class TopicReport:
    """How a topic came."""

    topic: str
    messages: int
    rate_hz: float  # mean over the episode
    longest_gap_s: float  # without a message, the ends of the episode included
    out_of_order: int  # messages with a stamp before the last one
    dropped: int  # messages that the disk was too slow for


@dataclass(frozen=True)
class AuditReport:
    """The findings about an episode."""

    duration_s: float
    topics: tuple[TopicReport, ...]
    problems: tuple[str, ...] = ()  # why it is not for training; empty: it is
    left_out: tuple[str, ...] = ()  # what of it nothing here reads, which is no problem

    def to_json(self) -> str:
        """One line of JSON."""
        return json.dumps(asdict(self))


@dataclass
class _Topic:
    """What is known of a topic so far."""

    stamp_of: Callable[[bytes], int] | None
    is_in_order: bool  # its stamps should go forward
    messages: int = 0
    last_ns: int = 0  # receipt of the newest message
    longest_gap_ns: int = 0
    newest_stamp_ns: int = 0
    out_of_order: int = 0
    dropped: int = 0

    def take(self, data: bytes, time_ns: int) -> None:
        self.messages += 1
        self.longest_gap_ns = max(self.longest_gap_ns, time_ns - self.last_ns)
        self.last_ns = time_ns
        if self.stamp_of:
            stamp_ns = self.stamp_of(data)
            self.out_of_order += stamp_ns < self.newest_stamp_ns
            self.newest_stamp_ns = max(self.newest_stamp_ns, stamp_ns)


@dataclass
class Audit:
    """Counts the messages of an episode. Not for use from several threads."""

    config: AuditConfig
    begin_ns: int  # start of the episode
    _topics: dict[str, _Topic] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._silences = Silences(self.begin_ns, self.config.max_still)

    def add_topic(self, topic: str, type_name: str, store: Typestore) -> None:
        """Announce a topic; it counts as silent until a message comes.

        Args:
            topic: Name as it is in the bag.
            type_name: Message type such as 'nav_msgs/msg/Odometry'.
            store: Knows the fields of the type, where it is known at all.
        """
        stamp_of = stamp_from_cdr if _has_header(store, type_name) else None
        is_expected = any(_is_named(topic, name) for name in self.config.expected_rates())
        is_in_order = type_name in _IN_ORDER or (
            type_name in _IN_ORDER_IF_EXPECTED and is_expected
        )
        self._topics[topic] = _Topic(stamp_of, is_in_order, last_ns=self.begin_ns)
        self._silences.add_topic(topic, type_name)

    def take(self, topic: str, data: bytes, time_ns: int) -> None:
        """Count a message that is in the bag.

        Args:
            topic: A topic that was added.
            data: The serialised message.
            time_ns: When it was received [ns].
        """
        self._topics[topic].take(data, time_ns)
        self._silences.take(topic, time_ns)

    def note_drops(self, dropped: Mapping[str, int]) -> None:
        """Say how many messages of each topic the disk was too slow for."""
        for topic, count in dropped.items():
            if topic in self._topics:
                self._topics[topic].dropped = count

    def report(self, now_ns: int, *, is_over: bool) -> AuditReport:
        """Say how the episode is.

        Args:
            now_ns: Now, or the end of the episode [ns].
            is_over: While it runs, a topic has `max_gap_s` to come.
        """
        topics = {name: self._report(name, topic, now_ns) for name, topic in self._topics.items()}
        duration_s = _seconds(now_ns - self.begin_ns)
        problems = [*self._unfit(topics)]
        for name, rate_hz in self.config.expected_rates().items():
            limit_s = max(self.config.max_gap_s, _PERIODS / rate_hz if rate_hz else 0.0)
            if is_over or duration_s > limit_s:
                problems += self._rate_problems(name, rate_hz, limit_s, topics)
        problems += self._silence_problems(now_ns, problems, is_over=is_over)
        return AuditReport(duration_s, tuple(topics.values()), tuple(problems))

    def _silence_problems(
        self, now_ns: int, problems: Sequence[str], *, is_over: bool
    ) -> list[str]:
        """Which topics fell silent though what they depend on came, where nothing is said yet."""
        if not self.config.topics and not self._silences.knows_us():
            return []
        return without(self._silences.problems(now_ns, is_over=is_over), problems)

    def _report(self, name: str, topic: _Topic, now_ns: int) -> TopicReport:
        duration_s = max(_seconds(now_ns - self.begin_ns), 1e-3)
        gap_ns = max(topic.longest_gap_ns, now_ns - topic.last_ns)
        return TopicReport(
            name,
            topic.messages,
            topic.messages / duration_s,
            _seconds(gap_ns),
            topic.out_of_order,
            topic.dropped,
        )

    def _unfit(self, topics: Mapping[str, TopicReport]) -> list[str]:
        """What is wrong with topics, expected or not."""
        problems = []
        for name, report in topics.items():
            drop_share = report.dropped / max(1, report.dropped + report.messages)
            if drop_share > self.config.max_dropped:
                problems.append(f'{name}: {report.dropped} messages dropped ({drop_share:.0%})')
            disorder = report.out_of_order / max(1, report.messages)
            if self._topics[name].is_in_order and disorder > self.config.max_disorder:
                problems.append(f'{name}: {report.out_of_order} stamps out of order')
        return problems

    def _rate_problems(
        self, name: str, rate_hz: float, limit_s: float, topics: Mapping[str, TopicReport]
    ) -> list[str]:
        """What is wrong with the topics of an expectation."""
        matches = [topic for topic in topics if _is_named(topic, name)]
        if not matches:
            return [f'{name}: not recorded']
        problems = []
        for report in (topics[topic] for topic in matches):
            if not report.messages:
                problems.append(f'{report.topic}: no message')
            elif rate_hz and report.rate_hz < self.config.min_rate * rate_hz:
                problems.append(f'{report.topic}: {report.rate_hz:.2f} Hz instead of {rate_hz:g}')
            elif rate_hz and report.longest_gap_s > limit_s:
                problems.append(f'{report.topic}: silent for {report.longest_gap_s:.1f} s')
        return problems


def expected_of(notes: Mapping[str, str]) -> AuditConfig:
    """What an episode is expected to hold by its provenance; nothing where that does not say."""
    text = notes.get(AUDIT_NOTE, '')
    try:
        return AuditConfig.from_json(text) if text else AuditConfig(topics=())
    except ConfigError:  # of a newer version
        return AuditConfig(topics=())


def drops_from_record(record: Mapping[str, str]) -> Counter[str]:
    """Messages lost, by topic, as DROPS_RECORD has them."""
    return Counter({topic: int(text) for topic, text in record.items() if text.isdecimal()})


def stamp_from_cdr(data: bytes) -> int:
    """Stamp of a serialised message whose first field is a header [ns]."""
    if len(data) < 12:
        return 0
    order = '<' if data[1] & 1 else '>'
    sec, nanosec = struct.unpack_from(f'{order}iI', data, 4)
    return int(sec) * 1_000_000_000 + int(nanosec)


def _is_named(topic: str, name: str) -> bool:
    """Tell whether an expectation is about a topic: it names its end."""
    return f'/{topic}'.endswith(f'/{name.lstrip("/")}')


def _has_header(store: Typestore, type_name: str) -> bool:
    fields: Any = store.fielddefs.get(type_name, ((), ()))[1]
    return bool(fields) and fields[0][1][1] == _HEADER


def _seconds(duration_ns: int) -> float:
    return max(0, duration_ns) / 1e9
