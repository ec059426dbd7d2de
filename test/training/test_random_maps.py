# SPDX-License-Identifier: Apache-2.0
"""Random rooms hold what can be, and questions about them are read as their kind."""

from __future__ import annotations

from itertools import combinations
import math
import os
from pathlib import Path
from typing import TYPE_CHECKING

from embodied_r_ros.core.types.things import is_held_out_name, named_things
import pytest

from training.data.calls import kind_and_words, route_stops
from training.data.random_maps import random_map_moment

if TYPE_CHECKING:
    from embodied_r_ros.core.types.landmarks import Landmark, SceneMap

ROOMS = 12
ROUNDED_M = 2e-3  # maps are rounded to the millimetre
SCENES = [random_map_moment(seed).scene for seed in range(ROOMS)]


def overlap(a: Landmark, b: Landmark) -> bool:
    assert a.size
    assert b.size
    return all(
        abs(pa - pb) < (sa + sb) / 2 - ROUNDED_M
        for pa, pb, sa, sb in zip(a.position, b.position, a.size, b.size, strict=True)
    )


@pytest.mark.parametrize('scene', SCENES)
def test_things_stand_apart_in_a_room_of_its_size(scene: SceneMap) -> None:
    assert len(scene.landmarks) >= 3
    sized = [landmark for landmark in scene.landmarks if landmark.size]
    assert not any(overlap(a, b) for a, b in combinations(sized, 2))
    if scene.room_area_m2:
        wide, deep = (
            max(e.position[axis] + e.size[axis] / 2 for e in sized if e.size)
            - min(e.position[axis] - e.size[axis] / 2 for e in sized if e.size)
            for axis in (0, 1)
        )
        assert wide * deep <= scene.room_area_m2 + 0.05
    for landmark in sized:
        assert landmark.size
        assert landmark.position[2] >= landmark.size[2] / 2 - ROUNDED_M
        typical = sorted(named_things()[landmark.label].size)
        ratios = [a / b for a, b in zip(sorted(landmark.size), typical, strict=True)]
        assert all(0.8 < ratio < 1.25 for ratio in ratios)


@pytest.mark.parametrize('scene', SCENES)
def test_way_goes_round_what_stands_and_sees_what_is_in_the_map(scene: SceneMap) -> None:
    assert scene.path[0].position[:2] == (0.0, 0.0)
    stamps = [point.stamp_ns for point in scene.path]
    assert stamps == sorted(set(stamps))
    blocks = [e for e in scene.landmarks if e.size and e.size[2] > 0.03]
    for point in scene.path:
        for block in (e for e in blocks if e.size and e.position[2] - e.size[2] / 2 < 1.2):
            assert block.size
            inside = [
                abs(point.position[axis] - block.position[axis]) < block.size[axis] / 2
                for axis in (0, 1)
            ]
            assert not all(inside), block
    for landmark in scene.landmarks:
        assert stamps[0] <= landmark.first_seen_ns <= landmark.last_seen_ns <= stamps[-1]
        assert math.dist(landmark.position, (0, 0, 0)) < 20


def test_same_seed_gives_the_same_room() -> None:
    assert random_map_moment(4).scene == SCENES[4]
    assert len({str(scene.to_json()) for scene in SCENES}) == ROOMS


def test_names_held_out_are_in_no_room_for_training() -> None:
    labels = {landmark.label for scene in SCENES for landmark in scene.landmarks}
    assert len(labels) > 60
    assert not any(map(is_held_out_name, labels))
    held_out = [name for name in named_things() if is_held_out_name(name)]
    scene = random_map_moment(0, held_out).scene
    assert all(is_held_out_name(landmark.label) for landmark in scene.landmarks)


def test_wordier_wording_wins() -> None:
    question = 'Where is the red cup relative to you at your current location?'
    assert kind_and_words(question) == ('landmark_position', {'item': 'red cup'})


def test_stops_of_a_route_as_people_write_it() -> None:
    steps = '1. Go forward until past the bed. 2. [Please fill in] 3. Go forward until the desk.. '
    assert route_stops(steps) == ['bed', 'desk']


def test_questions_of_the_benchmark_are_read_as_their_kind() -> None:
    folder = os.environ.get('EMBODIED_R_FOOTAGE')
    file = Path(folder or '.') / 'real' / 'vsi_bench' / 'test.parquet'
    if not folder or not file.exists():
        pytest.skip('EMBODIED_R_FOOTAGE names no folder with VSI-Bench')
    parquet = pytest.importorskip('pyarrow.parquet')
    columns = ['question_type', 'question']
    rows = parquet.read_table(file, columns=columns).to_pylist()[::7]
    read = [(row['question_type'], kind_and_words(row['question'])) for row in rows]
    wrong = [(kind, words) for kind, words in read if not words or words[0] != kind]
    assert len(wrong) <= 4
    assert all(kind == 'route_planning' for kind, _ in wrong)
