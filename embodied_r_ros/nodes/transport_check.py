# SPDX-License-Identifier: Apache-2.0
"""A check that camera images arrive: raw images from one process to another, and a count.

Usage as a program: python -m embodied_r_ros.nodes.transport_check publish|receive SETTINGS
"""

from __future__ import annotations

from array import array
import json
import os
import subprocess
import sys
import time
from typing import Any, TYPE_CHECKING

from embodied_r_ros.common.errors import EmbodiedRError
from embodied_r_ros.nodes import topics
from embodied_r_ros.nodes.transport import transport_environment
import rclpy
from rclpy.qos import QoSProfile, ReliabilityPolicy
from sensor_msgs.msg import Image
from std_msgs.msg import Empty

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rclpy.node import Node

_TOPIC = 'embodied_r_transport_check'
_READY = 'embodied_r_transport_ready'  # the receiver says that images reach it
_WARM_UP = 'warm-up'  # frame_id of the images before that, which do not count
_RATE_HZ = 30.0
_FIND_TIMEOUT_S = 20.0
_SILENCE_S = 2.0  # what has not come this long after the last image is lost


def measure(
    width: int = 640,
    height: int = 480,
    count: int = 120,
    reliability: str = 'best_effort',
    environment: Mapping[str, str] | None = None,
    publisher_environment: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """Send raw bgr8 images at 30 Hz from one process to another and count what arrives.

    Args:
        width: Width of the images [px].
        height: Height of the images [px].
        count: Images to send.
        reliability: 'best_effort' or 'reliable', of both ends.
        environment: Environment of both processes; None: this one, with the shipped transport.
        publisher_environment: That of the publisher, where it differs.

    Returns:
        `sent`, `received`, `reliability`, `pids` of publisher and receiver, and the time from
        publishing to receipt, `latency_p50_s` and `latency_p99_s` (None where nothing arrived).

    Raises:
        EmbodiedRError: The processes did not find each other, or one failed.
    """
    settings = {
        'width': width,
        'height': height,
        'count': count,
        'reliability': reliability,
    }
    if environment is None:
        environment = {**os.environ, **transport_environment(os.environ)}
    limit_s = _FIND_TIMEOUT_S * 2 + count / _RATE_HZ * 2 + _SILENCE_S
    receiver = _start('receive', settings, environment)
    publisher = _start('publish', settings, publisher_environment or environment)
    try:
        publication = _result(publisher, limit_s)
        reception = _result(receiver, limit_s)
    finally:
        for process in (publisher, receiver):
            process.kill()
            process.wait(_FIND_TIMEOUT_S)
    return {
        'sent': publication['count'],
        'received': reception['count'],
        'reliability': reliability,
        'pids': [publication['pid'], reception['pid']],
        'latency_p50_s': reception['latency_p50_s'],
        'latency_p99_s': reception['latency_p99_s'],
    }


def _start(
    role: str, settings: Mapping[str, Any], environment: Mapping[str, str]
) -> subprocess.Popen[str]:
    command = [sys.executable, '-m', __spec__.name, role, json.dumps(settings)]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, env=dict(environment), stdout=pipe, stderr=pipe, text=True)


def _result(process: subprocess.Popen[str], timeout_s: float) -> dict[str, Any]:
    try:
        out, err = process.communicate(timeout=timeout_s)
    except subprocess.TimeoutExpired:
        msg = f'the transport check did not end within {timeout_s:.0f} s'
        raise EmbodiedRError(msg) from None
    if process.returncode:
        reason = (err.strip().splitlines() or ['no reason given'])[-1]
        msg = f'the transport check failed: {reason}'
        raise EmbodiedRError(msg)
    counts: dict[str, Any] = json.loads(out.splitlines()[-1])
    return counts


def _profile(reliability: str) -> QoSProfile:
    policy = ReliabilityPolicy[reliability.upper()]
    return QoSProfile(depth=topics.SENSOR.depth, reliability=policy)


def _publish(node: Node, settings: Mapping[str, Any]) -> dict[str, Any]:
    publisher = node.create_publisher(Image, _TOPIC, _profile(settings['reliability']))
    width, height = settings['width'], settings['height']
    data = array('B', bytes(width * height * 3))
    msg = Image(encoding='bgr8', width=width, height=height, step=width * 3, data=data)
    msg.header.frame_id = _WARM_UP
    ready: list[Empty] = []
    node.create_subscription(Empty, _READY, ready.append, topics.LATCHED)
    end = time.monotonic() + _FIND_TIMEOUT_S
    while not ready:
        if time.monotonic() > end:
            sys.exit(f'no receiver was found within {_FIND_TIMEOUT_S:.0f} s')
        publisher.publish(msg)
        rclpy.spin_once(node, timeout_sec=0.1)
    msg.header.frame_id = ''
    start = time.monotonic()
    for index in range(settings['count']):
        time.sleep(max(0.0, start + index / _RATE_HZ - time.monotonic()))
        sec, nanosec = divmod(time.monotonic_ns(), 1_000_000_000)
        msg.header.stamp.sec, msg.header.stamp.nanosec = sec, nanosec
        publisher.publish(msg)
    # The last image needs its publisher until it has left.
    time.sleep(_SILENCE_S)
    return {'count': settings['count'], 'pid': os.getpid()}


def _receive(node: Node, settings: Mapping[str, Any]) -> dict[str, Any]:
    latencies: list[float] = []
    ready = node.create_publisher(Empty, _READY, topics.LATCHED)

    def note(msg: Image) -> None:
        if msg.header.frame_id == _WARM_UP:
            ready.publish(Empty())
            return
        sent_ns = msg.header.stamp.sec * 1_000_000_000 + msg.header.stamp.nanosec
        latencies.append((time.monotonic_ns() - sent_ns) * 1e-9)

    node.create_subscription(Image, _TOPIC, note, _profile(settings['reliability']))
    end = time.monotonic() + _FIND_TIMEOUT_S + settings['count'] / _RATE_HZ
    while len(latencies) < settings['count'] and time.monotonic() < end:
        before = len(latencies)
        rclpy.spin_once(node, timeout_sec=_SILENCE_S)
        if latencies and len(latencies) == before:
            break
    ascending = sorted(latencies)
    return {
        'count': len(latencies),
        'pid': os.getpid(),
        'latency_p50_s': ascending[len(ascending) // 2] if ascending else None,
        'latency_p99_s': ascending[len(ascending) * 99 // 100] if ascending else None,
    }


def main() -> None:
    """Run one end: `publish` or `receive`, with its settings."""
    role, settings = sys.argv[1], json.loads(sys.argv[2])
    rclpy.init()
    node = rclpy.create_node(f'embodied_r_transport_{role}')
    try:
        counts = (_publish if role == 'publish' else _receive)(node, settings)
    finally:
        node.destroy_node()
        rclpy.try_shutdown()
    sys.stdout.write(json.dumps(counts) + '\n')


if __name__ == '__main__':
    main()
