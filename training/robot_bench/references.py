# SPDX-License-Identifier: Apache-2.0
"""Open questions at a moment of a simulated demonstration, with references from what is true.

No model has a part in them: what is still to be done, and where things are, the truth tells. So it
does what the expert does from keypoint to keypoint: a motion means something by what it does to
things: one that is held is lifted or carried, one that is not held and still moves is pushed.
Nothing here knows which task was shown.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from itertools import permutations
import math
from typing import TYPE_CHECKING

from embodied_r_ros.arm.robot import RobotQuestionsConfig
from embodied_r_ros.common.errors import InputError
from embodied_r_ros.core.types.movement import FULL, Movement, SLIGHTLY

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from random import Random

    from embodied_r_ros.arm.demonstration import (
        ArmState,
        DemonstrationTruth,
        TrueKeypoint,
        TrueThing,
    )
    from embodied_r_ros.core.types.geometry import Position
    from embodied_r_ros.core.types.layout import Vector

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

_HELD_M = 0.05  # a gripper that closes within this of a thing grasps it
_OVER_M = 0.04  # horizontally: over or at a thing
_MOVED_M = 0.02  # a thing that moved
_UP_M = 0.03  # a motion that goes up
_HIGH_M = 0.06  # of the tool over a thing: above it, not at it
_DRAWER = 'drawer'
# What tells more of a thing than its label, which has the name that the simulator gives it.
_NAMES = {'support': 'block'}


@dataclass(frozen=True)
class ExpertStep:
    """What happens on the way to a keypoint, or while the gripper moves there."""

    keypoint: TrueKeypoint
    action: str  # what is done, as an order
    held: str = ''  # name of the thing that is held once it is done; empty: none

    @property
    def is_grip(self) -> bool:
        """Tell whether only the gripper moves."""
        return self.keypoint.reason == 'gripper'


@dataclass(frozen=True)
class TableScene:
    """Where things are at a stamp."""

    places: dict[str, Vector]  # by name [m]
    labels: dict[str, str]  # by name, in words

    def over(self, place: Vector, but: str = '') -> str:
        """Name of the thing that is nearest below or at a place; empty: none is."""
        apart = {
            name: math.dist(place[:2], at[:2]) for name, at in self.places.items() if name != but
        }
        name = min(apart, key=apart.__getitem__, default='')
        return name if name and apart[name] < _OVER_M else ''

    def nearest(self, place: Vector) -> str:
        """Name of the thing nearest to a place."""
        return min(self.places, key=lambda name: math.dist(place, self.places[name]))

    def the(self, name: str) -> str:
        """A thing in words."""
        return f'the {self.labels[name]}'

    def grip_of(self, name: str) -> str:
        """What is gripped of a thing, in words."""
        return f'the handle of {self.the(name)}' if name == _DRAWER else self.the(name)


def scene_at(truth: DemonstrationTruth, stamp_ns: int) -> TableScene:
    """Where things were at a stamp, by the newest recorded positions.

    Raises:
        InputError: The truth has no things, or no positions then.
    """
    index = bisect_right(truth.stamps_ns, stamp_ns) - 1
    if index < 0 or not truth.things:
        msg = f'the truth has no things at {stamp_ns}: simulate the demonstration again'
        raise InputError(msg)
    places = {thing.name: thing.positions[index] for thing in truth.things}
    return TableScene(places, {thing.name: _label(thing) for thing in truth.things})


def _label(thing: TrueThing) -> str:
    colour = thing.label.removesuffix(thing.name).strip()
    return f'{colour} {_NAMES.get(thing.name, thing.name)}'.strip()


def steps_of(truth: DemonstrationTruth, start: Vector) -> tuple[ExpertStep, ...]:
    """What was done, keypoint by keypoint.

    Args:
        truth: Of the demonstration.
        start: Where the tool was first [m].

    Raises:
        InputError: The truth has no things.
    """
    steps: list[ExpertStep] = []
    place, closed, held = start, False, ''
    before_ns = truth.stamps_ns[0] if truth.stamps_ns else 0
    for keypoint in truth.keypoints:
        before, after = (scene_at(truth, at) for at in (before_ns, keypoint.until_ns))
        if keypoint.closed != closed:
            action, held = _gripped(keypoint, before, held)
        else:
            action = _moved(place, keypoint.position, before, after, held)
        steps.append(ExpertStep(keypoint, action, held))
        place, closed, before_ns = keypoint.position, keypoint.closed, keypoint.until_ns
    return tuple(steps)


def _gripped(keypoint: TrueKeypoint, scene: TableScene, held: str) -> tuple[str, str]:
    """What a motion of the gripper does, and what is held then."""
    if not keypoint.closed:
        return (f'let go of {scene.grip_of(held)}' if held else 'open the gripper'), ''
    near = scene.nearest(keypoint.position)
    if math.dist(scene.places[near], keypoint.position) < _HELD_M:
        return f'grasp {scene.grip_of(near)}', near
    return 'close the gripper', ''


def _moved(start: Vector, end: Vector, before: TableScene, after: TableScene, held: str) -> str:
    """What a motion of the tool does."""
    moved = [
        name
        for name, at in after.places.items()
        if math.dist(at, before.places[name]) > _MOVED_M and name != held
    ]
    if held == _DRAWER:
        return f'pull {after.the(held)} open'
    if held:
        return _carried(start, end, after, held)
    if moved:
        goal = after.over(after.places[moved[0]], but=moved[0])
        to = f' to {after.the(goal)}' if goal else ''
        return f'push {after.the(moved[0])}{to}'
    return _reached(start, end, after)


def _carried(start: Vector, end: Vector, after: TableScene, held: str) -> str:
    goal = after.over(end, but=held)
    if not goal:
        rises = end[2] - start[2] > _UP_M and math.dist(start[:2], end[:2]) < _OVER_M
        return f'{"lift" if rises else "carry"} {after.the(held)}'
    if end[2] - after.places[goal][2] > _HIGH_M:
        return f'carry {after.the(held)} over {after.the(goal)}'
    return f'put {after.the(held)} down on {after.the(goal)}'


def _reached(start: Vector, end: Vector, after: TableScene) -> str:
    near = after.over(end)
    if math.dist(start[:2], end[:2]) < _OVER_M and end[2] - start[2] > _UP_M:
        return 'move the gripper up and away'
    if near:
        return f'reach for {after.grip_of(near)}'
    near = after.nearest(end)
    return f'move to the side of {after.the(near)} that is {_side(after.places[near], end)}'


def _side(place: Vector, end: Vector) -> str:
    """On which side of a place another one lies, in words."""
    x, y = end[0] - place[0], end[1] - place[1]
    if abs(x) >= abs(y):
        return 'nearer to the camera' if x > 0 else 'farther from the camera'
    return 'on the right' if y > 0 else 'on the left'


def main_actions(steps: Sequence[ExpertStep]) -> list[str]:
    """What is done, with steps that do the same told once."""
    actions: list[str] = []
    for step in steps:
        if not actions or actions[-1] != step.action:
            actions.append(step.action)
    return actions


@dataclass(frozen=True)
class BenchMoment:
    """A moment of a demonstration, and what is true of it."""

    state: ArmState
    steps: tuple[ExpertStep, ...]  # still to be done, the next one first
    scene: TableScene
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
