# SPDX-License-Identifier: Apache-2.0
"""Solves questions about a scene map from their words and the tools of the scene: no model.

The question is read by its wording alone, as the reasoner reads it. For each kind a table has the
tool that is called, and how its result becomes an answer.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
import math
import re
from typing import TYPE_CHECKING

from embodied_r_ros.questions.path_kinds import (
    ACTIONS,
    ARRIVED,
    CHANGES,
    GOING,
    LONGER,
    POSITIONS,
    START_END,
)
from embodied_r_ros.questions.people_kinds import PRESENCE, TURNS
from embodied_r_ros.questions.wordings import MAP_WORDINGS, wording_pattern
from embodied_r_ros.reasoning.completions import UNKNOWN
from embodied_r_ros.scene.map_relations import (
    quadrant_of_turn,
    quarter_of_turn,
    side_of_turn,
    turn_word,
)
from embodied_r_ros.scene.tools import called, NotKnownError, Result, ROBOT, Scene, START

from training.data.place_words import MORE_MAP_WORDINGS, more_pattern

if TYPE_CHECKING:
    from embodied_r_ros.types.landmarks import SceneMap

_STOP = re.compile(r'^go forward until (?:past )?(?:the )?', re.IGNORECASE)
_SAME_SHARE = 0.1  # two times that differ by less are the same
_SAME_M = 0.3  # likewise a distance then and now

_Words = dict[str, str]
_Options = Sequence[str]
_Solver = Callable[[Scene, _Words, _Options], str]


def _known(result: Result) -> Result:
    if not result.is_known:
        raise NotKnownError(result.text)
    return result


def _number(call: Callable[[Scene, _Words], Result], digits: int = 1) -> _Solver:
    """Solves by the number of a result."""
    return lambda scene, words, _: f'{_known(call(scene, words)).number:.{digits}f}'


def _turn(name_of: Callable[[float], str]) -> _Solver:
    """Solves by the name of the turn to a thing, for who stands at one and faces another."""

    def solve(scene: Scene, words: _Words, _: _Options) -> str:
        item, at, facing = (called(words[name]) for name in ('item', 'at', 'facing'))
        return name_of(_known(scene.where(item, at, facing)).number)

    return solve


def _quarter(scene: Scene, name: str) -> str:
    """Quarter in which a place is now."""
    return quarter_of_turn(_known(scene.where(name)).number)


def _by_quarter(texts: dict[str, str]) -> _Solver:
    """Solves by the quarter in which a thing is now."""
    return lambda scene, words, _: texts[_quarter(scene, called(words['item']))].format(**words)


def _nearest(scene: Scene, to: str, names: Sequence[str]) -> str:
    return str(_known(scene.nearest(to, names)).value)


def _there(scene: Scene, name: str) -> int:
    there: int = scene.count(name).facts.get('there', 0)
    return there


def _longest(scene: Scene, words: _Words, _: _Options) -> str:
    return f'{100 * _known(scene.size(words["item"], unit="m")).number:.0f}'


def _order(scene: Scene, words: _Words, _: _Options) -> str:
    names = words['options'].split(', ')
    return ', '.join(sorted(names, key=scene.first_ns))


def _route(scene: Scene, words: _Words, _: _Options) -> str:
    stops, has_blank = route_stops(words['steps'])
    *via, goal, start, facing = map(called, (*stops, words['start'], words['facing']))
    turns = _known(scene.way_to(goal, start, facing, via)).facts['turns_deg']
    blanks = zip(turns, has_blank, strict=True)
    return ', '.join(turn_word(turn) for turn, is_blank in blanks if is_blank)


def route_stops(steps_text: str) -> tuple[list[str], list[bool]]:
    """The stops of a route's numbered steps, and before which of their legs a turn is left out."""
    steps = re.split(r'(?:^|\s)\d+\. ?', steps_text)[1:]
    has_blank, stops = [], []
    for index, step in enumerate(steps):
        if not step.startswith('['):
            # A blank stands before its leg: legs without one go straight on.
            has_blank.append(index > 0 and steps[index - 1].startswith('['))
            stops.append(_STOP.sub('', step.strip(' .')))
    return stops, has_blank


def _ends(scene: Scene, _: _Words, __: _Options) -> str:
    start, end = (next(iter(scene.gaps(end, from_above=True))) for end in (START, ROBOT))
    return START_END.format(a=start, b=end)


def _next(scene: Scene, words: _Words, options: _Options) -> str:
    stamps = _known(scene.visited([words['item'], *options])).facts['stamps_ns']
    after = stamps.get(words['item'], math.inf)
    later = [name for name in options if stamps.get(name, 0) > after]
    if not later:
        msg = f'nothing after the {words["item"]}'
        raise NotKnownError(msg)
    return min(later, key=stamps.__getitem__)


def _later(scene: Scene, words: _Words, options: _Options) -> str:
    scene.first_ns(words['item'])  # it is there
    earliest = {each: min(map(scene.first_ns, each.split(', '))) for each in options}
    return max(options, key=earliest.__getitem__, default=UNKNOWN)


def _change(scene: Scene, words: _Words, _: _Options) -> str:
    item = called(words['item'])
    start_m, now_m = (_known(scene.distance(item, end)).number for end in (START, ROBOT))
    return change_word(start_m, now_m)


def change_word(start_m: float, now_m: float) -> str:
    """How a distance changed, in the words of an answer."""
    change = now_m - start_m
    return CHANGES[2 if abs(change) < _SAME_M else int(change < 0)]


def _longer(scene: Scene, words: _Words, _: _Options) -> str:
    first, second = scene.first_ns(words['a']), scene.first_ns(words['b'])
    return longer_word(first - scene.start.stamp_ns, second - first).format(**words)


def longer_word(to_a: float, to_b: float) -> str:
    """Which of two stretches took longer, in the words of an answer."""
    is_same = abs(to_a - to_b) < _SAME_SHARE * max(to_a, to_b)
    return LONGER[2 if is_same else int(to_b > to_a)]


def _around(scene: Scene, _: _Words, options: _Options) -> str:
    for option in options:
        pieces = option.removesuffix('.').split('. ')
        if all(_holds(scene, f'{piece}.') for piece in pieces):
            return option
    msg = 'no option says what is around'
    raise NotKnownError(msg)


def _holds(scene: Scene, sentence: str) -> bool:
    """Tell whether a sentence says where a thing is now."""
    for where, text in POSITIONS.items():
        if match := wording_pattern(text).fullmatch(sentence):
            return _quarter(scene, called(match['item'])) == where
    return False


def _progress(scene: Scene, words: _Words, _: _Options) -> str:
    stops = words['stops'].removeprefix('the ').split(', then to the ')
    for stop in stops:
        if not _known(scene.visited([stop])).value:
            return GOING.format(item=stop)
    return ARRIVED.format(item=stops[-1])


def _presence(scene: Scene, words: _Words, _: _Options) -> str:
    name = re.sub(r'^an? ', '', words['a_item'])
    return PRESENCE[0 if scene.count(name).number > 0 else 1]


def _place(scene: Scene, words: _Words, options: _Options) -> str:
    place = _known(scene.where(called(words['item'])))
    where, metres = TURNS[quarter_of_turn(place.number)], place.facts['distance_m']
    return place_option(where, metres, options) if options else f'{metres:.1f} m {where}'


def place_option(where: str, metres: float, options: Sequence[str]) -> str:
    """The option that is nearest to a place in words."""

    def off(option: str) -> tuple[bool, float]:
        text, _, way = option.partition(' m ')
        return way != where, abs(float(text) - metres)

    return min(options, key=off)


_SOLVERS: dict[str, _Solver] = {
    'object_counting': lambda s, w, _: str(_there(s, w.get('item') or w['items'])),
    'object_abs_distance': _number(lambda s, w: s.distance(called(w['a']), called(w['b']))),
    'object_rel_distance': lambda s, w, options: _nearest(
        s, called(w['reference']), options or w['options'].split(', ')
    ),
    'object_rel_direction_easy': _turn(lambda turn: 'left' if turn > 0 else 'right'),
    'object_rel_direction_medium': _turn(side_of_turn),
    'object_rel_direction_hard': _turn(quadrant_of_turn),
    'object_size_estimation': _longest,
    'room_size_estimation': _number(lambda s, _: s.floor_area()),
    'obj_appearance_order': _order,
    'route_planning': _route,
    'start_end_position': _ends,
    'object_recall': lambda s, w, options: _nearest(s, called(w['item']), options),
    'sequence_recall': _next,
    'scene_recall': _later,
    'proximity': _change,
    'duration': _longer,
    'landmark_position': _by_quarter(POSITIONS),
    'cognitive_map': _around,
    'progress_evaluation': _progress,
    'action_generation': _by_quarter(ACTIONS),
    'list_things': lambda s, _, options: max(
        options, key=lambda each: sum(_there(s, name) > 0 for name in each.split(', '))
    ),
    'is_there': _presence,
    'where_is': _place,
    'last_seen': _number(lambda s, w: s.seen(w['item'])),
    'how_far': _number(lambda s, w: s.distance(called(w['item']))),
    'way_back': lambda s, _, __: TURNS[_quarter(s, START)],
    'way_to': _by_quarter(TURNS),
    'nearest_thing': lambda s, _, options: _nearest(s, ROBOT, options),
    'count_things': _number(lambda s, w: s.count(w['items']), 0),
}


@cache
def _patterns() -> tuple[tuple[str, re.Pattern[str]], ...]:
    """Kinds and their wordings, the wordiest first: what is left open takes in the least."""
    wordings = [
        *((kind, text, wording_pattern(text)) for kind in _SOLVERS for text in MAP_WORDINGS[kind]),
        *(
            (kind, text, more_pattern(text))
            for kind in _SOLVERS
            for text in MORE_MAP_WORDINGS[kind]
        ),
    ]
    wordings.sort(key=lambda each: -len(re.sub(r'\{\w+\}|\|[^]|]*|[][]', '', each[1])))
    return tuple((kind, pattern) for kind, _, pattern in wordings)


def kind_and_words(question: str) -> tuple[str, dict[str, str]] | None:
    """The kind of a question about a map, and the names in it; None: it is of no known wording.

    >>> kind_and_words('How far is the chair from you now (in meters)?')
    ('how_far', {'item': 'chair'})
    """
    for kind, pattern in _patterns():
        if match := pattern.fullmatch(question):
            return kind, match.groupdict()
    return None


def solve_from_map(question: str, options: Sequence[str], scene: SceneMap) -> str:
    """What the landmarks and the path of a map answer: a number, an option's text, or 'unknown'.

    Args:
        question: The question, as the prompt has it.
        options: The options, as the prompt has them; empty for a free question.
        scene: What the prompt tells of the map.
    """
    kind_words = kind_and_words(question)
    if kind_words is None:
        return UNKNOWN
    now_ns = scene.path[-1].stamp_ns if scene.path else 0
    known = Scene(place=scene, now_ns=now_ns, guesses=False)
    try:
        return _SOLVERS[kind_words[0]](known, kind_words[1], options)
    except NotKnownError:
        return UNKNOWN
