# SPDX-License-Identifier: Apache-2.0
"""Camera paths are smooth, keep clear of everything and are varied; events keep clear as well."""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
import math
from typing import TYPE_CHECKING

from embodied_r_ros.core.types.geometry import wrap_angle_rad
from embodied_r_ros.sim.indoor.path import (
    CameraPath,
    draw_path,
    HEIGHTS_M,
    minimum_jerk,
    THING_CLEARANCE_M,
    with_way_back,
    YAW,
)
from embodied_r_ros.sim.indoor.room import furnished_room, near, Room, UnfitError
from embodied_r_ros.sim.indoor.scenario import draw_tracks
import numpy as np
import pytest

if TYPE_CHECKING:
    from embodied_r_ros.core.types.layout import Vector
    from embodied_r_ros.sim.indoor.scenario import Track

DURATION_S = 20.0
NS = 1_000_000_000
START_NS = 1_700_000_000 * NS
TIMES_S = np.arange(200) / 10


Walks = list[tuple[Room, CameraPath]]


def draw_paths(count: int, *, back: bool) -> Walks:
    """Paths of the first seeds, each in a room of its own; a few may find no way on."""
    found = []
    for seed in range(count):
        rng = np.random.default_rng(seed)
        room = furnished_room(rng)
        path = draw_path(rng, room, DURATION_S)
        with suppress(UnfitError):
            found.append((room, with_way_back(rng, room, path, DURATION_S) if back else path))
    return found


@pytest.fixture(scope='module')
def walks() -> Walks:
    return draw_paths(25, back=False)


@pytest.fixture(scope='module')
def walks_back() -> Walks:
    return draw_paths(40, back=True)


@pytest.mark.parametrize('kind', ['walks', 'walks_back'])
def test_paths_keep_clear_of_walls_furniture_and_things(
    kind: str, request: pytest.FixtureRequest
) -> None:
    for room, path in request.getfixturevalue(kind):
        points = path.states(TIMES_S)[:, :3]
        assert room.clearance(points).min() > 0.3
        for thing in room.things:
            assert thing.distance(points, np.array(thing.position)).min() > 0.25


def test_paths_have_the_pace_of_a_robot(walks: Walks) -> None:
    for _, path in walks:
        states = path.states(TIMES_S)
        speed = np.linalg.norm(np.diff(states[:, :3], axis=0), axis=1) * 10
        turn = np.abs(np.diff(states[:, 3])) * 10
        assert 0.3 < speed.max() < 1.2
        assert turn.max() < math.radians(115)
        assert HEIGHTS_M[0] <= states[:, 2].min() <= states[:, 2].max() <= HEIGHTS_M[1]


def test_paths_have_no_jerks(walks: Walks) -> None:
    times = np.arange(2000) / 100
    for _, path in walks:
        velocity = np.diff(path.states(times), axis=0) * 100
        assert np.abs(np.diff(velocity, axis=0)).max() < 0.1  # per 10 ms


def test_every_kind_of_movement_occurs(walks: Walks) -> None:
    changes = np.array([s.change for _, path in walks for s in path.segments])
    kinds = Counter(s.kind for _, path in walks for s in path.segments)
    assert min(kinds[kind] for kind in ('forward', 'backward', 'strafe', 'turn', 'stop')) > 5
    for axis in (2, 3, 4):  # up and down, left and right, tilting down and up
        assert changes[:, axis].max() > 0.1
        assert changes[:, axis].min() < -0.1
    turned = [np.abs(np.diff(path.states(TIMES_S)[:, 3])).sum() for _, path in walks]
    assert np.mean(np.array(turned) > math.pi) > 0.3


def test_minimum_jerk_starts_and_ends_at_rest() -> None:
    share = minimum_jerk(np.array([-1.0, 0.0, 0.001, 0.5, 0.999, 1.0, 2.0]))
    assert share == pytest.approx([0, 0, 0, 0.5, 1, 1, 1], abs=1e-6)


def position_at(track: Track, stamp_ns: int) -> Vector | None:
    spans = (span for span in track if span.from_ns <= stamp_ns < span.to_ns)
    return next((span.position_at(stamp_ns) for span in spans), None)


def test_things_move_come_and_go_without_touching_anything(walks: Walks) -> None:
    happened: Counter[str] = Counter()
    stamps = [START_NS + round(float(second) * NS) for second in TIMES_S]
    for seed, (room, path) in enumerate(walks):
        rng = np.random.default_rng(1000 + seed)
        tracks = draw_tracks(rng, room, path, START_NS, DURATION_S)
        eyes = path.states(TIMES_S)[:, :3]
        places = [[position_at(track, stamp) for stamp in stamps] for track in tracks]
        for index, (thing, track) in enumerate(zip(room.things, tracks, strict=True)):
            happened['move'] += len(track) == 3
            happened['appear'] += track[0].from_ns > START_NS
            happened['go'] += track[-1].to_ns <= stamps[-1]
            for time, at in enumerate(places[index]):
                if at is None:
                    continue
                assert thing.distance(eyes[time], np.array(at)) > THING_CLEARANCE_M - 0.05
                for other_index in range(index):
                    other_at = places[other_index][time]
                    assert not other_at or not near(thing, room.things[other_index], at, other_at)
    assert min(happened[kind] for kind in ('move', 'appear', 'go')) > 3


def test_ways_back_end_at_the_start_with_its_view_or_another(walks_back: Walks) -> None:
    assert len(walks_back) > 37
    apart, turned = [], []
    for _, path in walks_back:
        states = path.states(TIMES_S)
        points = states[:, :3]
        away = np.linalg.norm(points - points[0], axis=1)
        assert away[-1] < 1e-6
        apart.append(away.max())
        arrived = next(s for s in reversed(path.segments) if s.kind.endswith('undone'))
        turned.append(abs(wrap_angle_rad(arrived.end[YAW] - states[0][YAW])))
    assert np.median(apart) > 1.0
    assert min(turned) < math.radians(1)
    assert max(turned) > math.radians(60)
