# SPDX-License-Identifier: Apache-2.0
"""Motion and items in words, and motion words read back.

One grammar for everything that is computed rather than written by a vision-language model, so that
deltas from odometry, from two-view geometry and from a simulator's truth read alike:

    action:  moved forward 1.2 m, turned left 30°      (first the move, in the earlier view's axes)
    change:  New: red tall object 30° left 10° down 2.1 m. In view: blue round object ahead 1.4 m.
             Gone: green flat object. Moved: ...
"""

from __future__ import annotations

from dataclasses import dataclass
import math
import re
from typing import TYPE_CHECKING

from embodied_r_ros.deltas import CANNOT_TELL, ItemStatus, MotionSource

if TYPE_CHECKING:
    from collections.abc import Iterable

    from embodied_r_ros.deltas import Item, Motion

STATIONARY = 'stationary'
NOTHING_SEEN = 'No object stands out.'

ANGLE_STEP_DEG = 5  # text gives angles in steps of this
_MIN_MOVE_M = 0.05  # shorter metric moves are not worth a word
_MIN_SHARE = 0.4  # share of a unit direction that an axis needs to be named

# (axis of the translation, word for positive, word for negative), REP 103
_MOVES = ((0, 'forward', 'backward'), (1, 'left', 'right'), (2, 'up', 'down'))
# (field of Motion, verb, word for positive, word for negative)
_TURNS = (
    ('yaw_rad', 'turned', 'left', 'right'),
    ('pitch_rad', 'tilted', 'down', 'up'),
    ('roll_rad', 'rolled', 'clockwise', 'anticlockwise'),
)
_HEADINGS = {
    ItemStatus.APPEARED: 'New',
    ItemStatus.VISIBLE: 'In view',
    ItemStatus.MOVED: 'Moved',
    ItemStatus.LEFT: 'Gone',
}
_STEP = re.compile(
    r'(?P<verb>moved|turned|tilted|rolled) '
    r'(?P<direction>forward|backward|left|right|up|down|clockwise|anticlockwise)'
    r'(?: (?P<amount>\d+(?:\.\d+)?) ?(?P<unit>m|°))?$'
)


@dataclass(frozen=True)
class MotionStep:
    """One part of an action: 'turned left 30°'."""

    verb: str  # moved, turned, tilted, rolled
    direction: str
    amount: float | None  # [m] or [degrees]; None: not known

    def text(self) -> str:
        """The step in words."""
        if self.amount is None:
            return f'{self.verb} {self.direction}'
        amount = f'{self.amount:.1f} m' if self.verb == 'moved' else f'{self.amount:.0f}°'
        return f'{self.verb} {self.direction} {amount}'


def rounded_degrees(angle_rad: float) -> int:
    """The angle in degrees, in steps of ANGLE_STEP_DEG."""
    return ANGLE_STEP_DEG * round(math.degrees(angle_rad) / ANGLE_STEP_DEG)


def motion_steps(motion: Motion) -> list[MotionStep]:
    """Split a motion into steps, moves first; empty: stationary or unknown."""
    steps = []
    for axis, positive, negative in _MOVES:
        value = motion.translation[axis]
        limit = _MIN_MOVE_M if motion.is_metric else _MIN_SHARE
        if math.isfinite(value) and abs(value) >= limit:
            amount = round(abs(value), 1) if motion.is_metric else None
            steps.append(MotionStep('moved', positive if value > 0 else negative, amount))
    for name, verb, positive, negative in _TURNS:
        value = getattr(motion, name)
        degrees = rounded_degrees(value) if math.isfinite(value) else 0
        if degrees:
            steps.append(MotionStep(verb, positive if degrees > 0 else negative, abs(degrees)))
    return steps


def action_text(motion: Motion) -> str:
    """Motion in words; 'stationary' for none and 'cannot tell' for an unknown one."""
    if motion.source is MotionSource.UNKNOWN:
        return CANNOT_TELL
    return ', '.join(step.text() for step in motion_steps(motion)) or STATIONARY


def parse_action(action: str) -> list[MotionStep] | None:
    """Read an action back into its steps; None where it is not of this grammar or unknown."""
    if action == STATIONARY:
        return []
    matches = [_STEP.match(part.strip()) for part in action.split(',')]
    if not all(matches):
        return None
    return [
        MotionStep(m['verb'], m['direction'], float(m['amount']) if m['amount'] else None)
        for m in matches
        if m
    ]


def direction_text(bearing_rad: float, elevation_rad: float) -> str:
    """A viewing direction in words: '30° left 10° down', 'ahead'; empty where unknown."""
    if not math.isfinite(bearing_rad):
        return ''
    side = rounded_degrees(bearing_rad)
    words = [f'{abs(side)}° {"left" if side > 0 else "right"}' if side else 'ahead']
    height = rounded_degrees(elevation_rad) if math.isfinite(elevation_rad) else 0
    if height:
        words.append(f'{abs(height)}° {"up" if height > 0 else "down"}')
    return ' '.join(words)


def item_text(item: Item) -> str:
    """An item in words: label, direction, then distance, or apparent size where that is all.

    "Wide" is the larger of the angles covered across and up, as `Item.size_rad` is: neither
    messages nor rows carry a width, and models were trained on this word.
    """
    words = [item.label, direction_text(item.bearing_rad, item.elevation_rad)]
    if math.isfinite(item.distance_m):
        words.append(f'{item.distance_m:.1f} m')
    elif math.isfinite(item.size_rad):
        words.append(f'({max(1, round(math.degrees(item.size_rad)))}° wide)')
    return ' '.join(word for word in words if word)


def change_text(items: Iterable[Item]) -> str:
    """What is new, in view, moved or gone, in words. An item that is gone has no direction."""
    groups: dict[str, list[str]] = {heading: [] for heading in _HEADINGS.values()}
    for item in items:
        text = item.label if item.status is ItemStatus.LEFT else item_text(item)
        groups[_HEADINGS[item.status]].append(text)
    said = [f'{heading}: {"; ".join(texts)}.' for heading, texts in groups.items() if texts]
    return ' '.join(said) or NOTHING_SEEN
