# SPDX-License-Identifier: Apache-2.0
"""Motion of the camera between two views, and its field of view where it states none."""

from __future__ import annotations

from dataclasses import dataclass, replace
import logging
import math
import threading
from typing import TYPE_CHECKING

import cv2
from embodied_r_ros.core.keyframes.relative_pose import (
    explained_by_rotation,
    explained_in_general,
    relative_pose,
    RelativePose,
)
from embodied_r_ros.core.types.deltas import Motion, MotionSource, NO_MOTION, ScaleSource
from embodied_r_ros.core.types.geometry import (
    as_position,
    BODY_FROM_OPTICAL,
    Intrinsics,
    places_of_pixels,
    relative_motion,
    rotation_from_ypr,
    yaw_pitch_roll,
)
from embodied_r_ros.core.types.images import shrink
import numpy as np

if TYPE_CHECKING:
    from embodied_r_ros.core.types.arrays import Float32s, Float64s, Indices, UInt8s
    from embodied_r_ros.core.types.geometry import Pose
    from embodied_r_ros.core.types.images import PackedMask
    from embodied_r_ros.core.types.keyframes import Keyframe

_LOG = logging.getLogger(__name__)
MAX_SIDE_PX = 640  # larger images are shrunk first
_MAX_FEATURES = 1500
_CONTRAST = 0.02  # half of SIFT's own: indoor walls are faint
_RIM_PX = 17  # around a place that describe it
_MAX_RATIO = 0.8  # Lowe's ratio, of distances between descriptors


@dataclass(frozen=True)
class Features:
    """Distinctive points of one image."""

    points: Float64s  # (N, 2) [px] of the image as it was given
    descriptors: Float32s  # (N, 128), unit length


def find_features(image: UInt8s, fixed_mask: PackedMask | None = None) -> Features:
    """Find the distinctive points of a BGR image, uint8, (H, W, 3).

    Args:
        image: The image.
        fixed_mask: What is fixed to the camera, where none are sought.
    """
    shrunk = shrink(image, MAX_SIDE_PX)
    grey = cv2.cvtColor(shrunk, cv2.COLOR_BGR2GRAY)
    sift = cv2.SIFT_create(nfeatures=_MAX_FEATURES, contrastThreshold=_CONTRAST)  # type: ignore[attr-defined]
    usable = None
    if fixed_mask is not None:
        fixed = fixed_mask.unpack(*grey.shape[::-1]).astype(np.uint8)
        usable = 1 - cv2.dilate(fixed, np.ones((_RIM_PX, _RIM_PX), np.uint8))
    keypoints, descriptors = sift.detectAndCompute(grey, usable)
    if descriptors is None:
        return Features(np.empty((0, 2)), np.empty((0, 128), np.float32))
    scale = np.divide(image.shape[1::-1], shrunk.shape[1::-1])
    # Pixel centres lie at integers, so the half pixel moves with the scale.
    points = (np.asarray(cv2.KeyPoint.convert(keypoints)) + 0.5) * scale - 0.5
    sums = np.maximum(descriptors.sum(axis=1, keepdims=True), 1e-9)
    return Features(np.asarray(points, np.float64), np.sqrt(descriptors / sums, dtype=np.float32))


def match_features(first: Features, second: Features) -> Indices:
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
_ONE_WAY_RAD = math.radians(40.0)  # between directions that are put together
_TOLERANCE = 0.00225  # of the image's width: how far a match may lie off its epipolar line
_MIN_SUPPORT = 20  # matches; so many do not agree by chance
_MIN_SHARE = 0.6  # of all matches must agree
_STILL_SHARE = 0.8  # the same for 'no motion': a far background alone must not pass for it
_PINHOLE_LEAD = 1.1  # by which a pinhole has to explain more than the lens that is stated
_STILL_RAD = math.radians(1.0)  # smaller rotations are none


def motion_from_poses(earlier: Pose, later: Pose) -> Motion:
    """Motion between two poses of the camera link, metric.

    Raises:
        ValueError: The poses are in different fixed frames.
    """
    rotation, translation = relative_motion(earlier, later)
    way = as_position(translation)
    return Motion(MotionSource.ODOMETRY, *yaw_pitch_roll(rotation), way, is_metric=True)


def known_motion(
    earlier: Keyframe, later: Keyframe, *, use_odometry: bool = True
) -> Motion | None:
    """Motion that keyframes bring along: by their poses, else as it was followed.

    Returns:
        The motion. None: a pose is missing or in another frame, and the camera was not followed
        between these two, or only with an assumed field of view.

    Raises:
        ValueError: A pose has no orientation.
    """
    a, b = earlier.pose, later.pose
    if use_odometry and a and b and a.frame_id == b.frame_id:
        way_m = later.way_m if later.reference_id == earlier.id else None
        return replace(motion_from_poses(a, b), way_m=math.nan if way_m is None else way_m)
    followed = followed_motion(earlier, later, use_odometry=use_odometry)
    return followed if later.intrinsics or followed == NO_MOTION else None


def followed_motion(
    earlier: Keyframe, later: Keyframe, *, use_odometry: bool = True
) -> Motion | None:
    """Motion as it was followed from image to image; None: not between these two keyframes.

    Without odometry, the length that odometry gave is left out, and its direction stays.
    """
    is_next = later.reference_id == earlier.id and later.id != earlier.id
    motion = later.motion if is_next else None
    if motion is None or use_odometry or motion.scale is not ScaleSource.ODOMETRY:
        return motion
    length = math.hypot(*motion.translation)
    way = as_position(value / length if length > 0 else 0.0 for value in motion.translation)
    return replace(motion, translation=way, is_metric=False, scale=ScaleSource.UNKNOWN)


def composed_motion(first: Motion | None, second: Motion | None) -> Motion | None:
    """One motion after the other, of keyframes that were passed over.

    Without lengths in one unit, directions are put together where they agree: from keyframe to
    keyframe, the ways are of about one length.

    Returns:
        The motion. None: one of both is not known, or ways without metres disagree.
    """
    if first is None or second is None:
        return None
    turns = [rotation_from_ypr(m.yaw_rad, m.pitch_rad, m.roll_rad) for m in (first, second)]
    ways = [np.array(first.translation), turns[0] @ np.array(second.translation)]
    way = np.asarray(ways[0] + ways[1])
    is_metric = first.is_metric and second.is_metric
    scales = {each.scale for each in (first, second) if any(each.translation)}
    is_relative = scales == {ScaleSource.RELATIVE}
    scale = (
        next(iter(scales)) if is_relative else second.scale if is_metric else ScaleSource.UNKNOWN
    )
    if not (is_metric or is_relative):
        lengths = [float(np.linalg.norm(each)) for each in ways]
        units = [each / length for each, length in zip(ways, lengths, strict=True) if length > 0]
        if len(units) == len(ways) and math.acos(_cosine(*units)) > _ONE_WAY_RAD:
            return None
        way = np.sum(units, axis=0) if units else np.zeros(3)
        way = way / max(float(np.linalg.norm(way)), 1e-9)
    return Motion(
        second.source,
        *yaw_pitch_roll(turns[0] @ turns[1]),
        as_position(way),
        is_metric,
        min(first.confidence, second.confidence),
        scale,
    )


def with_length(motion: Motion, other: Motion) -> Motion:
    """A motion of unit length, as long as another one of the same two views, in its unit."""
    length = math.hypot(*other.translation)
    way = as_position(length * value for value in motion.translation)
    return replace(motion, translation=way, is_metric=other.is_metric, scale=other.scale)


def _cosine(a: Float64s, b: Float64s) -> float:
    return float(np.clip(a @ b, -1.0, 1.0))


def motion_from_views(earlier: UInt8s, later: UInt8s, intrinsics: Intrinsics) -> Motion:
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
    points = earlier.points[pairs[:, 0]], later.points[pairs[:, 1]]
    pose = relative_pose(*normalised_matches(points, intrinsics))
    if intrinsics.is_fisheye and (pose is None or pose.translation.any()):
        pose = _turn_of_a_pinhole(points, intrinsics, pose) or pose
    if pose is None or pose.support < _MIN_SUPPORT:
        return UNKNOWN
    share = pose.support / len(pairs)
    return _motion(pose, share) if share >= _needed_share(pose) else UNKNOWN


def _turn_of_a_pinhole(
    points: _Matched, intrinsics: Intrinsics, fisheye: RelativePose | None
) -> RelativePose | None:
    """The turn of a pinhole that explains more than a fisheye's motion; None: there is none.

    Drivers state an equidistant lens for images that they have rectified already. A turn tells:
    seen through the wrong lens, it needs a translation too and explains less.
    """
    pinhole = relative_pose(*normalised_matches(points, replace(intrinsics, distortion=())))
    least = _PINHOLE_LEAD * (fisheye.support if fisheye else 0.0)
    if pinhole is None or pinhole.translation.any() or pinhole.support < least:
        return None
    _LOG.warning(
        'the calibration states an equidistant lens, and the images turn as those of a pinhole: '
        'it is not that of these images, which are taken for rectified'
    )
    return pinhole


_Matched = tuple['Float64s', 'Float64s']  # the same points in two views [px]


def normalised_matches(
    points: _Matched, intrinsics: Intrinsics
) -> tuple[Float64s, Float64s, float]:
    """Matched points of both views and their tolerance, in units of the focal length."""
    first, second = (places_of_pixels(intrinsics, each) for each in points)
    return first, second, _TOLERANCE * intrinsics.width / intrinsics.fx


def _needed_share(pose: RelativePose) -> float:
    angle = math.acos(float(np.clip((np.trace(pose.rotation) - 1) / 2, -1.0, 1.0)))
    is_still = angle < _STILL_RAD and not pose.translation.any()
    return _STILL_SHARE if is_still else _MIN_SHARE


def _motion(pose: RelativePose, share: float) -> Motion:
    turned = BODY_FROM_OPTICAL @ pose.rotation.T  # columns: the later view's axes, seen earlier
    angles = yaw_pitch_roll(turned @ BODY_FROM_OPTICAL.T)
    way = as_position(-turned @ pose.translation + 0.0)
    return Motion(MotionSource.TWO_VIEW, *angles, way, confidence=share)


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
        points = earlier.points[pairs[:, 0]], later.points[pairs[:, 1]]
        counts = _count_explained(points, (width, height))
        with self._lock:
            self._counts += counts
            self._pairs += 1
            self._fov_rad = self._fov_rad or leading(self._counts)


def _count_explained(points: _Matched, size: tuple[int, int]) -> Float64s:
    """Matches that the best motion explains under each candidate. Shape (C,)."""
    views = [
        normalised_matches(points, Intrinsics.from_fov(*size, float(fov))) for fov in _CANDIDATES
    ]
    rotation = np.array([explained_by_rotation(*view) for view in views])
    general = [explained_in_general(*view) for view in views[::5]]
    return np.asarray(
        np.maximum(np.interp(_CANDIDATES, _GENERAL, general), _SIMPLICITY * rotation), np.float64
    )


def leading(counts: Float64s) -> float | None:
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
