# SPDX-License-Identifier: Apache-2.0
"""Reads what a prompt tells of an arm, its task and its table back into numbers.

As for rooms, nothing is read but what the reasoner reads: the question, and what keyframes showed.
Numbers are in whole centimetres, the rest of them cut off: what a trace says of a position are
then digits of the prompt, in their order, which is the easiest thing for a small model to say.
"""

from __future__ import annotations

from dataclasses import dataclass
import re
from typing import TYPE_CHECKING

from embodied_r_ros.core.types.vocabulary import COLOURS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from embodied_r_ros.data.questions.row import Row

Cm = tuple[int, int, int]  # a position or a way, in whole centimetres
Position = tuple[float, float, float]  # [m]

_NUMBER = r'(-?\d+\.\d+)'
_POSITION = re.compile(rf'\({_NUMBER}, {_NUMBER}, {_NUMBER}\)')
_TASK = re.compile(r'The task is: (.*?)[.!?] (?=Which|At which|Is |How )')
_STATE = re.compile(rf'The end effector is at {_POSITION.pattern}')
_ON_TABLE = re.compile(r'On the table: (.*?)\.(?= At the end effector: |$)')
_AT_TOOL = re.compile(r'At the end effector: (.*?)\.$')
_COLOURS = tuple(colour.name for colour in COLOURS)
_HANDLE = 'yellow'  # of the drawer


@dataclass(frozen=True)
class ArmPrompt:
    """What a prompt tells of an arm."""

    task: str  # in words
    state: Cm | None  # of the end effector; None: not told
    on_table: dict[str, Cm]  # middle of what is seen, by its colour
    at_tool: tuple[str, ...]  # colours of what is at the end effector


def read_arm(row: Row) -> ArmPrompt | None:
    """Read a row's prompt; None: it tells of no task."""
    task = _TASK.search(row.question)
    if not task:
        return None
    state = state_in(row.question)
    looks = [str(look['text']) for look in row.focus]
    look_text = looks[-1] if looks else ''
    on_table = _ON_TABLE.search(look_text)
    at_tool = _AT_TOOL.search(look_text)
    return ArmPrompt(
        task[1],
        _in_cm(state) if state else None,
        _places(on_table[1] if on_table else ''),
        tuple(label.split()[0] for label in at_tool[1].split('; ')) if at_tool else (),
    )


def _places(text: str) -> dict[str, Cm]:
    """Positions by colour; of several things of one colour, the first and largest."""
    places: dict[str, Cm] = {}
    for part in filter(None, text.split('; ')):
        at = cm_of(part)
        if at:
            places.setdefault(part.split()[0], at)
    return places


def position_in(text: str) -> Position | None:
    """The first position in a text [m]; None: it has none."""
    match = _POSITION.search(text.replace('\u2212', '-'))
    return _position(match) if match else None


def state_in(question: str) -> Position | None:
    """Where a question says that the end effector is [m]; None: it does not."""
    match = _STATE.search(question)
    return _position(match) if match else None


def cm_of(text: str) -> Cm | None:
    """The first position in a text, in whole centimetres; None: it has none."""
    position = position_in(text)
    return _in_cm(position) if position else None


def _position(match: re.Match[str]) -> Position:
    x, y, z = map(float, match.groups())
    return x, y, z


def _in_cm(position: Position) -> Cm:
    x, y, z = (int(round(1000 * value) / 10) for value in position)
    return x, y, z


def colours_of(task: str) -> list[str]:
    """Colours that a task names, in its order."""
    return [word for word in re.findall(r'[a-z]+', task.lower()) if word in _COLOURS]


def things_of(task: str) -> list[str]:
    """Colours of what a task is about; a drawer is told without one, and has a yellow handle."""
    return colours_of(task) or [_HANDLE] * is_of_drawer(task)


def is_of_drawer(task: str) -> bool:
    """Whether a task is to open a drawer."""
    return bool(re.search(r'\bdrawer\b', task))


def cm_text(value: Sequence[int]) -> str:
    """Whole centimetres as traces have them: two digits, as after the point of a prompt.

    >>> cm_text((19, -2, 15))
    '19 -02 15'
    """
    return ' '.join(f'{"-" if part < 0 else ""}{abs(part):02d}' for part in value)
