# SPDX-License-Identifier: Apache-2.0
"""Questions about a room: a moment of an episode, and what each kind asks of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
import math
from random import Random
from typing import Any, TYPE_CHECKING, TypeVar

from embodied_r_ros.core.types.answers import UNKNOWN
from embodied_r_ros.core.types.geometry import wrap_angle_rad, yaw_pitch_roll
from embodied_r_ros.core.types.vocabulary import COLOURS, item_label, SHAPES
from embodied_r_ros.data.questions.wordings import (
    FACINGS,
    FOREIGN,
    HEIGHTS,
    PLACES,
    RETURNS,
    wording,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from embodied_r_ros.core.types.deltas import SemanticDelta
    from embodied_r_ros.core.types.geometry import Pose
    from embodied_r_ros.core.types.layout import ImageTruth, Layout, LayoutObject
    from embodied_r_ros.data.episodes.episode import Episode
    from embodied_r_ros.data.questions.coverage import Coverage

Known = TypeVar('Known')  # a moment, or what is known of a place then
# An object that moved less than this still is where it was seen [m].
_SAME_PLACE_M = 0.3


@dataclass(frozen=True)
class Moment:
    """An episode up to one of its deltas. The newest delta is now."""

    deltas: tuple[SemanticDelta, ...]
    poses: tuple[Pose, ...] = ()  # of the camera link at each delta; empty: not known
    layout: Layout | None = None  # None: not simulated
    no_poses: str = 'no odometry, no transforms and no true layout'  # why there are no poses
    pose_source: str = 'odometry'  # where the poses come from, without a layout

    @classmethod
    def of(cls, episode: Episode, count: int) -> Moment:
        """An episode up to its delta of a number, from 1."""
        until_then = episode.deltas[:count], episode.poses[:count]
        return cls(*until_then, episode.layout, episode.no_poses, episode.pose_source)

    @property
    def now_ns(self) -> int:
        """Stamp of the newest delta."""
        return self.deltas[-1].stamp_ns

    @cached_property
    def displacement(self) -> tuple[float, float, float]:
        """Way from the first pose to the newest, in the first view's level axes [m]."""
        first, last = self.poses[0], self.poses[-1]
        yaw = yaw_pitch_roll(first.rotation())[0]
        dx, dy, dz = (b - a for a, b in zip(first.position, last.position, strict=True))
        cos, sin = math.cos(yaw), math.sin(yaw)
        return cos * dx + sin * dy, -sin * dx + cos * dy, dz

    @cached_property
    def farthest_m(self) -> float:
        """Greatest level distance from the first pose up to now [m]."""
        x, y, _ = self.poses[0].position
        return max(math.hypot(p.position[0] - x, p.position[1] - y) for p in self.poses)

    @cached_property
    def turn_rad(self) -> float:
        """Turn of the level heading from first to newest pose, in (-pi, pi] [rad]."""
        first, last = (yaw_pitch_roll(self.poses[i].rotation())[0] for i in (0, -1))
        return wrap_angle_rad(last - first)

    @cached_property
    def images(self) -> tuple[ImageTruth, ...]:
        """Truth at the stamp of each delta; empty without a layout."""
        if self.layout is None:
            return ()
        return tuple(self.layout.image_at(delta.stamp_ns) for delta in self.deltas)

    @cached_property
    def sights(self) -> dict[int, tuple[int, ...]]:
        """For each object that was seen: positions of the deltas at which it could be."""
        indices: dict[int, list[int]] = {}
        for index, image in enumerate(self.images):
            for view in image.views:
                if view.visible:
                    indices.setdefault(view.object_id, []).append(index)
        return {key: tuple(value) for key, value in indices.items()}

    @cached_property
    def never_seen(self) -> tuple[LayoutObject, ...]:
        """Objects that no image up to now shows, not even between keyframes."""
        if self.layout is None:
            return ()
        return tuple(
            thing
            for thing in self.layout.objects
            if not thing.first_seen_ns or thing.first_seen_ns > self.now_ns
        )

    def has_own_label(self, thing: LayoutObject) -> bool:
        """Tell whether no other object of the episode has the same label."""
        others = self.layout.objects if self.layout else ()
        return sum(other.label == thing.label for other in others) == 1

    def seen_once_labelled(self) -> list[LayoutObject]:
        """Objects that were seen and whose label is their own."""
        objects = self.layout.objects if self.layout else ()
        return [
            thing for thing in objects if thing.id in self.sights and self.has_own_label(thing)
        ]

    def direction_now(self, thing: LayoutObject) -> tuple[float, float] | None:
        """Bearing [rad] and distance [m] of a seen object now; None where it may have gone.

        The deltas cannot show an object that went or moved out of view.
        """
        last = self.sights[thing.id][-1]
        then, now = (thing.position_at(self.images[i].stamp_ns) for i in (last, -1))
        if then is None or now is None or math.dist(then, now) > _SAME_PLACE_M:
            return None
        bearing, _, distance = self.images[-1].direction_to(now)
        return bearing, distance


# Quarters of a turn, each cut back by this much at both ends [degrees].
_QUARTER_MARGIN_DEG = 12.0
_MIN_WAY_M = 0.5  # nearer to the start than this is 'at the start'
_MIN_RISE_M = 0.15
# A way of some metres, added up from steps of 0.1 m and 5 degrees, is known to about 0.3 m.
_BACK_M = 0.3  # nearer to the start than this is back
_AWAY_M = 1.0  # farther from it than this is away
_SAME_VIEW_DEG = 30.0
_OTHER_VIEW_DEG = 60.0
_MAX_COUNT = 3  # largest count among the options
_MIN_DISTANCE_RATIO = 1.25  # the nearest must be nearer by this factor


@dataclass(frozen=True)
class Draft:
    """A question with its solution; options are shuffled later."""

    question: str
    options: tuple[str, ...]  # empty: the answer is a number or a text
    solution: str  # text of the option, a number, or 'unknown'
    answer_kind: str = 'choice'
    source: str = 'layout'  # what proves the solution
    truth: dict[str, Any] = field(default_factory=dict)  # the numbers behind the solution


@dataclass(frozen=True)
class NoSolution:
    """A kind has no solution at a moment."""

    reason: str


# Held-out wordings are used for some rows of the test split alone; True asks for one.
Kind = Callable[['Moment', Random, bool], 'Draft | NoSolution']


def quarter_name(angle_deg: float) -> str | None:
    """Name the quarter that a direction lies in; None near a border between two."""
    for name, centre in (('ahead', 0.0), ('left', 90.0), ('behind', 180.0), ('right', -90.0)):
        offset = (angle_deg - centre + 180.0) % 360.0 - 180.0
        if abs(offset) <= 45.0 - _QUARTER_MARGIN_DEG:
            return name
    return None


# What people call things, in the order in which a demonstration asks about them.
_SPOKEN = {
    'couch': 'sofa', 'plant': 'plant', 'tv': 'tv', 'table': 'table', 'shelf': 'shelf',
    'door': 'door', 'lamp': 'lamp', 'cabinet': 'cabinet',
}  # fmt: skip


def plain_questions(moment: Moment) -> list[tuple[str, str]]:
    """Questions in the words of people about things with names, each with its true answer.

    Where is a thing that is not ahead, was another one seen before a third, how far is a fourth.
    Empty where there are not so many things.
    """
    seen = {thing.label: thing for thing in moment.seen_once_labelled()}
    places = {}
    for label in [label for label in _SPOKEN if label in seen]:
        bearing, distance_m = moment.direction_now(seen[label]) or (0.0, math.nan)
        places[label] = quarter_name(math.degrees(bearing)), distance_m
    placed = [label for label, (where, _) in places.items() if where not in {None, 'ahead'}]
    others = [label for label in places if label not in placed[:1]]
    if not placed or len(others) < 3:
        return []
    first, second, third = others[:3]
    sights = [moment.sights[seen[label].id][0] for label in (first, second)]
    return [
        (f'Where is the {_SPOKEN[placed[0]]}?', str(places[placed[0]][0])),
        (
            f'Did you see the {_SPOKEN[first]} before the {_SPOKEN[second]}?',
            'yes' if sights[0] < sights[1] else 'no',
        ),
        (f'How far is the {_SPOKEN[third]}?', f'{places[third][1]:.1f} m'),
    ]


def _motion_source(moment: Moment) -> str:
    return 'layout' if moment.layout else moment.pose_source


def net_turn(moment: Moment, rng: Random, held_out: bool) -> Draft | NoSolution:
    """Which way the robot faces now, compared with the start."""
    if not moment.poses:
        return NoSolution(moment.no_poses)
    degrees = math.degrees(moment.turn_rad)
    where = quarter_name(degrees)
    if where is None:
        return NoSolution('the turn is near the border between two options')
    question = wording('net_turn', rng, held_out)
    truth = {'turn_deg': round(degrees, 1)}
    source = _motion_source(moment)
    return Draft(question, tuple(FACINGS.values()), FACINGS[where], source=source, truth=truth)


def net_displacement(moment: Moment, rng: Random, held_out: bool) -> Draft | NoSolution:
    """Where the robot is now, seen from the start."""
    if not moment.poses:
        return NoSolution(moment.no_poses)
    x, y, _ = moment.displacement
    way_m = math.hypot(x, y)
    where = quarter_name(math.degrees(math.atan2(y, x)))
    if way_m < _MIN_WAY_M:
        return NoSolution('the robot is too near to its start')
    if where is None:
        return NoSolution('the way is near the border between two options')
    question = wording('net_displacement', rng, held_out)
    truth = {'x_m': round(x, 2), 'y_m': round(y, 2)}
    source = _motion_source(moment)
    return Draft(question, tuple(PLACES.values()), PLACES[where], source=source, truth=truth)


def height_change(moment: Moment, rng: Random, held_out: bool) -> Draft | NoSolution:
    """Whether the camera is higher or lower than at the start."""
    if not moment.poses:
        return NoSolution(moment.no_poses)
    rise_m = moment.displacement[2]
    if _MIN_RISE_M / 3 < abs(rise_m) < _MIN_RISE_M:
        return NoSolution('the rise is near the border between two options')
    level = 'at the same height' if abs(rise_m) < _MIN_RISE_M else ''
    solution = level or ('higher' if rise_m > 0 else 'lower')
    return Draft(
        wording('height_change', rng, held_out),
        HEIGHTS,
        solution,
        source=_motion_source(moment),
        truth={'rise_m': round(rise_m, 2)},
    )


def revisit(moment: Moment, rng: Random, held_out: bool) -> Draft | NoSolution:
    """Whether the robot has come back to its first place, and to its first view."""
    if reason := _no_return(moment):
        return NoSolution(reason)
    x, y, _ = moment.displacement
    way_m, turn_deg = math.hypot(x, y), abs(math.degrees(moment.turn_rad))
    came = 'back' if turn_deg <= _SAME_VIEW_DEG else 'turned'
    return Draft(
        wording('revisit', rng, held_out),
        tuple(RETURNS.values()),
        RETURNS['away' if way_m >= _AWAY_M else came],
        source=_motion_source(moment),
        truth={'way_m': round(way_m, 2), 'turn_deg': round(turn_deg, 1)},
    )


def _no_return(moment: Moment) -> str:
    """Why there is no question whether the robot came back; empty: there can be."""
    if not moment.poses:
        return moment.no_poses
    x, y, rise_m = moment.displacement
    way_m, turn_deg = math.hypot(x, y), abs(math.degrees(moment.turn_rad))
    is_near = way_m < _AWAY_M
    reasons = {
        'in such a simulated world no path leads back: one answer would do for all': bool(
            moment.layout and not moment.layout.may_return
        ),
        'the robot has not been away from its start': moment.farthest_m < _AWAY_M,
        'the robot is near its start, but not at it': is_near
        and (way_m > _BACK_M or abs(rise_m) > _MIN_RISE_M),
        'the view is near the border between two options': is_near
        and _SAME_VIEW_DEG < turn_deg < _OTHER_VIEW_DEG,
    }
    return next((reason for reason, holds in reasons.items() if holds), '')


def item_direction(moment: Moment, rng: Random, held_out: bool) -> Draft | NoSolution:
    """Where an item is relative to the camera now, in view or not."""
    things = moment.seen_once_labelled()
    rng.shuffle(things)
    for thing in things:
        direction = moment.direction_now(thing)
        where = quarter_name(math.degrees(direction[0])) if direction else None
        if direction and where:
            return Draft(
                wording('item_direction', rng, held_out, item=thing.label),
                ('ahead', 'left', 'right', 'behind'),
                where,
                truth={
                    'item': thing.label,
                    'bearing_deg': round(math.degrees(direction[0]), 1),
                    'distance_m': round(direction[1], 2),
                    'in_view': moment.sights[thing.id][-1] == len(moment.deltas) - 1,
                },
            )
    return NoSolution('no seen item with a label of its own and a clear direction')


def first_sight(moment: Moment, rng: Random, held_out: bool) -> Draft | NoSolution:
    """Which of several items came into view first."""
    things = moment.seen_once_labelled()
    rng.shuffle(things)
    chosen: list[LayoutObject] = []
    for thing in things:
        if moment.sights[thing.id][0] not in [moment.sights[other.id][0] for other in chosen]:
            chosen.append(thing)
    chosen = chosen[:4]
    if len(chosen) < 2:
        return NoSolution('fewer than two items that were first seen at different keyframes')
    first = min(chosen, key=lambda thing: moment.sights[thing.id][0])
    labels = tuple(thing.label for thing in chosen)
    truth = {thing.label: moment.sights[thing.id][0] for thing in chosen}
    return Draft(wording('first_sight', rng, held_out), labels, first.label, truth=truth)


def how_many(moment: Moment, rng: Random, held_out: bool) -> Draft | NoSolution:
    """How many items of a colour have been seen."""
    if not moment.layout:
        return NoSolution('no true layout')
    things = [thing for thing in moment.layout.objects if thing.id in moment.sights]
    doubtful = {thing.colour for thing in things if not moment.has_own_label(thing)}
    doubtful |= {t.colour for t in moment.layout.objects if _seen_in_passing(moment, t)}
    clear = [colour.name for colour in COLOURS if colour.name not in doubtful]
    counts = {name: sum(thing.colour == name for thing in things) for name in clear}
    counts = {name: count for name, count in counts.items() if count <= _MAX_COUNT}
    if not counts:
        return NoSolution('every colour has items that cannot be told apart')
    # Most colours were seen once or never: the count is drawn first, so that those are not all.
    number = rng.choice(sorted(set(counts.values())))
    name = rng.choice([name for name, count in counts.items() if count == number])
    question = wording('how_many', rng, held_out, colour=name)
    truth = {'colour': name, 'count': counts[name]}
    if rng.random() < 0.25:
        return Draft(question, (), str(counts[name]), 'number', truth=truth)
    options = tuple(str(count) for count in range(_MAX_COUNT + 1))
    return Draft(question, options, str(counts[name]), truth=truth)


def _seen_in_passing(moment: Moment, thing: LayoutObject) -> bool:
    """Tell whether an object was in view, but at no keyframe."""
    return thing.id not in moment.sights and 0 < thing.first_seen_ns <= moment.now_ns


def nearest(moment: Moment, rng: Random, held_out: bool) -> Draft | NoSolution:
    """Which of the items in view is nearest now."""
    last = len(moment.deltas) - 1
    distances = {
        thing.label: direction[1]
        for thing in moment.seen_once_labelled()
        if moment.sights[thing.id][-1] == last and (direction := moment.direction_now(thing))
    }
    if len(distances) < 2:
        return NoSolution('fewer than two items with a label of their own in view now')
    labels = rng.sample(sorted(distances), min(4, len(distances)))
    by_distance = sorted(labels, key=distances.__getitem__)
    if distances[by_distance[1]] < _MIN_DISTANCE_RATIO * distances[by_distance[0]]:
        return NoSolution('two items are about equally near')
    truth = {label: round(distances[label], 2) for label in labels}
    question = wording('nearest', rng, held_out)
    return Draft(question, tuple(labels), by_distance[0], truth=truth)


def unanswerable(moment: Moment, rng: Random, held_out: bool) -> Draft | NoSolution:
    """What no delta answers: an item that was never seen, or a question of another kind."""
    if rng.random() < 0.4:
        question, options = rng.choice(FOREIGN[held_out])
        return Draft(question, tuple(options), UNKNOWN, source='foreign')
    if not moment.layout:
        return NoSolution('no true layout')
    visible_labels = {
        thing.label for thing in moment.layout.objects if thing not in moment.never_seen
    }
    every = [item_label(colour.name, shape) for colour in COLOURS for shape in SHAPES]
    # What no world of these may have is never anywhere: its label alone would tell the answer.
    labels = [label for label in moment.layout.labels or every if label not in visible_labels]
    if not labels:
        return NoSolution('every kind of item was seen')
    label = rng.choice(labels)
    question = wording('item_direction', rng, held_out, item=label)
    return Draft(question, ('ahead', 'left', 'right', 'behind'), UNKNOWN, truth={'item': label})


KINDS: dict[str, Kind] = {
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


def ask_kinds(
    kinds: Mapping[str, Callable[[Known, Random, bool], Draft | NoSolution]],
    moment: Known,
    split: str,
    rng: Random,
    coverage: Coverage,
) -> Iterator[tuple[str, Draft, bool]]:
    """Ask every kind at a moment: the kind, the question, and whether its wording is held out.

    Args:
        kinds: The kinds, of a moment or of what is known of a place then.
        moment: The moment.
        split: Half of the questions of the split test are worded as no training row is.
        rng: Where chance comes from.
        coverage: Counts what has no solution.
    """
    for kind, ask in kinds.items():
        held_out = split == 'test' and rng.random() < 0.5
        draft = ask(moment, rng, held_out)
        if isinstance(draft, NoSolution):
            coverage.unsolved[kind, draft.reason] += 1
        else:
            yield kind, draft, held_out
