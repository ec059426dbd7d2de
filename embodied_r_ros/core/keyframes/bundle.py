# SPDX-License-Identifier: Apache-2.0
"""Poses and points of a few views from where the points are seen: least squares, robustly.

A pose is a rotation (3, 3) and a translation (3,) that bring a point of the map into the optical
axes of a view. Coordinates in a view are x / z and y / z, without distortion.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import cv2
from embodied_r_ros.core.keyframes.small_matrices import median, rotation_of, vector_of
import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from embodied_r_ros.core.types.arrays import Bools, Float64s

_STEPS = 6
_ENOUGH = 3e-4  # a step that changes a pose by less is the last one
_NEAREST = 1e-3  # what lies nearer to the camera, or behind it, is in no view
_SPREAD = 2.0  # times the median of what is off a first guess: what may agree all the same
_WIDEST = 0.2
_DAMPING = 1e-4
FIXED = 1  # poses that a bundle leaves as they are
_BUNDLE_STEPS = 2
_LITTLE = 1e-3  # share of the cost that is not worth another step
_SAMPLES = 60
FITS = 2.0  # tolerances within which a point fits
MIN_SHARE = 0.5  # of the points that place a view has to agree
_MIN_VOTES = 4  # points that agree on the length of a step


@dataclass(frozen=True)
class ViewPose:
    """Where a view is: brings points of the map into its optical axes."""

    rotation: Float64s  # (3, 3)
    translation: Float64s  # (3,)

    def points(self, points: Float64s) -> Float64s:
        """Points of the map in the axes of the view. Shape (N, 3)."""
        return np.asarray(points @ self.rotation.T + self.translation)

    @property
    def centre(self) -> Float64s:
        """Place of the camera in the map. Shape (3,)."""
        return np.asarray(-self.rotation.T @ self.translation)

    def after(self, earlier: ViewPose) -> ViewPose:
        """This view in the optical axes of an earlier one."""
        rotation = self.rotation @ earlier.rotation.T
        return ViewPose(rotation, self.translation - rotation @ earlier.translation)

    def times(self, share: float) -> ViewPose:
        """A part or a multiple of a step: its turn and its shift alike."""
        return ViewPose(rotation_of(share * vector_of(self.rotation)), share * self.translation)

    def then(self, later: ViewPose) -> ViewPose:
        """A view in the map that is given in the optical axes of this one; undoes `after`."""
        return ViewPose(
            later.rotation @ self.rotation, later.rotation @ self.translation + later.translation
        )


def robust_weights(squares: Float64s, tolerance: float) -> Float64s:
    """Weights 0..1 by squared errors: Geman and McClure's, which lets outliers go."""
    return np.asarray(1.0 / (1.0 + squares / tolerance**2) ** 2)


def _first_scale(off: Float64s, tolerance: float) -> float:
    """How far things may be off a first guess, which may be a bad one."""
    spread = _SPREAD * median(off) if len(off) else 0.0
    return min(_WIDEST, max(tolerance, spread))


def refined_pose(
    start: ViewPose, points: Float64s, places: Float64s, tolerance: float
) -> tuple[ViewPose, Float64s]:
    """The pose that explains best where known points are seen, from a first guess.

    Args:
        start: The guess.
        points: Points of the map. Shape (N, 3).
        places: Where the view shows them. Shape (N, 2).
        tolerance: How far a point may be seen from where it belongs.

    Returns:
        The pose, and how far each point is off. Shape (N,).
    """
    pose, ahead, there = start, np.ascontiguousarray(points.T), places.T
    scale = _first_scale(offsets(start, points, places), tolerance)
    for _ in range(_STEPS):
        local = pose.rotation @ ahead + pose.translation[:, None]
        (residuals,), (jacobian,) = _linearised(local[None], there[None])
        weights = robust_weights((residuals**2).sum(axis=0), scale)
        flat, weighted = jacobian.reshape(6, -1), (jacobian * weights).reshape(6, -1)
        step = _solved(weighted @ flat.T, -weighted @ residuals.ravel())
        pose = moved(pose, step)
        if scale == tolerance and np.abs(step).max() < _ENOUGH:
            break
        scale = max(tolerance, scale / 2)
    return pose, offsets(pose, points, places)


def offsets(pose: ViewPose, points: Float64s, places: Float64s) -> Float64s:
    """How far points (N, 3) are seen from where a view shows them, at (N, 2). Shape (N,)."""
    local = pose.points(points)
    off = local[:, :2] / np.maximum(local[:, 2:], _NEAREST) - places
    return np.asarray(np.hypot(off[:, 0], off[:, 1]))


def sampled_pose(points: Float64s, places: Float64s, tolerance: float) -> ViewPose | None:
    """The pose on which most known points (N, 3) and their places (N, 2) agree, by RANSAC."""
    is_solved, turn, shift, _ = cv2.solvePnPRansac(
        points,
        places,
        np.eye(3),
        np.zeros(4),
        iterationsCount=_SAMPLES,
        reprojectionError=tolerance,
        flags=cv2.SOLVEPNP_EPNP,
    )
    if not is_solved or not np.isfinite(shift).all():
        return None
    return ViewPose(
        rotation_of(np.asarray(turn, np.float64).ravel()), np.asarray(shift, np.float64).ravel()
    )


def agreed_pose(
    points: Float64s, places: Float64s, tolerance: float, least: int
) -> tuple[ViewPose, Bools] | None:
    """The pose on which known points and their places agree, as of `refined_pose`.

    Returns:
        The pose, and which points fit; None: fewer than `least` of them, or than half, do.
    """
    start = sampled_pose(points, places, FITS * tolerance)
    if start is None:
        return None
    pose, off = refined_pose(start, points, places, tolerance)
    fits = off < FITS * tolerance
    return (pose, fits) if fits.sum() >= least and fits.mean() >= MIN_SHARE else None


def length_of_step(
    step: ViewPose, points: Float64s, places: Float64s, tolerance: float
) -> float | None:
    """Length of a step whose rotation and direction are known.

    Args:
        step: From the axes of the first view to those of the second; its length is 1.
        points: In the axes of the first view. Shape (N, 3).
        places: Where the second view shows them. Shape (N, 2).
        tolerance: How far a point may be seen from where it belongs.

    Returns:
        The length; None: too few points agree on one.
    """
    ahead = np.column_stack([places, np.ones(len(places))])
    turned, direction = points @ step.rotation.T, step.translation
    # The ray meets turned + length * direction: both cross products are opposite.
    across = _cross(ahead, direction)
    squares = (across**2).sum(axis=1)
    lengths = -(across * _cross(ahead, turned)).sum(axis=1) / np.maximum(squares, 1e-12)
    lengths = lengths[(squares > 1e-6) & np.isfinite(lengths)]
    best, votes = None, _MIN_VOTES - 1
    for length in lengths[lengths > 0]:
        local = turned + length * direction
        off = np.hypot(*(local[:, :2] / np.maximum(local[:, 2:], _NEAREST) - places).T)
        count = int((off < 3 * tolerance).sum())
        if count > votes:
            best, votes = float(length), count
    return best


@dataclass(frozen=True)
class Sightings:
    """Where K views show M points."""

    places: Float64s  # (K, M, 2)
    is_seen: Bools  # (K, M)


def refine_together(
    poses: Sequence[ViewPose], points: Float64s, sightings: Sightings, tolerance: float
) -> tuple[list[ViewPose], Float64s, Float64s]:
    """Move poses and points together to where they explain best what is seen: a bundle.

    Levenberg and Marquardt's method; points are eliminated first (Schur's complement).

    Args:
        poses: Of K views. The first `FIXED` ones stay, which holds place and scale.
        points: Of the map. Shape (M, 3).
        sightings: Where each view shows each point.
        tolerance: How far a point may be seen from where it belongs.

    Returns:
        The poses, the points (M, 3), and how far each is off, 0 where it is not seen (K, M).
    """
    damping, poses = _DAMPING, list(poses)
    current = _Fit(poses, points, sightings, tolerance)
    for _ in range(_BUNDLE_STEPS):
        steps, shifts = _bundle_step(current.terms, damping)
        others = [*poses[:FIXED], *map(moved, poses[FIXED:], steps)]
        trial = _Fit(others, points + shifts, sightings, tolerance)
        if trial.cost > current.cost:
            damping *= 8
            continue
        is_done = current.cost - trial.cost < _LITTLE * current.cost
        poses, points, current, damping = others, points + shifts, trial, damping / 4
        if is_done:
            break
    return poses, points, current.off


class _Fit:
    """How well poses and points explain what is seen; derivatives are computed when asked for."""

    def __init__(
        self, poses: list[ViewPose], points: Float64s, sightings: Sightings, tolerance: float
    ) -> None:
        self._rotations = np.array([pose.rotation for pose in poses])
        shifts = np.array([pose.translation for pose in poses])
        self._local = self._rotations @ points.T + shifts[..., None]  # (K, 3, M)
        self._places, self._is_seen = sightings.places.transpose(0, 2, 1), sightings.is_seen
        x, y = (_slopes(self._local) - self._places).transpose(1, 0, 2)
        squares = (x * x + y * y) * sightings.is_seen
        self._agreement = 1.0 / (1.0 + squares / tolerance**2)
        self.cost = float((squares * self._agreement).sum())
        self.off = np.sqrt(squares)  # (K, M)

    @cached_property
    def terms(self) -> _Terms:
        """The linear system of a step: residuals (K, 2, M), derivatives by pose and by point.

        Those have the shapes (K, 6, 2, M) and (K, 3, 2, M); all are times the roots of weights.
        """
        residuals, by_pose = _linearised(self._local, self._places)
        roots = (self._agreement * self._is_seen)[:, None]  # of Geman and McClure's weights
        residuals *= roots
        by_pose *= roots[:, None]
        by_shift = by_pose[:, 3:].reshape(len(by_pose), 3, -1)
        by_point = (self._rotations.transpose(0, 2, 1) @ by_shift).reshape(
            -1, 3, *by_pose.shape[2:]
        )
        return residuals, by_pose, by_point


_Terms = tuple['Float64s', 'Float64s', 'Float64s']


def _bundle_step(terms: _Terms, damping: float) -> tuple[Float64s, Float64s]:
    """Steps of the poses that may move (K - FIXED, 6), and of the points (M, 3)."""
    residuals, by_pose, by_point = terms
    count, many = len(residuals) - FIXED, residuals.shape[2]
    h_points = np.einsum('kpcm,kqcm->pqm', by_point, by_point)
    g_points = -np.einsum('kpcm,kcm->pm', by_point, residuals)
    diagonal = np.einsum('iim->im', h_points)  # a view of it
    diagonal *= 1.0 + damping
    diagonal += 1e-9
    inverse = _inverses(h_points)
    jp, jq = by_pose[FIXED:], by_point[FIXED:]
    flat = jp.reshape(count, 6, -1)
    h_poses = flat @ flat.transpose(0, 2, 1)
    g_poses = -(flat @ residuals[FIXED:].reshape(count, -1, 1))
    cross = jp[:, :, None, 0] * jq[:, None, :, 0]
    cross += jp[:, :, None, 1] * jq[:, None, :, 1]  # (K', 6, 3, M)
    half = np.einsum('kpqm,qrm->kprm', cross, inverse).reshape(6 * count, -1)
    system = -half @ cross.reshape(6 * count, -1).T
    for index, block in enumerate(h_poses):
        part = slice(6 * index, 6 * index + 6)
        system[part, part] += block
        system.flat[6 * index * (6 * count + 1) :: 6 * count + 1][:6] += damping * block.diagonal()
    steps = _solved(system, g_poses.ravel() - half @ g_points.ravel())
    left = g_points - (steps @ cross.reshape(6 * count, -1)).reshape(3, many)
    return steps.reshape(count, 6), np.einsum('pqm,qm->mp', inverse, left)


def _inverses(matrices: Float64s) -> Float64s:
    """Inverses of symmetric matrices, which stand in the last axis. (3, 3, M)."""
    (a, b, c), (_, d, e), (_, _, f) = matrices
    first, second, third = d * f - e * e, c * e - b * f, b * e - c * d
    result = np.empty_like(matrices)
    result[0, 0], result[1, 1], result[2, 2] = first, a * f - c * c, a * d - b * b
    result[0, 1] = result[1, 0] = second
    result[0, 2] = result[2, 0] = third
    result[1, 2] = result[2, 1] = b * c - a * e
    result /= a * first + b * second + c * third
    return result


def _linearised(local: Float64s, places: Float64s) -> tuple[Float64s, Float64s]:
    """Residuals (K, 2, M) of points in the axes of views, and their derivatives (K, 6, 2, M).

    Those are by a turn (first three) and a shift (last three) of the point in these axes.

    Args:
        local: The points. Shape (K, 3, M).
        places: Where the views show them. Shape (K, 2, M).
    """
    uv = _slopes(local)
    inverse = 1.0 / np.maximum(local[:, 2], _NEAREST)
    u, v = uv[:, 0], uv[:, 1]
    jacobian = np.zeros((len(local), 6, *uv.shape[1:]))
    jacobian[:, 1, 1] = u * v
    jacobian[:, 0, 0] = -jacobian[:, 1, 1]
    jacobian[:, 1, 0] = 1.0 + u * u
    jacobian[:, 2, 0] = -v
    jacobian[:, 0, 1] = -1.0 - v * v
    jacobian[:, 2, 1] = u
    jacobian[:, 3, 0] = jacobian[:, 4, 1] = inverse
    jacobian[:, 5] = -uv * inverse[:, None]
    return uv - places, jacobian


def _slopes(local: Float64s) -> Float64s:
    """Where views show points in their axes. Shapes (K, 3, M) -> (K, 2, M)."""
    return np.asarray(local[:, :2] / np.maximum(local[:, 2:], _NEAREST))


def moved(pose: ViewPose, step: Float64s) -> ViewPose:
    """A pose after a small turn and shift in the axes of its view. Shape of the step (6,)."""
    turn = rotation_of(step[:3])
    return ViewPose(turn @ pose.rotation, turn @ pose.translation + step[3:])


def _solved(matrix: Float64s, right: Float64s) -> Float64s:
    """Solution of a linear system, which is changed; what it leaves open stays near zero."""
    trace = max(float(matrix.trace()) / len(matrix), 1e-12)
    matrix.flat[:: len(matrix) + 1] += 1e-9 * trace
    return np.asarray(np.linalg.solve(matrix, right))


def triangulate(
    first: tuple[Float64s, Float64s], second: tuple[Float64s, Float64s]
) -> tuple[Float64s, Float64s]:
    """Points of the map by the rays of two views that show them: the middle between both.

    Args:
        first: Where each ray begins, and its direction, unit length, both (N, 3) or (3,).
        second: The same in the second view.

    Returns:
        The points (N, 3), and the angle between the rays of each [rad]; 0 where they meet behind a
        view or nowhere. Shape (N,).
    """
    (start1, rays1), (start2, rays2) = first, second
    between = start2 - start1
    normal = _cross(rays1, rays2)
    squared = np.maximum((normal**2).sum(axis=1), 1e-18)
    depth1 = (_cross(between, rays2) * normal).sum(axis=1) / squared
    depth2 = (_cross(between, rays1) * normal).sum(axis=1) / squared
    points = 0.5 * (start1 + depth1[:, None] * rays1 + start2 + depth2[:, None] * rays2)
    angle = np.arctan2(np.sqrt(squared), (rays1 * rays2).sum(axis=1))
    return points, np.where((depth1 > 0) & (depth2 > 0), angle, 0.0)


def triangulate_between(
    first: ViewPose, firsts: Float64s, second: ViewPose, seconds: Float64s
) -> tuple[Float64s, Float64s, Float64s]:
    """Points by the places (N, 2) at which two views show them.

    Returns:
        As `triangulate`, and how far each is off in both views. Shape (2, N).
    """
    points, angle = triangulate(
        (first.centre, rays(firsts) @ first.rotation),
        (second.centre, rays(seconds) @ second.rotation),
    )
    off = np.stack([offsets(first, points, firsts), offsets(second, points, seconds)])
    return points, angle, off


def _cross(a: Float64s, b: Float64s) -> Float64s:
    """Cross products; that of NumPy is slow for few vectors. Shapes (..., 3)."""
    ax, ay, az = a[..., 0], a[..., 1], a[..., 2]
    bx, by, bz = b[..., 0], b[..., 1], b[..., 2]
    return np.stack([ay * bz - az * by, az * bx - ax * bz, ax * by - ay * bx], axis=-1)


def rays(places: Float64s) -> Float64s:
    """Unit vectors in optical axes towards places (N, 2). Shape (N, 3)."""
    ahead = np.ones((len(places), 3))
    ahead[:, :2] = places
    ahead /= np.sqrt((ahead**2).sum(axis=1, keepdims=True))
    return ahead


def turn_between(
    first: Float64s, second: Float64s, start: Float64s, tolerance: float
) -> tuple[Float64s, Float64s]:
    """The rotation that explains best how places moved, from a first guess.

    Returns:
        The rotation (3, 3) from the first view's axes to the second's, and how far each place is
        off [rad]. Shape (N,).
    """
    rays1, rays2 = rays(first), rays(second)
    rotation = start
    scale = _first_scale(np.linalg.norm(rays1 @ rotation.T - rays2, axis=1), tolerance)
    for _ in range(_STEPS):
        off = ((rays1 @ rotation.T - rays2) ** 2).sum(axis=1)
        w = robust_weights(off, scale)
        u, _, vt = np.linalg.svd((rays2 * w[:, None]).T @ rays1)
        u[:, 2] *= np.linalg.det(u @ vt)
        rotation = u @ vt
        scale = max(tolerance, scale / 2)
    off = ((rays1 @ rotation.T - rays2) ** 2).sum(axis=1)
    return np.asarray(rotation), np.asarray(np.sqrt(off))
