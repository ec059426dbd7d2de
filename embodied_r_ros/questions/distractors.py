# SPDX-License-Identifier: Apache-2.0
"""Wrong options of questions about an arm. Robot-R1 leaves open where they come from.

Positions come from the demonstration itself (its keypoints and its other states, so that the rows
of a bag do not depend on other bags), from the workspace, or from both.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
import math
from typing import TYPE_CHECKING

from embodied_r_ros.movement import FULL, Movement, movements

if TYPE_CHECKING:
    from collections.abc import Sequence
    from random import Random

    from embodied_r_ros.questions.arm_episode import ArmEpisode, Position
    from embodied_r_ros.robots import Robot, RobotQuestionsConfig

_DRAWS = 500  # before it is given up
_ANY = 'any'  # of a wrong movement: not adjacent to the right one


@dataclass(frozen=True)
class WrongPosition:
    """A position that is not the right one."""

    position: Position  # to the millimetre [m]
    source: str  # 'keypoint', 'state' or 'workspace'


def wrong_positions(
    right: Position, shown: ArmEpisode, robot: Robot, rng: Random
) -> list[WrongPosition]:
    """Draw wrong positions, each far enough from all other options.

    Args:
        right: The right one [m].
        shown: What they are taken from.
        robot: What is drawn, and how.
        rng: Decides.

    Returns:
        One fewer than a question has options; none at all where so many are not found.
    """
    config = robot.questions
    pools = _pools(shown)
    box = workspace(shown, robot)
    found: list[WrongPosition] = []
    for _ in range(_DRAWS):
        if len(found) == config.options - 1:
            return found
        drawn = _draw(pools, box, config, rng)
        others = [rounded(right), *(wrong.position for wrong in found)]
        if _fits(drawn.position, others, config):
            found.append(drawn)
    return []


def wrong_movements(
    right: Movement, config: RobotQuestionsConfig, rng: Random
) -> list[tuple[Movement, str]]:
    """Draw wrong movements, each with how it differs: flip, degree, drop or add, or any."""
    near = right.adjacent()
    if config.wrong_movements == 'square':
        pool = _corners(right, config.options, rng)
    elif config.wrong_movements == 'adjacent':
        pool = list(near)
    else:
        pool = [movement for movement in movements() if movement != right]
    chosen = rng.sample(pool, config.options - 1)
    return [(movement, near.get(movement, _ANY)) for movement in chosen]


def _corners(right: Movement, options: int, rng: Random) -> list[Movement]:
    """The other corners of a square or cube with the right movement at one of them.

    From every corner the others look alike, so that the options alone do not tell the right one.
    """
    edges = next(count for count in (1, 2, 3) if 2**count >= options)
    while True:
        axes = rng.sample(range(3), edges)
        pairs: list[tuple[int, ...]] = [(level,) for level in right.levels]
        for axis in axes:
            level = right.levels[axis]
            others = [other for other in range(-FULL, FULL + 1) if other != level]
            pairs[axis] = (level, rng.choice(others))
        corners = list(product(*pairs))
        if all(FULL in map(abs, corner) for corner in corners):
            return [Movement((x, y, z)) for x, y, z in corners if (x, y, z) != right.levels]


def workspace(shown: ArmEpisode, robot: Robot) -> tuple[Position, Position]:
    """Lower and upper ends of where an end effector may be: nowhere below the reference [m]."""
    metadata, margin_m = robot.metadata, robot.questions.workspace_margin_m
    axes = list(zip(*(state.position for state in shown.states), strict=True))
    low = metadata.workspace_low or [min(axis) - margin_m for axis in axes]
    high = metadata.workspace_high or [max(axis) + margin_m for axis in axes]
    floor = metadata.reference[2]
    return (
        (low[0], low[1], max(low[2], floor) if floor < high[2] else low[2]),
        (high[0], high[1], high[2]),
    )


def rounded(position: Position) -> Position:
    """A position as prompts have it [m]."""
    x, y, z = (round(value, 3) + 0.0 for value in position)
    return x, y, z


def _pools(shown: ArmEpisode) -> dict[str, Sequence[Position]]:
    states = shown.states
    keypoints = [states[index].position for index in shown.keypoints]
    return {'keypoint': keypoints, 'state': [state.position for state in states]}


def _draw(
    pools: dict[str, Sequence[Position]],
    box: tuple[Position, Position],
    config: RobotQuestionsConfig,
    rng: Random,
) -> WrongPosition:
    share = {'demonstration': 1.0, 'workspace': 0.0}.get(
        config.distractors, config.demonstration_share
    )
    if rng.random() < share:
        source = rng.choice(sorted(pools))
        return WrongPosition(rounded(rng.choice(pools[source])), source)
    x, y, z = (rng.uniform(low, high) for low, high in zip(*box, strict=True))
    return WrongPosition(rounded((x, y, z)), 'workspace')


def _fits(drawn: Position, others: Sequence[Position], config: RobotQuestionsConfig) -> bool:
    """Tell whether a position is far enough from all options, the first of which is right."""
    if config.max_distance_m and math.dist(drawn, others[0]) > config.max_distance_m:
        return False
    return min(math.dist(drawn, other) for other in others) >= config.min_distance_m
