# SPDX-License-Identifier: Apache-2.0
"""Does a camera publish, and do its stamps fit the clock? For `embodied-r doctor`."""

from __future__ import annotations

from itertools import pairwise
import time
from typing import Any, NamedTuple, TYPE_CHECKING

from embodied_r_ros.bags.messages import stamp_ns_from_msg
from embodied_r_ros.nodes import topics
from embodied_r_ros.nodes.ros_types import message_class
import rclpy
from rclpy.context import Context
from rclpy.executors import SingleThreadedExecutor
from rclpy.node import Node

if TYPE_CHECKING:
    from collections.abc import Sequence

_KINDS = ('sensor_msgs/msg/Image', 'sensor_msgs/msg/CompressedImage')
_LOOK_S = 5.0  # for topics; discovery takes less, but on a busy machine
_LISTEN_S = 2.0


class _Image(NamedTuple):
    age_s: float
    number: int | None  # as its publisher counts


def look_for_camera(wanted_topic: str = '') -> dict[str, Any]:
    """Listen to the images that are published.

    Args:
        wanted_topic: Topic to listen to; empty: the first one with images.

    Returns:
        `topics` with images, the `topic` that was listened to (empty: none), `rate_hz`,
        `age_s`: how old the newest image was by its stamp (None: none came), and `lost`: images
        that were published meanwhile and did not come (None: the middleware does not tell).
    """
    context = Context()
    rclpy.init(context=context)
    node = Node('doctor', context=context)
    executor = SingleThreadedExecutor(context=context)
    executor.add_node(node)
    try:
        topics = _topics(node, executor, wanted_topic)
        topic = next((name for name in topics if name == wanted_topic or not wanted_topic), '')
        images = _listen(node, executor, topic, topics[topic]) if topic else []
        is_one = bool(topic) and node.count_publishers(topic) == 1
    finally:
        executor.shutdown()
        node.destroy_node()
        rclpy.try_shutdown(context=context)
    return {
        'topics': list(topics),
        'topic': topic,
        'rate_hz': round(len(images) / _LISTEN_S, 1),
        'age_s': round(images[-1].age_s, 3) if images else None,
        'lost': lost_count([image.number for image in images]) if is_one else None,
    }


def lost_count(numbers: Sequence[int | None]) -> int | None:
    """How many images of one publisher did not come, by the numbers of those that did.

    Args:
        numbers: Of the images that came, as the publisher counts; None: the middleware does not
            tell.

    Returns:
        None where it is unknown.
    """
    valid = [number for number in numbers if number is not None]
    if not valid or len(valid) < len(numbers):
        return None
    # A publisher that was started again counts from one again.
    return sum(max(0, after - before - 1) for before, after in pairwise(valid))


def _topics(node: Node, executor: SingleThreadedExecutor, wanted_topic: str) -> dict[str, str]:
    end = time.monotonic() + _LOOK_S
    while True:
        kinds_by_topic = {
            name: kind
            for name, kinds in sorted(node.get_topic_names_and_types())
            for kind in kinds
            if kind in _KINDS and node.count_publishers(name)
        }
        if (
            time.monotonic() > end
            or wanted_topic in kinds_by_topic
            or (kinds_by_topic and not wanted_topic)
        ):
            return kinds_by_topic
        executor.spin_once(timeout_sec=0.1)


def _listen(node: Node, executor: SingleThreadedExecutor, topic: str, kind: str) -> list[_Image]:
    """The images that come, in order."""
    images: list[_Image] = []

    def take(msg: Any, info: dict[str, int | None]) -> None:
        now_ns = node.get_clock().now().nanoseconds
        age_s = (now_ns - stamp_ns_from_msg(msg.header.stamp)) / 1e9
        images.append(_Image(age_s, info.get('publication_sequence_number')))

    node.create_subscription(message_class(kind), topic, take, topics.SENSOR)
    end = time.monotonic() + _LISTEN_S
    while (left_s := end - time.monotonic()) > 0:
        executor.spin_once(timeout_sec=left_s)
    return images
