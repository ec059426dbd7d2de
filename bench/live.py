# SPDX-License-Identifier: Apache-2.0
"""A live camera: raw images of 640x480 at 30 Hz over DDS into the keyframe extractor.

Camera, extractor and observer are three processes, with the transport that the launch files set.
Measured: images lost on the way, time from the image's stamp to its keyframe, and the extractor's
share of a core.
"""

from __future__ import annotations

from array import array
from dataclasses import asdict, dataclass
import os
from pathlib import Path
import subprocess
import sys
import time
from typing import Any, TYPE_CHECKING

import cv2
from diagnostic_msgs.msg import DiagnosticArray
from embodied_r_msgs.msg import Keyframe
from embodied_r_ros.bags.messages import stamp_ns_from_msg
from embodied_r_ros.common.processes import tie_command
from embodied_r_ros.nodes import topics
from embodied_r_ros.nodes.transport import socket_limit, transport_environment
import numpy as np
import rclpy
from sensor_msgs.msg import Image

from bench.report import Budget, judge

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping

    from numpy.typing import NDArray
    from rclpy.node import Node

RATE_HZ = 30.0
_EXTRACTOR = 'from embodied_r_ros.nodes.keyframe_extractor import main; raise SystemExit(main())'
_CAMERA = 'from bench.live import camera; camera()'
_ROOT = Path(__file__).resolve().parents[1]
_VIEWS = 45  # which the camera shows there and back
_STEP = 1 / 40  # of its width: how far it moves per image; a keyframe every 20 images or so
_SIZE = 640, 480  # [px]
_TIMEOUT_S = 60.0
_DRAIN_S = 3.0


@dataclass(frozen=True)
class LiveFigures:
    """What was measured. Latencies are NaN where no keyframe came."""

    sent: int
    arrived: int
    evaluated: int
    keyframes: int
    latency_p50_s: float  # from an image's stamp to its keyframe
    latency_p99_s: float
    core_share: float

    @property
    def lost(self) -> int:
        """Images between camera and extractor."""
        return self.sent - self.arrived


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument('--seconds', type=float, default=60.0, help='how long to send images')
    parser.add_argument('--json', type=Path, help='write the figures to this file')


def main(args: argparse.Namespace) -> int:
    """Measure, and tell whether the budgets are met."""
    figures = measure(round(args.seconds * RATE_HZ))
    budgets = [
        Budget('images lost between camera and extractor', figures.lost, 0),
        Budget('image stamp to keyframe, p99', figures.latency_p99_s * 1e3, 100.0, 'ms'),
        Budget('share of a core for 640x480 at 30 Hz', figures.core_share, 0.3),
    ]
    print(
        f'{figures.sent} images sent, {figures.arrived} arrived, {figures.evaluated} evaluated; '
        f'{figures.keyframes} keyframes, {figures.latency_p50_s * 1e3:.1f} ms after their images '
        f'(p50), {figures.latency_p99_s * 1e3:.1f} ms (p99); '
        f'net.core.rmem_max {socket_limit() or "not known"}'
    )
    return judge(budgets, args.json, asdict(figures))


def measure(count: int) -> LiveFigures:
    """Send so many images and watch what becomes of them."""
    ours = {**os.environ, **transport_environment(os.environ)}
    os.environ.update(ours)  # for the watcher
    words = ['-p', 'autostart:=true', '-p', 'image_transport:=raw']
    command = [sys.executable, '-c', _EXTRACTOR, '--ros-args', *words]
    extractor = subprocess.Popen(tie_command(command), env=ours)
    sender: subprocess.Popen[bytes] | None = None
    rclpy.init()
    watcher = _Watcher(rclpy.create_node('watcher'))
    try:
        watcher.wait_for_health()
        sender = start_camera(count, ours)
        before = _cpu_s(extractor.pid)
        watcher.watch(sender, count)
        share = (_cpu_s(extractor.pid) - before) / (count / RATE_HZ)
    finally:
        for process in filter(None, (sender, extractor)):
            process.terminate()
            process.wait(_TIMEOUT_S)
        watcher.close()
        rclpy.try_shutdown()
    return _figures(count, watcher, share)


def start_camera(count: int, environment: Mapping[str, str]) -> subprocess.Popen[bytes]:
    """Start a process that sends so many images, once somebody listens, and then ends."""
    command = tie_command([sys.executable, '-c', _CAMERA, str(count)])
    return subprocess.Popen(command, cwd=_ROOT, env=dict(environment))


def _figures(count: int, watcher: _Watcher, share: float) -> LiveFigures:
    latencies = np.array(watcher.latencies or [np.nan])
    return LiveFigures(
        sent=count,
        arrived=watcher.arrived(),
        evaluated=int(watcher.health['images']),
        keyframes=len(watcher.latencies),
        latency_p50_s=float(np.percentile(latencies, 50)),
        latency_p99_s=float(np.percentile(latencies, 99)),
        core_share=share,
    )


def _cpu_s(pid: int) -> float:
    """Processor time that a process has used, in user and system mode [s] (proc(5))."""
    fields = Path(f'/proc/{pid}/stat').read_text().rpartition(')')[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf('SC_CLK_TCK')


class _Watcher:
    """Hears keyframes and the extractor's diagnostics."""

    def __init__(self, node: Node) -> None:
        self.latencies: list[float] = []
        self.health: dict[str, str] = {}
        self._node = node
        node.create_subscription(Keyframe, 'keyframe', self._hear_keyframe, topics.RESULT)
        node.create_subscription(DiagnosticArray, '/diagnostics', self._hear_health, 10)

    def _hear_keyframe(self, msg: Keyframe) -> None:
        now_ns = self._node.get_clock().now().nanoseconds
        self.latencies.append((now_ns - stamp_ns_from_msg(msg.header.stamp)) * 1e-9)

    def _hear_health(self, msg: DiagnosticArray) -> None:
        if msg.status[0].name.endswith(': keyframe_extractor'):
            self.health = {value.key: value.value for value in msg.status[0].values}

    def arrived(self) -> int:
        """Images that reached the extractor, those included that it dropped itself."""
        return int(self.health['images']) + int(self.health['dropped_images'])

    def wait_for_health(self) -> None:
        """Wait until the extractor is active."""
        end = time.monotonic() + _TIMEOUT_S
        while 'images' not in self.health | self._spin():
            if time.monotonic() > end:
                sys.exit('bench: error: the extractor did not become active')

    def watch(self, sender: subprocess.Popen[Any], count: int) -> None:
        """Listen until the sender has ended, and everything has come or nothing comes any more.

        The sender tells its end by its exit; one that fails ends the bench.
        """
        while sender.poll() is None:
            self._spin()
        if sender.returncode:
            sys.exit(f'bench: error: the camera ended with code {sender.returncode}')
        end, before = time.monotonic() + _DRAIN_S, self.arrived()
        while time.monotonic() < end and self.arrived() < count:
            self._spin()
            if self.arrived() > before:
                end, before = time.monotonic() + _DRAIN_S, self.arrived()

    def close(self) -> None:
        """Remove the node."""
        self._node.destroy_node()

    def _spin(self) -> dict[str, str]:
        rclpy.spin_once(self._node, timeout_sec=0.2)
        return self.health


def camera() -> None:
    """Send images: the process of the camera."""
    count = int(sys.argv[1])
    rclpy.init()
    node = rclpy.create_node('camera')
    publisher = node.create_publisher(Image, 'image', topics.SENSOR)
    there = [image_message(view) for view in wall_views(*_SIZE)]
    messages = there + there[-2:0:-1]
    while not publisher.get_subscription_count():
        time.sleep(0.05)
    time.sleep(1.0)  # the other side has to find this one too
    start = time.monotonic()
    for index in range(count):
        time.sleep(max(0.0, start + index / RATE_HZ - time.monotonic()))
        msg = messages[index % len(messages)]
        msg.header.stamp = node.get_clock().now().to_msg()
        publisher.publish(msg)
    time.sleep(1.0)
    rclpy.try_shutdown()


def image_message(view: NDArray[np.uint8]) -> Image:
    """A view as a message without a stamp."""
    height, width = view.shape[:2]
    data = array('B', view.tobytes())
    return Image(encoding='bgr8', width=width, height=height, step=width * 3, data=data)


def wall_views(width: int, height: int) -> list[NDArray[np.uint8]]:
    """Views of a wide textured wall, one step to the side each."""
    step = round(width * _STEP)
    length = width + step * _VIEWS
    blocks = np.random.default_rng(0).integers(0, 255, (48, length * 48 // height, 3), np.uint8)
    wall = cv2.resize(blocks, (length, height), interpolation=cv2.INTER_CUBIC)
    starts = range(0, step * _VIEWS, step)
    return [np.ascontiguousarray(wall[:, x : x + width], np.uint8) for x in starts]
