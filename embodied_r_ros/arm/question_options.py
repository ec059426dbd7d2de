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

from embodied_r_ros.arm.candidates import draw_position, round_position
from embodied_r_ros.core.types.movement import FULL, Movement

if TYPE_CHECKING:
    from collections.abc import Sequence
    from random import Random

    from embodied_r_ros.arm.demonstration import ArmEpisode
    from embodied_r_ros.arm.robot import Robot, RobotQuestionsConfig
    from embodied_r_ros.core.types.geometry import Position

_DRAWS = 500  # before it is given up
_MARGIN_M = 0.1  # around what was demonstrated, where no workspace is given
_SLACK_M = 5e-4  # positions are rounded to the millimetre
_ANY = 'any'  # of a wrong movement: not adjacent to the right one


@dataclass(frozen=True)
class WrongPosition:
    """A position that is not the right one."""

    position: Position  # to the millimetre [m]
    source: str  # 'keypoint', 'state', 'workspace' or 'near'


def wrong_positions(
    right: Position,
    demonstration: ArmEpisode,
    robot: Robot,
    rng: Random,
    state: Position | None = None,
) -> list[WrongPosition]:
    """Draw wrong positions, each far enough from all other options.

    Args:
        right: The right one [m].
        demonstration: What they are taken from.
        robot: What is drawn, and how.
        rng: Decides.
        state: Where the question says that the end effector is [m]; None: it does not.

    Returns:
        One fewer than a question has options; none at all where so many are not found.
    """
    config = robot.questions
    pools = _pools(demonstration)
    box = workspace(demonstration, robot)
    ranks = None
    if state is not None and config.nearness == 'balanced':
        ranks = _Ranks(right, state, rng.randrange(config.options))
    wrongs: list[WrongPosition] = []
    for _ in range(_DRAWS):
        if len(wrongs) == config.options - 1:
            return wrongs
        candidate = ranks.near(rng) if ranks and ranks.wants_near(len(wrongs)) else None
        candidate = candidate or _draw(pools, box, config, rng)
        others = [round_position(right), *(wrong.position for wrong in wrongs)]
        fits = _fits(candidate.position, others, config)
        if fits and (ranks is None or ranks.takes(candidate, len(wrongs), box)):
            wrongs.append(candidate)
    return []


class _Ranks:
    """How many wrong positions are to be nearer to the state than the right one is."""

    def __init__(self, right: Position, state: Position, nearer: int) -> None:
        self._state, self._reach_m = state, math.dist(right, state)
        self._nearer = nearer
        self._near_draws = _DRAWS // 2  # with no room for so many near ones, there are fewer

    def wants_near(self, count: int) -> bool:
        """Tell whether the next wrong position is to be a near one."""
        return count < self._nearer and self._near_draws > 0

    def near(self, rng: Random) -> WrongPosition:
        """Draw a position about as near to the state as the right one, or nearer."""
        self._near_draws -= 1
        x, y, z = (value + rng.uniform(-self._reach_m, self._reach_m) for value in self._state)
        return WrongPosition(round_position((x, y, z)), 'near')

    def takes(self, wrong: WrongPosition, count: int, box: tuple[Position, Position]) -> bool:
        """Tell whether a position that was drawn is as near, or as far, as it is to be."""
        is_nearer = math.dist(wrong.position, self._state) < self._reach_m
        if wrong.source != 'near':
            return not is_nearer and not self.wants_near(count)
        low, high = box
        return is_nearer and all(
            a - _SLACK_M <= b <= c + _SLACK_M
            for a, b, c in zip(low, wrong.position, high, strict=True)
        )


def wrong_movements(
    right: Movement, config: RobotQuestionsConfig, rng: Random
) -> list[tuple[Movement, str]]:
    """Draw wrong movements, each with how it differs: flip, degree, drop, add, or any of them."""
    near = right.adjacent()
    if config.wrong_movements == 'square':
        pool = _corners(right, config.options, rng)
    else:
        pool = list(near)
    chosen = rng.sample(pool, config.options - 1)
    return [(movement, near.get(movement, _ANY)) for movement in chosen]


def _corners(right: Movement, options: int, rng: Random) -> list[Movement]:
    """The other corners of a square or cube with the right movement at one of them.

    From every corner the others look alike, so that the options alone do not betray the right one.
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


def workspace(demonstration: ArmEpisode, robot: Robot) -> tuple[Position, Position]:
    """Lower and upper ends of where an end effector may be: nowhere below the reference [m]."""
    metadata = robot.metadata
    axes = list(zip(*(state.position for state in demonstration.states), strict=True))
    low = metadata.workspace_low or [min(axis) - _MARGIN_M for axis in axes]
    high = metadata.workspace_high or [max(axis) + _MARGIN_M for axis in axes]
    floor = metadata.reference[2]
    return (
        (low[0], low[1], max(low[2], floor) if floor < high[2] else low[2]),
        (high[0], high[1], high[2]),
    )


def _pools(demonstration: ArmEpisode) -> dict[str, Sequence[Position]]:
    states = demonstration.states
    keypoints = [states[index].position for index in demonstration.keypoints]
    return {'keypoint': keypoints, 'state': [state.position for state in states]}


def _draw(
    pools: dict[str, Sequence[Position]],
    box: tuple[Position, Position],
    config: RobotQuestionsConfig,
    rng: Random,
) -> WrongPosition:
    share = {'demonstration': 1.0, 'workspace': 0.0}.get(config.distractors, 0.5)
    if rng.random() < share:
        source = rng.choice(sorted(pools))
        return WrongPosition(round_position(rng.choice(pools[source])), source)
    return WrongPosition(draw_position(box, rng), 'workspace')


def _fits(position: Position, others: Sequence[Position], config: RobotQuestionsConfig) -> bool:
    """Tell whether a position is far enough from all options."""
    return min(math.dist(position, other) for other in others) >= config.min_distance_m
