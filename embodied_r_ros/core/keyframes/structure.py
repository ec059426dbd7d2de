# SPDX-License-Identifier: Apache-2.0
"""Camera motion between two views and inverse depth over the first, from measured offsets.

Measured places are trusted only across the edges that the texture has, so that a straight edge
says nothing of movement along it. Lengths have no scale: inverse depth is 1 on average.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
import math
from typing import Any, TYPE_CHECKING

import cv2
from embodied_r_ros.core.keyframes.bundle import moved, ViewPose
from embodied_r_ros.core.keyframes.small_matrices import rotation_of
import numpy as np

if TYPE_CHECKING:
    from embodied_r_ros.core.types.arrays import Float32s
    from numpy.typing import NDArray

# Focal length as a share of the longer side: 61 degrees. A wrong one bends depth, which is free.
_FOCAL = 0.85
_NEAREST_Z = 0.02  # depth, as a share of the usual depth; nearer is behind the camera
_BEHIND_PX = -1e4  # place of what lies behind the camera
_NOISE_PX = 1.0  # of measured places
# Median errors from which on a second step, and a correction of depth, are worth their time.
_SMALL_ERROR_PX, _TINY_ERROR_PX = 0.5, 0.25
_FITTED_CELLS = 200  # at most so many decide the motion
_CARRIED_ON = 0.7  # of the last movement: hands and robots seldom repeat it exactly
_FIRST_STEPS, _STEPS = 3, 2  # of Gauss and Newton: from nothing, and from the image before
_REMEMBERED = 0.5  # of the information on depth, per image
_DEPTH_RANGE = 0.02, 20.0  # of inverse depth
# Prior of motion and depth, as information [px^2]: little translation, a plane across the view,
# and cells near that plane.
_LITTLE_TURN, _LITTLE_TRANSLATION = 1e-7, 1e-3
_PRIOR = np.diag([_LITTLE_TURN] * 3 + [_LITTLE_TRANSLATION] * 3)
_SLOPE, _LEVEL, _NEAR_PLANE = 300.0, 1000.0, 3.0
_PLANE_PRIOR = np.diag([_SLOPE, _SLOPE, _LEVEL])
# Box sizes [cells] and weights by which cells speak for their surroundings.
_SURROUNDINGS = ((3, 1.0), (9, 1e-1), (31, 1e-3))


@dataclass(frozen=True)
class Structure:
    """Where the second camera stands, and how far away each cell of the first view is."""

    motion: ViewPose  # of the second camera, in the axes of the first
    motion_before: ViewPose  # to the image before the second
    inverse_depth: Float32s  # (rows, columns), > 0
    information: Float32s  # (rows, columns), on inverse depth [px^2]

    def expected(self) -> Structure:
        """What is to be expected of the next image."""
        motion = self.motion.then(self.motion.after(self.motion_before).times(_CARRIED_ON))
        return replace(self, motion=motion, motion_before=self.motion)

    @property
    def baseline(self) -> float:
        """How far the camera moved, as a share of the usual depth."""
        return float(np.linalg.norm(self.motion.translation) * self.inverse_depth.mean())

    @property
    def roll_rad(self) -> float:
        """Rotation of the second view about its axis."""
        rotation = self.motion.rotation
        return math.atan2(rotation[1, 0] - rotation[0, 1], rotation[0, 0] + rotation[1, 1])

    def places(self, rays: Float32s, size: tuple[int, int]) -> Float32s:
        """Where the second view, of a width and height [px], shows each cell. (rows, cols, 2)."""
        (x, y, _), z = _seen(rays, self.inverse_depth, self.motion)
        places: NDArray[Any] = cv2.merge([x, y])
        places *= np.float32(_focal_px(size))
        places += _middle(size)
        if float(z.min()) <= _NEAREST_Z:
            places[z <= _NEAREST_Z] = _BEHIND_PX
        return np.asarray(places, np.float32)


def rays_through(places: Float32s, size: tuple[int, int]) -> Float32s:
    """Directions (x, y, 1) of places (rows, columns, 2) [px] in a view. (3, rows, columns)."""
    x, y = np.moveaxis((places - _middle(size)) / _focal_px(size), -1, 0)
    return np.stack([x, y, np.ones_like(x)]).astype(np.float32)


def first_structure(rays: Float32s, roll_rad: float) -> Structure:
    """A camera that only rolled, before a plane across the view."""
    ones = np.ones(rays.shape[1:], np.float32)
    rolled = ViewPose(rotation_of(np.array([0.0, 0.0, roll_rad])), np.zeros(3))
    return Structure(rolled, rolled, ones, np.zeros_like(ones))


@dataclass(frozen=True)
class MeasuredCells:
    """Where a second view shows the cells of a first one."""

    rays: Float32s  # direction of each cell in the first view. (3, rows, columns)
    places: Float32s  # of each cell in the second view [px]. (rows, columns, 2)
    # How well the place is known along x, between, and along y, 0..1 each; 0 where it was not
    # measured. (3, rows, columns).
    information: Float32s
    size: tuple[int, int]  # width and height of the second view [px]


def fit_structure(expected: Structure, measured: MeasuredCells) -> tuple[Structure, float]:
    """Correct motion and depth by where cells were measured to be.

    Args:
        expected: By the image before, or `first_structure`.
        measured: The cells.

    Returns:
        The structure, and the median error of the places that decided the motion [px].
    """
    information, size = measured.information, measured.size
    is_first, focal = not expected.information.any(), np.float32(_focal_px(size))
    chosen = np.flatnonzero(information[0] + information[2])
    chosen = chosen[:: -(-len(chosen) // _FITTED_CELLS)]
    structure, error_px = expected, 0.0
    for _ in range(2 if is_first else 1):
        cells = _Cells(
            measured.rays.reshape(3, -1)[:, chosen],
            structure.inverse_depth.ravel()[chosen],
            structure.information.ravel()[chosen] + np.float32(_NEAR_PLANE),
            ((measured.places.reshape(-1, 2)[chosen] - _middle(size)) / focal).T,
            information.reshape(3, -1)[:, chosen],
        )
        motion = structure.motion
        for _ in range(_FIRST_STEPS if is_first else _STEPS):
            motion, error_px = _corrected(motion, cells, size)
            if error_px < _SMALL_ERROR_PX:
                break
        structure = replace(structure, motion=motion)
        if is_first or error_px > _TINY_ERROR_PX:
            structure = _fit_depth(structure, measured)
    # Nothing is known of how the camera came there.
    return (replace(structure, motion_before=motion) if is_first else structure), error_px


@dataclass(frozen=True)
class _Cells:
    """The cells that decide the motion; slopes are places in units of the focal length."""

    rays: Float32s  # (3, N)
    inverse_depth: Float32s  # (N,)
    known: Float32s  # information on depth, that of the prior too [px^2]. (N,)
    measured: Float32s  # slopes. (2, N)
    information: Float32s  # (3, N)


def _corrected(motion: ViewPose, cells: _Cells, size: tuple[int, int]) -> tuple[ViewPose, float]:
    """One robust Gauss-Newton step of a motion, and the median error before it [px]."""
    squared = np.float32(_focal_px(size) ** 2)
    (x, y, nearness), z = _seen(cells.rays, cells.inverse_depth, motion)
    off_x, off_y = cells.measured[0] - x, cells.measured[1] - y
    by_x, between, by_y = cells.information
    error = by_x * (off_x * off_x) + 2 * between * (off_x * off_y) + by_y * (off_y * off_y)
    error *= squared  # [px^2]
    usual = float(np.partition(error, len(error) // 2)[len(error) // 2])
    weight = (z > _NEAREST_Z) / (1 + error / np.float32(max(_NOISE_PX**2, 2 * usual))) ** 2
    # Along the epipolar lines places tell of motion as far only as depth is known already.
    line_x, line_y = _epipolar(x, y, nearness, motion)
    known_x, known_y = by_x * line_x + between * line_y, between * line_x + by_y * line_y
    known = known_x * line_x + known_y * line_y + cells.known / squared
    across = weight * (between - known_x * known_y / known)
    by_x, by_y = weight * (by_x - known_x**2 / known), weight * (by_y - known_y**2 / known)
    along = _derivatives(x, y, cells.inverse_depth * nearness)  # (2, 6, N)
    weighted = np.stack([by_x * along[0] + across * along[1], across * along[0] + by_y * along[1]])
    prior = np.float32(weight.sum() + 1) * _PRIOR
    normal = weighted[0] @ along[0].T + weighted[1] @ along[1].T + prior
    step = np.linalg.solve(normal, weighted[0] @ off_x + weighted[1] @ off_y)
    return moved(motion, step), math.sqrt(usual)


def _derivatives(x: Float32s, y: Float32s, nearness: Float32s) -> Float32s:
    """How slopes (N,) change with a turn about x, y and z and with translation. (2, 6, N)."""
    by_motion = np.zeros((2, 6, len(x)), np.float32)
    along_x, along_y = by_motion
    along_y[1] = x * y
    along_x[0], along_x[1], along_x[2] = -along_y[1], 1 + x * x, -y
    along_y[0], along_y[2] = -1 - y * y, x
    along_x[3] = along_y[4] = nearness
    along_x[5], along_y[5] = -x * nearness, -y * nearness
    return by_motion


def _fit_depth(structure: Structure, measured: MeasuredCells) -> Structure:
    """One step of least squares over inverse depth, smooth over the view."""
    focal, depth = np.float32(_focal_px(measured.size)), structure.inverse_depth
    (x, y, nearness), z = _seen(measured.rays, depth, structure.motion)
    off_x, off_y = np.moveaxis(measured.places - _middle(measured.size), -1, 0)
    off_x, off_y = off_x - focal * x, off_y - focal * y
    line_x, line_y = _epipolar(x, y, focal * nearness, structure.motion)  # [px]
    by_x, between, by_y = measured.information
    known_x, known_y = by_x * line_x + between * line_y, between * line_x + by_y * line_y
    squares = known_x * line_x + known_y * line_y
    products = known_x * off_x + known_y * off_y
    error = by_x * off_x**2 + 2 * between * off_x * off_y + by_y * off_y**2
    # What lies off the epipolar line is no matter of depth: it moves, or was mistaken.
    across = np.maximum(error - products**2 / (squares + np.float32(1e-6)), 0)
    weight = (z > _NEAREST_Z) / (1 + across / np.float32((2 * _NOISE_PX) ** 2)) ** 2
    remembered = np.float32(_REMEMBERED) * structure.information
    total = weight * squares + remembered
    depths = weight * (products + squares * depth) + remembered * depth
    return replace(
        structure, inverse_depth=_smooth(measured.rays, depths, total), information=total
    )


def _epipolar(
    x: Float32s, y: Float32s, nearness: Float32s, motion: ViewPose
) -> tuple[Float32s, Float32s]:
    """How slopes move with inverse depth, times what `nearness` is multiplied by."""
    right, down, ahead = map(np.float32, motion.translation.tolist())
    return (right - x * ahead) * nearness, (down - y * ahead) * nearness


def _smooth(rays: Float32s, depths: Float32s, information: Float32s) -> Float32s:
    """Inverse depth that follows a plane, and its surroundings where they know better.

    Inverse depth is linear over the image of a plane.
    """
    flat = rays.reshape(3, -1)
    normal = (flat * information.ravel()) @ flat.T + _PLANE_PRIOR
    plane = np.linalg.solve(normal, flat @ depths.ravel() + _PLANE_PRIOR[2])
    trend = np.clip((plane.astype(np.float32) @ flat).reshape(depths.shape), *_DEPTH_RANGE)
    layers = cv2.merge([depths - information * trend, information])
    near: NDArray[Any] = np.zeros_like(layers)
    for box, share in _SURROUNDINGS:
        near += np.float32(share) * cv2.blur(layers, (box, box), borderType=cv2.BORDER_CONSTANT)
    depth = trend + near[..., 0] / (near[..., 1] + np.float32(_NEAR_PLANE))
    return np.asarray(np.clip(depth, *_DEPTH_RANGE), np.float32)


def _seen(
    rays: Float32s, inverse_depth: Float32s, motion: ViewPose
) -> tuple[tuple[Float32s, ...], Float32s]:
    """Slopes x and y in the second view and 1 / z, and z as a share of depth in the first.

    Rays are (3, ...), the rest has the shape of inverse depth. What lies behind the camera is
    taken to lie just before it.
    """
    rotation, shift = motion.rotation.astype(np.float32), motion.translation.astype(np.float32)
    points = rotation @ rays.reshape(3, -1)
    points += shift[:, None] * inverse_depth.ravel()
    x, y, z = points.reshape(rays.shape)
    nearness = 1 / np.maximum(z, np.float32(_NEAREST_Z))
    return (x * nearness, y * nearness, nearness), z


def _focal_px(size: tuple[int, int]) -> float:
    return _FOCAL * max(size)


@lru_cache(maxsize=8)
def _middle(size: tuple[int, int]) -> Float32s:
    return (np.array(size, np.float32) - 1) / np.float32(2)
