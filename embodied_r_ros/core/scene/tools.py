# SPDX-License-Identifier: Apache-2.0
"""The tools of a scene: functions that compute an answer from what was seen.

A scene is the deltas so far, and a map where there is one. Places come from the map; motion,
sights, order and counts, and where something is by its last sight, from deltas alone. Each tool
gives a result with value, unit, words and evidence, or the reason why it is not known. Distances
are in metres, angles in degrees, bearings positive to the left (REP 103).
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property, partial, wraps
from inspect import signature
from itertools import chain, compress, pairwise
import math
import re
from typing import Any, Concatenate, NoReturn, ParamSpec, TYPE_CHECKING

from embodied_r_ros.common.errors import InputError
from embodied_r_ros.core.scene.camera import CameraView
from embodied_r_ros.core.scene.landmark_map import LandmarkMap
from embodied_r_ros.core.scene.map_relations import (
    age_text,
    bearing_deg,
    first_reach_ns,
    gap_m,
    level_m,
    off_path_m,
    REACH_M,
    route_turns,
    turn_deg,
)
from embodied_r_ros.core.scene.names import Name, resolve
from embodied_r_ros.core.scene.sightings import LabelParts
from embodied_r_ros.core.scene.track import ItemSight, sights_of, Stand, stands_of
from embodied_r_ros.core.types.deltas import ItemStatus, parse_action, ScaleSource, STATIONARY
from embodied_r_ros.core.types.geometry import (
    as_position,
    NS_PER_S,
    wrap_angle_rad,
    yaw_pitch_roll,
)
from embodied_r_ros.core.types.landmarks import (
    Landmark,
    LandmarkStatus,
    newest_stamp_ns,
    PathPoint,
)
from embodied_r_ros.core.types.things import other_names, plural, with_article
import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from embodied_r_ros.core.scene.changes import VisitChanges
    from embodied_r_ros.core.types.deltas import SemanticDelta
    from embodied_r_ros.core.types.geometry import Position
    from embodied_r_ros.core.types.landmarks import SceneMap

P = ParamSpec('P')
ROBOT, START = 'robot', 'start'  # places that are no things
WAY = 'way'  # where the robot was nearest
_VIEW_DEG = 60.0  # across: how much a camera of unknown lens is taken to see
_AHEAD_NS = NS_PER_S  # a map may be that much ahead of what asks
_IN_VIEW_NS = NS_PER_S // 2  # what was seen so long ago is still in view
_SIDE_WORDS = {
    'ahead': 'ahead of me', 'left': 'to my left', 'right': 'to my right', 'behind': 'behind me',
}  # fmt: skip
SIDES = {'ahead': 0.0, 'left': 90.0, 'right': -90.0, 'behind': 180.0}
_HALF_SIDE_DEG = 50.0
# Of a map of a camera alone: how far directions may be off, and by which factor one thing has to
# be nearer than another.
_RELATIVE_SLACK_DEG, _RELATIVE_CLEAR = 10.0, 1.25
_ROUGH = 0.6  # of the distance of middles: sizes of views alone do not give less
_EVENTS = {ItemStatus.MOVED: 'moved', ItemStatus.APPEARED: 'new', ItemStatus.LEFT: 'gone'}
_DID = {'moved': 'moved', 'new': 'appeared', 'gone': 'disappeared'}
_MOST_EVENTS = 6  # that are told, the newest first
_HERE_NS = 10 * NS_PER_S
_CLEAR = 1.03  # by which factor the nearest must be nearer
_MOST_UNKNOWN = 0.25  # share of the turns that may be unknown where the side is clear
_TURN_DEG = 15.0  # net turns from here on have a side
_SMALL_TURN_DEG = 5.0  # less is none
# Share of a move that is upwards: up to which it is level, and from which it rises.
_LEVEL, _RISING = 0.1, 0.15
_FEW_UNKNOWN = 0.1  # share of the motions that may be unknown where nothing rose
_FEW_MOVES = 5  # times as many motions at rest: one of them may be an error
_MOVE_M = 0.15
_SAME_WAY_RAD = math.radians(5.0)  # between directions of a thing that is far away
_MOST_TIMES = 10  # as far that is said
_SAME_M, _SAME_SHARE = 0.6, 0.25  # sights of one label so near to one another are of one thing
# Of undersides: up to which a thing is on the floor, and from which it is not.
_FLOOR_M, _RAISED_M = 0.2, 0.3
UNITS = {'m': 1.0, 'cm': 0.01, 'mm': 0.001, 'ft': 0.3048, 'in': 0.0254, 'yd': 0.9144, 'km': 1e3}
_AXES = {'longest': 'at its longest', 'height': 'high', 'width': 'wide', 'depth': 'deep'}


@dataclass(frozen=True)
class Evidence:
    """What a result rests on."""

    landmark_ids: tuple[int, ...] = ()
    delta_ids: tuple[int, ...] = ()  # keyframes whose deltas show it
    numbers: tuple[int, ...] = ()  # the same deltas as prompts count them, from 1
    stamps_ns: tuple[int, ...] = ()


@dataclass(frozen=True)
class Result:
    """What a tool computed."""

    tool: str
    arguments: tuple[str, ...] = ()
    value: float | str | bool | tuple[str, ...] | None = None  # None: not known
    unit: str = ''
    text: str = ''  # a sentence: the value, or why it is not known
    margin: float = 0.0  # how far a number may be off
    evidence: Evidence = field(default_factory=Evidence)
    candidates: tuple[str, ...] = ()  # where a name means several: each of them
    facts: dict[str, Any] = field(default_factory=dict)  # further numbers, by name

    @property
    def is_known(self) -> bool:
        """Whether there is a value."""
        return self.value is not None

    @property
    def number(self) -> float:
        """A value that is a number; NaN: it is none, or not known."""
        return self.value if isinstance(self.value, float) else math.nan

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values."""
        value = list(self.value) if isinstance(self.value, tuple) else self.value
        return {
            'tool': self.tool,
            'arguments': list(self.arguments),
            'value': round(value, 3) if isinstance(value, float) else value,
            'unit': self.unit,
            'text': self.text,
            'margin': round(self.margin, 3),
            'landmarks': list(self.evidence.landmark_ids),
            'observations': list(self.evidence.numbers),
            'keyframes': list(self.evidence.delta_ids),
            'stamps_ns': [str(stamp) for stamp in self.evidence.stamps_ns],
            'candidates': list(self.candidates),
        }


@dataclass(frozen=True)
class Thing:
    """One thing of a scene."""

    label: str
    position: Position | None = None  # its middle [m]; None: not known
    size: Position | None = None
    first_ns: int = 0
    last_ns: int = 0
    landmark: Landmark | None = None
    sights: tuple[ItemSight, ...] = ()

    @property
    def is_gone(self) -> bool:
        """Whether its place was in view without it."""
        return self.landmark is not None and self.landmark.status is LandmarkStatus.GONE

    @property
    def is_dated(self) -> bool:
        """Whether its stamps are known; those of a video may begin at 0."""
        return bool(self.last_ns or self.sights)

    def as_landmark(self) -> Landmark:
        """The thing as one with a place."""
        assert self.position is not None
        return self.landmark or Landmark(self.label, self.position, size=self.size)


def called(label: str) -> str:
    """How tools are told a thing by its label: `robot` and `start` alone are places.

    >>> called('chair'), called('robot')
    ('chair', 'the robot')
    """
    return f'the {label}' if label in (ROBOT, START) else label


class NotKnownError(Exception):
    """A tool has no value; the message says why, in words for people."""

    def __init__(self, reason: str, candidates: Sequence[str] = ()) -> None:
        super().__init__(reason)
        self.candidates = tuple(candidates)


def _refuse(reason: str, candidates: Sequence[str] = ()) -> NoReturn:
    raise NotKnownError(reason, candidates)


NO_METRES = (
    'nothing gives metres here: there is no depth, odometry or height of the camera, and too few '
    'named things of usual size; directions, and what is nearer, are known'
)
NO_TIMES = 'the images have no times, and their rate is not known'
Compute = Callable[Concatenate['Scene', P], 'Result']


def _tool(compute: Compute[P]) -> Compute[P]:
    """A tool of a scene: where it has no value, its result says why."""

    @wraps(compute)
    def tool(scene: Scene, /, *args: P.args, **kwargs: P.kwargs) -> Result:
        try:
            return compute(scene, *args, **kwargs)
        except NotKnownError as error:
            given = signature(compute).bind(scene, *args, **kwargs)
            given.apply_defaults()
            told = [value for name, value in given.arguments.items() if name not in _UNTOLD]
            arguments = tuple(each if isinstance(each, str) else ', '.join(each) for each in told)
            unknown = _unknown(compute.__name__, arguments, str(error))
            return replace(unknown, candidates=error.candidates)

    return tool


def _in_metres(compute: Compute[P]) -> Compute[P]:
    """A length; where it rests on usual sizes, with how far it may be off by that."""

    @wraps(compute)
    def length(scene: Scene, /, *args: P.args, **kwargs: P.kwargs) -> Result:
        scene._check_has_metres()
        result = compute(scene, *args, **kwargs)
        error = scene.place.scale_error if scene.place else None
        if error is None or not math.isfinite(result.number):
            return result
        text = f'{result.text} Lengths are rough here: they may be off by {100 * error:.0f} %.'
        return replace(result, text=text, margin=max(result.margin, error * result.number))

    return length


_UNTOLD = {'self', 'unit'}  # arguments that results do not name
_APART_M = 1e-6  # of two places between which there is a direction, at least
# Properties of a scene that follow from its deltas.
_COMPUTED = {
    'place', 'now_ns', 'path', 'all_things', 'labels', 'coverage', '_stands', '_sights',
}  # fmt: skip


class Scene:
    """What is known of a place, and the tools that compute from it.

    >>> from embodied_r_ros.core.types.landmarks import Landmark, PathPoint, SceneMap
    >>> place = SceneMap((Landmark('chair', (2.0, 0.0, 0.5)),), (PathPoint(0, (0, 0, 0.5), 0),))
    >>> Scene(place=place).where('chair').text
    'The chair is 2.0 m away, straight ahead.'
    """

    def __init__(
        self,
        deltas: Sequence[SemanticDelta] = (),
        place: SceneMap | None = None,
        *,
        now_ns: int = 0,
        slack_m: float = 0.0,
        guesses: bool = True,
        has_times: bool = True,
    ) -> None:
        """See what is known.

        Args:
            deltas: The deltas, oldest first.
            place: The map; None: there is none.
            now_ns: From when ages count, in the clock of the image stamps; 0: the newest stamp.
            slack_m: How far places may be off [m].
            guesses: Whether a name may mean more than a label, and what it is called as well.
            has_times: Whether stamps are times; else, as where a map says so, they order alone.
        """
        # What changed since an earlier visit, or why that is not known; None: there is none.
        self.earlier: VisitChanges | str | None = None
        self.has_times = has_times and (place is None or place.has_times)
        self.deltas = tuple(deltas)
        self._given, self._now_ns = place, now_ns
        self._landmarks: LandmarkMap | None = None  # of what was added
        self.slack_m = slack_m
        self._guesses = guesses
        self._named: dict[str, tuple[Name, list[Thing]]] = {}

    def add(self, delta: SemanticDelta, view: CameraView | None = None) -> None:
        """Take in what was perceived next; the map follows by its pose, else by its motion.

        Args:
            delta: What was perceived, in the order of time.
            view: Pose, intrinsics and depth of its keyframe; None: the pose that the delta has.

        Raises:
            InputError: The scene was made of a map, to which nothing can be added.
        """
        if self._given:
            msg = 'this scene was made of a map: add deltas to a Scene() without one'
            raise InputError(msg)
        if self._landmarks is None:
            self._landmarks = LandmarkMap()
            for earlier in self.deltas:
                self._landmarks.add(earlier, CameraView(earlier.pose))
        self._landmarks.add(delta, view or CameraView(delta.pose))
        self.deltas = (*self.deltas, delta)
        for name in _COMPUTED & set(self.__dict__):
            del self.__dict__[name]
        self._named = {}

    @cached_property
    def place(self) -> SceneMap | None:
        """The map; None: nothing is known of one."""
        place = self._landmarks.scene_map() if self._landmarks else self._given
        return place if place and (place.landmarks or place.path) else None

    @property
    def has_metres(self) -> bool:
        """Whether lengths are in metres; those of a map of a camera alone are relative."""
        return self.place is None or self.place.scale is not ScaleSource.RELATIVE

    def _check_has_metres(self) -> None:
        if not self.has_metres:
            _refuse(NO_METRES)

    @property
    def _has_clock(self) -> bool:
        return self._now_ns > 0

    @cached_property
    def now_ns(self) -> int:
        """From when ages count, in the clock of the image stamps."""
        newest = max((delta.stamp_ns for delta in self.deltas), default=0)
        return self._now_ns or max(newest, newest_stamp_ns(self.place) if self.place else 0)

    @cached_property
    def _stands(self) -> dict[int, Stand]:
        return stands_of(self.deltas)

    @cached_property
    def _sights(self) -> list[ItemSight]:
        return sights_of(self.deltas, self._stands)

    @cached_property
    def path(self) -> tuple[PathPoint, ...]:
        """The way: of the map, else of the deltas as far back as their places are comparable."""
        if self.place and self.place.path:
            return self.place.path
        if self.place or not self._stands:
            return ()
        stands = list(self._stands.values())
        return tuple(
            PathPoint(each.stamp_ns, as_position(each.position), yaw_pitch_roll(each.rotation)[0])
            for each in stands
            if each.parts == stands[-1].parts
        )

    @property
    def robot(self) -> PathPoint:
        """Where the robot is.

        Raises:
            NotKnownError: That is not known.
        """
        if not self.path:
            reason = 'I do not know where I am'
            raise NotKnownError(f'{reason}: the map has no path' if self.place else reason)
        return self.path[-1]

    @property
    def start(self) -> PathPoint:
        """Where the robot began.

        Raises:
            NotKnownError: That is not known.
        """
        self.robot  # noqa: B018 - refuses where there is no way
        is_whole = bool(self.place) or len(self.path) == len(self._stands)
        if not is_whole:
            _refuse('my way since the start is not known in metres')
        return self.path[0]

    def at_first(self, name: str = '') -> Scene:
        """What was known when a thing came into view first; of no name: at the start.

        Raises:
            NotKnownError: Nothing tells what was seen when.
        """
        if not self.deltas:
            _refuse('I know where things are now, not where they were then')
        then_ns = self.first_ns(name) if name else self.deltas[0].stamp_ns
        deltas = tuple(delta for delta in self.deltas if delta.stamp_ns <= then_ns)
        place = self.place and replace(
            self.place,
            landmarks=tuple(
                replace(each, last_seen_ns=0, status=LandmarkStatus.PRESENT)
                for each in self.place.landmarks
                if self._dated(each.first_seen_ns) <= then_ns
            ),
            path=tuple(p for p in self.path if p.stamp_ns <= then_ns) or self.path[:1],
        )
        then = Scene(deltas, place, now_ns=then_ns, slack_m=self.slack_m, guesses=self._guesses)
        then.has_times = self.has_times
        return then

    @cached_property
    def all_things(self) -> tuple[Thing, ...]:
        """Everything that was seen: landmarks, then labels that only deltas have."""
        landmarks = self.place.landmarks if self.place else ()
        by_label: dict[str, list[ItemSight]] = {}
        for sight in self._sights:
            by_label.setdefault(sight.item.label, []).append(sight)
        things = [
            Thing(
                each.label, each.position, each.size, self._dated(each.first_seen_ns),
                self._dated(each.last_seen_ns)
                or max((sight.stamp_ns for sight in by_label.get(each.label, ())), default=0),
                each, tuple(by_label.get(each.label, ())),
            )
            for each in landmarks
        ]  # fmt: skip
        known = {landmark.label for landmark in landmarks}
        for label, sights in by_label.items():
            if label not in known:
                things += self._of_sights(label, sights)
        return tuple(things)

    def _dated(self, stamp_ns: int) -> int:
        """A stamp of the map; 0 where it has not come yet: it is of a clock that went back."""
        return 0 if self._has_clock and stamp_ns > self.now_ns + _AHEAD_NS else stamp_ns

    def _of_sights(self, label: str, sights: list[ItemSight]) -> list[Thing]:
        """The things of a label that has no landmark: at least as many as were in view at once."""
        groups: list[list[ItemSight]] = []
        for sight in sights:
            near = [group for group in groups if _is_same(group, sight)]
            best = min(near, key=lambda group: _unlike(group[-1], sight), default=None)
            if best is None:
                groups.append([sight])
            else:
                best.append(sight)
        has_map = self.place is not None
        return [
            Thing(
                label,
                None if has_map else self._place_of(group),
                None,
                group[0].stamp_ns,
                group[-1].stamp_ns,
                sights=tuple(group),
            )
            for group in groups
        ]

    def _place_of(self, group: Sequence[ItemSight]) -> Position | None:
        """Where a thing is in the axes of the way, by its last sight with a distance."""
        parts = self._last_stand.parts if self._last_stand else None
        for sight in reversed(group):
            if sight.stand and sight.stand.parts == parts and sight.position is not None:
                return as_position(sight.position)
        return None

    @property
    def _last_stand(self) -> Stand | None:
        return next(reversed(self._stands.values()), None)

    @cached_property
    def labels(self) -> tuple[str, ...]:
        """All labels, each once."""
        return _labels(self.all_things)

    @cached_property
    def coverage(self) -> float:
        """Share of the directions around that were in view, 0..1; NaN: not known."""
        yaws = [point.yaw_rad for point in self.path]
        if not yaws:
            return math.nan
        seen = {
            (round(math.degrees(yaw)) + off) % 360
            for yaw in yaws
            for off in range(-int(_VIEW_DEG / 2), int(_VIEW_DEG / 2))
        }
        return len(seen) / 360

    def named(self, words: str, *, gone: bool = False) -> tuple[Name, list[Thing]]:
        """The things that some words name, present ones alone unless `gone`.

        Raises:
            NotKnownError: None was seen, or its colour is not known; the message says which.
        """
        if not words.strip():
            _refuse('no thing was named')
        name, things = self._meant(words)
        there = [thing for thing in things if gone or not thing.is_gone]
        if there:
            return name, there
        if things:
            age = self._ago(max(thing.last_ns for thing in things))
            _refuse(f'the {things[0].label} is gone: its place was in view without it{age}')
        if name.colour and name.kind:
            plain = resolve(name.kind, self.labels)
            if any(not LabelParts.of(label).colour for label in plain.labels):
                _refuse(f'I have seen {with_article(name.kind)}, and do not know its colour')
        _refuse(self._not_seen(name.text))

    def _meant(self, words: str) -> tuple[Name, list[Thing]]:
        if words not in self._named:
            name = resolve(words, self.labels)
            if not self._guesses:
                name = replace(name, labels=_certain(words, name))
            things = [thing for thing in self.all_things if thing.label in name.labels]
            self._named[words] = name, things
        return self._named[words]

    def _not_seen(self, words: str) -> str:
        share = self.coverage
        known = f'; {100 * share:.0f} % of the surroundings were in view' if share == share else ''
        return f'I have not seen {_some(words)}{known}'

    def _only(self, words: str) -> tuple[Thing, tuple[str, ...]]:
        """The thing with a place that words name; of several the nearest, all told.

        Raises:
            NotKnownError: There is none, or it has no place.
        """
        _, things = self.named(words)
        placed = [thing for thing in things if thing.position is not None]
        if not placed:
            _refuse(self._no_place(things[0]))
        if len(placed) > 1 and self.path:
            at = self.path[-1].position
            placed.sort(key=lambda thing: math.dist(thing.position or at, at))
        several = tuple(self._describe(thing) for thing in placed) if len(placed) > 1 else ()
        return placed[0], several

    def _no_place(self, thing: Thing) -> str:
        last = thing.sights[-1] if thing.sights else None
        bearing = last.item.bearing_rad if last else math.nan
        where = f', {_direction(math.degrees(bearing))} then' if bearing == bearing else ''
        age = self._ago(thing.last_ns)
        return (
            f'the {thing.label} was seen{age}{where}, and nothing tells how far I have moved since'
        )

    def _describe(self, thing: Thing) -> str:
        if thing.position is None or not self.path:
            return thing.label
        side = _direction(bearing_deg(self.path[-1], thing.position))
        if not self.has_metres:
            return f'the {thing.label}, {side}'
        away = math.dist(self.path[-1].position, thing.position)
        return f'the {thing.label} {away:.1f} m away, {side}'

    def _ago(self, stamp_ns: int) -> str:
        is_known = stamp_ns and self.has_times
        return f' {age_text(self.now_ns - stamp_ns)} ago' if is_known else ''

    def _evidence(self, things: Iterable[Thing]) -> Evidence:
        ids: list[int] = []
        keyframes: list[int] = []
        numbers: list[int] = []
        stamps: list[int] = []
        for thing in things:
            if thing.landmark:
                ids.append(thing.landmark.id)
                keyframes += thing.landmark.keyframe_ids[:1]
                stamps.append(thing.landmark.last_seen_ns)
            for sight in thing.sights[-1:]:
                keyframes.append(sight.delta_id)
                numbers.append(sight.number)
                stamps.append(sight.stamp_ns)
        unique = [tuple(dict.fromkeys(each)) for each in (ids, keyframes, numbers, stamps)]
        return Evidence(*unique)

    def _evidence_of_first(self, things: Sequence[Thing]) -> Evidence:
        """What shows when things came into view first."""
        ids = tuple(thing.landmark.id for thing in things if thing.landmark)
        stamps = tuple(dict.fromkeys(thing.first_ns for thing in things))
        shown = self._evidence_of_deltas(d.stamp_ns in stamps for d in self.deltas)
        return replace(shown, landmark_ids=ids, stamps_ns=stamps)

    def _evidence_of_deltas(self, chosen: Iterable[bool]) -> Evidence:
        """The deltas that are chosen."""
        shown = list(compress(enumerate(self.deltas, 1), chosen))
        ids, stamps = ([getattr(d, name) for _, d in shown] for name in ('to_id', 'stamp_ns'))
        return Evidence((), tuple(ids), tuple(number for number, _ in shown), tuple(stamps))

    # The tools. Names may be in a person's words; `robot` and `start` are places as well.

    def things(self, scope: str = 'all') -> Result:
        """What was seen: everything, or what is in view now or was just now.

        Args:
            scope: 'all', 'now', 'here' (in view within the last 10 s), or a side of the robot:
                'ahead', 'left', 'right', 'behind'.
        """
        now = [thing for thing in self.all_things if self._is_in_view(thing)]
        every = [thing for thing in self.all_things if not thing.is_gone]
        here = [t for t in every if t.last_ns and self.now_ns - t.last_ns <= _HERE_NS]
        chosen = {'now': now, 'here': here}.get(scope, every)
        if scope in SIDES:
            return self._on_side(scope, every)
        if not self.deltas and not self.place:
            return _unknown('things', (scope,), 'nothing was seen yet')
        if not chosen:
            where = {'now': ' now', 'here': ' in the last seconds'}.get(scope, '')
            return _unknown('things', (scope,), f'I recognised nothing{where}')
        labels = _labels(chosen)
        told = [_listed([self._describe(thing) for thing in now], 'In view now') if now else '']
        if scope != 'now':
            counts = [_counted(label, chosen) for label in labels]
            told.append(_listed(counts, 'Seen in all' if scope == 'all' else 'Just now'))
        text = ' '.join(f'{part}.' for part in told if part)
        return Result(
            'things', (scope,), labels, text=text, evidence=self._evidence(chosen),
            facts={'now': _labels(now)},
        )  # fmt: skip

    def _on_side(self, side: str, things: Sequence[Thing]) -> Result:
        if not self.path:
            return _unknown('things', (side,), 'I do not know where I am')
        now, middle = self.path[-1], SIDES[side]
        placed = [thing for thing in things if thing.position is not None]
        own = [
            t
            for t in placed
            if abs((bearing_deg(now, _at(t)) - middle + 180) % 360 - 180) <= _HALF_SIDE_DEG
        ]
        own.sort(key=lambda thing: math.dist(_at(thing), now.position))
        if side == 'ahead':  # what is in view is ahead, wherever it is
            own += [t for t in things if t.position is None and self._is_in_view(t)]
        if not own:
            return _unknown('things', (side,), f'I know of nothing {_SIDE_WORDS[side]}')
        labels = _labels(own)
        text = f'{side.capitalize()}: {"; ".join(map(self._describe, own))}.'
        return Result('things', (side,), labels, text=text, evidence=self._evidence(own))

    def _is_in_view(self, thing: Thing) -> bool:
        if thing.is_gone or not thing.is_dated:
            return False
        newest = max((delta.stamp_ns for delta in self.deltas), default=self.now_ns)
        return newest - thing.last_ns <= _IN_VIEW_NS

    def count(self, name: str) -> Result:
        """How many things of a name were seen.

        Args:
            name: Their name, such as 'chairs'.
        """
        found, _ = self._meant(name)
        try:
            _, things = self.named(name, gone=True)
        except NotKnownError as error:
            if found.colour and 'colour' in str(error):
                return _unknown('count', (name,), str(error))
            text = _sentence(str(error))
            return Result('count', (name,), 0.0, text=text, facts={'names': (found.in_words,)})
        pieces = 0
        if not (found.kind or found.shape):
            whole = _without_pieces(things)
            pieces, things = len(things) - len(whole), whole if found.colour else things
        there = [thing for thing in things if not thing.is_gone]
        gone = len(things) - len(there)
        words = _number_of(things[0].label if len(found.labels) == 1 else found.in_words, things)
        also = f', {gone} of them gone since' if gone else ''
        places = [self._describe(thing) for thing in there if thing.position is not None]
        where = f': {"; ".join(places)}' if 0 < len(places) <= 4 and self.path else ''
        facts = {'there': len(there), 'names': found.labels, 'pieces': pieces}
        text, evidence = f'I have seen {words}{also}{where}.', self._evidence(things)
        number, shown = self._most_at_once(found) if found.kind else (0, evidence)
        if number > len(things):
            text = f'I have seen {number} {plural(found.kind)} at once, '
            text += f'and know the place of {len(places)} of them{where}.'
            evidence, facts['there'] = shown, number
        return Result(
            'count', (name,), float(max(number, len(things))), text=text, evidence=evidence,
            facts=facts,
        )  # fmt: skip

    def _most_at_once(self, name: Name) -> tuple[int, Evidence]:
        """The most things of a name that one view shows for sure, and the view."""
        numbers = [
            sum(
                item.label in name.labels
                and item.status is not ItemStatus.LEFT
                and not item.is_doubtful
                for item in delta.items
            )
            for delta in self.deltas
        ]
        best = max(numbers, default=0)
        at = numbers.index(best) if numbers else -1
        return best, self._evidence_of_deltas(n == at for n in range(len(numbers)))

    @_tool
    def where(self, name: str, at: str = ROBOT, facing: str = '') -> Result:
        """In which direction a thing is, and how far away.

        Args:
            name: The thing, or 'start'.
            at: From where: 'robot', 'start' or a thing.
            facing: What who stands there looks at; empty: as the robot does or did there.
        """
        if at == ROBOT and not facing and name != START:
            direct = self._in_sight(name)
            if direct:
                return direct
        if facing:
            return self._from_stance(name, at, facing)
        target, several, things = self._target(name)
        origin = self.start if at == START else self.robot
        if at not in (ROBOT, START):
            _refuse(f'from the {at}, say what you face: directions need a view')
        degrees, metres = bearing_deg(origin, target), math.dist(origin.position, target)
        label = things[0].label if things else 'start'
        age = self._last_seen_text(things[0]) if things else ''
        away = f'{metres:.1f} m away, ' if self.has_metres else ''
        text = f'The {label} is {away}{_direction(degrees)}{age}.'
        if not self.has_metres:
            facts = {'bearing_deg': degrees, 'slack_deg': _RELATIVE_SLACK_DEG}
            return Result('where', (name, at, facing), degrees, 'deg', text, _RELATIVE_SLACK_DEG,
                          self._evidence(things), several, facts)  # fmt: skip
        if level_m(origin.position, target) < 0.3 and not things:
            text = 'The start is right here.'
        if several:
            text = f'There are {len(several)}: {"; ".join(several)}.'
        facts = {
            'bearing_deg': degrees,
            'distance_m': metres,
            'level_m': level_m(origin.position, target),
            'slack_deg': 2 * self._slack_deg(level_m(origin.position, target)),
        }
        margin = max(5.0, facts['slack_deg'])
        return Result('where', (name, at, facing), degrees, 'deg', text, margin,
                      self._evidence(things), several, facts)  # fmt: skip

    def _from_stance(self, name: str, at: str, facing: str) -> Result:
        """Where a thing is for who stands at one and faces another."""
        (a, many_a, at_things), (b, many_b, to_things) = self._target(at), self._target(facing)
        target, many, things = self._target(name)
        least_m = min(level_m(a, b), level_m(a, target))
        if least_m < _APART_M:
            _refuse(f'{at}, {facing} and {name} are not apart')
        degrees = turn_deg(a, b, target)
        text = f'For who stands at the {at} and faces the {facing}, the {name} is '
        text += f'{_direction(degrees)}.'
        evidence = self._evidence([*at_things, *to_things, *things])
        slack = 2 * (self._slack_deg(level_m(a, b)) + self._slack_deg(level_m(a, target)))
        facts = {'bearing_deg': degrees, 'slack_deg': slack, 'level_m': least_m}
        arguments = (name, at, facing)
        several = (*many_a, *many_b, *many)
        if several:
            text += f' There are {len(several)}: {"; ".join(several)}.'
        return Result('where', arguments, degrees, 'deg', text, 5.0, evidence, several, facts)

    def _in_sight(self, name: str) -> Result | None:
        """Where a thing without a place is, by its last sight; None: that does not tell.

        It tells where the camera has hardly moved since, or where the direction of the thing
        stayed the same over as long a way as it has moved since.
        """
        _, things = self.named(name)
        placed = [thing for thing in things if thing.position is not None]
        last = self._last_stand
        if placed or last is None:
            return None
        shown = [(t, t.sights[-1]) for t in things if t.sights]
        of_turns = 1 if self._mapped_path else 2  # a map tells the moves
        fresh = [
            (t, s)
            for t, s in shown
            if s.stand and s.stand.parts[:of_turns] == last.parts[:of_turns]
        ]
        if not fresh:
            return None
        thing, sight = max(fresh, key=lambda pair: pair[1].stamp_ns)
        assert sight.stand is not None
        bearing = sight.item.bearing_rad
        if bearing != bearing or not self._is_still_there(thing, sight.stand, last):
            return None
        turned = yaw_pitch_roll(sight.stand.rotation.T @ last.rotation)[0]
        degrees = math.degrees(wrap_angle_rad(bearing - turned))
        text = f'The {thing.label} is {_direction(degrees)}{self._last_seen_text(thing)}.'
        facts = {'bearing_deg': degrees, 'slack_deg': 5.0}
        return Result('where', (name, ROBOT, ''), degrees, 'deg', text, 5.0,
                      self._evidence([thing]), facts=facts)  # fmt: skip

    @property
    def _mapped_path(self) -> tuple[PathPoint, ...]:
        return self.place.path if self.place else ()

    def _is_still_there(self, thing: Thing, stand: Stand, last: Stand) -> bool:
        """Whether a thing of unknown distance is still in the direction of its last sight."""
        path = self._mapped_path
        if not path:
            return float(np.linalg.norm(last.position - stand.position)) <= _MOVE_M
        stamps = [point.stamp_ns for point in path]

        def at(stamp_ns: int) -> Position:
            return path[max(0, bisect_right(stamps, stamp_ns) - 1)].position

        moved = math.dist(at(stand.stamp_ns), path[-1].position)
        ways = [0.0]
        for sight in thing.sights:
            if sight.stand and sight.stand.turn_part == stand.turn_part:
                turn = yaw_pitch_roll(sight.stand.rotation.T @ stand.rotation)[0]
                off = sight.item.bearing_rad - turn - thing.sights[-1].item.bearing_rad
                if abs(wrap_angle_rad(off)) < _SAME_WAY_RAD:
                    ways.append(math.dist(at(sight.stamp_ns), at(stand.stamp_ns)))
        return moved <= max(_MOVE_M, *ways)

    def _last_seen_text(self, thing: Thing) -> str:
        if self._is_in_view(thing):
            return '; in view now'
        return f'; last seen{self._ago(thing.last_ns)}' if thing.last_ns else ''

    def _slack_deg(self, metres: float) -> float:
        if not self.slack_m:
            return 0.0
        return math.degrees(math.asin(min(1.0, self.slack_m / metres))) if metres else 180.0

    def _target(self, name: str) -> tuple[Position, tuple[str, ...], list[Thing]]:
        if name in (ROBOT, START):
            return (self.robot if name == ROBOT else self.start).position, (), []
        thing, several = self._only(name)
        assert thing.position is not None
        return thing.position, several, [thing]

    @_tool
    @_in_metres
    def distance(self, a: str, b: str = ROBOT, unit: str = 'm') -> Result:
        """How far two things are apart, by their closest points where both have sizes.

        Args:
            a: A thing.
            b: Another one, or 'robot', 'start' or 'way' (where the robot came nearest), from which
                it is the distance of middles.
            unit: 'm', 'cm', 'ft', 'in' or 'yd'.
        """
        spread = 0.0  # between closest points and middles, where sizes are rough
        if b == WAY:
            return self._least_distance(a, unit)
        if {a, b} & {ROBOT, START}:
            if a in (ROBOT, START):
                a, b = b, a
            target, several, things = self._target(a)
            origin = self.robot if b == ROBOT else self.start
            metres = math.dist(origin.position, target)
            whom = 'away' if b == ROBOT else 'from the start'
            side = f', {_direction(bearing_deg(origin, target))}' if b == ROBOT else ''
            name = things[0].label if things else 'start'
            text = f'The {name} is {_length(metres, unit)} {whom}{side}.'
            if several:
                text += f' There are {len(several)}: {"; ".join(several)}.'
        else:
            first, second, several = self._pair(a, b)
            things = [first, second]
            one, other = first.as_landmark(), second.as_landmark()
            metres = gap_m(one, other)
            middles = math.dist(one.position, other.position)
            has_sizes = bool(one.size and other.size)
            if _is_of_views(one) and _is_of_views(other) and metres < _ROUGH * middles:
                spread, metres, has_sizes = (middles - metres) / 2, middles, False
            how = 'by their closest points' if has_sizes else 'by their middles'
            text = f'The {first.label} and the {second.label} are {_length(metres, unit)} apart, '
            text += f'{how}.'
        margin = max(0.1, 0.05 * metres, self.slack_m, spread) / UNITS[unit]
        facts = {'distance_m': metres}
        value, evidence = metres / UNITS[unit], self._evidence(things)
        return Result('distance', (a, b), value, unit, text, margin, evidence, several, facts)

    def _least_distance(self, name: str, unit: str) -> Result:
        thing, several = self._only(name)
        if not self.path:
            _refuse('my way is not known')
        metres = min(math.dist(point.position, _at(thing)) for point in self.path)
        text = f'At its nearest the {thing.label} was {_length(metres, unit)} away.'
        return Result('distance', (name, WAY), metres / UNITS[unit], unit, text,
                      max(0.1, 0.05 * metres, self.slack_m) / UNITS[unit],
                      self._evidence([thing]), several, {'distance_m': metres})  # fmt: skip

    @_tool
    def beside(self, a: str, b: str) -> Result:
        """On which side of one thing another one is, as the camera saw both.

        Args:
            a: The thing.
            b: The other one, of which it is on the left or the right.
        """
        (_, ones), (_, others) = self.named(a, gone=True), self.named(b, gone=True)
        bearings = {s.delta_id: s for t in others for s in t.sights}
        both = [
            (s, bearings[s.delta_id]) for t in ones for s in t.sights if s.delta_id in bearings
        ]
        known = [pair for pair in both if all(math.isfinite(s.item.bearing_rad) for s in pair)]
        if len(ones) > 1 or len(others) > 1:
            _refuse(f'there are several of the {a if len(ones) > 1 else b}')
        if known:
            one, other = max(known, key=lambda pair: pair[0].stamp_ns)
            off = math.degrees(one.item.bearing_rad - other.item.bearing_rad)
        elif self.path:
            places = [self._target(name)[0] for name in (a, b)]
            own, its = (bearing_deg(self.path[-1], place) for place in places)
            if max(abs(own), abs(its)) > 90:
                _refuse(f'the {a} and the {b} were not in view together')
            off = own - its
        else:
            _refuse(f'the {a} and the {b} were not in view together')
        if abs(off) < _SMALL_TURN_DEG:
            _refuse(f'the {a} and the {b} are in one direction')
        side = 'left' if off > 0 else 'right'
        text = f'The {ones[0].label} is to the {side} of the {others[0].label}, as I saw them.'
        return Result('beside', (a, b), side, '', text, evidence=self._evidence([*ones, *others]),
                      facts={'bearing_deg': math.copysign(90.0, off)})  # fmt: skip

    @_tool
    def raised(self, among: Sequence[str] = ()) -> Result:
        """What stands above the floor, as on a table or a shelf: the highest first.

        Args:
            among: The things in question; none: all.
        """
        named = []
        for word in among:
            self._target(word)  # refuses what has no place
            named += [thing for thing in self.named(word)[1] if thing.position]
        own = named or [t for t in self.all_things if t.position and not t.is_gone]
        if not own:
            _refuse('no height is known')
        low = {thing.label: _underside_m(thing) for thing in self.all_things if thing.position}
        is_floor = self.robot.position[2] > _FLOOR_M > min(map(abs, low.values()))
        if not is_floor or min(low.values()) < -_FLOOR_M:
            _refuse('how high the floor is, is not known')
        unclear = [t.label for t in named if _FLOOR_M < low[t.label] < _RAISED_M]
        if unclear:
            _refuse(f'whether the {unclear[0]} is on the floor is not clear')
        high = sorted((t for t in own if low[t.label] >= _RAISED_M), key=lambda t: -low[t.label])
        if not (high or among):
            _refuse('I know of nothing above the floor')
        heights = [f'the {t.label} {_length(low[t.label], "m")}' for t in high]
        text = f'Above the floor: {"; ".join(heights)}.' if high else 'On the floor: '
        text += '' if high else f'{_joined([f"the {thing.label}" for thing in own])}.'
        value = tuple(thing.label for thing in high)
        facts = {'is_mixed': 0 < len(high) < len(own)}
        return Result('raised', (', '.join(among),), value, '', text,
                      evidence=self._evidence(own), facts=facts)  # fmt: skip

    @_tool
    def happened(self, what: str = 'all', name: str = '') -> Result:
        """What happened before the camera: what moved by itself, came or went while it stood.

        Args:
            what: 'all', 'moved', 'new' or 'gone'.
            name: The thing in question; empty: any.
        """
        if len(self.deltas) < 2:
            _refuse('I have not looked for long enough')
        meant = {thing.label for thing in self.named(name, gone=True)[1]} if name else set()
        wanted = {s: word for s, word in _EVENTS.items() if what in {'all', word}}
        told: list[tuple[int, SemanticDelta, str, str]] = []
        for number, delta in enumerate(self.deltas, 1):
            for item in delta.items:
                is_own = item.status is ItemStatus.MOVED or delta.action == STATIONARY
                is_meant = not name or item.label in meant
                if item.status not in wanted or item.is_doubtful or not (is_own and is_meant):
                    continue
                way = f' {item.moving}' if item.moving else ''
                words = f'{_DID[wanted[item.status]]}{way}{self._ago(delta.stamp_ns)}'
                told.append((number, delta, item.label, f'{with_article(item.label)} {words}'))
        if not told:  # what was not recognised, or out of view, may have
            msg = f'I did not see that {with_article(name or "thing")} {_DID.get(what, "changed")}'
            msg += '; out of view, or not recognised, it may have'
            raise NotKnownError(msg)
        last = told[-_MOST_EVENTS:]
        evidence = Evidence(
            (),
            tuple(delta.to_id for _, delta, _, _ in last),
            tuple(number for number, _, _, _ in last),
            tuple(delta.stamp_ns for _, delta, _, _ in last),
        )
        labels = tuple(dict.fromkeys(label for _, _, label, _ in reversed(told)))
        more = f' ({len(told) - len(last)} earlier)' if len(told) > len(last) else ''
        text = _sentence('; '.join(words for *_, words in reversed(last)) + more)
        value = bool(name) or labels
        return Result('happened', (what, name), value, text=text, evidence=evidence)

    @_tool
    def changed(self, what: str = 'all', name: str = '') -> Result:
        """What changed in the place since an earlier visit, where each of both looked.

        Args:
            what: 'all', 'new', 'gone', 'moved', or 'been': whether I was here before.
            name: The thing in question; empty: any.
        """
        if self.earlier is None:
            _refuse('I was told of no earlier visit')
        if isinstance(self.earlier, str):
            _refuse(f'I did not find myself in the earlier visit: {self.earlier}')
        same = self.earlier.same
        stay = f'{same} thing{" is" if same == 1 else "s are"} where they were'
        if what == 'been':
            return Result('changed', (what, name), True, text=f'I was here before: {stay}.')
        found = self.earlier.of_kind(what)
        labels = tuple(dict.fromkeys(change.label for change in found))
        if name:
            meant = resolve(name, labels).labels
            found = [change for change in found if change.label in meant]
            if not found:
                _refuse(
                    f'I did not see that {with_article(name)} {_DID.get(what, "changed")} since'
                )
        told = '; '.join(change.words for change in found) or f'nothing that I saw changed; {stay}'
        value = bool(name) or labels
        return Result('changed', (what, name), value, text=_sentence(told))

    def duration(self) -> Result:
        """How long it is from the first keyframe to the last one."""
        stamps = [delta.stamp_ns for delta in self.deltas]
        if len(stamps) < 2 or not self.has_times:
            why = NO_TIMES if stamps[1:] else 'only one view was taken'
            return _unknown('duration', (), why)
        seconds = (max(stamps) - min(stamps)) / NS_PER_S
        text = f'It took {seconds:.1f} s from the first keyframe to the last.'
        return Result('duration', (), seconds, 's', text, 1.0, self._span(0))

    def _pair(self, a: str, b: str) -> tuple[Thing, Thing, tuple[str, ...]]:
        """The nearest pair of things of two names."""
        (_, ones), (_, others) = self.named(a), self.named(b)
        pairs = [
            (gap_m(one.as_landmark(), other.as_landmark()), i, j)
            for i, one in enumerate(ones)
            for j, other in enumerate(others)
            if one is not other and one.position is not None and other.position is not None
        ]
        if not pairs:
            missing = next((t for t in (*ones, *others) if t.position is None), None)
            _refuse(self._no_place(missing) if missing else f'{a} and {b} are one and the same')
        _, i, j = min(pairs)
        several = [t.label for those in (ones, others) if len(those) > 1 for t in those]
        return ones[i], others[j], tuple(several)

    @_tool
    def nearest(self, to: str = ROBOT, among: Sequence[str] = (), farthest: str = '') -> Result:
        """Which thing is the nearest to another one, or the farthest from it.

        Args:
            to: A thing, 'robot' or 'start'.
            among: The things that are compared; none: all others.
            farthest: 'yes': the farthest instead.
        """
        gaps = self.gaps(to, among)
        names = list(reversed(gaps)) if farthest else list(gaps)
        first = names[0]
        word, end = ('farthest', 'from') if farthest else ('nearest', 'to')
        whom = {ROBOT: 'me', START: 'the start'}.get(to, f'the {to}')
        text = f'The {first} is the {word} {end} {whom}'
        if self.has_metres:
            text += f', at {gaps[first]:.1f} m'
            text += f'; then the {names[1]}, at {gaps[names[1]]:.1f} m' if names[1:] else ''
            is_clear = not names[1:] or _is_clear(gaps[first], gaps[names[1]], self.slack_m)
        else:
            ratio = gaps[names[1]] / max(1e-9, gaps[first]) if names[1:] else math.inf
            ratio = 1 / max(1e-9, ratio) if farthest and names[1:] else ratio
            is_clear = ratio >= _RELATIVE_CLEAR
            text += f'; the {names[1]} is {_times(ratio)} as far' if names[1:] else ''
            # How near the nearest is, in metres, is not known.
            gaps = dict.fromkeys(gaps, math.inf)
        is_tie = not is_clear
        things = [t for name in names[:2] for t in self.named(name)[1][:1]]
        return Result(
            'nearest', (to, ', '.join(among), 'yes' if farthest else ''), first, '', f'{text}.',
            evidence=self._evidence(things), candidates=tuple(names[:2]) if is_tie else (),
            facts={'gaps_m': gaps, 'names': tuple(names[:2]), 'is_tie': is_tie},
        )  # fmt: skip

    def gaps(
        self, to: str, among: Sequence[str] = (), *, from_above: bool = False
    ) -> dict[str, float]:
        """Distance of things from another one, by their names: all alike, the least first [m].

        By closest points where all have sizes, else by middles.

        Args:
            to: A thing, 'robot' or 'start'.
            among: The things; none: all others.
            from_above: From the robot or the start: level distances, of what has gone too.

        Raises:
            NotKnownError: One is not known.
        """
        groups = self._compared(to, among, gone=from_above)
        if to in (ROBOT, START):
            at = (self.robot if to == ROBOT else self.start).position
            off = level_m if from_above else math.dist
            gaps = {n: min(off(at, _at(t)) for t in those) for n, those in groups.items()}
            return dict(sorted(gaps.items(), key=lambda pair: pair[1]))
        own = self._only(to)[0].as_landmark()
        landmarks = {n: [thing.as_landmark() for thing in those] for n, those in groups.items()}
        if not all(each.size for each in chain(*landmarks.values())):
            own = replace(own, size=None)  # then all are by their middles
        gaps = {n: min(gap_m(each, own) for each in those) for n, those in landmarks.items()}
        return dict(sorted(gaps.items(), key=lambda pair: pair[1]))

    def _compared(
        self, to: str, among: Sequence[str], *, gone: bool = False
    ) -> dict[str, list[Thing]]:
        groups: dict[str, list[Thing]] = {}
        if among:
            for name in among:
                things = self.named(name, gone=gone)[1]
                placed = [t for t in things if t.position is not None]
                if not placed:
                    _refuse(self._no_place(things[0]))
                groups[name] = placed
            return groups
        own = set() if to in (ROBOT, START) else set(self.named(to)[0].labels)
        for thing in self.all_things:
            is_there = gone or not thing.is_gone
            if thing.label not in own and thing.position is not None and is_there:
                groups.setdefault(thing.label, []).append(thing)
        if not groups:
            _refuse('nothing else has a place that is known')
        return groups

    @_tool
    @_in_metres
    def size(self, name: str, dimension: str = 'longest', unit: str = 'cm') -> Result:
        """How large a thing is.

        Args:
            name: The thing.
            dimension: 'longest', 'height', 'width' (the larger level extent) or 'depth'.
            unit: 'cm', 'm', 'ft' or 'in'.
        """
        _, things = self.named(name)
        sized = [thing for thing in things if thing.size]
        if not sized:
            _refuse(f'the size of the {things[0].label} is not known')
        x, y, z = sized[0].size or (0.0, 0.0, 0.0)
        extents = {'longest': max(x, y, z), 'height': z, 'width': max(x, y), 'depth': min(x, y)}
        metres = extents[dimension]
        text = f'The {sized[0].label} is {_length(metres, unit)} {_AXES[dimension]}'
        text += f' ({100 * max(x, y):.0f} x {100 * min(x, y):.0f} x {100 * z:.0f} cm).'
        several = tuple(thing.label for thing in sized) if len(sized) > 1 else ()
        facts = {'size_m': (x, y, z), 'distance_m': metres}
        margin = max(0.05, 0.1 * metres) / UNITS[unit]
        return Result('size', (name, dimension), metres / UNITS[unit], unit, text, margin,
                      self._evidence(sized[:1]), several, facts)  # fmt: skip

    def floor_area(self, unit: str = 'm') -> Result:
        """How large the floor is.

        Args:
            unit: 'm' for square metres, 'ft' for square feet.
        """
        area = self.place.room_area_m2 if self.place else None
        if not area:
            return _unknown('floor_area', (), 'the size of the floor is not known')
        value = area / UNITS[unit] ** 2
        text = f'The floor measures {value:.1f} {unit}².'
        return Result('floor_area', (), value, f'{unit}2', text, 0.1 * value,
                      facts={'area_m2': area})  # fmt: skip

    @_tool
    def seen(self, name: str, sight: str = 'last') -> Result:
        """When a thing was seen: seconds ago, and how often.

        Args:
            name: The thing.
            sight: 'first' or 'last'.
        """
        _, things = self.named(name, gone=True)
        dated = [thing for thing in things if thing.is_dated]
        if not dated:
            _refuse(f'when the {things[0].label} was seen is not known')
        stamp_ns = (
            max(thing.last_ns for thing in dated)
            if sight == 'last'
            else min(thing.first_ns for thing in dated)
        )
        seconds = max(0, self.now_ns - stamp_ns) / NS_PER_S
        began_ns = self._began_ns
        since = (stamp_ns - began_ns) / NS_PER_S
        label = dated[0].label
        now = any(map(self._is_in_view, dated))
        ago = self._ago(stamp_ns)
        when = f' {since:.1f} s after the start{"," * bool(ago)}{ago}'
        text = f'I {sight} saw the {label}{when if self.has_times else "; when: " + NO_TIMES}'
        text += ', and it is in view now.' if now and sight == 'last' else '.'
        facts = {'since_start_s': since, 'stamp_ns': stamp_ns, 'has_time': self.has_times}
        times = sum(len(thing.sights) for thing in dated)
        facts['in_view'] = now
        facts['times'] = times or sum(t.landmark.observations for t in dated if t.landmark)
        is_last = sight == 'last'
        evidence = self._evidence(dated) if is_last else self._evidence_of_first(dated)
        seconds = seconds if self.has_times else math.nan
        return Result('seen', (name, sight), seconds, 's', text, 0.6, evidence, facts=facts)

    @property
    def _began_ns(self) -> int:
        stamps = [self.deltas[0].stamp_ns] if self.deltas else []
        stamps += [point.stamp_ns for point in self.path[:1]]
        stamps += [thing.first_ns for thing in self.all_things if thing.is_dated]
        return min(stamps, default=0)

    @_tool
    def order(self, among: Sequence[str] = ()) -> Result:
        """In which order things came into view first.

        Args:
            among: The things; none: all that were seen.
        """
        names = list(among) or list(self.labels)
        if not names:
            _refuse('nothing was seen yet')
        stamps = {name: self.first_ns(name) for name in names}
        ordered = tuple(sorted(stamps, key=stamps.__getitem__))
        began = self._began_ns
        told = [
            f'{name} ({(stamps[name] - began) / NS_PER_S:.1f} s)' if self.has_times else name
            for name in ordered[:12]
        ]
        together = len(set(stamps.values())) < len(stamps)
        text = f'First seen in this order: {", ".join(told)}.'
        if together and len(ordered) == 2:
            text = f'The {ordered[0]} and the {ordered[1]} came into view together.'
        things = [t for name in ordered for t in self.named(name, gone=True)[1][:1]]
        return Result('order', (', '.join(among),), ordered, '', text,
                      evidence=self._evidence_of_first(things),
                      facts={'stamps_ns': stamps, 'together': together})  # fmt: skip

    def first_ns(self, name: str) -> int:
        """When the first thing of a name came into view [ns].

        Raises:
            NotKnownError: It was not seen, or when is not known.
        """
        _, things = self.named(name, gone=True)
        if not all(thing.is_dated for thing in things):
            _refuse(f'when the {things[0].label} was first seen is not known')
        return min(thing.first_ns for thing in things)

    @_tool
    def motion(self, what: str = 'turn', since: str = '', unit: str = 'm') -> Result:
        """How the camera moved.

        Args:
            what: 'turn' [degrees, positive left], 'way' (length of the way) or 'displacement' [m],
                'height' [m], 'now' or 'any' (whether it moved at last, or ever).
            since: A thing since whose first sight it counts; empty: the start.
            unit: Of lengths: 'm', 'cm', 'ft' or 'yd'.
        """
        tools: dict[str, Callable[[int], Result]] = {
            'turn': self._turn, 'way': self._way, 'displacement': self._displacement,
            'height': self._height, 'now': self._moves_now,
            'any': partial(self._moves_now, ever=True),
        }  # fmt: skip
        result = tools[what](self.first_ns(since) if since else 0)
        return _in_unit(result, unit) if result.unit == 'm' else result

    def _path_since(self, since_ns: int, lacking: str) -> list[PathPoint]:
        """The way from a time on.

        Raises:
            NotKnownError: With what is lacking: it has no two points.
        """
        points = [point for point in self.path if point.stamp_ns >= since_ns]
        if len(points) < 2:
            _refuse(lacking)
        return points

    def _legs(self, since_ns: int) -> list[tuple[int, float, float, float]]:
        """Stamp, turn so far, left turn so far [rad] and way so far [m], from a time on.

        Raises:
            NotKnownError: No motion is known, or a turn in between is not.
        """
        if self._stands:
            stands = [s for s in self._stands.values() if s.stamp_ns >= since_ns]
            if len(stands) > 1:
                return [(s.stamp_ns, s.turned_rad, s.left_rad, s.way_m) for s in stands]
        points = self._path_since(since_ns, 'my motion is not known: only one view was taken')
        legs = [(points[0].stamp_ns, 0.0, 0.0, 0.0)]
        for before, after in pairwise(points):
            turn = wrap_angle_rad(after.yaw_rad - before.yaw_rad)
            _, turned, left, way = legs[-1]
            moved = math.dist(before.position, after.position)
            legs.append((after.stamp_ns, turned + turn, left + max(0.0, turn), way + moved))
        return legs

    def _span(self, since_ns: int) -> Evidence:
        shown = self._evidence_of_deltas(d.stamp_ns >= since_ns for d in self.deltas)
        return replace(shown, stamps_ns=shown.stamps_ns[:1] + shown.stamps_ns[-1:])

    def _turn(self, since_ns: int) -> Result:
        legs = self._legs(since_ns)
        stands = [s for s in self._stands.values() if s.stamp_ns >= since_ns]
        unknown = len({s.turn_part for s in stands}) - 1 if stands else 0
        net = math.degrees(legs[-1][1] - legs[0][1])
        left = math.degrees(legs[-1][2] - legs[0][2])
        right = left - net
        missing = f'{unknown} of {len(stands) - 1} motions between keyframes are not known'
        least = _TURN_DEG if min(left, right) < _SMALL_TURN_DEG else 3 * _TURN_DEG
        if unknown > _MOST_UNKNOWN * len(stands) or (unknown and abs(net) < least):
            _refuse(missing)
        if max(left, right) < 2.5:
            text = 'I did not turn.'
        elif abs(net) < _TURN_DEG:
            text = f'In all I turned hardly at all: {left:.0f}° to the left and {right:.0f}° to '
            text += 'the right.'
        else:
            side = 'left' if net > 0 else 'right'
            text = f'In all I turned {abs(net):.0f}° to the {side}'
            back = right if net > 0 else left
            both = f' ({left:.0f}° to the left, {right:.0f}° to the right)'
            text += (both if back >= 10 else '') + '.'
        if unknown:
            text = f'{text[:-1]}, as far as is known: {missing}.'
        facts = {'turn_deg': net, 'left_deg': left, 'right_deg': right, 'unknown': unknown,
                 'bearing_deg': (net + 180) % 360 - 180}  # fmt: skip
        margin = max(10.0, 0.1 * (left + right)) + 45.0 * unknown
        return Result('motion', ('turn', ''), net, 'deg', text, margin, self._span(since_ns),
                      facts=facts)  # fmt: skip

    def _check_metres(self, since_ns: int) -> None:
        """Refuse where moves have no metres.

        Raises:
            NotKnownError: Some of the moves since then have none.
        """
        stands = [s for s in self._stands.values() if s.stamp_ns >= since_ns]
        of_path = [point for point in self.path if point.stamp_ns >= since_ns]
        self._check_has_metres()
        if len({s.parts for s in stands}) > 1 and (not self.place or len(of_path) < 2):
            _refuse('how far I moved is not known: nothing gives the metres of my motion')

    @_in_metres
    def _way(self, since_ns: int) -> Result:
        self._check_metres(since_ns)
        legs = self._legs(since_ns)
        metres = legs[-1][3] - legs[0][3]
        text = f'My way was {metres:.1f} m long.'
        return Result('motion', ('way', ''), metres, 'm', text, max(0.2, 0.1 * metres),
                      self._span(since_ns), facts={'distance_m': metres})  # fmt: skip

    @_in_metres
    def _displacement(self, since_ns: int) -> Result:
        self._check_metres(since_ns)
        points = self._path_since(since_ns, 'where I am from the start is not known')
        first, last = points[0], points[-1]
        metres = level_m(first.position, last.position)
        degrees = bearing_deg(first, last.position) if metres > 1e-6 else 0.0
        side = '' if metres < 0.3 else f', {_from_start(degrees)}'
        text = f'I am {metres:.1f} m from where I began{side}.'
        facts = {'distance_m': metres, 'bearing_deg': degrees}
        return Result('motion', ('displacement', ''), metres, 'm', text, max(0.2, 0.1 * metres),
                      self._span(since_ns), facts=facts)  # fmt: skip

    def _rise_of_moves(self) -> Result | None:
        """Whether moves without metres rose; None: it is not known."""
        moved = [
            d.motion.translation for n, d in enumerate(self.deltas) if n and n in self._stands
        ]
        known = [each for each in moved if all(map(math.isfinite, each))]
        if not known:
            return None
        share = sum(each[2] / (math.hypot(*each) or 1.0) for each in known) / len(known)
        unknown = 1 - len(known) / len(moved)
        is_level = abs(share) < _LEVEL and unknown <= _FEW_UNKNOWN
        if not is_level and (abs(share) < _RISING or unknown > _MOST_UNKNOWN):
            return None
        word = 'level' if is_level else 'up' if share > 0 else 'down'
        sign = 0.0 if is_level else math.copysign(1.0, share)
        text = f'My moves went {word} in all; how many metres is not known.'
        return Result('motion', ('height', ''), word, '', text, evidence=self._span(0),
                      facts={'rise_m': sign})  # fmt: skip

    def _height(self, since_ns: int) -> Result:
        try:
            self._check_metres(since_ns)
        except NotKnownError:
            by_moves = None if since_ns else self._rise_of_moves()
            if by_moves is None:
                raise
            return by_moves
        points = self._path_since(since_ns, 'my height is not known')
        rise = points[-1].position[2] - points[0].position[2]
        level = abs(rise) < _MOVE_M
        word = (
            'as high as'
            if level
            else f'{abs(rise):.1f} m {"higher" if rise > 0 else "lower"} than'
        )
        text = f'The camera is {word} at the start.'
        return Result('motion', ('height', ''), rise, 'm', text, 0.1, self._span(since_ns),
                      facts={'rise_m': rise})  # fmt: skip

    def _moves_now(self, since_ns: int, *, ever: bool = False) -> Result:
        stands = [s for s in self._stands.values() if s.stamp_ns >= since_ns]
        known = [s for s in stands[1:] if s.is_moving is not None]
        last = next((s for s in reversed(known) if s.is_moving), None) if ever else None
        last = last or (known[-1] if known else None)
        if last is None or (ever and not last.is_moving and len(known) < len(stands) - 1):
            _refuse('whether I moved is not known')
        moved = sum(bool(s.is_moving) for s in known)
        if ever and 0 < moved * _FEW_MOVES < len(known):
            stood = f'in {len(known) - moved} of {len(known)} motions I stood still'
            _refuse(f'whether I moved is not clear: {stood}')
        action = self.deltas[last.index].action
        seen = f' [{last.index + 1}]: {action}' if action else ''
        when = 'On the way I' if ever else 'At last I'
        text = f'{when} {"moved" if last.is_moving else "did not move"}{seen}.'
        evidence = self._evidence_of_deltas(n == last.index for n in range(len(self.deltas)))
        arguments = ('any' if ever else 'now', '')
        return Result('motion', arguments, last.is_moving, '', text, evidence=evidence)

    def moves(self, what: str = '', which: str = '') -> Result:
        """Into which directions the camera moved, of its own view, and how it turned.

        Args:
            what: 'moved', 'turned', 'tilted' or 'rolled'; empty: all of them.
            which: 'first' or 'last': that one alone; empty: the most frequent ones first.
        """
        actions = [(d.action, n) for n, d in enumerate(self.deltas, 1) if n - 1 in self._stands]
        known = [(each, n) for each, n in actions[1:] if parse_action(each) is not None]
        steps = [
            (' '.join(step.split()[:2]), step, number)
            for action, number in known
            for step in action.split(', ')
            if step.startswith(what or ('moved', 'turned', 'tilted', 'rolled'))
        ]
        large = [step for step in steps if _amount(step[1]) >= _TURN_DEG or step[0][0] == 'm']
        steps = large if which and large else steps
        unknown = len(actions) - 1 - len(known)
        if not steps and known and unknown <= _FEW_UNKNOWN * len(known):
            text = f'I have not {what or "moved"}.'
            facts: dict[str, Any] = {'counts': Counter(), 'unknown': unknown}
            return Result(
                'moves', (what, which), (), text=text, evidence=self._span(0), facts=facts
            )
        if not steps:
            reason = f'I have not {what or "moved"}' if known else 'my motion is not known'
            return _unknown('moves', (what, which), f'{reason}, as far as is known')
        counts = Counter(key for key, _, _ in steps)
        amounts: dict[str, float] = {}
        for key, step, _ in steps:
            amounts[key] = amounts.get(key, 0.0) + _amount(step)
        value = tuple(sorted(counts, key=lambda key: (key[0] != 'm', -amounts[key], -counts[key])))
        told = [f'[{number}] {step}' for _, step, number in steps]
        if which:
            key, _, _ = steps[-1 if which == 'last' else 0]
            value, told = (key,), told[-1:] if which == 'last' else told[:1]
        heading = f'My {which} move' if which else f'I mostly {value[0]}; in turn'
        more = f'; and {len(told) - 8} more' if len(told) > 8 else ''
        side = {'left': 90.0, 'right': -90.0}.get(value[0].split()[-1])
        facts = {'counts': counts, 'unknown': unknown}
        return Result(
            'moves',
            (what, which),
            value,
            text=f'{heading}: {"; ".join(told[:8])}{more}.',
            evidence=self._span(0),
            facts=facts if side is None or not which else {**facts, 'bearing_deg': side},
        )

    @_tool
    def colour(self, name: str) -> Result:
        """The colour of a thing, where its label tells it.

        Args:
            name: The thing, such as 'flat object'.
        """
        _, things = self.named(name, gone=True)
        colours = {LabelParts.of(thing.label).colour for thing in things}
        if len(colours) != 1 or colours == {''}:
            several = _labels(things)
            _refuse(
                f'the colour of the {name} is not known: I have seen {_joined(several)}', several
            )
        text = f'The {things[0].label} is {colours.copy().pop()}.'
        return Result('colour', (name,), colours.pop(), text=text, evidence=self._evidence(things))

    @_tool
    def visited(self, among: Sequence[str] = ()) -> Result:
        """Which things the way led to, in this order.

        Args:
            among: The things; none: all.
        """
        self.robot  # noqa: B018 - refuses where there is no way
        self._check_has_metres()
        names = list(among) or list(self.labels)
        stamps: dict[str, int] = {}
        off_m: dict[str, float] = {}
        for name in names:
            things = [t for t in self.named(name, gone=True)[1] if t.position is not None]
            reached = [first_reach_ns(self.path, _at(t)) for t in things]
            known = [stamp for stamp in reached if stamp is not None]
            if things:
                off_m[name] = min(off_path_m(self.path, _at(t)) for t in things)
            if known:
                stamps[name] = min(known)
        ordered = tuple(sorted(stamps, key=stamps.__getitem__))
        text = f'My way led past {_joined([f"the {name}" for name in ordered])}, in this order.'
        if not ordered:
            text = f'My way led to none of them within {REACH_M:.1f} m.'
        things = [t for name in ordered for t in self.named(name, gone=True)[1][:1]]
        return Result('visited', (', '.join(among),), ordered, '', text,
                      evidence=self._evidence(things),
                      facts={'off_m': off_m, 'stamps_ns': stamps})  # fmt: skip

    @_tool
    def way_to(
        self, goal: str, start: str = '', facing: str = '', via: Sequence[str] = ()
    ) -> Result:
        """How to get to a thing, or back to the start: a turn and a distance, leg by leg.

        Args:
            goal: A thing, or 'start'.
            start: A thing where the way begins; empty: where the robot is.
            facing: With `start`, what is faced there.
            via: Things on the way, in order.
        """
        stops, things = [], []
        for name in (*via, goal):
            place, _, found = self._target(name)
            stops.append(place)
            things += found
        if start:
            (at, _, first), (ahead, _, faced) = self._target(start), self._target(facing)
            things += [*first, *faced]
            if level_m(at, ahead) < _APART_M:
                _refuse(f'who stands at the {start} and faces the {facing} may look any way')
        else:
            pose = self.robot
            at = pose.position
            ahead = (at[0] + math.cos(pose.yaw_rad), at[1] + math.sin(pose.yaw_rad), at[2])
        turns = route_turns(at, ahead, stops)
        places = [at, *stops]
        legs = [level_m(a, b) for a, b in pairwise(places)]
        faced_m = level_m(at, ahead)
        slacks = [self._slack_deg(metres) for metres in (faced_m, *legs)]
        names = [*via, 'start' if goal == START else goal]
        if len(legs) == 1 and legs[0] < 0.3 and self.has_metres:
            text = f'We are at the {names[0]} already.'
        else:
            steps = [
                f'{_turn_words(turn)}, then go {f"{leg:.1f} m " * self.has_metres}to the {name}'
                for turn, leg, name in zip(turns, legs, names, strict=True)
            ]
            text = _sentence('; '.join(steps))
        facts = {
            'turns_deg': turns, 'legs_m': tuple(legs), 'bearing_deg': turns[0],
            'distance_m': legs[0], 'level_m': legs[0], 'faced_m': faced_m,
            'slacks_deg': tuple(2 * (before + after) for before, after in pairwise(slacks)),
        }  # fmt: skip
        if not self.has_metres:
            facts = {key: facts[key] for key in ('turns_deg', 'bearing_deg', 'slacks_deg')}
        return Result('way_to', (goal, start, facing, ', '.join(via)), turns[0], 'deg', text, 5.0,
                      self._evidence(things), facts=facts)  # fmt: skip


def _unknown(tool: str, arguments: tuple[str, ...], reason: str) -> Result:
    return Result(tool, arguments, text=_sentence(reason))


def _underside_m(thing: Thing) -> float:
    """How high the underside of a thing with a place is [m]."""
    return _at(thing)[2] - (thing.size[2] / 2 if thing.size else 0.0)


def _certain(words: str, name: Name) -> tuple[str, ...]:
    """The labels that all of some words name, by themselves or by what they are called as well."""
    is_sure = words.removeprefix('the ') == name.text and not name.is_guess
    own = {name.text, name.in_words} if is_sure else set()
    return tuple(label for label in name.labels if own & {label, *other_names(label)})


def _amount(step: str) -> float:
    """How many degrees or metres a step has; infinite where that is not said."""
    match = re.search(r'\d+(?:\.\d+)?', step)
    return float(match[0]) if match else math.inf


def _in_unit(result: Result, unit: str) -> Result:
    """A length in another unit, in value and words."""
    if unit == 'm' or not isinstance(result.value, float):
        return result
    text = re.sub(r'(\d+\.\d) m\b', lambda match: _length(float(match[1]), unit), result.text)
    factor = UNITS[unit]
    return replace(
        result, value=result.value / factor, margin=result.margin / factor, unit=unit, text=text
    )


def _sentence(text: str) -> str:
    return f'{text[:1].upper()}{text[1:]}{"" if text.endswith(".") else "."}'


def _without_pieces(things: Sequence[Thing]) -> list[Thing]:
    """Things of a colour without those of no shape, which may be others at the image's border."""
    parts = [(thing, LabelParts.of(thing.label)) for thing in things]
    return [thing for thing, part in parts if part.shape or part.name] or list(things)


def _is_of_views(landmark: Landmark) -> bool:
    """Whether a size is of views alone, by which a thing is as long as it is wide."""
    size = landmark.size
    return bool(landmark.keyframe_ids) and size is not None and size[0] == size[1]


def _at(thing: Thing) -> Position:
    assert thing.position is not None
    return thing.position


def _is_same(group: Sequence[ItemSight], sight: ItemSight) -> bool:
    """Tell whether a sight may be of the thing of a group: it is not when both are in one view."""
    last = group[-1]
    if last.delta_id == sight.delta_id and last.stamp_ns == sight.stamp_ns:
        return False
    off = _unlike(last, sight)
    limit = max(_SAME_M, _SAME_SHARE * _far(last), _SAME_SHARE * _far(sight))
    return not off > limit


def _unlike(one: ItemSight, other: ItemSight) -> float:
    """How far two sights are apart [m]; NaN: not comparable."""
    a, b = one.position, other.position
    comparable = one.stand and other.stand and one.stand.parts == other.stand.parts
    if a is None or b is None or not comparable:
        return math.nan
    return float(np.linalg.norm(a - b))


def _far(sight: ItemSight) -> float:
    distance = sight.item.distance_m
    return distance if distance == distance else 0.0


def _is_clear(a: float, b: float, slack_m: float) -> bool:
    least, most = sorted((a, b))
    return most - slack_m >= _CLEAR * (least + slack_m) and most - least >= 0.1


def _direction(degrees: float) -> str:
    """A direction in words: 'straight ahead', 'to your right', 'behind you, to the left'."""
    side = 'left' if degrees > 0 else 'right'
    off = abs(degrees)
    if off <= 10:
        return 'straight ahead'
    if off <= 45:
        return f'ahead, {off:.0f}° to the {side}'
    if off < 135:
        return f'to your {side} ({off:.0f}°)'
    return 'behind you' if off >= 170 else f'behind you, to the {side} ({off:.0f}°)'


def _from_start(degrees: float) -> str:
    off = abs(degrees)
    side = 'left' if degrees > 0 else 'right'
    if off <= 45:
        return 'ahead of it' if off <= 20 else f'ahead of it, to the {side}'
    return f'to the {side} of it' if off < 135 else 'behind it'


def _turn_words(degrees: float) -> str:
    if abs(degrees) <= 10:
        return 'go straight'
    if abs(degrees) >= 170:
        return 'turn around'
    return f'turn {abs(degrees):.0f}° to the {"left" if degrees > 0 else "right"}'


def _times(ratio: float) -> str:
    """A ratio of lengths in words."""
    for words, limit in (
        ('about', 1.25),
        ('about one and a half times', 1.75),
        ('about twice', 2.5),
    ):
        if ratio < limit:
            return words
    return f'about {ratio:.0f} times' if ratio < _MOST_TIMES else f'more than {_MOST_TIMES} times'


_ANYONE = {'anyone': 'anyone', 'anybody': 'anybody', 'someone': 'anyone', 'somebody': 'anybody'}


def _length(metres: float, unit: str) -> str:
    value = metres / UNITS[unit]
    return f'{value:.0f} cm' if unit == 'cm' else f'{value:.1f} {unit}'


def _some(words: str) -> str:
    if words in _ANYONE or words == 'people':
        return _ANYONE.get(words, words)
    return words if words.endswith('s') and plural(words[:-1]) == words else with_article(words)


def _number_of(label: str, things: Sequence[Thing]) -> str:
    count = len(things)
    return f'{count} {label if count == 1 else plural(label)}'


def _labels(things: Iterable[Thing]) -> tuple[str, ...]:
    """The labels of things, each once."""
    return tuple(dict.fromkeys(thing.label for thing in things))


def _counted(label: str, things: Sequence[Thing]) -> str:
    own = [thing for thing in things if thing.label == label]
    return with_article(label) if len(own) == 1 else _number_of(label, own)


def _listed(parts: Sequence[str], heading: str) -> str:
    return f'{heading}: {"; ".join(dict.fromkeys(parts))}'


def _joined(parts: Sequence[str]) -> str:
    return ' and '.join(filter(None, (', '.join(parts[:-1]), *parts[-1:])))
