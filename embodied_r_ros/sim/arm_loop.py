# SPDX-License-Identifier: Apache-2.0
"""Trials in which somebody chooses keypoints and the simulated arm goes there, in one process.

The same scenes, sight, candidates, controller and test of success as with the real nodes, without
ROS and without a model: what candidates and controller are good for, and what chance would do.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from embodied_r_ros.images import encode_image
from embodied_r_ros.keyframes import Keyframe, KeyframeReason
from embodied_r_ros.keypoints.candidates import propose_candidates
from embodied_r_ros.keypoints.seen_things import seen_things
from embodied_r_ros.keypoints.trial import Trial, TrialConfig, TrialStep
from embodied_r_ros.perception.classical import ClassicalPerceiver
from embodied_r_ros.perception.placing import table_view
from embodied_r_ros.sim.arm_choosers import choosers, View
from embodied_r_ros.sim.arm_robot import draw_scene, SimulatedArm

if TYPE_CHECKING:
    from collections.abc import Callable

    from embodied_r_ros.deltas import SemanticDelta
    from embodied_r_ros.geometry import Intrinsics
    from embodied_r_ros.keypoints.candidates import SeenThing
    from embodied_r_ros.robots import Robot
    from embodied_r_ros.sim.arm_choosers import Chooser

    Sight = Callable[[SimulatedArm], tuple[SeenThing, ...]]

_STEP_S = 0.1
_NS = 1_000_000_000
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
        """Who chooses: oracle, random or nearest."""
        scene = draw_scene(self.task, self.seed, self.index)
        return choosers(scene, self.id, stay=robot.candidates.stay)[name]()


class ClassicalSight:
    """What the classical perceiver sees of the table, in one image for each keypoint."""

    def __init__(self, robot: Robot) -> None:
        """Take the robot, whose file tells where the camera is and how things are placed."""
        self._robot = robot
        self._perceiver = ClassicalPerceiver()
        self._deltas: list[SemanticDelta] = []
        self._earlier: Keyframe | None = None

    @property
    def deltas(self) -> tuple[SemanticDelta, ...]:
        """What was seen so far, oldest first."""
        return tuple(self._deltas)

    def __call__(self, arm: SimulatedArm) -> tuple[SeenThing, ...]:
        """Look, and tell where things are."""
        number = len(self._deltas)
        later = Keyframe(
            id=number,
            stamp_ns=round(arm.now_s * _NS),
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
        robot: Tells the workspace, and which candidates there are.
        episode_id: With the number of the keypoint it seeds the candidates.
        sight: Tells what is seen.
        config: When it ends.
    """
    steps: list[TrialStep] = []
    every_s = robot.placing.look_every_s if config.wait_s else 0.0
    while len(steps) < config.max_keypoints and arm.now_s < config.max_s and not arm.is_done():
        _let_pass(arm, arm.now_s + config.wait_s, sight, every_s)
        tool, things = arm.tool().position, sight(arm)
        seed = f'{episode_id}/{len(steps)}'
        found = propose_candidates(things, tool, robot.metadata, robot.candidates, seed)
        candidates = tuple(each.position for each in found)
        chosen = chooser.choose(View(things, tool, candidates))
        image = arm.image() if arm.camera else None
        step = TrialStep(arm.now_s, tool, candidates, chosen.index, chosen.closed, image)
        steps.append(step)
        arm.go(candidates[chosen.index], closed=chosen.closed)
        _let_pass(arm, None, sight, every_s)
        chooser.reached(arm.tool().position, closed=arm.is_closed())
    return Trial(episode_id, arm.task, arm.is_done(), arm.now_s, tuple(steps))


def _let_pass(arm: SimulatedArm, until_s: float | None, sight: Sight, every_s: float) -> None:
    """Let time pass, with a look every so often [s] (0: none); None: until the arm is there."""
    while arm.is_busy() if until_s is None else arm.now_s < until_s:
        before_s = arm.now_s
        arm.advance(before_s + _STEP_S)
        # Half a step more, because a sum of tenths falls short of what it should be.
        passed, earlier = (at_s + _STEP_S / 2 for at_s in (arm.now_s, before_s))
        if every_s and passed // every_s > earlier // every_s:
            sight(arm)


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
