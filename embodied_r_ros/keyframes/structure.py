# SPDX-License-Identifier: Apache-2.0
"""Camera motion between two views and inverse depth over the first, from measured offsets.

Measured places are trusted only across the edges that the texture has, so that a straight edge
says nothing of movement along it. Lengths have no scale: inverse depth is 1 on average.
"""

from __future__ import annotations

from dataclasses import dataclass
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
_FITTED_CELLS = 300  # at most so many decide the motion
_FIRST_STEPS, _STEPS = 3, 2  # of Gauss and Newton: from nothing, and from the image before
_REMEMBERED = 0.7  # of the information on depth, per image
_DEPTH_RANGE = 0.02, 20.0  # of inverse depth
# Prior of motion and depth, as information [px^2]: little translation, a plane across the view,
# and cells near that plane.
_LITTLE_TURN, _LITTLE_TRANSLATION = 1e-7, 1e-3
_SLOPE, _LEVEL, _NEAR_PLANE = 300.0, 1000.0, 3.0
# Box sizes [cells] and weights by which cells speak for their surroundings.
_SURROUNDINGS = ((3, 1.0), (9, 1e-1), (31, 1e-3))


@dataclass(frozen=True)
class Structure:
    """Where the second camera stands, and how far away each cell of the first view is."""

    rotation: NDArray[np.float64]  # (3, 3), from the first optical axes to the second
    translation: NDArray[np.float64]  # (3,), of the first camera, in the second optical axes
    inverse_depth: NDArray[np.float32]  # (rows, columns), > 0
    information: NDArray[np.float32]  # (rows, columns), on inverse depth [px^2]

    def places(self, rays: NDArray[np.float32], size: tuple[int, int]) -> NDArray[np.float32]:
        """Where the second view, of a width and height [px], shows each cell. (rows, cols, 2)."""
        return _project(rays, self.inverse_depth, self, size)[0]


def rays_through(places: NDArray[np.float32], size: tuple[int, int]) -> NDArray[np.float32]:
    """Directions (x, y, 1) of places (..., 2) [px] in a view of a width and height [px]."""
    slopes = (places - _middle(size)) / _focal_px(size)
    return np.concatenate([slopes, np.ones_like(slopes[..., :1])], axis=-1, dtype=np.float32)


def first_structure(rays: NDArray[np.float32], roll_rad: float) -> Structure:
    """A camera that only rolled before a plane across the view."""
    ones = np.ones(rays.shape[:2], np.float32)
    rotation = cv2.Rodrigues(np.array([0.0, 0.0, roll_rad]))[0]
    return Structure(np.asarray(rotation), np.zeros(3), ones, np.zeros_like(ones))


def fit_structure(
    before: Structure,
    rays: NDArray[np.float32],
    measured: NDArray[np.float32],
    information: NDArray[np.float32],
    size: tuple[int, int],
) -> tuple[Structure, float]:
    """Correct motion and depth by where cells were measured to be.

    Args:
        before: Of the image before, or `first_structure`.
        rays: Direction of each cell in the first view. (rows, columns, 3).
        measured: Place of each cell in the second view [px]. (rows, columns, 2).
        information: How well the place is known along x, between, and along y, 0..1 each; 0 where
            it was not measured. (rows, columns, 3).
        size: Width and height of the second view [px].

    Returns:
        The structure, and the median error of the places that decided the motion [px].
    """
    is_first = not before.information.any()
    cells = np.flatnonzero(information[..., 0] + information[..., 2])
    cells = cells[:: -(-len(cells) // _FITTED_CELLS)]
    structure, error_px = before, 0.0
    for _ in range(2 if is_first else 1):
        structure, error_px = _fit_motion(
            structure,
            rays.reshape(-1, 3)[cells],
            structure.inverse_depth.ravel()[cells],
            measured.reshape(-1, 2)[cells],
            information.reshape(-1, 3)[cells],
            size,
            _FIRST_STEPS if is_first else _STEPS,
        )
        structure = _fit_depth(structure, rays, measured, information, size)
    return structure, error_px


def _fit_motion(
    structure: Structure,
    rays: NDArray[np.float32],
    inverse_depth: NDArray[np.float32],
    measured: NDArray[np.float32],
    information: NDArray[np.float32],
    size: tuple[int, int],
    steps: int,
) -> tuple[Structure, float]:
    """Robust least squares over rotation and translation. Arrays are (N, ...)."""
    focal = np.float32(_focal_px(size))
    prior = np.diag([_LITTLE_TURN] * 3 + [_LITTLE_TRANSLATION] * 3) * float(focal) ** 2
    rotation, translation, error = structure.rotation, structure.translation, np.zeros(1)
    by_x, between, by_y = information.T
    jacobian = np.zeros((2, len(rays), 6), np.float32)
    for _ in range(steps):
        now = Structure(rotation, translation, inverse_depth, structure.information)
        places, z = _project(rays, inverse_depth, now, size)
        off_x, off_y = (measured - places).T
        error = by_x * off_x**2 + 2 * between * off_x * off_y + by_y * off_y**2  # [px^2]
        usual = max(_NOISE_PX**2, 2 * float(np.median(error)))
        weight = (z > _NEAREST_Z) / (1 + error / np.float32(usual)) ** 2
        x, y = ((places - _middle(size)) / focal).T
        nearness = inverse_depth / np.maximum(z, _NEAREST_Z)
        jacobian[0, :, 0], jacobian[1, :, 0] = -x * y, -1 - y * y
        jacobian[0, :, 1], jacobian[1, :, 1] = 1 + x * x, x * y
        jacobian[0, :, 2], jacobian[1, :, 2] = -y, x
        jacobian[0, :, 3], jacobian[1, :, 4] = nearness, nearness
        jacobian[0, :, 5], jacobian[1, :, 5] = -x * nearness, -y * nearness
        along_x, along_y = jacobian * focal
        weighted_x = (weight * by_x)[:, None] * along_x + (weight * between)[:, None] * along_y
        weighted_y = (weight * between)[:, None] * along_x + (weight * by_y)[:, None] * along_y
        normal = weighted_x.T @ along_x + weighted_y.T @ along_y + (weight.sum() + 1.0) * prior
        step = np.linalg.solve(normal, weighted_x.T @ off_x + weighted_y.T @ off_y)
        turn = np.asarray(cv2.Rodrigues(step[:3])[0])
        rotation, translation = turn @ rotation, turn @ translation + step[3:]
    moved = Structure(rotation, translation, structure.inverse_depth, structure.information)
    return moved, float(np.sqrt(np.median(error)))


def _fit_depth(
    structure: Structure,
    rays: NDArray[np.float32],
    measured: NDArray[np.float32],
    information: NDArray[np.float32],
    size: tuple[int, int],
) -> Structure:
    """One step of least squares over inverse depth, smooth over the view."""
    focal, depth = np.float32(_focal_px(size)), structure.inverse_depth
    places, z = _project(rays, depth, structure, size)
    off = measured - places
    translation = structure.translation.astype(np.float32)
    slopes = (places - _middle(size)) / focal
    # How places move with inverse depth: along the epipolar lines.
    along = focal * (translation[:2] - slopes * translation[2])
    along /= np.maximum(z, np.float32(_NEAREST_Z))[..., None]
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
    return Structure(
        structure.rotation, structure.translation, _smooth(rays, depths, total), total
    )


def _smooth(
    rays: NDArray[np.float32], depths: NDArray[np.float32], information: NDArray[np.float32]
) -> NDArray[np.float32]:
    """Inverse depth that follows a plane, and its surroundings where they know better.

    Inverse depth is linear over the image of a plane.
    """
    flat = rays.reshape(-1, 3)
    normal = (flat * information.reshape(-1, 1)).T @ flat + np.diag([_SLOPE, _SLOPE, _LEVEL])
    plane = np.linalg.solve(normal, flat.T @ depths.ravel() + [0.0, 0.0, _LEVEL])
    trend = np.clip(rays @ plane.astype(np.float32), *np.float32(_DEPTH_RANGE))
    layers = np.stack([depths - information * trend, information], axis=-1)
    near = np.sum(
        [
            np.float32(share) * cv2.blur(layers, (box, box), borderType=cv2.BORDER_CONSTANT)
            for box, share in _SURROUNDINGS
        ],
        axis=0,
    )
    depth = trend + near[..., 0] / (near[..., 1] + np.float32(_NEAR_PLANE))
    return np.asarray(np.clip(depth, *np.float32(_DEPTH_RANGE)), np.float32)


def _project(
    rays: NDArray[np.float32],
    inverse_depth: NDArray[np.float32],
    structure: Structure,
    size: tuple[int, int],
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Places (..., 2) [px] in the second view, and depth as a share of that in the first."""
    points = rays @ structure.rotation.T.astype(np.float32)
    points += inverse_depth[..., None] * structure.translation.astype(np.float32)
    z = points[..., 2]
    places = points[..., :2] / np.maximum(z, np.float32(_NEAREST_Z))[..., None]
    places = places * np.float32(_focal_px(size)) + _middle(size)
    places[z <= _NEAREST_Z] = _BEHIND_PX
    return np.clip(places, _BEHIND_PX, -_BEHIND_PX), z


def _focal_px(size: tuple[int, int]) -> float:
    return _FOCAL * max(size)


def _middle(size: tuple[int, int]) -> NDArray[np.float32]:
    return (np.array(size, np.float32) - 1) / 2
