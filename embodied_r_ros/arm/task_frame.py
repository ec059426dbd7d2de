# SPDX-License-Identifier: Apache-2.0
"""The task frame of an arm: do words for its axes hold for its camera."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from embodied_r_ros.core.types.geometry import Intrinsics, Pose
    from numpy.typing import NDArray

# Further from x, which points at the camera, left and right mix with forward and backward.
_MAX_ASIDE_RAD = math.radians(30.0)
# Further from its direction in the image, a word would be wrong to the eye.
_MAX_TILT_RAD = math.radians(30.0)
# With z shorter in the image than this share of y, x goes down in it rather than nearer.
_MIN_SHARE = 0.3
_STEP_M = 0.02  # along each axis, from the reference point


def facing_problem(
    camera: Pose, reference: Sequence[float], intrinsics: Intrinsics | None = None
) -> str:
    """Why words for the axes of a task frame do not hold for a camera; empty: they do.

    Live prompts and rows of recordings ask this alike.

    Args:
        camera: Pose of its optical frame (x right, y down, z forward) in the task frame.
        reference: Point at which it is judged, x, y, z [m].
        intrinsics: With them, the point must be in the image too; distortion is not applied.
    """
    problem = _problem(camera, reference, intrinsics)
    return problem and f'no words for axes hold for the camera: {problem}'


def _problem(camera: Pose, reference: Sequence[float], intrinsics: Intrinsics | None) -> str:
    point = _in_camera(camera, reference)
    if point[2] <= 0.0:
        return 'the reference point is behind the camera'
    if intrinsics and not _is_in_image(point, intrinsics):
        return 'the reference point is not in the image'
    away = np.subtract(camera.position, reference)
    aside = abs(math.atan2(away[1], away[0]))
    if aside > _MAX_ASIDE_RAD:
        degrees = math.degrees(aside)
        return f'it does not face the robot, but stands {degrees:.0f} degrees round from there'
    return _wrong_word(camera, np.asarray(reference))


def _in_camera(camera: Pose, point: Sequence[float] | NDArray[np.float64]) -> NDArray[np.float64]:
    """A point in the camera's optical axes [m]. Shape (3,)."""
    return np.asarray(camera.rotation().T @ np.subtract(point, camera.position))


def _is_in_image(point: NDArray[np.float64], camera: Intrinsics) -> bool:
    u, v = camera.fx * point[0] / point[2] + camera.cx, camera.fy * point[1] / point[2] + camera.cy
    return bool(0 <= u < camera.width and 0 <= v < camera.height)


def _wrong_word(camera: Pose, reference: NDArray[np.float64]) -> str:
    """Which word would be wrong; empty: none."""
    start = _in_camera(camera, reference)
    # Of y and z; that x comes nearer was seen from the bearing.
    ends = [_in_camera(camera, reference + _STEP_M * axis) for axis in np.eye(3)[1:]]
    y_way, z_way = ((end / end[2] - start / start[2])[:2] for end in ends)
    if _tilt(y_way, (1.0, 0.0)) > _MAX_TILT_RAD:
        return 'y does not go right in the image'
    if _tilt(z_way, (0.0, -1.0)) > _MAX_TILT_RAD:
        return 'z does not go up in the image'
    if np.linalg.norm(z_way) < _MIN_SHARE * np.linalg.norm(y_way):
        return 'z hardly goes up in the image: the camera looks from above'
    return ''


def _tilt(way: NDArray[np.float64], direction: tuple[float, float]) -> float:
    """Angle between a way in the image and where it should go [rad]."""
    cross = direction[0] * way[1] - direction[1] * way[0]
    return abs(math.atan2(cross, float(np.dot(direction, way))))
