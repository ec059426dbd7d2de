# SPDX-License-Identifier: Apache-2.0
"""Random rooms hold what can be; an oracle that reads words alone solves what they are asked."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations
import math
import os
from pathlib import Path
from typing import TYPE_CHECKING

from embodied_r_ros.questions.coverage import Coverage
from embodied_r_ros.questions.derive import QuestionsConfig
from embodied_r_ros.questions.map_rows import MAP_KINDS
from embodied_r_ros.questions.row import read_rows
from embodied_r_ros.types.things import is_held_out_name, named_things
import pytest

from test.questions.test_map_kinds import WALK
from training.data.map_oracle import kind_and_words, solve_from_map
from training.data.random_maps import (
    main,
    random_map_moment,
    random_scene_map,
    rows_of_random_maps,
)

if TYPE_CHECKING:
    from embodied_r_ros.questions.row import Row
    from embodied_r_ros.types.landmarks import Landmark, SceneMap

ROOMS = 12
ROUNDED_M = 2e-3  # maps are rounded to the millimetre
SCENES = [random_scene_map(seed) for seed in range(ROOMS)]


@pytest.fixture(scope='module')
def rows() -> list[Row]:
    config = QuestionsConfig(seed=3, moments=2, test_share=0.4, maps=True)
    return list(rows_of_random_maps(ROOMS, config, Coverage()))


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
    assert random_scene_map(4) == SCENES[4]
    assert len({str(scene.to_json()) for scene in SCENES}) == ROOMS


def test_names_held_out_are_in_no_room_for_training() -> None:
    labels = {landmark.label for scene in SCENES for landmark in scene.landmarks}
    assert len(labels) > 60
    assert not any(map(is_held_out_name, labels))
    held_out = [name for name in named_things() if is_held_out_name(name)]
    scene = random_map_moment(0, held_out).scene
    assert all(is_held_out_name(landmark.label) for landmark in scene.landmarks)


def test_rows_hold_out_names_and_wordings(rows: list[Row]) -> None:
    by_split: dict[str, bool] = {}
    for row in rows:
        has_rare = any(is_held_out_name(thing['label']) for thing in row.landmarks)
        by_split[row.split] = by_split.get(row.split, False) or has_rare
        assert row.split == 'test' or not row.meta['held_out_wording']
    assert by_split == {'train': False, 'test': True}


def test_oracle_solves_what_the_truth_solves(rows: list[Row]) -> None:
    answers = [solve_from_map(row.question, row.options, row.scene_map()) for row in rows]
    pairs = zip(rows, answers, strict=True)
    assert [(r.question, a, r.solution_text()) for r, a in pairs if a != r.solution_text()] == []
    assert {row.question_type for row in rows} >= set(MAP_KINDS) - {'unknown_size'}


def test_oracle_reads_names_as_people_use_them() -> None:
    assert solve_from_map('Is there a couch here?', (), WALK.scene) == 'yes'
    assert solve_from_map('Where is the television?', (), WALK.scene) == '4.3 m to the left'
    assert solve_from_map('How many sofas did you see?', (), WALK.scene) == '1'
    assert solve_from_map('How many pianos did you see?', (), WALK.scene) == '0'


@pytest.mark.parametrize(
    'question',
    [
        'Where is the armchair?',
        'How far is the piano from you now (in meters)?',
        'What colour is the sofa?',
        'Who lives here?',
        'What is the gap between the sofa and the piano in meters?',
    ],
)
def test_oracle_knows_what_it_does_not_know(question: str) -> None:
    assert solve_from_map(question, (), WALK.scene) == 'unknown'


def test_oracle_without_a_path_knows_no_direction_from_now() -> None:
    scene = replace(WALK.scene, path=())
    assert solve_from_map('Where is the sofa?', (), scene) == 'unknown'
    assert solve_from_map('How many sofas did you see?', (), scene) == '1'


def test_wordier_wording_wins() -> None:
    question = 'Where is the red cup relative to you at your current location?'
    assert kind_and_words(question) == ('landmark_position', {'item': 'red cup'})


def test_route_as_people_write_it() -> None:
    question = (
        'You are a robot beginning at the sofa and facing the tv. You want to navigate to the '
        'desk. You will perform the following actions (Note: for each [please fill in], choose '
        "either 'turn back,' 'turn left,' or 'turn right.'): 1. Go forward until past the bed. "
        '2. [Please fill in] 3. Go forward until the desk.. '
        'You have reached the final destination.'
    )
    assert solve_from_map(question, (), WALK.scene) == 'Turn Left'


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


def test_command_writes_rows(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / 'rows.jsonl'
    assert main(['--rooms', '2', '--out', str(out)]) == 0
    assert len(list(read_rows(out))) > 40
    assert 'object_counting' in capsys.readouterr().err
    assert main(['--rooms', '2', '--out', str(out)]) == 2
    assert 'random_maps: error: ' in capsys.readouterr().err
