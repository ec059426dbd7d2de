# SPDX-License-Identifier: Apache-2.0
"""A textured room with coloured solids, rendered by casting one ray per pixel.

Gives images whose geometry is known exactly, without a simulator.
"""

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

if TYPE_CHECKING:
    from numpy.typing import NDArray

CAMERA = Intrinsics.from_fov(320, 240, math.radians(90))
_PIXELS_PER_M = 100


def pose_at(
    x: float, y: float, z: float, yaw: float = 0.0, pitch: float = 0.0, roll: float = 0.0
) -> Pose:
    """Pose of the camera link in 'odom' [m, rad]."""
    return Pose((x, y, z), quaternion_from_matrix(rotation_from_ypr(yaw, pitch, roll)), 'odom')


@dataclass(frozen=True)
class Solid:
    """A box or a ball of one colour."""

    centre: tuple[float, float, float]  # [m]
    size: tuple[float, float, float]  # extents; of a ball all the same [m]
    bgr: tuple[int, int, int]
    is_ball: bool = False


class Room:
    """A box of six textured walls, 6 x 5 x 2.6 m, its floor at z = 0 around the origin."""

    def __init__(self, seed: int = 0, contrast: float = 1.0) -> None:
        rng = np.random.default_rng(seed)
        self.low, self.high = np.array([-3.0, -2.5, 0.0]), np.array([3.0, 2.5, 2.6])
        self.walls = [_texture(rng, contrast) for _ in range(6)]

    def view(
        self, pose: Pose, solids: tuple[Solid, ...] = (), camera: Intrinsics = CAMERA
    ) -> NDArray[np.uint8]:
        """Image from a pose of the camera link, BGR (H, W, 3)."""
        image, _ = self._cast(pose, solids, camera)
        return image.reshape(camera.height, camera.width, 3).astype(np.uint8)

    def depth(
        self, pose: Pose, solids: tuple[Solid, ...] = (), camera: Intrinsics = CAMERA
    ) -> NDArray[np.float32]:
        """Depth along the optical axis from a pose of the camera link [m]. Shape (H, W)."""
        _, depth = self._cast(pose, solids, camera)
        return depth.reshape(camera.height, camera.width).astype(np.float32)

    def _cast(
        self, pose: Pose, solids: tuple[Solid, ...], camera: Intrinsics
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Colours (N, 3) and depth (N,) of the pixels."""
        rays = _rays(camera) @ (pose.rotation() @ BODY_FROM_OPTICAL).T
        origin = np.array(pose.position)
        image, depth = self._walls(origin, rays)
        for solid in solids:
            hit, shade = (_ball if solid.is_ball else _box)(solid, origin, rays)
            nearer = hit < depth
            image[nearer] = np.outer(shade[nearer], solid.bgr)
            depth = np.minimum(depth, hit)
        return image, depth

    def _walls(
        self, origin: NDArray[np.float64], rays: NDArray[np.float64]
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        image, depth = np.zeros((len(rays), 3)), np.full(len(rays), np.inf)
        for index, wall in enumerate(self.walls):
            axis, bound = index % 3, (self.low, self.high)[index // 3]
            with np.errstate(divide='ignore', invalid='ignore'):
                reach = (bound[axis] - origin[axis]) / rays[:, axis]
                points = origin + rays * reach[:, None]
            nearer = (reach > 0) & (reach < depth)
            uv = np.delete(points - self.low, axis, axis=1)[nearer] * _PIXELS_PER_M
            image[nearer] = _sample(wall, uv)[:, None]
            depth[nearer] = reach[nearer]
        return image, depth


def _texture(rng: np.random.Generator, contrast: float) -> NDArray[np.uint8]:
    texture = np.full((600, 600), 128.0)
    for cell, strength in ((60, 30.0), (20, 25.0), (6, 25.0)):
        knots = rng.normal(0, strength * contrast, (600 // cell, 600 // cell))
        texture += cv2.resize(knots, (600, 600), interpolation=cv2.INTER_LINEAR)
    return np.clip(texture, 0, 255).astype(np.uint8)


def _sample(texture: NDArray[np.uint8], uv: NDArray[np.float64]) -> NDArray[np.float64]:
    """Bilinear samples (N,) of a texture at columns and rows (N, 2)."""
    whole = np.clip(uv.astype(int), 0, np.array(texture.shape[::-1]) - 2)
    (u, v), (fu, fv) = whole.T, (uv - whole).T
    upper = texture[v, u] * (1 - fu) + texture[v, u + 1] * fu
    lower = texture[v + 1, u] * (1 - fu) + texture[v + 1, u + 1] * fu
    return np.asarray(upper * (1 - fv) + lower * fv)


def _rays(camera: Intrinsics) -> NDArray[np.float64]:
    u, v = np.meshgrid(np.arange(camera.width), np.arange(camera.height))
    x, y = (u - camera.cx) / camera.fx, (v - camera.cy) / camera.fy
    return np.stack([x.ravel(), y.ravel(), np.ones(x.size)], axis=1)


def _box(
    solid: Solid, origin: NDArray[np.float64], rays: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Reach of each ray (N,), inf where it misses, and the brightness of the face it meets."""
    half = np.divide(solid.size, 2)
    with np.errstate(divide='ignore', invalid='ignore'):
        one, two = ((np.array(solid.centre) + s * half - origin) / rays for s in (-1, 1))
    near, far = np.minimum(one, two), np.maximum(one, two)
    enter, leave = near.max(axis=1), far.min(axis=1)
    shade = np.array([0.9, 0.75, 1.0])[near.argmax(axis=1)]
    return np.where((enter < leave) & (enter > 0), enter, np.inf), shade


def _ball(
    solid: Solid, origin: NDArray[np.float64], rays: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    offset, radius = origin - np.array(solid.centre), solid.size[0] / 2
    a, b = (rays**2).sum(axis=1), rays @ offset
    root = b**2 - a * (offset @ offset - radius**2)
    reach = (-b - np.sqrt(np.maximum(root, 0.0))) / a
    hit = np.where((root > 0) & (reach > 0), reach, np.inf)
    normals = (offset + rays * reach[:, None]) / radius
    return hit, np.clip(0.8 + 0.2 * normals[:, 2], 0.0, 1.0)
