# SPDX-License-Identifier: Apache-2.0
"""Dead reckoning in words: the path through a scene's lines, one small sum at a time.

Every line of the scene is named, also where nothing happened: a small model goes from line to line
by their numbers, and loses its place where it must search for the next line that matters.
"""

from __future__ import annotations

from dataclasses import dataclass, field
import math
from typing import TYPE_CHECKING

from embodied_r_ros.types.deltas import CANNOT_TELL

if TYPE_CHECKING:
    from embodied_r_ros.types.deltas import MotionStep

    from training.data.scene_reader import SceneLine

_TURNS = {'left': 1, 'right': -1}
_WAYS = {'forward': (1, 0), 'backward': (-1, 0), 'left': (0, 1), 'right': (0, -1)}
_RISES = {'up': 1, 'down': -1}


def wrap_degrees(degrees: int) -> int:
    """An angle in (-180, 180]."""
    return -((180 - degrees) % 360 - 180)


def rotate_degrees(x: float, y: float, degrees: float) -> tuple[float, float]:
    """A place [m] turned about the origin, to 0.1 m."""
    cos, sin = math.cos(math.radians(degrees)), math.sin(math.radians(degrees))
    return round(x * cos - y * sin, 1), round(x * sin + y * cos, 1)


def quarter_of(degrees: int) -> str:
    """Quarter in which a direction lies (positive left): ahead, behind, left or right."""
    return side_of(math.cos(math.radians(degrees)), math.sin(math.radians(degrees)))


def side_of(x: float, y: float) -> str:
    """Quarter in which a place lies: ahead, behind, left or right."""
    if abs(x) >= abs(y):
        return 'ahead' if x >= 0 else 'behind'
    return 'left' if y > 0 else 'right'


def signed_turn(degrees: int) -> str:
    """A turn in words: '30 left', '0'."""
    return f'{abs(degrees)} {"left" if degrees > 0 else "right"}' if degrees else '0'


def signed_rise(metres: float) -> str:
    """A change of height in words: 'up 0.3'."""
    return f'{"down" if metres < 0 else "up"} {abs(metres):.1f}'


def place(x: float, y: float) -> str:
    """A place in words: 'ahead 1.2 left 0.5'."""
    along = f'{"behind" if x < -0.05 else "ahead"} {abs(x):.1f}'
    return f'{along} {"right" if y < -0.05 else "left"} {abs(y):.1f}'


@dataclass
class Walk:
    """Where the camera is, in the axes of its start, and how that was found.

    Each of `turn`, `move` and `rise` takes one line of the scene, says what it adds, and returns
    False where the line does not tell what is needed.
    """

    x: float = 0.0  # ahead of the start [m]
    y: float = 0.0  # left of it [m]
    height: float = 0.0  # above it [m]
    heading: int = 0  # left of it [degrees]
    _sentences: list[str] = field(default_factory=list)

    def say(self, text: str) -> None:
        """Add a step of the reasoning."""
        self._sentences.append(text)

    def text(self, end: str) -> str:
        """The reasoning so far, and its end."""
        return ' '.join([*self._sentences, end])

    def turn(self, line: SceneLine) -> bool:
        """Add a line's turn."""
        if not self._tells(line, ('turned',)):
            return False
        amount = self._turn_by(line)
        self.say(f'[{line.label}] {signed_turn(amount)}: {signed_turn(self.heading)}.')
        return True

    def rise(self, line: SceneLine) -> bool:
        """Add a line's rise."""
        if not self._tells(line, ('moved',), tuple(_RISES)):
            return False
        steps = [s for s in line.steps if s.verb == 'moved' and s.direction in _RISES]
        amount = sum(_RISES[step.direction] * (step.amount or 0.0) for step in steps)
        self.height = round(self.height + amount, 1)
        rise_text = signed_rise(amount) if steps else '0'
        self.say(f'[{line.label}] {rise_text}: {signed_rise(self.height)}.')
        return True

    def move(self, line: SceneLine) -> bool:
        """Add a line's steps on the ground, in the direction the camera faces, and its turn."""
        if not self._tells(line, ('moved', 'turned'), tuple(_WAYS)):
            return False
        words = [self._step(s) for s in line.steps if s.verb == 'moved' and s.direction in _WAYS]
        amount = self._turn_by(line)
        if amount:
            words.append(f'turn {signed_turn(amount)}: {signed_turn(self.heading)}')
        self.say(f'[{line.label}] {"; ".join(words) or "0"}.')
        return True

    def _step(self, step: MotionStep) -> str:
        metres = step.amount or 0.0
        forward, left = (metres * part for part in _WAYS[step.direction])
        dx, dy = rotate_degrees(forward, left, self.heading)
        self.x, self.y = round(self.x + dx, 1), round(self.y + dy, 1)
        return f'{step.direction} {metres:.1f}: {place(dx, dy)}, at {place(self.x, self.y)}'

    def _turn_by(self, line: SceneLine) -> int:
        steps = [step for step in line.steps if step.verb == 'turned']
        amount = sum(_TURNS[step.direction] * round(step.amount or 0) for step in steps)
        self.heading = wrap_degrees(self.heading + amount)
        return amount

    def _tells(
        self, line: SceneLine, verbs: tuple[str, ...], directions: tuple[str, ...] = ()
    ) -> bool:
        """Whether a line tells its motion of those verbs and directions; says what it does not."""
        if line.is_unknown:
            self.say(f'[{line.label}] {CANNOT_TELL}.')
            return False
        for step in line.steps:
            is_relevant = step.verb in verbs and (
                step.verb != 'moved' or not directions or step.direction in directions
            )
            if is_relevant and step.amount is None:
                self.say(f'[{line.label}] {step.text()}, not how far.')
                return False
        return True
