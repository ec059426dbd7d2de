# SPDX-License-Identifier: Apache-2.0
"""Node `bag_player`: plays a rosbag2 recording, for machines without `ros2 bag`.

Messages leave as they were recorded, stamps included. Playing starts when the node is activated
and ends when it is deactivated; every activation starts at the beginning.
"""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, ClassVar, TYPE_CHECKING

from embodied_r_ros.bags.playback import PlaybackConfig, Player
from embodied_r_ros.bags.reader import open_bag
from embodied_r_ros.common.errors import BagError
from embodied_r_ros.common.settings import setting, Settings
from embodied_r_ros.core.types.geometry import NS_PER_S
from embodied_r_ros.nodes import topics
from embodied_r_ros.nodes.diagnostics import Health, Level
from embodied_r_ros.nodes.node_base import ManagedNode
from embodied_r_ros.nodes.run import run
from embodied_r_ros.nodes.topics import installed_class
from rclpy.qos import DurabilityPolicy, QoSProfile, ReliabilityPolicy
from rosbags.interfaces import QosDurability
from rosgraph_msgs.msg import Clock
from std_srvs.srv import Trigger

if TYPE_CHECKING:
    from collections.abc import Sequence

    from embodied_r_ros.bags.storage import Connection
    from rclpy.publisher import Publisher


@dataclass(frozen=True)
class BagPlayerConfig(Settings):
    """What to play."""

    bag: str = setting('', 'rosbag2 folder, or a .mcap or .db3 file', read_only=True)
    topics: tuple[str, ...] = setting(
        ('*',), 'topics to play, as patterns such as /camera/*', read_only=True
    )
    exclude_topics: tuple[str, ...] = setting(
        ('/clock',), 'topics not to play, as patterns; they win over `topics`', read_only=True
    )
    exit_at_end: bool = setting(False, 'end the process when the bag has been played')


class BagPlayer(ManagedNode):
    """Publishes the messages of a bag when they are due."""

    groups: ClassVar = {BagPlayerConfig: '', PlaybackConfig: 'playback'}

    def __init__(self, **options: Any) -> None:
        super().__init__('bag_player', **options)

    def configure(self) -> None:
        """Open the bag and announce its topics.

        Raises:
            BagError: It cannot be read, or has nothing to play.
        """
        config = self.parameters.config(BagPlayerConfig)
        if not config.bag:
            msg = 'parameter bag is empty: name the recording to play'
            raise BagError(msg)
        self._path = Path(config.bag).expanduser()
        with open_bag(self._path) as reader:
            chosen = [c for c in reader.connections if is_chosen(c.topic, config)]
            topics = sorted({c.topic for c in reader.connections})
        self._outputs = dict(self._announce(chosen))
        if not self._outputs:
            msg = f'{self._path} has no topic to play: it has {", ".join(topics) or "none"}'
            raise BagError(msg)
        self._bag_clock = self.publisher(Clock, '/clock', QoSProfile(depth=1))
        self.serve(Trigger, '~/pause', self._pause)
        self.serve(Trigger, '~/resume', self._resume)

    def activate(self) -> None:
        """Play from the beginning."""
        config = self.parameters.config(PlaybackConfig)
        topics = self._outputs.keys()
        self._player = Player(self._path, topics, config, self._publish, self._tick)
        self._noted_late = 0
        self.while_active.callback(self._player.close)
        self._player.start()
        self.every(0.2, self._look_for_the_end)

    def reconfigure(self) -> None:
        """Take another rate, loop or clock while playing."""
        if self.is_active:
            self._player.configure(self.parameters.config(PlaybackConfig))

    def report(self) -> Health:
        """Say how far the playing is."""
        stats = self._player.stats()
        values = {'published': stats.published, 'late': stats.late, 'loops': stats.loops}
        if stats.error:
            return Health(Level.ERROR, stats.error, values)
        state = 'finished' if stats.is_finished else 'paused' if stats.is_paused else 'playing'
        level = Level.WARN if stats.late > self._noted_late else Level.OK
        self._noted_late = stats.late
        return Health(level, state, values)

    def _announce(self, connections: Sequence[Connection]) -> list[tuple[str, Publisher]]:
        outputs = []
        for connection in connections:
            kind = installed_class(connection.msgtype)
            if kind is None:
                self.get_logger().warning(
                    f'{connection.topic} is not played: {connection.msgtype} is not installed'
                )
                continue
            profile = playing_qos(connection)
            outputs.append((connection.topic, self.publisher(kind, connection.topic, profile)))
        return outputs

    def _publish(self, topic: str, data: bytes) -> None:
        self._outputs[topic].publish(data)

    def _tick(self, bag_ns: int) -> None:
        msg = Clock()
        msg.clock.sec, msg.clock.nanosec = divmod(bag_ns, NS_PER_S)
        self._bag_clock.publish(msg)

    def _pause(self, request: Trigger.Request, response: Trigger.Response) -> Trigger.Response:
        del request
        return self._adjust(response, paused=True)

    def _resume(self, request: Trigger.Request, response: Trigger.Response) -> Trigger.Response:
        del request
        return self._adjust(response, paused=False)

    def _adjust(self, response: Trigger.Response, *, paused: bool) -> Trigger.Response:
        response.success = self.is_active
        response.message = '' if self.is_active else 'the node is not active'
        if self.is_active:
            (self._player.pause if paused else self._player.resume)()
        return response

    def _look_for_the_end(self) -> None:
        stats = self._player.stats()
        if stats.is_finished and self.parameters.config(BagPlayerConfig).exit_at_end:
            self.end_process(1 if stats.error else 0)


def is_chosen(topic: str, config: BagPlayerConfig) -> bool:
    """Tell whether a topic is to be played."""
    is_included = any(fnmatchcase(topic, pattern) for pattern in config.topics)
    return is_included and not any(fnmatchcase(topic, p) for p in config.exclude_topics)


def playing_qos(connection: Connection) -> QoSProfile:
    """QoS to publish a recorded topic with: reliable, so that every subscription matches.

    A topic that was latched is latched again.
    """
    is_latched = any(
        profile.durability == QosDurability.TRANSIENT_LOCAL for profile in connection.qos_profiles
    )
    return QoSProfile(
        depth=topics.LATCHED_OF_MANY.depth if is_latched else topics.RESULT.depth,
        reliability=ReliabilityPolicy.RELIABLE,
        durability=DurabilityPolicy.TRANSIENT_LOCAL if is_latched else DurabilityPolicy.VOLATILE,
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the node."""
    return run(BagPlayer, arguments)
