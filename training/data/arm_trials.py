# SPDX-License-Identifier: Apache-2.0
"""Rows of trials that an oracle leads: `python -m training.data.arm_trials --out FILE`.

Demonstrations show the way that an expert goes, and what is seen on it. Who leads the arm comes to
other places, and sees what the perceiver makes of a picture with an arm in it: colours on the arm
itself, things that are gone behind it. So the oracle leads simulated trials, slips now
and then, and is asked what to do from there (DAgger, Ross et al. 2011). What it was asked on the
way to success becomes rows, word for word as the nodes would ask it.
"""

from __future__ import annotations

import argparse
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from random import Random
import sys
from typing import Any, TYPE_CHECKING

from embodied_r_ros.arm.proposal import GRIPPER_NEXT, keypoint_question
from embodied_r_ros.arm.robot import load_robot
from embodied_r_ros.arm.table import table_view
from embodied_r_ros.arm.task import Trial, TrialConfig
from embodied_r_ros.common.errors import EmbodiedRError, InputError
from embodied_r_ros.core.reasoning.completions import option_letter
from embodied_r_ros.data.questions.derive import QuestionsConfig
from embodied_r_ros.data.questions.row import QuestionWithSolution, RowBuilder, write_rows
from embodied_r_ros.data.questions.splits import split_of
from embodied_r_ros.sim.arm.trials import ArmChoice, Chooser, ClassicalSight, play, TrialPlan
from embodied_r_ros.sim.runs import ROBOTS_OF_TASKS, SimArmConfig
from tqdm import tqdm

from training.data.arm_reader import position_in, state_in
from training.data.arm_traces import ARM_READERS
from training.run.command import run_command

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from embodied_r_ros.arm.robot import Robot
    from embodied_r_ros.core.reasoning.question import Question
    from embodied_r_ros.core.types.deltas import SemanticDelta
    from embodied_r_ros.data.questions.row import Row
    from embodied_r_ros.sim.arm.trials import Choice

    # Which option, of a kind of question about what was seen; None: it cannot be known.
    Answerer = Callable[[str, Question, Sequence[SemanticDelta]], int | None]

_CLOSED = 'closed'
_USUAL = TrialConfig()
_KINDS = ('waypoint', 'gripper')
_SOURCE = 'oracle'
_NOWHERE = RowBuilder('', '', 'train')  # of a question that becomes no row
_TASKS = ('pick', 'place', 'push', 'stack', 'drawer')  # whose rules the oracle knows


class UnknownError(EmbodiedRError):
    """Whoever was asked cannot know."""


class TextChooser(Chooser):
    """Asks for the position and the gripper as the nodes do."""

    def __init__(self, robot: Robot, task: str, sight: ClassicalSight, answerer: Answerer) -> None:
        self._robot, self._task = robot, task
        self._sight, self._answerer = sight, answerer

    def choose(self, view: Choice) -> ArmChoice:
        """Ask both questions.

        Raises:
            UnknownError: One has no answer.
        """
        metadata = self._robot.metadata
        context = self._task, metadata.frame_id
        where = keypoint_question(*context, view.candidates, (), metadata, view.tool)
        grip = GRIPPER_NEXT.of_task(*context, metadata, view.tool)
        index = self._answer('waypoint', where, view)
        return ArmChoice(index, grip.options[self._answer('gripper', grip, view)] == _CLOSED)

    def _answer(self, kind: str, question: Question, view: Choice) -> int:
        table = table_view(None, self._robot.metadata, self._robot.placing, view.tool)
        index = self._answerer(kind, replace(question, view=table), self._sight.deltas)
        if index is None:
            msg = f'no answer to {kind}'
            raise UnknownError(msg)
        return index


def _row_of(
    builder: RowBuilder,
    name: str,
    kind: str,
    question: Question,
    deltas: Sequence[SemanticDelta],
    solution: str,
    **fields: Any,
) -> Row:
    look = question.view.describe(deltas) if question.view else None
    asked = QuestionWithSolution(kind, question.text, question.options, solution, _SOURCE)
    focus = (asdict(look),) if look else ()
    return builder.row(name, asked, deltas, camera=deltas[-1].camera, focus=focus, **fields)


def oracle(kind: str, question: Question, deltas: Sequence[SemanticDelta]) -> int | None:
    """What follows from the text by the rules that a text policy is taught."""
    trace = ARM_READERS[kind](_row_of(_NOWHERE, kind, kind, question, deltas, ''))
    return question.options.index(trace[1]) if trace else None


@dataclass
class RowRecorder:
    """An answerer of a trial whose questions and answers are kept as rows.

    For each step the position is asked, then the gripper there.
    """

    answerer: Answerer
    builder: RowBuilder
    robot: Robot
    rows: list[Row] = field(default_factory=list)

    def __call__(
        self, kind: str, question: Question, deltas: Sequence[SemanticDelta]
    ) -> int | None:
        """Answer, and keep what was asked and said."""
        index = self.answerer(kind, question, deltas)
        if index is not None:
            step, place = divmod(len(self.rows), len(_KINDS))
            keypoint = self.rows[-1].keypoint if place else position_in(question.options[index])
            row = _row_of(
                self.builder,
                f'{step}/{kind}',
                kind,
                question,
                deltas,
                option_letter(index),
                meta={'robot': self.robot.name, 'state_index': step},
                state=state_in(question.text) or (),
                keypoint=keypoint or (),
                frame_id=self.robot.metadata.frame_id,
                deadband_m=self.robot.questions.deadband_m,
            )
            self.rows.append(row)
        return index


class SlippingChooser(Chooser):
    """Does something else by lot now and then, whatever another one chooses."""

    def __init__(self, chooser: Chooser, share: float, seed: str) -> None:
        """Slip in a share of the choices, 0 to 1."""
        self._chooser, self._share = chooser, share
        self._rng = Random(f'slips:{seed}')

    def choose(self, view: Choice) -> ArmChoice:
        """Choose as the other one does, or any candidate with any gripper."""
        chosen = self._chooser.choose(view)
        if self._rng.random() >= self._share:
            return chosen
        return ArmChoice(self._rng.randrange(len(view.candidates)), self._rng.random() < 0.5)


def robot_of(task: str, file: str = '') -> Robot:
    """The robot of a file; without one, that whose candidates suit a task."""
    return load_robot(file or ROBOTS_OF_TASKS.get(task, 'sawyer_sim_loop'))


def run_trial(
    plan: TrialPlan,
    robot: Robot,
    answerer: Answerer,
    slips: float = 0.0,
    config: TrialConfig = _USUAL,
) -> Trial:
    """One trial; it ends without success where an answer is that nothing can be known.

    Args:
        plan: Which trial.
        robot: The robot, with its candidates.
        answerer: Who is asked.
        slips: Share of the choices that are made by lot instead.
        config: When it ends, and how long each answer takes.
    """
    sight = ClassicalSight(robot)
    with plan.arm(SimArmConfig(plan.task).camera()) as arm:
        asking = TextChooser(robot, arm.task, sight, answerer)
        chooser = SlippingChooser(asking, slips, plan.id) if slips else asking
        try:
            return play(arm, chooser, robot, plan.id, sight, config)
        except UnknownError as error:
            sys.stderr.write(f'{plan.id}: {error}\n')
            return Trial(plan.id, arm.task, is_success=False, seconds=arm.now_s, steps=())


def trial_rows(plan: TrialPlan, robot: Robot, slips: float, wait_s: float = 0.0) -> list[Row]:
    """What the oracle was asked in a trial, with its answers; none where it failed.

    Args:
        plan: Which trial.
        robot: The robot, with its candidates.
        slips: Share of the choices that are made by lot.
        wait_s: How long answers take at most, by lot for each trial [s]; 0: no time at all.
    """
    split = split_of(plan.id, QuestionsConfig(test_share=0.0))
    noted = RowRecorder(oracle, RowBuilder(plan.id, plan.id, split, '', 'classical'), robot)
    config = TrialConfig(wait_s=Random(f'wait:{plan.id}').uniform(0.0, wait_s))
    return noted.rows if run_trial(plan, robot, noted, slips, config).is_success else []


def _run(args: argparse.Namespace) -> int:
    if not 0 <= args.slips <= 1:
        msg = f'--slips is {args.slips}: expected a share from 0 to 1'
        raise InputError(msg)
    numbers = range(args.episodes)
    plans = [TrialPlan(task, args.seed, index) for task in args.tasks for index in numbers]
    robots = {task: robot_of(task, args.robot) for task in args.tasks}
    shown = tqdm(plans, desc='trials', unit='trial', file=sys.stderr, disable=None)
    new_rows = (
        row for plan in shown for row in trial_rows(plan, robots[plan.task], args.slips, args.wait)
    )
    if not (count := write_rows(args.out, new_rows)):
        args.out.unlink()
        msg = f'none of {len(plans)} trials succeeded: give more --episodes, or fewer --slips'
        raise InputError(msg)
    sys.stderr.write(f'{len(plans)} trials: {count} rows in {args.out}\n')
    return 0


def main(arguments: Sequence[str] | None = None) -> int:
    """Lead trials and write their rows."""
    parser = argparse.ArgumentParser(prog='training.data.arm_trials', description=__doc__)
    add = parser.add_argument
    add('--tasks', nargs='+', default=_TASKS[:3], choices=_TASKS, help='(%(default)s)')
    add('--episodes', type=int, default=100, help='trials of each task (%(default)s)')
    add('--seed', type=int, default=61000, help='of scenes and slips (%(default)s)')
    add('--slips', type=float, default=0.15, help='share of wrong choices (%(default)s)')
    help_text = 'answers take up to so long, with looks meanwhile as live [s] (%(default)s)'
    add('--wait', type=float, default=0.0, metavar='S', help=help_text)
    add('--robot', default='', help='robot with its candidates (that of the task)')
    add('--out', type=Path, required=True, metavar='FILE', help='the rows')
    return run_command(parser, _run, arguments)


if __name__ == '__main__':
    sys.exit(main())
