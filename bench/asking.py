# SPDX-License-Identifier: Apache-2.0
"""A question over ROS to the small model, with 32 deltas in memory: times and memory of it all.

The nodes of a robot, the model's server and the asker are processes. The times of answers are
those that each carries, from the goal's arrival.
"""

from __future__ import annotations

from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass
import math
import os
from pathlib import Path
import re
import tempfile
import time
from typing import Any, TYPE_CHECKING

from embodied_r_msgs.msg import SemanticDelta
from embodied_r_ros.cli.arguments import some_count
from embodied_r_ros.core.reasoning.question import Question
from embodied_r_ros.core.types.deltas import DeltaKind, Item, ItemStatus
from embodied_r_ros.core.types.deltas import SemanticDelta as Delta
from embodied_r_ros.core.types.geometry import Pose
from embodied_r_ros.data.own_messages import delta_to_msg
from embodied_r_ros.nodes import topics
from embodied_r_ros.nodes.demo.client import demo_client
from embodied_r_ros.nodes.run import NodeProcesses
from embodied_r_ros.nodes.topics import ROS_MESSAGES
from embodied_r_ros.nodes.transport import transport_environment
from embodied_r_ros.serving.profiles import load_profile, READER
from embodied_r_ros.serving.servers import ModelServers
import numpy as np

from bench.report import Budget, judge

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

    from embodied_r_ros.nodes.demo.client import DemoClient

_DELTAS = 32
_TIMEOUT_S = 60.0
_NODES = (
    'keyframe_extractor', 'semantic_perceiver', 'spatial_reasoner', 'episode_recorder',
    'proposal_gate', 'goal_gate',
)  # fmt: skip
_QUESTIONS = (
    'How far away is the red tall object?',
    'Which way did you turn in all?',
    'Did you see the blue round object before the red tall one?',
    'How many things have you seen?',
)
_ITEMS = (
    Item('red tall object', ItemStatus.VISIBLE, math.radians(30), math.radians(-10), 0.2, 2.1),
    Item('blue round object', ItemStatus.VISIBLE, 0.0, 0.0, 0.2, 1.4),
)


@dataclass(frozen=True)
class AskingFigures:
    """What was measured."""

    asks: int
    refused: int
    model_ready_s: float
    first_answer_s: float  # from the start of nodes and server
    answer_p50_s: float
    answer_p99_s: float
    memory_mb: float  # of nodes and server, what they share counted once


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument('--asks', type=some_count, default=20, help='how often to ask')
    parser.add_argument('--json', type=Path, help='write the figures to this file')


def main(args: argparse.Namespace) -> int:
    """Measure, and tell whether the budgets are met."""
    figures = measure(args.asks)
    budgets = [
        Budget('model ready', figures.model_ready_s, 3.0, 's'),
        Budget('first answer after the start', figures.first_answer_s, 8.0, 's'),
        Budget('question to answer, p50', figures.answer_p50_s, 1.5, 's'),
        Budget('memory of nodes and server', figures.memory_mb, 800.0, 'MB'),
    ]
    asked = f'{figures.asks} asks with {_DELTAS} deltas, {figures.refused} refused'
    print(f'{asked}; p99 of answers {figures.answer_p99_s:.2f} s')
    return judge(budgets, args.json, asdict(figures)) or int(bool(figures.refused))


def measure(asks: int) -> AskingFigures:
    """Start everything at once, as a launch does, and ask so many times."""
    environment = transport_environment(os.environ)
    os.environ.update(environment)
    start = time.monotonic()
    with ExitStack() as stack:
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        nodes = stack.enter_context(NodeProcesses(scratch, environment))
        for name in _NODES:
            nodes.start(name, _parameters(name, scratch))
        stack.enter_context(ModelServers(load_profile(READER), scratch / 'log'))
        ready_s = time.monotonic() - start
        client = stack.enter_context(demo_client(lambda line: None))
        client.await_active(_NODES, _TIMEOUT_S, nodes.check)
        _publish_deltas(client, nodes)
        answers = []
        for number in range(asks):
            question = Question(_QUESTIONS[number % len(_QUESTIONS)])
            answers.append(client.ask(question, lambda text: None, _TIMEOUT_S))
            if not number:
                first_s = time.monotonic() - start
        memory_mb = sum(map(_shared_out_mb, _descendants(os.getpid())))
    whole = np.array([answer.latency_ns for answer, _ in answers]) * 1e-9
    return AskingFigures(
        asks=asks,
        refused=sum(bool(refusal) for _, refusal in answers),
        model_ready_s=ready_s,
        first_answer_s=first_s,
        answer_p50_s=float(np.percentile(whole, 50)),
        answer_p99_s=float(np.percentile(whole, 99)),
        memory_mb=memory_mb,
    )


def _parameters(name: str, scratch: Path) -> dict[str, Any]:
    """As of a launch; the deltas are of a recording, so that old ones must do."""
    of_node: dict[str, dict[str, Any]] = {
        'spatial_reasoner': {'profile': READER, 'reasoner': {'max_age_s': 3600.0}},
        'episode_recorder': {'bag_dir': str(scratch / 'episodes')},
    }
    return {'autostart_retry_s': 0.5, **of_node.get(name, {})}


def _publish_deltas(client: DemoClient, nodes: NodeProcesses) -> None:
    publisher = client.node.create_publisher(SemanticDelta, 'semantic_delta', topics.RESULT)
    client.await_listeners({'semantic_delta': 2}, _TIMEOUT_S)
    now_ns = client.node.get_clock().now().nanoseconds
    for index in range(_DELTAS):
        publisher.publish(delta_to_msg(ROS_MESSAGES, _delta(index, now_ns)))
        client.spin_until(lambda: False, 0.02)
    client.spin_until(lambda: len(client.deltas) == _DELTAS, _TIMEOUT_S, nodes.check)


def _delta(index: int, now_ns: int) -> Delta:
    """A turn or a step, and what is in view, as a classical perceiver tells it."""
    action = 'turned left 30°' if index % 2 else 'moved forward 0.8 m'
    return Delta(
        stamp_ns=now_ns - (_DELTAS - index) * 10**9,
        kind=DeltaKind.CHANGE if index else DeltaKind.FIRST,
        action=action if index else '',
        change='In view: red tall object 30° left 10° down 2.1 m; blue round object ahead 1.4 m.',
        items=_ITEMS,
        pose=Pose((0.0, 0.0, 1.0), (0.0, 0.0, 0.0, 1.0), 'odom'),
        from_id=max(0, index - 1),
        to_id=index,
    )


def _descendants(pid: int) -> Iterator[int]:
    """The processes that a process has started, and theirs."""
    for folder in Path('/proc').glob('[0-9]*'):
        with suppress(OSError):  # it has ended
            parent = int((folder / 'stat').read_text().rpartition(')')[2].split()[1])
            if parent == pid:
                yield int(folder.name)
                yield from _descendants(int(folder.name))


def _shared_out_mb(pid: int) -> float:
    """Memory of a process, of pages that several have its part (PSS) [MB]."""
    text = Path(f'/proc/{pid}/smaps_rollup').read_text()
    found = re.search(r'^Pss:\s+(\d+) kB$', text, re.MULTILINE)
    assert found
    return int(found[1]) / 1024
