# SPDX-License-Identifier: Apache-2.0
"""Open questions at a moment of a simulated demonstration, with references from what is true.

No model has a part in them: what is still to be done, and where things are, the truth tells.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import permutations
import math
from typing import TYPE_CHECKING

from embodied_r_ros.arm.robot import RobotQuestionsConfig
from embodied_r_ros.arm.task_frame import FULL, Movement, SLIGHTLY

from training.robot_bench.steps import main_actions, scene_at, steps_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from random import Random

    from embodied_r_ros.arm.demonstration import ArmState, DemonstrationTruth
    from embodied_r_ros.types.geometry import Position

    from training.robot_bench.steps import ExpertStep, Scene

_WAY_M = 0.03  # shorter ways are as good as gone
_SILENT_M = RobotQuestionsConfig.deadband_m
_SILENT_SHARE = 0.1  # of the largest component of a way: nobody would tell less
_SAME_PLACE_M = 0.035  # a hand that is about to grasp is at the thing
_PLANNING = 'What are the main actions that are still to be done?'
_ACTION = 'Which action does the robot do next?'
_MOVEMENT = 'Which motion does the gripper make next?'
_GRIPPER = 'Is the gripper open or closed, and what does it hold?'
_HAND = 'the gripper'
# Of each axis: the words for its negative and its positive direction, as the camera sees it.
_COMPARED = (
    ('farther from the camera', 'nearer to the camera'),
    ('further left', 'further right'),
    ('lower', 'higher'),
)


@dataclass(frozen=True)
class BenchMoment:
    """A moment of a demonstration, and what is true of it."""

    state: ArmState
    steps: tuple[ExpertStep, ...]  # still to be done, the next one first
    scene: Scene
    closed: bool  # the gripper
    held: str  # name of the thing that it holds; empty: none


@dataclass(frozen=True)
class OpenQuestion:
    """A question with the answer that is right."""

    question_type: str
    question: str
    reference: str


def moments_of(
    truth: DemonstrationTruth, states: Sequence[ArmState], count: int, rng: Random
) -> list[BenchMoment]:
    """Moments to ask at, each on the way to another keypoint, in order of time.

    Left out is what has two right answers: while the gripper moves, and where a way is as good
    as gone.

    Args:
        truth: Of the demonstration.
        states: What the arm did; at least one.
        count: How many, at most.
        rng: Draws them.

    Raises:
        InputError: The truth has no things.
    """
    steps = steps_of(truth, states[0].position)
    fitting: dict[int, list[ArmState]] = {}
    for state in states:
        index = _next_step(steps, state)
        if index is not None:
            fitting.setdefault(index, []).append(state)
    chosen = sorted(rng.sample(sorted(fitting), min(count, len(fitting))))
    moments = []
    for index in chosen:
        state = rng.choice(fitting[index])
        before = steps[index - 1] if index else None
        moments.append(
            BenchMoment(
                state,
                steps[index:],
                scene_at(truth, state.stamp_ns),
                closed=bool(before and before.keypoint.closed),
                held=before.held if before else '',
            )
        )
    return moments


def _next_step(steps: Sequence[ExpertStep], state: ArmState) -> int | None:
    """Index of the step that a state is on its way to; None: there is none, or it is not clear."""
    now = state.stamp_ns
    index = next((i for i, s in enumerate(steps) if s.keypoint.stamp_ns > now), None)
    if index is None:
        return None
    before = steps[index - 1] if index else None
    if before and before.is_grip and now < before.keypoint.until_ns:
        return None
    step = steps[index]
    is_gone = math.dist(state.position, step.keypoint.position) < _WAY_M
    return None if is_gone and not step.is_grip else index


def open_questions(moment: BenchMoment, rng: Random) -> Iterator[OpenQuestion]:
    """One question of each type about a moment.

    Args:
        moment: What is true.
        rng: Draws what is asked of how things lie.
    """
    actions = main_actions(moment.steps)
    plan = ' '.join(f'{n}. {_sentence(action)}' for n, action in enumerate(actions, 1))
    yield OpenQuestion('planning', _PLANNING, plan)
    yield OpenQuestion('high_level_action', _ACTION, _sentence(actions[0]))
    yield OpenQuestion('movement', _MOVEMENT, _movement(moment))
    question, reference = rng.choice(_spatial(moment))
    yield OpenQuestion('spatial', question, reference)


def _sentence(text: str) -> str:
    return f'{text[0].upper()}{text[1:]}.'


def _movement(moment: BenchMoment) -> str:
    step = moment.steps[0]
    if step.is_grip:
        return f'{"Close" if step.keypoint.closed else "Open"} the gripper.'
    start, end = moment.state.position, step.keypoint.position
    largest = max(abs(b - a) for a, b in zip(start, end, strict=True))
    way = Movement.between(start, end, max(_SILENT_M, _SILENT_SHARE * largest))
    assert way is not None  # shorter ones are not asked about
    return f'Move {way.words()}.'


def _spatial(moment: BenchMoment) -> list[tuple[str, str]]:
    """Questions about how things lie, with their references."""
    scene = moment.scene
    held = f', and holds {scene.grip_of(moment.held)}' if moment.held else ', and holds nothing'
    facts = [(_GRIPPER, f'The gripper is {"closed" if moment.closed else "open"}{held}.')]
    things = {scene.grip_of(name): at for name, at in scene.places.items()}
    places = {_HAND: moment.state.position, **things}
    grip = scene.grip_of(moment.held) if moment.held else ''
    for first, second in permutations(places, 2):
        if second == _HAND or (first, second) == (_HAND, grip):
            continue
        question = f'Where is {first}, compared with {second}?'
        facts.append((question, _compared(first, second, places)))
    return facts


def _compared(first: str, second: str, places: dict[str, Position]) -> str:
    way = Movement.between(places[second], places[first], _SAME_PLACE_M)
    if way is None:
        return _sentence(f'{first} is at the same place as {second}')
    words = [
        ('' if abs(level) == FULL else SLIGHTLY) + names[level > 0]
        for level, names in zip(way.levels, _COMPARED, strict=True)
        if level
    ]
    return f'Compared with {second}, {first} is {", ".join(words)}.'
