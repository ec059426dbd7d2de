# SPDX-License-Identifier: Apache-2.0
"""Episodes in which somebody chooses keypoints and the simulated arm goes there, in one process.

The same scenes, candidates, controller and test of success as with the real nodes, without ROS and
without a model: what candidates and controller are good for, and what chance would do.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from embodied_r_ros.keypoints.candidates import propose_candidates
from embodied_r_ros.sim.arm_choosers import choosers, View
from embodied_r_ros.sim.arm_robot import draw_scene, SimulatedArm

if TYPE_CHECKING:
    from collections.abc import Callable

    from embodied_r_ros.keypoints.candidates import Candidate, Position, SeenThing
    from embodied_r_ros.robots import Robot
    from embodied_r_ros.sim.arm_choosers import Chooser, Chosen

    Sight = Callable[[SimulatedArm], tuple[SeenThing, ...]]

_STEP_S = 0.1


@dataclass(frozen=True)
class LoopConfig:
    """When an episode ends without success."""

    max_keypoints: int = 16
    max_s: float = 60.0


@dataclass(frozen=True)
class Step:
    """One keypoint of an episode."""

    at_s: float
    tool: Position  # before it [m]
    candidates: tuple[Candidate, ...]
    chosen: Chosen


@dataclass(frozen=True)
class LoopEpisode:
    """How an episode went."""

    task: str  # in words
    is_success: bool
    seconds: float
    steps: tuple[Step, ...]


def play(
    arm: SimulatedArm,
    chooser: Chooser,
    robot: Robot,
    seed: str,
    *,
    config: LoopConfig = LoopConfig(),
    sight: Sight = SimulatedArm.true_things,
) -> LoopEpisode:
    """Choose keypoints and go there until the task succeeds, or for long enough.

    Args:
        arm: The arm before its scene, at its start.
        chooser: Chooses between candidates.
        robot: Tells the workspace, and which candidates there are.
        seed: Id of the episode; with the number of the keypoint it seeds the candidates.
        config: When it ends.
        sight: Tells what is seen.
    """
    steps: list[Step] = []
    while len(steps) < config.max_keypoints and arm.now_s < config.max_s and not arm.is_done():
        tool, things = arm.tool().position, sight(arm)
        candidates = propose_candidates(
            things, tool, robot.metadata, robot.candidates, f'{seed}/{len(steps)}'
        )
        chosen = chooser.choose(View(things, tool, candidates))
        steps.append(Step(arm.now_s, tool, candidates, chosen))
        arm.go(candidates[chosen.index].position, closed=chosen.closed)
        while arm.is_busy():
            arm.advance(arm.now_s + _STEP_S)
        chooser.reached(arm.tool().position, closed=arm.is_closed())
    return LoopEpisode(arm.scene.text, arm.is_done(), arm.now_s, tuple(steps))


def baseline(
    name: str, task: str, seed: int, index: int, robot: Robot, config: LoopConfig = LoopConfig()
) -> LoopEpisode:
    """Play an episode with a chooser that needs no model: oracle, random or nearest."""
    scene = draw_scene(task, seed, index)
    episode_id = f'arm-{task}-{seed}-{index:05d}'
    chooser = choosers(scene, episode_id, stay=robot.candidates.stay)[name]()
    with SimulatedArm(scene, camera=None) as arm:
        return play(arm, chooser, robot, episode_id, config=config)
