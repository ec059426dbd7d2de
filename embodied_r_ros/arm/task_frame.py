# SPDX-License-Identifier: Apache-2.0
"""The task frame of an arm: do words for its axes hold for its camera."""

from __future__ import annotations

from dataclasses import dataclass
import math
from typing import TYPE_CHECKING

from embodied_r_ros.core.types.geometry import (
    Pose,
    quaternion_from_matrix,
    rotation_from_ypr,
    wrap_angle_rad,
)
import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from embodied_r_ros.core.types.geometry import Intrinsics
    from numpy.typing import NDArray

Quaternion = tuple[float, float, float, float]
# Further from the axis that points at the camera, left and right mix with forward and backward.
_MAX_ASIDE_RAD = math.radians(30.0)
# Further from its direction in the image, a word would be wrong to the eye.
_MAX_TILT_RAD = math.radians(30.0)
# With z shorter in the image than this share of y, x goes down in it rather than nearer.
_MIN_SHARE = 0.3
_STEP_M = 0.02  # along each axis, from the reference point


@dataclass(frozen=True)
class AxisView:
    """How a camera sees the axes of a task frame."""

    quarters: int = 0  # turns of the frame about z by 90 degrees after which the words hold
    why_not: str = ''  # why they hold for none; empty: they do


def axis_view(
    camera: Pose, reference: Sequence[float], intrinsics: Intrinsics | None = None
) -> AxisView:
    """How a camera sees the axes of the frame that its pose is given in.

    Args:
        camera: Pose of its optical frame (x right, y down, z forward) in the task frame.
        reference: Point at which it is judged, x, y, z [m].
        intrinsics: With them, the point must be in the image too; distortion is not applied.
    """
    point = _in_camera(camera, reference)
    if point[2] <= 0.0:
        return AxisView(why_not='the reference point is behind the camera')
    if intrinsics and not _is_in_image(point, intrinsics):
        return AxisView(why_not='the reference point is not in the image')
    away = np.subtract(camera.position, reference)
    bearing = math.atan2(away[1], away[0])
    quarters = round(bearing / (math.pi / 2)) % 4
    aside = wrap_angle_rad(bearing - quarters * math.pi / 2)
    if abs(aside) > _MAX_ASIDE_RAD:
        degrees = abs(math.degrees(aside))
        return AxisView(
            why_not=f'the camera stands {degrees:.0f} degrees aside of the nearest axis'
        )
    return AxisView(quarters, _problem(camera, np.asarray(reference), quarters))


def quarters_facing(
    camera: Pose,
    reference: Sequence[float],
    allowed: str,
    intrinsics: Intrinsics | None = None,
) -> int | str:
    """Quarters by which the task frame is turned, so that its words hold for a camera.

    Live prompts and rows of recordings ask this alike.

    Args:
        camera: Pose of its optical frame in the task frame.
        reference: Point at which it is judged, x, y, z [m].
        allowed: `facing`, `any` or `declared`, as `questions.camera` of a robot's file.
        intrinsics: With them, the reference point must be in the image.

    Returns:
        The quarters, or why the words hold for none of those that are allowed.
    """
    if allowed == 'declared':
        return 0
    view = axis_view(camera, reference, intrinsics)
    if view.why_not:
        return f'no words for axes hold for the camera: {view.why_not}'
    if view.quarters and allowed == 'facing':
        return (
            f'the camera does not face the robot, but stands {90 * view.quarters} degrees round '
            'from there: `camera: any` asks in a frame that is turned so far'
        )
    return view.quarters


def rotate_quarters(position: Sequence[float], quarters: int) -> tuple[float, float, float]:
    """A position in the task frame turned by quarters about its z axis [m]."""
    x, y, z = position
    for _ in range(quarters % 4):
        x, y = y, -x
    return x + 0.0, y + 0.0, z  # no minus zeros


def turned_pose(pose: Pose, quarters: int) -> Pose:
    """A pose in the task frame turned by quarters about its z axis."""
    if not quarters % 4:
        return pose
    turn = rotation_from_ypr(-quarters * math.pi / 2, 0.0, 0.0)
    return Pose(
        rotate_quarters(pose.position, quarters),
        quaternion_from_matrix(turn @ pose.rotation()),
        turned_name(pose.frame_id, quarters),
    )


def turned_name(frame_id: str, quarters: int) -> str:
    """Name of the task frame turned by quarters about its z axis."""
    return f'{frame_id}_turned_{90 * (quarters % 4)}' if quarters % 4 else frame_id


def _in_camera(camera: Pose, point: Sequence[float] | NDArray[np.float64]) -> NDArray[np.float64]:
    """A point in the camera's optical axes [m]. Shape (3,)."""
    return np.asarray(camera.rotation().T @ np.subtract(point, camera.position))


def _is_in_image(point: NDArray[np.float64], camera: Intrinsics) -> bool:
    u, v = camera.fx * point[0] / point[2] + camera.cx, camera.fy * point[1] / point[2] + camera.cy
    return bool(0 <= u < camera.width and 0 <= v < camera.height)


def _problem(camera: Pose, reference: NDArray[np.float64], quarters: int) -> str:
    """Which word would be wrong in the turned frame; empty: none."""
    start = _in_camera(camera, reference)
    # The turned frame's y and z, in the task frame; that x comes nearer was seen from the bearing.
    axes = [
        np.array(rotate_quarters(axis, -quarters)) for axis in ((0.0, 1.0, 0.0), (0.0, 0.0, 1.0))
    ]
    ends = [_in_camera(camera, reference + _STEP_M * axis) for axis in axes]
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
