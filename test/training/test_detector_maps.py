# SPDX-License-Identifier: Apache-2.0
"""A simulated detector misses, misnames and displaces some things, and the truth stays teacher."""

from __future__ import annotations

import math

from embodied_r_ros.questions.coverage import Coverage
from embodied_r_ros.questions.derive import QuestionsConfig
from embodied_r_ros.questions.map_rows import names_for
from embodied_r_ros.types.things import near_misses

from training.data.detector_maps import seen_by_detector
from training.data.random_maps import random_scene_map, rows_of_random_maps

TRUE = [random_scene_map(seed) for seed in range(20)]
SEEN = [seen_by_detector(scene, names_for('train'), seed) for seed, scene in enumerate(TRUE)]


def test_some_things_are_missed_or_misnamed_as_something_alike() -> None:
    labels = {(i, e.id): e.label for i, scene in enumerate(TRUE) for e in scene.landmarks}
    kept = {(i, e.id): e.label for i, scene in enumerate(SEEN) for e in scene.landmarks}
    assert 0.02 < 1 - len(kept) / len(labels) < 0.15
    other = {key: label for key, label in kept.items() if label != labels[key]}
    assert 0.005 < len(other) / len(kept) < 0.08
    assert all(label in near_misses(labels[key]) for key, label in other.items())
    assert set(other.values()) <= set(names_for('train'))


def test_places_and_sizes_are_off_by_little() -> None:
    true = {(i, e.id): e for i, scene in enumerate(TRUE) for e in scene.landmarks}
    off = [
        math.dist(e.position, true[i, e.id].position)
        for i, scene in enumerate(SEEN)
        for e in scene.landmarks
    ]
    assert 0.05 < sum(off) / len(off) < 0.2
    assert max(off) < 1.0
    sizes = [
        a / b
        for i, scene in enumerate(SEEN)
        for e in scene.landmarks
        for a, b in zip(e.size or (), true[i, e.id].size or (), strict=True)
    ]
    assert 0.6 < min(sizes) < 0.9 < max(sizes) < 1.5


def test_it_is_the_same_for_the_same_seed_and_paths_are_as_they_were() -> None:
    assert seen_by_detector(TRUE[0], names_for('train'), 0) == SEEN[0]
    assert SEEN[0].path == TRUE[0].path
    assert seen_by_detector(TRUE[0], names_for('train'), 1) != SEEN[0]


def test_rows_carry_its_map_and_the_true_solution() -> None:
    config = QuestionsConfig(seed=2, moments=1, maps=True)
    true, seen = (
        list(rows_of_random_maps(3, config, Coverage(), by_detector=by_detector))
        for by_detector in (False, True)
    )
    assert {row.question for row in true} & {row.question for row in seen}
    assert true[0].landmarks != seen[0].landmarks
    assert {row.scene_id for row in seen} == {f'detected-2-{number}' for number in range(3)}
