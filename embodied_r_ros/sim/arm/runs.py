# SPDX-License-Identifier: Apache-2.0
"""Runs of trials: a policy that leads the simulated arm, beside those without a model.

Leaves a picture of each trial and a report in a folder.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
import json
from typing import Any, TYPE_CHECKING

from embodied_r_ros.arm.trial import success_rate, Trial, TrialConfig
from embodied_r_ros.sim.arm.trials import baseline, TrialPlan
from embodied_r_ros.sim.arm.world import camera_pose
from embodied_r_ros.sim.runs import prepare_run
from embodied_r_ros.view.trial_sheet import write_trial_sheet

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from embodied_r_ros.arm.robot import Robot
    from embodied_r_ros.sim.arm.chooser_server import ChooserServer
    from embodied_r_ros.sim.arm.robot import SimulatedArm
    from embodied_r_ros.sim.runs import SimArmConfig

# Leads an arm in a trial of an id, and calls back where a keypoint is reached.
Play = Callable[['SimulatedArm', str, Callable[[], None]], Trial]
_BASELINES = {'random_baseline': 'random', 'nearest_baseline': 'nearest', 'oracle': 'oracle'}


@dataclass(frozen=True)
class ClosedLoopRun:
    """Which trials, and where they are reported."""

    config: SimArmConfig  # the task, and the camera
    seed: int
    episodes: int
    out: Path  # new or empty folder
    robot: Robot
    who: str  # the policy, in the report
    trial: TrialConfig = field(default_factory=TrialConfig)

    def prepare(self) -> None:
        """Check what can be checked before anything is started, and make the folder.

        Raises:
            InputError: An argument cannot be used, or the folder is not empty.
        """
        prepare_run(self.seed, self.episodes, self.out)

    def plans(self) -> list[TrialPlan]:
        """The trials."""
        return [TrialPlan(self.config.task, self.seed, n) for n in range(self.episodes)]


def lead(run: ClosedLoopRun, play: Play, server: ChooserServer | None) -> Iterator[Trial]:
    """Have every trial led; each leaves its picture.

    Args:
        run: The trials.
        play: Leads an arm.
        server: Where a chooser answers for the model, it; None: a model does.

    Raises:
        InputError: A picture cannot be written.
    """
    for plan in run.plans():
        with plan.arm(run.config.camera()) as arm:
            if server:
                server.serve(plan.chooser(run.who, run.robot), arm)
                trial = play(arm, plan.id, lambda arm=arm: server.reached(arm))  # type: ignore[misc]
            else:
                trial = play(arm, plan.id, lambda: None)
        path = run.out / f'trial_{plan.index:05d}.png'
        write_trial_sheet(path, f'{run.who} chose', trial, run.config.camera(), camera_pose())
        yield trial


def report_of(run: ClosedLoopRun, trials: list[Trial]) -> dict[str, Any]:
    """Rates of success, also of policies without a model, on the same scenes and sight.

    Args:
        run: The trials, as they were led.
        trials: How they went.
    """
    rates = {
        key: success_rate(
            [baseline(name, p, run.robot, run.config.camera(), run.trial) for p in run.plans()]
        )
        for key, name in _BASELINES.items()
    }
    return {**_trial_figures(run, trials), **rates}


def _trial_figures(run: ClosedLoopRun, trials: list[Trial]) -> dict[str, Any]:
    """What is known once the trials were led."""
    return {
        'task': run.config.task,
        'seed': run.seed,
        'episodes': run.episodes,
        'chooser': run.who,
        'success_rate': success_rate(trials),
    }


def finish(run: ClosedLoopRun, trials: list[Trial]) -> dict[str, Any]:
    """Report how trials went; what was led is on the disk before the baselines are played.

    Args:
        run: The trials, as they were led.
        trials: How they went.
    """
    write_report(run, _trial_figures(run, trials), trials)
    report = report_of(run, trials)
    write_report(run, report, trials)
    return report


def write_report(run: ClosedLoopRun, report: dict[str, Any], trials: list[Trial]) -> None:
    """Write the rates and every step of every trial as `report.json`."""
    content = {**report, 'trials': [trial.to_json() for trial in trials]}
    unfinished = run.out / '.report.json'
    unfinished.write_text(json.dumps(content, indent=2) + '\n', encoding='utf-8')
    unfinished.replace(run.out / 'report.json')
