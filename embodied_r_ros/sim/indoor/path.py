# SPDX-License-Identifier: Apache-2.0
"""Smooth camera paths at the pace of a robot, some of which lead back."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
import math
from typing import TYPE_CHECKING

from embodied_r_ros.core.types.layout import ImageTruth
from embodied_r_ros.sim.indoor.room import UnfitError
import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping

    from embodied_r_ros.core.types.layout import Vector
    from embodied_r_ros.sim.indoor.room import Room
    from numpy.typing import NDArray

HEIGHTS_M = (0.4, 1.6)
YAW = 3  # position in the state
_WALL_CLEARANCE_M = 0.35
THING_CLEARANCE_M = 0.3
_FREE_AHEAD_M = 1.0  # at every rest the camera has at least this much room before it
_PITCHES_RAD = (math.radians(-12), math.radians(15))
_BEFORE_EYES_RAD = math.radians(35)
_BEFORE_EYES_M = 4.0
_EMPTY_SHARE = 0.35  # of the rests without a thing before the camera that are kept
_ATTEMPTS = 60
# How often each kind of segment is drawn, before those that lead into something are dropped.
_WEIGHTS = {
    'forward': 3.0,
    'backward': 2.0,
    'strafe': 1.6,
    'turn': 3.2,
    'lift': 1.2,
    'tilt': 0.7,
    'stop': 1.0,
    'forward and turn': 2.0,
    'backward and turn': 0.6,
}
_METRES = {
    'forward': (0.6, 2.4),
    'backward': (0.5, 2.2),
    'strafe': (0.4, 1.6),
    'forward and turn': (0.6, 2.0),
    'backward and turn': (0.5, 1.5),
}
# Mean paces; the peak of a minimum-jerk segment is 15/8 of its mean.
_SPEEDS_M_S = (0.3, 0.6)
_LIFT_SPEED_M_S = 0.3
_TURN_RATES_RAD_S = (math.radians(25), math.radians(60))
_TILT_RATE_RAD_S = math.radians(10)


@dataclass(frozen=True)
class Segment:
    """A move from rest to rest."""

    kind: str
    start_s: float
    duration_s: float
    start: NDArray[np.float64]  # state (5,)
    change: NDArray[np.float64]  # of the state (5,)

    @property
    def end(self) -> NDArray[np.float64]:
        """State after it, of shape (5,)."""
        return self.start + self.change

    @property
    def end_s(self) -> float:
        """When it is over [s]."""
        return self.start_s + self.duration_s


@dataclass(frozen=True)
class CameraPath:
    """A path as a row of segments."""

    segments: tuple[Segment, ...]

    def states(self, times_s: NDArray[np.float64]) -> NDArray[np.float64]:
        """States at some times since the start [s]. Shape (N, 5) of times (N,)."""
        starts, lengths, origins, changes = self._table
        index = np.clip(np.searchsorted(starts, times_s, side='right') - 1, 0, None)
        progress = minimum_jerk((times_s - starts[index]) / lengths[index])
        return np.asarray(origins[index] + changes[index] * progress[:, None])

    @cached_property
    def _table(self) -> tuple[NDArray[np.float64], ...]:
        """Start times, durations, first states and changes; made once for many calls."""
        return (
            np.array([segment.start_s for segment in self.segments]),
            np.array([segment.duration_s for segment in self.segments]),
            np.stack([segment.start for segment in self.segments]),
            np.stack([segment.change for segment in self.segments]),
        )


def minimum_jerk(progress: NDArray[np.float64]) -> NDArray[np.float64]:
    """Share of the way at a share of the time (Flash and Hogan 1985), both 0..1 and clipped."""
    t = np.clip(progress, 0.0, 1.0)
    return np.asarray(t**3 * (10 - 15 * t + 6 * t**2))


def draw_path(rng: np.random.Generator, room: Room, duration_s: float) -> CameraPath:
    """Draw a path that keeps clear of walls, furniture and things.

    Args:
        rng: Where chance comes from.
        room: Where to move.
        duration_s: How long [s]; the last segment is cut off there.

    Raises:
        UnfitError: The camera found no way on.
    """
    state = _start(rng, room)
    segments: list[Segment] = []
    end_s = 0.0
    while end_s < duration_s:
        before = segments[-1].kind if segments else ''
        segments.append(draw_segment(rng, room, state, end_s, before, _WEIGHTS))
        state, end_s = segments[-1].end, segments[-1].end_s
    return CameraPath(tuple(segments))


def _start(rng: np.random.Generator, room: Room) -> NDArray[np.float64]:
    """Draw a free place from which the camera looks roughly at the middle of the room."""
    for _ in range(_ATTEMPTS):
        x, y = rng.uniform(-0.5, 0.5, 2) * room.size[:2]
        yaw = math.atan2(-y, -x) + rng.uniform(-1, 1)
        state = np.array([x, y, rng.uniform(*HEIGHTS_M), yaw, 0.0])
        if _is_free(room, state[None]):
            return state
    msg = 'the room has no free place for the camera'
    raise UnfitError(msg)


def draw_segment(
    rng: np.random.Generator,
    room: Room,
    state: NDArray[np.float64],
    start_s: float,
    before: str,
    weights_by_kind: Mapping[str, float],
) -> Segment:
    """Draw a free segment from a state on.

    Args:
        rng: Where chance comes from.
        room: Where to move.
        state: Where it starts, of shape (5,).
        start_s: When [s].
        before: Kind of the segment before it; empty: none.
        weights_by_kind: How often each kind is drawn.

    Raises:
        UnfitError: None of many is free.
    """
    kinds, weights = list(weights_by_kind), np.array(list(weights_by_kind.values()))
    for _ in range(_ATTEMPTS):
        kind = str(rng.choice(kinds, p=weights / weights.sum()))
        if kind == before and kind in {'stop', 'lift', 'tilt'}:
            continue
        change, duration_s = _change(rng, kind, state)
        if not is_free_way(room, state, change):
            continue
        if _sees_things(room, state + change) or rng.random() < _EMPTY_SHARE:
            return Segment(kind, start_s, duration_s, state, change)
    msg = 'the camera found no way on'
    raise UnfitError(msg)


def _change(
    rng: np.random.Generator, kind: str, state: NDArray[np.float64]
) -> tuple[NDArray[np.float64], float]:
    """Draw the change of state, and how long it takes [s]."""
    change = np.zeros(5)
    duration_s = 0.0
    if kind == 'stop':
        duration_s = rng.uniform(0.8, 2.0)
    elif kind == 'lift':
        change[2] = rng.uniform(*HEIGHTS_M) - state[2]
        duration_s = abs(change[2]) / _LIFT_SPEED_M_S
    elif kind == 'tilt':
        change[4] = rng.uniform(*_PITCHES_RAD) - state[4]
        duration_s = abs(change[4]) / _TILT_RATE_RAD_S
    if kind in _METRES:
        distance = rng.uniform(*_METRES[kind])
        heading = state[3] + _heading(rng, kind)
        change[:2] = distance * math.cos(heading), distance * math.sin(heading)
        duration_s = distance / rng.uniform(*_SPEEDS_M_S)
    if kind.endswith('turn'):
        most_deg = 170 if kind == 'turn' else 60
        change[3] = rng.choice([-1, 1]) * math.radians(rng.uniform(20, most_deg))
        duration_s = max(duration_s, abs(change[3]) / rng.uniform(*_TURN_RATES_RAD_S))
    return change, float(max(duration_s, 0.6))


def _heading(rng: np.random.Generator, kind: str) -> float:
    """Direction of travel relative to where the camera looks [rad]."""
    if kind == 'strafe':
        return float(rng.choice([-1, 1])) * math.pi / 2
    return 0.0 if kind.startswith('forward') else math.pi


def is_before_eyes(state: NDArray[np.float64], point: Vector) -> bool:
    """Tell whether a point is so near to a camera and its axis that it would see a thing there."""
    x, y, z, yaw, pitch = (float(value) for value in state)
    bearing, elevation, distance = ImageTruth(0, (x, y, z), yaw, pitch, 0.0).direction_to(point)
    return max(abs(bearing), abs(elevation)) < _BEFORE_EYES_RAD and distance < _BEFORE_EYES_M


def _sees_things(room: Room, state: NDArray[np.float64]) -> bool:
    return any(is_before_eyes(state, thing.position) for thing in room.things)


def is_free_way(room: Room, state: NDArray[np.float64], change: NDArray[np.float64]) -> bool:
    """Tell whether a change of state leads past everything, to a view."""
    progress = minimum_jerk(np.arange(25) / 24)
    return _is_free(room, state + progress[:, None] * change)


def _is_free(room: Room, states: NDArray[np.float64]) -> bool:
    """Tell whether all states are clear of everything, and the last has a view."""
    points = states[:, :3]
    x, y, z, yaw, _ = states[-1]
    ahead = np.array([[x + _FREE_AHEAD_M * math.cos(yaw), y + _FREE_AHEAD_M * math.sin(yaw), z]])
    return bool(
        room.clearance(points).min() >= _WALL_CLEARANCE_M
        and room.clearance(ahead).min() > 0
        and all(
            thing.distance(points, np.array(thing.position)).min() >= THING_CLEARANCE_M
            for thing in room.things
        )
    )


# Share of the time after which the camera goes back, which takes it no longer than it was away.
_AWAY = (0.3, 0.5)
_TURNS_KEPT = 0.35  # share of the turns that are not undone
_BACK_ATTEMPTS = 20  # then all turns are undone: all of that way has been free before
_AT_THE_START = {'turn': 2.0, 'stop': 1.0, 'tilt': 0.5}


def with_way_back(
    rng: np.random.Generator, room: Room, path: CameraPath, duration_s: float
) -> CameraPath:
    """A path that begins as another one and leads back to its start.

    Args:
        rng: Where chance comes from.
        room: Where to move.
        path: Its first part is the way out.
        duration_s: How long [s]; the last segment is cut off there.

    Raises:
        UnfitError: The camera cannot look round there.
    """
    away_s = rng.uniform(*_AWAY) * duration_s
    out = [s for s in path.segments if s.end_s <= away_s] or [path.segments[0]]
    turn_shares = [_TURNS_KEPT] * _BACK_ATTEMPTS + [0.0]
    ways = (_undone(rng, room, out, share) for share in turn_shares)
    segments = out + next(way for way in ways if way is not None)
    while segments[-1].end_s < duration_s:
        last = segments[-1]
        segments.append(draw_segment(rng, room, last.end, last.end_s, last.kind, _AT_THE_START))
    return CameraPath(tuple(segments))


def _undone(
    rng: np.random.Generator, room: Room, segments: list[Segment], turns_kept: float
) -> list[Segment] | None:
    """What undoes segments, from the last to the first, but for a share of their turns.

    None where the camera, looking where it then looks, has no room before it.
    """
    state, start_s = segments[-1].end, segments[-1].end_s
    undone = []
    for segment in reversed(segments):
        change = -segment.change
        if change[YAW] and rng.random() < turns_kept:
            change[YAW] = 0.0
        if not change.any():
            continue
        if turns_kept and not is_free_way(room, state, change):
            return None
        back = Segment(f'{segment.kind} undone', start_s, segment.duration_s, state, change)
        state, start_s = back.end, back.end_s
        undone.append(back)
    return undone
