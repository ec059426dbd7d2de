# SPDX-License-Identifier: Apache-2.0
"""Baselines of others: the published keyframe extractor, and the usual way to tell motion.

The keyframe extractor of Embodied-R is written anew from its description: 500 ORB features at full
size, cross-checked brute force matches, one homography by RANSAC (5 px), and the share of the
reference image that the warped current image covers.

Motion between two images: 500 ORB features, cross-checked matches, the essential matrix by RANSAC,
and the pose that OpenCV recovers from it. It has no pure rotation, no rest, and no way to say that
it cannot tell.
"""

from __future__ import annotations

from typing import Any, TYPE_CHECKING

import cv2
from embodied_r_ros.core.types.deltas import Motion, MotionSource
from embodied_r_ros.core.types.geometry import BODY_FROM_OPTICAL, yaw_pitch_roll
import numpy as np

if TYPE_CHECKING:
    from embodied_r_ros.core.types.geometry import Intrinsics
    from numpy.typing import NDArray

_MIN_MATCHES = 10  # more than so many are needed
_HOMOGRAPHY_PX = 5.0

_ESSENTIAL_PX = 1.0


class OfficialExtractor:
    """Compares images with a reference as the published code does."""

    def __init__(self) -> None:
        self._orb = cv2.ORB_create()  # type: ignore[attr-defined]
        self._matcher = cv2.BFMatcher(cv2.NORM_HAMMING, crossCheck=True)

    def features(self, image: NDArray[np.uint8]) -> Any:
        """Keypoints and descriptors of a BGR image."""
        return self._orb.detectAndCompute(cv2.cvtColor(image, cv2.COLOR_BGR2GRAY), None)

    def overlap(self, reference: Any, current: Any, size: tuple[int, int]) -> float:
        """Share of the reference that the current image covers, 0..1; 0 where it accepts.

        Args:
            reference: Features of the last keyframe.
            current: Features of the image.
            size: Width and height of both images [px].
        """
        if reference[1] is None or current[1] is None:
            return 0.0
        matches = sorted(
            self._matcher.match(reference[1], current[1]), key=lambda match: match.distance
        )
        if len(matches) <= _MIN_MATCHES:
            return 0.0
        there = np.array([reference[0][match.queryIdx].pt for match in matches], np.float32)
        here = np.array([current[0][match.trainIdx].pt for match in matches], np.float32)
        homography, _ = cv2.findHomography(here, there, cv2.RANSAC, _HOMOGRAPHY_PX)
        return 0.0 if homography is None else _covered_share(homography, size)


def _covered_share(homography: Any, size: tuple[int, int]) -> float:
    """Area of the warped image within the image, by drawing both, as a share."""
    width, height = size
    corners = np.array([[[0, 0], [width, 0], [width, height], [0, height]]], np.float32)
    warped = cv2.perspectiveTransform(corners, homography)
    masks = []
    for polygon in (corners, warped):
        # The cast of huge coordinates is undefined in the original; here they are cut.
        whole = np.clip(np.nan_to_num(polygon), -1e6, 1e6).astype(np.int32)
        masks.append(cv2.fillPoly(np.zeros((height, width), np.uint8), [whole], 1))
    return float(np.logical_and(*masks).sum()) / (width * height)


def orb_motion(
    earlier: NDArray[np.uint8], later: NDArray[np.uint8], intrinsics: Intrinsics
) -> Motion:
    """Motion between two BGR images; UNKNOWN where there are not even five matches."""
    orb = cv2.ORB_create()  # type: ignore[attr-defined]
    (p1, d1), (p2, d2) = (orb.detectAndCompute(image, None) for image in (earlier, later))
    if d1 is None or d2 is None:
        return Motion()
    matches = cv2.BFMatcher(cv2.NORM_HAMMING, crossCheck=True).match(d1, d2)
    if len(matches) < 5:
        return Motion()
    first = np.array([p1[match.queryIdx].pt for match in matches])
    second = np.array([p2[match.trainIdx].pt for match in matches])
    k = intrinsics.matrix()
    essential, mask = cv2.findEssentialMat(first, second, k, cv2.RANSAC, 0.999, _ESSENTIAL_PX)
    if essential is None or essential.shape != (3, 3):
        return Motion()
    _, rotation, translation, _ = cv2.recoverPose(essential, first, second, k, mask=mask)
    turned = BODY_FROM_OPTICAL @ np.asarray(rotation).T
    x, y, z = (float(value) for value in -turned @ np.asarray(translation).ravel())
    angles = yaw_pitch_roll(turned @ BODY_FROM_OPTICAL.T)
    return Motion(MotionSource.TWO_VIEW, *angles, (x, y, z))
