# SPDX-License-Identifier: Apache-2.0
"""Rotations, medians and small systems, for code that needs many of them per image.

The general routines of NumPy and OpenCV spend most of their time on few numbers with checks.
"""

from __future__ import annotations

import math
from typing import Any, TYPE_CHECKING

import cv2
import numpy as np

if TYPE_CHECKING:
    from embodied_r_ros.core.types.arrays import Float64s
    from numpy.typing import NDArray

_LITTLE_RAD = 1e-8  # a smaller turn is that of its first order
_HALF_TURN = -0.99  # cosine from which on a rotation matrix hardly tells its axis


def rotation_of(vector: NDArray[np.floating]) -> Float64s:
    """Rotation matrix of a rotation vector [rad], by Rodrigues. Shapes (3,) -> (3, 3)."""
    x, y, z = vector.tolist()
    squared = x * x + y * y + z * z
    angle = math.sqrt(squared)
    if angle < _LITTLE_RAD:
        a, b = 1.0, 0.5
    else:
        a, b = math.sin(angle) / angle, (1.0 - math.cos(angle)) / squared
    return np.array(
        (
            (1.0 - b * (y * y + z * z), b * x * y - a * z, b * x * z + a * y),
            (b * x * y + a * z, 1.0 - b * (x * x + z * z), b * y * z - a * x),
            (b * x * z - a * y, b * y * z + a * x, 1.0 - b * (x * x + y * y)),
        )
    )


def vector_of(rotation: Float64s) -> Float64s:
    """Rotation vector [rad] of a rotation matrix, the inverse of `rotation_of`. Shape (3,)."""
    (xx, xy, xz), (yx, yy, yz), (zx, zy, zz) = rotation.tolist()
    cosine = (xx + yy + zz - 1.0) / 2.0
    if not cosine > _HALF_TURN:
        return np.asarray(cv2.Rodrigues(rotation)[0], np.float64).ravel()
    x, y, z = (zy - yz) / 2.0, (xz - zx) / 2.0, (yx - xy) / 2.0
    sine = math.sqrt(x * x + y * y + z * z)
    scale = math.atan2(sine, cosine) / sine if sine > _LITTLE_RAD else 1.0
    return np.array((scale * x, scale * y, scale * z))


def median(values: NDArray[Any]) -> float:
    """Median of all values, at least one, none of them NaN."""
    flat = values.ravel()
    half = len(flat) // 2
    if len(flat) % 2:
        return float(np.partition(flat, half)[half])
    low, high = np.partition(flat, (half - 1, half))[half - 1 : half + 1].tolist()
    return float((low + high) / 2)
