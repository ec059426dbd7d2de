# SPDX-License-Identifier: Apache-2.0
"""A question over ROS with 32 deltas in memory: time to the first text and to the whole answer.

The shipped reasoner behind `transformers serve`, `spatial_reasoner` and the asker are three
processes. The times are those that each answer carries, from the goal's arrival.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
import json
import math
import os
from pathlib import Path
import tempfile
from typing import TYPE_CHECKING

from embodied_r_msgs.msg import SemanticDelta
from embodied_r_ros.cli.arguments import some_count
from embodied_r_ros.common.files import shared_path
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
from embodied_r_ros.serving.served import served_model
import numpy as np

from bench.report import Budget, print_budgets

if TYPE_CHECKING:
    import argparse

    from embodied_r_ros.core.chat.settings import ChatConfig
    from embodied_r_ros.nodes.demo.client import DemoClient

_DELTAS = 32
_TIMEOUT_S = 60.0
_FIRST_TEXT_LIMIT_S = 1.0
_MAP_ANSWER_LIMIT_S = 2.0
_MAP_QUESTION = Question('How far away is the red tall object?')
_QUESTION = Question(
    'Which way does the robot face now, compared with the start?',
    (
        'the same way as at the start',
        'to the left of it',
        'to the right of it',
        'the opposite way',
    ),
)
_ITEMS = (
    Item('red tall object', ItemStatus.VISIBLE, math.radians(30), math.radians(-10), 0.2, 2.1),
    Item('blue round object', ItemStatus.VISIBLE, 0.0, 0.0, 0.2, 1.4),
)


@dataclass(frozen=True)
class AskingFigures:
    """What was measured [s]."""

    asks: int
    refused: int
    first_text_p50_s: float
    first_text_p99_s: float
    answer_p50_s: float


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument('--asks', type=some_count, default=10, help='how often to ask')
    parser.add_argument(
        '--model', type=Path, metavar='FOLDER', help='of the reasoner (default: models/arm)'
    )
    parser.add_argument(
        '--map', action='store_true', help='ask about the scene map, which the prompt then holds'
    )
    parser.add_argument('--json', type=Path, help='write the figures to this file')


def main(args: argparse.Namespace) -> int:
    """Measure, and tell whether the budget is met."""
    model = args.model or shared_path('models', 'arm')
    figures = measure(args.asks, model, asks_map=args.map)
    budget = Budget(
        'question to first text, p50', figures.first_text_p50_s, _FIRST_TEXT_LIMIT_S, 's'
    )
    print(
        f'{figures.asks} asks with {_DELTAS} deltas, {figures.refused} refused; first text after '
        f'{figures.first_text_p50_s:.2f} s (p50), {figures.first_text_p99_s:.2f} s (p99); whole '
        f'answer after {figures.answer_p50_s:.2f} s (p50)'
    )
    budgets = [budget]
    if args.map:
        budgets.append(
            Budget('question to answer, p50', figures.answer_p50_s, _MAP_ANSWER_LIMIT_S, 's')
        )
    print_budgets(budgets)
    if args.json:
        args.json.write_text(json.dumps(asdict(figures), indent=2) + '\n')
    return 0 if all(budget.is_met for budget in budgets) else 1


def measure(asks: int, model: Path, *, asks_map: bool) -> AskingFigures:
    """Start everything, ask once to warm up, and then so many times.

    Args:
        asks: How many times.
        model: Folder of the reasoner.
        asks_map: Ask about the scene map, with it in the prompt.
    """
    question = _MAP_QUESTION if asks_map else _QUESTION
    environment = transport_environment(os.environ)
    os.environ.update(environment)
    with (
        tempfile.TemporaryDirectory() as scratch,
        served_model(str(model), print) as server,
        NodeProcesses(Path(scratch), environment) as nodes,
        demo_client(lambda line: None) as client,
    ):
        _start(nodes, client, server, uses_map=asks_map)
        client.ask(question, lambda text: None, _TIMEOUT_S)
        answers = [client.ask(question, lambda text: None, _TIMEOUT_S) for _ in range(asks)]
    first = np.array([answer.time_to_first_token_ns for answer, _ in answers]) * 1e-9
    whole = np.array([answer.latency_ns for answer, _ in answers]) * 1e-9
    return AskingFigures(
        asks=asks,
        refused=sum(bool(refusal) for _, refusal in answers),
        first_text_p50_s=float(np.percentile(first, 50)),
        first_text_p99_s=float(np.percentile(first, 99)),
        answer_p50_s=float(np.percentile(whole, 50)),
    )


def _start(
    nodes: NodeProcesses, client: DemoClient, server: ChatConfig, *, uses_map: bool
) -> None:
    chat = {'url': server.url, 'model': server.model}
    # The deltas are of a recording: old ones must do.
    reasoner = {'max_age_s': 3600.0, 'use_map': uses_map}
    nodes.start('spatial_reasoner', {'chat': chat, 'reasoner': reasoner})
    client.await_active(('spatial_reasoner',), _TIMEOUT_S, nodes.check)
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
