# SPDX-License-Identifier: Apache-2.0
"""How much of their view two images share."""

from __future__ import annotations

from dataclasses import dataclass
import math
from typing import TYPE_CHECKING

import cv2
from embodied_r_ros.errors import ImageError
import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

WORK_SIDE_PX = 320  # images are shrunk to this longer side before anything else
_FEATURES = 300
_MIN_FEATURES = 12  # fewer: the image is blank
_MIN_INLIERS = 12  # fewer agree by chance between unrelated images
_RANSAC_PX = 3.0


@dataclass(frozen=True)
class Features:
    """Corners of one image at work size."""

    points: NDArray[np.float32]  # (N, 2) [px]
    descriptors: NDArray[np.uint8]  # (N, 32)
    width: int  # [px]
    height: int  # [px]

    @property
    def is_blank(self) -> bool:
        """Whether there is too little structure to compare."""
        return len(self.points) < _MIN_FEATURES


@dataclass(frozen=True)
class TwoView:
    """What two images share."""

    overlap: float | None  # smaller of the two directed shares of view, 0..1; None: blank image
    inliers: int = 0  # matches that agree; 0: unrelated views
    roll_rad: float = 0.0  # rotation of the second image about its axis


class FeatureExtractor:
    """Finds the corners of images."""

    def __init__(self) -> None:
        self._orb = cv2.ORB_create(_FEATURES, nlevels=4, fastThreshold=10)  # type: ignore[attr-defined]

    def extract(self, image: NDArray[np.uint8]) -> Features:
        """Find the corners of a BGR image, uint8, (H, W, 3).

        Raises:
            ImageError: The array is not such an image.
        """
        if image.ndim != 3 or image.shape[2] != 3 or image.dtype != np.uint8 or not image.size:
            msg = f'array of shape {image.shape}, {image.dtype} is not a BGR image (H, W, 3) uint8'
            raise ImageError(msg)
        height, width = image.shape[:2]
        scale = min(1.0, WORK_SIDE_PX / max(height, width))
        size = (max(1, round(width * scale)), max(1, round(height * scale)))
        grey = cv2.cvtColor(
            cv2.resize(image, size, interpolation=cv2.INTER_AREA), cv2.COLOR_BGR2GRAY
        )
        keypoints, descriptors = self._orb.detectAndCompute(grey, None)
        if descriptors is None:
            return Features(np.empty((0, 2), np.float32), np.empty((0, 32), np.uint8), *size)
        points = np.asarray(cv2.KeyPoint.convert(keypoints), np.float32)
        return Features(points, np.asarray(descriptors, np.uint8), *size)


def two_view(first: Features, second: Features) -> TwoView:
    """Compare two images."""
    if first.is_blank or second.is_blank:
        return TwoView(None)
    matches = cv2.BFMatcher(cv2.NORM_HAMMING, crossCheck=True).match(
        first.descriptors, second.descriptors
    )
    if len(matches) < _MIN_INLIERS:
        return TwoView(0.0)
    a = first.points[[m.queryIdx for m in matches]]
    b = second.points[[m.trainIdx for m in matches]]
    found, mask = cv2.findHomography(a, b, cv2.USAC_MAGSAC, _RANSAC_PX)
    inliers = int(mask.sum()) if mask is not None else 0
    if found is None or inliers < _MIN_INLIERS:
        return TwoView(0.0)
    homography = np.asarray(found, np.float64)  # (3, 3)
    kept = mask.ravel().astype(bool)
    return TwoView(
        min(
            _visible_share(homography, first, second),
            _visible_share(np.asarray(np.linalg.inv(homography), np.float64), second, first),
        ),
        inliers,
        _rotation(a[kept], b[kept]),
    )


def _visible_share(homography: NDArray[np.float64], source: Features, target: Features) -> float:
    columns, rows = np.arange(0.5, 32) / 32, np.arange(0.5, 24) / 24
    x, y = np.meshgrid(columns * source.width, rows * source.height)
    u, v, w = homography @ np.stack([x.ravel(), y.ravel(), np.ones(x.size)])
    ahead = w > 1e-9
    u, v = u[ahead] / w[ahead], v[ahead] / w[ahead]
    inside = (u >= 0) & (u < target.width) & (v >= 0) & (v < target.height)
    return float(inside.sum()) / x.size


def _rotation(a: NDArray[np.float32], b: NDArray[np.float32]) -> float:
    """Least-squares rotation about the image axis between matched points (N, 2) [rad]."""
    p, q = a - a.mean(0), b - b.mean(0)
    cross = p[:, 0] * q[:, 1] - p[:, 1] * q[:, 0]
    return math.atan2(float(cross.sum()), float((p * q).sum()))
