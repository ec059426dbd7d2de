# SPDX-License-Identifier: Apache-2.0
"""Intervals of rates over rows that come in scenes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

_RESAMPLES = 2000


def bootstrap_interval(
    values: Sequence[float], scenes: Sequence[str], seed: int = 0
) -> tuple[float, float] | None:
    """95 % interval of the mean, by resampling scenes; None for no values.

    Rows of one scene are not independent, so whole scenes are drawn.

    Args:
        values: One per row.
        scenes: Scene of each row.
        seed: Of the resampling.
    """
    if not values:
        return None
    names, index = np.unique(np.asarray(scenes), return_inverse=True)
    sums = np.bincount(index, weights=np.asarray(values, float))  # (S,)
    counts = np.bincount(index)  # (S,)
    drawn = np.random.default_rng(seed).integers(len(names), size=(_RESAMPLES, len(names)))
    means = sums[drawn].sum(axis=1) / counts[drawn].sum(axis=1)  # (R,)
    low, high = np.quantile(means, [0.025, 0.975])
    return float(low), float(high)
