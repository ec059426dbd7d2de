# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from dataclasses import replace
import math
from typing import TYPE_CHECKING

from embodied_r_ros.core.perception.coloured_objects import find_objects
from embodied_r_ros.core.perception.items import (
    distance_on_floor,
    floor_below,
    triangulated_distance,
)
import numpy as np
import pytest

from test.raycast_room import CAMERA, pose_at, Room, Solid

if TYPE_CHECKING:
    from embodied_r_ros.core.perception.coloured_objects import ColouredObject
    from embodied_r_ros.core.types.geometry import Pose

BLUE = (210, 60, 20)
EYE = pose_at(-0.5, 0.2, 1.1, 0.1, 0.2)


def only_object(solid: Solid, pose: Pose = EYE) -> ColouredObject:
    [item] = find_objects(Room(0, 0.5).view(pose, (solid,)), CAMERA, pose.orientation)
    return item


@pytest.mark.parametrize(
    'solid',
    [
        Solid((1.5, 0.4, 0.2), (0.4, 0.4, 0.4), BLUE),
        Solid((2.3, -0.8, 0.4), (0.25, 0.25, 0.8), BLUE),
        Solid((1.0, 0.0, 0.04), (0.5, 0.5, 0.08), BLUE),
        Solid((1.2, 0.5, 0.2), (0.4, 0.4, 0.4), BLUE, is_ball=True),
    ],
)
def test_what_stands_on_the_floor_has_a_distance(solid: Solid) -> None:
    floor = floor_below(EYE, 0.0)
    assert floor is not None
    true = math.dist(EYE.position, solid.centre)
    assert distance_on_floor(only_object(solid), floor) == pytest.approx(true, rel=0.08)


def test_the_height_of_the_camera_can_be_stated() -> None:
    level = pose_at(-0.5, 0.2, 1.1)
    item = only_object(Solid((2.0, 0.4, 0.2), (0.4, 0.4, 0.4), BLUE), level)
    floor = floor_below(None, 1.1)
    assert floor is not None
    true = math.dist(level.position, (2.0, 0.4, 0.2))
    assert distance_on_floor(item, floor) == pytest.approx(true, rel=0.08)


def test_without_a_height_there_is_no_floor() -> None:
    assert floor_below(None, 0.0) is None
    assert floor_below(replace(EYE, position=(0.0, 0.0, -0.3)), 0.0) is None


def test_what_is_above_the_horizon_has_no_distance() -> None:
    floor = floor_below(EYE, 0.0)
    assert floor is not None
    high = only_object(Solid((2.0, 0.3, 1.5), (0.4, 0.4, 0.4), BLUE))
    assert math.isnan(distance_on_floor(high, floor))


def test_what_would_be_too_large_does_not_stand_on_the_floor() -> None:
    floor = floor_below(EYE, 0.0)
    assert floor is not None
    on_a_table = only_object(Solid((1.5, 0.3, 0.9), (0.4, 0.4, 0.4), BLUE))
    assert math.isnan(distance_on_floor(on_a_table, floor))


def test_what_the_lower_edge_cuts_off_has_no_distance() -> None:
    floor = floor_below(EYE, 0.0)
    assert floor is not None
    item = only_object(Solid((1.5, 0.4, 0.2), (0.4, 0.4, 0.4), BLUE))
    assert math.isnan(distance_on_floor(replace(item, is_cut_below=True), floor))


def test_two_rays_meet_at_the_object() -> None:
    point, offset = np.array([3.0, 0.5, -0.2]), np.array([0.3, -0.6, 0.1])
    earlier, later = point / np.linalg.norm(point), point - offset
    distance = float(np.linalg.norm(later))
    assert triangulated_distance(earlier, later / distance, offset) == pytest.approx(distance)


def test_nearly_parallel_rays_meet_nowhere() -> None:
    ahead = np.array([1.0, 0.0, 0.0])
    aside = np.array([math.cos(0.02), math.sin(0.02), 0.0])
    assert math.isnan(triangulated_distance(ahead, aside, np.array([0.0, -0.1, 0.0])))
    assert math.isnan(triangulated_distance(ahead, ahead, np.zeros(3)))


def test_rays_that_meet_behind_the_camera_do_not_meet() -> None:
    earlier, later = np.array([1.0, 0.0, 0.0]), np.array([math.cos(0.2), math.sin(0.2), 0.0])
    assert math.isnan(triangulated_distance(earlier, later, np.array([0.0, 0.5, 0.0])))
