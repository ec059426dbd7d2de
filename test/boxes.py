# SPDX-License-Identifier: Apache-2.0
"""Boxes on a floor seen from anywhere, with depth: things with edges and little texture."""

from __future__ import annotations

from dataclasses import dataclass
import math
from typing import TYPE_CHECKING

import cv2
from embodied_r_ros.core.types.geometry import (
    BODY_FROM_OPTICAL,
    Intrinsics,
    Pose,
    quaternion_from_matrix,
    rotation_from_ypr,
)
import numpy as np

from test.pictures import plane

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

CAMERA = Intrinsics(320, 240, 268.0, 268.0, 159.5, 119.5)
_LIGHT = np.array([0.3, -0.5, 0.8])


@dataclass(frozen=True)
class Box:
    """A box with sides along the axes, painted with a plane's picture [m]."""

    low: tuple[float, float, float]
    high: tuple[float, float, float]
    grey: float = 90.0
    contrast: float = 0.1  # of the paint; 0: none
    seed: int = 3


FLOOR = Box((-9, -9, -1), (9, 9, 0), grey=140.0, contrast=0.05, seed=4)
CABINET = Box((-0.35, -0.25, 0.0), (0.35, 0.25, 0.7))


@dataclass(frozen=True)
class BoxView:
    """An image of boxes, and what is true of it."""

    image: NDArray[np.uint8]  # (240, 320, 3), BGR
    depth: NDArray[np.float32]  # (240, 320) [m]
    pose: Pose


def around(angle_deg: float, boxes: Sequence[Box] = (FLOOR, CABINET)) -> BoxView:
    """The view from a circle round the origin, which stays in the middle."""
    angle = math.radians(angle_deg)
    x, y = -1.6 * math.cos(angle), -1.6 * math.sin(angle)
    return view(x, y, 1.3, math.atan2(-y, -x), -0.46, boxes)


def view(x: float, y: float, z: float, yaw: float, tilt: float, boxes: Sequence[Box]) -> BoxView:
    """The boxes from a place [m], with yaw to the left and tilt upwards [rad]."""
    rotation = rotation_from_ypr(yaw, -tilt, 0.0)
    pose = Pose((x, y, z), quaternion_from_matrix(rotation), 'room')
    u, v = np.meshgrid(np.arange(CAMERA.width), np.arange(CAMERA.height))
    rays = (
        np.stack(
            [(u - CAMERA.cx) / CAMERA.fx, (v - CAMERA.cy) / CAMERA.fy, np.ones_like(u, float)], -1
        )
        @ (rotation @ BODY_FROM_OPTICAL).T
    )
    depth = np.full(u.shape, np.inf)
    grey = np.full(u.shape, 128.0)
    for box in boxes:
        near, shade = _hit(np.array([x, y, z]), rays, box)
        grey = np.where(near < depth, shade, grey)
        depth = np.minimum(depth, near)
    image = cv2.GaussianBlur(np.clip(grey, 0, 255).astype(np.uint8), (3, 3), 0)
    flat = np.where(np.isfinite(depth), depth, 0).astype(np.float32)
    return BoxView(np.dstack([np.asarray(image, np.uint8)] * 3), flat, pose)


def _hit(
    eye: NDArray[np.float64], rays: NDArray[np.float64], box: Box
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Depth at which rays enter a box, infinite where they do not, and its grey there."""
    with np.errstate(divide='ignore'):
        to_low, to_high = ((np.array(corner) - eye) / rays for corner in (box.low, box.high))
    entries = np.minimum(to_low, to_high)
    enter, leave = entries.max(-1), np.maximum(to_low, to_high).min(-1)
    depth = np.where((enter < leave) & (enter > 0.05), enter, np.inf)
    points = eye + np.where(np.isfinite(depth), depth, 0.0)[..., None] * rays
    axis = entries.argmax(-1)
    picture = plane(box.seed).mean(-1) - 128.0
    # Each side is painted with its own part of the picture, 400 pixels to the metre.
    along, across = ((axis + step) % 3 for step in (1, 2))
    side = [np.take_along_axis(points, index[..., None], -1)[..., 0] for index in (along, across)]
    column = (400 * side[0] + 170 * axis).astype(int) % picture.shape[1]
    row = (400 * side[1] + 130 * axis).astype(int) % picture.shape[0]
    towards = -np.sign(np.take_along_axis(rays, axis[..., None], -1)[..., 0])
    light = 1.0 + 0.5 * towards * _LIGHT[axis]
    return depth, (box.grey + box.contrast * picture[row, column]) * light
