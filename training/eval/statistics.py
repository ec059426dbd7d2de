# SPDX-License-Identifier: Apache-2.0
"""Intervals of rates, and paired tests, over rows that come in scenes."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from typing import Any, TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_RESAMPLES = 2000
_FLIPS = 10_000  # sign patterns that are looked at
_CHUNK = 1000


def bootstrap_interval(
    values: Sequence[float], scenes: Sequence[str], seed: int = 0
) -> tuple[float, float] | None:
    """95 % interval of the mean, by resampling scenes; None: fewer than two scenes have values.

    Rows of one scene are not independent, so whole scenes are drawn.

    Args:
        values: One per row.
        scenes: Scene of each row.
        seed: Of the resampling.
    """
    names, index = np.unique(np.asarray(scenes), return_inverse=True)
    if len(names) < 2:
        return None
    sums = np.bincount(index, weights=np.asarray(values, float))  # (S,)
    counts = np.bincount(index)  # (S,)
    drawn = np.random.default_rng(seed).integers(len(names), size=(_RESAMPLES, len(names)))
    means = sums[drawn].sum(axis=1) / counts[drawn].sum(axis=1)  # (R,)
    low, high = np.quantile(means, [0.025, 0.975])
    return float(low), float(high)


def interval_over_runs(
    values: Sequence[Sequence[float]], scenes: Sequence[str], seed: int = 0
) -> tuple[float, float]:
    """95 % interval of the mean over runs of one recipe, by resampling both runs and scenes.

    What another seed of the recipe would do in other scenes. Few runs tell little of how far apart
    runs lie, so that with two or three the interval is rather too narrow.

    Args:
        values: For each run one per row, of shape (K, N).
        scenes: Scene of each row.
        seed: Of the resampling.
    """
    names, index = np.unique(np.asarray(scenes), return_inverse=True)
    sums = np.stack([np.bincount(index, weights=np.asarray(run, float)) for run in values])
    rng = np.random.default_rng(seed)
    times = rng.multinomial(len(names), np.full(len(names), 1 / len(names)), size=_RESAMPLES)
    runs = rng.integers(len(sums), size=(_RESAMPLES, len(sums)))
    totals = np.take_along_axis(times @ sums.T, runs, axis=1).mean(axis=1)  # (R,)
    low, high = np.quantile(totals / (times @ np.bincount(index)), [0.025, 0.975])
    return float(low), float(high)


def interval_over_groups(
    values: Sequence[float],
    scenes: Sequence[str],
    groups: Sequence[str],
    weights: Mapping[str, float],
    seed: int = 0,
) -> tuple[float, float] | None:
    """95 % interval of a weighted mean of the means of groups; None: fewer than two scenes.

    Scenes are resampled as for means. A group of which a resample has no row has no weight in it.

    Args:
        values: One per row.
        scenes: Scene of each row.
        groups: Group of each row.
        weights: Of each group.
        seed: Of the resampling.
    """
    names, scene = np.unique(np.asarray(scenes), return_inverse=True)
    kinds, group = np.unique(np.asarray(groups), return_inverse=True)
    if len(names) < 2:
        return None
    sums, counts = np.zeros((2, len(names), len(kinds)))
    np.add.at(sums, (scene, group), np.asarray(values, float))
    np.add.at(counts, (scene, group), 1.0)
    rng = np.random.default_rng(seed)
    times = rng.multinomial(len(names), np.full(len(names), 1 / len(names)), size=_RESAMPLES)
    totals = times @ counts  # (R, G)
    means = times @ sums / np.maximum(totals, 1)
    shares = np.array([weights[kind] for kind in kinds]) * (totals > 0)
    low, high = np.quantile((means * shares).sum(1) / shares.sum(1), [0.025, 0.975])
    return float(low), float(high)


@dataclass(frozen=True)
class PairedDifference:
    """How two models differ on the same rows."""

    difference: float  # mean of the second minus mean of the first
    interval_95: tuple[float, float] | None  # None: they are of one scene
    p_value: float  # of no difference, two-sided
    scenes: int


def paired_test(
    differences: Sequence[float], scenes: Sequence[str], seed: int = 0
) -> PairedDifference | None:
    """Compare two models row by row; None for no rows.

    Were the models alike, the sum of the differences of each scene could as well have the other
    sign (a sign-flip permutation test). Whole scenes are flipped, because rows of one scene are
    not independent.

    Args:
        differences: One per row: the second model's score minus the first's.
        scenes: Scene of each row.
        seed: Of the resampling and of the flips.
    """
    if not differences:
        return None
    interval = bootstrap_interval(differences, scenes, seed)
    _, index = np.unique(np.asarray(scenes), return_inverse=True)
    sums = np.bincount(index, weights=np.asarray(differences, float))  # (S,)
    mean = float(sums.sum() / len(differences))
    return PairedDifference(mean, interval, _sign_flip_p(sums, seed), len(sums))


def _sign_flip_p(sums: np.ndarray[Any, Any], seed: int) -> float:
    """Share of all sign patterns that give at least so large a sum; drawn where they are many."""
    # Rounding must not tell a sum from itself.
    limit = abs(sums.sum()) * (1 - 1e-9) - 1e-12
    sums = sums[sums != 0]  # has no sign
    if 2 ** len(sums) <= _FLIPS:
        patterns = np.array(list(product([-1, 1], repeat=len(sums)))).reshape(
            2 ** len(sums), len(sums)
        )
        return float(np.mean(np.abs(patterns @ sums) >= limit))
    rng = np.random.default_rng(seed)
    reached = 0
    for _ in range(_FLIPS // _CHUNK):
        signs = 2 * rng.integers(0, 2, size=(_CHUNK, len(sums)), dtype=np.int8) - 1
        reached += int(np.sum(np.abs(signs @ sums) >= limit))
    # The pattern that was observed is one of them.
    return (1 + reached) / (1 + _FLIPS)
