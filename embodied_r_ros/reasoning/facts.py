# SPDX-License-Identifier: Apache-2.0
"""The fact book of a scene: every number and relation that the scene can state about its things.

Lengths are in metres, angles in degrees (bearings positive to the left), times in seconds from the
first observation. Facts are asked for by the labels that a name means.
"""

from __future__ import annotations

from itertools import combinations
import math
from typing import TYPE_CHECKING

from embodied_r_ros.scene.map_relations import bearing_deg, gap_m, level_m, turn_deg
from embodied_r_ros.scene.tools import NotKnownError
from embodied_r_ros.types.deltas import item_text, ItemStatus, parse_action
from embodied_r_ros.types.geometry import NS_PER_S

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from embodied_r_ros.scene.tools import Scene, Thing
    from embodied_r_ros.types.deltas import Item, MotionStep
    from embodied_r_ros.types.geometry import Position
    from embodied_r_ros.types.landmarks import PathPoint

Labels = tuple[str, ...]
_SIGNS = {'left': 1.0, 'right': -1.0}
_TURNS = 'turned'


class FactBook:
    """What a scene can state."""

    def __init__(self, scene: Scene) -> None:
        """Read the observations of a scene.

        Args:
            scene: The scene.
        """
        self.scene = scene
        deltas = scene.deltas
        began = deltas[0].stamp_ns if deltas else scene._began_ns
        self.began_ns = began
        self.items: dict[int, tuple[Item, ...]] = {
            number: delta.items for number, delta in enumerate(deltas, 1)
        }
        self.times = {n: (d.stamp_ns - began) / NS_PER_S for n, d in enumerate(deltas, 1)}
        self.steps: dict[int, list[MotionStep]] = {
            n: parse_action(d.action) or [] for n, d in enumerate(deltas, 1)
        }
        self.end_s = max(0.0, (scene.now_ns - began) / NS_PER_S)

    @property
    def count(self) -> int:
        """How many observations there are."""
        return len(self.items)

    def things(self, labels: Labels) -> list[Thing]:
        """The things of some labels."""
        return [thing for thing in self.scene.all_things if thing.label in labels]

    def placed(self, labels: Labels) -> list[tuple[Thing, Position]]:
        """Those with a place."""
        return [(t, t.position) for t in self.things(labels) if t.position is not None]

    def seen(self, labels: Labels, number: int) -> list[Item]:
        """Items of some labels in an observation, those that left among them."""
        return [item for item in self.items.get(number, ()) if item.label in labels]

    def in_view(self, labels: Labels, number: int) -> list[Item]:
        """Items of some labels that an observation shows."""
        return [i for i in self.seen(labels, number) if i.status is not ItemStatus.LEFT]

    def sightings(self, labels: Labels) -> list[int]:
        """The observations that show things of some labels."""
        return [number for number in self.items if self.in_view(labels, number)]

    # Numbers about things.

    def _ends(self) -> list[PathPoint]:
        try:
            robot = self.scene.robot
        except NotKnownError:
            return []
        try:
            return [robot, self.scene.start]
        except NotKnownError:
            return [robot]

    def distances(self, labels: Labels) -> list[float]:
        """How far things are from the robot and from the start, by the map."""
        return [
            value
            for point in self._ends()
            for _, place in self.placed(labels)
            for value in (math.dist(point.position, place), level_m(point.position, place))
        ]

    def offsets(self, labels: Labels) -> list[float]:
        """How far things are from the robot and from the start along the level axes."""
        pairs = [(p.position, place) for p in self._ends() for _, place in self.placed(labels)]
        return [abs(place[axis] - at[axis]) for at, place in pairs for axis in (0, 1)]

    def observed_distances(self, labels: Labels) -> list[float]:
        """How far things were in observations."""
        items = (i for number in self.items for i in self.in_view(labels, number))
        return [i.distance_m for i in items if i.distance_m == i.distance_m]

    def gaps(self, labels: Labels, others: Labels, *, along: bool = False) -> list[float]:
        """How far things of two names are apart: closest points, middles, along level axes."""
        return [
            value
            for one, a in self.placed(labels)
            for other, b in self.placed(others)
            if one is not other
            for value in (
                gap_m(one.as_landmark(), other.as_landmark()),
                math.dist(a, b),
                level_m(a, b),
                *(_along(one, other) if along else ()),
            )
        ]

    def sizes(self, labels: Labels) -> list[float]:
        """Extents of things, and the height of their middles and tops."""
        sizes = [t.size for t in self.things(labels) if t.size]
        heights = [place[2] for _, place in self.placed(labels)]
        ends = [
            place[2] + sign * thing.size[2] / 2
            for thing, place in self.placed(labels)
            if thing.size
            for sign in (1, -1)
        ]
        return [value for size in sizes for value in size] + heights + ends

    def areas(self, labels: Labels) -> list[float]:
        """Level areas of things."""
        return [t.size[0] * t.size[1] for t in self.things(labels) if t.size]

    def bearings(self, labels: Labels) -> list[float]:
        """Directions of things from the robot now, and from the start."""
        return [bearing_deg(p, place) for p in self._ends() for _, place in self.placed(labels)]

    def bearings_now(self, labels: Labels) -> list[float]:
        """Directions of things from the robot now."""
        ends = self._ends()[:1]
        return [bearing_deg(p, place) for p in ends for _, place in self.placed(labels)]

    def start_bearings(self) -> list[float]:
        """Direction of the start from the robot, the other way round, and the heading."""
        points = self.scene.path
        if not points:
            return []
        first, last = points[0], points[-1]
        turned = _wrapped(math.degrees(last.yaw_rad - first.yaw_rad))
        return [bearing_deg(last, first.position), bearing_deg(first, last.position), turned]

    def observed_bearings(self, labels: Labels) -> list[float]:
        """Directions of things in observations."""
        items = (i for number in self.items for i in self.in_view(labels, number))
        return [math.degrees(i.bearing_rad) for i in items if i.bearing_rad == i.bearing_rad]

    def headings(self, labels: Labels, others: Labels) -> list[float]:
        """Compass directions between things of two names, from the x axis."""
        pairs = [(a, b) for _, a in self.placed(labels) for _, b in self.placed(others) if a != b]
        ways = [(b[0] - a[0], b[1] - a[1]) for a, b in pairs]
        return [math.degrees(math.atan2(sign * y, sign * x)) for x, y in ways for sign in (1, -1)]

    def stances(self, labels: Labels, pairs: Iterable[tuple[Labels, Labels]]) -> list[float]:
        """Directions of things for who stands at the first of a pair and faces the second."""
        return [
            turn_deg(a, b, c)
            for at, facing in pairs
            if labels not in (at, facing)
            for _, a in self.placed(at)
            for _, b in self.placed(facing)
            for _, c in self.placed(labels)
        ]

    def moments(self, labels: Labels) -> list[float]:
        """First and last sights of things, and how long ago they were."""
        stamps = [s for t in self.things(labels) for s in (t.first_ns, t.last_ns) if s]
        since = [(stamp - self.began_ns) / NS_PER_S for stamp in stamps]
        ages = [(self.scene.now_ns - stamp) / NS_PER_S for stamp in stamps]
        seen = [self.times[number] for number in self.sightings(labels)]
        left = [self.times[n] for n in self.items if self.seen(labels, n)]
        return [*since, *ages, *seen, *left, *(self.end_s - value for value in seen)]

    def counts(self, labels: Labels) -> list[float]:
        """How many things of some labels there are, and of them that are not gone."""
        things = self.things(labels)
        there = [thing for thing in things if not thing.is_gone]
        return [float(len(things)), float(len(there))] if things else [0.0]

    def times_seen(self, labels: Labels) -> list[float]:
        """In how many observations things of some labels were seen."""
        own = [t.landmark.observations for t in self.things(labels) if t.landmark]
        return [float(len(self.sightings(labels))), *map(float, own), float(sum(own))]

    # Numbers about the robot and the place.

    def turns(self, numbers: Iterable[int]) -> list[float]:
        """Turns of some observations, positive to the left."""
        return [
            _SIGNS[step.direction] * step.amount
            for number in numbers
            for step in self.steps.get(number, ())
            if step.verb == _TURNS and step.amount is not None
        ]

    def moves(self, numbers: Iterable[int]) -> list[tuple[str, float]]:
        """Moves of some observations, with their directions."""
        return [
            (step.direction, step.amount)
            for number in numbers
            for step in self.steps.get(number, ())
            if step.verb == 'moved' and step.amount is not None
        ]

    def motion_angles(self) -> list[float]:
        """Turns in all, headings, and directions of the start."""
        turns = self.turns(self.items)
        left, right = sum(t for t in turns if t > 0), sum(t for t in turns if t < 0)
        values = [*turns, left, right, left + right] if turns else []
        points = self.scene.path
        values += [math.degrees(point.yaw_rad) for point in points[-1:]]
        facts = self.scene.motion('turn').facts
        values += [facts[k] for k in ('turn_deg', 'left_deg') if k in facts]
        values += [-facts['right_deg']] if 'right_deg' in facts else []
        return values + self.start_bearings()

    def motion_lengths(self) -> list[float]:
        """Moves, the length of the way, and how far the start is."""
        moves = [amount for _, amount in self.moves(self.items)]
        known = [self.scene.motion(what) for what in ('way', 'displacement', 'height')]
        values = [abs(r.value) for r in known if isinstance(r.value, float)]
        if self.scene.path:
            values.append(math.dist(self.scene.path[0].position, self.scene.path[-1].position))
        return [*moves, sum(moves), *values]

    def motion_counts(self) -> list[float]:
        """How often the robot turned and moved."""
        turns = self.turns(self.items)
        moved = sum(any(s.verb == 'moved' for s in steps) for steps in self.steps.values())
        lefts = sum(turn > 0 for turn in turns)
        return [float(n) for n in (len(turns), lefts, len(turns) - lefts, moved)]

    def place_counts(self) -> list[float]:
        """How many things, kinds of things and observations there are."""
        things = self.scene.all_things
        there = sum(not thing.is_gone for thing in things)
        return [float(n) for n in (len(things), there, len(self.scene.labels))]

    def path_counts(self) -> list[float]:
        """How many observations and points of the way there are."""
        return [float(self.count), float(len(self.scene.path))]

    def moments_of_all(self) -> list[float]:
        """Times of the observations and of the way."""
        path = [(point.stamp_ns - self.began_ns) / NS_PER_S for point in self.scene.path]
        return [*self.times.values(), self.end_s, *path]

    def positions(self, labels: Labels) -> list[Position]:
        """Where things are; without labels, where the robot is and was."""
        if labels:
            return [place for _, place in self.placed(labels)]
        return [point.position for point in self.scene.path]

    def actions(self, number: int) -> set[str]:
        """What the robot did before an observation: 'turned left', 'moved forward', 'turned'."""
        steps = self.steps.get(number, [])
        return {f'{s.verb} {s.direction}' for s in steps} | {s.verb for s in steps}

    # What compares things.

    def measure(self, what: str, labels: Labels, to: Labels = (), number: int = 0) -> float:
        """A number by which things are compared; NaN: it is not known.

        Args:
            what: 'distance', 'first', 'last', 'times', 'height', 'width' or 'size'.
            labels: The thing.
            to: For the distance, from what; none: from the robot.
            number: The observation that counts; 0: now.
        """
        axes = {'height': (2,), 'width': (0, 1), 'size': (0, 1, 2)}
        if what in axes:
            return self._largest(labels, axes[what])
        if what == 'distance':
            return self._nearness(labels, to, number)
        if what == 'times':
            return float(len(self.sightings(labels)) or max(self.times_seen(labels)))
        stamps = [t.first_ns if what == 'first' else t.last_ns for t in self.things(labels)]
        if not stamps:
            return math.nan
        return float(min(stamps) if what == 'first' else max(stamps))

    def _largest(self, labels: Labels, axes: Iterable[int]) -> float:
        sizes = [t.size for t in self.things(labels) if t.size]
        return max((size[axis] for size in sizes for axis in axes), default=math.nan)

    def _nearness(self, labels: Labels, to: Labels, number: int) -> float:
        there = [t for t in self.things(labels) if t.position is not None and not t.is_gone]
        if number:
            away = [i.distance_m for i in self.in_view(labels, number)]
        elif to:
            own = {id(thing) for thing, _ in self.placed(to)}
            away = [
                gap_m(a.as_landmark(), b.as_landmark())
                for a in there
                for b, _ in self.placed(to)
                if id(a) not in own
            ]
        else:
            at = [point.position for point in self._ends()[:1]]
            away = [math.dist(p, t.position) for p in at for t in there if t.position]
            if not away and self.count:
                away = [i.distance_m for i in self.in_view(labels, self.count)]
        return min((a for a in away if a == a), default=math.nan)


def texts_of(items: Iterable[Item]) -> list[str]:
    """Items as the prompt has them."""
    return [item_text(item) for item in items]


def sums(values: Sequence[float], *, with_products: bool = False) -> list[float]:
    """Sums and differences of some numbers: of all, of stretches, and of pairs."""
    values = values[-24:]
    found = [sum(values[start:]) for start in range(len(values))]
    found += [sum(values[:end]) for end in range(2, len(values))]
    for a, b in combinations(values, 2):
        found += [a + b, abs(a - b), *[a * b] * with_products]
    return found


def _along(one: Thing, other: Thing) -> list[float]:
    """How far two things are apart along each level axis: their middles, and their edges."""
    a, b = one.as_landmark(), other.as_landmark()
    none = (0.0, 0.0, 0.0)
    off = [abs(a.position[axis] - b.position[axis]) for axis in (0, 1)]
    half = [((a.size or none)[axis] + (b.size or none)[axis]) / 2 for axis in (0, 1)]
    return [*off, *(max(0.0, o - h) for o, h in zip(off, half, strict=True))]


def _wrapped(degrees: float) -> float:
    return (degrees + 180) % 360 - 180
