# SPDX-License-Identifier: Apache-2.0
"""Poses and points of a few views from where the points are seen: least squares, robustly.

A pose is a rotation (3, 3) and a translation (3,) that bring a point of the map into the optical
axes of a view. Coordinates in a view are x / z and y / z, without distortion.
"""

from __future__ import annotations

from dataclasses import dataclass
import math
from typing import TYPE_CHECKING

import cv2
import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

_STEPS = 6
_ENOUGH_RAD = 1e-5  # a step that changes a pose by less is the last one
_NEAREST = 1e-3  # what lies nearer to the camera, or behind it, is in no view
_DAMPING = 1e-4
_SAMPLES = 60
_MIN_VOTES = 4  # points that agree on the length of a step


@dataclass(frozen=True)
class ViewPose:
    """Where a view is: brings points of the map into its optical axes."""

    rotation: NDArray[np.float64]  # (3, 3)
    translation: NDArray[np.float64]  # (3,)

    def points(self, points: NDArray[np.float64]) -> NDArray[np.float64]:
        """Points of the map in the axes of the view. Shape (N, 3)."""
        return np.asarray(points @ self.rotation.T + self.translation)

    @property
    def centre(self) -> NDArray[np.float64]:
        """Place of the camera in the map. Shape (3,)."""
        return np.asarray(-self.rotation.T @ self.translation)

    def after(self, earlier: ViewPose) -> ViewPose:
        """This view in the optical axes of an earlier one."""
        rotation = self.rotation @ earlier.rotation.T
        return ViewPose(rotation, self.translation - rotation @ earlier.translation)

    def then(self, later: ViewPose) -> ViewPose:
        """A view in the map that is given in the optical axes of this one; undoes `after`."""
        return ViewPose(
            later.rotation @ self.rotation, later.rotation @ self.translation + later.translation
        )


def robust_weights(squares: NDArray[np.float64], tolerance: float) -> NDArray[np.float64]:
    """Weights 0..1 by squared errors: Geman and McClure's, which lets outliers go."""
    return np.asarray(1.0 / (1.0 + squares / tolerance**2) ** 2)


def refined_pose(
    start: ViewPose,
    points: NDArray[np.float64],
    places: NDArray[np.float64],
    tolerance: float,
    weights: NDArray[np.float64] | None = None,
) -> tuple[ViewPose, NDArray[np.float64]]:
    """The pose that explains best where known points are seen, from a first guess.

    Args:
        start: The guess.
        points: Points of the map. Shape (N, 3).
        places: Where the view shows them. Shape (N, 2).
        tolerance: How far a point may be seen from where it belongs.
        weights: How much each point counts, 0..1. Shape (N,).

    Returns:
        The pose, and how far each point is off. Shape (N,).
    """
    pose = start
    scale = 4.0 * tolerance  # a wide one first: the guess may be far off
    for _ in range(_STEPS):
        residuals, pose_jacobian, _ = _linearised(pose.points(points), places, None)
        squares = (residuals**2).sum(axis=1)
        w = robust_weights(squares, scale)
        if weights is not None:
            w = w * weights
        j = pose_jacobian.reshape(-1, 6)
        wj = j * np.repeat(w, 2)[:, None]
        step = _solved(wj.T @ j, -wj.T @ residuals.ravel())
        pose = _moved(pose, step)
        scale = max(tolerance, scale / 2)
        if scale == tolerance and np.abs(step).max() < _ENOUGH_RAD:
            break
    residuals, _, _ = _linearised(pose.points(points), places, None)
    return pose, np.asarray(np.sqrt((residuals**2).sum(axis=1)))


def sampled_pose(
    points: NDArray[np.float64], places: NDArray[np.float64], tolerance: float
) -> ViewPose | None:
    """The pose on which most known points (N, 3) and their places (N, 2) agree, by RANSAC."""
    is_solved, turn, shift, _ = cv2.solvePnPRansac(
        points,
        places,
        np.eye(3),
        None,
        iterationsCount=_SAMPLES,
        reprojectionError=tolerance,
        flags=cv2.SOLVEPNP_EPNP,
    )
    if not is_solved or not np.isfinite(shift).all():
        return None
    return ViewPose(rotation_of(turn.ravel()), np.asarray(shift, np.float64).ravel())


def length_of_step(
    rotation: NDArray[np.float64],
    direction: NDArray[np.float64],
    points: NDArray[np.float64],
    places: NDArray[np.float64],
    tolerance: float,
) -> float | None:
    """Length of a step whose rotation (3, 3) and direction (3,) are known.

    Args:
        rotation: From the axes of the first view to those of the second.
        direction: Of the shift that belongs to it, unit length.
        points: In the axes of the first view. Shape (N, 3).
        places: Where the second view shows them. Shape (N, 2).
        tolerance: How far a point may be seen from where it belongs.

    Returns:
        The length; None: too few points agree on one.
    """
    rays = np.column_stack([places, np.ones(len(places))])
    turned = points @ rotation.T
    # The ray meets turned + length * direction: both cross products are opposite.
    across = np.cross(rays, direction[None])
    squares = (across**2).sum(axis=1)
    lengths = -(across * np.cross(rays, turned)).sum(axis=1) / np.maximum(squares, 1e-12)
    lengths = lengths[(squares > 1e-6) & np.isfinite(lengths)]
    best, votes = None, _MIN_VOTES - 1
    for length in lengths[lengths > 0]:
        seen = turned + length * direction
        off = np.hypot(*(seen[:, :2] / np.maximum(seen[:, 2:], _NEAREST) - places).T)
        count = int((off < 3 * tolerance).sum())
        if count > votes:
            best, votes = float(length), count
    return best


def refine_together(
    poses: list[ViewPose],
    points: NDArray[np.float64],
    places: NDArray[np.float64],
    weights: NDArray[np.float64],
    tolerance: float,
    *,
    fixed: int = 1,
    steps: int = 2,
) -> tuple[list[ViewPose], NDArray[np.float64], NDArray[np.float64]]:
    """Move poses and points together to where they explain best what is seen: a bundle.

    Args:
        poses: Of K views; the first `fixed` ones stay.
        points: Of the map. Shape (M, 3).
        places: Where each view shows each point. Shape (K, M, 2).
        weights: How much each place counts, 0..1; 0: not seen. Shape (K, M).
        tolerance: How far a point may be seen from where it belongs.
        fixed: How many poses stay as they are.
        steps: Of Levenberg and Marquardt's method.

    Returns:
        The poses, the points, and how far each is off where it is seen. Shapes (M, 3), (K, M).
    """
    damping = _DAMPING
    count = len(poses) - fixed
    current = _terms(poses, points, places, weights, tolerance)
    for _ in range(steps):
        cost, residuals, w, jp, jx = current
        wjp, wjx = jp * w[..., None, None], jx * w[..., None, None]
        h_points = np.einsum('kmai,kmaj->mij', wjx, jx)
        g_points = -np.einsum('kmai,kma->mi', wjx, residuals)
        h_poses = np.einsum('kmai,kmaj->kij', wjp[fixed:], jp[fixed:])
        g_poses = -np.einsum('kmai,kma->ki', wjp[fixed:], residuals[fixed:])
        cross = np.einsum('kmai,kmaj->mkij', wjp[fixed:], jx[fixed:])  # (M, K', 6, 3)
        diagonal = np.einsum('mii->mi', h_points)
        h_points[:, range(3), range(3)] += damping * diagonal + 1e-9
        inverse = np.linalg.inv(h_points)
        flat = cross.reshape(len(points), 6 * count, 3)
        half = flat @ inverse  # (M, 6 K', 3)
        system = -np.tensordot(half, flat, axes=((0, 2), (0, 2)))
        right = -np.einsum('mki,mi->k', half, g_points) + g_poses.ravel()
        for index in range(count):
            part = slice(6 * index, 6 * index + 6)
            block = h_poses[index].copy()
            block[range(6), range(6)] += damping * np.diag(block)
            system[part, part] += block
        step = _solved(system, right)
        moved = [
            *poses[:fixed],
            *(
                _moved(pose, part)
                for pose, part in zip(poses[fixed:], step.reshape(-1, 6), strict=True)
            ),
        ]
        shift = np.einsum('mij,mj->mi', inverse, g_points - np.einsum('mki,k->mi', flat, step))
        there = points + shift
        trial = _terms(moved, there, places, weights, tolerance)
        if trial[0] <= cost:
            poses, points, current, damping = moved, there, trial, damping / 4
            if cost - trial[0] < 1e-3 * cost:
                break
        else:
            damping *= 8
    return poses, points, np.sqrt((current[1] ** 2).sum(axis=-1))


def _terms(
    poses: list[ViewPose],
    points: NDArray[np.float64],
    places: NDArray[np.float64],
    weights: NDArray[np.float64],
    tolerance: float,
) -> tuple[
    float, NDArray[np.float64], NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]
]:
    """Cost, residuals, weights and Jacobians of all places."""
    rotations = np.stack([pose.rotation for pose in poses])
    offsets = np.stack([pose.translation for pose in poses])
    seen = np.einsum('kij,mj->kmi', rotations, points) + offsets[:, None]
    residuals, jp, jx = _linearised(seen, places, rotations)
    squares = (residuals**2).sum(axis=-1)
    w = weights * robust_weights(squares, tolerance)
    cost = float((weights * squares / (1.0 + squares / tolerance**2)).sum())
    return cost, residuals, w, jp, jx


def _linearised(
    seen: NDArray[np.float64],
    places: NDArray[np.float64],
    rotations: NDArray[np.float64] | None,
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Residuals (..., 2), and their derivatives by pose (..., 2, 6) and by point (..., 2, 3)."""
    x, y, z = seen[..., 0], seen[..., 1], seen[..., 2]
    inverse = 1.0 / np.maximum(z, _NEAREST)
    u, v = x * inverse, y * inverse
    residuals = np.stack([u, v], axis=-1) - places
    jacobian = np.zeros((*seen.shape[:-1], 2, 6))
    # By a turn (first three) and a shift (last three) of the point in the axes of the view.
    jacobian[..., 0, 0] = -u * v
    jacobian[..., 0, 1] = 1.0 + u * u
    jacobian[..., 0, 2] = -v
    jacobian[..., 1, 0] = -1.0 - v * v
    jacobian[..., 1, 1] = u * v
    jacobian[..., 1, 2] = u
    jacobian[..., 0, 3] = jacobian[..., 1, 4] = inverse
    jacobian[..., 0, 5] = -u * inverse
    jacobian[..., 1, 5] = -v * inverse
    by_point = jacobian[..., 3:]
    if rotations is not None:
        by_point = np.matmul(jacobian[..., 3:], rotations[:, None])
    return residuals, jacobian, by_point


def _moved(pose: ViewPose, step: NDArray[np.float64]) -> ViewPose:
    """A pose after a small turn and shift in the axes of its view. Shape of the step (6,)."""
    turn = rotation_of(step[:3])
    return ViewPose(turn @ pose.rotation, turn @ pose.translation + step[3:])


def rotation_of(vector: NDArray[np.float64]) -> NDArray[np.float64]:
    """Rotation matrix of a rotation vector [rad]. Shapes (3,) -> (3, 3)."""
    return np.asarray(cv2.Rodrigues(np.asarray(vector, np.float64))[0])


def vector_of(rotation: NDArray[np.float64]) -> NDArray[np.float64]:
    """Rotation vector [rad] of a rotation matrix, the inverse of `rotation_of`. Shape (3,)."""
    return np.asarray(cv2.Rodrigues(rotation)[0]).ravel()


def angle_of(rotation: NDArray[np.float64]) -> float:
    """Angle of a rotation [rad]."""
    return math.acos(float(np.clip((np.trace(rotation) - 1.0) / 2.0, -1.0, 1.0)))


def _solved(
    matrix: NDArray[np.float64], right: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Solution of a linear system; what it leaves open stays near zero."""
    trace = max(float(np.trace(matrix)) / len(matrix), 1e-12)
    return np.asarray(np.linalg.solve(matrix + 1e-9 * trace * np.eye(len(matrix)), right))


def triangulated(
    first: ViewPose,
    second: ViewPose,
    places1: NDArray[np.float64],
    places2: NDArray[np.float64],
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Points of the map that two views show, by the midpoint of their rays.

    Returns:
        The points (N, 3), and the angle between the rays of each [rad]; 0 where the rays meet
        behind a view or nowhere. Shape (N,).
    """
    rays1 = _rays(places1) @ first.rotation
    rays2 = _rays(places2) @ second.rotation
    between = second.centre - first.centre
    normal = np.cross(rays1, rays2)
    squared = np.maximum((normal**2).sum(axis=1), 1e-18)
    depth1 = np.einsum('ij,ij->i', np.cross(between[None], rays2), normal) / squared
    depth2 = np.einsum('ij,ij->i', np.cross(between[None], rays1), normal) / squared
    points = 0.5 * (
        first.centre + depth1[:, None] * rays1 + second.centre + depth2[:, None] * rays2
    )
    angle = np.arctan2(np.sqrt(squared), (rays1 * rays2).sum(axis=1))
    return points, np.where((depth1 > 0) & (depth2 > 0), angle, 0.0)


def _rays(places: NDArray[np.float64]) -> NDArray[np.float64]:
    rays = np.column_stack([places, np.ones(len(places))])
    return rays / np.linalg.norm(rays, axis=1, keepdims=True)


def turn_between(
    first: NDArray[np.float64],
    second: NDArray[np.float64],
    start: NDArray[np.float64],
    tolerance: float,
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The rotation that explains best how places moved, from a first guess.

    Returns:
        The rotation (3, 3) from the first view's axes to the second's, and how far each place is
        off [rad]. Shape (N,).
    """
    rays1, rays2 = _rays(first), _rays(second)
    rotation, scale = start, 4.0 * tolerance
    for _ in range(_STEPS):
        off = ((rays1 @ rotation.T - rays2) ** 2).sum(axis=1)
        w = robust_weights(off, scale)
        u, _, vt = np.linalg.svd((rays2 * w[:, None]).T @ rays1)
        rotation = u @ np.diag([1.0, 1.0, np.linalg.det(u @ vt)]) @ vt
        scale = max(tolerance, scale / 2)
    off = ((rays1 @ rotation.T - rays2) ** 2).sum(axis=1)
    return np.asarray(rotation), np.asarray(np.sqrt(off))
