# SPDX-License-Identifier: Apache-2.0
"""Depth images, registered to a camera: metres along the optical axis, and their packed form."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import cv2
from embodied_r_ros.common.errors import ImageError
import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

_UNIT_M = 1e-3  # of the packed form, as of 16UC1 in REP 118
_FARTHEST = np.iinfo(np.uint16).max
MAX_PACKED_SIDE_PX = 640


@dataclass(frozen=True)
class PackedDepth:
    """A depth image as a PNG of 16 bits, in millimetres; 0 is unknown."""

    data: bytes

    def unpack(self) -> NDArray[np.float32]:
        """Depth along the optical axis [m], 0 where it is unknown. Shape (h, w).

        Raises:
            ImageError: The bytes are no such image.
        """
        raw = cv2.imdecode(np.frombuffer(self.data, np.uint8), cv2.IMREAD_UNCHANGED)
        if raw is None or raw.ndim != 2 or raw.dtype != np.uint16:
            msg = f'{len(self.data)} bytes are no depth image: expected a grey PNG of 16 bits'
            raise ImageError(msg)
        return np.asarray(raw, np.float32) * np.float32(_UNIT_M)


def pack_depth(metres: NDArray[np.float32], max_side_px: int = MAX_PACKED_SIDE_PX) -> PackedDepth:
    """Pack a depth image; a large one is thinned, since averages would blend near and far.

    Args:
        metres: Depth along the optical axis [m]; what is not finite or not positive is unknown.
            Shape (h, w).
        max_side_px: Upper limit of width and height [px].

    Raises:
        ImageError: The array is no depth image.
    """
    if metres.ndim != 2 or not metres.size:
        msg = f'an array of shape {metres.shape} is no depth image: expected (height, width)'
        raise ImageError(msg)
    scale = max_side_px / max(metres.shape)
    if scale < 1:
        height, width = metres.shape
        size = (max(1, round(width * scale)), max(1, round(height * scale)))
        metres = np.asarray(cv2.resize(metres, size, interpolation=cv2.INTER_NEAREST), np.float32)
    known = np.nan_to_num(metres, nan=0.0, posinf=0.0, neginf=0.0) / _UNIT_M
    # What is farther than the packed form can hold is unknown, rather than nearer than it is.
    millimetres = np.where((known > 0) & (known <= _FARTHEST), np.rint(known), 0)
    is_encoded, data = cv2.imencode('.png', millimetres.astype(np.uint16))
    if not is_encoded:
        msg = f'OpenCV could not pack a depth image of shape {metres.shape}'
        raise ImageError(msg)
    return PackedDepth(data.tobytes())
