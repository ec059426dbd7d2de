# SPDX-License-Identifier: Apache-2.0
"""Motion of the camera between two views, and its field of view where it states none."""

from __future__ import annotations

from dataclasses import dataclass, replace
import logging
import math
import threading
from typing import TYPE_CHECKING

import cv2
from embodied_r_ros.types.deltas import Motion, MotionSource
from embodied_r_ros.types.geometry import (
    BODY_FROM_OPTICAL,
    Intrinsics,
    rays_of_pixels,
    relative_motion,
    yaw_pitch_roll,
)
from embodied_r_ros.types.images import shrink
import numpy as np

if TYPE_CHECKING:
    from embodied_r_ros.types.geometry import Pose
    from numpy.typing import NDArray

_LOG = logging.getLogger(__name__)
MAX_SIDE_PX = 640  # larger images are shrunk first
_MAX_FEATURES = 1500
_CONTRAST = 0.02  # half of SIFT's own: indoor walls are faint
_MAX_RATIO = 0.8  # Lowe's ratio, of distances between descriptors


@dataclass(frozen=True)
class Features:
    """Distinctive points of one image."""

    points: NDArray[np.float64]  # (N, 2) [px] of the image as it was given
    descriptors: NDArray[np.float32]  # (N, 128), unit length


def find_features(image: NDArray[np.uint8]) -> Features:
    """Find the distinctive points of a BGR image, uint8, (H, W, 3)."""
    shrunk = shrink(image, MAX_SIDE_PX)
    grey = cv2.cvtColor(shrunk, cv2.COLOR_BGR2GRAY)
    sift = cv2.SIFT_create(nfeatures=_MAX_FEATURES, contrastThreshold=_CONTRAST)  # type: ignore[attr-defined]
    keypoints, descriptors = sift.detectAndCompute(grey, None)
    if descriptors is None:
        return Features(np.empty((0, 2)), np.empty((0, 128), np.float32))
    scale = np.divide(image.shape[1::-1], shrunk.shape[1::-1])
    # Pixel centres lie at integers, so the half pixel moves with the scale.
    points = (np.asarray(cv2.KeyPoint.convert(keypoints)) + 0.5) * scale - 0.5
    sums = np.maximum(descriptors.sum(axis=1, keepdims=True), 1e-9)
    return Features(np.asarray(points, np.float64), np.sqrt(descriptors / sums, dtype=np.float32))


def match_features(first: Features, second: Features) -> NDArray[np.intp]:
    """Pair the points that are each other's best and clearly better than the second best.

    Returns:
        Indices into the first and the second features. Shape (M, 2).
    """
    if len(first.points) < 2 or len(second.points) < 2:
        return np.empty((0, 2), np.intp)
    similarity = first.descriptors @ second.descriptors.T  # (N1, N2)
    rows = np.arange(len(similarity))
    best = similarity.argmax(axis=1)
    is_mutual = similarity.argmax(axis=0)[best] == rows
    top = similarity[rows, best]
    similarity[rows, best] = -1.0
    second_best = similarity.max(axis=1)
    # Squared distances of unit vectors are 2 - 2 s.
    is_clear = 1.0 - top < _MAX_RATIO**2 * (1.0 - second_best)
    indices = rows[is_mutual & is_clear]
    return np.stack([indices, best[indices]], axis=1)


UNKNOWN = Motion()
_TOLERANCE = 0.00225  # of the image's width: how far a match may lie off its epipolar line
# The estimators of OpenCV expect pixels, and fail on units of the focal length.
_PIXELS = 300.0
_CAMERA = np.diag([_PIXELS, _PIXELS, 1.0])  # (3, 3)
_MIN_SUPPORT = 20  # matches; so many do not agree by chance
_MIN_SHARE = 0.6  # of all matches must agree
_STILL_SHARE = 0.8  # the same for 'no motion': a far background alone must not pass for it
# A translation is real where it explains more than this share of what a pure rotation leaves, and
# this many matches more: some mismatches always fit a general motion.
_TRANSLATION_SHARE = 0.4
_TRANSLATION_LEAD = 10.0
_MIN_LEAD = 5.0  # matches more than a different motion explains, or the motion is ambiguous
_RIVAL_ANGLE_RAD = math.radians(25.0)  # between directions that are different
_ROTATION_STEPS = 6
_PINHOLE_LEAD = 1.1  # by which a pinhole has to explain more than the lens that is stated
_STILL_RAD = math.radians(1.0)  # smaller rotations are none


@dataclass(frozen=True)
class RelativePose:
    """How the second view lies to the first."""

    rotation: NDArray[np.float64]  # (3, 3)
    translation: NDArray[np.float64]  # (3,), unit length or zero
    support: float = 0.0  # matches that agree, each weighted 0..1 by how well


def motion_from_poses(earlier: Pose, later: Pose) -> Motion:
    """Motion between two poses of the camera link, metric.

    Raises:
        ValueError: The poses are in different fixed frames.
    """
    rotation, translation = relative_motion(earlier, later)
    x, y, z = (float(value) for value in translation)
    return Motion(MotionSource.ODOMETRY, *yaw_pitch_roll(rotation), (x, y, z), is_metric=True)


def motion_from_views(
    earlier: NDArray[np.uint8], later: NDArray[np.uint8], intrinsics: Intrinsics
) -> Motion:
    """Motion between two BGR images, uint8, (H, W, 3), of a camera with these intrinsics."""
    return motion_from_features(find_features(earlier), find_features(later), intrinsics)


def motion_from_features(earlier: Features, later: Features, intrinsics: Intrinsics) -> Motion:
    """Motion between two images whose features are known.

    Returns:
        A motion without length whose confidence is the share of matches that agree, or an UNKNOWN
        one where too few do, or where two different motions explain them alike.
    """
    pairs = match_features(earlier, later)
    if len(pairs) < _MIN_SUPPORT:
        return UNKNOWN
    pose = relative_pose(*prepared(earlier, later, pairs, intrinsics))
    if intrinsics.is_fisheye and (pose is None or pose.translation.any()):
        pose = _turn_of_a_pinhole(earlier, later, pairs, intrinsics, pose) or pose
    if pose is None or pose.support < _MIN_SUPPORT:
        return UNKNOWN
    share = pose.support / len(pairs)
    return _motion(pose, share) if share >= _needed_share(pose) else UNKNOWN


def _turn_of_a_pinhole(
    earlier: Features,
    later: Features,
    pairs: NDArray[np.intp],
    intrinsics: Intrinsics,
    fisheye: RelativePose | None,
) -> RelativePose | None:
    """The turn of a pinhole that explains more than a fisheye's motion; None: there is none.

    Drivers state an equidistant lens for images that they have rectified already. A turn tells:
    seen through the wrong lens, it needs a translation too and explains less.
    """
    pinhole = relative_pose(*prepared(earlier, later, pairs, replace(intrinsics, distortion=())))
    least = _PINHOLE_LEAD * (fisheye.support if fisheye else 0.0)
    if pinhole is None or pinhole.translation.any() or pinhole.support < least:
        return None
    _LOG.warning(
        'the calibration states an equidistant lens, and the images turn as those of a pinhole: '
        'it is not that of these images, which are taken for rectified'
    )
    return pinhole


def relative_pose(
    first: NDArray[np.float64], second: NDArray[np.float64], tolerance: float
) -> RelativePose | None:
    """Estimate how two views lie to each other; None: no model, or more than one, explains them.

    Args:
        first: Matched points in the first view, in units of the focal length. Shape (N, 2).
        second: The same points in the second view. Shape (N, 2).
        tolerance: How far a match may lie off its epipolar line, in the same units.
    """
    still, general = _models(first, second, tolerance)
    if not general:
        return still
    best = general[0]
    if still:
        least_lead = max(_TRANSLATION_LEAD, _TRANSLATION_SHARE * (len(first) - still.support))
        if best.support < still.support + least_lead:
            return still
    limit = best.support - _MIN_LEAD
    if any(pose.support > limit and _differ(pose, best) for pose in general[1:]):
        return None
    return best


def explained_in_general(
    first: NDArray[np.float64], second: NDArray[np.float64], tolerance: float
) -> float:
    """Matches that the best motion with a translation explains, as in `relative_pose`."""
    _, general = _models(first, second, tolerance)
    return general[0].support if general else 0.0


def explained_by_rotation(
    first: NDArray[np.float64], second: NDArray[np.float64], tolerance: float
) -> float:
    """Matches that the best pure rotation explains, as in `relative_pose`."""
    homography = _homography(first, second, tolerance)
    if homography is None:
        return 0.0
    start = _nearest_rotation(homography)
    return _pure_rotation(start, _rays(first), _rays(second), tolerance).support


def prepared(
    earlier: Features, later: Features, pairs: NDArray[np.intp], intrinsics: Intrinsics
) -> tuple[NDArray[np.float64], NDArray[np.float64], float]:
    """Matched points of both views and their tolerance, in units of the focal length."""
    first = -rays_of_pixels(intrinsics, earlier.points[pairs[:, 0]])[:, 1:]
    second = -rays_of_pixels(intrinsics, later.points[pairs[:, 1]])[:, 1:]
    return first, second, _TOLERANCE * intrinsics.width / intrinsics.fx


def _models(
    first: NDArray[np.float64], second: NDArray[np.float64], tolerance: float
) -> tuple[RelativePose | None, list[RelativePose]]:
    """The best pure rotation, and the general motions, best first."""
    x1, x2 = _rays(first), _rays(second)
    homography = _homography(first, second, tolerance)
    candidates = _general_candidates(first, second, homography, tolerance)
    general = [_score(pose, x1, x2, tolerance) for pose in candidates]
    general.sort(key=lambda pose: -pose.support)
    starts = [pose.rotation for pose in general[:1]]
    if homography is not None:
        starts.append(_nearest_rotation(homography))
    rotations = [_pure_rotation(start, x1, x2, tolerance) for start in starts]
    return max(rotations, key=lambda pose: pose.support, default=None), general


def _rays(points: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.column_stack([points, np.ones(len(points))])  # (N, 3)


def _homography(
    first: NDArray[np.float64], second: NDArray[np.float64], tolerance: float
) -> NDArray[np.float64] | None:
    homography, _ = cv2.findHomography(
        first * _PIXELS, second * _PIXELS, cv2.USAC_MAGSAC, tolerance * _PIXELS
    )
    if homography is None or not np.all(np.isfinite(homography)):
        return None
    return np.asarray(np.linalg.inv(_CAMERA) @ homography @ _CAMERA, np.float64)


def _nearest_rotation(matrix: NDArray[np.float64]) -> NDArray[np.float64]:
    """The rotation nearest to a matrix of any scale. Shape (3, 3)."""
    u, _, vt = np.linalg.svd(matrix * np.sign(np.linalg.det(matrix)))
    return np.asarray(u @ vt)


def _pure_rotation(
    start: NDArray[np.float64],
    x1: NDArray[np.float64],
    x2: NDArray[np.float64],
    tolerance: float,
) -> RelativePose:
    """The rotation that explains most, from a first guess (reweighted least squares)."""
    d1, d2 = (x / np.linalg.norm(x, axis=1, keepdims=True) for x in (x1, x2))
    rotation, support = start, 0.0
    for _ in range(_ROTATION_STEPS):
        # Two errors, along and across, where an epipolar line leaves one: twice the tolerance.
        weights = _weights(np.linalg.norm(d1 @ rotation.T - d2, axis=1) / (2 * tolerance))
        support = float(weights.sum())
        u, _, vt = np.linalg.svd((d2 * weights[:, None]).T @ d1)
        rotation = np.asarray(u @ np.diag([1.0, 1.0, np.linalg.det(u @ vt)]) @ vt)
    return RelativePose(rotation, np.zeros(3), support)


def _general_candidates(
    first: NDArray[np.float64],
    second: NDArray[np.float64],
    homography: NDArray[np.float64] | None,
    tolerance: float,
) -> list[RelativePose]:
    """Every rotation and direction that the essential matrix or the plane allows."""
    candidates: list[tuple[NDArray[np.float64], NDArray[np.float64]]] = []
    essential, _ = cv2.findEssentialMat(
        first * _PIXELS,
        second * _PIXELS,
        _CAMERA,
        cv2.USAC_MAGSAC,
        0.999,
        tolerance * _PIXELS,
    )
    if essential is not None and essential.shape == (3, 3):
        r1, r2, t = cv2.decomposeEssentialMat(essential)
        candidates += [(np.asarray(r), np.asarray(s * t)) for r in (r1, r2) for s in (1.0, -1.0)]
    if homography is not None:
        _, rotations, translations, _ = cv2.decomposeHomographyMat(homography, np.eye(3))
        motions = zip(rotations, translations, strict=True)
        candidates += [(np.asarray(r), np.asarray(t)) for r, t in motions]
    return [
        RelativePose(r, t.ravel() / np.linalg.norm(t))
        for r, t in candidates
        if np.linalg.norm(t) > 1e-6
    ]


def _score(
    pose: RelativePose, x1: NDArray[np.float64], x2: NDArray[np.float64], tolerance: float
) -> RelativePose:
    """The pose with the number of matches near their epipolar line and ahead of both views."""
    tx, ty, tz = pose.translation
    cross = np.array([[0.0, -tz, ty], [tz, 0.0, -tx], [-ty, tx, 0.0]])
    essential = cross @ pose.rotation
    lines2, lines1 = x1 @ essential.T, x2 @ essential  # (N, 3)
    residual = np.abs(np.einsum('ij,ij->i', x2, lines2))
    slopes = (lines2[:, :2] ** 2).sum(axis=1) + (lines1[:, :2] ** 2).sum(axis=1)
    sampson = residual / (tolerance * np.sqrt(slopes))
    weights = _weights(sampson) * _ahead(pose, x1, x2, tolerance)
    return RelativePose(pose.rotation, pose.translation, float(weights.sum()))


def _weights(errors: NDArray[np.float64]) -> NDArray[np.float64]:
    """Agreement of each match, 1 at no error and 0 from the tolerance on. Shape (N,)."""
    return np.asarray(np.maximum(0.0, 1.0 - errors**2))


def _ahead(
    pose: RelativePose, x1: NDArray[np.float64], x2: NDArray[np.float64], tolerance: float
) -> NDArray[np.bool_]:
    """Whether each point lies ahead of both views, or too far away to tell. Shape (N,)."""
    turned = x1 @ pose.rotation.T
    # Midpoint method: depths d1, d2 that bring d1 R x1 + t nearest to d2 x2.
    normal = np.cross(turned, x2)
    squared = (normal**2).sum(axis=1)
    d1 = np.einsum('ij,ij->i', np.cross(x2, pose.translation[None]), normal)
    d2 = np.einsum('ij,ij->i', np.cross(turned, pose.translation[None]), normal)
    lengths = np.linalg.norm(turned, axis=1) * np.linalg.norm(x2, axis=1)
    is_far = np.sqrt(squared) < 2 * tolerance * lengths
    ahead: NDArray[np.bool_] = is_far | ((d1 > 0) & (d2 > 0))
    return ahead


def _needed_share(pose: RelativePose) -> float:
    angle = math.acos(float(np.clip((np.trace(pose.rotation) - 1) / 2, -1.0, 1.0)))
    is_still = angle < _STILL_RAD and not pose.translation.any()
    return _STILL_SHARE if is_still else _MIN_SHARE


def _differ(a: RelativePose, b: RelativePose) -> bool:
    between = math.acos(float(np.clip(a.translation @ b.translation, -1.0, 1.0)))
    return between > _RIVAL_ANGLE_RAD


def _motion(pose: RelativePose, share: float) -> Motion:
    turned = BODY_FROM_OPTICAL @ pose.rotation.T  # columns: the later view's axes, seen earlier
    yaw, pitch, roll = yaw_pitch_roll(turned @ BODY_FROM_OPTICAL.T)
    x, y, z = (float(value) + 0.0 for value in -turned @ pose.translation)
    return Motion(MotionSource.TWO_VIEW, yaw, pitch, roll, (x, y, z), confidence=share)


_CANDIDATES = np.radians(np.arange(45.0, 126.0, 1.0))  # [rad]
_GENERAL = _CANDIDATES[::5]  # a general motion depends on the field of view less sharply
# Weight of a match that a pure rotation explains. What is one can be explained under a wrong field
# of view too, but by a general motion only.
_SIMPLICITY = 1.3
_MIN_MATCHES = 50  # pairs with fewer tell nothing
_MIN_VIEW_LEAD = 15.0  # matches more than any field of view that is clearly another one
_OTHER_RAD = math.radians(9.0)
_MAX_PAIRS = 30  # a camera that never turned by then keeps the assumed one


class FieldOfView:
    """Horizontal field of view of one camera. Safe for use from several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts = np.zeros(len(_CANDIDATES))
        self._pairs = 0
        self._fov_rad: float | None = None

    @property
    def radians(self) -> float | None:
        """The field of view [rad]; None: not known (yet)."""
        return self._fov_rad

    @property
    def is_settled(self) -> bool:
        """Whether more pairs would change nothing."""
        return self._fov_rad is not None or self._pairs >= _MAX_PAIRS

    def learn(self, earlier: Features, later: Features, width: int, height: int) -> None:
        """Take two views of the camera into account; after the answer is found, do nothing.

        Args:
            earlier: Features of one view.
            later: Features of another.
            width: Of both images [px].
            height: Of both images [px].
        """
        if self.is_settled:
            return
        pairs = match_features(earlier, later)
        if len(pairs) < _MIN_MATCHES:
            return
        counts = _count_explained(earlier, later, pairs, (width, height))
        with self._lock:
            self._counts += counts
            self._pairs += 1
            self._fov_rad = self._fov_rad or leading(self._counts)


def _count_explained(
    earlier: Features, later: Features, pairs: NDArray[np.intp], size: tuple[int, int]
) -> NDArray[np.float64]:
    """Matches that the best motion explains under each candidate. Shape (C,)."""
    views = [
        prepared(earlier, later, pairs, Intrinsics.from_fov(*size, float(fov)))
        for fov in _CANDIDATES
    ]
    rotation = np.array([explained_by_rotation(*view) for view in views])
    general = [explained_in_general(*view) for view in views[::5]]
    return np.asarray(
        np.maximum(np.interp(_CANDIDATES, _GENERAL, general), _SIMPLICITY * rotation), np.float64
    )


def leading(counts: NDArray[np.float64]) -> float | None:
    """The field of view that explains clearly more matches than all others [rad]; None: none."""
    best = int(counts.argmax())
    others = counts[np.abs(_CANDIDATES - _CANDIDATES[best]) > _OTHER_RAD]
    if counts[best] - others.max() < _MIN_VIEW_LEAD or best in {0, len(counts) - 1}:
        return None
    # The peak of the parabola through the three highest counts.
    left, middle, right = counts[best - 1 : best + 2]
    bend = left - 2 * middle + right
    shift = 0.5 * (left - right) / bend if bend < 0 else 0.0
    return float(_CANDIDATES[best] + shift * (_CANDIDATES[1] - _CANDIDATES[0]))
