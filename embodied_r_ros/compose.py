# SPDX-License-Identifier: Apache-2.0
"""Actions put together: the motion that several actions in a row amount to.

Works on action texts, because that is what a row keeps and what the reasoner reads. A level path
is assumed: moves lie in the ground plane of the heading so far, height and tilt add up alone.
"""

from __future__ import annotations

from dataclasses import dataclass
import math
from typing import TYPE_CHECKING

from embodied_r_ros.deltas import CANNOT_TELL
from embodied_r_ros.wording import MotionStep, parse_action, STATIONARY

if TYPE_CHECKING:
    from collections.abc import Iterable

# Unit vector (forward, left, up) of each direction of a move, and sign of each turn.
_AXES = {
    'forward': (1.0, 0.0, 0.0),
    'backward': (-1.0, 0.0, 0.0),
    'left': (0.0, 1.0, 0.0),
    'right': (0.0, -1.0, 0.0),
    'up': (0.0, 0.0, 1.0),
    'down': (0.0, 0.0, -1.0),
}
_SIGNS = {'left': 1, 'right': -1, 'down': 1, 'up': -1, 'clockwise': 1, 'anticlockwise': -1}
_WORDS = {
    'turned': ('left', 'right'),
    'tilted': ('down', 'up'),
    'rolled': ('clockwise', 'anticlockwise'),
}
_MIN_MOVE_M = 0.05


@dataclass(frozen=True)
class NetMotion:
    """What a row of actions amounts to, in the axes of its start (x forward, y left, z up)."""

    x_m: float = 0.0
    y_m: float = 0.0
    z_m: float = 0.0
    turn_deg: float = 0.0  # positive left, not wrapped
    tilt_deg: float = 0.0  # positive down
    roll_deg: float = 0.0  # positive clockwise
    unmeasured: tuple[str, ...] = ()  # moves and turns whose amount is not told, in words
    unknown: int = 0  # actions that cannot be told, or are not of the grammar

    @property
    def is_measured(self) -> bool:
        """True where every move and turn was told with its amount."""
        return not self.unmeasured and not self.unknown


def net_motion(actions: Iterable[str]) -> NetMotion:
    """Put actions together. Each one moves first and turns then, as `wording` writes them."""
    position, turns = [0.0, 0.0, 0.0], {'turned': 0.0, 'tilted': 0.0, 'rolled': 0.0}
    unmeasured: dict[str, None] = {}
    unknown = 0
    for action in actions:
        steps = parse_action(action)
        if steps is None:
            unknown += 1
            continue
        heading = math.radians(turns['turned'])
        for step in steps:
            if step.amount is None:
                unmeasured[step.text()] = None
            elif step.verb != 'moved':
                turns[step.verb] += _SIGNS[step.direction] * step.amount
            else:
                forward, left, up = (step.amount * part for part in _AXES[step.direction])
                position[0] += forward * math.cos(heading) - left * math.sin(heading)
                position[1] += forward * math.sin(heading) + left * math.cos(heading)
                position[2] += up
    x, y, z = position
    turn, tilt, roll = turns['turned'], turns['tilted'], turns['rolled']
    return NetMotion(x, y, z, turn, tilt, roll, tuple(unmeasured), unknown)


def compose_actions(actions: Iterable[str]) -> str:
    """The one action that several amount to, in words; empty for none."""
    actions = list(actions)
    if not actions:
        return ''
    net = net_motion(actions)
    if net.unknown == len(actions):
        return CANNOT_TELL
    words = [step.text() for step in net_steps(net)]
    text = ', '.join([*words, *net.unmeasured]) or STATIONARY
    return f'{text}, partly {CANNOT_TELL}' if net.unknown else text


def net_steps(net: NetMotion) -> list[MotionStep]:
    """The measured part of a net motion as steps, moves first."""
    steps = []
    for value, positive, negative in (
        (net.x_m, 'forward', 'backward'),
        (net.y_m, 'left', 'right'),
        (net.z_m, 'up', 'down'),
    ):
        if abs(value) >= _MIN_MOVE_M:
            direction = positive if value > 0 else negative
            steps.append(MotionStep('moved', direction, round(abs(value), 1)))
    for verb, value in (
        ('turned', net.turn_deg),
        ('tilted', net.tilt_deg),
        ('rolled', net.roll_deg),
    ):
        if round(value):
            direction = _WORDS[verb][0 if value > 0 else 1]
            steps.append(MotionStep(verb, direction, abs(round(value))))
    return steps
