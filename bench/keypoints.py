# SPDX-License-Identifier: Apache-2.0
"""Keypoints of simulated demonstrations against those that are known by construction.

A found keypoint is right when it is told while the arm is at a waypoint (or up to a tolerance
before or after), no other one was matched to that waypoint, and its reason is the waypoint's: a
stop, or a motion of the gripper. Timing is that of right ones, from the end of the commanded
motion, or from the command to the gripper. The baseline is the rule of ARM.
"""

from __future__ import annotations

from dataclasses import dataclass
import json
from pathlib import Path
import tempfile
from typing import Any, TYPE_CHECKING

from embodied_r_ros.arm.demonstration import DemonstrationTruth, TRUTH_TOPIC
from embodied_r_ros.arm.keypoint_rules import find_keypoints, RULES
from embodied_r_ros.bags.reader import open_bag, read_values
from embodied_r_ros.cli.arguments import some_count
from embodied_r_ros.episodes.demonstrations import read_demonstration
from embodied_r_ros.sim.arm.demonstrations import generate
from embodied_r_ros.sim.arm.tasks import TASKS
from embodied_r_ros.sim.runs import SimArmConfig
import numpy as np

from bench.report import Budget, print_budgets

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from embodied_r_ros.arm.demonstration import Keypoint, TrueKeypoint

_TOLERANCE_NS = 250_000_000
_LEAST = 0.9  # precision and recall of the rule in seconds


@dataclass(frozen=True)
class Match:
    """A demonstration's keypoints against the truth."""

    task: str
    rule: str
    count: int
    true: int
    right: int
    late_s: tuple[float, ...]  # of the right ones
    apart_m: tuple[float, ...]  # from the commanded position


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    add = parser.add_argument
    add(
        '--episodes', type=some_count, default=10, help='demonstrations of each task (%(default)s)'
    )
    add('--rate', type=float, default=20.0, help='recorded states per second (%(default)s)')
    add('--noise', type=float, default=1.0, help='times the usual noise (%(default)s)')
    add('--seed', type=int, default=33000, help='of the demonstrations (%(default)s)')
    add('--json', type=Path, metavar='FILE', help='write the figures here too')


def main(args: argparse.Namespace) -> int:
    """Measure, print, and tell whether the budgets are met."""
    matches: list[Match] = []
    with tempfile.TemporaryDirectory() as scratch:
        for task in TASKS:
            config = SimArmConfig(task, args.rate, images=False, noise=args.noise)
            out = Path(scratch) / task
            for bag in generate(config, args.seed, args.episodes, out):
                matches += [_match(bag, task, rule) for rule in RULES]
    figures = [
        summary([m for m in matches if m.rule == rule and task in (m.task, 'all')], task, rule)
        for rule in RULES
        for task in (*TASKS, 'all')
    ]
    print(
        'rule       task     true  found  precision  recall   late p50   p95 [s]   apart p50 [m]'
    )
    for row in figures:
        print(
            '{rule:10} {task:7} {true:5} {found:6} {precision:10.3f} {recall:7.3f} '
            '{late_p50_s:10.3f} {late_p95_s:9.3f} {apart_p50_m:15.4f}'.format(**row)
        )
    ours = next(row for row in figures if row['rule'] == 'seconds' and row['task'] == 'all')
    budgets = [
        Budget(f'{name} of the rule in seconds', float(ours[name]), _LEAST, '', at_least=True)
        for name in ('precision', 'recall')
    ]
    print_budgets(budgets)
    if args.json:
        report = {'figures': figures, 'budgets': [budget.to_json() for budget in budgets]}
        args.json.write_text(json.dumps(report, indent=2) + '\n')
    return 0 if all(budget.is_met for budget in budgets) else 1


def _match(bag: Path, task: str, rule: str) -> Match:
    with open_bag(bag) as reader:
        [text] = read_values(reader, [TRUTH_TOPIC], lambda msg: str(msg.data))
        shown = read_demonstration(reader)
    _, keypoints = find_keypoints(shown, rule)
    return match(task, rule, keypoints, DemonstrationTruth.from_json(text).keypoints)


def match(
    task: str, rule: str, keypoints: Sequence[Keypoint], true: Sequence[TrueKeypoint]
) -> Match:
    """Match found keypoints with true ones, the earliest that fits each."""
    free, late, apart = list(true), [], []
    for keypoint in keypoints:
        fitting = next((truth for truth in free if _fits(keypoint, truth)), None)
        if fitting is None:
            continue
        free.remove(fitting)
        late.append((keypoint.stamp_ns - fitting.stamp_ns) / 1e9)
        apart.append(
            float(np.linalg.norm(np.subtract(keypoint.position or np.nan, fitting.position)))
        )
    return Match(task, rule, len(keypoints), len(true), len(late), tuple(late), tuple(apart))


def _fits(keypoint: Keypoint, truth: TrueKeypoint) -> bool:
    is_then = truth.stamp_ns - _TOLERANCE_NS <= keypoint.stamp_ns <= truth.until_ns + _TOLERANCE_NS
    # How a demonstration ends is a stop too.
    return is_then and (keypoint.reason == 'gripper') == (truth.reason == 'gripper')


def summary(matches: Sequence[Match], task: str, rule: str) -> dict[str, Any]:
    """Figures of some demonstrations together."""
    hits, true, right = (
        sum(getattr(m, name) for m in matches) for name in ('count', 'true', 'right')
    )
    late = [value for m in matches for value in m.late_s] or [float('nan')]
    apart = [value for m in matches for value in m.apart_m] or [float('nan')]
    return {
        'rule': rule,
        'task': task,
        'true': true,
        'found': hits,
        'precision': right / hits if hits else float('nan'),
        'recall': right / true if true else float('nan'),
        'late_p50_s': float(np.percentile(late, 50)),
        'late_p95_s': float(np.percentile(late, 95)),
        'apart_p50_m': float(np.percentile(apart, 50)),
    }
