# SPDX-License-Identifier: Apache-2.0
"""A scenario: everything that chance decides about an episode, things that move among it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import zip_longest
import math
from typing import TYPE_CHECKING

from embodied_r_ros.core.types.geometry import (
    NS_PER_S,
    Pose,
    quaternion_from_matrix,
    rotation_from_ypr,
)
from embodied_r_ros.core.types.layout import Span
from embodied_r_ros.sim.indoor.furniture import living_room, NAMES
from embodied_r_ros.sim.indoor.path import (
    draw_path,
    is_before_eyes,
    THING_CLEARANCE_M,
    with_way_back,
)
from embodied_r_ros.sim.indoor.room import changed_things, furnished_room, possible_labels
import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from embodied_r_ros.core.types.layout import Vector
    from embodied_r_ros.sim.indoor.path import CameraPath
    from embodied_r_ros.sim.indoor.room import Room, RoomThing
    from embodied_r_ros.sim.runs import IndoorConfig

Track = tuple[Span, ...]
_COUNTS = {0: 0.1, 1: 0.3, 2: 0.35, 3: 0.25}  # share of episodes with so many events
_KINDS = {'move': 0.6, 'appear': 0.2, 'go': 0.2}
_SEEN_SHARE = 0.65  # of the events that are to happen before the camera's eyes
_WHEN = (0.15, 0.85)  # share of the episode
_MOVES_M = (0.4, 1.2)
_SPEEDS_M_S = (0.2, 0.6)
_LOOK_ON_S = 1.5  # a move is seen when its beginning and this much of it are
_TIMES = 6  # that are tried for each thing
_HEADINGS = 6  # that are tried for each time


@dataclass(frozen=True)
class _Stage:
    """Where and when events may happen."""

    room: Room
    path: CameraPath
    start_ns: int
    end_ns: int  # after the last image

    def stamp_ns(self, seconds: float) -> int:
        return self.start_ns + round(seconds * NS_PER_S)


def draw_tracks(
    rng: np.random.Generator, room: Room, path: CameraPath, start_ns: int, duration_s: float
) -> list[Track]:
    """Draw where each thing is from the first image to the last.

    Args:
        rng: Where chance comes from.
        room: The room with its things where they are at first.
        path: The camera's path, clear of all things as they are at first.
        start_ns: Stamp of the start of the path.
        duration_s: How long the episode lasts [s].

    Returns:
        The spans of each thing, in the order of `room.things`.
    """
    stage = _Stage(room, path, start_ns, start_ns + math.ceil(duration_s * NS_PER_S) + 1)
    tracks: list[Track] = [(_rest(t.position, start_ns, stage.end_ns),) for t in room.things]
    order = (int(index) for index in rng.permutation(len(room.things)))
    idle = [index for index in order if not room.things[index].parts]  # furniture stays
    for _ in range(int(rng.choice(list(_COUNTS), p=list(_COUNTS.values())))):
        kind = str(rng.choice(list(_KINDS), p=list(_KINDS.values())))
        is_seen = rng.random() < _SEEN_SHARE
        for index in idle:
            times = _times(rng, stage, room.things[index], is_seen)
            track = _event(rng, stage, tracks, index, (kind, times))
            if track:
                tracks[index] = track
                idle.remove(index)
                break
    return tracks


def _times(
    rng: np.random.Generator, stage: _Stage, thing: RoomThing, is_seen: bool
) -> list[float]:
    """Draw times at which an event of a thing would be seen, or unseen [s]."""
    length_s = (stage.end_ns - stage.start_ns) / NS_PER_S
    times = rng.uniform(*_WHEN, _TIMES) * length_s
    first, second = (stage.path.states(t) for t in (times, times + _LOOK_ON_S))
    visibilities = [
        is_before_eyes(a, thing.position) and is_before_eyes(b, thing.position)
        for a, b in zip(first, second, strict=True)
    ]
    return [float(time) for time, eyes in zip(times, visibilities, strict=True) if eyes == is_seen]


def _event(
    rng: np.random.Generator,
    stage: _Stage,
    tracks: Sequence[Track],
    index: int,
    event: tuple[str, Sequence[float]],
) -> Track | None:
    """Draw an event of a kind at one of some times [s]; None: it cannot be."""
    kind, times = event
    thing = stage.room.things[index]
    for seconds in times:
        when_ns = stage.stamp_ns(seconds)
        if kind == 'appear':
            return (_rest(thing.position, when_ns, stage.end_ns),)
        if kind == 'go':
            return (_rest(thing.position, stage.start_ns, when_ns),)
        track = _draw_move(rng, stage, tracks, index, when_ns)
        if track:
            return track
    return None


def _rest(position: Vector, from_ns: int, to_ns: int) -> Span:
    return Span(from_ns, to_ns, position, position)


def _draw_move(
    rng: np.random.Generator, stage: _Stage, tracks: Sequence[Track], index: int, when_ns: int
) -> Track | None:
    """Draw a straight move on what the thing stands on; None: it cannot move."""
    thing = stage.room.things[index]
    x, y, z = thing.position
    bottom = z - thing.size[2] / 2
    surfaces = [
        surface
        for surface in stage.room.surfaces()
        if abs(surface.z - bottom) < 1e-6 and surface.holds(x, y, thing.radius)
    ]
    for _ in range(_HEADINGS):
        distance, heading = rng.uniform(*_MOVES_M), rng.uniform(0, 2 * math.pi)
        end = (x + distance * math.cos(heading), y + distance * math.sin(heading), z)
        arrival_ns = when_ns + round(distance / rng.uniform(*_SPEEDS_M_S) * NS_PER_S)
        if arrival_ns >= stage.end_ns:
            continue
        track = (
            _rest(thing.position, stage.start_ns, when_ns),
            Span(when_ns, arrival_ns, thing.position, end),
            _rest(end, arrival_ns, stage.end_ns),
        )
        is_on = any(surface.holds(end[0], end[1], thing.radius) for surface in surfaces)
        if is_on and _is_clear(stage, tracks, index, track):
            return track
    return None


def _is_clear(stage: _Stage, tracks: Sequence[Track], index: int, track: Track) -> bool:
    """Tell whether a moved thing meets neither the room, nor others, nor the camera."""
    things = stage.room.things
    obstacles = [
        replace(other, position=position)
        for other, spans in zip(things, tracks, strict=True)
        if other is not things[index]
        for span in spans
        for position in _along(span)
    ]
    thing, move, rest = things[index], track[1], track[2]
    if not all(stage.room.fits(replace(thing, position=p), obstacles) for p in _along(move)):
        return False
    stamps = np.arange(move.from_ns, rest.to_ns, NS_PER_S // 10)
    places = [(move if stamp < move.to_ns else rest).position_at(int(stamp)) for stamp in stamps]
    eyes = stage.path.states((stamps - stage.start_ns) / NS_PER_S)[:, :3]
    return bool(thing.distance(eyes, np.array(places)).min() >= THING_CLEARANCE_M)


def _along(span: Span) -> list[Vector]:
    """Places on the way of a span, near enough to each other for things of this size [m]."""
    if span.start == span.end:
        return [span.start]
    stamps = np.linspace(span.from_ns, span.to_ns, 9)
    return [span.position_at(int(stamp)) for stamp in stamps]


ODOM_FRAME = 'odom'
# Episodes start within four months of this; no two of a run at the same time, most likely.
_EPOCH_NS = 1_700_000_000 * NS_PER_S
_START_SPREAD_S = 10_000_000
_NEXT_VISIT_NS = 86_400 * NS_PER_S


@dataclass(frozen=True)
class Scenario:
    """A room, a way through it, and what happens in the meantime."""

    episode_id: str
    scene_id: str
    room: Room
    path: CameraPath
    tracks: tuple[Track, ...]  # of each thing of the room
    stamps_ns: tuple[int, ...]  # of the images
    texture_seed: int
    labels: tuple[str, ...] = ()  # that things of such rooms may have; empty: any
    may_return: bool = False  # in such rooms some paths lead back to their start

    def seconds(self, stamp_ns: int) -> float:
        """Time since the first image [s]."""
        return (stamp_ns - self.stamps_ns[0]) / NS_PER_S

    def state(self, stamp_ns: int) -> tuple[float, float, float, float, float]:
        """x, y, z [m], yaw (not wrapped) and pitch [rad] of the camera link."""
        [state] = self.path.states(np.array([self.seconds(stamp_ns)]))
        x, y, z, yaw, pitch = (float(value) for value in state)
        return x, y, z, yaw, pitch

    def pose(self, stamp_ns: int) -> Pose:
        """Pose of the camera link."""
        x, y, z, yaw, pitch = self.state(stamp_ns)
        rotation = rotation_from_ypr(yaw, pitch, 0.0)
        return Pose((x, y, z), quaternion_from_matrix(rotation), ODOM_FRAME)

    def positions(self, stamp_ns: int) -> list[Vector | None]:
        """Where each thing is [m]; None: absent."""
        return [
            next((s.position_at(stamp_ns) for s in track if s.from_ns <= stamp_ns < s.to_ns), None)
            for track in self.tracks
        ]


def draw_scenario(config: IndoorConfig, seed: int, index: int, attempt: int) -> Scenario:
    """Draw a scenario; equal arguments give equal ones.

    Room, path and events have random numbers of their own, so that a longer episode begins in the
    same room.

    Args:
        config: What episodes are like.
        seed: Seed of the run.
        index: Number of the episode in its run.
        attempt: Counts the draws for this number.

    Raises:
        UnfitError: This draw leads nowhere.
    """
    sources = np.random.SeedSequence([seed, index, attempt]).spawn(5)
    room_rng, path_rng, event_rng, rng, back_rng = (np.random.default_rng(s) for s in sources)
    # The same for every attempt: else those that are harder to draw would become fewer.
    is_return = np.random.default_rng([seed, index]).random() < config.returns
    start_ns = _EPOCH_NS + int(rng.integers(_START_SPREAD_S)) * NS_PER_S
    count = max(2, round(config.duration_s * config.rate_hz))
    is_furnished = config.kinds == 'furniture'
    room = living_room(room_rng) if is_furnished else furnished_room(room_rng)
    kinds = '' if config.kinds == 'all' else f'{config.kinds}-'
    signs = 'signs-' if config.signs else ''  # another recording of the same room
    returns = 'returns-' if config.returns else ''
    path = draw_path(path_rng, room, config.duration_s)
    if is_return:
        path = with_way_back(back_rng, room, path, config.duration_s)
    visit = 'visit1-' if config.visit else ''
    tracks = [_stays(thing, start_ns, config.duration_s) for thing in room.things]
    if not config.visit:
        tracks = draw_tracks(event_rng, room, path, start_ns, config.duration_s)
    return Scenario(
        episode_id=f'indoor-{kinds}{signs}{returns}{visit}{seed}-{index:05d}',
        scene_id=f'room-{kinds}{seed}-{index:05d}',
        room=replace(room, signs=config.signs),
        path=path,
        tracks=tuple(tracks),
        stamps_ns=tuple(start_ns + round(i * NS_PER_S / config.rate_hz) for i in range(count)),
        texture_seed=int(rng.integers(2**32)),
        labels=NAMES if is_furnished else possible_labels(),
        may_return=config.returns > 0,
    )


def draw_next_visit(
    before: Scenario, config: IndoorConfig, seed: int, index: int, attempt: int
) -> Scenario:
    """Draw the next visit to a room: things have changed since, and the camera goes another way.

    Args:
        before: The visit before it, in which nothing moves.
        config: What episodes are like; `visit` is that of the one that is drawn.
        seed: Seed of the run.
        index: Number of the episode in its run.
        attempt: Counts the draws for this number.

    Returns:
        The visit, a day later; a thing that is not there any more keeps its number.

    Raises:
        UnfitError: This draw leads nowhere.
    """
    sources = np.random.SeedSequence([seed, index, attempt, config.visit]).spawn(2)
    room_rng, path_rng = (np.random.default_rng(source) for source in sources)
    there = [t if s else None for t, s in zip(before.room.things, before.tracks, strict=True)]
    things = changed_things(room_rng, before.room, there, config.changes)
    start_ns = before.stamps_ns[0] + _NEXT_VISIT_NS
    name = f'visit{config.visit}'
    room = replace(before.room, things=tuple(thing for thing in things if thing))
    path = draw_path(path_rng, room, config.duration_s)
    known = zip_longest(things, before.room.things)
    return replace(
        before,
        episode_id=before.episode_id.replace(f'visit{config.visit - 1}', name),
        room=replace(room, things=tuple(new or old for new, old in known)),
        path=path,
        tracks=tuple(_stays(t, start_ns, config.duration_s) if t else () for t in things),
        stamps_ns=tuple(stamp_ns + _NEXT_VISIT_NS for stamp_ns in before.stamps_ns),
    )


def _stays(thing: RoomThing, start_ns: int, duration_s: float) -> Track:
    end_ns = start_ns + math.ceil(duration_s * NS_PER_S) + 1
    return (_rest(thing.position, start_ns, end_ns),)
