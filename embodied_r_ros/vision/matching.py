# SPDX-License-Identifier: Apache-2.0
"""Points that two distant views of a scene have in common.

Keyframes share as little as half of their view, seen from another place: SIFT features with
square-rooted descriptors (Arandjelović and Zisserman, CVPR 2012) survive that far better than the
binary features that choose keyframes thirty times a second.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import cv2
from embodied_r_ros.images import shrink
import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

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
    kept = rows[is_mutual & is_clear]
    return np.stack([kept, best[kept]], axis=1)
