# SPDX-License-Identifier: Apache-2.0
"""Words for axes hold for what a camera shows, or are refused."""

from __future__ import annotations

import math

from embodied_r_ros.arm.task_frame import facing_problem
from embodied_r_ros.core.types.geometry import (
    BODY_FROM_OPTICAL,
    Intrinsics,
    Pose,
    quaternion_from_matrix,
)
from embodied_r_ros.core.types.movement import Movement
from hypothesis import given
from hypothesis import strategies as st
import numpy as np
import pytest

REFERENCE = (0.1, 0.0, 0.05)
CAMERA = Intrinsics.from_fov(320, 240, math.radians(60))


def looking(
    bearing_deg: float, elevation_deg: float = 30.0, roll_deg: float = 0.0, aim: float = 0.0
) -> Pose:
    """A camera 1 m from the reference, at a bearing from +x and an elevation, that looks at it.

    `aim` turns it away from there [rad].
    """
    bearing, elevation = math.radians(bearing_deg), math.radians(elevation_deg)
    to_camera = np.array(
        [
            math.cos(elevation) * math.cos(bearing),
            math.cos(elevation) * math.sin(bearing),
            math.sin(elevation),
        ]
    )
    forward = -to_camera
    left = np.array([math.sin(bearing), -math.cos(bearing), 0.0])
    body = np.column_stack([forward, left, np.cross(forward, left)])
    cos, sin = math.cos(math.radians(roll_deg)), math.sin(math.radians(roll_deg))
    roll = np.array([[cos, -sin, 0.0], [sin, cos, 0.0], [0.0, 0.0, 1.0]])
    aside = np.array(
        [
            [math.cos(aim), 0.0, math.sin(aim)],
            [0.0, 1.0, 0.0],
            [-math.sin(aim), 0.0, math.cos(aim)],
        ]
    )
    x, y, z = (float(v) for v in np.add(REFERENCE, to_camera))
    turn = body @ BODY_FROM_OPTICAL @ roll @ aside
    return Pose((x, y, z), quaternion_from_matrix(turn), 'table_center')


def pixel(camera: Pose, point: tuple[float, ...]) -> tuple[float, float, float]:
    """Column, row and distance at which the camera sees a point."""
    x, y, z = camera.rotation().T @ np.subtract(point, camera.position)
    return x / z, y / z, math.dist(point, camera.position)


def test_a_camera_that_faces_the_robot_is_taken() -> None:
    assert facing_problem(looking(0), REFERENCE, CAMERA) == ''


@pytest.mark.parametrize(
    ('camera', 'why'),
    [
        (looking(45), '45 degrees round'),
        (looking(-135), '135 degrees round'),
        (looking(0, elevation_deg=80), 'from above'),
        (looking(0, roll_deg=90), 'y does not go right'),
        (looking(0, roll_deg=180), 'y does not go right'),
        (looking(0, aim=math.pi), 'behind the camera'),
        (looking(0, aim=1.0), 'not in the image'),
    ],
)
def test_a_camera_for_which_no_word_holds_is_refused(camera: Pose, why: str) -> None:
    assert why in facing_problem(camera, REFERENCE, CAMERA)


@given(
    st.floats(-40, 40),
    st.floats(5, 60),
    st.floats(-10, 10),
    st.tuples(*[st.sampled_from([-0.1, 0.0, 0.1])] * 3),
)
def test_words_are_what_the_image_shows(
    bearing_deg: float, elevation_deg: float, roll_deg: float, way: tuple[float, float, float]
) -> None:
    """Wherever the camera stands: right goes right, up goes up, forward comes nearer."""
    camera = looking(bearing_deg, elevation_deg, roll_deg)
    if facing_problem(camera, REFERENCE):
        return
    end = tuple(np.add(REFERENCE, way).tolist())
    movement = Movement.between(REFERENCE, end, 0.001)
    words = movement.words().split(', ') if movement else []
    if len(words) != 1:  # of ways along several axes, perspective mixes what is seen
        return
    (u0, v0, d0), (u1, v1, d1) = pixel(camera, REFERENCE), pixel(camera, end)
    shown = {
        'right': u1 - u0, 'left': u0 - u1, 'up': v0 - v1, 'down': v1 - v0,
        'forward': d0 - d1, 'backward': d1 - d0,
    }  # fmt: skip
    assert shown[words[0]] > 0.01
