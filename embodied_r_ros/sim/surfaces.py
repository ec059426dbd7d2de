# SPDX-License-Identifier: Apache-2.0
"""Samples of the surfaces of things: where they lie, which way they face, how large they are."""

from __future__ import annotations

from dataclasses import dataclass, replace
import math
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from embodied_r_ros.sim.room import Thing
    from numpy.typing import NDArray

_PER_SIDE = 6  # samples along each side of a face


@dataclass(frozen=True)
class Surface:
    """Samples of a thing's surface, in its own axes."""

    points: NDArray[np.float64]  # (N, 3) [m]
    normals: NDArray[np.float64]  # (N, 3), outward
    areas: NDArray[np.float64]  # (N,) [m2]
    corners: NDArray[np.float64]  # (M, 3), what the outline lies between; empty: a ball [m]
    radius: float = 0.0  # of a ball [m]; 0: it is none


def sampled_surface(thing: Thing) -> Surface:
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


def _ball(half: NDArray[np.float64]) -> Surface:
    """Samples of a sphere on a Fibonacci lattice."""
    count = 16 * _PER_SIDE
    k = np.arange(count) + 0.5
    z = 1 - 2 * k / count
    angle = math.pi * (1 + math.sqrt(5)) * k
    ring = np.sqrt(1 - z**2)
    normals = np.stack([ring * np.cos(angle), ring * np.sin(angle), z], axis=1)
    radius = float(half[0])
    areas = np.full(count, 4 * math.pi * radius**2 / count)
    return Surface(normals * radius, normals, areas, np.empty((0, 3)), radius)


def _drum(half: NDArray[np.float64]) -> Surface:
    """Samples of an upright cylinder."""
    radius, height = float(half[0]), float(half[2])
    angles = np.linspace(0, 2 * math.pi, 3 * _PER_SIDE, endpoint=False)
    rim = np.stack([np.cos(angles), np.sin(angles), np.zeros_like(angles)], axis=1)
    levels = _cells(height)
    points = [_raised(rim * radius, level) for level in levels]
    normals = [rim] * len(levels)
    areas = [
        np.full(len(rim) * len(levels), 4 * math.pi * radius * height / len(rim) / len(levels))
    ]
    # Rings at these radii stand for equal areas of a lid.
    lid = np.concatenate([rim * radius * math.sqrt((ring + 0.5) / 3) for ring in range(3)])
    for end in (-1.0, 1.0):
        points.append(_raised(lid, end * height))
        normals.append(np.tile([0.0, 0.0, end], (len(lid), 1)))
        areas.append(np.full(len(lid), math.pi * radius**2 / len(lid)))
    corners = np.concatenate([_raised(rim * radius, end * height) for end in (-1, 1)])
    return Surface(np.concatenate(points), np.concatenate(normals), np.concatenate(areas), corners)


def _raised(points: NDArray[np.float64], z: float) -> NDArray[np.float64]:
    return np.add(points, [0.0, 0.0, z])


def _block(half: NDArray[np.float64]) -> Surface:
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
    return Surface(
        np.concatenate(points), np.concatenate(normals), np.concatenate(areas), signs * half
    )


def _cells(half: float) -> NDArray[np.float64]:
    """Middles of equal cells between -half and half."""
    return np.asarray(((np.arange(_PER_SIDE) + 0.5) / _PER_SIDE * 2 - 1) * half)
