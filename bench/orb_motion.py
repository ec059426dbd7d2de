# SPDX-License-Identifier: Apache-2.0
"""The usual way to tell motion between two images, as a baseline.

500 ORB features, cross-checked matches, the essential matrix by RANSAC, and the pose that OpenCV
recovers from it. It has no pure rotation, no rest, and no way to say that it cannot tell.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import cv2
from embodied_r_ros.types.deltas import Motion, MotionSource
from embodied_r_ros.types.geometry import BODY_FROM_OPTICAL, yaw_pitch_roll
import numpy as np

if TYPE_CHECKING:
    from embodied_r_ros.types.geometry import Intrinsics
    from numpy.typing import NDArray

_RANSAC_PX = 1.0


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
    essential, mask = cv2.findEssentialMat(first, second, k, cv2.RANSAC, 0.999, _RANSAC_PX)
    if essential is None or essential.shape != (3, 3):
        return Motion()
    _, rotation, translation, _ = cv2.recoverPose(essential, first, second, k, mask=mask)
    turned = BODY_FROM_OPTICAL @ np.asarray(rotation).T
    x, y, z = (float(value) for value in -turned @ np.asarray(translation).ravel())
    angles = yaw_pitch_roll(turned @ BODY_FROM_OPTICAL.T)
    return Motion(MotionSource.TWO_VIEW, *angles, (x, y, z))
