# SPDX-License-Identifier: Apache-2.0
"""Which things an image shows, from samples of their surfaces and rays."""

from __future__ import annotations

from dataclasses import dataclass, replace
import math
from typing import TYPE_CHECKING

from embodied_r_ros.types.geometry import BODY_FROM_OPTICAL, direction_of_vector
from embodied_r_ros.types.layout import ObjectView
import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from embodied_r_ros.sim.indoor.room import RoomThing
    from embodied_r_ros.sim.indoor.world import World
    from embodied_r_ros.types.geometry import Intrinsics, Pose
    from embodied_r_ros.types.layout import Vector
    from numpy.typing import NDArray

_PER_SIDE = 6  # samples along each side of a face


@dataclass(frozen=True)
class SurfaceSamples:
    """Samples of a thing's surface, in its own axes."""

    points: NDArray[np.float64]  # (N, 3) [m]
    normals: NDArray[np.float64]  # (N, 3), outward
    areas: NDArray[np.float64]  # (N,) [m2]
    corners: NDArray[np.float64]  # (M, 3), what the outline lies between; empty: a ball [m]
    radius: float = 0.0  # of a ball [m]; 0: it is none


def sampled_surface(thing: RoomThing) -> SurfaceSamples:
    """Sample the surface of a thing that stands upright at its yaw, about its centre."""
    half = np.divide(thing.size, 2)
    make = {'sphere': _ball, 'cylinder': _drum, 'box': _block}[thing.solid]
    surface = make(half)
    c, s = math.cos(thing.yaw_rad), math.sin(thing.yaw_rad)
    turn = np.array([[c, -s, 0.0], [s, c, 0.0], [0.0, 0.0, 1.0]])
    return replace(
        surface,
        points=surface.points @ turn.T,
        normals=surface.normals @ turn.T,
        corners=surface.corners @ turn.T,
    )


def _ball(half: NDArray[np.float64]) -> SurfaceSamples:
    """Samples of a sphere on a Fibonacci lattice."""
    count = 16 * _PER_SIDE
    k = np.arange(count) + 0.5
    z = 1 - 2 * k / count
    angle = math.pi * (1 + math.sqrt(5)) * k
    ring = np.sqrt(1 - z**2)
    normals = np.stack([ring * np.cos(angle), ring * np.sin(angle), z], axis=1)
    radius = float(half[0])
    areas = np.full(count, 4 * math.pi * radius**2 / count)
    return SurfaceSamples(normals * radius, normals, areas, np.empty((0, 3)), radius)


def _drum(half: NDArray[np.float64]) -> SurfaceSamples:
    """Samples of an upright cylinder."""
    radius, height = float(half[0]), float(half[2])
    angles = np.linspace(0, 2 * math.pi, 3 * _PER_SIDE, endpoint=False)
    rim = np.stack([np.cos(angles), np.sin(angles), np.zeros_like(angles)], axis=1)
    levels = _cells(height)
    points = [_raise(rim * radius, level) for level in levels]
    normals = [rim] * len(levels)
    areas = [
        np.full(len(rim) * len(levels), 4 * math.pi * radius * height / len(rim) / len(levels))
    ]
    # Rings at these radii stand for equal areas of a lid.
    lid = np.concatenate([rim * radius * math.sqrt((ring + 0.5) / 3) for ring in range(3)])
    for end in (-1.0, 1.0):
        points.append(_raise(lid, end * height))
        normals.append(np.tile([0.0, 0.0, end], (len(lid), 1)))
        areas.append(np.full(len(lid), math.pi * radius**2 / len(lid)))
    corners = np.concatenate([_raise(rim * radius, end * height) for end in (-1, 1)])
    return SurfaceSamples(
        np.concatenate(points), np.concatenate(normals), np.concatenate(areas), corners
    )


def _raise(points: NDArray[np.float64], z: float) -> NDArray[np.float64]:
    return np.add(points, [0.0, 0.0, z])


def _block(half: NDArray[np.float64]) -> SurfaceSamples:
    """Samples of a box."""
    points, normals, areas = [], [], []
    for axis in range(3):
        u, v = (axis + 1) % 3, (axis + 2) % 3
        a, b = np.meshgrid(_cells(half[u]), _cells(half[v]))
        for sign in (-1.0, 1.0):
            face = np.zeros((a.size, 3))
            face[:, axis], face[:, u], face[:, v] = sign * half[axis], a.ravel(), b.ravel()
            points.append(face)
            normals.append(np.tile(sign * np.eye(3)[axis], (a.size, 1)))
            areas.append(np.full(a.size, 4 * half[u] * half[v] / a.size))
    signs = np.array([[x, y, z] for x in (-1, 1) for y in (-1, 1) for z in (-1, 1)])
    return SurfaceSamples(
        np.concatenate(points), np.concatenate(normals), np.concatenate(areas), signs * half
    )


def _cells(half: float) -> NDArray[np.float64]:
    """Middles of equal cells between -half and half."""
    return np.asarray(((np.arange(_PER_SIDE) + 0.5) / _PER_SIDE * 2 - 1) * half)


# A thing counts as visible with at least this share of its silhouette and of the image (77 px of
# 320x240).
MIN_SILHOUETTE = 0.3
MIN_AREA = 0.001
_TOUCH_M = 0.01  # rays end this near to the point that they are meant for


def views_of(
    world: World,
    surfaces: Sequence[SurfaceSamples],
    positions: Sequence[Vector | None],
    pose: Pose,
    camera: Intrinsics,
) -> tuple[ObjectView, ...]:
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
    visible = (solid > 0) & _is_inside(optical, camera)
    rays = offsets[visible] / lengths[visible, None]
    distances, owners = world.cast(pose.position, rays)
    visible[visible] = (owners == owner[visible]) | (distances > lengths[visible] - _TOUCH_M)
    # A solid angle fills more pixels the further from the axis it lies.
    axis = np.maximum(optical[:, 2] / lengths, 1e-3)
    image_share = solid / axis**3 * camera.fx * camera.fy / (camera.width * camera.height)
    views = []
    for index, surface, position in present:
        mine = owner == index
        share = float(solid[mine & visible].sum() / solid[mine].sum())
        if share > 0:
            area = float(image_share[mine & visible].sum())
            views.append(_view(index, surface, position, pose, (share, area)))
    return tuple(views)


def _view(
    index: int, surface: SurfaceSamples, position: Vector, pose: Pose, shares: tuple[float, float]
) -> ObjectView:
    share, area = shares
    rotation = pose.rotation()
    centre = np.subtract(position, pose.position) @ rotation
    bearing, elevation = direction_of_vector(centre)
    return ObjectView(
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
    surface: SurfaceSamples, rotation: NDArray[np.float64], centre: NDArray[np.float64]
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
