# SPDX-License-Identifier: Apache-2.0
"""How much of their view two images share, and sudden change under a still camera."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

import cv2
from embodied_r_ros.keyframes.alignment import (
    align,
    alignment_at,
    follow,
    homography_offsets,
    roll,
    shares,
)
from embodied_r_ros.keyframes.small_matrices import median
import numpy as np

if TYPE_CHECKING:
    from embodied_r_ros.keyframes.alignment import Alignment, View
    from numpy.typing import NDArray

STILL_SHIFT = 0.01  # a camera whose view moved by less of its width is still
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
_CLIPPED = (5.0, 240.0)  # brightness beyond which texture is lost to exposure


@dataclass(frozen=True)
class TwoView:
    """What two views share."""

    overlap: float | None  # smaller of the two directed shares, 0..1; None: one is blank
    inliers: int = 0  # cells of the first view that are found in the second; 0: unrelated
    roll_rad: float = 0.0  # rotation of the second view about its axis
    shift: float = 1.0  # median movement of the matches, as a share of the width
    changed: float = 0.0  # share of the first view that looks different, for a still camera
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
    if len(x) < max(1, _MIN_TRUSTED_SHARE * alignment.trusted.size):
        return TwoView(0.0)
    shift = median(np.hypot(x, y)) / first.width
    return TwoView(
        min(shares(first, second, alignment)),
        len(x),
        roll(first, alignment),
        shift,
        _changed_share(first, second, alignment) if shift < STILL_SHIFT else 0.0,
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


def _matched_homography(first: View, second: View) -> NDArray[np.float64] | None:
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


def _changed_share(first: View, second: View, alignment: Alignment) -> float:
    """Share of the first view whose place in the second shows something else.

    Optical flow bends what is new until it resembles what was there, so that the places of the
    surroundings are judged, and not those that it found.
    """
    unlike = alignment_at(first, second, alignment.offsets).unlike
    low, high = _CLIPPED
    for view in (first, second):
        if view.mean.shape == unlike.shape:
            unlike &= (view.mean > low) & (view.mean < high)
    return float(unlike.mean())


_WINDOW_NS = 500_000_000
_MAX_IMAGES = 64  # in the window, however fast they come
# Least time from one change to the next: what goes on moving makes no keyframe per image.
_PAUSE_NS = 2_000_000_000


class ChangeDetector:
    """Follows how much of the view differs from the last keyframe."""

    def __init__(self) -> None:
        self._pause_until_ns: int | None = None
        self._history: deque[tuple[int, float]] = deque(maxlen=_MAX_IMAGES)
        self._jumped = False

    def restart(self, stamp_ns: int, *, by_change: bool) -> None:
        """Start anew with a keyframe, made by such a change or not."""
        self._history.clear()
        self._history.append((stamp_ns, 0.0))
        self._jumped = False
        self._pause_until_ns = stamp_ns + _PAUSE_NS if by_change else None

    def update(self, stamp_ns: int, views: TwoView, least_share: float) -> bool:
        """Take the next image and tell whether the content changed.

        Args:
            stamp_ns: When the image was taken.
            views: The image, compared with the last keyframe.
            least_share: Share of the view that has to change, 0..1.
        """
        if views.shift > STILL_SHIFT:
            self._history.clear()
            self._jumped = False
            return False
        # The newest image before the window stays, for streams slower than it.
        while len(self._history) > 1 and self._history[1][0] <= stamp_ns - _WINDOW_NS:
            self._history.popleft()
        least = min((changed for _, changed in self._history), default=views.changed)
        self._history.append((stamp_ns, views.changed))
        self._jumped |= views.changed - least >= least_share
        # What came and went again before it counted is no change.
        self._jumped &= views.changed >= least_share
        is_paused = self._pause_until_ns is not None and stamp_ns < self._pause_until_ns
        return self._jumped and not is_paused
