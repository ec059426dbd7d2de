# SPDX-License-Identifier: Apache-2.0
"""The area of a room is told where its walls were seen all around, and not otherwise."""

from __future__ import annotations

import json
import math

from embodied_r_ros.core.scene.camera import CameraView
from embodied_r_ros.core.scene.landmark_map import LandmarkMap
from embodied_r_ros.core.scene.map_part import FloorPlan
from embodied_r_ros.core.types.geometry import Intrinsics
import numpy as np
import pytest

from test.core.scene.places import delta_of
from test.raycast_room import pose_at, Room, Solid

LENS = Intrinsics.from_fov(80, 60, math.radians(90))
TABLE = Solid((1.0, 0.5, 0.4), (1.2, 0.8, 0.8), (80, 80, 80))


def looked_around(yaws_deg: list[float], *solids: Solid) -> FloorPlan:
    plan, room = FloorPlan(), Room(0)
    for x, y in ((-1.5, -1.0), (1.0, -1.2), (-1.0, 1.5)):
        for yaw in yaws_deg:
            pose = pose_at(x, y, 1.4, math.radians(yaw), 0.1)
            plan.look(pose, room.depth(pose, solids, LENS), LENS)
    return plan


def test_a_room_that_was_seen_all_around_has_its_area() -> None:
    around = [0.0, 60.0, 120.0, 180.0, 240.0, 300.0]
    assert looked_around(around).area_m2 == pytest.approx(30.0, rel=0.06)
    # What stands in it belongs to it.
    assert looked_around(around, TABLE).area_m2 == pytest.approx(30.0, rel=0.06)


def test_a_room_of_which_a_part_was_not_seen_has_none() -> None:
    assert looked_around([0.0, 40.0]).area_m2 is None
    assert FloorPlan().area_m2 is None


def test_an_endless_floor_is_no_room() -> None:
    plan = FloorPlan()
    for x in (0.0, 1.0, 2.0):
        for yaw in range(0, 360, 45):
            pose = pose_at(x, 0.0, 0.5, math.radians(yaw), 0.0)
            rows = np.arange(60)[:, None] - 29.5
            ahead = np.where(rows > 0, 0.5 * LENS.fy / np.maximum(rows, 1e-6), 0.0)
            plan.look(pose, np.repeat(ahead, 80, axis=1).astype(np.float32), LENS)
    assert plan.area_m2 is None


def test_depth_without_values_tells_nothing() -> None:
    plan = FloorPlan()
    for value in (0.0, math.nan, math.inf, 1e6):
        plan.look(pose_at(0, 0, 1), np.full((60, 80), value, np.float32), LENS)
    assert plan.area_m2 is None


def test_a_map_with_depth_and_lens_knows_the_area_after_a_reload_too() -> None:
    landmarks, room = LandmarkMap(), Room(0)
    for number in range(8):
        pose = pose_at(0.4 * (number % 3), 0.0, 1.4, math.radians(45.0 * number), 0.1)
        delta, _ = delta_of(number, pose)
        landmarks.add(delta, CameraView(pose, LENS, room.depth(pose, (), LENS)))
    area_m2 = landmarks.scene_map().room_area_m2
    assert area_m2 == pytest.approx(30.0, rel=0.06)
    state = json.loads(json.dumps(landmarks.to_json()))
    assert LandmarkMap.from_json(state).scene_map().room_area_m2 == area_m2
    plan = state['part']['plan']
    plan['closed'] = [[x, y] for x, y, low, high in plan.pop('ends')]  # as without heights
    assert LandmarkMap.from_json(state).scene_map().room_area_m2 == pytest.approx(30.0, rel=0.06)
