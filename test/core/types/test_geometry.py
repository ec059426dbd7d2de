# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import math

from embodied_r_ros.core.types.geometry import (
    BODY_FROM_OPTICAL,
    direction_of_vector,
    Intrinsics,
    matrix_from_quaternion,
    Pose,
    quaternion_from_matrix,
    rays_of_pixels,
    relative_motion,
    rotation_from_ypr,
    wrap_angle_rad,
    yaw_pitch_roll,
)
from hypothesis import given
from hypothesis import strategies as st
import numpy as np
import pytest

ANGLE = st.floats(-math.pi, math.pi)
PITCH = st.floats(-1.5, 1.5)
IDENTITY = (0.0, 0.0, 0.0, 1.0)


def direction_of_pixel(camera: Intrinsics, u: float, v: float) -> tuple[float, float]:
    """Bearing and elevation [rad] of a pixel."""
    return direction_of_vector(rays_of_pixels(camera, np.array([[u, v]], np.float64))[0])


@given(ANGLE, PITCH, ANGLE)
def test_angles_survive_the_matrix(yaw: float, pitch: float, roll: float) -> None:
    matrix = rotation_from_ypr(yaw, pitch, roll)
    assert matrix @ matrix.T == pytest.approx(np.eye(3), abs=1e-12)
    again = rotation_from_ypr(*yaw_pitch_roll(matrix))
    assert again == pytest.approx(matrix, abs=1e-9)


@given(ANGLE, PITCH, ANGLE)
def test_rotations_survive_the_quaternion(yaw: float, pitch: float, roll: float) -> None:
    matrix = rotation_from_ypr(yaw, pitch, roll)
    quaternion = quaternion_from_matrix(matrix)
    assert quaternion[3] >= 0
    assert matrix_from_quaternion(quaternion) == pytest.approx(matrix, abs=1e-9)


def test_a_quaternion_need_not_be_normalised() -> None:
    assert matrix_from_quaternion((0, 0, 2, 2)) == pytest.approx(
        rotation_from_ypr(math.pi / 2, 0, 0)
    )


@pytest.mark.parametrize('bad', [(0.0, 0.0, 0.0, 0.0), (math.nan, 0.0, 0.0, 1.0)])
def test_a_quaternion_that_is_no_rotation_is_refused(
    bad: tuple[float, float, float, float],
) -> None:
    with pytest.raises(ValueError, match='not a rotation: expected four finite numbers'):
        matrix_from_quaternion(bad)


def test_positive_angles_turn_as_rep_103_says() -> None:
    ahead, left, up = np.eye(3)
    assert rotation_from_ypr(0.1, 0, 0) @ ahead @ left > 0  # yaw: to the left
    assert rotation_from_ypr(0, 0.1, 0) @ ahead @ up < 0  # pitch: down
    assert rotation_from_ypr(0, 0, 0.1) @ left @ up > 0  # roll: left side up, clockwise


def test_optical_axes_lie_in_body_axes() -> None:
    right, down, forward = BODY_FROM_OPTICAL.T
    assert (tuple(right), tuple(down), tuple(forward)) == ((0, -1, 0), (0, 0, -1), (1, 0, 0))
    assert np.linalg.det(BODY_FROM_OPTICAL) == pytest.approx(1)


@pytest.mark.parametrize(
    ('u', 'v', 'bearing', 'elevation'),
    [
        (159.5, 119.5, 0, 0),
        (-0.5, 119.5, 45, 0),
        (319.5, 119.5, -45, 0),
        (159.5, -0.5, 0, math.degrees(math.atan(0.75))),
        (159.5, 239.5, 0, -math.degrees(math.atan(0.75))),
    ],
)
def test_pixels_left_and_up_are_positive(
    u: float, v: float, bearing: float, elevation: float
) -> None:
    camera = Intrinsics.from_fov(320, 240, math.pi / 2)
    seen = direction_of_pixel(camera, u, v)
    assert seen == pytest.approx((math.radians(bearing), math.radians(elevation)), abs=1e-9)


def test_a_resized_image_keeps_its_directions() -> None:
    camera = Intrinsics(640, 480, 500, 510, 300, 250)
    half = camera.scaled(320, 240)
    # The centre of the first pixel of the half lies between the first two pixels of the whole.
    assert direction_of_pixel(half, 0, 0) == pytest.approx(direction_of_pixel(camera, 0.5, 0.5))


@given(st.floats(-1e3, 1e3))
def test_wrapped_angles_are_the_same_direction(angle: float) -> None:
    assert -math.pi < wrap_angle_rad(angle) <= math.pi
    assert math.cos(wrap_angle_rad(angle)) == pytest.approx(math.cos(angle), abs=1e-9)
    assert math.sin(wrap_angle_rad(angle)) == pytest.approx(math.sin(angle), abs=1e-9)


def test_direction_of_a_vector() -> None:
    assert direction_of_vector(np.array([1.0, 1.0, math.sqrt(2)])) == pytest.approx(
        (math.pi / 4, math.pi / 4)
    )


@given(ANGLE, PITCH, ANGLE)
def test_relative_motion_leads_from_the_earlier_to_the_later_pose(
    yaw: float, pitch: float, roll: float
) -> None:
    earlier = Pose((1, -2, 0.5), quaternion_from_matrix(rotation_from_ypr(yaw, pitch, roll)), 'o')
    later = Pose((0, 3, 1), quaternion_from_matrix(rotation_from_ypr(roll, pitch / 2, yaw)), 'o')
    rotation, translation = relative_motion(earlier, later)
    assert earlier.rotation() @ rotation == pytest.approx(later.rotation(), abs=1e-9)
    arrived = np.array(earlier.position) + earlier.rotation() @ translation
    assert arrived == pytest.approx(np.array(later.position))


def test_relative_motion_needs_one_frame() -> None:
    with pytest.raises(ValueError, match="two frames, 'odom' and 'map'"):
        relative_motion(Pose((0, 0, 0), IDENTITY, 'odom'), Pose((0, 0, 0), IDENTITY, 'map'))
