# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from itertools import pairwise
import math
from typing import TYPE_CHECKING

import cv2
from embodied_r_ros.core.perception.egomotion import Features, FieldOfView, find_features
from embodied_r_ros.core.types.geometry import Intrinsics, Pose
import numpy as np
import pytest

from test.raycast_room import pose_at, Room

if TYPE_CHECKING:
    from pathlib import Path

TURNING = [pose_at(-0.4, 0.3, 1.2, yaw, 0.05) for yaw in (0.0, 0.35, 0.7)]
STRAIGHT = [pose_at(x, 0.3, 1.2) for x in (-0.8, -0.4, 0.0)]


def features(poses: list[Pose], fov_rad: float) -> list[Features]:
    camera, room = Intrinsics.from_fov(320, 240, fov_rad), Room(0)
    return [find_features(room.view(pose, (), camera)) for pose in poses]


def learn_field(poses: list[Pose], fov_rad: float) -> FieldOfView:
    field = FieldOfView()
    for earlier, later in pairwise(features(poses, fov_rad)):
        field.learn(earlier, later, 320, 240)
    return field


@pytest.mark.parametrize('degrees', [68, 93])
def test_a_turning_camera_shows_its_field_of_view(degrees: float) -> None:
    found = learn_field(TURNING, math.radians(degrees)).radians
    assert found == pytest.approx(math.radians(degrees), abs=math.radians(2))


def test_a_camera_that_goes_straight_does_not() -> None:
    field = learn_field(STRAIGHT, math.radians(90))
    assert field.radians is None
    assert not field.is_settled


def test_what_was_found_stays() -> None:
    field = learn_field(TURNING, math.radians(90))
    found = field.radians
    assert field.is_settled
    first, second, _ = features(TURNING, math.radians(60))
    field.learn(first, second, 320, 240)
    assert field.radians == found


@pytest.mark.slow
def test_real_footage_shows_its_field_of_view(footage: Path) -> None:
    """The simulator that made the clip has 90 degrees where nobody sets another."""
    capture, field = cv2.VideoCapture(str(footage / 'embodiedcity_clip_b.mp4')), FieldOfView()
    images = []
    while (grabbed := capture.read())[0]:
        images.append(find_features(np.asarray(grabbed[1], np.uint8)))
    capture.release()
    for earlier, later in pairwise(images[::2]):
        field.learn(earlier, later, 512, 512)
    assert field.radians == pytest.approx(math.pi / 2, abs=math.radians(3))
