# SPDX-License-Identifier: Apache-2.0
"""A live camera: raw 640x480 images at 30 Hz over DDS into the keyframe extractor.

Camera, extractor and observer are three processes, with the transport that the launch files set.
Measured: images lost on the way, time from the image's stamp to its keyframe, and the extractor's
share of a core.
"""

from __future__ import annotations

from array import array
from dataclasses import asdict, dataclass
import json
import os
from pathlib import Path
import subprocess
import sys
import time
from typing import Any, TYPE_CHECKING

import cv2
from diagnostic_msgs.msg import DiagnosticArray
from embodied_r_msgs.msg import Keyframe
from embodied_r_ros.conversions import stamp_ns_from_msg
from embodied_r_ros.nodes import qos
from embodied_r_ros.transport import transport_environment
import numpy as np
import rclpy
from sensor_msgs.msg import Image

from bench.report import Budget, print_budgets

if TYPE_CHECKING:
    import argparse

    from numpy.typing import NDArray
    from rclpy.node import Node

WIDTH, HEIGHT, RATE_HZ = 640, 480, 30.0
_EXTRACTOR = 'from embodied_r_ros.nodes.keyframe_extractor import main; raise SystemExit(main())'
_CAMERA = 'from bench.live import camera; camera()'
_STEP_PX = 16  # how far the view moves to the side per image: a keyframe every 20 images or so
_TIMEOUT_S = 30.0


@dataclass(frozen=True)
class Figures:
    """What was measured."""

    sent: int
    arrived: int
    evaluated: int
    keyframes: int
    latency_p50_s: float
    latency_p99_s: float
    core_share: float


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument('--seconds', type=float, default=60.0, help='how long to send images')
    parser.add_argument('--json', type=Path, help='write the figures to this file')


def main(args: argparse.Namespace) -> int:
    """Measure, and tell whether the budgets are met."""
    figures = measure(round(args.seconds * RATE_HZ))
    budgets = [
        Budget('images lost between camera and extractor', figures.sent - figures.arrived, 0),
        Budget('image stamp to keyframe, p99', figures.latency_p99_s * 1e3, 100.0, 'ms'),
        Budget('share of a core for 640x480 at 30 Hz', figures.core_share, 0.3),
    ]
    print(
        f'{figures.sent} images sent, {figures.arrived} arrived, {figures.evaluated} evaluated; '
        f'{figures.keyframes} keyframes, {figures.latency_p50_s * 1e3:.1f} ms after their images '
        f'(p50), {figures.latency_p99_s * 1e3:.1f} ms (p99)'
    )
    print_budgets(budgets)
    if args.json:
        met = [budget.to_json() for budget in budgets]
        args.json.write_text(json.dumps({**asdict(figures), 'budgets': met}, indent=2) + '\n')
    return 0 if all(budget.is_met for budget in budgets) else 1


def measure(count: int) -> Figures:
    """Send so many images and watch what becomes of them."""
    os.environ.update(transport_environment(os.environ))
    parameters = ['--ros-args', '-p', 'autostart:=true']
    extractor = subprocess.Popen([sys.executable, '-c', _EXTRACTOR, *parameters])
    rclpy.init()
    watcher = _Watcher(rclpy.create_node('watcher'))
    try:
        watcher.wait_for_health()
        sender = subprocess.Popen([sys.executable, '-c', _CAMERA, str(count)])
        before = _cpu_s(extractor.pid)
        watcher.watch(sender)
        share = (_cpu_s(extractor.pid) - before) / (count / RATE_HZ)
    finally:
        extractor.terminate()
        extractor.wait(_TIMEOUT_S)
        rclpy.try_shutdown()
    latencies = np.array(watcher.latencies)
    evaluated = int(watcher.health['images'])
    return Figures(
        sent=count,
        arrived=evaluated + int(watcher.health['dropped_images']),
        evaluated=evaluated,
        keyframes=len(latencies),
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
        node.create_subscription(Keyframe, 'keyframe', self._hear_keyframe, qos.RESULT)
        node.create_subscription(DiagnosticArray, '/diagnostics', self._hear_health, 10)

    def _hear_keyframe(self, msg: Keyframe) -> None:
        now_ns = self._node.get_clock().now().nanoseconds
        self.latencies.append((now_ns - stamp_ns_from_msg(msg.header.stamp)) * 1e-9)

    def _hear_health(self, msg: DiagnosticArray) -> None:
        self.health = {value.key: value.value for value in msg.status[0].values}

    def wait_for_health(self) -> None:
        """Wait until the extractor is active."""
        end = time.monotonic() + _TIMEOUT_S
        while 'images' not in self.health | self._spin():
            if time.monotonic() > end:
                sys.exit('bench: error: the extractor did not become active')

    def watch(self, sender: subprocess.Popen[Any]) -> None:
        """Listen until the sender has ended and the last diagnostics have come."""
        while sender.poll() is None:
            self._spin()
        end = time.monotonic() + 2.5
        while time.monotonic() < end:
            self._spin()

    def _spin(self) -> dict[str, str]:
        rclpy.spin_once(self._node, timeout_sec=0.2)
        return self.health


def camera() -> None:
    """Send images: the process of the camera."""
    count = int(sys.argv[1])
    rclpy.init()
    node = rclpy.create_node('camera')
    publisher = node.create_publisher(Image, 'image', qos.SENSOR)
    views = [array('B', view.tobytes()) for view in _views()]
    while not publisher.get_subscription_count():
        time.sleep(0.05)
    time.sleep(1.0)  # the other side has to find this one too
    start = time.monotonic()
    for index in range(count):
        time.sleep(max(0.0, start + index / RATE_HZ - time.monotonic()))
        msg = Image(encoding='bgr8', width=WIDTH, height=HEIGHT, step=WIDTH * 3)
        msg.data = views[index % len(views)]
        msg.header.stamp = node.get_clock().now().to_msg()
        publisher.publish(msg)
    time.sleep(1.0)
    rclpy.try_shutdown()


def _views() -> list[NDArray[np.uint8]]:
    """Views of a wide textured wall, one step to the side each."""
    blocks = np.random.default_rng(0).integers(0, 255, (48, 300, 3), np.uint8)
    wall = cv2.resize(blocks, (4800, HEIGHT), interpolation=cv2.INTER_CUBIC)
    starts = range(0, 4800 - WIDTH, _STEP_PX)
    return [np.ascontiguousarray(wall[:, x : x + WIDTH], np.uint8) for x in starts]
