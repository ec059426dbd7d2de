# SPDX-License-Identifier: Apache-2.0
"""The scene of a running robot for whoever asks its tools: it listens, and says nothing.

It hears deltas and maps, has no parameters of its own, publishes nothing and calls no service.
"""

from __future__ import annotations

from contextlib import contextmanager
import threading
from typing import Any, TYPE_CHECKING

from embodied_r_msgs.msg import LandmarkArray, SemanticDelta
from embodied_r_ros.bags.messages import stamp_ns_from_msg
from embodied_r_ros.common.errors import InputError
from embodied_r_ros.core.scene.map_relations import age_text
from embodied_r_ros.core.scene.memory import LiveMemory, MemoryConfig
from embodied_r_ros.core.scene.tools import Scene
from embodied_r_ros.core.types.geometry import NS_PER_S
from embodied_r_ros.core.types.landmarks import SceneMap
from embodied_r_ros.data.own_messages import delta_from_msg, scene_map_from_msg
from embodied_r_ros.nodes import topics
from embodied_r_ros.nodes.node_base import when_clock_jumps_back
from embodied_r_ros.nodes.run import spin_some
import rclpy
from rclpy.context import Context
from rclpy.exceptions import NameValidationException
from rclpy.executors import SingleThreadedExecutor
from rclpy.node import Node
from rclpy.parameter import Parameter
from rclpy.signals import SignalHandlerOptions
from sensor_msgs.msg import TimeReference

if TYPE_CHECKING:
    from collections.abc import Iterator

_LOOK_S = 0.2  # between looks at whether to end


class LiveScene(Node):
    """Keeps what the running episode has shown, and the newest map. Asked from any thread."""

    def __init__(self, **options: Any) -> None:
        """Listen; options are those of a node."""
        super().__init__(
            'live_scene', enable_rosout=False, start_parameter_services=False, **options
        )
        self._memory = LiveMemory(MemoryConfig())
        self._map = SceneMap()  # never changed, only replaced
        self._jump = when_clock_jumps_back(self, self._memory.reset)
        self.create_subscription(SemanticDelta, 'semantic_delta', self._take_delta, topics.RESULT)
        self.create_subscription(TimeReference, 'unchanged', self._take_unchanged, topics.RESULT)
        self.create_subscription(LandmarkArray, 'landmarks', self._take_map, topics.LATCHED)

    def scene(self) -> Scene:
        """What is known now."""
        deltas = self._memory.deltas()
        newest_ns = max((delta.stamp_ns for delta in deltas), default=0)
        return Scene(deltas, self._map, now_ns=max(newest_ns, self._now_ns()))

    def latest(self) -> dict[str, Any]:
        """How old the newest observation is, what it shows, and how much is known in all."""
        deltas = self._memory.deltas()
        value = {'observations': len(deltas), 'landmarks': len(self._map.landmarks)}
        if not deltas:
            topic = self.resolve_topic_name('semantic_delta')
            text = f'Nothing was heard on {topic} yet: see that a robot runs in this namespace '
            return {**value, 'text': f'{text}and domain, and that its camera moves.'}
        newest = max(deltas, key=lambda delta: delta.stamp_ns)
        age_ns = max(0, self._now_ns() - max(newest.stamp_ns, newest.seen_ns))
        return {
            **value,
            'stamp_ns': newest.stamp_ns,
            'age_s': round(age_ns / NS_PER_S, 3),
            'camera': newest.camera,
            'change': newest.change,
            'text': f'The newest observation is {age_text(age_ns)} old.',
        }

    def _now_ns(self) -> int:
        return int(self.get_clock().now().nanoseconds)

    def _take_delta(self, msg: SemanticDelta) -> None:
        self._memory.add(delta_from_msg(msg))

    def _take_unchanged(self, msg: TimeReference) -> None:
        keyframe_ns = stamp_ns_from_msg(msg.time_ref)
        self._memory.confirm(msg.source, keyframe_ns, stamp_ns_from_msg(msg.header.stamp))

    def _take_map(self, msg: LandmarkArray) -> None:
        self._map = scene_map_from_msg(msg)


@contextmanager
def listening(namespace: str = '', *, use_sim_time: bool = False) -> Iterator[LiveScene]:
    """Listen to a robot in a thread.

    Args:
        namespace: Of its nodes; empty: none.
        use_sim_time: Whether its time is that of `/clock`.

    Raises:
        InputError: The namespace is none, or ROS does not start.
    """
    context = Context()
    try:
        rclpy.init(context=context, signal_handler_options=SignalHandlerOptions.NO)
        node = LiveScene(
            context=context,
            namespace=topics.full_name('', namespace),
            parameter_overrides=[Parameter('use_sim_time', value=use_sim_time)],
        )
    except (RuntimeError, NameValidationException) as error:
        rclpy.try_shutdown(context=context)
        msg = f'cannot listen in namespace {namespace!r}: {" ".join(str(error).split())}'
        raise InputError(msg) from None
    executor = SingleThreadedExecutor(context=context)
    executor.add_node(node)
    end = threading.Event()

    def spin() -> None:
        while not end.is_set():
            spin_some(executor, _LOOK_S)

    thread = threading.Thread(target=spin, name='live scene', daemon=True)
    thread.start()
    try:
        yield node
    finally:
        end.set()
        thread.join()
        executor.shutdown()
        node.destroy_node()
        rclpy.try_shutdown(context=context)
