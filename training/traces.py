# SPDX-License-Identifier: Apache-2.0
"""Reasoning traces for supervised training: what a careful reader of the prompt would write.

A trace goes through the lines that matter, one small step at a time, names no option letter, and
ends with the text of an option. It says unknown where the prompt does not tell.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
import math
import re
from typing import TYPE_CHECKING

from embodied_r_ros.reasoning.completions import UNKNOWN
from embodied_r_ros.vocabulary import COLOURS

from training.scene_reader import read_scene, SceneLine, SeenItem

if TYPE_CHECKING:
    from embodied_r_ros.reasoning.memory import MemoryConfig
    from embodied_r_ros.rows import Row

# Distance that is assumed for an item whose distance the text does not give [m].
_ASSUMED_M = 2.0
_LEVEL_M = 0.1
_LABEL = re.compile(r'\b([a-z]+ (?:round|tall|flat|blocky) object)\b')
_TURNS = {'left': 1, 'right': -1}
_WAYS = {'forward': (1, 0), 'backward': (-1, 0), 'left': (0, 1), 'right': (0, -1)}


@dataclass(frozen=True)
class Trace:
    """Reasoning and the answer that it leads to."""

    think: str
    answer: str

    def completion(self) -> str:
        """The trace as a completion; the spaces make its words the same tokens as in the scene."""
        return f'<think> {self.think}</think><answer> {self.answer}</answer>'


Reader = Callable[['Row', Sequence[SceneLine]], 'Trace | None']


def signed_turn(degrees: float) -> str:
    """A turn in words: '30 left', '0'."""
    return f'{abs(degrees):.0f} {"left" if degrees > 0 else "right"}' if degrees else '0'


def place(x: float, y: float) -> str:
    """A place in words: 'ahead 1.2 left 0.5'."""
    along = f'{"behind" if x < -0.05 else "ahead"} {abs(x):.1f}'
    return f'{along} {"right" if y < -0.05 else "left"} {abs(y):.1f}'


def side_of(x: float, y: float) -> str:
    """Quarter in which a place lies: ahead, behind, left or right."""
    if abs(x) >= abs(y):
        return 'ahead' if x >= 0 else 'behind'
    return 'left' if y > 0 else 'right'


def _untold(line: SceneLine, verbs: tuple[str, ...], directions: tuple[str, ...] = ()) -> str:
    """Say what of a line's motion is not told, of those verbs (and directions); empty: nothing."""
    if line.is_unknown:
        return f'[{line.label}] cannot tell, so {UNKNOWN}.'
    for step in line.steps:
        asked = step.verb in verbs and (not directions or step.direction in directions)
        if asked and step.amount is None:
            return f'[{line.label}] {step.text()}, not how far, so {UNKNOWN}.'
    return ''


def _given_up(said: list[str], why: str) -> Trace:
    return Trace(' '.join([*said, why]), UNKNOWN)


def _turn_of(line: SceneLine) -> int:
    return sum(
        _TURNS[step.direction] * round(step.amount or 0)
        for step in line.steps
        if step.verb == 'turned'
    )


def _wrapped(degrees: int) -> int:
    return -((180 - degrees) % 360 - 180)


def _option_with(row: Row, start: str) -> str | None:
    return next((option for option in row.options if option.startswith(start)), None)


def net_turn(row: Row, lines: Sequence[SceneLine]) -> Trace | None:
    """Add up the turns."""
    total = 0
    said: list[str] = []
    for line in lines:
        if why := _untold(line, ('turned',)):
            return _given_up(said, why)
        turn = _turn_of(line)
        if turn:
            total = _wrapped(total + turn)
            said.append(f'[{line.label}] {signed_turn(turn)}: {signed_turn(total)}.')
    facing = side_of(math.cos(math.radians(total)), math.sin(math.radians(total)))
    start = {'ahead': 'the same', 'left': 'to the left', 'right': 'to the right'}
    answer = _option_with(row, start.get(facing, 'the opposite'))
    said.append(f'In all {signed_turn(total)}, so {answer}.')
    return Trace(' '.join(said), answer) if answer else None


def net_displacement(row: Row, lines: Sequence[SceneLine]) -> Trace | None:
    """Follow the path in the axes of the start."""
    x = y = 0.0
    heading = 0
    said: list[str] = []
    for line in lines:
        if why := _untold(line, ('moved', 'turned'), tuple(_WAYS)):
            return _given_up(said, why)
        words = []
        for step in line.steps:
            if step.verb == 'moved' and step.direction in _WAYS and step.amount:
                forward, left = (step.amount * part for part in _WAYS[step.direction])
                cos, sin = math.cos(math.radians(heading)), math.sin(math.radians(heading))
                x, y = (
                    round(x + forward * cos - left * sin, 1),
                    round(y + forward * sin + left * cos, 1),
                )
                words.append(f'{step.direction} {step.amount:.1f}: {place(x, y)}')
        turn = _turn_of(line)
        if turn:
            heading = _wrapped(heading + turn)
            words.append(f'turn {signed_turn(turn)}: {signed_turn(heading)}')
        if words:
            said.append(f'[{line.label}] {", ".join(words)}.')
    answer = _option_with(
        row, {'left': 'to the left', 'right': 'to the right'}.get(side_of(x, y), side_of(x, y))
    )
    said.append(f'In all {place(x, y)}, so {answer}.')
    return Trace(' '.join(said), answer) if answer else None


def height_change(row: Row, lines: Sequence[SceneLine]) -> Trace | None:
    """Add up the rises."""
    total = 0.0
    said: list[str] = []
    for line in lines:
        if why := _untold(line, ('moved',), ('up', 'down')):
            return _given_up(said, why)
        for step in line.steps:
            if step.verb == 'moved' and step.direction in {'up', 'down'} and step.amount:
                total = round(total + step.amount * (1 if step.direction == 'up' else -1), 1)
                said.append(f'[{line.label}] {step.direction} {step.amount:.1f}: {_rise(total)}.')
    level = 'at the same height'
    answer = level if abs(total) <= _LEVEL_M else 'higher' if total > 0 else 'lower'
    said.append(f'In all {_rise(total)}, so {answer}.')
    return Trace(' '.join(said), answer)


def _rise(metres: float) -> str:
    return f'{"down" if metres < 0 else "up"} {abs(metres):.1f}'


def item_direction(row: Row, lines: Sequence[SceneLine]) -> Trace | None:
    """Take the last sight of the item and carry it through the later motions."""
    match = _LABEL.search(row.question)
    if not match:
        return None
    label = match[1]
    sights = [
        (index, item)
        for index, line in enumerate(lines)
        for item in line.items
        if item.label == label
    ]
    if not sights:
        return Trace(f'{label}: not seen, so {UNKNOWN}.', UNKNOWN)
    index, item = sights[-1]
    distance = _ASSUMED_M if math.isnan(item.distance_m) else item.distance_m
    x = round(distance * math.cos(math.radians(item.bearing_deg)), 1)
    y = round(distance * math.sin(math.radians(item.bearing_deg)), 1)
    said = [f'{label}: [{lines[index].label}] {_sight(item)}: {place(x, y)}.']
    for line in lines[index + 1 :]:
        if why := _untold(line, ('moved', 'turned'), tuple(_WAYS)):
            return _given_up(said, why)
        words, x, y = _carried(line, x, y)
        if words:
            said.append(f'[{line.label}] {words}.')
    answer = side_of(x, y)
    said.append(f'So {answer}.')
    return Trace(' '.join(said), answer)


def _sight(item: SeenItem) -> str:
    side = signed_turn(item.bearing_deg) if item.bearing_deg else 'ahead'
    return side if math.isnan(item.distance_m) else f'{side} {item.distance_m:.1f} m'


def _carried(line: SceneLine, x: float, y: float) -> tuple[str, float, float]:
    """Place of a thing after the camera's motion, and how it is said."""
    words = []
    for step in line.steps:
        if step.verb == 'moved' and step.direction in _WAYS and step.amount:
            forward, left = (step.amount * part for part in _WAYS[step.direction])
            x, y = round(x - forward, 1), round(y - left, 1)
            words.append(f'{step.direction} {step.amount:.1f}: {place(x, y)}')
    turn = _turn_of(line)
    if turn:
        cos, sin = math.cos(math.radians(turn)), math.sin(math.radians(turn))
        x, y = round(x * cos + y * sin, 1), round(y * cos - x * sin, 1)
        words.append(f'turn {signed_turn(turn)}: {place(x, y)}')
    return ', '.join(words), x, y


def _first_lines(lines: Sequence[SceneLine]) -> dict[str, int]:
    """Position of the line at which each label stands first."""
    first: dict[str, int] = {}
    for index, line in enumerate(lines):
        for label in [*(item.label for item in line.items), *line.seen]:
            first.setdefault(label, index)
    return first


def first_sight(row: Row, lines: Sequence[SceneLine]) -> Trace | None:
    """Look up the first line of each option."""
    first = _first_lines(lines)
    if any(option not in first for option in row.options):
        return None
    said = [f'{option} [{lines[first[option]].label}];' for option in row.options]
    answer = min(row.options, key=first.__getitem__)
    return Trace(f'{" ".join(said)} first is {answer}.', answer)


def how_many(row: Row, lines: Sequence[SceneLine]) -> Trace | None:
    """List the labels of the colour."""
    asked = set(re.findall(r'[a-z]+', row.question.lower()))
    colour = next((c.name for c in COLOURS if c.name in asked), None)
    if colour is None:
        return None
    first = _first_lines(lines)
    labels = [label for label in first if label.startswith(f'{colour} ')]
    said = [f'{label} [{lines[first[label]].label}] {n};' for n, label in enumerate(labels, 1)]
    answer = str(len(labels))
    return Trace(' '.join([*said, f'{colour} objects: {answer}.']), answer)


def nearest(row: Row, lines: Sequence[SceneLine]) -> Trace | None:
    """Compare the distances that the newest line gives."""
    distances = {item.label: item.distance_m for item in lines[-1].items}
    if any(math.isnan(distances.get(option, math.nan)) for option in row.options):
        return None
    said = [f'{option} {distances[option]:.1f} m;' for option in row.options]
    answer = min(row.options, key=distances.__getitem__)
    return Trace(f'[{lines[-1].label}] {" ".join(said)} nearest is {answer}.', answer)


def unanswerable(row: Row, lines: Sequence[SceneLine]) -> Trace | None:
    """Say why it cannot be known."""
    if _LABEL.search(row.question):
        return item_direction(row, lines)
    return Trace(f'Nothing seen tells that, so {UNKNOWN}.', UNKNOWN)


READERS: dict[str, Reader] = {
    'net_turn': net_turn,
    'net_displacement': net_displacement,
    'height_change': height_change,
    'item_direction': item_direction,
    'first_sight': first_sight,
    'how_many': how_many,
    'nearest': nearest,
    'unanswerable': unanswerable,
}


def read_row(row: Row, config: MemoryConfig) -> Trace | None:
    """What a careful reader of the row's prompt answers, and why; None: the text does not tell."""
    reader = READERS.get(row.question_type)
    lines = read_scene(row.prompt(config).user)
    return reader(row, lines) if reader and lines else None
