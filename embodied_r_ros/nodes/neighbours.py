# SPDX-License-Identifier: Apache-2.0
"""A node's neighbours in the graph: whether its topics have them, and their QoS fits.

Also publishers whose first messages wait for a reader.
"""

from __future__ import annotations

from collections import deque
import threading
import time
from typing import Any, TYPE_CHECKING

from embodied_r_ros.nodes.diagnostics import Health, Level
from rclpy.qos import qos_check_compatible, QoSCompatibility

if TYPE_CHECKING:
    from collections.abc import Iterator

    from embodied_r_ros.nodes.node_base import ManagedNode
    from rclpy.node import Node
    from rclpy.publisher import Publisher
    from rclpy.qos import QoSProfile
    from rclpy.topic_endpoint_info import TopicEndpointInfo

# Discovery takes so long, on a busy machine.
_DISCOVERY_S = 5.0
_LOOK_S = 0.5  # a look takes a millisecond or two
# Every node has them, whatever listens.
_OF_ROS = {'/rosout', '/parameter_events'}


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
                yield Health(Level.WARN, f'no publisher of {topic}: start {sender}')

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


_READER_WAIT_S = 2.0
_MATCH_S = 0.25  # so long after a reader was found, it has found the publisher as well
_WATCH_S = 0.05
_MAX_HELD = 10


class PatientPublisher:
    """A publisher whose first messages wait until a reader was found, a short while at most.

    What is published before two ends know each other reaches no one. A robot that stands still
    has no second keyframe to make up for the first one.
    """

    def __init__(self, node: ManagedNode, publisher: Publisher) -> None:
        """Wait for a reader of a publisher, from now on, while the node is active."""
        self._publisher = publisher
        self._lock = threading.Lock()
        self._held: deque[Any] = deque()
        self._is_patient = True
        self._end_s = time.monotonic() + _READER_WAIT_S
        self._timer = node.every(_WATCH_S, self._watch)

    def publish(self, msg: Any) -> None:
        """Publish a message, or keep it until a reader was found. From any thread."""
        with self._lock:
            self._held.append(msg)
            if not self._is_patient or len(self._held) > _MAX_HELD:
                self._release()

    def _watch(self) -> None:
        now_s = time.monotonic()
        if self._publisher.get_subscription_count():
            self._end_s = min(self._end_s, now_s + _MATCH_S)
        if now_s >= self._end_s:
            with self._lock:
                self._is_patient = False
                self._release()
            self._timer.cancel()

    def _release(self) -> None:
        while self._held:
            self._publisher.publish(self._held.popleft())
