# SPDX-License-Identifier: Apache-2.0
"""Solves questions about a scene map from their words and the landmarks: no model, no margins.

The question is read by its wording alone, as the reasoner reads it. Landmarks come parsed: how
they stand in a prompt is the prompt builder's matter.
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
    bearing_deg,
    first_reach_ns,
    has_sizes,
    level_m,
    longest_cm,
    nearest_gap_m,
    quadrant_of_turn,
    quarter_of_turn,
    route_turns,
    side_of_turn,
    turn_deg,
    turn_word,
)
from embodied_r_ros.types.geometry import NS_PER_S
from embodied_r_ros.types.landmarks import LandmarkStatus
from embodied_r_ros.types.things import other_names, plural

from training.data.place_words import MORE_MAP_WORDINGS, more_pattern

if TYPE_CHECKING:
    from embodied_r_ros.types.geometry import Position
    from embodied_r_ros.types.landmarks import Landmark, PathPoint, SceneMap

_STOP = re.compile(r'^go forward until (?:past )?(?:the )?', re.IGNORECASE)
_SAME_SHARE = 0.1  # two times that differ by less are the same
_SAME_M = 0.3  # likewise a distance then and now


class _NotKnown(Exception):  # noqa: N818 - it is an answer, not an error
    """The map does not tell."""


class _Scene:
    """A map, asked by names."""

    def __init__(self, scene: SceneMap) -> None:
        self.scene = scene

    def named(self, name: str, *, gone: bool = False) -> list[Landmark]:
        """Landmarks of a name: by their label, else by what they may be called as well."""
        there = [
            landmark
            for landmark in self.scene.landmarks
            if gone or landmark.status is LandmarkStatus.PRESENT
        ]
        exact = [landmark for landmark in there if landmark.label == name]
        return exact or [each for each in there if name in other_names(each.label)]

    def only(self, name: str) -> Landmark:
        """The landmark of a name.

        Raises:
            _NotKnown: There is none.
        """
        return self.all_of(name)[0]

    def all_of(self, name: str) -> list[Landmark]:
        """The landmarks of a name.

        Raises:
            _NotKnown: There is none.
        """
        landmarks = self.named(name)
        if not landmarks:
            raise _NotKnown
        return landmarks

    def counted(self, several: str, *, gone: bool) -> int:
        """How many landmarks there are of a name that stands for several."""
        labels = {landmark.label for landmark in self.scene.landmarks}
        single = next((label for label in labels if plural(label) == several), several)
        return len(self.named(single, gone=gone))

    @property
    def now(self) -> PathPoint:
        """Where the robot is.

        Raises:
            _NotKnown: The map has no path.
        """
        if not self.scene.path:
            raise _NotKnown
        return self.scene.path[-1]

    @property
    def start(self) -> PathPoint:
        """Where the robot began.

        Raises:
            _NotKnown: The map has no path.
        """
        if not self.scene.path:
            raise _NotKnown
        return self.scene.path[0]

    def quarter_of(self, name: str) -> str:
        """Quarter in which a thing is now."""
        return quarter_of_turn(bearing_deg(self.now, self.only(name).position))

    def first_seen_ns(self, name: str) -> int:
        """When the first thing of a name came into view."""
        return min(landmark.first_seen_ns for landmark in self.all_of(name))

    def reach_ns(self, name: str) -> float:
        """When the way first led to a thing; infinite: it did not."""
        stamp_ns = first_reach_ns(self.scene.path, self.only(name).position)
        return math.inf if stamp_ns is None else stamp_ns


_Words = dict[str, str]
_Options = Sequence[str]
_Solver = Callable[[_Scene, _Words, _Options], str]


def _gaps(scene: _Scene, names: Sequence[str], reference: str) -> dict[str, float]:
    """Distances of things from another one, all by closest points or all by middles [m]."""
    landmark = scene.only(reference)
    several = [each for name in names for each in scene.all_of(name)]
    if not has_sizes((landmark, *several)):
        return {
            name: min(math.dist(each.position, landmark.position) for each in scene.all_of(name))
            for name in names
        }
    return {name: nearest_gap_m(scene.all_of(name), landmark) for name in names}


def _least(values: dict[str, float]) -> str:
    return min(values, key=values.__getitem__)


def _counting(scene: _Scene, words: _Words, options: _Options) -> str:
    del options
    if item := words.get('item'):
        return str(len(scene.named(item)))
    return str(scene.counted(words['items'], gone=False))


def _count_seen(scene: _Scene, words: _Words, options: _Options) -> str:
    del options
    return str(scene.counted(words['items'], gone=True))


def _apart(scene: _Scene, words: _Words, options: _Options) -> str:
    del options
    return f'{_gaps(scene, [words["a"]], words["b"])[words["a"]]:.1f}'


def _closest(scene: _Scene, words: _Words, options: _Options) -> str:
    return _least(_gaps(scene, options or words['options'].split(', '), words['reference']))


def _turn(scene: _Scene, words: _Words) -> float:
    at, facing, item = (scene.only(words[name]).position for name in ('at', 'facing', 'item'))
    return turn_deg(at, facing, item)


def _longest(scene: _Scene, words: _Words, options: _Options) -> str:
    del options
    size = scene.only(words['item']).size
    if size is None:
        raise _NotKnown
    return f'{longest_cm(size):.0f}'


def _area(scene: _Scene, words: _Words, options: _Options) -> str:
    del words, options
    if scene.scene.room_area_m2 is None:
        raise _NotKnown
    return f'{scene.scene.room_area_m2:.1f}'


def _order(scene: _Scene, words: _Words, options: _Options) -> str:
    del options
    return ', '.join(sorted(words['options'].split(', '), key=scene.first_seen_ns))


def _route(scene: _Scene, words: _Words, options: _Options) -> str:
    del options
    stops, has_blank = route_stops(words['steps'])
    places = [scene.only(stop).position for stop in stops]
    start, facing = (scene.only(words[name]).position for name in ('start', 'facing'))
    turns = route_turns(start, facing, places)
    return ', '.join(
        turn_word(turn) for turn, is_blank in zip(turns, has_blank, strict=True) if is_blank
    )


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


def _at(scene: _Scene, place: Position) -> str:
    """Label of the thing that is nearest to a place, as seen from above."""
    landmarks = scene.scene.landmarks
    return min(landmarks, key=lambda each: level_m(each.position, place)).label


def _ends(scene: _Scene, words: _Words, options: _Options) -> str:
    del words, options
    return START_END.format(a=_at(scene, scene.start.position), b=_at(scene, scene.now.position))


def _beside(scene: _Scene, words: _Words, options: _Options) -> str:
    return _least(_gaps(scene, options, words['item']))


def _next(scene: _Scene, words: _Words, options: _Options) -> str:
    after = scene.reach_ns(words['item'])
    stamps = {option: scene.reach_ns(option) for option in options}
    return _least({k: stamp if stamp > after else math.inf for k, stamp in stamps.items()})


def _later(scene: _Scene, words: _Words, options: _Options) -> str:
    after = scene.first_seen_ns(words['item'])
    return max(
        options,
        key=lambda each: min(scene.first_seen_ns(name) for name in each.split(', ')) - after,
    )


def _change(scene: _Scene, words: _Words, options: _Options) -> str:
    del options
    place = scene.only(words['item']).position
    change = math.dist(scene.now.position, place) - math.dist(scene.start.position, place)
    return CHANGES[2 if abs(change) < _SAME_M else int(change < 0)]


def _longer(scene: _Scene, words: _Words, options: _Options) -> str:
    del options
    first, second = (scene.first_seen_ns(words[name]) for name in 'ab')
    to_a, to_b = first - scene.start.stamp_ns, second - first
    is_same = abs(to_a - to_b) < _SAME_SHARE * max(to_a, to_b)
    return LONGER[2 if is_same else int(to_b > to_a)].format(**words)


def _around(scene: _Scene, words: _Words, options: _Options) -> str:
    del words
    for option in options:
        pieces = option.removesuffix('.').split('. ')
        if all(_holds(scene, f'{piece}.') for piece in pieces):
            return option
    raise _NotKnown


def _holds(scene: _Scene, sentence: str) -> bool:
    """Tell whether a sentence says where a thing is now."""
    for where, text in POSITIONS.items():
        if match := wording_pattern(text).fullmatch(sentence):
            return scene.quarter_of(match['item']) == where
    return False


def _progress(scene: _Scene, words: _Words, options: _Options) -> str:
    del options
    stops = words['stops'].removeprefix('the ').split(', then to the ')
    for stop in stops:
        if scene.reach_ns(stop) == math.inf:
            return GOING.format(item=stop)
    return ARRIVED.format(item=stops[-1])


def _list_there(scene: _Scene, words: _Words, options: _Options) -> str:
    del words
    return max(options, key=lambda each: sum(bool(scene.named(n)) for n in each.split(', ')))


def _presence(scene: _Scene, words: _Words, options: _Options) -> str:
    del options
    name = re.sub(r'^an? ', '', words['a_item'])
    return PRESENCE[0 if scene.named(name, gone=True) else 1]


def _place(scene: _Scene, words: _Words, options: _Options) -> str:
    where = TURNS[scene.quarter_of(words['item'])]
    metres = math.dist(scene.now.position, scene.only(words['item']).position)

    def off(option: str) -> tuple[bool, float]:
        text, _, way = option.partition(' m ')
        return way != where, abs(float(text) - metres)

    return min(options, key=off) if options else f'{metres:.1f} m {where}'


def _age(scene: _Scene, words: _Words, options: _Options) -> str:
    del options
    age_ns = scene.now.stamp_ns - scene.only(words['item']).last_seen_ns
    return f'{age_ns / NS_PER_S:.1f}'


def _distance(scene: _Scene, words: _Words, options: _Options) -> str:
    del options
    return f'{math.dist(scene.now.position, scene.only(words["item"]).position):.1f}'


def _nearest(scene: _Scene, words: _Words, options: _Options) -> str:
    del words
    at = scene.now.position
    return _least(
        {name: min(math.dist(at, e.position) for e in scene.all_of(name)) for name in options}
    )


def _back(scene: _Scene, words: _Words, options: _Options) -> str:
    del words, options
    return TURNS[quarter_of_turn(bearing_deg(scene.now, scene.start.position))]


def _by_quarter(texts: dict[str, str]) -> _Solver:
    """Solves by the quarter in which a thing is now."""
    return lambda scene, words, _: texts[scene.quarter_of(words['item'])].format(**words)


_SOLVERS: dict[str, _Solver] = {
    'object_counting': _counting,
    'object_abs_distance': _apart,
    'object_rel_distance': _closest,
    'object_rel_direction_easy': lambda s, w, _: 'left' if _turn(s, w) > 0 else 'right',
    'object_rel_direction_medium': lambda s, w, _: side_of_turn(_turn(s, w)),
    'object_rel_direction_hard': lambda s, w, _: quadrant_of_turn(_turn(s, w)),
    'object_size_estimation': _longest,
    'room_size_estimation': _area,
    'obj_appearance_order': _order,
    'route_planning': _route,
    'start_end_position': _ends,
    'object_recall': _beside,
    'sequence_recall': _next,
    'scene_recall': _later,
    'proximity': _change,
    'duration': _longer,
    'landmark_position': _by_quarter(POSITIONS),
    'cognitive_map': _around,
    'progress_evaluation': _progress,
    'action_generation': _by_quarter(ACTIONS),
    'list_things': _list_there,
    'is_there': _presence,
    'where_is': _place,
    'last_seen': _age,
    'how_far': _distance,
    'way_back': _back,
    'way_to': _by_quarter(TURNS),
    'nearest_thing': _nearest,
    'count_things': _count_seen,
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
    try:
        return _SOLVERS[kind_words[0]](_Scene(scene), kind_words[1], options)
    except _NotKnown:
        return UNKNOWN
