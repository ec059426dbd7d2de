# SPDX-License-Identifier: Apache-2.0
"""Paths that lead back: the first part of a path, the same way back, then a look round.

On its way back the camera does not undo every turn, so that it may come back with another view.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from embodied_r_ros.sim.path import CameraPath, draw_segment, is_free_way, Segment, YAW

if TYPE_CHECKING:
    from embodied_r_ros.sim.room import Room
    import numpy as np

# Share of the time after which the camera goes back, which takes it no longer than it was away.
_AWAY = (0.3, 0.5)
_TURNS_KEPT = 0.35  # share of the turns that are not undone
_ATTEMPTS = 20  # then all turns are undone: all of that way has been free before
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
    kept = [_TURNS_KEPT] * _ATTEMPTS + [0.0]
    ways = (_undone(rng, room, out, share) for share in kept)
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
