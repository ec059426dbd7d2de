# SPDX-License-Identifier: Apache-2.0
"""Words for axes hold for what a camera shows, or are refused."""

from __future__ import annotations

import math

from embodied_r_ros.arm.task_frame import axis_view, rotate_quarters, turned_name
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
    view = axis_view(looking(0), REFERENCE, CAMERA)
    assert (view.quarters, view.why_not) == (0, '')
    assert not view.why_not


@pytest.mark.parametrize(('bearing_deg', 'quarters'), [(180, 2), (90, 1), (-90, 3), (-170, 2)])
def test_a_camera_behind_or_beside_the_robot_needs_a_turned_frame(
    bearing_deg: float, quarters: int
) -> None:
    view = axis_view(looking(bearing_deg), REFERENCE, CAMERA)
    assert (view.quarters, view.why_not) == (quarters, '')


@pytest.mark.parametrize(
    ('camera', 'why'),
    [
        (looking(45), '45 degrees aside'),
        (looking(-135), '45 degrees aside'),
        (looking(0, elevation_deg=80), 'from above'),
        (looking(0, roll_deg=90), 'y does not go right'),
        (looking(0, roll_deg=180), 'y does not go right'),
        (looking(0, aim=math.pi), 'behind the camera'),
        (looking(0, aim=1.0), 'not in the image'),
    ],
)
def test_a_camera_for_which_no_word_holds_is_refused(camera: Pose, why: str) -> None:
    view = axis_view(camera, REFERENCE, CAMERA)
    assert why in view.why_not


@given(
    st.floats(-180, 180),
    st.floats(5, 60),
    st.floats(-10, 10),
    st.tuples(*[st.sampled_from([-0.1, 0.0, 0.1])] * 3),
)
def test_words_in_the_frame_that_is_taken_are_what_the_image_shows(
    bearing_deg: float, elevation_deg: float, roll_deg: float, way: tuple[float, float, float]
) -> None:
    """Wherever the camera stands: right goes right, up goes up, forward comes nearer."""
    camera = looking(bearing_deg, elevation_deg, roll_deg)
    view = axis_view(camera, REFERENCE)
    if view.why_not:
        return
    end = tuple(np.add(REFERENCE, way).tolist())
    movement = Movement.between(
        rotate_quarters(REFERENCE, view.quarters), rotate_quarters(end, view.quarters), 0.001
    )
    words = movement.words().split(', ') if movement else []
    if len(words) != 1:  # of ways along several axes, perspective mixes what is seen
        return
    (u0, v0, d0), (u1, v1, d1) = pixel(camera, REFERENCE), pixel(camera, end)
    shown = {
        'right': u1 - u0, 'left': u0 - u1, 'up': v0 - v1, 'down': v1 - v0,
        'forward': d0 - d1, 'backward': d1 - d0,
    }  # fmt: skip
    assert shown[words[0]] > 0.01


@given(st.tuples(*[st.floats(-1, 1)] * 3), st.integers(0, 7))
def test_turning_keeps_lengths_and_comes_round(way: tuple[float, ...], quarters: int) -> None:
    assert math.isclose(math.hypot(*rotate_quarters(way, quarters)), math.hypot(*way))
    assert rotate_quarters(rotate_quarters(way, quarters), -quarters) == tuple(
        part + 0.0 for part in way
    )


def test_turned_frames_have_names_of_their_own() -> None:
    names = [turned_name('table', quarters) for quarters in range(5)]
    assert names == [
        'table', 'table_turned_90', 'table_turned_180', 'table_turned_270', 'table'
    ]  # fmt: skip
