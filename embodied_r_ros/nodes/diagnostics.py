# SPDX-License-Identifier: Apache-2.0
"""A node's report of its own health: one task per node on `/diagnostics`, once a second."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from enum import IntEnum
import socket
import time
from typing import Any, TYPE_CHECKING

from diagnostic_msgs.msg import DiagnosticArray, DiagnosticStatus, KeyValue
from rclpy.clock import Clock, ClockType

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from embodied_r_ros.types.deltas import Rung
    from rclpy.node import Node

# Runs also where no ROS clock does.
STEADY = Clock(clock_type=ClockType.STEADY_TIME)
_PERIOD_S = 1.0


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

    def tick(self) -> None:
        """Count an event."""
        self.count += 1
        self._times.append(time.monotonic())

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
