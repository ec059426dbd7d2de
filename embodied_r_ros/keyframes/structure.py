# SPDX-License-Identifier: Apache-2.0
"""Camera motion between two views and inverse depth over the first, from measured offsets.

Measured places are trusted only across the edges that the texture has, so that a straight edge
says nothing of movement along it. Lengths have no scale: inverse depth is 1 on average.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
import math
from typing import TYPE_CHECKING

import cv2
import numpy as np

if TYPE_CHECKING:
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
_SLOPE, _LEVEL, _NEAR_PLANE = 300.0, 1000.0, 3.0
# Box sizes [cells] and weights by which cells speak for their surroundings.
_SURROUNDINGS = ((3, 1.0), (9, 1e-1), (31, 1e-3))


@dataclass(frozen=True)
class RigidMotion:
    """From the axes of a first camera to those of a second; optical axes."""

    rotation: NDArray[np.float64]  # (3, 3)
    translation: NDArray[np.float64]  # (3,), of the first camera, in the second one's axes

    def extrapolated(self, before: RigidMotion) -> RigidMotion:
        """The next motion, of a camera that goes on about as it did since the one before."""
        turn = self.rotation @ before.rotation.T
        shift = self.translation - turn @ before.translation
        turn = np.asarray(cv2.Rodrigues(_CARRIED_ON * cv2.Rodrigues(turn)[0])[0])
        return RigidMotion(turn @ self.rotation, turn @ self.translation + _CARRIED_ON * shift)


@dataclass(frozen=True)
class Structure:
    """Where the second camera stands, and how far away each cell of the first view is."""

    motion: RigidMotion
    motion_before: RigidMotion  # to the image before the second
    inverse_depth: NDArray[np.float32]  # (rows, columns), > 0
    information: NDArray[np.float32]  # (rows, columns), on inverse depth [px^2]

    def expected(self) -> Structure:
        """What is to be expected of the next image."""
        motion = self.motion.extrapolated(self.motion_before)
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

    def places(self, rays: NDArray[np.float32], size: tuple[int, int]) -> NDArray[np.float32]:
        """Where the second view, of a width and height [px], shows each cell. (rows, cols, 2)."""
        return _project(rays, self.inverse_depth, self.motion, size)[0]


def rays_through(places: NDArray[np.float32], size: tuple[int, int]) -> NDArray[np.float32]:
    """Directions (x, y, 1) of places (..., 2) [px] in a view of a width and height [px]."""
    slopes = (places - _middle(size)) / _focal_px(size)
    return np.concatenate([slopes, np.ones_like(slopes[..., :1])], axis=-1, dtype=np.float32)


def first_structure(rays: NDArray[np.float32], roll_rad: float) -> Structure:
    """A camera that only rolled, before a plane across the view."""
    ones = np.ones(rays.shape[:2], np.float32)
    rolled = RigidMotion(np.asarray(cv2.Rodrigues(np.array([0.0, 0.0, roll_rad]))[0]), np.zeros(3))
    return Structure(rolled, rolled, ones, np.zeros_like(ones))


def fit_structure(
    expected: Structure,
    rays: NDArray[np.float32],
    measured: NDArray[np.float32],
    information: NDArray[np.float32],
    size: tuple[int, int],
) -> tuple[Structure, float]:
    """Correct motion and depth by where cells were measured to be.

    Args:
        expected: By the image before, or `first_structure`.
        rays: Direction of each cell in the first view. (rows, columns, 3).
        measured: Place of each cell in the second view [px]. (rows, columns, 2).
        information: How well the place is known along x, between, and along y, 0..1 each; 0 where
            it was not measured. (rows, columns, 3).
        size: Width and height of the second view [px].

    Returns:
        The structure, and the median error of the places that decided the motion [px].
    """
    is_first = not expected.information.any()
    chosen = np.flatnonzero(information[..., 0] + information[..., 2])
    chosen = chosen[:: -(-len(chosen) // _FITTED_CELLS)]
    structure, error_px = expected, 0.0
    for _ in range(2 if is_first else 1):
        cells = _Cells(
            rays.reshape(-1, 3)[chosen],
            structure.inverse_depth.ravel()[chosen],
            structure.information.ravel()[chosen],
            measured.reshape(-1, 2)[chosen],
            information.reshape(-1, 3)[chosen],
        )
        motion = structure.motion
        for _ in range(_FIRST_STEPS if is_first else _STEPS):
            motion, error_px = _corrected(motion, cells, size)
            if error_px < _SMALL_ERROR_PX:
                break
        structure = replace(structure, motion=motion)
        if is_first or error_px > _TINY_ERROR_PX:
            structure = _fit_depth(structure, rays, measured, information, size)
    # Nothing is known of how the camera came there.
    return (replace(structure, motion_before=motion) if is_first else structure), error_px


@dataclass(frozen=True)
class _Cells:
    """The cells that decide the motion; fields as in `Structure` and `fit_structure`."""

    rays: NDArray[np.float32]  # (N, 3)
    inverse_depth: NDArray[np.float32]  # (N,)
    depth_information: NDArray[np.float32]  # (N,)
    measured: NDArray[np.float32]  # (N, 2)
    information: NDArray[np.float32]  # (N, 3)


def _corrected(
    motion: RigidMotion, cells: _Cells, size: tuple[int, int]
) -> tuple[RigidMotion, float]:
    """One robust Gauss-Newton step of a motion, and the median error before it [px]."""
    focal = np.float32(_focal_px(size))
    places, z = _project(cells.rays, cells.inverse_depth, motion, size)
    off_x, off_y = (cells.measured - places).T
    by_x, between, by_y = cells.information.T
    error = by_x * off_x**2 + 2 * between * off_x * off_y + by_y * off_y**2  # [px^2]
    usual = float(np.partition(error, len(error) // 2)[len(error) // 2])
    weight = (z > _NEAREST_Z) / (1 + error / np.float32(max(_NOISE_PX**2, 2 * usual))) ** 2
    # Along the epipolar lines places tell of motion as far only as depth is known already.
    z = np.maximum(z, np.float32(_NEAREST_Z))
    slopes = (places - _middle(size)) / focal
    line_x, line_y = _epipolar(slopes, z, motion, focal).T
    known_x, known_y = by_x * line_x + between * line_y, between * line_x + by_y * line_y
    known = known_x * line_x + known_y * line_y + cells.depth_information + _NEAR_PLANE
    by_x, by_y = by_x - known_x**2 / known, by_y - known_y**2 / known
    across = between - known_x * known_y / known
    along_x, along_y = _derivatives(slopes, cells.inverse_depth / z) * focal
    weighted_x = (weight * by_x)[:, None] * along_x + (weight * across)[:, None] * along_y
    weighted_y = (weight * across)[:, None] * along_x + (weight * by_y)[:, None] * along_y
    prior = np.diag([_LITTLE_TURN] * 3 + [_LITTLE_TRANSLATION] * 3) * float(focal) ** 2
    normal = weighted_x.T @ along_x + weighted_y.T @ along_y + (weight.sum() + 1.0) * prior
    step = np.linalg.solve(normal, weighted_x.T @ off_x + weighted_y.T @ off_y)
    turn = np.asarray(cv2.Rodrigues(step[:3])[0])
    moved = RigidMotion(turn @ motion.rotation, turn @ motion.translation + step[3:])
    return moved, math.sqrt(usual)


def _derivatives(
    slopes: NDArray[np.float32], nearness: NDArray[np.float32]
) -> NDArray[np.float32]:
    """How slopes (N, 2) change with a turn about x, y and z and with translation. (2, N, 6)."""
    by_motion = np.zeros((2, len(slopes), 6), np.float32)
    along_x, along_y = by_motion
    x, y = slopes.T
    along_x[:, 0], along_x[:, 1], along_x[:, 2] = -x * y, 1 + x * x, -y
    along_y[:, 0], along_y[:, 1], along_y[:, 2] = -1 - y * y, x * y, x
    along_x[:, 3], along_x[:, 5] = nearness, -x * nearness
    along_y[:, 4], along_y[:, 5] = nearness, -y * nearness
    return by_motion


def _fit_depth(
    structure: Structure,
    rays: NDArray[np.float32],
    measured: NDArray[np.float32],
    information: NDArray[np.float32],
    size: tuple[int, int],
) -> Structure:
    """One step of least squares over inverse depth, smooth over the view."""
    focal, depth = np.float32(_focal_px(size)), structure.inverse_depth
    places, z = _project(rays, depth, structure.motion, size)
    off = measured - places
    slopes = (places - _middle(size)) / focal
    along = _epipolar(slopes, np.maximum(z, np.float32(_NEAREST_Z)), structure.motion, focal)
    by_x, between, by_y = information[..., 0], information[..., 1], information[..., 2]
    known_x = by_x * along[..., 0] + between * along[..., 1]
    known_y = between * along[..., 0] + by_y * along[..., 1]
    squares = known_x * along[..., 0] + known_y * along[..., 1]
    products = known_x * off[..., 0] + known_y * off[..., 1]
    error = by_x * off[..., 0] ** 2 + 2 * between * off[..., 0] * off[..., 1]
    error += by_y * off[..., 1] ** 2
    # What lies off the epipolar line is no matter of depth: it moves, or was mistaken.
    across = np.maximum(error - products**2 / (squares + np.float32(1e-6)), 0)
    weight = 1 / (1 + across / np.float32((2 * _NOISE_PX) ** 2)) ** 2
    remembered = np.float32(_REMEMBERED) * structure.information
    total = weight * squares + remembered
    depths = weight * (products + squares * depth) + remembered * depth
    return replace(structure, inverse_depth=_smooth(rays, depths, total), information=total)


def _epipolar(
    slopes: NDArray[np.float32], z: NDArray[np.float32], motion: RigidMotion, focal: np.float32
) -> NDArray[np.float32]:
    """How places with slopes (..., 2) and depth z move with inverse depth [px]. (..., 2)."""
    translation = motion.translation.astype(np.float32)
    lines = focal * (translation[:2] - slopes * translation[2]) / z[..., None]
    return np.asarray(lines, np.float32)


def _smooth(
    rays: NDArray[np.float32], depths: NDArray[np.float32], information: NDArray[np.float32]
) -> NDArray[np.float32]:
    """Inverse depth that follows a plane, and its surroundings where they know better.

    Inverse depth is linear over the image of a plane.
    """
    flat = rays.reshape(-1, 3)
    normal = (flat * information.reshape(-1, 1)).T @ flat + np.diag([_SLOPE, _SLOPE, _LEVEL])
    plane = np.linalg.solve(normal, flat.T @ depths.ravel() + [0.0, 0.0, _LEVEL])
    trend = np.clip(rays @ plane.astype(np.float32), *_DEPTH_RANGE)
    layers = np.stack([depths - information * trend, information], axis=-1)
    near = np.sum(
        [
            np.float32(share) * cv2.blur(layers, (box, box), borderType=cv2.BORDER_CONSTANT)
            for box, share in _SURROUNDINGS
        ],
        axis=0,
    )
    depth = trend + near[..., 0] / (near[..., 1] + np.float32(_NEAR_PLANE))
    return np.asarray(np.clip(depth, *_DEPTH_RANGE), np.float32)


def _project(
    rays: NDArray[np.float32],
    inverse_depth: NDArray[np.float32],
    motion: RigidMotion,
    size: tuple[int, int],
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Places (..., 2) [px] in the second view, and depth as a share of that in the first."""
    # Flat arrays: products of stacks of small matrices are slow.
    points = rays.reshape(-1, 3) @ motion.rotation.T.astype(np.float32)
    points += inverse_depth.reshape(-1, 1) * motion.translation.astype(np.float32)
    points = points.reshape(rays.shape)
    z = points[..., 2]
    scale = np.float32(_focal_px(size)) / np.maximum(z, np.float32(_NEAREST_Z))
    places = points[..., :2] * scale[..., None] + _middle(size)
    if float(z.min()) <= _NEAREST_Z:
        places[z <= _NEAREST_Z] = _BEHIND_PX
    return np.asarray(places, np.float32), z


def _focal_px(size: tuple[int, int]) -> float:
    return _FOCAL * max(size)


@lru_cache(maxsize=8)
def _middle(size: tuple[int, int]) -> NDArray[np.float32]:
    return (np.array(size, np.float32) - 1) / np.float32(2)
