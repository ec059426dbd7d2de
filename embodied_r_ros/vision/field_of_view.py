# SPDX-License-Identifier: Apache-2.0
"""The field of view of a camera that does not state it, from how its own images fit together.

Two views of a turning camera agree with a motion under the true field of view only; under others
fewer of their matches do. The counts of several pairs are added up until one field of view leads.
Square pixels, a centred axis and no distortion are assumed.
"""

from __future__ import annotations

import math
import threading
from typing import TYPE_CHECKING

from embodied_r_ros.geometry import Intrinsics
from embodied_r_ros.vision.egomotion import explained_by_rotation, explained_in_general, prepared
from embodied_r_ros.vision.matching import match_features
import numpy as np

if TYPE_CHECKING:
    from embodied_r_ros.vision.matching import Features
    from numpy.typing import NDArray

_CANDIDATES = np.radians(np.arange(45.0, 126.0, 1.0))  # [rad]
_GENERAL = _CANDIDATES[::5]  # a general motion depends on the field of view less sharply
# Weight of a match that a pure rotation explains. What is one can be explained under a wrong field
# of view too, but by a general motion only.
_SIMPLICITY = 1.3
_MIN_MATCHES = 50  # pairs with fewer tell nothing
_MIN_LEAD = 15.0  # matches more than any field of view that is clearly another one
_OTHER_RAD = math.radians(9.0)
_MAX_PAIRS = 30  # a camera that never turned by then keeps the assumed one


class FieldOfView:
    """Horizontal field of view of one camera. Safe for use from several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts = np.zeros(len(_CANDIDATES))
        self._pairs = 0
        self._found_rad: float | None = None

    @property
    def radians(self) -> float | None:
        """The field of view [rad]; None: not known (yet)."""
        return self._found_rad

    @property
    def is_settled(self) -> bool:
        """Whether more pairs would change nothing."""
        return self._found_rad is not None or self._pairs >= _MAX_PAIRS

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
        counts = _explained(earlier, later, pairs, (width, height))
        with self._lock:
            self._counts += counts
            self._pairs += 1
            self._found_rad = self._found_rad or leading(self._counts)


def _explained(
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
    if counts[best] - others.max() < _MIN_LEAD or best in {0, len(counts) - 1}:
        return None
    # The peak of the parabola through the three highest counts.
    left, middle, right = counts[best - 1 : best + 2]
    bend = left - 2 * middle + right
    shift = 0.5 * (left - right) / bend if bend < 0 else 0.0
    return float(_CANDIDATES[best] + shift * (_CANDIDATES[1] - _CANDIDATES[0]))
