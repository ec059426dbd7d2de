# SPDX-License-Identifier: Apache-2.0
"""Does a camera publish, and do its stamps fit the clock? For `embodied-r doctor`."""

from __future__ import annotations

from functools import partial
import time
from typing import Any

from embodied_r_ros.conversions import stamp_ns_from_msg
from embodied_r_ros.nodes import qos
from embodied_r_ros.nodes.ros_types import message_class
import rclpy
from rclpy.context import Context
from rclpy.executors import SingleThreadedExecutor
from rclpy.node import Node

_KINDS = ('sensor_msgs/msg/Image', 'sensor_msgs/msg/CompressedImage')
_LOOK_S = 5.0  # for topics; discovery takes less, but on a busy machine
_LISTEN_S = 2.0


def look_for_camera(wanted: str = '') -> dict[str, Any]:
    """Listen to the images that are published.

    Args:
        wanted: Topic to listen to; empty: the first one with images.

    Returns:
        `topics` with images, the `topic` that was listened to (empty: none), `rate_hz`, and
        `age_s`: how old the newest image was by its stamp (None: none came).
    """
    context = Context()
    rclpy.init(context=context)
    node = Node('doctor', context=context)
    executor = SingleThreadedExecutor(context=context)
    executor.add_node(node)
    try:
        topics = _topics(node, executor, wanted)
        topic = next((name for name in topics if name == wanted or not wanted), '')
        ages = _listen(node, executor, topic, topics[topic]) if topic else []
    finally:
        executor.shutdown()
        node.destroy_node()
        rclpy.try_shutdown(context=context)
    rate_hz = round(len(ages) / _LISTEN_S, 1)
    age_s = round(ages[-1], 3) if ages else None
    return {'topics': list(topics), 'topic': topic, 'rate_hz': rate_hz, 'age_s': age_s}


def _topics(node: Node, executor: SingleThreadedExecutor, wanted: str) -> dict[str, str]:
    end = time.monotonic() + _LOOK_S
    while True:
        found = {
            name: kind
            for name, kinds in sorted(node.get_topic_names_and_types())
            for kind in kinds
            if kind in _KINDS and node.count_publishers(name)
        }
        if time.monotonic() > end or wanted in found or (found and not wanted):
            return found
        executor.spin_once(timeout_sec=0.1)


def _listen(node: Node, executor: SingleThreadedExecutor, topic: str, kind: str) -> list[float]:
    """Ages of the images that come [s], by their stamps."""
    ages: list[float] = []

    def take(msg: Any, ages: list[float]) -> None:
        now_ns = node.get_clock().now().nanoseconds
        ages.append((now_ns - stamp_ns_from_msg(msg.header.stamp)) / 1e9)

    node.create_subscription(message_class(kind), topic, partial(take, ages=ages), qos.SENSOR)
    end = time.monotonic() + _LISTEN_S
    while (left_s := end - time.monotonic()) > 0:
        executor.spin_once(timeout_sec=left_s)
    return ages
