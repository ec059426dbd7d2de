# SPDX-License-Identifier: Apache-2.0
"""The fact book of a scene: numbers that it can state of its things and of the robot.

Lengths are in metres, angles in degrees, times in seconds from the first observation. Facts are
asked for by the labels that a name means.
"""

from __future__ import annotations

import math
from typing import NamedTuple, TYPE_CHECKING

from embodied_r_ros.core.scene.map_relations import bearing_deg, gap_m, level_m
from embodied_r_ros.core.types.deltas import ItemStatus, parse_action, rounded_degrees
from embodied_r_ros.core.types.geometry import NS_PER_S

if TYPE_CHECKING:
    from collections.abc import Iterable

    from embodied_r_ros.core.reasoning.claims import Claim, Labels
    from embodied_r_ros.core.scene.tools import Scene, Thing
    from embodied_r_ros.core.types.deltas import Item
    from embodied_r_ros.core.types.geometry import Position
    from embodied_r_ros.core.types.landmarks import Landmark

_OBSERVED_DEG, _COMPUTED_DEG, _COMPUTED_SHARE = 0.6, 3.0, 0.02  # slack
_AHEAD_DEG, _BEHIND_DEG, _STRAIGHT_DEG = 30.0, 130.0, 7.0


class Fact(NamedTuple):
    """A number that the scene states."""

    dimension: str
    value: float
    side: str = ''
    slack: float = 0.0

    def fits(self, number: Claim) -> bool:
        """Whether a number of a sentence says it."""
        slack = max(min(number.half * 1.05, 0.1 * self.value + 1e-6), self.slack)
        is_near = abs(self.value - abs(number.value)) <= slack
        return self.dimension == number.dimension and number.side in ('', self.side) and is_near


class FactBook:
    """What a scene can state."""

    def __init__(self, scene: Scene) -> None:
        """Read the observations of a scene.

        Args:
            scene: The scene.
        """
        self.scene = scene
        self.labels = scene.labels
        # What is doubtful proves nothing.
        self.items = {
            n: tuple(item for item in delta.items if not item.is_doubtful)
            for n, delta in enumerate(scene.deltas, 1)
        }
        self.steps = {n: parse_action(d.action) or [] for n, d in enumerate(scene.deltas, 1)}
        self.began_ns = scene.deltas[0].stamp_ns if scene.deltas else scene._began_ns
        self.times = {n: self._since(d.stamp_ns) for n, d in enumerate(scene.deltas, 1)}

    def _since(self, stamp_ns: int) -> float:
        return max(0.0, (stamp_ns - self.began_ns) / NS_PER_S)

    def shown(self, labels: Labels, refs: Iterable[int]) -> list[Item]:
        """Items of some labels in observations, those that left among them."""
        return [item for ref in refs for item in self.items.get(ref, ()) if item.label in labels]

    def in_view(self, labels: Labels, refs: Iterable[int]) -> list[Item]:
        """Those that were in view."""
        return [i for i in self.shown(labels, refs) if i.status is not ItemStatus.LEFT]

    def things(self, labels: Labels) -> list[Thing]:
        """The things of some labels."""
        return [thing for thing in self.scene.all_things if thing.label in labels]

    def landmarks(self, labels: Labels) -> list[Landmark]:
        """Those with a place."""
        return [t.as_landmark() for t in self.things(labels) if t.position is not None]

    def places(self, labels: Labels) -> list[Position]:
        """Where they are."""
        return [landmark.position for landmark in self.landmarks(labels)]

    def observed(self, labels: Labels, refs: Iterable[int]) -> list[Fact]:
        """Distances and directions of things in observations."""
        items, finite = self.in_view(labels, refs), math.isfinite
        facts = [Fact('length', round(i.distance_m, 1)) for i in items if finite(i.distance_m)]
        ways = [i.bearing_rad for i in items if finite(i.bearing_rad)]
        facts += [_angle(rounded_degrees(way), _OBSERVED_DEG) for way in ways]
        ways = [i.elevation_rad for i in items if finite(i.elevation_rad)]
        return facts + [_angle(rounded_degrees(way), _OBSERVED_DEG, 'up down') for way in ways]

    def moved(self, refs: Iterable[int]) -> list[Fact]:
        """Turns and moves of the robot in observations, single and together, and their times."""
        refs = [ref for ref in refs if ref in self.times]
        steps = [step for ref in refs for step in self.steps[ref] if step.amount is not None]
        facts = [
            Fact('length' if step.verb == 'moved' else 'angle', step.amount or 0.0, step.direction)
            for step in steps
        ]
        for dimension, side in {(fact.dimension, fact.side) for fact in facts}:
            own = [f.value for f in facts if (f.dimension, f.side) == (dimension, side)]
            facts.append(Fact(dimension, sum(own), side))
        return facts + [Fact('time', self.times[ref]) for ref in refs]

    def totals(self) -> list[Fact]:
        """The motion of the robot in all, where it began, the floor, and the time."""
        scene = self.scene
        facts = [Fact('time', self._since(scene.now_ns)), *self.moved(self.items)]
        results = scene.motion('way'), scene.motion('displacement'), scene.floor_area()
        values = [abs(r.value) if isinstance(r.value, float) else math.nan for r in results]
        facts += map(_computed, ('length', 'length', 'area'), values)
        turn = scene.motion('turn').facts
        facts += [_angle(turn['turn_deg'], _OBSERVED_DEG)] if 'turn_deg' in turn else []
        facts += [Fact('angle', turn.get(f'{s}_deg', math.nan), s) for s in ('left', 'right')]
        ends = [(now, scene.path[0].position) for now in scene.path[-1:]]
        facts += [_angle(math.degrees(now.yaw_rad)) for now, _ in ends]
        return facts + [_angle(bearing_deg(now, start)) for now, start in ends]

    def bearings(self, labels: Labels) -> list[float]:
        """Directions of things from the robot now [degrees]."""
        return [bearing_deg(p, at) for p in self.scene.path[-1:] for at in self.places(labels)]

    def ways(self, labels: Labels, refs: Iterable[int], *, now: bool) -> set[str]:
        """Directions of things in words, in observations or from the robot now."""
        degrees = [math.degrees(item.bearing_rad) for item in self.in_view(labels, refs)]
        degrees += self.bearings(labels) if now else []
        return sides_of(degrees)

    def mapped(self, labels: Labels, *, wide: bool = False) -> list[Fact]:
        """Distances and directions from the robot now, sizes, heights and moments of things.

        Args:
            labels: Which things.
            wide: Whether distances from the start count as well.
        """
        things, places = self.things(labels), self.places(labels)
        facts = [_angle(bearing) for bearing in self.bearings(labels)]
        places = places if self.scene.has_metres else []
        for now in self.scene.path[:1] * wide + self.scene.path[-1:]:
            facts += [_computed('length', math.dist(now.position, at)) for at in places]
        sizes = [t.size for t in things if t.size and self.scene.has_metres]
        facts += [Fact('length', metres) for size in sizes for metres in size]
        facts += [Fact('length', at[2]) for at in places if self.scene.place]
        end = self._since(self.scene.now_ns)
        moments = [self._since(s) for t in things for s in (t.first_ns, t.last_ns) if s]
        return facts + [Fact('time', value) for s in moments for value in (s, end - s)]

    def gaps(self, labels: Labels, others: Labels) -> list[Fact]:
        """How far things of two names are apart: by closest points, and by middles."""
        ones, rest = self.landmarks(labels), self.landmarks(others)
        is_known = self.scene.has_metres
        pairs = [(a, b) for a in ones for b in rest if a is not b and is_known]
        closest = [_computed('length', gap_m(a, b)) for a, b in pairs]
        return closest + [_computed('length', level_m(a.position, b.position)) for a, b in pairs]

    def counts(self, labels: Labels) -> set[float]:
        """How many things there are, and of them that are not gone."""
        gone = [thing.is_gone for thing in self.things(labels)]
        return {float(len(gone)), float(gone.count(False))}


def sides_of(degrees: list[float]) -> set[str]:
    """Directions in words."""
    ways = {'left' if d > 0 else 'right' for d in degrees if _STRAIGHT_DEG < abs(d) < 173}
    ways |= {'ahead' for d in degrees if abs(d) < _AHEAD_DEG}
    return ways | {'behind' for d in degrees if abs(d) > _BEHIND_DEG}


def _angle(degrees: float, slack: float = _COMPUTED_DEG, sides: str = 'left right') -> Fact:
    """A direction or turn, positive to the left or up."""
    side = sides.split()[degrees < 0] if abs(degrees) > slack else ''
    return Fact('angle', abs(degrees), side, slack)


def _computed(dimension: str, value: float) -> Fact:
    return Fact(dimension, value, '', _COMPUTED_SHARE * value)
