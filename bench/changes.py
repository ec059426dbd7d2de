# SPDX-License-Identifier: Apache-2.0
"""Two visits to rendered rooms: whether they are joined, and what is said to have changed.

Keyframes are those of the truth, with images and odometry, perceived by the classical perceiver. A
visit shares a view where at least half of what a keyframe shows is in one of the first visit. A
change is due where both visits could know of it: keyframes of the first show the thing, or its
place without it, twice, and so do those of the second. What is told is right where it is of a
thing of that colour and kind of change within half a metre. Other rooms, and rooms with the same
signs on their walls, must not be joined, not even for a while as the second visit goes on.
"""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field, replace
import json
import math
from pathlib import Path
import sys
from typing import Any, TYPE_CHECKING

from embodied_r_ros.cli.arguments import some_count
from embodied_r_ros.core.keyframes.overlap import covisibility
from embodied_r_ros.core.perception.visit_joint import JointSearch, NotJoinedError
from embodied_r_ros.core.pipeline import classical_perceiver
from embodied_r_ros.core.scene.changes import Change, ChangeKind, changes_between, VisitChanges
from embodied_r_ros.data.episodes.visits import join, visit_of_keyframes
from embodied_r_ros.sim.indoor.episodes import draw_episode
from embodied_r_ros.sim.indoor.ground_truth import sampled_surface, views_of
from embodied_r_ros.sim.indoor.world import World
from embodied_r_ros.sim.runs import IndoorConfig
import numpy as np
from scipy.stats import binomtest
from tqdm import tqdm

from bench.perception import rendered_keyframes
from bench.report import Budget, judge

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator, Sequence

    from embodied_r_ros.core.perception.visit_joint import Joint
    from embodied_r_ros.core.types.keyframes import Keyframe
    from embodied_r_ros.core.types.layout import Vector
    from embodied_r_ros.data.episodes.visits import Visit
    from embodied_r_ros.sim.indoor.scenario import Scenario

_SHARED, _LEAST_SHARED = 0.5, 0.2  # of a view, and of the views of a visit
_NEAR_M, _LOOKS = 0.5, 2
_JOINED_M, _JOINED_RAD = 0.3, math.radians(10.0)
_DEPTH_PX = 64
_RATE_HZ = 5.0
_SIGNS = ('KITCHEN', 'EXIT', 'ROOM 7', 'OFFICE')


@dataclass(frozen=True)
class TrueChange:
    """What changed, and whether both visits could know of it."""

    kinds: tuple[ChangeKind, ...]  # that may be told of it, the best first
    label: str
    before: Vector | None
    after: Vector | None
    is_due: bool


@dataclass
class ChangeTally:
    """What was counted over pairs of visits."""

    pairs: int = 0
    sharing: int = 0  # pairs that share a fifth of their views
    joined: int = 0  # of those, those that are joined well
    wrong: int = 0  # pairs that are joined and not well, at any keyframe of the second visit
    told: int = 0  # changes
    right: int = 0
    at_a_change: int = 0  # of those told, those where something changed, of whatever kind
    due: int = 0
    found: int = 0
    landmarks: int = 0
    by_kind: Counter[str] = field(default_factory=Counter)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    add = parser.add_argument
    add('--seed', type=int, default=21011, help='of the first rooms (%(default)s)')
    add('--seeds', type=some_count, default=10, help='how many seeds from there on (%(default)s)')
    add('--pairs', type=some_count, default=3, help='pairs of visits of each (%(default)s)')
    add('--changes', type=int, default=3, help='between the visits; 0: nothing (%(default)s)')
    add('--duration', type=float, default=40.0, help='of a visit [s] (%(default)s)')
    add('--alike', type=int, default=0, help='pairs of other rooms that must stay apart')
    add('--signs', action='store_true', help='hang the same signs in all rooms')
    add('--json', type=Path, metavar='FILE', help='write the figures here too')


def main(args: argparse.Namespace) -> int:
    """Measure, print, and tell whether the budgets are met."""
    signs = _SIGNS if args.signs else ()
    config = IndoorConfig(
        rate_hz=_RATE_HZ,
        duration_s=args.duration,
        changes=args.changes,
        signs=signs,
        kinds='all',
    )
    numbers = [(args.seed + s, index) for s in range(args.seeds) for index in range(args.pairs)]
    tally, visits = ChangeTally(), []
    for seed, index in tqdm(numbers, disable=not sys.stderr.isatty()):
        pair = _Pair(config, seed, index)
        pair.count(tally)
        done = f'told {tally.told}, right {tally.right}, due {tally.due}, found {tally.found}'
        tqdm.write(f'{pair.name}: joined {tally.joined} of {tally.sharing}; {done}')
        visits.append((pair.before, pair.after))
    wrong, tried = joined_apart(visits, args.alike)
    figures = figures_of(tally) | {'apart': tried, 'joined_apart': wrong}
    print(json.dumps(figures, indent=1))
    budgets = [
        Budget('wrong joints', tally.wrong + wrong, 0),
        Budget('joined, of those that share views', figures['joined'], 0.9, at_least=True),
    ]
    if args.changes:
        budgets += [
            Budget('changes: precision', figures['precision'], 0.9, at_least=True),
            Budget('changes: recall', figures['recall'], 0.7, at_least=True),
        ]
    else:
        budgets.append(Budget('landmarks called changed', figures['called_changed'], 0.05))
    return judge(budgets, args.json, figures)


def figures_of(tally: ChangeTally) -> dict[str, Any]:
    """Shares with their 95 % intervals, and counts."""
    shares = {
        'joined': (tally.joined, tally.sharing),
        'precision': (tally.right, tally.told),
        'at_a_change': (tally.at_a_change, tally.told),
        'recall': (tally.found, tally.due),
        'called_changed': (tally.told, tally.landmarks),
    }
    figures: dict[str, Any] = {'pairs': tally.pairs, 'wrong': tally.wrong}
    for name, (part, whole) in shares.items():
        figures[name] = part / whole if whole else math.nan
        figures[f'{name}_of'] = [part, whole, *interval(part, whole)]
    return figures | {'by_kind': dict(tally.by_kind)}


def interval(part: int, whole: int) -> tuple[float, float]:
    """Wilson's 95 % interval of a share."""
    if not whole:
        return 0.0, 1.0
    low, high = binomtest(part, whole).proportion_ci(method='wilson')
    return round(float(low), 3), round(float(high), 3)


class _Pair:
    """Two visits to a room."""

    def __init__(self, config: IndoorConfig, seed: int, index: int) -> None:
        self._scenarios: list[Scenario] = []
        self._keyframes: list[Sequence[Keyframe]] = []
        self._camera, visits = config.camera(), []
        for number in (1, 2):
            each = replace(config, visit=number)
            scenario, truth, _ = draw_episode(each, seed, index)
            keyframes = rendered_keyframes(each, scenario, truth)
            self._scenarios.append(scenario)
            self._keyframes.append(keyframes)
            name = f'{seed}-{index} visit {number}'
            visits.append(visit_of_keyframes(name, keyframes, classical_perceiver()))
        self.name, (self.before, self.after) = f'{seed}-{index}', visits

    def count(self, tally: ChangeTally) -> None:
        """Join the visits, compare them, and add what comes of it."""
        shares = self.shared() >= _LEAST_SHARED
        tally.pairs += 1
        tally.sharing += shares
        tally.wrong += not all(map(self.is_well, joints_on_the_way(self.before, self.after)))
        try:
            joined = join(self.before, self.after)
        except NotJoinedError:
            return
        assert joined.joint
        tally.joined += shares and self.is_well(joined.joint)
        self.compare(changes_between(joined.before, joined.after), tally)

    def is_well(self, joint: Joint) -> bool:
        """Whether the second visit is where it is: the simulator has one frame for both."""
        off_m = [
            math.dist(joint.pose(keyframe.pose).position, keyframe.pose.position)
            for keyframe in self._keyframes[1]
            if keyframe.pose
        ]
        turn = (np.trace(joint.rotation) - 1) / 2  # cosine of its angle
        return max(off_m) <= _JOINED_M and bool(turn >= math.cos(_JOINED_RAD))

    def shared(self) -> float:
        """Share of the second visit's views that the first one has too."""
        small = self._camera.scaled(_DEPTH_PX, _DEPTH_PX * 3 // 4)
        looks = []
        for scenario, keyframes in zip(self._scenarios, self._keyframes, strict=True):
            world = World(scenario.room)
            world.place(scenario.positions(keyframes[0].stamp_ns))
            looks.append([(world.depth(k.pose, small), k.pose) for k in keyframes if k.pose])
        is_shared = [
            any(min(covisibility(*one, *other, small)) >= _SHARED for one in looks[0])
            for other in looks[1]
        ]
        return float(np.mean(is_shared))

    def compare(self, found: VisitChanges, tally: ChangeTally) -> None:
        """Add what was told and what was due."""
        true = list(self.true_changes())
        told, due = found.changed, [one for one in true if one.is_due]
        tally.told += len(told)
        tally.landmarks += found.same + len(told)
        tally.right += sum(any(_is_right(each, one) for one in true) for each in told)
        tally.at_a_change += sum(any(_is_there(each, one) for one in true) for each in told)
        tally.due += len(due)
        for one in due:
            is_found = any(_is_right(each, one) for each in told)
            tally.found += is_found
            tally.by_kind[f'{one.kinds[0].value} {"found" if is_found else "missed"}'] += 1
        for each in told:
            if not any(_is_right(each, one) for one in true):
                tally.by_kind[f'{each.kind.value} wrong'] += 1

    def true_changes(self) -> Iterator[TrueChange]:
        """What changed, by the numbers that things keep."""
        things = self._scenarios[1].room.things
        places = [
            [*scenario.positions(keyframes[0].stamp_ns), *[None] * len(things)][: len(things)]
            for scenario, keyframes in zip(self._scenarios, self._keyframes, strict=True)
        ]
        for number, (before, after) in enumerate(zip(*places, strict=True)):
            if before == after:
                continue
            old, new = (
                [self._looks(visit, places[visit], number, place) for visit in (0, 1)]
                if place
                else None
                for place in (before, after)
            )
            kinds = []
            if old and new and old[0] and new[1]:
                kinds.append(ChangeKind.MOVED)
            if old and old[0] and (new is None or new[1] < _LOOKS):
                kinds.append(ChangeKind.GONE)
            if new and new[1] and (old is None or old[0] < _LOOKS):
                kinds.append(ChangeKind.APPEARED)
            needed = {
                ChangeKind.MOVED: [*(old or ()), *(new or ())[1:]],
                ChangeKind.GONE: [*(old or ())],
                ChangeKind.APPEARED: [*(new or ())],
            }
            is_due = bool(kinds) and min(needed[kinds[0]]) >= _LOOKS
            yield TrueChange(tuple(kinds), things[number].label, before, after, is_due)

    def _looks(
        self, visit: int, places: Sequence[Vector | None], number: int, place: Vector
    ) -> int:
        """How many keyframes of a visit show a thing, or would if it were at a place."""
        room = self._scenarios[1].room
        world, surfaces = World(room), [sampled_surface(thing) for thing in room.things]
        there = [place if n == number else other for n, other in enumerate(places)]
        world.place(there)
        return sum(
            view.object_id == number and view.visible
            for keyframe in self._keyframes[visit]
            if keyframe.pose
            for view in views_of(world, surfaces, there, keyframe.pose, self._camera)
        )


def _is_right(told: Change, true: TrueChange) -> bool:
    """Whether a change is the one that is told, with the places that belong to its kind."""
    is_near = all(
        b is not None and math.dist(a, b) <= _NEAR_M
        for a, b in ((told.before, true.before), (told.after, true.after))
        if a is not None
    )
    return told.kind in true.kinds and is_near and _colour(told) == _colour(true)


def _is_there(told: Change, true: TrueChange) -> bool:
    """Whether something of the colour that is told changed where it is told."""
    ends = [end for end in (told.before, told.after) if end]
    places = [place for place in (true.before, true.after) if place]
    near = all(any(math.dist(end, place) <= _NEAR_M for place in places) for end in ends)
    return near and _colour(told) == _colour(true)


def _colour(change: Change | TrueChange) -> str:
    return change.label.split()[0]


def joined_apart(pairs: Sequence[tuple[Visit, Visit]], count: int) -> tuple[int, int]:
    """How many visits to different rooms were joined, and how many were tried."""
    others = [(i, j) for i in range(len(pairs)) for j in range(len(pairs)) if i != j]
    chosen = np.random.default_rng(0).permutation(len(others))[:count]
    wrong = 0
    for number in tqdm(chosen, disable=not sys.stderr.isatty()):
        first, second = others[int(number)]
        wrong += any(joints_on_the_way(pairs[first][0], pairs[second][1]))
    return wrong, len(chosen)


def joints_on_the_way(before: Visit, after: Visit) -> Iterator[Joint]:
    """Where a robot finds itself after each keyframe of a second visit, as it goes."""
    search = JointSearch(list(before.shots.values()))
    for number, shot in after.shots.items():
        search.add(number, shot)
        with suppress(NotJoinedError):
            yield search.joint()
