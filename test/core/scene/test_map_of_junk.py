# SPDX-License-Identifier: Apache-2.0
"""Maps take what perceivers, odometry and files may hold at their worst."""

from __future__ import annotations

import json
import math
from typing import Any

from embodied_r_ros.common.errors import InputError
from embodied_r_ros.core.scene.camera import CameraView
from embodied_r_ros.core.scene.landmark_map import LandmarkMap, MapConfig
from embodied_r_ros.core.types.deltas import (
    DeltaKind,
    Item,
    ItemStatus,
    Motion,
    MotionSource,
    ScaleSource,
    SemanticDelta,
)
from embodied_r_ros.core.types.geometry import Pose
import numpy as np
import pytest

from test.core.scene.places import CAMERA, camera_at, delta_of, Thing

_ODD = (math.nan, math.inf, -math.inf, 0.0, 1e9, -3.0)
_LABELS = ('', 'object', 'red', 'red object', 'cup', 'chair', 'a b c', '?')


class Junk:
    """Deltas and views from a seed, most numbers sensible and some not."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)

    def number(self, scale: float = 1.0) -> float:
        if self.rng.random() < 0.2:
            return _ODD[self.rng.integers(len(_ODD))]
        return float(self.rng.normal(0, scale))

    def member(self, kind: Any) -> Any:
        members = list(kind)
        return members[self.rng.integers(len(members))]

    def item(self) -> Item:
        box = (self.number(), self.number(), self.number(), self.number())
        return Item(
            self.member(_LABELS),
            self.member(ItemStatus),
            self.number(),
            self.number(),
            self.number(),
            abs(self.number(3)),
            self.number(),
            box if self.rng.random() < 0.3 else (0.3, 0.4, 0.5, 0.7),
            self.member(ScaleSource),
        )

    def delta(self, number: int) -> SemanticDelta:
        step = (self.number(), self.number(), self.number())
        turns = (self.number(), self.number(), self.number())
        metric = bool(self.rng.random() < 0.5)
        motion = Motion(self.member(MotionSource), *turns, step, metric)
        stamp_ns = int(self.rng.integers(-(10**9), 10**12))
        items = tuple(self.item() for _ in range(self.rng.integers(6)))
        kind = self.member(DeltaKind)
        return SemanticDelta(stamp_ns, kind, number, number - 1, items=items, motion=motion)

    def view(self) -> CameraView:
        turn = (self.number(), self.number(), self.number(), self.number())
        pose = Pose((self.number(), self.number(), 1.0), turn, self.member(('map', 'map', 'odom')))
        depth = self.rng.uniform(0, 5, (12, 16)).astype(np.float32)
        depth[0, 0] = np.nan
        return CameraView(
            pose if self.rng.random() < 0.8 else None,
            CAMERA if self.rng.random() < 0.5 else None,
            depth if self.rng.random() < 0.5 else None,
        )


@pytest.mark.parametrize('seed', range(3))
def test_junk_neither_stops_a_map_nor_spoils_what_it_says(seed: int) -> None:
    junk, landmarks = Junk(seed), LandmarkMap(MapConfig(max_landmarks=20, max_path_points=16))
    with np.errstate(all='raise'):
        for number in range(250):
            landmarks.add(junk.delta(number), junk.view())
            if number % 50 == 49:
                state = json.dumps(landmarks.to_json(), allow_nan=False)
                landmarks = LandmarkMap.from_json(json.loads(state), landmarks.config)
    scene_map = landmarks.scene_map()
    json.dumps(scene_map.to_json(), allow_nan=False)
    assert len(scene_map.landmarks) <= 20
    assert len(scene_map.path) <= 16
    for landmark in scene_map.landmarks:
        assert all(map(math.isfinite, landmark.position))
        assert 0 <= landmark.confidence <= 1


def test_a_damaged_state_is_refused_whatever_is_wrong_with_it() -> None:
    landmarks = LandmarkMap()
    for number in range(3):
        landmarks.add(*delta_of(number, camera_at(0, 0), Thing('chair', (3.0, 0.5, 0.5))))
    state = landmarks.to_json()
    refused = 0
    for path in _paths(state):
        junk: Any
        for junk in (None, 'x', math.inf, []):
            damaged = json.loads(json.dumps(state))
            parent = damaged
            for key in path[:-1]:
                parent = parent[key]
            parent[path[-1]] = junk
            try:
                LandmarkMap.from_json(damaged)
            except InputError:
                refused += 1
    assert refused > 50


def _paths(value: Any, depth: int = 4) -> list[tuple[Any, ...]]:
    """Ways to all fields of a state, down to those of a record."""
    keys = value.keys() if isinstance(value, dict) else range(len(value))
    found: list[tuple[Any, ...]] = []
    for key in keys:
        found.append((key,))
        if depth > 1 and isinstance(value[key], (dict, list)):
            found += [(key, *rest) for rest in _paths(value[key], depth - 1)]
    return found
