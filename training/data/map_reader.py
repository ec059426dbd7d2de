# SPDX-License-Identifier: Apache-2.0
"""Reads a prompt's lines about a place back into numbers, exactly as far as its text tells."""

from __future__ import annotations

from dataclasses import dataclass, field
import re

from embodied_r_ros.scene.map_relations import turn_text
from embodied_r_ros.scene.map_text import HEADING

_COUNT = re.compile(r'(?P<label>.+) (?P<there>\d+)(?: \((?P<gone>\d+) gone\))?')
_ENTRY = re.compile(r'(?:(?P<gap>[\d.]+)m )?(?P<label>.+?)(?: at (?P<direction>\d+)°)?')
_BEARING = r'(?P<metres>[\d.]+)m (?:ahead|(?P<degrees>\d+)° to the (?P<hand>left|right))'
_WHERE = re.compile(rf'(?:nearest )?{_BEARING}')
_START = re.compile(rf'start {_BEARING}')
_PLACE = re.compile(r'(?P<order>came|reached) (?P<place>\d+)(?:st|nd|rd|th)')
_ORDERS = {'First seen in this order': 'came', 'Reached in this order': 'reached'}
_SEEN = re.compile(r'seen (?P<first>[\d.]+) s to (?P<last>[\d.]+) s ago')


@dataclass(frozen=True)
class Bearing:
    """Where something is from the robot, as the text has it."""

    metres: str
    degrees: int  # positive to the left

    def text(self) -> str:
        """The direction in words: '30° to the left'."""
        return turn_text(self.degrees)


@dataclass
class ThingText:
    """What the text tells of a thing; numbers are as they stand there, empty where they do not."""

    where: Bearing | None = None
    start_m: str = ''
    first_s: str = ''
    last_s: str = ''
    came: int = 0  # place by first sight, from 1; 0: not told
    reached: int | None = None  # place by when the way led there; 0: not reached; None: not told
    size: str = ''  # '84 x 28 x 177'


@dataclass
class PlaceText:
    """What a prompt tells of a place."""

    counts: dict[str, tuple[int, int]] = field(default_factory=dict)  # there, gone
    area_m2: str = ''
    began_s: str = ''
    start: Bearing | None = None
    nearest: dict[str, str] = field(default_factory=dict)  # of 'start' and 'robot'
    things: dict[str, ThingText] = field(default_factory=dict)
    gaps: dict[tuple[str, str], str] = field(default_factory=dict)  # [m]
    directions: dict[tuple[str, str], int] = field(default_factory=dict)  # 0 to 350 [degrees]
    came: list[str] = field(default_factory=list)  # labels by first sight
    reached: list[str] = field(default_factory=list)  # labels by when the way led there


def read_place(user_message: str) -> PlaceText | None:
    """Read what stands above 'Seen:' in a user message; None: nothing of a place does."""
    text = user_message.split('\nSeen:\n')[0]
    if not text.startswith(HEADING):
        return None
    place = PlaceText()
    for line in text.splitlines()[1:]:
        name, _, content = line.removesuffix('.').partition(': ')
        parts = content.split('; ')
        if name == 'Things':
            place.counts = dict(filter(None, map(_counted, parts)))
        elif name == 'Floor':
            place.area_m2 = content.removesuffix(' m²')
        elif name == 'Robot':
            _read_robot(place, parts)
        elif name in _ORDERS:
            setattr(place, _ORDERS[name], [each for part in parts for each in part.split(', ')])
        elif name.startswith('From '):
            _read_relations(place, name.removeprefix('From '), parts)
        else:
            _read_thing(place.things.setdefault(name.removeprefix('- '), ThingText()), parts)
    return place


def _counted(part: str) -> tuple[str, tuple[int, int]] | None:
    match = _COUNT.fullmatch(part)
    return (match['label'], (int(match['there']), int(match['gone'] or 0))) if match else None


def _bearing(match: re.Match[str]) -> Bearing:
    degrees = int(match['degrees'] or 0)
    return Bearing(match['metres'], -degrees if match['hand'] == 'right' else degrees)


def _read_robot(place: PlaceText, parts: list[str]) -> None:
    for part in parts:
        if match := _START.fullmatch(part):
            place.start = _bearing(match)
        elif part.startswith('began '):
            place.began_s = part.removeprefix('began ').removesuffix(' s ago')
        elif part.startswith('nearest to the '):
            end, _, label = part.removeprefix('nearest to the ').partition(': ')
            place.nearest[end] = label


def _read_relations(place: PlaceText, name: str, parts: list[str]) -> None:
    for part in parts:
        if match := _ENTRY.fullmatch(part):
            if match['gap']:
                place.gaps[name, match['label']] = match['gap']
            if match['direction']:
                place.directions[name, match['label']] = int(match['direction'])


def _read_thing(thing: ThingText, parts: list[str]) -> None:
    for part in parts:
        if match := _WHERE.fullmatch(part):
            thing.where = _bearing(match)
        elif match := _SEEN.fullmatch(part):
            thing.first_s, thing.last_s = match['first'], match['last']
        elif match := _PLACE.fullmatch(part):
            setattr(thing, match['order'], int(match['place']))
        elif part == 'not reached':
            thing.reached = 0
        elif part.startswith('start '):
            thing.start_m = part.removeprefix('start ').removesuffix('m')
        elif part.endswith(' cm'):
            thing.size = part.removesuffix(' cm')
