# SPDX-License-Identifier: Apache-2.0
"""Which things an image shows, from geometry and rays: the same with and without a renderer.

The surface of each thing is sampled. What faces the camera is its silhouette, as all things are
convex; each sample stands for the solid angle that it covers. A sample is seen when it lies within
the image and a ray from the camera reaches it.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from embodied_r_ros.geometry import BODY_FROM_OPTICAL, direction_of_vector
from embodied_r_ros.recordings.layout import View
import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from embodied_r_ros.geometry import Intrinsics, Pose
    from embodied_r_ros.recordings.layout import Vector
    from embodied_r_ros.sim.surfaces import Surface
    from embodied_r_ros.sim.world import World
    from numpy.typing import NDArray

# A thing counts as visible with at least this share of its silhouette and of the image (77 px of
# 320x240).
MIN_SILHOUETTE = 0.3
MIN_AREA = 0.001

_TOUCH_M = 0.01  # rays end this near to the point that they are meant for


def views_of(
    world: World,
    surfaces: Sequence[Surface],
    positions: Sequence[Vector | None],
    pose: Pose,
    camera: Intrinsics,
) -> tuple[View, ...]:
    """Views of all things of which a part can be seen.

    Args:
        world: The world, with its things placed at `positions`.
        surfaces: Samples of each thing.
        positions: Centre of each thing [m]; None: absent.
        pose: Pose of the camera link.
        camera: Its intrinsics.
    """
    present = [(i, s, p) for i, (s, p) in enumerate(zip(surfaces, positions, strict=True)) if p]
    if not present:
        return ()
    owner = np.concatenate([np.full(len(s.areas), i) for i, s, _ in present])
    offsets = np.concatenate([s.points + np.subtract(p, pose.position) for _, s, p in present])
    normals = np.concatenate([s.normals for _, s, _ in present])
    areas = np.concatenate([s.areas for _, s, _ in present])
    lengths = np.linalg.norm(offsets, axis=1)
    cosines = -np.einsum('ij,ij->i', offsets, normals) / lengths
    solid = np.maximum(cosines, 0.0) * areas / lengths**2  # solid angle of each sample [sr]
    optical = offsets @ (pose.rotation() @ BODY_FROM_OPTICAL)
    seen = (solid > 0) & _is_inside(optical, camera)
    rays = offsets[seen] / lengths[seen, None]
    distances, met = world.cast(pose.position, rays)
    seen[seen] = (met == owner[seen]) | (distances > lengths[seen] - _TOUCH_M)
    # A solid angle fills more pixels the further from the axis it lies.
    axis = np.maximum(optical[:, 2] / lengths, 1e-3)
    filled = solid / axis**3 * camera.fx * camera.fy / (camera.width * camera.height)
    views = []
    for index, surface, position in present:
        mine = owner == index
        share = float(solid[mine & seen].sum() / solid[mine].sum())
        if share > 0:
            area = float(filled[mine & seen].sum())
            views.append(_view(index, surface, position, pose, (share, area)))
    return tuple(views)


def _view(
    index: int, surface: Surface, position: Vector, pose: Pose, seen: tuple[float, float]
) -> View:
    share, area = seen
    rotation = pose.rotation()
    centre = np.subtract(position, pose.position) @ rotation
    bearing, elevation = direction_of_vector(centre)
    return View(
        object_id=index,
        visible=share >= MIN_SILHOUETTE and area >= MIN_AREA,
        share=share,
        area=area,
        bearing_rad=bearing,
        elevation_rad=elevation,
        distance_m=float(np.linalg.norm(centre)),
        size_rad=_angular_size(surface, rotation, centre),
    )


def _angular_size(
    surface: Surface, rotation: NDArray[np.float64], centre: NDArray[np.float64]
) -> float:
    """The larger of width and height of the silhouette, as angles [rad]."""
    if surface.radius:
        return 2 * math.asin(min(1.0, surface.radius / float(np.linalg.norm(centre))))
    x, y, z = (surface.corners @ rotation + centre).T
    # Relative to the centre, so that nothing wraps.
    bearings = np.arctan2(y * centre[0] - x * centre[1], x * centre[0] + y * centre[1])
    elevations = np.arctan2(z, np.hypot(x, y))
    return float(max(np.ptp(bearings), np.ptp(elevations)))


def _is_inside(optical: NDArray[np.float64], camera: Intrinsics) -> NDArray[np.bool_]:
    """Tell which points (N, 3) in optical axes fall into the image. Shape (N,)."""
    z = np.maximum(optical[:, 2], 1e-6)
    u = optical[:, 0] / z * camera.fx + camera.cx
    v = optical[:, 1] / z * camera.fy + camera.cy
    inside = (np.abs(u - camera.cx) <= camera.width / 2) & (
        np.abs(v - camera.cy) <= camera.height / 2
    )
    return np.asarray(inside & (optical[:, 2] > 0))
