# SPDX-License-Identifier: Apache-2.0
"""What an expert does from keypoint to keypoint, in words, from what is true of a demonstration.

A motion means something by what it does to things: one that is held is lifted or carried, one
that is not held and still moves is pushed. Nothing here knows which task was shown.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
import math
from typing import TYPE_CHECKING

from embodied_r_ros.common.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from embodied_r_ros.arm.demonstration import DemonstrationTruth, TrueKeypoint, TrueThing
    from embodied_r_ros.types.layout import Vector

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
class Scene:
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


def scene_at(truth: DemonstrationTruth, stamp_ns: int) -> Scene:
    """Where things were at a stamp, by the newest recorded positions.

    Raises:
        InputError: The truth has no things, or no positions then.
    """
    index = bisect_right(truth.stamps_ns, stamp_ns) - 1
    if index < 0 or not truth.things:
        msg = f'the truth has no things at {stamp_ns}: simulate the demonstration again'
        raise InputError(msg)
    places = {thing.name: thing.positions[index] for thing in truth.things}
    return Scene(places, {thing.name: _label(thing) for thing in truth.things})


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


def _gripped(keypoint: TrueKeypoint, scene: Scene, held: str) -> tuple[str, str]:
    """What a motion of the gripper does, and what is held then."""
    if not keypoint.closed:
        return (f'let go of {scene.grip_of(held)}' if held else 'open the gripper'), ''
    near = scene.nearest(keypoint.position)
    if math.dist(scene.places[near], keypoint.position) < _HELD_M:
        return f'grasp {scene.grip_of(near)}', near
    return 'close the gripper', ''


def _moved(start: Vector, end: Vector, before: Scene, after: Scene, held: str) -> str:
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


def _carried(start: Vector, end: Vector, after: Scene, held: str) -> str:
    goal = after.over(end, but=held)
    if not goal:
        rises = end[2] - start[2] > _UP_M and math.dist(start[:2], end[:2]) < _OVER_M
        return f'{"lift" if rises else "carry"} {after.the(held)}'
    if end[2] - after.places[goal][2] > _HIGH_M:
        return f'carry {after.the(held)} over {after.the(goal)}'
    return f'put {after.the(held)} down on {after.the(goal)}'


def _reached(start: Vector, end: Vector, after: Scene) -> str:
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
