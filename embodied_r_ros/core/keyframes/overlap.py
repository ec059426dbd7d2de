# SPDX-License-Identifier: Apache-2.0
"""How much of their view two images share.

As the images tell, or as depth and poses do where they are known.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, TYPE_CHECKING

import cv2
from embodied_r_ros.core.keyframes.alignment import (
    align,
    follow,
    homography_offsets,
    roll,
    shares,
)
from embodied_r_ros.core.keyframes.small_matrices import median
from embodied_r_ros.core.types.geometry import BODY_FROM_OPTICAL, read_only, relative_motion
import numpy as np

if TYPE_CHECKING:
    from embodied_r_ros.core.keyframes.alignment import Alignment, View
    from embodied_r_ros.core.types.arrays import Bools, Float32s, Float64s
    from embodied_r_ros.core.types.geometry import Intrinsics, Pose
    from embodied_r_ros.core.types.images import StampedImage
    from numpy.typing import NDArray

BLANK_SHARE = 0.02  # a view with less texture has nothing to compare
_MIN_MATCHES = 12  # fewer agree by chance between unrelated views
_MAX_DISTANCE = 80  # of 256 bits in which descriptors differ
_RANSAC_PX = 1.5
# Scores of unrelated views stay below 0.42 (measured), unless one follows a known alignment.
_MIN_SCORE = 0.45
_MIN_SCORE_FOLLOWED = 0.35
# From here on corners are not matched; nor are they when the score hardly fell since last time.
_SURE_SCORE = 0.8
_SURE_SCORE_FOLLOWED = 0.6
_HARDLY_FELL = 0.85
_MIN_TRUSTED_SHARE = 0.02  # of the view


@dataclass(frozen=True)
class TwoView:
    """What two views share."""

    overlap: float | None  # smaller of the two directed shares, 0..1; None: one is blank
    inliers: int = 0  # cells of the first view that are found in the second; 0: unrelated
    roll_rad: float = 0.0  # rotation of the second view about its axis
    shift: float = 1.0  # median movement of the matches, as a share of the width
    alignment: Alignment | None = None  # None: blank or unrelated


def two_view(first: View, second: View, before: TwoView | None = None) -> TwoView:
    """Compare two views.

    Args:
        first: Usually the last keyframe.
        second: Usually the newest image.
        before: Comparison of the first view with the image just before the second.
    """
    if min(first.textured_share, second.textured_share) < BLANK_SHARE:
        return TwoView(None)
    alignment = _best_alignment(first, second, before.alignment if before else None)
    if alignment is None:
        return TwoView(0.0)
    x, y = alignment.offsets[alignment.trusted].T
    if len(x) < max(1, _MIN_TRUSTED_SHARE * alignment.trusted.size * first.open_share):
        return TwoView(0.0)
    shift = median(np.hypot(x, y)) / first.width
    return TwoView(
        min(shares(first, second, alignment)),
        len(x),
        roll(first, alignment),
        shift,
        alignment,
    )


def _best_alignment(first: View, second: View, before: Alignment | None) -> Alignment | None:
    """Continue the last alignment; where that does not fit, start from matched corners."""
    followed = follow(first, second, before)
    least, sure = _MIN_SCORE, _SURE_SCORE
    if before:
        least = _MIN_SCORE_FOLLOWED
        sure = min(_SURE_SCORE_FOLLOWED, max(least, _HARDLY_FELL * before.score))
    if followed.score > sure:
        return followed
    homography = _matched_homography(first, second)
    if homography is None:
        return followed if followed.score > least else None
    matched = align(first, second, homography_offsets(first, homography), passes=3)
    best = max(followed, matched, key=lambda alignment: int(alignment.trusted.sum()))
    return best if best.score > _MIN_SCORE else None


def _matched_homography(first: View, second: View) -> Float64s | None:
    """Homography (3, 3) on which enough corners of both views agree, by RANSAC."""
    a, b = first.corners, second.corners
    if min(len(a.points), len(b.points)) < _MIN_MATCHES:
        return None
    # crosscheck: only pairs that are each other's nearest; -1 elsewhere.
    distances, nearest = cv2.batchDistance(
        a.descriptors, b.descriptors, cv2.CV_32S, normType=cv2.NORM_HAMMING, K=1, crosscheck=True
    )
    partner = nearest.ravel()
    matches = (partner >= 0) & (distances.ravel() < _MAX_DISTANCE)
    if matches.sum() < _MIN_MATCHES:
        return None
    homography, agreeing = cv2.findHomography(
        a.points[matches], b.points[partner[matches]], cv2.USAC_MAGSAC, _RANSAC_PX
    )
    if homography is None or agreeing.sum() < _MIN_MATCHES or not np.isfinite(homography).all():
        return None
    return np.asarray(homography, np.float64)


# A point is hidden where the other view sees something nearer than this share of its distance.
DEPTH_TOLERANCE = 0.05
_NEAREST_M = 1e-3


def covisibility(
    depth_a: NDArray[np.floating],
    pose_a: Pose,
    depth_b: NDArray[np.floating],
    pose_b: Pose,
    camera: Intrinsics,
) -> tuple[float, float]:
    """Share of A's image that B sees, and of B's image that A sees, each 0..1.

    A pixel counts as seen where its point in space lies within the other image, in front of the
    camera and with nothing in front of it. The smaller of the two shares is the true overlap.

    Args:
        depth_a: Depth of A along the optical axis [m]; not positive or not finite: nothing there,
            which no view shares. Shape (H, W), the size of `camera`.
        pose_a: Pose of A's camera link.
        depth_b: Depth of B. Shape (H, W).
        pose_b: Pose of B's camera link, in the same fixed frame.
        camera: Intrinsics of both, without distortion.

    Raises:
        ValueError: The poses are in different fixed frames.
    """
    return (
        float(seen_by(depth_a, pose_a, depth_b, pose_b, camera).mean()),
        float(seen_by(depth_b, pose_b, depth_a, pose_a, camera).mean()),
    )


def seen_by(
    depth: NDArray[np.floating],
    pose: Pose,
    other_depth: NDArray[np.floating],
    other_pose: Pose,
    camera: Intrinsics,
) -> Bools:
    """Which pixels of a view another view sees. Shape (H, W); arguments as in `covisibility`."""
    inverse = _inverse(depth)
    z = 1.0 / np.maximum(inverse, 1e-9)
    points = pixel_rays(camera) * z[..., None]  # (H, W, 3), optical axes
    body_rotation, body_offset = relative_motion(other_pose, pose)
    rotation = BODY_FROM_OPTICAL.T @ body_rotation @ BODY_FROM_OPTICAL
    points_now = points @ rotation.T + BODY_FROM_OPTICAL.T @ body_offset
    ahead = np.maximum(points_now[..., 2], _NEAREST_M)
    u = points_now[..., 0] / ahead * camera.fx + camera.cx
    v = points_now[..., 1] / ahead * camera.fy + camera.cy
    inside = (u >= -0.5) & (u < camera.width - 0.5) & (v >= -0.5) & (v < camera.height - 0.5)
    # Inverse depth is linear over the image of a plane, so that interpolating it is exact there.
    surface = cv2.remap(
        _inverse(other_depth).astype(np.float32),
        u.astype(np.float32),
        v.astype(np.float32),
        cv2.INTER_LINEAR,
        borderMode=cv2.BORDER_REPLICATE,
    )
    unhidden = surface * ahead <= 1.0 + DEPTH_TOLERANCE
    return np.asarray((inverse > 0) & (points_now[..., 2] > _NEAREST_M) & inside & unhidden)


def _inverse(depth: NDArray[np.floating]) -> Float64s:
    """Inverse depth [1/m]; 0 where there is none."""
    valid = np.isfinite(depth) & (depth > 0)
    return np.asarray(np.where(valid, 1.0 / np.where(valid, depth, 1.0), 0.0))


@lru_cache(maxsize=8)
def pixel_rays(camera: Intrinsics) -> Float64s:
    """Rays through all pixels in optical axes, with unit depth. Shape (H, W, 3), read-only."""
    u, v = np.meshgrid(np.arange(camera.width), np.arange(camera.height))
    x, y = (u - camera.cx) / camera.fx, (v - camera.cy) / camera.fy
    return read_only(np.stack([x, y, np.ones_like(x)], axis=-1))


_WIDTH_PX = 80  # to which depth is thinned
_MIN_KNOWN = 0.3  # share of a view whose depth has to be known


@dataclass(frozen=True)
class DepthView:
    """What overlap needs of an image whose depth and pose are known."""

    depth: Float32s  # thinned, of a camera without distortion [m]. Shape (h, w)
    camera: Intrinsics  # of `depth`
    pose: Pose  # of the camera link


def depth_view(image: StampedImage, fixed_cells: Bools | None = None) -> DepthView | None:
    """Depth and pose of an image, prepared for comparison; None: one is not known.

    Args:
        image: The image.
        fixed_cells: What is fixed to the camera, of which depth says nothing. (rows, columns).
    """
    if image.depth is None or image.pose is None or image.intrinsics is None:
        return None
    camera = image.intrinsics.scaled(image.depth.shape[1], image.depth.shape[0])
    step = -(-image.depth.shape[1] // _WIDTH_PX)
    width, height = (-(-side // step) for side in image.depth.shape[::-1])
    # The thinned camera looks through every n-th pixel, and straightens what the lens bends.
    thin = replace(
        camera,
        width=width,
        height=height,
        fx=camera.fx / step,
        fy=camera.fy / step,
        cx=camera.cx / step,
        cy=camera.cy / step,
        distortion=(),
    )
    straight = cv2.remap(image.depth, *_straightening(camera, thin), cv2.INTER_NEAREST)
    known = np.isfinite(straight) & (straight > 0)
    if fixed_cells is not None:
        cells = fixed_cells.astype(np.uint8)
        known &= cv2.resize(cells, (width, height), interpolation=cv2.INTER_NEAREST) == 0
    if known.mean() < _MIN_KNOWN:
        return None
    return DepthView(np.where(known, straight, np.float32(0)), thin, image.pose)


def depth_overlap(first: DepthView, second: DepthView) -> float | None:
    """Smaller of the two directed shares of view, 0..1, of what has depth; None: not comparable.

    Nothing is known of holes, so that they count neither as shared nor as not.
    """
    if first.camera != second.camera or first.pose.frame_id != second.pose.frame_id:
        return None
    shares = covisibility(first.depth, first.pose, second.depth, second.pose, first.camera)
    known = [float((view.depth > 0).mean()) for view in (first, second)]
    # A point that comes to lie in a hole is lost to both, as a hole of the other view is.
    return min(1.0, *(share / part for share, part in zip(shares, known, strict=True)))


@lru_cache(maxsize=8)
def _straightening(lens: Intrinsics, pinhole: Intrinsics) -> tuple[NDArray[Any], NDArray[Any]]:
    """Where the pixels of a pinhole lie in the image of a lens."""
    size = pinhole.width, pinhole.height
    model: Any = cv2.fisheye if lens.is_fisheye else cv2
    distortion = np.array(lens.distortion or (0.0,) * 5)
    x, y = model.initUndistortRectifyMap(
        lens.matrix(), distortion, np.eye(3), pinhole.matrix(), size, cv2.CV_32FC1
    )
    return x, y
