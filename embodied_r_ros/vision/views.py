# SPDX-License-Identifier: Apache-2.0
"""Images prepared for comparison: grey, at work size, with what describes them.

Work size is 160 pixels along the longer side, divided into cells of 4x4 pixels. Everything that is
said of an image, whether it is blank and where it looks like another one, is said per cell.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, TYPE_CHECKING

import cv2
from embodied_r_ros.errors import ImageError
import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

WORK_PX = 160
CELL_PX = 4
_CORNER_PX = 320  # corners need more detail than brightness does
_MAX_CORNERS = 500
# Grey levels: faint texture after shrinking, and a slope across cells that noise does not reach.
_TEXTURE_STD = 5.0
_SLOPE = 2.0


@dataclass(frozen=True)
class Corners:
    """ORB features (Rublee et al., ICCV 2011) of an image."""

    points: NDArray[np.float32]  # (N, 2) [work px]
    descriptors: NDArray[np.uint8]  # (N, 32)


class View:
    """One image at work size. What is costly is computed when it is first asked for."""

    def __init__(self, image: NDArray[np.uint8]) -> None:
        """Shrink an image.

        Args:
            image: BGR, uint8, (H, W, 3).

        Raises:
            ImageError: The array is not such an image.
        """
        if image.ndim != 3 or image.shape[2] != 3 or image.dtype != np.uint8 or not image.size:
            msg = f'array of shape {image.shape}, {image.dtype} is not a BGR image (H, W, 3) uint8'
            raise ImageError(msg)
        grey = cv2.cvtColor(_thinned(image), cv2.COLOR_BGR2GRAY)
        self._detailed = _resized(grey, _CORNER_PX)
        self.grey = _resized(self._detailed, WORK_PX)  # (h, w)

    @property
    def width(self) -> int:
        """Width at work size [px]."""
        return int(self.grey.shape[1])

    @property
    def height(self) -> int:
        """Height at work size [px]."""
        return int(self.grey.shape[0])

    @cached_property
    def brightness(self) -> NDArray[np.float32]:
        """Grey levels as numbers to compute with. Shape (h, w)."""
        return self.grey.astype(np.float32)

    @cached_property
    def mean(self) -> NDArray[np.float32]:
        """Mean brightness around each cell. Shape (rows, columns)."""
        return around_cells(self.brightness)

    @cached_property
    def variance(self) -> NDArray[np.float32]:
        """Variance of the brightness around each cell. Shape (rows, columns)."""
        squares = around_cells(self.brightness * self.brightness)
        return np.maximum(squares - self.mean * self.mean, 0.0)

    @cached_property
    def textured_share(self) -> float:
        """Share of the cells that have anything to compare, 0..1.

        Sensor noise in the dark has neither the strength of texture nor any extent.
        """
        slope_x = cv2.Sobel(self.mean, cv2.CV_32F, 1, 0, scale=1 / 8)
        slope_y = cv2.Sobel(self.mean, cv2.CV_32F, 0, 1, scale=1 / 8)
        sloped = cv2.magnitude(slope_x, slope_y) > _SLOPE
        return float(np.mean(sloped | (self.variance > _TEXTURE_STD**2)))

    @cached_property
    def corners(self) -> Corners:
        """Distinctive points, for views that lie far apart."""
        # Reflected borders let corners near the rim count; there the view changes first.
        orb = cv2.ORB_create(_MAX_CORNERS, nlevels=4, edgeThreshold=12, fastThreshold=7)  # type: ignore[attr-defined]
        keypoints, descriptors = orb.detectAndCompute(self._detailed, None)
        if descriptors is None:
            return Corners(np.empty((0, 2), np.float32), np.empty((0, 32), np.uint8))
        scale = np.divide(self.grey.shape[::-1], self._detailed.shape[::-1])
        points = np.array([keypoint.pt for keypoint in keypoints]) * scale
        return Corners(points.astype(np.float32), np.asarray(descriptors, np.uint8))


def around_cells(values: NDArray[np.float32]) -> NDArray[np.float32]:
    """Means over the 3x3 cells around each cell. Shapes (h, w) -> (rows, columns)."""
    size = values.shape[1] // CELL_PX, values.shape[0] // CELL_PX
    cells = cv2.resize(values, size, interpolation=cv2.INTER_AREA)
    return np.asarray(cv2.blur(cells, (3, 3)), np.float32)


@lru_cache(maxsize=8)
def pixel_grid(width: int, height: int) -> NDArray[np.float32]:
    """Coordinates (x, y) of every pixel. Shape (height, width, 2), read-only."""
    x, y = np.meshgrid(np.arange(width, dtype=np.float32), np.arange(height, dtype=np.float32))
    grid = np.stack([x, y], axis=-1)
    grid.setflags(write=False)
    return grid


@lru_cache(maxsize=8)
def cell_centres(width: int, height: int) -> NDArray[np.float32]:
    """Coordinates (x, y) of the centre of every cell [px]. (rows, columns, 2), read-only."""
    centres = pixel_grid(width // CELL_PX, height // CELL_PX) * CELL_PX + (CELL_PX - 1) / 2
    centres.setflags(write=False)
    return np.asarray(centres, np.float32)


def _thinned(image: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Shrink a large image by a whole factor, quickly rather than well."""
    height, width = image.shape[:2]
    factor = max(height, width) // (2 * _CORNER_PX)
    if factor < 2:
        return image
    size = max(1, width // factor), max(1, height // factor)
    return np.asarray(cv2.resize(image, size, interpolation=cv2.INTER_LINEAR), np.uint8)


def _resized(image: NDArray[Any], longer_px: int) -> NDArray[np.uint8]:
    """Resize so that the longer side is `longer_px` and both are whole numbers of cells."""
    scale = longer_px / max(image.shape)
    # Optical flow needs a few cells in each direction, however narrow the image is.
    width, height = (
        max(16 * CELL_PX, CELL_PX * round(side * scale / CELL_PX)) for side in image.shape[::-1]
    )
    return np.asarray(cv2.resize(image, (width, height), interpolation=cv2.INTER_AREA), np.uint8)
