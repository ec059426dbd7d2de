# SPDX-License-Identifier: Apache-2.0
"""Model servers that die, hang and lie while both nodes work: what their callbacks take meanwhile.

`spatial_reasoner` and `semantic_perceiver` run as processes, each with a model server that is told
to misbehave and one that stands in. Keyframes come twice a second, questions one after the other.
Measured for every fault: how long each callback held the executor, who answered, and how long the
primary took to climb back. The time that a node waited for a processor that other programs had is
left out.
"""

from __future__ import annotations

from collections import Counter
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
import json
import os
from pathlib import Path
import tempfile
import threading
import time
from typing import Any, TYPE_CHECKING

import cv2
from embodied_r_msgs.msg import Keyframe
from embodied_r_ros.bags.own_messages import keyframe_to_msg
from embodied_r_ros.keyframes import selector
from embodied_r_ros.nodes import topics
from embodied_r_ros.nodes.demo.client import demo_client
from embodied_r_ros.nodes.topics import ROS_MESSAGES
from embodied_r_ros.nodes.transport import transport_environment
from embodied_r_ros.reasoning.question import Question
from embodied_r_ros.types.answers import Freshness
from embodied_r_ros.types.deltas import Rung
from embodied_r_ros.types.images import encode_image
import numpy as np

from bench.faulty_server import BEHAVIOURS, FaultyServer
from bench.report import Budget, print_budgets
from bench.timed_node import Callbacks, TimedNode

if TYPE_CHECKING:
    import argparse

    from embodied_r_ros.nodes.demo.client import DemoClient
    from embodied_r_ros.types.answers import Answer

_LIMIT_MS = 20.0
_TIMEOUT_S = 60.0
_DEADLINE_S = 4.0
_KEYFRAME_S = 0.5
_QUESTION = Question('Which way is the red object?', ('left', 'right'))
_LEFT = '<think>It was left.</think><answer>left</answer>'
# A reply to both kinds of questions that a perceiver puts.
_SCENE = json.dumps(
    {
        'visible': True,
        'text': 'A red chair.',
        'summary': 'A red chair.',
        'items': [],
        'visible_text': [],
        'motions': [{'kind': 'cannot_tell', 'amount': 'moderate'}],
    }
)


@dataclass
class FaultPhase:
    """A stretch of time with one fault."""

    fault: str
    start_ns: int = 0
    end_ns: int = 0
    answers: Counter[str] = field(default_factory=Counter)  # by rung
    longest_s: float = 0.0  # from question to answer
    wrongly_fresh: int = 0  # answers of a lower rung, or of none, that are called fresh
    back_s: float = float('nan')  # from the end of the fault to the primary's next answer


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument('--seconds', type=float, default=5.0, help='how long each fault lasts')
    parser.add_argument('--away', type=float, default=30.0, help='how long the killed one is away')
    parser.add_argument('--json', type=Path, help='write the figures to this file')


def main(args: argparse.Namespace) -> int:
    """Measure, and tell whether the limit is kept."""
    os.environ.update(transport_environment(os.environ))
    with tempfile.TemporaryDirectory() as scratch:
        phases, callbacks = measure(args.seconds, args.away, Path(scratch))
    figures = [figures_of(phase, callbacks) for phase in phases]
    print_table(figures)
    budgets = [
        *callback_budgets(figures, tuple(callbacks)),
        Budget('answers called fresh that are not', sum(p.wrongly_fresh for p in phases), 0),
        Budget('longest question', max(p.longest_s for p in phases), 1.25 * _DEADLINE_S, 's'),
    ]
    print_budgets(budgets)
    if args.json:
        args.json.write_text(json.dumps(figures, indent=2) + '\n')
    return 0 if all(budget.is_met for budget in budgets) else 1


def measure(
    seconds: float, away_s: float, folder: Path
) -> tuple[list[FaultPhase], dict[str, Callbacks]]:
    """Go through all faults; gives the phases, and the callbacks of each node."""
    with ExitStack() as stack:
        lm = stack.enter_context(FaultyServer('large'))
        small = stack.enter_context(FaultyServer('small', _LEFT))
        vlm = stack.enter_context(FaultyServer('vlm', _SCENE))
        client = stack.enter_context(demo_client(lambda line: None))
        nodes = [
            TimedNode('spatial_reasoner', _reasoner(lm, small), folder),
            TimedNode('semantic_perceiver', _perceiver(vlm), folder),
        ]
        for node in nodes:
            client.await_active([node.name], _TIMEOUT_S, node.check)
        bench = _Bench(client, (lm, vlm))
        bench.warm_up()
        phases = [bench.phase(fault, seconds) for fault in BEHAVIOURS]
        phases.append(bench.absence(away_s))
        bench.stop.set()
        return phases, {node.name: node.end() for node in nodes}


def _reasoner(large: FaultyServer, small: FaultyServer) -> dict[str, object]:
    return {
        'chat': {'url': large.url, 'model': large.name},
        'local': small.url,
        'reasoner': {
            'focus': 'always',
            'focus_keyframes': 1,
            'max_age_s': 8.0,
            'deadline_s': _DEADLINE_S,
        },
        'standing_question': _QUESTION.text,
        'standing_options': list(_QUESTION.options),
    }


def _perceiver(vlm: FaultyServer) -> dict[str, object]:
    return {
        'perceiver': 'vlm',
        'chat': {'url': vlm.url, 'model': vlm.name},
        'vlm': {'cache_entries': 0, 'deadline_s': 3.0},
    }


class _Bench:
    """Shows keyframes all the time, and asks while servers misbehave."""

    def __init__(self, client: DemoClient, servers: tuple[FaultyServer, ...]) -> None:
        self._client, self._servers = client, servers
        self._publisher = client.node.create_publisher(Keyframe, 'keyframe', topics.RESULT)
        self.stop = threading.Event()
        threading.Thread(target=self._show, daemon=True).start()

    def warm_up(self) -> None:
        """Wait until questions are answered."""
        self._client.await_listeners({'keyframe': 2, 'semantic_delta': 2}, _TIMEOUT_S)
        self._client.spin_until(lambda: bool(self._client.deltas), _TIMEOUT_S)
        self._ask_until_primary(FaultPhase('warm-up'))

    def phase(self, fault: str, seconds: float) -> FaultPhase:
        """Ask while the servers have a fault, and then until the primary answers again."""
        phase = FaultPhase(fault, time.monotonic_ns())
        for server in self._servers:
            server.behave(fault)
        self._ask_for(phase, seconds)
        return self._recovered(phase)

    def absence(self, seconds: float) -> FaultPhase:
        """The servers are killed, and come back after a while."""
        phase = FaultPhase(f'away for {seconds:.0f} s', time.monotonic_ns())
        for server in self._servers:
            server.kill()
        self._ask_for(phase, seconds)
        return self._recovered(phase)

    def _recovered(self, phase: FaultPhase) -> FaultPhase:
        for server in self._servers:
            if not server.is_alive():
                server.start()
            server.behave('well')
        start = time.monotonic()
        self._ask_until_primary(phase)
        phase.back_s = time.monotonic() - start
        phase.end_ns = time.monotonic_ns()
        return phase

    def _ask_for(self, phase: FaultPhase, seconds: float) -> None:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self._ask(phase)

    def _ask_until_primary(self, phase: FaultPhase) -> None:
        end = time.monotonic() + _TIMEOUT_S
        while self._ask(phase).model.rung is not Rung.PRIMARY and time.monotonic() < end:
            pass

    def _ask(self, phase: FaultPhase) -> Answer:
        start = time.monotonic()
        answer, _ = self._client.ask(_QUESTION, lambda text: None, _DEADLINE_S)
        phase.longest_s = max(phase.longest_s, time.monotonic() - start)
        phase.answers[answer.model.rung.name.lower()] += 1
        is_fresh = answer.freshness is Freshness.FRESH
        phase.wrongly_fresh += is_fresh and answer.model.rung is not Rung.PRIMARY
        self._client.spin_until(lambda: False, 0.05)
        return answer

    def _show(self) -> None:
        """Publish keyframes of a wall that is passed by. Runs in a thread of its own."""
        blocks = np.random.default_rng(0).integers(0, 255, (48, 300, 3), np.uint8)
        wall = cv2.resize(blocks, (4800, 480), interpolation=cv2.INTER_CUBIC)
        views = [np.ascontiguousarray(wall[:, x : x + 640], np.uint8) for x in range(0, 4096, 256)]
        images = [encode_image(view) for view in views]
        count = 0
        while not self.stop.wait(_KEYFRAME_S):
            keyframe = selector.Keyframe(
                id=count,
                stamp_ns=self._client.node.get_clock().now().nanoseconds,
                image=images[count % len(images)],
                reason=selector.KeyframeReason.LOW_OVERLAP,
                reference_id=max(0, count - 1),
            )
            self._publisher.publish(keyframe_to_msg(ROS_MESSAGES, keyframe))
            count += 1


def figures_of(phase: FaultPhase, callbacks: dict[str, Callbacks]) -> dict[str, Any]:
    """Figures of a phase, by name."""
    row = {
        **asdict(phase),
        'answers': dict(phase.answers),
        'seconds': (phase.end_ns - phase.start_ns) * 1e-9,
    }
    for name, all_of_them in callbacks.items():
        among = all_of_them.between(phase.start_ns, phase.end_ns)
        held_ms, wall_ms = among.held_ms(), among.wall_ns * 1e-6
        row[f'{name}_callbacks'] = len(held_ms)
        row[f'{name}_p99_ms'] = float(np.percentile(held_ms, 99))
        row[f'{name}_max_ms'] = float(held_ms.max())
        row[f'{name}_wall_max_ms'] = float(wall_ms.max())
    return row


def callback_budgets(figures: list[dict[str, Any]], names: tuple[str, ...]) -> list[Budget]:
    """What callbacks may take: 20 ms, and the longest twice that of servers that are well.

    On a machine that is busy with other work, callbacks are late without any fault too.
    """
    well, *faults = figures
    budgets = []
    for name in names:
        p99_ms = max(row[f'{name}_p99_ms'] for row in faults)
        longest_ms = max(row[f'{name}_max_ms'] for row in faults)
        limit_ms = max(_LIMIT_MS, 2 * well[f'{name}_max_ms'])
        budgets.append(Budget(f'{name}: callback, p99', p99_ms, _LIMIT_MS, 'ms'))
        budgets.append(Budget(f'{name}: longest callback', longest_ms, limit_ms, 'ms'))
    return budgets


def print_table(figures: list[dict[str, Any]]) -> None:
    """Print one line for each fault."""
    nodes = ('spatial_reasoner', 'semantic_perceiver')
    print(
        f'{"fault":15} {"reasoner: n":>12} {"p99 ms":>7} {"max ms":>7} {"perceiver: n":>13} '
        f'{"p99 ms":>7} {"max ms":>7} {"longest s":>10} {"back s":>7}  answers'
    )
    for row in figures:
        cells = [
            f'{row[f"{name}_callbacks"]:>{width}} {row[f"{name}_p99_ms"]:7.1f} '
            f'{row[f"{name}_max_ms"]:7.1f}'
            for name, width in zip(nodes, (12, 13), strict=True)
        ]
        counts = ', '.join(f'{count} {rung}' for rung, count in row['answers'].items())
        print(
            f'{row["fault"]:15} {" ".join(cells)} {row["longest_s"]:10.1f} {row["back_s"]:7.1f}'
            f'  {counts}'
        )
