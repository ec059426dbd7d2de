# SPDX-License-Identifier: Apache-2.0
"""How well a text policy leads the simulated arm: many trials in one process, without ROS.

It is asked what the nodes would ask, of what the classical perceiver sees, with the same
candidates and controller. Beside it the oracle, which reads the same text by the rules that a
policy learns; the expert, which knows where things are: the ceiling; and two choices without a
model: the floor. The real nodes: `embodied-r sim arm --closed-loop`.
"""

from __future__ import annotations

from contextlib import ExitStack
import json
from pathlib import Path
import sys
from typing import Any, TYPE_CHECKING

from embodied_r_ros.arm.task import success_rate, TrialConfig
from embodied_r_ros.common.errors import EmbodiedRError
from embodied_r_ros.core.chat.client import HttpChatClient
from embodied_r_ros.core.reasoning.reasoner import Reasoner
from embodied_r_ros.core.types.answers import AnswerKind
from embodied_r_ros.serving.profiles import reasoner_config
from embodied_r_ros.serving.served import served_model
from embodied_r_ros.sim.arm.trials import baseline, TrialPlan
from embodied_r_ros.sim.runs import SimArmConfig
from tqdm import tqdm

from training.data.arm_trials import oracle, robot_of, run_trial

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from embodied_r_ros.arm.robot import Robot
    from embodied_r_ros.core.reasoning.question import Question
    from embodied_r_ros.core.types.deltas import SemanticDelta

    from training.data.arm_trials import Answerer

_USUAL = TrialConfig()
# Who chooses without a model, by name, and what the simulation calls that.
_CHOOSERS = {'expert': 'oracle', 'random': 'random', 'nearest': 'nearest'}
BASELINES = tuple(_CHOOSERS)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    add = parser.add_argument
    add('--model', metavar='DIR_OR_URL', help='the text policy; without, the oracle alone')
    add('--tasks', nargs='+', default=['pick', 'place', 'push'], help='(%(default)s)')
    add('--episodes', type=int, default=20, help='trials of each task (%(default)s)')
    add('--seed', type=int, default=41000, help='of the scenes (%(default)s)')
    add('--robot', default='', help='robot with its candidates (that of the task)')
    add('--token-budget', type=int, help='of the scene in a prompt (that of embedded-arm)')
    help_text = 'answers take so long, with looks meanwhile as live [s] (%(default)s)'
    add('--wait', type=float, default=0.0, metavar='S', help=help_text)
    names = ' '.join(BASELINES)
    add('--beside', nargs='*', choices=BASELINES, default=BASELINES, help=f'any of {names}; all')
    add('--json', type=Path, metavar='FILE', help='write the figures and every step here too')


def main(args: argparse.Namespace) -> int:
    """Measure and print; there is no budget."""
    figures: list[dict[str, Any]] = []
    with ExitStack() as stack:
        answerers: dict[str, Answerer] = {'oracle': oracle}
        if args.model:
            chat = stack.enter_context(served_model(args.model, lambda line: None))
            config = reasoner_config(profile='embedded-arm', token_budget=args.token_budget)
            answerers['policy'] = model(Reasoner(HttpChatClient(chat), config))
        for task in args.tasks:
            plans = [TrialPlan(task, args.seed, index) for index in range(args.episodes)]
            robot = robot_of(task, args.robot)
            row = measure(plans, robot, answerers, args.beside, TrialConfig(wait_s=args.wait))
            figures.append({'task': task, **row})
            rates = ', '.join(f'{name} {value["success_rate"]:.2f}' for name, value in row.items())
            print(f'{task}, {len(plans)} trials: {rates}', flush=True)
            if args.json:
                args.json.write_text(json.dumps(figures, indent=2) + '\n')
    return 0


def measure(
    plans: Sequence[TrialPlan],
    robot: Robot,
    answerers: dict[str, Answerer],
    baselines: Sequence[str] = BASELINES,
    config: TrialConfig = _USUAL,
) -> dict[str, Any]:
    """Rates of success on the same scenes, by who leads, with every step of the trials."""
    camera = SimArmConfig(plans[0].task).camera()
    figures: dict[str, Any] = {}
    for name, answerer in answerers.items():
        trials = [
            run_trial(plan, robot, answerer, config=config)
            for plan in tqdm(plans, name, disable=None)
        ]
        steps = [trial.to_json() for trial in trials]
        figures[name] = {'success_rate': success_rate(trials), 'trials': steps}
    for name in baselines:
        shown = tqdm(plans, name, disable=None)
        trials = [baseline(_CHOOSERS[name], plan, robot, camera, config) for plan in shown]
        figures[name] = {'success_rate': success_rate(trials)}
    return figures


def model(reasoner: Reasoner) -> Answerer:
    """What a model answers."""

    def ask(kind: str, question: Question, deltas: Sequence[SemanticDelta]) -> int | None:
        del kind
        newest_ns = deltas[-1].stamp_ns
        try:
            answer = reasoner.answer(question, deltas, answer_id='bench', now_ns=lambda: newest_ns)
        except EmbodiedRError as error:
            sys.stderr.write(f'{error}\n')
            return None
        return answer.option_index if answer.kind is AnswerKind.CHOICE else None

    return ask
