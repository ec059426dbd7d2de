# SPDX-License-Identifier: Apache-2.0
"""What candidates and controller are good for: trials of the simulated arm without a model.

Of the same scenes, candidates and controller: how often an option by lot and the one at the
nearest thing succeed (the floor), and the one nearest to the expert's next waypoint (the ceiling).
Things are known, or seen by the classical perceiver.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, TYPE_CHECKING

from embodied_r_ros.arm.robot import load_robot
from embodied_r_ros.arm.task import success_rate
from embodied_r_ros.sim.arm.tasks import TASKS
from embodied_r_ros.sim.arm.trials import baseline, TrialPlan
from embodied_r_ros.sim.runs import ROBOTS_OF_TASKS, SimArmConfig
from tqdm import tqdm

from bench.report import Budget, print_budgets

if TYPE_CHECKING:
    import argparse

    from embodied_r_ros.arm.robot import Robot
    from embodied_r_ros.types.geometry import Intrinsics

CHOOSERS = ('oracle', 'random', 'nearest')
SIGHTS = ('known', 'seen')
_ROBOT = 'sawyer_sim'
_LEAST = 0.9  # of the oracle, where things are known


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    add = parser.add_argument
    add('--episodes', type=int, default=20, help='trials of each task (%(default)s)')
    add('--seed', type=int, default=41000, help='of the scenes (%(default)s)')
    add('--task', choices=sorted(TASKS), help='one task only')
    add('--sight', choices=SIGHTS, help='things known, or seen, only')
    help_text = f'robot with its candidates ({_ROBOT}; {ROBOTS_OF_TASKS["drawer"]} for the drawer)'
    add('--robot', help=help_text)
    add('--json', type=Path, metavar='FILE', help='write the figures here too')


def main(args: argparse.Namespace) -> int:
    """Measure, print, and tell whether the budget is met."""
    tasks = [args.task] if args.task else list(TASKS)
    sights = [args.sight] if args.sight else list(SIGHTS)
    print('sight  task    trials  oracle  random  nearest')
    figures = []
    for sight in sights:
        for task in tasks:
            robot = load_robot(args.robot or ROBOTS_OF_TASKS.get(task, _ROBOT))
            row = measure(task, sight, args.seed, args.episodes, robot)
            figures.append(row)
            rates = '{oracle:7.2f} {random:7.2f} {nearest:8.2f}'.format(**row)
            print(f'{sight:6} {task:7} {args.episodes:6} {rates}', flush=True)
    budgets = [
        Budget(f'oracle, {row["task"]}, things known', row['oracle'], _LEAST, '', at_least=True)
        for row in figures
        if row['sight'] == 'known'
    ]
    print_budgets(budgets)
    if args.json:
        report = {'figures': figures, 'budgets': [budget.to_json() for budget in budgets]}
        args.json.write_text(json.dumps(report, indent=2) + '\n')
    return 0 if all(budget.is_met for budget in budgets) else 1


def measure(task: str, sight: str, seed: int, trials: int, robot: Robot) -> dict[str, Any]:
    """Rates of success of every chooser."""
    camera: Intrinsics | None = SimArmConfig(task).camera() if sight == 'seen' else None
    plans = [TrialPlan(task, seed, index) for index in range(trials)]
    rates = {
        name: success_rate(
            [
                baseline(name, plan, robot, camera)
                for plan in tqdm(plans, desc=f'{task}, {name}', leave=False, disable=None)
            ]
        )
        for name in CHOOSERS
    }
    return {'task': task, 'sight': sight, 'trials': trials, **rates}
