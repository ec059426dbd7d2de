# SPDX-License-Identifier: Apache-2.0
"""A robot's own parts pasted over recordings: composites, whose motion and mask are known.

The parts have the texture of another picture and noise of their own, and their light wavers. What
lies behind them is lost, as it is for a camera on an arm; the truth of the recording stays.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
import math
from typing import TYPE_CHECKING

import cv2
import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from embodied_r_ros.core.types.images import StampedImage
    from numpy.typing import NDArray

_NOISE = 2.5  # standard deviation [grey levels]
_LIGHT = 0.05  # by which the light wavers, as a share
_LIGHT_PERIOD = 37.0  # images
# Outlines as polygons in shares of the image; each fixed to the camera.
_SHAPES: dict[str, tuple[tuple[tuple[float, float], ...], ...]] = {
    # Two fingers and the palm between them: 14 % of the image.
    'gripper': (
        ((0.2, 1.0), (0.24, 0.72), (0.36, 0.46), (0.42, 0.48), (0.38, 0.76), (0.4, 1.0)),
        ((0.6, 1.0), (0.62, 0.76), (0.58, 0.48), (0.64, 0.46), (0.76, 0.72), (0.8, 1.0)),
        ((0.36, 1.0), (0.36, 0.9), (0.64, 0.9), (0.64, 1.0)),
    ),
    # The round edge of a vehicle: 29 %.
    'hood': (
        (
            *((0.0, 1.0), (0.0, 0.8), (0.12, 0.71), (0.3, 0.66), (0.5, 0.64)),
            *((0.7, 0.66), (0.88, 0.71), (1.0, 0.8), (1.0, 1.0)),
        ),
    ),
    # A tool that comes in from the side: 20 %.
    'tool': (((1.0, 0.25), (0.82, 0.28), (0.5, 0.42), (0.46, 0.56), (0.54, 0.62), (1.0, 0.7)),),
}
SHAPES = tuple(_SHAPES)


@lru_cache(maxsize=8)
def own_parts(shape: str, width: int, height: int) -> NDArray[np.bool_]:
    """Where an image shows the parts. Shape (height, width)."""
    mask = np.zeros((height, width), np.uint8)
    for outline in _SHAPES[shape]:
        corners = np.array(outline) * (width, height)
        cv2.fillPoly(mask, [np.rint(corners).astype(np.int32)], 1)
    return mask > 0


def with_own_parts(
    images: Sequence[StampedImage], shape: str, texture: NDArray[np.uint8], seed: int = 0
) -> Iterator[StampedImage]:
    """Paste parts over the images of a recording, whose depth is that of the parts there: 0.15 m.

    Args:
        images: The recording.
        shape: One of `SHAPES`.
        texture: A picture that gives the parts their surface. BGR, (H, W, 3).
        seed: Of the noise.
    """
    rng = np.random.default_rng(seed)
    for count, image in enumerate(images):
        height, width = image.image.shape[:2]
        mask = own_parts(shape, width, height)
        surface = cv2.resize(texture, (width, height)).astype(np.float32)
        surface *= 1 + _LIGHT * math.sin(2 * math.pi * count / _LIGHT_PERIOD)
        surface += rng.normal(0, _NOISE, surface.shape)
        # Edges of things are soft in a camera.
        share = cv2.GaussianBlur(mask.astype(np.float32), (0, 0), 0.002 * width)[..., None]
        mixed = image.image * (1 - share) + surface * share
        depth = image.depth
        if depth is not None:
            small = own_parts(shape, depth.shape[1], depth.shape[0])
            depth = np.where(small, np.float32(0.15), depth)
        pasted = np.clip(mixed, 0, 255).astype(np.uint8)
        yield replace(image, image=pasted, encoded=None, depth=depth)
