# SPDX-License-Identifier: Apache-2.0
"""A node's report of its own health: one task per node on `/diagnostics`, once a second.

It tells of the node's neighbours in the graph too: whether its topics have them, and their QoS
fits.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from difflib import get_close_matches
from enum import IntEnum
import socket
import time
from typing import Any, TYPE_CHECKING

from diagnostic_msgs.msg import DiagnosticArray, DiagnosticStatus, KeyValue
from rclpy.clock import Clock, ClockType
from rclpy.qos import qos_check_compatible, QoSCompatibility

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from embodied_r_ros.core.types.deltas import Rung
    from rclpy.node import Node
    from rclpy.qos import QoSProfile
    from rclpy.topic_endpoint_info import TopicEndpointInfo


# Runs also where no ROS clock does.
STEADY = Clock(clock_type=ClockType.STEADY_TIME)
_PERIOD_S = 1.0
# Discovery takes so long, on a busy machine.
_DISCOVERY_S = 5.0
_NAMES = 3  # of topics that may have been meant
_LOOK_S = 0.5  # a look takes a millisecond or two
# Every node has them, whatever listens.
_OF_ROS = {'/rosout', '/parameter_events'}


class Level(IntEnum):
    """How well a node is (diagnostic_msgs/DiagnosticStatus)."""

    OK = 0
    WARN = 1
    ERROR = 2
    STALE = 3  # nothing comes in

    @property
    def rank(self) -> int:
        """How bad it is: silence is no news, and hides no problem that is known."""
        return _RANKS.index(self)


_RANKS = (Level.OK, Level.STALE, Level.WARN, Level.ERROR)


@dataclass(frozen=True)
class Health:
    """How a node is, and the figures that show it."""

    level: Level
    message: str
    values: Mapping[str, Any] = field(default_factory=dict)


def worst_health(first: Health, *others: Health) -> Health:
    """One health of several: the worst level, what is wrong from the worst on, and all figures."""
    parts = sorted((first, *others), key=lambda part: -part.level.rank)
    worst = parts[0].level
    messages = dict.fromkeys(part.message for part in parts if part.level is not Level.OK)
    values = {key: value for part in (first, *others) for key, value in part.values.items()}
    return Health(worst, '; '.join(messages) or first.message, values)


def fallback_health(
    problems: Mapping[Rung, str], last_problem: str, values: Mapping[str, Any]
) -> Health:
    """Health of a node whose models have fallbacks.

    Args:
        problems: Why models are left out now.
        last_problem: Why the newest piece of work failed on all of them; empty: it did not.
        values: The node's other figures.
    """
    left_out = {f'{rung.name.lower()}_problem': text for rung, text in problems.items()}
    details = {**values, **left_out}
    if last_problem:
        return Health(Level.ERROR, last_problem, details)
    if left_out:
        name, text = next(iter(left_out.items()))
        return Health(Level.WARN, f'a fallback stands in; {name[:-8]}: {text}', details)
    return Health(Level.OK, 'ready', details)


class Meter:
    """Counts events, with their rate over the last seconds and the age of the last one."""

    def __init__(self, window_s: float = 5.0) -> None:
        self.count = 0
        self._window_s = window_s
        self._start = time.monotonic()
        self._times: deque[float] = deque(maxlen=1000)

    def tick(self, events: int = 1) -> None:
        """Count events."""
        self.count += events
        self._times.extend([time.monotonic()] * events)

    def rate_hz(self) -> float:
        """Events per second over the window."""
        now, times = time.monotonic(), tuple(self._times)
        since = max(self._start, now - self._window_s)
        if len(times) == self._times.maxlen:  # what was before is not known
            since = max(since, times[0])
        return sum(t >= since for t in times) / max(now - since, 1e-3)

    def age_s(self) -> float:
        """Time since the last event, or since counting began [s]."""
        return time.monotonic() - (self._times[-1] if self._times else self._start)


class Diagnostics:
    """Publishes a node's health once a second, by the steady clock.

    The first task of a message is that of the node, under the node's name. Others are in `tasks`;
    one that gives None is left out.
    """

    def __init__(self, node: Node, report: Callable[[], Health]) -> None:
        self._node = node
        self.tasks: dict[str, Callable[[], Health | None]] = {node.get_name(): report}
        self._publisher = node.create_publisher(DiagnosticArray, '/diagnostics', 10)
        self._timer = node.create_timer(_PERIOD_S, self.publish, clock=STEADY)

    def publish(self) -> None:
        """Publish the health as it is now."""
        healths = {name: _health_of(report) for name, report in self.tasks.items()}
        statuses = [self._status(name, health) for name, health in healths.items() if health]
        array = DiagnosticArray(status=statuses)
        array.header.stamp = self._node.get_clock().now().to_msg()
        self._publisher.publish(array)

    def _status(self, name: str, health: Health) -> DiagnosticStatus:
        return DiagnosticStatus(
            level=bytes([health.level]),
            name=f'{self._node.get_fully_qualified_name()[1:]}: {name}',
            message=health.message,
            hardware_id=socket.gethostname(),
            values=[KeyValue(key=k, value=_text(v)) for k, v in health.values.items()],
        )


def _health_of(report: Callable[[], Health | None]) -> Health | None:
    """What a report says; where it fails, that is news too, and hides no other task."""
    try:
        return report()
    except Exception as error:
        return Health(Level.ERROR, f'health is not known: {type(error).__name__}: {error}')


def _text(value: Any) -> str:
    return f'{value:.2f}' if isinstance(value, float) else str(value)


class Neighbours:
    """Looks at the other ends of a node's topics, as the graph lists them now."""

    def __init__(self, node: Node) -> None:
        """Look for the neighbours of a node."""
        self._node = node
        self._senders: dict[str, str] = {}  # what publishes a needed topic, by its full name
        self._since = time.monotonic()
        self._look_at = 0.0  # when to look at the QoS again
        self._qos: dict[str, str] = {}  # mismatches by topic

    def need(self, topic: str, sender: str) -> None:
        """Need a publisher of a topic from now on.

        Args:
            topic: Full name.
            sender: What publishes it, in words.
        """
        self._senders[topic] = sender
        self._since = time.monotonic()

    def release(self, topic: str) -> None:
        """Need no publisher of a topic any more."""
        self._senders.pop(topic, None)

    def health(self) -> list[Health]:
        """What is wrong with the neighbours; empty: nothing."""
        problems = [*self._missing()]
        if time.monotonic() >= self._look_at:
            self._qos = dict(sorted(self._mismatches()))
            self._look_at = time.monotonic() + _LOOK_S
        if self._qos:
            text = f'incompatible QoS on {", ".join(self._qos)}'
            values = {f'qos of {topic}': why for topic, why in self._qos.items()}
            problems.insert(0, Health(Level.WARN, text, values))
        return problems

    def _missing(self) -> Iterator[Health]:
        if time.monotonic() - self._since < _DISCOVERY_S:
            return
        for topic, sender in self._senders.items():
            if not self._node.count_publishers(topic):
                text = f'no publisher of {topic}: start {sender}'
                if others := self._alike(topic):
                    text += f'; of its type there is {", ".join(others)}'
                yield Health(Level.WARN, text)

    def _alike(self, topic: str) -> list[str]:
        """Topics that others publish in the type of a topic, the likest names first."""
        types = dict(self._node.get_topic_names_and_types())
        own = {each.topic_name for each in self._node.publishers}
        others = [
            name
            for name in types.keys() - own
            if {*types[name]} & {*types.get(topic, ())} and self._node.count_publishers(name)
        ]
        return get_close_matches(topic, sorted(others), _NAMES, cutoff=0)

    def _mismatches(self) -> Iterator[tuple[str, str]]:
        """Topics on which the node and a neighbour never meet, with the reason."""
        node = self._node
        for topic in {each.topic_name for each in list(node.subscriptions)} - _OF_ROS:
            own = [e for e in node.get_subscriptions_info_by_topic(topic) if self._is_own(e)]
            for other in node.get_publishers_info_by_topic(topic) if own else ():
                if why := _mismatch(other.qos_profile, own[0].qos_profile):
                    yield topic, f'publisher {_name(other)}: {why}'
        for topic in {each.topic_name for each in list(node.publishers)} - _OF_ROS:
            own = [e for e in node.get_publishers_info_by_topic(topic) if self._is_own(e)]
            for other in node.get_subscriptions_info_by_topic(topic) if own else ():
                if why := _mismatch(own[0].qos_profile, other.qos_profile):
                    yield topic, f'subscription of {_name(other)}: {why}'

    def _is_own(self, endpoint: TopicEndpointInfo) -> bool:
        # The graph lists durations as they are in force; those of a profile may be left open.
        place = self._node.get_name(), self._node.get_namespace()
        return (endpoint.node_name, endpoint.node_namespace) == place


def _mismatch(offer: QoSProfile, request: QoSProfile) -> str:
    """Why a publisher does not serve a subscription; empty: it does."""
    compatibility, reason = qos_check_compatible(offer, request)
    if compatibility != QoSCompatibility.ERROR:
        return ''
    return '; '.join(part.removeprefix('ERROR: ') for part in reason.split(';') if part)


def _name(endpoint: TopicEndpointInfo) -> str:
    return f'{endpoint.node_namespace.rstrip("/")}/{endpoint.node_name}'
