# SPDX-License-Identifier: Apache-2.0
"""Everything for half an hour: what grows, and what gets lost.

A camera sends raw 640x480 images at 30 Hz to the whole pipeline, each node a process; a question
is asked every 10 s, and the model server is started anew every 2 minutes, with a question while it
is away. Memory, open handles, latencies and drops are sampled. Judged is by how much each has
grown over the last four fifths of the time, by its slope; the reasoner may grow by the deltas that
it keeps, too. Exit code 1: something has grown by more than its limit, the reasoner keeps more
deltas than it should, an image was lost on its way, or a question got no answer though the server
was up.
"""

from __future__ import annotations

from contextlib import contextmanager, ExitStack
from dataclasses import dataclass, replace
import os
from pathlib import Path
import tempfile
import threading
import time
from typing import Any, TYPE_CHECKING

from diagnostic_msgs.msg import DiagnosticArray
from embodied_r_msgs.action import Ask
from embodied_r_msgs.msg import Keyframe
from embodied_r_ros.bags.messages import stamp_ns_from_msg
from embodied_r_ros.common.errors import EmbodiedRError
from embodied_r_ros.core.chat.settings import ChatConfig
from embodied_r_ros.core.reasoning.question import Question
from embodied_r_ros.data.questions.wordings import FACINGS
from embodied_r_ros.nodes import topics
from embodied_r_ros.nodes.demo.client import demo_client
from embodied_r_ros.nodes.run import NodeProcesses
from embodied_r_ros.nodes.transport import transport_environment
from embodied_r_ros.serving.profiles import load_profile, Profile, write_profile
from embodied_r_ros.serving.servers import ModelServers

from bench.faulty_server import FaultyServer, free_port
from bench.live import RATE_HZ, start_camera
from bench.report import judge
from bench.soak_record import (
    ANSWERED,
    budgets_of,
    growths,
    REASONER,
    Record,
    Request,
    Sampler,
    UNREADABLE,
)

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator
    import subprocess

    from embodied_r_ros.nodes.demo.client import DemoClient


_NODES = (
    'keyframe_extractor',
    'semantic_perceiver',
    REASONER,
    'proposal_gate',
    'episode_recorder',
)
# What the nodes say on /diagnostics of what they could not take.
_DROPS = {
    'keyframe_extractor': ('dropped_images',),
    'semantic_perceiver': ('coalesced', 'discarded'),
    'spatial_reasoner': ('turned_away',),
    'episode_recorder': ('dropped',),
}
_QUESTION = Question(
    'Which way does the robot face now, compared with the start?',
    tuple(FACINGS.values()),
)
_START_S = 180.0
_ANSWER_S = 60.0
_DRAIN_S = 3.0

_SAYS = ' motion(turn)'  # as the profile's reader writes calls


class LightServer(FaultyServer):
    """A server without a model."""

    def __init__(self) -> None:
        """Start it."""
        super().__init__('light', _SAYS)
        self.chat = ChatConfig(url=self.url, model=self.name)


class ShippedServer:
    """The server of the shipped model."""

    def __init__(self, folder: Path) -> None:
        """Start it; its logs go into the folder."""
        self._folder = folder
        config = load_profile('embedded').servers['reasoner']
        config = replace(config, port=free_port(), promoted='')
        self._profile = Profile('soak', servers={'reasoner': config})
        self.chat = config.client()
        self.start()

    @property
    def pid(self) -> int:
        """Id of the process that was started last."""
        return self._servers.running[0].pid

    def start(self) -> None:
        """Start it and wait until it is healthy.

        Raises:
            ModelError: It ended, or was not healthy in time.
        """
        self._servers = ModelServers(self._profile, self._folder)
        self._servers.start()

    def kill(self) -> None:
        """End it, and wait until it is gone."""
        self._servers.close()


@dataclass(frozen=True)
class Plan:
    """What happens when."""

    seconds: float
    question_s: float  # from one question to the next
    restart_s: float  # from one start of the model server to the next
    sample_s: float
    server: str  # 'shipped' or 'light'


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    add = parser.add_argument
    add('--minutes', type=float, default=30.0, help='how long (%(default)s)')
    add('--question', type=float, default=10.0, metavar='S', help='between questions')
    add('--restart', type=float, default=120.0, metavar='S', help='between restarts of the server')
    add('--sample', type=float, default=5.0, metavar='S', help='between samples')
    light = 'shipped: what `embedded` serves; light: a server without a model, for small machines'
    add('--server', choices=('shipped', 'light'), default='shipped', help=light)
    add('--out', type=Path, default=Path('out/soak'), help='folder of soak.json')


def main(args: argparse.Namespace) -> int:
    """Soak, write, and tell whether everything stayed flat."""
    plan = Plan(args.minutes * 60, args.question, args.restart, args.sample, args.server)
    args.out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        record = measure(plan, Path(scratch))
    budgets = budgets_of(record, _NODES)
    answered, unreadable = (
        sum(request.outcome == outcome for request in record.requests)
        for outcome in (ANSWERED, UNREADABLE)
    )
    print(
        f'{record.sent} images sent, {record.arrived} arrived, {len(record.keyframes)} keyframes; '
        f'{len(record.requests)} questions, {answered} answered, {unreadable} not readably; '
        f'{len(record.restarts_s)} restarts of the server; all of it in {args.out}'
    )
    figures = {'growths': growths(record), **record.to_json()}
    return judge(budgets, args.out / 'soak.json', figures)


def measure(plan: Plan, folder: Path) -> Record:
    """Run everything for a while.

    Args:
        plan: What happens when.
        folder: For parameters, logs and the episode.

    Raises:
        EmbodiedRError: A node or the model server failed.
    """
    environment = transport_environment(os.environ)
    os.environ.update(environment)
    with ExitStack() as stack:
        server: LightServer | ShippedServer = (
            ShippedServer(folder) if plan.server == 'shipped' else LightServer()
        )
        stack.callback(server.kill)
        nodes = stack.enter_context(NodeProcesses(folder, environment))
        client = stack.enter_context(demo_client(lambda line: None))
        _start(nodes, server.chat, folder)
        client.await_active(_NODES, _START_S, nodes.check)
        client.start_episode('soak')
        soak = _Soak(plan, nodes, client, server)
        soak.run()
        client.stop_episode()
        return soak.record


def _start(nodes: NodeProcesses, chat: ChatConfig, folder: Path) -> None:
    nodes.start('keyframe_extractor', {})
    nodes.start('semantic_perceiver', {'perceiver': 'classical'})
    profile = write_profile(folder / 'reasoner.yaml', chat, load_profile('embedded').reasoner)
    nodes.start('spatial_reasoner', {'profile': profile})
    nodes.start('proposal_gate', {})
    nodes.start('episode_recorder', {'bag_dir': str(folder / 'episodes')})


class _Soak:
    """Asks, starts the server anew, and notes what it hears meanwhile."""

    def __init__(
        self,
        plan: Plan,
        nodes: NodeProcesses,
        client: DemoClient,
        server: LightServer | ShippedServer,
    ) -> None:
        self.record = Record()
        self._plan, self._nodes, self._client, self._server = plan, nodes, client, server
        self._health: dict[str, dict[str, str]] = {}
        self._pids = {**nodes.pids(), 'model server': server.pid}
        self._sampler = Sampler(
            self._processes, self._drops, self._deltas, plan.sample_s, self.record
        )
        client.node.create_subscription(Keyframe, 'keyframe', self._hear_keyframe, topics.RESULT)
        client.node.create_subscription(DiagnosticArray, '/diagnostics', self._hear_health, 10)

    def run(self) -> None:
        """Go through the plan."""
        count = max(1, round(self._plan.seconds * RATE_HZ))
        camera = start_camera(count, os.environ)
        try:
            self._await_first_delta()
            with self._sampler:
                self._go_on_while(camera)
        finally:
            camera.terminate()
            camera.wait(_DRAIN_S * 10)
        self._client.spin_until(lambda: self._arrived() >= count, _DRAIN_S)
        self.record.sent, self.record.arrived = count, self._arrived()

    def _await_first_delta(self) -> None:
        """Wait until there is something to ask about; the time counts from here."""
        deltas = self._client.deltas
        if not self._client.spin_until(lambda: bool(deltas), _START_S, self._nodes.check):
            msg = f'nothing was perceived within {_START_S:.0f} s'
            raise EmbodiedRError(msg)

    def _go_on_while(self, camera: subprocess.Popen[bytes]) -> None:
        next_question, next_restart = self._plan.question_s, self._plan.restart_s
        while camera.poll() is None:
            self._nodes.check()
            if self._sampler.now_s() >= next_restart:
                self._restart()
                next_restart += self._plan.restart_s
            if self._sampler.now_s() >= next_question:
                self._ask()
                next_question += self._plan.question_s
            self._client.spin_until(lambda: False, 0.2)
            # What the client keeps for the demonstration would grow here for ever.
            self._client.keyframes.clear()
            self._client.deltas.clear()
        if camera.returncode:
            msg = f'the camera ended with code {camera.returncode}'
            raise EmbodiedRError(msg)

    def _restart(self) -> None:
        self.record.restarts_s.append(self._sampler.now_s())
        self._server.kill()
        self._ask(is_away=True)
        with self._listening():
            self._server.start()
        self._pids['model server'] = self._server.pid

    @contextmanager
    def _listening(self) -> Iterator[None]:
        """Hear what comes while this thread waits for something else."""
        stop = threading.Event()
        words = (stop.is_set, _START_S * 10)
        thread = threading.Thread(target=self._client.spin_until, args=words)
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join()

    def _ask(self, *, is_away: bool = False) -> None:
        start_s, began = self._sampler.now_s(), time.monotonic()
        times: tuple[float, int, int] = (0.0, 0, 0)
        try:
            answer, refusal = self._client.ask(_QUESTION, lambda text: None, _ANSWER_S)
            is_readable = self._client.error_code != Ask.Result.ERROR_FORMAT
            outcome = (refusal or ANSWERED) if is_readable else UNREADABLE
            first_token_s = answer.time_to_first_token_ns * 1e-9
            times = (first_token_s, len(answer.prompt), len(answer.completion))
        except EmbodiedRError as error:
            outcome = str(error)
        latency_s = time.monotonic() - began
        self.record.requests.append(Request(start_s, latency_s, outcome, is_away, *times))

    def _hear_keyframe(self, msg: Keyframe, info: dict[str, Any]) -> None:
        if not self._sampler.is_running:
            return
        # When it came, not when this busy process took it.
        latency_ns = info['received_timestamp'] - stamp_ns_from_msg(msg.header.stamp)
        self.record.keyframes.append((self._sampler.now_s(), latency_ns * 1e-9))

    def _hear_health(self, msg: DiagnosticArray) -> None:
        for status in msg.status:
            name = status.name.rpartition(': ')[2]
            self._health[name] = {value.key: value.value for value in status.values}

    def _processes(self) -> dict[str, int]:
        return dict(self._pids)

    def _arrived(self) -> int:
        health = self._health.get('keyframe_extractor', {})
        return int(health.get('images', 0)) + int(health.get('dropped_images', 0))

    def _deltas(self) -> int:
        return int(self._health.get(REASONER, {}).get('deltas', 0))

    def _drops(self) -> dict[str, int]:
        return {
            name: sum(int(health.get(key, 0)) for key in keys)
            for name, keys in _DROPS.items()
            if (health := self._health.get(name)) is not None
        }
