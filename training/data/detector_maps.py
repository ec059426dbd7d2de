# SPDX-License-Identifier: Apache-2.0
"""Maps as a simulated detector would leave them: things missed, misnamed, displaced, missized.

The rates are assumptions about a small detector with depth, not measured ones: whatever rests on
them is called "simulated detector".
"""

from __future__ import annotations

from dataclasses import replace
import math
from random import Random
from typing import TYPE_CHECKING

from embodied_r_ros.questions.map_rows import as_in_rows
from embodied_r_ros.types.things import named_things, near_misses

if TYPE_CHECKING:
    from collections.abc import Sequence

    from embodied_r_ros.types.landmarks import Landmark, PathPoint, SceneMap

_MISSED, _SMALL_MISSED = 0.04, 0.15  # shares
_SMALL_M = 0.15  # what is nowhere longer is small
_MISNAMED = 0.03  # share that is called like something alike
_OFF_M, _OFF_SHARE = 0.03, 0.03  # deviation of a place: at all, and per metre of distance
_SIZE_SHARE = 0.08  # deviation of an extent


def seen_by_detector(scene: SceneMap, names: Sequence[str], seed: int | str) -> SceneMap:
    """The map of the same place by a simulated detector.

    Args:
        scene: What a perfect perceiver knows.
        names: What things may be called.
        seed: Of all errors.
    """
    rng = Random(f'detector:{seed}')
    landmarks = tuple(
        _detected(landmark, scene.path, names, rng)
        for landmark in scene.landmarks
        if rng.random() >= _missed_share(landmark)
    )
    return as_in_rows(replace(scene, landmarks=landmarks))


def _missed_share(landmark: Landmark) -> float:
    longest_m = max(landmark.size or named_things()[landmark.label].size)
    return _SMALL_MISSED if longest_m < _SMALL_M else _MISSED


def _detected(
    landmark: Landmark, path: Sequence[PathPoint], names: Sequence[str], rng: Random
) -> Landmark:
    alike = [name for name in near_misses(landmark.label) if name in names]
    is_misnamed = bool(alike) and rng.random() < _MISNAMED
    x, y, z = landmark.position
    distance_m = min((math.dist(point.position, landmark.position) for point in path), default=0.0)
    off_m = _OFF_M + _OFF_SHARE * distance_m
    wide, deep, high = (math.exp(rng.gauss(0, _SIZE_SHARE)) for _ in range(3))
    size = landmark.size
    return replace(
        landmark,
        label=rng.choice(alike) if is_misnamed else landmark.label,
        position=(x + rng.gauss(0, off_m), y + rng.gauss(0, off_m), z + rng.gauss(0, off_m / 2)),
        size=size and (wide * size[0], deep * size[1], high * size[2]),
    )
