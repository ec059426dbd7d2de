# SPDX-License-Identifier: Apache-2.0
"""Items of a real recording lie where they are, the nearer the more is known."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from bench.item_positions import cabinet_scene, Placement, placements, points_scene, summary

if TYPE_CHECKING:
    from pathlib import Path


def test_what_was_not_placed_counts_as_such() -> None:
    figures = summary(
        [Placement('depth', 'DEPTH', 0.1, 2.0), Placement('depth', '', math.nan, 1.0)]
    )
    assert figures['placed'] == 0.5
    assert figures['off_percent_p50'] == 5.0


def test_depth_places_the_cabinet_better_than_the_floor_does(footage: Path) -> None:
    scene = cabinet_scene(footage / 'real' / 'cabinet')
    few = scene.__class__(scene.shots, scene.boxes, scene.truths, scene.pairs[::3])
    depth, floor = (summary(placements(few, way)) for way in ('depth', 'floor'))
    assert depth['placed'] == 1.0
    assert depth['off_m_p50'] < min(0.13, floor['off_m_p50'])


def test_points_of_a_walk_are_placed_within_a_few_percent(footage: Path) -> None:
    scene = points_scene(footage / 'real' / 'walk_indoor')
    few = scene.__class__(scene.shots, scene.boxes, scene.truths, scene.pairs[::4])
    for way, most in (('noisy depth', 4.0), ('two keyframes', 8.0)):
        figures = summary(placements(few, way))
        assert figures['placed'] > 0.4
        assert figures['off_percent_p90'] < most
    assert np.isnan(summary(placements(few, 'floor'))['off_m_p50'])
