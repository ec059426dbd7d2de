# SPDX-License-Identifier: Apache-2.0
"""How two views lie to each other, from where both show the same points."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
import math
from typing import TYPE_CHECKING

import cv2
from embodied_r_ros.core.keyframes.bundle import ViewPose
import numpy as np

if TYPE_CHECKING:
    from embodied_r_ros.core.types.arrays import Bools, Float64s

# The estimators of OpenCV expect pixels, and fail on units of the focal length.
_PIXELS = 300.0
_CAMERA = np.diag([_PIXELS, _PIXELS, 1.0])  # (3, 3)
# A translation is real where it explains more than this share of what a pure rotation leaves, and
# this many matches more: some mismatches always fit a general motion.
_TRANSLATION_SHARE = 0.4
_TRANSLATION_LEAD = 10.0
_MIN_LEAD = 5.0  # matches more than a different motion explains, or the motion is ambiguous
_RIVAL_ANGLE_RAD = math.radians(25.0)  # between directions that are different
_ROTATION_STEPS = 6


@dataclass(frozen=True)
class RelativePose(ViewPose):
    """How the second view lies to the first, with a translation of unit length or zero."""

    support: float = 0.0  # matches that agree, each weighted 0..1 by how well


def relative_pose(
    first: Float64s, second: Float64s, tolerance: float, least_share: float = _TRANSLATION_SHARE
) -> RelativePose | None:
    """Estimate how two views lie to each other; None: no model, or more than one, explains them.

    Args:
        first: Matched points in the first view, in units of the focal length. Shape (N, 2).
        second: The same points in the second view. Shape (N, 2).
        tolerance: How far a match may lie off its epipolar line, in the same units.
        least_share: A translation is one where it explains more than this share of the matches
            that a rotation leaves.
    """
    still, general = _Matches(first, second, tolerance).models()
    if not general:
        return still
    best = general[0]
    if still:
        least_lead = max(_TRANSLATION_LEAD, least_share * (len(first) - still.support))
        if best.support < still.support + least_lead:
            return still
    limit = best.support - _MIN_LEAD
    if any(pose.support > limit and _differ(pose, best) for pose in general[1:]):
        return None
    return best


def possible_poses(first: Float64s, second: Float64s, tolerance: float) -> list[RelativePose]:
    """Every pose that explains about as much as the best, as in `relative_pose`; best first."""
    still, general = _Matches(first, second, tolerance).models()
    poses = sorted([*general, *([still] if still else [])], key=lambda pose: -pose.support)
    return [pose for pose in poses if pose.support > poses[0].support - _MIN_LEAD]


def explained_in_general(first: Float64s, second: Float64s, tolerance: float) -> float:
    """Matches that the best motion with a translation explains, as in `relative_pose`."""
    _, general = _Matches(first, second, tolerance).models()
    return general[0].support if general else 0.0


def explained_by_rotation(first: Float64s, second: Float64s, tolerance: float) -> float:
    """Matches that the best pure rotation explains, as in `relative_pose`."""
    matches = _Matches(first, second, tolerance)
    if matches.homography is None:
        return 0.0
    return matches.pure_rotation(_nearest_rotation(matches.homography)).support


class _Matches:
    """Where two views show the same points, as of `relative_pose`."""

    def __init__(self, first: Float64s, second: Float64s, tolerance: float) -> None:
        self._pixels, self._tolerance = (first * _PIXELS, second * _PIXELS), tolerance
        # Rays through the points. (N, 3).
        self._x1, self._x2 = (np.column_stack([x, np.ones(len(x))]) for x in (first, second))

    @cached_property
    def homography(self) -> Float64s | None:
        """The plane that explains most. Shape (3, 3)."""
        homography, _ = cv2.findHomography(
            *self._pixels, cv2.USAC_MAGSAC, self._tolerance * _PIXELS
        )
        if homography is None or not np.all(np.isfinite(homography)):
            return None
        return np.asarray(np.linalg.inv(_CAMERA) @ homography @ _CAMERA, np.float64)

    def models(self) -> tuple[RelativePose | None, list[RelativePose]]:
        """The best pure rotation, and the general motions, best first."""
        general = sorted(map(self._scored, self._candidates()), key=lambda pose: -pose.support)
        starts = [pose.rotation for pose in general[:1]]
        if self.homography is not None:
            starts.append(_nearest_rotation(self.homography))
        rotations = map(self.pure_rotation, starts)
        return max(rotations, key=lambda pose: pose.support, default=None), general

    def pure_rotation(self, start: Float64s) -> RelativePose:
        """The rotation that explains most, from a first guess (reweighted least squares)."""
        d1, d2 = (x / np.linalg.norm(x, axis=1, keepdims=True) for x in (self._x1, self._x2))
        rotation, support = start, 0.0
        for _ in range(_ROTATION_STEPS):
            # Two errors, along and across, where an epipolar line leaves one: twice the tolerance.
            off = np.linalg.norm(d1 @ rotation.T - d2, axis=1)
            weights = _weights(off / (2 * self._tolerance))
            support = float(weights.sum())
            u, _, vt = np.linalg.svd((d2 * weights[:, None]).T @ d1)
            rotation = np.asarray(u @ np.diag([1.0, 1.0, np.linalg.det(u @ vt)]) @ vt)
        return RelativePose(rotation, np.zeros(3), support)

    def _candidates(self) -> list[RelativePose]:
        """Every rotation and direction that the essential matrix or the plane allows."""
        candidates: list[tuple[Float64s, Float64s]] = []
        tolerance = self._tolerance * _PIXELS
        essential, _ = cv2.findEssentialMat(
            *self._pixels, _CAMERA, cv2.USAC_MAGSAC, 0.999, tolerance
        )
        if essential is not None and essential.shape == (3, 3):
            r1, r2, t = cv2.decomposeEssentialMat(essential)
            candidates += [(np.asarray(r), np.asarray(s * t)) for r in (r1, r2) for s in (1, -1)]
        if self.homography is not None:
            _, turns, ways, _ = cv2.decomposeHomographyMat(self.homography, np.eye(3))
            motions = zip(turns, ways, strict=True)
            candidates += [(np.asarray(r), np.asarray(t)) for r, t in motions]
        return [
            RelativePose(r, t.ravel() / np.linalg.norm(t))
            for r, t in candidates
            if np.linalg.norm(t) > 1e-6
        ]

    def _scored(self, pose: RelativePose) -> RelativePose:
        """The pose with the number of matches near their epipolar line and ahead of both views."""
        tx, ty, tz = pose.translation
        cross = np.array([[0.0, -tz, ty], [tz, 0.0, -tx], [-ty, tx, 0.0]])
        essential = cross @ pose.rotation
        lines2, lines1 = self._x1 @ essential.T, self._x2 @ essential  # (N, 3)
        residual = np.abs(np.einsum('ij,ij->i', self._x2, lines2))
        slopes = (lines2[:, :2] ** 2).sum(axis=1) + (lines1[:, :2] ** 2).sum(axis=1)
        sampson = residual / (self._tolerance * np.sqrt(slopes))
        weights = _weights(sampson) * self._ahead(pose)
        return RelativePose(pose.rotation, pose.translation, float(weights.sum()))

    def _ahead(self, pose: RelativePose) -> Bools:
        """Whether each point lies ahead of both views, or too far away to tell. Shape (N,)."""
        turned, x2 = self._x1 @ pose.rotation.T, self._x2
        # Midpoint method: depths d1, d2 that bring d1 R x1 + t nearest to d2 x2.
        normal = np.cross(turned, x2)
        squared = (normal**2).sum(axis=1)
        d1 = np.einsum('ij,ij->i', np.cross(x2, pose.translation[None]), normal)
        d2 = np.einsum('ij,ij->i', np.cross(turned, pose.translation[None]), normal)
        lengths = np.linalg.norm(turned, axis=1) * np.linalg.norm(x2, axis=1)
        is_far = np.sqrt(squared) < 2 * self._tolerance * lengths
        ahead: Bools = is_far | ((d1 > 0) & (d2 > 0))
        return ahead


def _nearest_rotation(matrix: Float64s) -> Float64s:
    """The rotation nearest to a matrix of any scale. Shape (3, 3)."""
    u, _, vt = np.linalg.svd(matrix * np.sign(np.linalg.det(matrix)))
    return np.asarray(u @ vt)


def _weights(errors: Float64s) -> Float64s:
    """Agreement of each match, 1 at no error and 0 from the tolerance on. Shape (N,)."""
    return np.asarray(np.maximum(0.0, 1.0 - errors**2))


def _differ(a: RelativePose, b: RelativePose) -> bool:
    between = math.acos(float(np.clip(a.translation @ b.translation, -1.0, 1.0)))
    return between > _RIVAL_ANGLE_RAD
