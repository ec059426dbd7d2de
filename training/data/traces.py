# SPDX-License-Identifier: Apache-2.0
"""Reasoning traces for supervised training: what an oracle of the prompt would write.

A trace goes through the lines that matter, one small step at a time, names no option letter, and
ends with the text of an option. It says unknown where the prompt does not tell.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
import math
import re
from typing import TYPE_CHECKING

from embodied_r_ros.reasoning.completions import option_letter, UNKNOWN
from embodied_r_ros.types.vocabulary import COLOURS, SHAPES

from training.data.arm_traces import ARM_READERS
from training.data.map_reader import read_place
from training.data.map_traces import MAP_QUESTIONS, read_place_question
from training.data.scene_reader import first_lines, last_sight, read_scene, SceneItem, SceneLine
from training.tiny.dead_reckoning import (
    place,
    quarter_of,
    rotate_degrees,
    side_of,
    signed_rise,
    signed_turn,
    Walk,
    wrap_degrees,
)

if TYPE_CHECKING:
    from embodied_r_ros.questions.row import Row
    from embodied_r_ros.scene.memory import MemoryConfig

# Distance that is assumed for an item whose distance the text does not give [m].
_ASSUMED_M = 2.0
_LEVEL_M = 0.1
LEVEL = 'at the same height'
NOT_SEEN = 'not seen'
# Half-way between what counts as back and what counts as away; likewise for the view.
_BACK_M = 0.6
_SAME_VIEW_DEG = 45
_LABEL = re.compile(r'\b([a-z]+ (?:round|tall|flat|blocky) object)\b')


@dataclass(frozen=True)
class Trace:
    """Reasoning and the answer that it leads to."""

    think: str
    answer: str
    letter: str = ''  # of the option that the answer is, where it is given by that

    def completion(self) -> str:
        """The trace as a completion; the spaces make its words the same tokens as in the scene."""
        return f'<think> {self.think}</think><answer> {self.letter or self.answer}</answer>'


Reader = Callable[['Row', Sequence[SceneLine]], 'Trace | None']


def _option_with(options: Sequence[str], start: str) -> str | None:
    return next((option for option in options if option.startswith(start)), None)


def facing(options: Sequence[str], degrees: int) -> str | None:
    """The option for a net turn (positive left); None: there is none."""
    start = {'ahead': 'the same', 'left': 'to the left', 'right': 'to the right'}
    return _option_with(options, start.get(quarter_of(degrees), 'the opposite'))


def standing(options: Sequence[str], x: float, y: float) -> str | None:
    """The option for a place [m] in the axes of the start; None: there is none."""
    side = side_of(x, y)
    return _option_with(options, {'left': 'to the left', 'right': 'to the right'}.get(side, side))


def level(metres: float) -> str:
    """The answer for a rise [m]."""
    return LEVEL if abs(metres) <= _LEVEL_M else 'higher' if metres > 0 else 'lower'


def _walk_to(line: SceneLine) -> Walk:
    """A walk that names its end first, so that it is known where to stop."""
    walk = Walk()
    walk.say(f'To [{line.label}]:')
    return walk


def net_turn(row: Row, lines: Sequence[SceneLine]) -> Trace | None:
    """Add up the turns, line by line."""
    walk = _walk_to(lines[-1])
    for line in lines:
        if not walk.turn(line):
            return Trace(walk.text(f'So {UNKNOWN}.'), UNKNOWN)
    answer = facing(row.options, walk.heading)
    in_all = f'In all {signed_turn(walk.heading)}, so {answer}.'
    return Trace(walk.text(in_all), answer) if answer else None


def net_displacement(row: Row, lines: Sequence[SceneLine]) -> Trace | None:
    """Follow the path in the axes of the start, line by line."""
    walk = _walk_to(lines[-1])
    for line in lines:
        if not walk.move(line):
            return Trace(walk.text(f'So {UNKNOWN}.'), UNKNOWN)
    answer = standing(row.options, walk.x, walk.y)
    in_all = f'In all {place(walk.x, walk.y)}, so {answer}.'
    return Trace(walk.text(in_all), answer) if answer else None


def height_change(row: Row, lines: Sequence[SceneLine]) -> Trace | None:
    """Add up the rises, line by line."""
    del row
    walk = _walk_to(lines[-1])
    for line in lines:
        if not walk.rise(line):
            return Trace(walk.text(f'So {UNKNOWN}.'), UNKNOWN)
    answer = level(walk.height)
    return Trace(walk.text(f'In all {signed_rise(walk.height)}, so {answer}.'), answer)


def revisit(row: Row, lines: Sequence[SceneLine]) -> Trace | None:
    """Follow the path, line by line, and see how far from the start it ends, facing where."""
    walk = _walk_to(lines[-1])
    for line in lines:
        if not walk.move(line):
            return Trace(walk.text(f'So {UNKNOWN}.'), UNKNOWN)
    way = round(math.hypot(walk.x, walk.y), 1)
    displacement = f'In all {place(walk.x, walk.y)}, {way:.1f} m off'
    if way > _BACK_M:
        answer = _option_with(row.options, 'away')
    else:
        displacement += f', facing {signed_turn(walk.heading)}'
        ways = [option for option in row.options if option.startswith('back')]
        is_same = abs(walk.heading) <= _SAME_VIEW_DEG
        answer = next((option for option in ways if option.endswith('same way') is is_same), None)
    return Trace(walk.text(f'{displacement}, so {answer}.'), answer) if answer else None


def item_direction(row: Row, lines: Sequence[SceneLine]) -> Trace | None:
    """Go back to the last sight of the item, follow the path from there, and look back."""
    match = _LABEL.search(row.question)
    if not match:
        return None
    newest_sight = last_sight(match[1], lines)
    if newest_sight is None:
        return Trace(f'{match[1]} {NOT_SEEN}, so {UNKNOWN}.', UNKNOWN)
    index, sight = newest_sight
    if sight is None:
        return Trace(f'{match[1]} [{lines[index].label}], not where, so {UNKNOWN}.', UNKNOWN)
    walk = Walk()
    walk.say(f'{match[1]} {sight.place_text} [{lines[index].label}], now [{lines[-1].label}].')
    for line in lines[index + 1 :]:
        if not walk.move(line):
            return Trace(walk.text(f'So {UNKNOWN}.'), UNKNOWN)
    answer, why = _seen_from(walk, sight)
    return Trace(walk.text(why), answer)


def _seen_from(walk: Walk, sight: SceneItem) -> tuple[str, str]:
    """Quarter in which an item of an earlier sight lies now, and the last step to it."""
    bearing = round(sight.bearing_deg)
    bearing_text = f'At {signed_turn(bearing)}'
    if walk.x or walk.y:
        distance = _ASSUMED_M if math.isnan(sight.distance_m) else sight.distance_m
        x, y = rotate_degrees(distance, 0.0, bearing)
        left_x, left_y = round(x - walk.x, 1), round(y - walk.y, 1)
        bearing = 5 * round(math.degrees(math.atan2(left_y, left_x)) / 5)
        bearing_text = (
            f'At {place(x, y)}, from {place(walk.x, walk.y)}: {place(left_x, left_y)},'
            f' {signed_turn(bearing)}'
        )
    if walk.heading:
        bearing = wrap_degrees(bearing - walk.heading)
        bearing_text += f', facing {signed_turn(walk.heading)}: {signed_turn(bearing)}'
    answer = quarter_of(bearing)
    return answer, f'{bearing_text}, so {answer}.'


def first_sight(row: Row, lines: Sequence[SceneLine]) -> Trace | None:
    """Look up the line at which each option stands first, and take the earliest."""
    first = first_lines(lines)
    if not row.options or any(option not in first for option in row.options):
        return None
    sightings = [f'{option} [{lines[first[option]].label}];' for option in row.options]
    earliest = min(first[option] for option in row.options)
    together = [label for label in first if label in row.options and first[label] == earliest]
    if len(together) > 1:
        sightings.append(f'in [{lines[earliest].label}] {", then ".join(together)};')
    return Trace(' '.join([*sightings, f'First is {together[0]}.']), together[0])


def how_many(row: Row, lines: Sequence[SceneLine]) -> Trace | None:
    """Look up each shape of the colour, and count those that were seen."""
    words = set(re.findall(r'[a-z]+', row.question.lower()))
    colour = next((c.name for c in COLOURS if c.name in words), None)
    if colour is None:
        return None
    first = first_lines(lines)
    counts: list[str] = []
    count = 0
    for label in (f'{colour} {shape} object' for shape in SHAPES):
        count += label in first
        count_text = f'[{lines[first[label]].label}] {count}' if label in first else NOT_SEEN
        counts.append(f'{label} {count_text};')
    return Trace(' '.join([*counts, f'{colour} objects: {count}.']), str(count))


def nearest(row: Row, lines: Sequence[SceneLine]) -> Trace | None:
    """Compare the distances that the newest line gives."""
    item_by_label = {item.label: item for item in lines[-1].items}
    if any(
        option not in item_by_label or math.isnan(item_by_label[option].distance_m)
        for option in row.options
    ):
        return None
    distances = [f'{option} {item_by_label[option].place_text};' for option in row.options]
    answer = min(row.options, key=lambda option: item_by_label[option].distance_m)
    return Trace(f'[{lines[-1].label}] {" ".join(distances)} nearest is {answer}.', answer)


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
    'revisit': revisit,
}


# Kinds whose answer depends on the path of the camera.
PATH_KINDS = frozenset(
    {'net_turn', 'net_displacement', 'height_change', 'item_direction', 'revisit'}
)


def read_row(row: Row, config: MemoryConfig, asked: Row | None = None) -> Trace | None:
    """What an oracle of the row's prompt answers, and why; None: the text does not tell.

    Args:
        row: Asks in words that the oracle knows.
        config: Of the memory.
        asked: The same row in any other words, which decide what its prompt tells.
    """
    if row.question_type in ARM_READERS:
        trace = ARM_READERS[row.question_type](row)
        if trace is None:
            return None
        # With three digits of three figures, positions are copied wrong where letters are not.
        is_place = row.question_type == 'waypoint' and trace[1] in row.options
        return Trace(*trace, option_letter(row.options.index(trace[1])) if is_place else '')
    message = (asked or row).prompt(config).user
    if row.question_type in MAP_QUESTIONS:
        place_text = read_place(message)
        if place_text is None:
            return None
        return Trace(*read_place_question(row.question, row.options, place_text))
    reader = READERS.get(row.question_type)
    lines = read_scene(message)
    return reader(row, lines) if reader and lines else None
