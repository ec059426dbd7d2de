# SPDX-License-Identifier: Apache-2.0
"""Nodes, the model server and the camera fail: how long until there is a fresh answer again.

All nodes of the launch file, the server of the shipped model and a 30 Hz camera run, and what ends
is started again as `use_respawn:=true` does it. Each node and the model server are killed
(SIGKILL), and the camera is unplugged for a while. Measured from the fault, or for the camera from
when DDS has found its return, until all nodes are active and an answer of the primary model is
FRESH by an image that was taken since. The time that what was started again, or for the camera the
model, waited for a processor that others had is left out, and printed beside.
"""

from __future__ import annotations

from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
import json
import os
from pathlib import Path
import signal
import sys
import tempfile
import threading
import time
from typing import Any, TYPE_CHECKING

from embodied_r_msgs.msg import Answer
from embodied_r_ros.bags.messages import stamp_ns_from_msg
from embodied_r_ros.common.files import shared_path
from embodied_r_ros.common.processes import ChildProcess
from embodied_r_ros.core.types.deltas import Rung
from embodied_r_ros.nodes import topics
from embodied_r_ros.nodes.node_base import RESPAWN_S, RETRY_S
from embodied_r_ros.nodes.run import NodeProcesses, own_environment
import rclpy
from rclpy.context import Context
from sensor_msgs.msg import Image
from std_msgs.msg import String
import yaml

from bench.faulty_server import free_port
from bench.live import image_message, RATE_HZ, wall_views
from bench.report import Budget, judge

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterator, Mapping

NODES = (
    'keyframe_extractor',
    'semantic_perceiver',
    'spatial_reasoner',
    'proposal_gate',
    'episode_recorder',
)
_SERVER = 'model server'
_LIMITS_S = {**dict.fromkeys(NODES, 10.0), _SERVER: 20.0, 'camera': 3.0}
_TIMEOUT_S = 120.0
_WATCH_S = 0.05
# What is killed while it is young leaves shared memory that could be in the making.
_SETTLE_S = 3.0


@dataclass(frozen=True)
class FaultRecovery:
    """What one fault cost."""

    fault: str
    back_s: float  # without the waits; NaN: there was no fresh answer in time
    waited_s: float  # for a processor


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument('--times', type=int, default=3, help='how often each fault happens')
    parser.add_argument('--away', type=float, default=8.0, help='how long the camera is away [s]')
    parser.add_argument('--only', choices=_LIMITS_S, help='this fault alone')
    parser.add_argument('--json', type=Path, help='write the figures to this file')


def main(args: argparse.Namespace) -> int:
    """Measure, and tell whether the worst of each fault is within its limit."""
    faults = [args.only] if args.only else list(_LIMITS_S)
    with tempfile.TemporaryDirectory() as scratch:
        recoveries = measure(faults * args.times, args.away, Path(scratch))
    budgets = []
    for fault in faults:
        times_s = [recovery.back_s for recovery in recoveries if recovery.fault == fault]
        worst = max(times_s, key=lambda back_s: (back_s != back_s, back_s))
        what = 'camera unplugged and back' if fault == 'camera' else f'{fault} killed'
        budgets.append(Budget(f'{what}: fresh answer after', worst, _LIMITS_S[fault], 's'))
    return judge(budgets, args.json, {'recoveries': list(map(asdict, recoveries))})


def measure(faults: list[str], away_s: float, folder: Path) -> list[FaultRecovery]:
    """Let these faults happen, one after the other."""
    environment = own_environment()
    with watching() as watch, plugged_camera() as camera, _running(folder, environment) as kept:
        if not watch.await_fresh(time.time_ns(), NODES):
            sys.exit(f'bench: error: no fresh answer at all: {kept.last_words()}')
        recoveries = []
        for fault in faults:
            time.sleep(_SETTLE_S)
            start = time.monotonic()
            watch.active.discard(fault)
            watch.others = 0
            waited_before_s = 0.0
            if fault == 'camera':
                camera.unplug()
                time.sleep(away_s)
                waited_before_s = kept.waited_s(fault)
                camera.plug()
                start = time.monotonic()
            else:
                kept.kill(fault)
            is_fresh = watch.await_fresh(time.time_ns(), NODES)
            passed_s = time.monotonic() - start if is_fresh else float('nan')
            waited_s = kept.waited_s(fault) - waited_before_s
            recoveries.append(FaultRecovery(fault, passed_s - waited_s, waited_s))
            print(
                f'{fault}: fresh again after {passed_s:.1f} s, {waited_s:.1f} s of them waiting '
                f'for a processor; {watch.others} answers before were not fresh',
                file=sys.stderr,
            )
    return recoveries


class _Watch:
    """Hears which nodes are active, and how fresh the answers are."""

    def __init__(self) -> None:
        self.active: set[str] = set()
        self.others = 0  # answers that were not fresh, or refused
        self._newest_ns = 0  # the newest image that a fresh answer rested on
        self._node = rclpy.create_node('recovery')
        self._node.create_subscription(
            String, 'provenance', self._hear_provenance, topics.LATCHED_OF_MANY
        )
        self._node.create_subscription(Answer, 'answer', self._hear_answer, topics.RESULT)

    def await_fresh(
        self, since_ns: int, nodes: tuple[str, ...], timeout_s: float = _TIMEOUT_S
    ) -> bool:
        """Wait until nodes are active and an answer rests on a later image; False: too long."""
        end = time.monotonic() + timeout_s
        while time.monotonic() < end:
            if self._newest_ns > since_ns and self.active.issuperset(nodes):
                return True
            rclpy.spin_once(self._node, timeout_sec=_WATCH_S)
        return False

    def _hear_provenance(self, msg: String) -> None:
        self.active.add(str(json.loads(msg.data)['node']).removeprefix('/'))

    def _hear_answer(self, msg: Answer) -> None:
        is_fresh = msg.freshness == Answer.FRESHNESS_FRESH
        self.others += not is_fresh
        if is_fresh and msg.model.rung == Rung.PRIMARY.value:
            self._newest_ns = max(self._newest_ns, stamp_ns_from_msg(msg.observation_stamp))


@contextmanager
def watching() -> Iterator[_Watch]:
    """Hear nodes and answers, with ROS as it is set up here."""
    rclpy.init(args=[])
    try:
        yield _Watch()
    finally:
        rclpy.try_shutdown()


class _Camera:
    """A camera that can be unplugged: its publisher goes, and comes back as another one.

    It pans to and fro, and comes back at the farther end: the view of the last keyframe would be
    no new one, and answers would rest on images from before until it has moved on.
    """

    def __init__(self) -> None:
        views = [image_message(view) for view in wall_views(640, 480)]
        self._messages = views + views[-2:0:-1]
        self._count = 0
        self.plug(0.0)

    def plug(self, timeout_s: float = _TIMEOUT_S) -> None:
        """Send images from now on; returns with the first one that DDS has a subscriber for.

        Args:
            timeout_s: How long it waits for a subscriber.
        """
        self._is_away, has_sent = threading.Event(), threading.Event()
        arguments = (self._is_away, has_sent)
        self._thread = threading.Thread(target=self._send, args=arguments, daemon=True)
        self._thread.start()
        has_sent.wait(timeout_s)

    def unplug(self) -> None:
        """Send none any more."""
        self._is_away.set()
        self._thread.join()

    def _send(self, is_away: threading.Event, has_sent: threading.Event) -> None:
        context = Context()
        rclpy.init(args=[], context=context)
        node = rclpy.create_node('camera', context=context)
        publisher = node.create_publisher(Image, 'image', topics.SENSOR)
        half = len(self._messages) // 2
        is_near_start = abs(self._count % len(self._messages) - half) > half / 2
        self._count = half if is_near_start else 0
        while not is_away.wait(1 / RATE_HZ):
            msg = self._messages[self._count % len(self._messages)]
            msg.header.stamp = node.get_clock().now().to_msg()
            publisher.publish(msg)
            if publisher.get_subscription_count():
                has_sent.set()
            self._count += 1
        node.destroy_node()
        rclpy.try_shutdown(context=context)


@contextmanager
def plugged_camera() -> Iterator[_Camera]:
    """Have a camera send images."""
    camera = _Camera()
    try:
        yield camera
    finally:
        camera.unplug()


class _Kept:
    """Nodes and model server, started again when they end, as a launch with respawn does it."""

    def __init__(self, folder: Path, environment: Mapping[str, str]) -> None:
        self._folder, self._environment = folder, {**os.environ, **environment}
        self._nodes = NodeProcesses(folder, environment)
        self._profile = folder / 'served.yaml'
        profile = yaml.safe_load(shared_path('config', 'models', 'embedded.yaml').read_text())
        profile['servers']['reasoner'] |= {'port': free_port(), 'promoted': ''}
        self._profile.write_text(yaml.safe_dump(profile))
        self._is_over = threading.Event()
        self._has_started = threading.Event()
        self._thread = threading.Thread(target=self._keep, daemon=True)
        self._thread.start()
        self._has_started.wait(_TIMEOUT_S)

    def kill(self, name: str) -> None:
        """Kill a node, or the program that `embodied-r serve` runs the model with."""
        os.kill(self._pid(name), signal.SIGKILL)

    def waited_s(self, name: str) -> float:
        """How long what is started again has waited for a processor; for the camera the model."""
        pid = self._pid(name)
        waits = _waits_ns(pid)
        return (waits[str(pid)] if name != 'camera' else sum(waits.values())) / 1e9

    def _pid(self, name: str) -> int:
        return self._nodes.pids().get(name) or _child_of(self._server.pid)

    def last_words(self) -> str:
        """The ends of the logs."""
        logs = sorted(self._folder.glob('*.log'))
        return ' | '.join(f'{log.stem}: {log.read_text()[-200:].strip()}' for log in logs)

    def end(self) -> None:
        """End all of it."""
        self._is_over.set()
        self._thread.join()

    def _keep(self) -> None:
        """Start everything, and again what ends. Children live as long as their thread."""
        starts: dict[str, Callable[[], None]] = {_SERVER: self._serve}
        starts |= {name: lambda name=name: self._start(name) for name in NODES}  # type: ignore[misc]
        for start in starts.values():
            start()
        self._has_started.set()
        while not self._is_over.wait(_WATCH_S):
            for name, start in starts.items():
                is_node = name in NODES
                if self._nodes.has_ended(name) if is_node else self._server.poll() is not None:
                    self._is_over.wait(RESPAWN_S)
                    start()
        self._nodes.close()
        self._server.signal(signal.SIGINT)
        self._server.end(_TIMEOUT_S)

    def _start(self, name: str) -> None:
        own: dict[str, dict[str, Any]] = {
            'spatial_reasoner': {
                'profile': str(self._profile),
                # A kind that the reasoner knows: what it cannot answer in form is refused.
                'standing_question': 'How many red objects has the robot seen?',
                'standing_options': ['0', '1', '2', '3'],
                'standing_rate_hz': 10.0,
            },
            'episode_recorder': {'bag_dir': str(self._folder / 'episodes')},
        }
        self._nodes.start(name, {'autostart_retry_s': RETRY_S, **own.get(name, {})})

    def _serve(self) -> None:
        code = 'import sys; from embodied_r_ros.cli.main import main; sys.exit(main())'
        words = ['serve', str(self._profile), '--log-dir', str(self._folder)]
        command = [sys.executable, '-c', code, *words]
        log = self._folder / 'serve.log'
        self._server = ChildProcess(command, log, environment=self._environment)


def _child_of(parent: int) -> int:
    """Process id of the first child."""
    children = Path(f'/proc/{parent}/task/{parent}/children')
    for thread in children.parents[1].iterdir():
        with suppress(OSError):
            for pid in (thread / 'children').read_text().split():
                return int(pid)
    msg = f'process {parent} has no child'
    raise RuntimeError(msg)


@contextmanager
def _running(folder: Path, environment: Mapping[str, str]) -> Iterator[_Kept]:
    kept = _Kept(folder, environment)
    try:
        yield kept
    finally:
        kept.end()


def _waits_ns(process: int) -> dict[str, int]:
    """Time that each thread of a process has waited for a processor (proc(5), schedstat) [ns]."""
    waits = {}
    for thread in Path(f'/proc/{process}/task').iterdir():
        with suppress(OSError):  # it has just ended
            waits[thread.name] = int((thread / 'schedstat').read_text().split()[1])
    return waits
