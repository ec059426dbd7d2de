# SPDX-License-Identifier: Apache-2.0
"""Trials in one process: a chooser picks among candidates, and the simulated arm goes there.

Runs of them: a policy that leads the arm, beside those without a model. A run leaves a report.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field, replace
import json
import math
from random import Random
from typing import Any, TYPE_CHECKING

from embodied_r_ros.arm.candidates import propose_candidates
from embodied_r_ros.arm.table import seen_things, table_view
from embodied_r_ros.arm.task import success_rate, Trial, TrialConfig, TrialStep
from embodied_r_ros.common.files import write_whole
from embodied_r_ros.core.perception.classical import ClassicalPerceiver
from embodied_r_ros.core.types.geometry import NS_PER_S
from embodied_r_ros.core.types.images import encode_image
from embodied_r_ros.core.types.keyframes import Keyframe, KeyframeReason
from embodied_r_ros.sim.arm.tasks import draw_scene, TASKS
from embodied_r_ros.sim.arm.world import SimulatedArm
from embodied_r_ros.sim.runs import prepare_run

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from embodied_r_ros.arm.candidates import SeenThing
    from embodied_r_ros.arm.robot import Robot
    from embodied_r_ros.core.types.deltas import SemanticDelta
    from embodied_r_ros.core.types.geometry import Intrinsics, Position
    from embodied_r_ros.sim.arm.chooser_server import ChooserServer
    from embodied_r_ros.sim.arm.tasks import ArmScene, Waypoint
    from embodied_r_ros.sim.runs import SimArmConfig

    Sight = Callable[[SimulatedArm], tuple[SeenThing, ...]]

_AT_THING_M = 0.06  # nearer to a thing, the nearest option closes the gripper
_REACHED_M = 0.06  # candidates are not exactly where the expert goes

# Leads an arm in a trial of an id, and calls back where a keypoint is reached.
Play = Callable[['SimulatedArm', str, Callable[[], None]], Trial]
_BASELINES = {'random_baseline': 'random', 'nearest_baseline': 'nearest', 'oracle': 'oracle'}


@dataclass(frozen=True)
class Choice:
    """What there is to choose from, and what is known then."""

    things: tuple[SeenThing, ...]
    tool: Position  # [m]
    candidates: tuple[Position, ...]  # [m]


@dataclass(frozen=True)
class ArmChoice:
    """Where to go, and the gripper there."""

    index: int  # of the candidate
    closed: bool


class Chooser(ABC):
    """Chooses, and gets the place that the tool has come to."""

    @abstractmethod
    def choose(self, view: Choice) -> ArmChoice:
        """Choose a candidate."""

    def note_arrival(self, position: Position, *, closed: bool) -> None:  # noqa: B027 - most do not care
        """Record the position of the tool at a keypoint [m]."""


class RandomChooser(Chooser):
    """Any candidate, the gripper open or closed, by lot."""

    def __init__(self, seed: str) -> None:
        self._rng = Random(f'random:{seed}')

    def choose(self, view: Choice) -> ArmChoice:
        """Choose a candidate by lot."""
        return ArmChoice(self._rng.randrange(len(view.candidates)), self._rng.random() < 0.5)


class NearestChooser(Chooser):
    """The candidate nearest to the thing that is nearest to the tool, closed where it is there."""

    def choose(self, view: Choice) -> ArmChoice:
        """Choose the candidate at the nearest thing; without any, the one nearest to the tool."""
        places = [thing.position for thing in view.things] or [view.tool]
        place = min(places, key=lambda at: math.dist(at, view.tool))
        index = _nearest(view.candidates, place)
        return ArmChoice(index, math.dist(view.candidates[index], place) < _AT_THING_M)


class OracleChooser(Chooser):
    """The candidate nearest to the expert's next waypoint."""

    def __init__(self, waypoints: Sequence[Waypoint]) -> None:
        """Follow waypoints, in order."""
        self._waypoints = list(waypoints)

    @classmethod
    def of_scene(cls, scene: ArmScene, *, stay: bool) -> OracleChooser:
        """Follow the expert; without candidates where the tool stays, grip where it arrives."""
        plan = TASKS[scene.task].plan(scene)
        return cls(plan if stay else gripping_on_arrival(plan))

    def choose(self, view: Choice) -> ArmChoice:
        """Choose the candidate nearest to the next waypoint; after the last one, that again."""
        waypoint = self._waypoints[0]
        return ArmChoice(_nearest(view.candidates, waypoint.position), waypoint.closed)

    def note_arrival(self, position: Position, *, closed: bool) -> None:
        """Move to the next waypoint where this one is reached."""
        now = self._waypoints[0]
        is_there = math.dist(position, now.position) < _REACHED_M and closed == now.closed
        if is_there and len(self._waypoints) > 1:
            self._waypoints.pop(0)


def gripping_on_arrival(waypoints: Sequence[Waypoint]) -> tuple[Waypoint, ...]:
    """The same way where the gripper acts at the end of a motion, not afterwards."""
    merged: list[Waypoint] = []
    for waypoint in waypoints:
        if waypoint.is_grip and merged:
            merged[-1] = replace(merged[-1], closed=waypoint.closed)
        elif not waypoint.is_grip:
            merged.append(waypoint)
    return tuple(merged)


def choosers(scene: ArmScene, seed: str, *, stay: bool) -> dict[str, Callable[[], Chooser]]:
    """Makes each chooser for an episode, by name."""
    return {
        'oracle': lambda: OracleChooser.of_scene(scene, stay=stay),
        'random': lambda: RandomChooser(seed),
        'nearest': NearestChooser,
    }


def _nearest(candidates: Sequence[Position], place: Position) -> int:
    return min(range(len(candidates)), key=lambda i: math.dist(candidates[i], place))


_STEP_S = 0.1
_DEFAULT = TrialConfig()


@dataclass(frozen=True)
class TrialPlan:
    """Which trial of which run."""

    task: str
    seed: int
    index: int

    @property
    def id(self) -> str:
        """Id of its episode, which also seeds candidates and chance."""
        return f'arm-{self.task}-{self.seed}-{self.index:05d}'

    def arm(self, camera: Intrinsics | None) -> SimulatedArm:
        """The arm before its scene."""
        return SimulatedArm(draw_scene(self.task, self.seed, self.index), camera)

    def chooser(self, name: str, robot: Robot) -> Chooser:
        """The policy that chooses: oracle, random or nearest."""
        scene = draw_scene(self.task, self.seed, self.index)
        return choosers(scene, self.id, stay=robot.candidates.stay)[name]()


class ClassicalSight:
    """What the classical perceiver sees of the table, in one image for each keypoint."""

    def __init__(self, robot: Robot) -> None:
        """Take the robot, whose file states where the camera is and how things are placed."""
        self._robot = robot
        self._perceiver = ClassicalPerceiver()
        self._deltas: list[SemanticDelta] = []
        self._earlier: Keyframe | None = None

    def __call__(self, arm: SimulatedArm) -> tuple[SeenThing, ...]:
        """Look, and return where things are."""
        number = len(self._deltas)
        later = Keyframe(
            id=number,
            stamp_ns=round(arm.now_s * NS_PER_S),
            image=encode_image(arm.image(), 90),
            reason=KeyframeReason.MAX_INTERVAL if number else KeyframeReason.FIRST,
            reference_id=max(0, number - 1),
            intrinsics=arm.camera,
        )
        self._deltas.append(self._perceiver.perceive(self._earlier, later))
        self._earlier = later
        tool = arm.tool().position
        view = table_view(None, self._robot.metadata, self._robot.placing, tool)
        return seen_things(self._deltas, view) if view else ()


def play(
    arm: SimulatedArm,
    chooser: Chooser,
    robot: Robot,
    episode_id: str,
    sight: Sight = SimulatedArm.true_things,
    config: TrialConfig = _DEFAULT,
) -> Trial:
    """Choose keypoints and go there until the task succeeds, or for long enough.

    Args:
        arm: The arm before its scene, at its start.
        chooser: Chooses between candidates.
        robot: States the workspace, and which candidates there are.
        episode_id: With the number of the keypoint it seeds the candidates.
        sight: Gives the things in view.
        config: When it ends.
    """
    steps: list[TrialStep] = []
    while len(steps) < config.max_keypoints and arm.now_s < config.max_s and not arm.is_done():
        tool, things = arm.tool().position, sight(arm)
        seed = f'{episode_id}/{len(steps)}'
        proposals = propose_candidates(things, tool, robot.metadata, robot.candidates, seed)
        candidates = tuple(each.position for each in proposals)
        chosen = chooser.choose(Choice(things, tool, candidates))
        steps.append(TrialStep(arm.now_s, tool, candidates, chosen.index, chosen.closed))
        arm.go(candidates[chosen.index], closed=chosen.closed)
        while arm.is_busy():
            arm.advance(arm.now_s + _STEP_S)
        chooser.note_arrival(arm.tool().position, closed=arm.is_closed())
    return Trial(episode_id, arm.task, arm.is_done(), arm.now_s, tuple(steps))


def baseline(
    name: str,
    plan: TrialPlan,
    robot: Robot,
    camera: Intrinsics | None = None,
    config: TrialConfig = _DEFAULT,
) -> Trial:
    """Play a trial with a chooser that needs no model.

    Args:
        name: oracle, random or nearest.
        plan: Which trial.
        robot: The robot.
        camera: What things are seen with, by the classical perceiver; None: they are known.
        config: When it ends.
    """
    sight = ClassicalSight(robot) if camera else SimulatedArm.true_things
    with plan.arm(camera) as arm:
        return play(arm, plan.chooser(name, robot), robot, plan.id, sight, config)


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
    """Have every trial led.

    Args:
        run: The trials.
        play: Leads an arm.
        server: Where a chooser answers for the model, it; None: a model does.
    """
    for plan in run.plans():
        with plan.arm(run.config.camera()) as arm:
            if server:
                server.serve(plan.chooser(run.who, run.robot), arm)
                trial = play(arm, plan.id, lambda arm=arm: server.note_arrival(arm))  # type: ignore[misc]
            else:
                trial = play(arm, plan.id, lambda: None)
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
    write_whole(run.out / 'report.json', json.dumps(content, indent=2) + '\n')
