# SPDX-License-Identifier: Apache-2.0
"""Poses, rotations and viewing directions, in REP 103 axes; and the unit of stamps.

Body axes (the camera link, the robot): x forward, y left, z up. Optical axes: x right, y down, z
forward. Bearing is positive to the left, elevation positive up.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
import math
from typing import Any, TYPE_CHECKING, TypeVar

import cv2
import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from embodied_r_ros.core.types.arrays import Float64s

Array = TypeVar('Array', bound=np.ndarray[Any, Any])


def read_only(array: Array) -> Array:
    """An array that several share, so that nobody may change it."""
    array.setflags(write=False)
    return array


NS_PER_S = 1_000_000_000  # stamps and durations are integer nanoseconds
Position = tuple[float, float, float]  # [m]
# Columns are the optical axes (x right, y down, z forward) written in body axes: v_body = R v_opt.
BODY_FROM_OPTICAL = read_only(np.array([[0.0, 0.0, 1.0], [-1.0, 0.0, 0.0], [0.0, -1.0, 0.0]]))


@dataclass(frozen=True)
class Pose:
    """Pose of a body in a named fixed frame."""

    position: Position  # [m]
    orientation: tuple[float, float, float, float]  # quaternion x, y, z, w
    frame_id: str  # the fixed frame

    @classmethod
    def of(cls, rotation: Float64s, place: Iterable[Any], frame_id: str) -> Pose:
        """The pose of a rotation matrix (3, 3) and a place (3,) [m]."""
        return cls(as_position(place), quaternion_from_matrix(rotation), frame_id)

    def rotation(self) -> Float64s:
        """Rotation matrix of the body in the fixed frame. Shape (3, 3)."""
        return matrix_from_quaternion(self.orientation)


FISHEYE_COEFFICIENTS = 4


@dataclass(frozen=True)
class Intrinsics:
    """Pinhole or fisheye camera (sensor_msgs/CameraInfo K and D).

    The number of coefficients says which: none is a pinhole, 4 are an equidistant (Kannala-Brandt)
    lens, and 5, 8, 12 or 14 are plumb-bob or rational polynomials, as OpenCV orders them.
    """

    width: int  # [px]
    height: int  # [px]
    fx: float  # [px]
    fy: float  # [px]
    cx: float  # [px]
    cy: float  # [px]
    distortion: tuple[float, ...] = ()

    def matrix(self) -> Float64s:
        """Camera matrix K. Shape (3, 3)."""
        return np.array([[self.fx, 0.0, self.cx], [0.0, self.fy, self.cy], [0.0, 0.0, 1.0]])

    @property
    def is_fisheye(self) -> bool:
        """Whether the lens is equidistant."""
        return len(self.distortion) == FISHEYE_COEFFICIENTS

    def cropped(self, x: int, y: int, width: int, height: int) -> Intrinsics:
        """Give the intrinsics of a part of the view, from its upper left corner [px]."""
        return replace(self, width=width, height=height, cx=self.cx - x, cy=self.cy - y)

    def scaled(self, width: int, height: int) -> Intrinsics:
        """Give the intrinsics of the same view resized to `width` x `height` [px]."""
        sx, sy = width / self.width, height / self.height
        # Pixel centres lie at integers, so the half pixel moves with the scale.
        cx, cy = (self.cx + 0.5) * sx - 0.5, (self.cy + 0.5) * sy - 0.5
        return Intrinsics(width, height, self.fx * sx, self.fy * sy, cx, cy, self.distortion)

    @classmethod
    def from_fov(cls, width: int, height: int, horizontal_fov_rad: float) -> Intrinsics:
        """Assume square pixels, a centred axis and the given horizontal field of view [rad]."""
        f = width / 2 / math.tan(horizontal_fov_rad / 2)
        return cls(width, height, f, f, (width - 1) / 2, (height - 1) / 2)


def as_position(values: Iterable[Any]) -> Position:
    """Three numbers as a position, or another vector.

    Raises:
        TypeError, ValueError: They are none.
    """
    x, y, z = (float(value) for value in values)
    return x, y, z


def matrix_from_quaternion(q: tuple[float, float, float, float]) -> Float64s:
    """Rotation matrix of a quaternion x, y, z, w, which need not be normalised. Shape (3, 3).

    Raises:
        ValueError: The quaternion is zero or not finite.
    """
    norm = math.sqrt(sum(value * value for value in q))
    if not math.isfinite(norm) or norm < 1e-9:
        msg = f'quaternion {q} is not a rotation: expected four finite numbers, not all zero'
        raise ValueError(msg)
    x, y, z, w = (value / norm for value in q)
    return np.array(
        [
            [1 - 2 * (y * y + z * z), 2 * (x * y - z * w), 2 * (x * z + y * w)],
            [2 * (x * y + z * w), 1 - 2 * (x * x + z * z), 2 * (y * z - x * w)],
            [2 * (x * z - y * w), 2 * (y * z + x * w), 1 - 2 * (x * x + y * y)],
        ]
    )


def quaternion_from_matrix(rotation: Float64s) -> tuple[float, float, float, float]:
    """Quaternion x, y, z, w (w not negative) of a rotation matrix. Shape of the matrix (3, 3)."""
    m = rotation
    # Bar-Itzhack's symmetric form: the eigenvector of the largest eigenvalue, stable everywhere.
    k = np.array(
        [
            [m[0, 0] - m[1, 1] - m[2, 2], 0.0, 0.0, 0.0],
            [m[0, 1] + m[1, 0], m[1, 1] - m[0, 0] - m[2, 2], 0.0, 0.0],
            [m[0, 2] + m[2, 0], m[1, 2] + m[2, 1], m[2, 2] - m[0, 0] - m[1, 1], 0.0],
            [m[2, 1] - m[1, 2], m[0, 2] - m[2, 0], m[1, 0] - m[0, 1], m.trace()],
        ]
    )
    x, y, z, w = np.linalg.eigh(k)[1][:, -1]
    sign = -1.0 if w < 0 else 1.0
    return (float(sign * x), float(sign * y), float(sign * z), float(sign * w))


def yaw_pitch_roll(rotation: Float64s) -> tuple[float, float, float]:
    """Fixed-axis roll, pitch, yaw of REP 103, returned as yaw, pitch, roll [rad]."""
    yaw = math.atan2(rotation[1, 0], rotation[0, 0])
    pitch = math.atan2(-rotation[2, 0], math.hypot(rotation[2, 1], rotation[2, 2]))
    roll = math.atan2(rotation[2, 1], rotation[2, 2])
    return yaw, pitch, roll


def rotation_from_ypr(yaw: float, pitch: float, roll: float) -> Float64s:
    """Rotation matrix of yaw, pitch, roll [rad], the inverse of `yaw_pitch_roll`. (3, 3)."""
    cy, sy = math.cos(yaw), math.sin(yaw)
    cp, sp = math.cos(pitch), math.sin(pitch)
    cr, sr = math.cos(roll), math.sin(roll)
    return np.array(
        [
            [cy * cp, cy * sp * sr - sy * cr, cy * sp * cr + sy * sr],
            [sy * cp, sy * sp * sr + cy * cr, sy * sp * cr - cy * sr],
            [-sp, cp * sr, cp * cr],
        ]
    )


def wrap_angle_rad(angle_rad: float) -> float:
    """The same angle in (-pi, pi] [rad]."""
    return math.pi - (math.pi - angle_rad) % (2 * math.pi)


def see_one_frame(one: Pose, other: Pose) -> None:
    """Refuse two poses that cannot be compared.

    Raises:
        ValueError: They are in different fixed frames.
    """
    if one.frame_id != other.frame_id:
        msg = f'poses are in two frames, {one.frame_id!r} and {other.frame_id!r}'
        raise ValueError(msg)


def relative_motion(earlier: Pose, later: Pose) -> tuple[Float64s, Float64s]:
    """Rotation (3, 3) and translation (3,) [m] of the later body in the earlier body's axes.

    Raises:
        ValueError: The poses are in different fixed frames.
    """
    see_one_frame(earlier, later)
    r0 = earlier.rotation()
    offset = np.subtract(later.position, earlier.position)
    return r0.T @ later.rotation(), r0.T @ offset


def places_of_pixels(intrinsics: Intrinsics, pixels: Float64s) -> Float64s:
    """Pixels without distortion, from the middle and in units of the focal length. Shape (N, 2).

    Args:
        intrinsics: Of the camera, with its distortion.
        pixels: Columns and rows [px]. Shape (N, 2).
    """
    if not len(pixels):
        return np.zeros((0, 2))
    k, points = intrinsics.matrix(), np.reshape(pixels, (-1, 1, 2))
    d = np.array(intrinsics.distortion or (0.0,) * 5)
    if intrinsics.is_fisheye:
        straight = cv2.fisheye.undistortPoints(np.asarray(points, np.float64), k, d)
    else:
        straight = cv2.undistortPoints(points, k, d)
    return np.asarray(straight, np.float64).reshape(-1, 2)


def rays_of_pixels(intrinsics: Intrinsics, pixels: Float64s) -> Float64s:
    """Viewing rays of pixels in body axes, straightened and with a depth of 1. Shape (N, 3).

    Args:
        intrinsics: Of the camera, with its distortion.
        pixels: Columns and rows [px]. Shape (N, 2).
    """
    xy = places_of_pixels(intrinsics, pixels)
    return np.column_stack([np.ones(len(xy)), -xy])


def pixels_of_points(intrinsics: Intrinsics, points: Float64s) -> Float64s:
    """Pixels that show points in optical axes, distorted as the lens does. Shape (N, 2).

    What lies behind the camera has no pixel: its row means nothing.

    Args:
        intrinsics: Of the camera, with its distortion.
        points: In optical axes: x right, y down, z forward. Shape (N, 3).
    """
    if not len(points):
        return np.zeros((0, 2))
    d = np.array(intrinsics.distortion or (0.0,) * 5)
    project = cv2.fisheye.projectPoints if intrinsics.is_fisheye else cv2.projectPoints
    pixels, _ = project(points.reshape(-1, 1, 3), np.zeros(3), np.zeros(3), intrinsics.matrix(), d)
    return np.asarray(pixels, np.float64).reshape(-1, 2)


def direction_of_vector(vector: Float64s) -> tuple[float, float]:
    """Bearing and elevation [rad] of a vector in body axes. Shape (3,)."""
    x, y, z = as_position(vector)
    return math.atan2(y, x), math.atan2(z, math.hypot(x, y))


def vector_of_direction(bearing_rad: float, elevation_rad: float) -> Float64s:
    """Unit vector in body axes, the inverse of `direction_of_vector`. Shape (3,)."""
    across = math.cos(elevation_rad)
    return np.array(
        [
            across * math.cos(bearing_rad),
            across * math.sin(bearing_rad),
            math.sin(elevation_rad),
        ]
    )


def position_text(position: Sequence[float]) -> str:
    """A position as prompts have it, to the millimetre; also what makes two of them one.

    >>> position_text((0.1, -0.0001, 1.23456))
    '(0.100, 0.000, 1.235)'
    """
    return f'({", ".join(f"{round(value, 3) + 0.0:.3f}" for value in position)})'
