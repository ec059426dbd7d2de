# SPDX-License-Identifier: Apache-2.0
"""Sudden change under a still camera: something came, went or was switched.

Sudden means within half a second, or from one image to the next where they come more slowly. What
changes bit by bit, such as a view with a person who walks through it, is not sudden.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from embodied_r_ros.vision.overlap import STILL_SHIFT

if TYPE_CHECKING:
    from embodied_r_ros.vision.overlap import TwoView

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

    def seen(self, stamp_ns: int, found: TwoView, least_share: float) -> bool:
        """Take the next image and tell whether the content changed.

        Args:
            stamp_ns: When the image was taken.
            found: The image, compared with the last keyframe.
            least_share: Share of the view that has to change, 0..1.
        """
        if found.shift > STILL_SHIFT:
            self._history.clear()
            self._jumped = False
            return False
        # The newest image before the window stays, for streams slower than it.
        while len(self._history) > 1 and self._history[1][0] <= stamp_ns - _WINDOW_NS:
            self._history.popleft()
        least = min((changed for _, changed in self._history), default=found.changed)
        self._history.append((stamp_ns, found.changed))
        self._jumped |= found.changed - least >= least_share
        # What came and went again before it counted is no change.
        self._jumped &= found.changed >= least_share
        is_paused = self._pause_until_ns is not None and stamp_ns < self._pause_until_ns
        return self._jumped and not is_paused
