# SPDX-License-Identifier: Apache-2.0
"""Images for tests of keyframing: a textured plane seen from anywhere, and what happens to it."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

import cv2
from embodied_r_ros.core.types.images import StampedImage
import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

WIDTH, HEIGHT = 320, 240
BLANK = np.zeros((HEIGHT, WIDTH, 3), np.uint8)


@lru_cache(maxsize=8)
def plane(seed: int) -> NDArray[np.uint8]:
    """A large painted plane: uneven, with patches of colour. Shape (960, 1280, 3)."""
    rng = np.random.default_rng(seed)
    picture = np.full((960, 1280, 3), 128.0)
    for octave, strength in ((8, 25), (32, 20), (240, 15)):
        noise = rng.normal(0, strength, (octave, octave))
        smooth = cv2.resize(noise, (1280, 960), interpolation=cv2.INTER_CUBIC)
        picture += np.asarray(smooth, np.float64)[..., None]
    for _ in range(500):
        x, y = rng.integers(0, (1280, 960))
        width, height = rng.integers(10, 60, 2)
        picture[y : y + height, x : x + width] += rng.uniform(-70, 70, 3)
    return np.clip(picture, 0, 255).astype(np.uint8)


def look(
    x: float = 640.0, y: float = 480.0, zoom: float = 1.0, roll_deg: float = 0.0, seed: int = 0
) -> NDArray[np.uint8]:
    """A view of a plane, centred on x, y [px]. Shape (HEIGHT, WIDTH, 3)."""
    warp = np.asarray(cv2.getRotationMatrix2D((x, y), roll_deg, zoom), np.float64)
    warp[:, 2] += WIDTH / 2 - x, HEIGHT / 2 - y
    view = cv2.warpAffine(plane(seed), warp, (WIDTH, HEIGHT), borderMode=cv2.BORDER_REFLECT)
    return np.asarray(view, np.uint8)


def with_thing(
    image: NDArray[np.uint8], x: int, width: int, height: int = 160, seed: int = 7
) -> NDArray[np.uint8]:
    """The image with something standing in it, centred on column x [px]."""
    left, right = max(0, x - width // 2), min(WIDTH, x + width // 2)
    changed = image.copy()
    if right > left:
        start = 640 + left - x
        surface = plane(seed)[300 : 300 + height, start : start + right - left]
        changed[HEIGHT - height :, left:right] = surface
    return changed


def two_depths(shift: float, nearness: int = 8) -> NDArray[np.uint8]:
    """A far plane above a near one; the near one moves `nearness` times as far [px]."""
    image = look(400 + shift, seed=11)
    image[HEIGHT // 2 :] = look(400 + nearness * shift, seed=12)[HEIGHT // 2 :]
    return image


def noisy(image: NDArray[np.uint8], sigma: float, seed: int) -> NDArray[np.uint8]:
    """The image with the noise of a sensor."""
    noise = np.random.default_rng(seed).normal(0, sigma, image.shape)
    return np.clip(image + noise, 0, 255).astype(np.uint8)


def brighter(image: NDArray[np.uint8], factor: float) -> NDArray[np.uint8]:
    """The image at another exposure."""
    return np.clip(image * factor, 0, 255).astype(np.uint8)


def stream(
    images: Iterable[NDArray[np.uint8]], rate_hz: float = 10.0, start_ns: int = 0
) -> list[StampedImage]:
    """Images with stamps."""
    return [
        StampedImage(index, start_ns + round(index * 1e9 / rate_hz), image)
        for index, image in enumerate(images)
    ]
