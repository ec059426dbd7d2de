# SPDX-License-Identifier: Apache-2.0
"""Surfaces of a room: busy enough to be tracked, too pale to be taken for an object.

Made with NumPy alone: what OpenCV draws changes from version to version.
"""

from __future__ import annotations

from typing import Any, TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

PIXELS_PER_M = 96
_TINT = 0.07  # the most that a channel differs from grey; colour names need far more


def surface_texture(
    rng: np.random.Generator, width_px: int, height_px: int, tiles_px: int = 0, rare: bool = False
) -> NDArray[np.uint8]:
    """Draw a pale surface with stains, grain and printed panels.

    Args:
        rng: Where chance comes from.
        width_px: Width [px].
        height_px: Height [px].
        tiles_px: Side of the tiles whose joints are drawn [px]; 0: none.
        rare: Print patterns that no other surface has: slanted stripes, dots and rings.

    Returns:
        RGB image, uint8. Shape (height_px, width_px, 3).
    """
    grey = np.full((height_px, width_px), rng.uniform(125, 175))
    for cell_px, strength in ((64, 14.0), (16, 9.0), (6, 8.0), (2, 9.0)):
        grey += strength * _smooth_noise(rng, width_px, height_px, cell_px)
    if tiles_px:
        shades = rng.normal(0, 10, (height_px // tiles_px + 1, width_px // tiles_px + 1))
        grey += np.kron(shades, np.ones((tiles_px, tiles_px)))[:height_px, :width_px]
        grey[::tiles_px] -= 45
        grey[:, ::tiles_px] -= 45
    for _ in range(width_px * height_px // 4000):
        _print_panel(rng, grey, rare)
    tint = 1 + rng.uniform(-_TINT, _TINT, 3)
    return np.clip(grey[..., None] * tint, 15, 240).astype(np.uint8)


def _smooth_noise(
    rng: np.random.Generator, width_px: int, height_px: int, cell_px: int
) -> NDArray[np.float64]:
    """Noise of unit strength that varies over `cell_px`. Shape (height_px, width_px)."""
    rows, columns = height_px // cell_px + 2, width_px // cell_px + 2
    knots = rng.normal(0, 1, (rows, columns))
    y, x = np.arange(height_px) / cell_px, np.arange(width_px) / cell_px
    top, left = y.astype(int), x.astype(int)
    fy, fx = (y - top)[:, None], (x - left)[None, :]
    upper = knots[top][:, left] * (1 - fx) + knots[top][:, left + 1] * fx
    lower = knots[top + 1][:, left] * (1 - fx) + knots[top + 1][:, left + 1] * fx
    return np.asarray(upper * (1 - fy) + lower * fy)


def _print_panel(rng: np.random.Generator, grey: NDArray[np.float64], rare: bool) -> None:
    """Print a rectangle with a pattern of its own somewhere on the surface."""
    height_px, width_px = (int(value) for value in rng.integers(10, 60, 2))
    top = int(rng.integers(0, max(1, grey.shape[0] - height_px)))
    left = int(rng.integers(0, max(1, grey.shape[1] - width_px)))
    panel = grey[top : top + height_px, left : left + width_px]
    rows, columns = np.indices(panel.shape)
    step = int(rng.integers(4, 14))
    if rare:
        pattern = _rare_pattern(rng, rows, columns, step)
    else:
        pattern = (
            np.zeros(panel.shape),
            rows // step % 2,
            columns // step % 2,
            (rows // step + columns // step) % 2,
            rng.integers(0, 2, (height_px // step + 1, width_px // step + 1))[
                rows // step, columns // step
            ],
        )[int(rng.integers(5))]
    panel += rng.uniform(-40, 40) + rng.choice([-1, 1]) * rng.uniform(30, 75) * pattern


def _rare_pattern(
    rng: np.random.Generator, rows: NDArray[Any], columns: NDArray[Any], step: int
) -> NDArray[Any]:
    """Slanted stripes, dots or rings, 0 and 1."""
    down, across = rows % (2 * step) - step, columns % (2 * step) - step
    patterns = (
        (rows + columns) // step % 2,
        down**2 + across**2 < (0.7 * step) ** 2,
        np.hypot(rows - rows.mean(), columns - columns.mean()) // step % 2,
    )
    return np.asarray(patterns[int(rng.integers(len(patterns)))], np.float64)
