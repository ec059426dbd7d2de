# SPDX-License-Identifier: Apache-2.0
"""Questions about a scene map as VSI-Bench asks them: counts, distances, directions, sizes, ways.

Each kind is asked only where its solution stays the same when every place is off by the slack of
the map, and clearly not near the border between two answers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from random import Random
from typing import Any, TYPE_CHECKING

from embodied_r_ros.core.scene.map_relations import (
    BACK_DEG,
    distance_to_borders,
    quadrant_of_turn,
    side_of_turn,
    turn_word,
)
from embodied_r_ros.core.scene.tools import called, Scene
from embodied_r_ros.core.types.geometry import NS_PER_S
from embodied_r_ros.core.types.landmarks import LandmarkStatus
from embodied_r_ros.core.types.things import named_things, near_misses, other_names, plural
from embodied_r_ros.data.questions.indoor import Draft, NoSolution
from embodied_r_ros.data.questions.wordings import wording

if TYPE_CHECKING:
    from embodied_r_ros.core.types.landmarks import Landmark, SceneMap

RATIO = 1.25  # of two distances, from which one counts as smaller
MARGIN_DEG = 12.0  # from the border between two directions
_MIN_STANCE_M = 0.4  # between who stands, what is faced and what is looked for
_MIN_GAP_M = 0.2  # nearer than this, things touch
MAX_SLACK_SHARE = 0.15  # of a number: with more slack it is not asked for
_FIRST_SIGHTS_NS = NS_PER_S // 2  # between two first sights whose order is asked
_TRIES = 40  # draws of things before a kind is given up
_MAX_STOPS = 3
_MIN_LEG_M = 0.8


@dataclass(frozen=True)
class MapMoment:
    """What is known of a place now; now is the end of the map's path."""

    scene: SceneMap
    source: str = 'map'  # what proves solutions: 'layout' or 'map'
    slack_m: float = 0.0  # how far places may be off
    doubtful: frozenset[str] = frozenset()  # labels about which the map may be wrong: not asked
    names: tuple[str, ...] = ()  # all that things of such a place may be called; empty: any

    @cached_property
    def things(self) -> dict[str, tuple[Landmark, ...]]:
        """Landmarks that are where they were, by label.

        Those with a doubtful label are left out, and those whose label names others too: where an
        office chair stands, 'the chair' names nothing for certain.
        """
        labels = {landmark.label for landmark in self.scene.landmarks}
        out = self.doubtful.union(*map(other_names, labels))
        things: dict[str, list[Landmark]] = {}
        for landmark in self.scene.landmarks:
            if landmark.label not in out and landmark.status is LandmarkStatus.PRESENT:
                things.setdefault(landmark.label, []).append(landmark)
        return {label: tuple(those) for label, those in things.items()}

    @cached_property
    def singles(self) -> tuple[Landmark, ...]:
        """Landmarks that their label names, since no other one has it."""
        labels = [landmark.label for landmark in self.scene.landmarks]
        return tuple(those[0] for label, those in self.things.items() if labels.count(label) == 1)

    @cached_property
    def tools(self) -> Scene:
        """What computes the numbers; now is the end of the path."""
        now_ns = self.scene.path[-1].stamp_ns if self.scene.path else 0
        return Scene(place=self.scene, now_ns=now_ns, slack_m=self.slack_m)

    def absent(self, names: Iterable[str]) -> list[str]:
        """Those of some names that nothing of the map may be called."""
        labels = {landmark.label for landmark in self.scene.landmarks} | self.doubtful
        all_names = labels.union(*map(other_names, labels))
        return [
            name
            for name in names
            if name not in all_names
            and not other_names(name) & labels
            and (not self.names or name in self.names)
        ]

    def alike(self, label: str) -> list[str]:
        """Names of things like one of the map, of which the map has none."""
        if label in named_things():
            return self.absent(near_misses(label))
        words = set(label.split(' ')[:-1])  # 'red', 'tall' of a 'red tall object'
        return self.absent(name for name in self.names if words & set(name.split(' ')[:-1]))


MapKind = Callable[[MapMoment, Random, bool], 'Draft | NoSolution']

_TOO_FEW = 'too few things that their label alone names'
_UNCLEAR = 'no things whose relation is far from every border'


def object_counting(moment: MapMoment, rng: Random, held_out: bool) -> Draft | NoSolution:
    """How many things of a label the room has."""
    counts = {label: moment.tools.count(label).facts['there'] for label in moment.things}
    if not counts:
        return NoSolution('the map has no landmarks')
    # Most things are there once: the count is drawn first, so that one is not always right.
    number = rng.choice(sorted(set(counts.values())))
    label = rng.choice([label for label, count in counts.items() if count == number])
    question = wording('object_counting', rng, held_out, item=label, items=plural(label))
    truth = {'item': label, 'count': number}
    return Draft(question, (), str(number), 'number', moment.source, truth)


def object_abs_distance(moment: MapMoment, rng: Random, held_out: bool) -> Draft | NoSolution:
    """How far two things are apart."""
    if len(moment.singles) < 2:
        return NoSolution(_TOO_FEW)
    for _ in range(_TRIES):
        a, b = rng.sample(moment.singles, 2)
        metres = moment.tools.distance(called(a.label), called(b.label)).number
        if metres >= _MIN_GAP_M and moment.slack_m <= MAX_SLACK_SHARE * metres:
            question = wording('object_abs_distance', rng, held_out, a=a.label, b=b.label)
            truth = {'distance_m': round(metres, 3), 'measured': _measured((a, b))}
            return _number(moment, question, f'{metres:.1f}', truth)
    return NoSolution('no two things are clearly apart')


def object_rel_distance(moment: MapMoment, rng: Random, held_out: bool) -> Draft | NoSolution:
    """Which of four things is the closest to another one."""
    if not moment.singles or len(moment.things) < 5:
        return NoSolution(_TOO_FEW)
    for _ in range(_TRIES):
        reference = rng.choice(moment.singles)
        labels = rng.sample([label for label in moment.things if label != reference.label], 4)
        landmarks = [landmark for label in labels for landmark in moment.things[label]]
        if len({bool(each.size) for each in (reference, *landmarks)}) > 1:
            continue  # some by their closest points, some by their middles: not comparable
        by_distance = moment.tools.gaps(called(reference.label), labels)
        gaps = {label: by_distance[label] for label in labels}
        if winner := clearly_least(gaps, moment.slack_m):
            question = wording(
                'object_rel_distance', rng, held_out, options=', '.join(labels),
                reference=reference.label,
            )  # fmt: skip
            truth = {
                'distances_m': {label: round(gap, 3) for label, gap in gaps.items()},
                'measured': _measured((reference, *landmarks)),
            }
            return Draft(question, tuple(labels), winner, source=moment.source, truth=truth)
    return NoSolution(_UNCLEAR)


def clearly_least(values: dict[str, float], slack_m: float) -> str:
    """The key of the value that is the least by a clear margin; empty: there is none."""
    first, second = sorted(values, key=values.__getitem__)[:2]
    nearest, next_m = values[first] + slack_m, values[second] - slack_m
    return first if next_m >= RATIO * nearest and next_m - nearest >= 0.1 else ''


def object_rel_direction_easy(
    moment: MapMoment, rng: Random, held_out: bool
) -> Draft | NoSolution:
    """Left or right of what is faced."""

    def answer(degrees: float, slack_deg: float) -> str:
        is_behind = abs(degrees) + slack_deg > BACK_DEG - MARGIN_DEG
        is_ahead = abs(degrees) < MARGIN_DEG + slack_deg
        return '' if is_behind or is_ahead else 'left' if degrees > 0 else 'right'

    options = 'left', 'right'
    return _direction(moment, rng, held_out, ('object_rel_direction_easy', options, answer))


def object_rel_direction_medium(
    moment: MapMoment, rng: Random, held_out: bool
) -> Draft | NoSolution:
    """Left, right or back of who faces something."""

    def answer(degrees: float, slack_deg: float) -> str:
        off = distance_to_borders(degrees, (0.0, BACK_DEG, -BACK_DEG))
        return side_of_turn(degrees) if off >= MARGIN_DEG + slack_deg else ''

    options = 'left', 'right', 'back'
    return _direction(moment, rng, held_out, ('object_rel_direction_medium', options, answer))


def object_rel_direction_hard(
    moment: MapMoment, rng: Random, held_out: bool
) -> Draft | NoSolution:
    """The quadrant as seen by who faces something."""

    def answer(degrees: float, slack_deg: float) -> str:
        off = distance_to_borders(degrees, (0.0, 90.0, -90.0, 180.0))
        return quadrant_of_turn(degrees) if off >= MARGIN_DEG + slack_deg else ''

    options = 'front-left', 'front-right', 'back-left', 'back-right'
    return _direction(moment, rng, held_out, ('object_rel_direction_hard', options, answer))


_Direction = tuple[str, tuple[str, ...], Callable[[float, float], str]]


def _direction(
    moment: MapMoment, rng: Random, held_out: bool, kind: _Direction
) -> Draft | NoSolution:
    """A direction as seen by who stands at one thing and faces another one."""
    if len(moment.singles) < 3:
        return NoSolution(_TOO_FEW)
    name, options, answer = kind
    wanted = rng.choice(options)  # or the back would hardly come
    best: Draft | None = None
    for _ in range(_TRIES):
        at, facing, item = rng.sample(moment.singles, 3)
        names = {'at': at.label, 'facing': facing.label, 'item': item.label}
        places = {slot: called(label) for slot, label in names.items()}
        turn = moment.tools.where(places['item'], places['at'], places['facing'])
        if not turn.is_known or turn.facts['level_m'] < _MIN_STANCE_M:
            continue
        degrees = turn.number
        solution = answer(degrees, turn.facts['slack_deg'])
        if not solution:
            continue
        if best is None or solution == wanted:
            truth = {**names, 'turn_deg': round(degrees, 1)}
            question = wording(name, rng, held_out, **names)
            best = Draft(question, options, solution, source=moment.source, truth=truth)
        if solution == wanted:
            break
    return best or NoSolution(_UNCLEAR)


def object_size_estimation(moment: MapMoment, rng: Random, held_out: bool) -> Draft | NoSolution:
    """How long a thing is at its longest."""
    lengths = [
        (landmark.label, 100 * moment.tools.size(landmark.label, unit='m').number)
        for landmark in moment.singles
        if landmark.size and (moment.source != 'map' or landmark.size[0] != landmark.size[1])
    ]  # by views alone a thing is as long as it is wide
    clear = [(label, cm) for label, cm in lengths if moment.slack_m * 100 <= cm / 2 and cm >= 2]
    if not clear:
        return NoSolution('no thing of its own label has a known size')
    label, cm = rng.choice(clear)
    question = wording('object_size_estimation', rng, held_out, item=label)
    return _number(moment, question, f'{cm:.0f}', {'item': label, 'longest_cm': round(cm, 1)})


def room_size_estimation(moment: MapMoment, rng: Random, held_out: bool) -> Draft | NoSolution:
    """How large the floor is."""
    area = moment.tools.floor_area().number
    if not area >= 1:
        return NoSolution('the floor of the room is not known')
    question = wording('room_size_estimation', rng, held_out)
    return _number(moment, question, f'{area:.1f}', {'area_m2': round(area, 2)})


def obj_appearance_order(moment: MapMoment, rng: Random, held_out: bool) -> Draft | NoSolution:
    """In which order four labels came into view."""
    first_ns = first_sights_ns(moment)
    labels: list[str] = []
    for label in rng.sample(sorted(first_ns), len(first_ns)):
        gaps = [abs(first_ns[label] - first_ns[other]) for other in labels]
        if all(gap >= _FIRST_SIGHTS_NS for gap in gaps):
            labels.append(label)
    labels = labels[:4]
    if len(labels) < 4:
        return NoSolution('fewer than four things came into view apart')
    order = tuple(sorted(labels, key=first_ns.__getitem__))
    wrongs: set[tuple[str, ...]] = set()
    while len(wrongs) < 3:
        wrongs.add(tuple(rng.sample(order, 4)))
        wrongs.discard(order)
    question = wording('obj_appearance_order', rng, held_out, options=', '.join(labels))
    start_ns = min(first_ns.values())
    truth = {label: round((first_ns[label] - start_ns) / NS_PER_S, 1) for label in order}
    options = tuple(', '.join(each) for each in (order, *sorted(wrongs)))
    return Draft(question, options, options[0], source=moment.source, truth=truth)


def first_sights_ns(moment: MapMoment) -> dict[str, int]:
    """When the first thing of each label came into view [ns]; those without a stamp are not in."""
    undated = {each.label for each in moment.scene.landmarks if not each.first_seen_ns}
    return {label: moment.tools.first_ns(label) for label in moment.things if label not in undated}


def route_planning(moment: MapMoment, rng: Random, held_out: bool) -> Draft | NoSolution:
    """Which turns lead along things to a goal."""
    singles = moment.singles
    if len(singles) < 3:
        return NoSolution(_TOO_FEW)
    for _ in range(3 * _TRIES):
        count = min(1 + rng.randrange(_MAX_STOPS), len(singles) - 1)
        start, *stops = rng.sample([each.label for each in singles], count + 1)
        facing = rng.choice([each.label for each in singles if each.label != start])
        turns = _route(moment, start, facing, stops)
        if turns is None:
            continue
        blanks = [word for word in map(turn_word, turns) if word]
        solution = ', '.join(blanks)
        names = {'start': start, 'facing': facing, 'goal': stops[-1]}
        steps = route_steps(turns, stops)
        question = wording('route_planning', rng, held_out, steps=steps, **names)
        truth = {**names, 'turns_deg': [round(turn, 1) for turn in turns]}
        options = (solution, *_wrong_turns(blanks, rng))
        return Draft(question, options, solution, source=moment.source, truth=truth)
    return NoSolution('no way along things whose turns are clear')


def _route(
    moment: MapMoment, start: str, facing: str, stops: Sequence[str]
) -> tuple[float, ...] | None:
    """Turns of a route [degrees]; None: some turn or leg is unclear."""
    *via, goal = map(called, stops)
    way = moment.tools.way_to(goal, called(start), called(facing), via).facts
    turns: tuple[float, ...] = way['turns_deg']
    if min((*way['legs_m'], way['faced_m'])) < _MIN_LEG_M:
        return None
    if not any(map(turn_word, turns)) or not all(map(turn_word, turns[1:])):
        return None
    for turn, slack_deg in zip(turns, way['slacks_deg'], strict=True):
        off = distance_to_borders(turn, (30.0, -30.0, BACK_DEG, -BACK_DEG))
        if off < MARGIN_DEG + slack_deg:
            return None
    return turns


def route_steps(turns: Sequence[float], stops: Sequence[str]) -> str:
    """The numbered actions of a route, its turns left blank."""
    steps: list[str] = []
    for turn, stop in zip(turns, stops, strict=True):
        if turn_word(turn):
            steps.append('[please fill in]')
        steps.append(f'Go forward until the {stop}')
    return ' '.join(f'{number}. {step}' for number, step in enumerate(steps, 1))


def _wrong_turns(blanks: Sequence[str], rng: Random) -> list[str]:
    """Other turns in the blanks: two for one blank, as VSI-Bench has it, and three for more."""
    words = ['Turn Left', 'Turn Right', 'Turn Back']
    if len(blanks) == 1:
        return [word for word in words if word != blanks[0]]
    wrongs: set[str] = set()
    while len(wrongs) < 3:
        wrongs.add(', '.join(rng.choice(words) for _ in blanks))
        wrongs.discard(', '.join(blanks))
    return sorted(wrongs)


def _number(moment: MapMoment, question: str, solution: str, truth: dict[str, Any]) -> Draft:
    return Draft(question, (), solution, 'number', moment.source, truth)


def _measured(landmarks: Sequence[Landmark]) -> str:
    """What a distance is measured between."""
    return 'closest points' if all(each.size for each in landmarks) else 'middles'


VSI_KINDS: dict[str, MapKind] = {
    'object_counting': object_counting,
    'object_abs_distance': object_abs_distance,
    'object_rel_distance': object_rel_distance,
    'object_rel_direction_easy': object_rel_direction_easy,
    'object_rel_direction_medium': object_rel_direction_medium,
    'object_rel_direction_hard': object_rel_direction_hard,
    'object_size_estimation': object_size_estimation,
    'room_size_estimation': room_size_estimation,
    'obj_appearance_order': obj_appearance_order,
    'route_planning': route_planning,
}
