# SPDX-License-Identifier: Apache-2.0
"""Candidates for the next keypoint: a stated sampler over the things in view and the arm.

From above (the tool at least as high as the clearance): above each thing, and behind it where it
could be pushed towards another; down to a thing, or onto it, only where the tool is over it. From
below: up to the clearance, along a push, and slides. Random positions of the workspace fill up.
The same input and seed give the same candidates, in an order that betrays nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import permutations
import math
from random import Random
from typing import TYPE_CHECKING

from embodied_r_ros.common.errors import ConfigError, InputError
from embodied_r_ros.common.settings import setting, Settings
from embodied_r_ros.core.types.geometry import Position

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from embodied_r_ros.arm.robot import RobotMetadata

Box = tuple[Position, Position]  # least and greatest x, y, z [m]
_DRAWS = 200  # for each random position
RANDOM = 'somewhere'


@dataclass(frozen=True)
class CandidatesConfig(Settings):
    """Which positions are proposed to choose from. Heights are over the robot's reference."""

    fill_to: int = setting(
        4, 'random positions are added until there are so many', between=(2, 26)
    )
    most: int = setting(8, 'candidates at most; the others are left out by lot', between=(2, 26))
    grasp_height_m: float = setting(
        0.02, 'height of the tool that holds a thing on the table [m]', between=(-1, 10)
    )
    onto_height_m: float = setting(
        0.0, 'height of the tool that puts a thing onto another one [m]; 0: none', between=(-1, 10)
    )
    clearance_m: float = setting(
        0.15, 'height at which the tool goes from place to place [m]', between=(0.01, 10)
    )
    behind_m: float = setting(
        0.0,
        'behind a thing, as seen from another, where a push towards that begins [m]; 0: none',
        between=(0, 1),
    )
    push_gap_m: float = setting(
        0.0, 'before the other thing, where such a push ends [m]', between=(0, 1)
    )
    slide_m: float = setting(
        0.0, 'slides along x from a low place, both ways [m]; 0: none', between=(0, 1)
    )
    stay: bool = setting(
        False, 'the current position is a candidate too: only the gripper is to move'
    )
    min_distance_m: float = setting(
        0.03, 'between two candidates, and to the current position [m]', between=(0.001, 1)
    )
    labels: bool = setting(False, 'tell what is at each candidate (rows of questions do not)')

    def __post_init__(self) -> None:
        """Refuse values that are not allowed."""
        super().__post_init__()
        if self.most < self.fill_to:
            msg = f'most is {self.most}: expected fill_to ({self.fill_to}) or more'
            raise ConfigError(msg)
        if self.clearance_m <= self.grasp_height_m:
            msg = (
                f'clearance_m is {self.clearance_m}: expected more than grasp_height_m '
                f'({self.grasp_height_m})'
            )
            raise ConfigError(msg)


@dataclass(frozen=True)
class SeenThing:
    """A thing in view, with its place in the task frame."""

    label: str
    position: Position  # [m]


@dataclass(frozen=True)
class Candidate:
    """A position to choose."""

    position: Position  # to the millimetre, as prompts have it [m]
    label: str  # what is there, in words


def propose_candidates(
    things: Sequence[SeenThing],
    tool: Position,
    metadata: RobotMetadata,
    config: CandidatesConfig,
    seed: str,
) -> tuple[Candidate, ...]:
    """Propose where the end effector could go next.

    Args:
        things: The things in view.
        tool: Where the end effector is [m].
        metadata: States the workspace, outside of which nothing is proposed, and the height of
            its reference point, over which heights are.
        config: Which ones.
        seed: Decides all that chance decides; the id of a question, for example.

    Raises:
        ConfigError: The workspace is not stated.
        InputError: There are fewer than two positions to choose from.
    """
    box, floor_m = metadata.workspace(), metadata.reference[2]
    rng = Random(f'candidates:{seed}')
    here = round_position(tool)
    stay = [Candidate(here, 'here')] if config.stay else []
    candidates = _distinct(
        _candidates_with_reasons(things, tool, floor_m, config), [here], box, config
    )
    rng.shuffle(candidates)
    candidates = [*stay, *candidates][: config.most]
    while len(candidates) < config.fill_to:
        draws = (Candidate(draw_position(box, rng), RANDOM) for _ in range(_DRAWS))
        more = _distinct(
            draws, [here, *(each.position for each in candidates)], box, config, most=1
        )
        if not more:
            break
        candidates += more
    if len(candidates) < 2:
        msg = (
            f'the sampler found {len(candidates)} candidates in the workspace {box}: enlarge '
            'it, or lower min_distance_m'
        )
        raise InputError(msg)
    rng.shuffle(candidates)
    return tuple(candidates)


def _distinct(
    proposed: Sequence[Candidate] | Iterator[Candidate],
    occupied: Sequence[Position],
    box: Box,
    config: CandidatesConfig,
    most: int = 26,
) -> list[Candidate]:
    """The first ones in the workspace that are not too near each other or an occupied place."""
    distinct: list[Candidate] = []
    for each in proposed:
        others = [*occupied, *(other.position for other in distinct)]
        near = min(math.dist(each.position, other) for other in others)
        if near >= config.min_distance_m and _is_in(each.position, box):
            distinct.append(each)
            if len(distinct) == most:
                break
    return distinct


def _candidates_with_reasons(
    things: Sequence[SeenThing], tool: Position, floor_m: float, config: CandidatesConfig
) -> Iterator[Candidate]:
    """Positions for which there is a reason, the most specific first."""
    grasp_m, high_m = floor_m + config.grasp_height_m, floor_m + config.clearance_m
    pushes = [_Push.between(a, b, config) for a, b in permutations(things, 2) if config.behind_m]
    if tool[2] < high_m - config.min_distance_m:
        yield from _from_below(pushes, tool, high_m, config)
        return
    for thing in things:
        x, y, _ = thing.position
        if _is_over(tool, thing.position, config):
            yield _candidate(x, y, grasp_m, f'at the {thing.label}')
            if config.onto_height_m:
                yield _candidate(x, y, floor_m + config.onto_height_m, f'onto the {thing.label}')
        yield _candidate(x, y, high_m, f'above the {thing.label}')
    for push in pushes:
        x, y, _ = push.start
        if _is_over(tool, push.start, config):
            yield _candidate(x, y, grasp_m, f'behind the {push.label}')
        yield _candidate(x, y, high_m, f'above, behind the {push.label}')


def _from_below(
    pushes: Sequence[_Push], tool: Position, high_m: float, config: CandidatesConfig
) -> Iterator[Candidate]:
    x, y, z = tool
    yield _candidate(x, y, high_m, 'up from here')
    for push in pushes:
        if _is_over(tool, push.start, config):
            yield _candidate(push.end[0], push.end[1], z, f'pushing the {push.label}')
    if config.slide_m:
        yield _candidate(x - config.slide_m, y, z, 'sliding backward')
        yield _candidate(x + config.slide_m, y, z, 'sliding forward')


@dataclass(frozen=True)
class _Push:
    """A thing could be pushed towards another one."""

    label: str
    start: Position
    end: Position

    @classmethod
    def between(cls, pushed: SeenThing, goal: SeenThing, config: CandidatesConfig) -> _Push:
        """From behind the one to just before the other."""
        (ax, ay, z), (bx, by, _) = pushed.position, goal.position
        way = math.hypot(bx - ax, by - ay) or 1.0
        ux, uy = (bx - ax) / way, (by - ay) / way
        start = (ax - ux * config.behind_m, ay - uy * config.behind_m, z)
        end = (bx - ux * config.push_gap_m, by - uy * config.push_gap_m, z)
        return cls(f'{pushed.label}, towards the {goal.label}', start, end)


def _is_over(tool: Position, place: Position, config: CandidatesConfig) -> bool:
    return math.dist(tool[:2], place[:2]) < config.min_distance_m


def _candidate(x: float, y: float, z: float, label: str) -> Candidate:
    return Candidate(round_position((x, y, z)), label)


def draw_position(box: Box, rng: Random) -> Position:
    """A position anywhere in a box, to the millimetre [m]."""
    x, y, z = (rng.uniform(low, high) for low, high in zip(*box, strict=True))
    return round_position((x, y, z))


def round_position(position: Position) -> Position:
    """A position as prompts have it [m]."""
    x, y, z = (round(value, 3) + 0.0 for value in position)
    return x, y, z


def _is_in(position: Position, box: Box) -> bool:
    return all(a <= p <= b for a, p, b in zip(box[0], position, box[1], strict=True))
