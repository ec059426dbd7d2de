# SPDX-License-Identifier: Apache-2.0
"""Reads a prompt's scene back into numbers, exactly as far as its text tells.

Traces and checks are computed from what the reasoner reads, never from what was true: a trace that
knows more than its prompt would teach the model to guess.
"""

from __future__ import annotations

from dataclasses import dataclass, field
import math
import re
from typing import TYPE_CHECKING

from embodied_r_ros.types.deltas import MotionStep, parse_action

if TYPE_CHECKING:
    from collections.abc import Sequence

_LINE = re.compile(r'\[(?P<label>\d+(?:-\d+)?)\] [\d.]+(?:-[\d.]+)? s(?:, [^:]*)?: ?(?P<said>.*)')
_HEADING = r'(?:New|In view|Moved|Gone|Seen): '
_GROUP = re.compile(rf'({_HEADING})(.*?)\.(?= {_HEADING}|$)')
_MORE = re.compile(r' and \d+ more$')  # of a merged run that saw many
_ITEM = re.compile(
    r'(?P<label>[a-z ]+?)'
    r'(?: (?:ahead|(?P<side>\d+)° (?P<hand>left|right)))'
    r'(?: (?P<rise>\d+)° (?P<height>up|down))?'
    r'(?: (?P<distance>[\d.]+) m| \(\d+° wide\))?$'
)


@dataclass(frozen=True)
class SceneItem:
    """An item as a line of the scene gives it."""

    label: str
    bearing_deg: float  # positive left; NaN: the line gives no direction
    distance_m: float  # NaN: not given
    place_text: str = field(default='', compare=False)  # direction and distance, word for word


@dataclass(frozen=True)
class SceneLine:
    """One line of the scene."""

    label: str  # '3', or '1-6' for a merged run
    steps: tuple[MotionStep, ...]  # empty: first line, stationary, or it cannot be told
    is_unknown: bool  # the motion cannot be told, or is not of the grammar
    items: tuple[SceneItem, ...]  # new, in view and moved
    gone: tuple[str, ...]
    labels: tuple[str, ...]  # labels of a merged run, in order of first sight


def read_scene(user_message: str) -> list[SceneLine]:
    """Read the lines under 'Seen:' of a user message."""
    scene = user_message.split('\nQuestion: ')[0].split('\nLooked at again')[0]
    matches = [_LINE.fullmatch(line) for line in scene.splitlines()]
    return [_scene_line(match['label'], match['said']) for match in matches if match]


def first_lines(lines: Sequence[SceneLine]) -> dict[str, int]:
    """Position of the line at which each label stands first, in order of first sight."""
    first: dict[str, int] = {}
    for index, line in enumerate(lines):
        for label in [*(item.label for item in line.items), *line.labels]:
            first.setdefault(label, index)
    return first


def last_sight(label: str, lines: Sequence[SceneLine]) -> tuple[int, SceneItem | None] | None:
    """Line of the last sight of an item, and the sight; None for it where the line is merged."""
    for index in reversed(range(len(lines))):
        line = lines[index]
        sight = next((item for item in line.items if item.label == label), None)
        if sight or label in line.labels:
            return index, sight
    return None


def _scene_line(label: str, text: str) -> SceneLine:
    # A first line has no motion: it begins with what is seen.
    first = re.match(rf'{_HEADING}|No object', text)
    action = '' if first else re.split(rf'\. ?(?={_HEADING}|No object|$)', text, maxsplit=1)[0]
    steps = parse_action(action) if action else []
    groups = {heading[:-2]: text for heading, text in _GROUP.findall(text)}
    items = [
        item
        for heading in ('New', 'In view', 'Moved')
        for text in groups.get(heading, '').split('; ')
        if (item := _seen_item(text))
    ]
    return SceneLine(
        label,
        tuple(steps or ()),
        steps is None,
        tuple(items),
        tuple(filter(None, groups.get('Gone', '').split('; '))),
        tuple(filter(None, _MORE.sub('', groups.get('Seen', '')).split('; '))),
    )


def _seen_item(text: str) -> SceneItem | None:
    match = _ITEM.match(text)
    if not match:
        return None
    sign = -1.0 if match['hand'] == 'right' else 1.0
    bearing = sign * float(match['side']) if match['side'] else 0.0
    distance = float(match['distance']) if match['distance'] else math.nan
    return SceneItem(match['label'], bearing, distance, text[match.end('label') :].strip())
