# SPDX-License-Identifier: Apache-2.0
"""Questions about a scene map as VSI-Bench asks them: counts, distances, directions, sizes, ways.

Each kind is asked only where its solution stays the same when every place is off by the slack of
the map, and clearly not near the border between two answers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
import math
from random import Random
from typing import Any, TYPE_CHECKING

from embodied_r_ros.questions.indoor import Draft, NoSolution
from embodied_r_ros.questions.wordings import wording
from embodied_r_ros.scene.map_relations import (
    BACK_DEG,
    distance_to_borders,
    gap_m,
    has_sizes,
    level_m,
    longest_cm,
    nearest_gap_m,
    quadrant_of_turn,
    route_turns,
    side_of_turn,
    turn_deg,
    turn_word,
)
from embodied_r_ros.types.geometry import NS_PER_S
from embodied_r_ros.types.landmarks import LandmarkStatus
from embodied_r_ros.types.things import named_things, near_misses, other_names, plural

if TYPE_CHECKING:
    from embodied_r_ros.types.landmarks import Landmark, PathPoint, SceneMap

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

    @property
    def now(self) -> PathPoint | None:
        """Where the robot is; None: not known."""
        return self.scene.path[-1] if self.scene.path else None

    @property
    def start(self) -> PathPoint | None:
        """Where the robot began; None: not known."""
        return self.scene.path[0] if self.scene.path else None

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

    def angle_slack_deg(self, *distances_m: float) -> float:
        """Angle by which a direction may be off, from the distances of what gives it [degrees]."""
        return sum(
            math.degrees(math.asin(min(1.0, self.slack_m / distance))) if distance else 180.0
            for distance in distances_m
        )


MapKind = Callable[[MapMoment, Random, bool], 'Draft | NoSolution']

_TOO_FEW = 'too few things that their label alone names'
_UNCLEAR = 'no things whose relation is far from every border'


def object_counting(moment: MapMoment, rng: Random, held_out: bool) -> Draft | NoSolution:
    """How many things of a label the room has."""
    counts = {label: len(those) for label, those in moment.things.items()}
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
        metres = gap_m(a, b)
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
        if not has_sizes((reference, *landmarks)) and any(
            landmark.size for landmark in (reference, *landmarks)
        ):
            continue  # some by their closest points, some by their middles: not comparable
        gaps = {label: nearest_gap_m(moment.things[label], reference) for label in labels}
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
        to_facing, to_item = (level_m(at.position, to.position) for to in (facing, item))
        if min(to_facing, to_item) < _MIN_STANCE_M:
            continue
        degrees = turn_deg(at.position, facing.position, item.position)
        solution = answer(degrees, 2 * moment.angle_slack_deg(to_facing, to_item))
        if not solution:
            continue
        names = {'at': at.label, 'facing': facing.label, 'item': item.label}
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
        (landmark.label, longest_cm(landmark.size))
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
    area = moment.scene.room_area_m2
    if not area or area < 1:
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
    return {
        label: min(landmark.first_seen_ns for landmark in those)
        for label, those in moment.things.items()
        if all(landmark.first_seen_ns for landmark in those)
    }


def route_planning(moment: MapMoment, rng: Random, held_out: bool) -> Draft | NoSolution:
    """Which turns lead along things to a goal."""
    singles = moment.singles
    if len(singles) < 3:
        return NoSolution(_TOO_FEW)
    for _ in range(3 * _TRIES):
        count = min(1 + rng.randrange(_MAX_STOPS), len(singles) - 1)
        start, *stops = rng.sample(singles, count + 1)
        facing = rng.choice([each for each in singles if each is not start])
        turns = _route(moment, start, facing, stops)
        if turns is None:
            continue
        blanks = [word for word in map(turn_word, turns) if word]
        solution = ', '.join(blanks)
        names = {'start': start.label, 'facing': facing.label, 'goal': stops[-1].label}
        steps = route_steps(turns, [stop.label for stop in stops])
        question = wording('route_planning', rng, held_out, steps=steps, **names)
        truth = {**names, 'turns_deg': [round(turn, 1) for turn in turns]}
        options = (solution, *_wrong_turns(blanks, rng))
        return Draft(question, options, solution, source=moment.source, truth=truth)
    return NoSolution('no way along things whose turns are clear')


def _route(
    moment: MapMoment, start: Landmark, facing: Landmark, stops: Sequence[Landmark]
) -> tuple[float, ...] | None:
    """Turns of a route [degrees]; None: some turn or leg is unclear."""
    places = [start.position, *(stop.position for stop in stops)]
    legs = [level_m(a, b) for a, b in pairwise(places)]
    to_facing = level_m(start.position, facing.position)
    if min((*legs, to_facing)) < _MIN_LEG_M:
        return None
    turns = route_turns(start.position, facing.position, places[1:])
    if not any(map(turn_word, turns)) or not all(map(turn_word, turns[1:])):
        return None
    for turn, before, after in zip(turns, (to_facing, *legs), legs, strict=False):
        slack_deg = 2 * moment.angle_slack_deg(before, after)
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
    return 'closest points' if has_sizes(landmarks) else 'middles'


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
