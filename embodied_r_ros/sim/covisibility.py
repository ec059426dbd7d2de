# SPDX-License-Identifier: Apache-2.0
"""How much of a view another view shares, from rendered depth: the truth behind `overlap`."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

import cv2
from embodied_r_ros.geometry import BODY_FROM_OPTICAL, relative_motion
import numpy as np

if TYPE_CHECKING:
    from embodied_r_ros.geometry import Intrinsics, Pose
    from numpy.typing import NDArray

# A point is hidden where the other view sees something nearer than this share of its distance.
DEPTH_TOLERANCE = 0.05
_NEAREST_M = 1e-3


def covisibility(
    depth_a: NDArray[np.floating],
    pose_a: Pose,
    depth_b: NDArray[np.floating],
    pose_b: Pose,
    camera: Intrinsics,
) -> tuple[float, float]:
    """Share of A's image that B sees, and of B's image that A sees, each 0..1.

    A pixel counts as seen where its point in space lies within the other image, in front of the
    camera and with nothing in front of it. The smaller of the two shares is the true overlap.

    Args:
        depth_a: Depth of A along the optical axis [m]; not positive or not finite: nothing there,
            which no view shares. Shape (H, W), the size of `camera`.
        pose_a: Pose of A's camera link.
        depth_b: Depth of B. Shape (H, W).
        pose_b: Pose of B's camera link, in the same fixed frame.
        camera: Intrinsics of both, without distortion.

    Raises:
        ValueError: The poses are in different fixed frames.
    """
    return (
        float(seen_by(depth_a, pose_a, depth_b, pose_b, camera).mean()),
        float(seen_by(depth_b, pose_b, depth_a, pose_a, camera).mean()),
    )


def seen_by(
    depth: NDArray[np.floating],
    pose: Pose,
    other_depth: NDArray[np.floating],
    other_pose: Pose,
    camera: Intrinsics,
) -> NDArray[np.bool_]:
    """Which pixels of a view another view sees. Shape (H, W); arguments as in `covisibility`."""
    inverse = _inverse(depth)
    z = 1.0 / np.maximum(inverse, 1e-9)
    points = pixel_rays(camera) * z[..., None]  # (H, W, 3), optical axes
    body_rotation, body_offset = relative_motion(other_pose, pose)
    rotation = BODY_FROM_OPTICAL.T @ body_rotation @ BODY_FROM_OPTICAL
    moved = points @ rotation.T + BODY_FROM_OPTICAL.T @ body_offset
    ahead = np.maximum(moved[..., 2], _NEAREST_M)
    u = moved[..., 0] / ahead * camera.fx + camera.cx
    v = moved[..., 1] / ahead * camera.fy + camera.cy
    inside = (u >= -0.5) & (u < camera.width - 0.5) & (v >= -0.5) & (v < camera.height - 0.5)
    # Inverse depth is linear over the image of a plane, so that interpolating it is exact there.
    surface = cv2.remap(
        _inverse(other_depth).astype(np.float32),
        u.astype(np.float32),
        v.astype(np.float32),
        cv2.INTER_LINEAR,
        borderMode=cv2.BORDER_REPLICATE,
    )
    unhidden = surface * ahead <= 1.0 + DEPTH_TOLERANCE
    return np.asarray((inverse > 0) & (moved[..., 2] > _NEAREST_M) & inside & unhidden)


def _inverse(depth: NDArray[np.floating]) -> NDArray[np.float64]:
    """Inverse depth [1/m]; 0 where there is none."""
    valid = np.isfinite(depth) & (depth > 0)
    return np.asarray(np.where(valid, 1.0 / np.where(valid, depth, 1.0), 0.0))


@lru_cache(maxsize=8)
def pixel_rays(camera: Intrinsics) -> NDArray[np.float64]:
    """Rays through all pixels in optical axes, with unit depth. Shape (H, W, 3), read-only."""
    u, v = np.meshgrid(np.arange(camera.width), np.arange(camera.height))
    x, y = (u - camera.cx) / camera.fx, (v - camera.cy) / camera.fy
    rays = np.stack([x, y, np.ones_like(x)], axis=-1)
    rays.setflags(write=False)
    return rays
