# SPDX-License-Identifier: Apache-2.0
"""Rows about scene maps: what a true layout has shown so far, map files, what rows carry."""

from __future__ import annotations

from dataclasses import replace
import json
import math
from typing import TYPE_CHECKING

from embodied_r_ros.cli.main import main
from embodied_r_ros.common.errors import InputError
from embodied_r_ros.core.types.deltas import DeltaKind, Item, ScaleSource, SemanticDelta
from embodied_r_ros.core.types.geometry import Pose
from embodied_r_ros.core.types.landmarks import PathPoint, SceneMap
from embodied_r_ros.core.types.layout import Span
from embodied_r_ros.core.types.things import is_held_out_name, named_things
from embodied_r_ros.data.questions.coverage import Coverage
from embodied_r_ros.data.questions.derive import QuestionsConfig, rows_of_episode
from embodied_r_ros.data.questions.indoor import Moment, NoSolution
from embodied_r_ros.data.questions.map_kinds import MapMoment
from embodied_r_ros.data.questions.map_rows import (
    as_in_rows,
    layout_map,
    MAP_KINDS,
    perceived_map,
    rows_of_map,
)
from embodied_r_ros.data.questions.row import read_rows, Row
from embodied_r_ros.data.questions.splits import SplitGuard
import pytest

from test.data.questions.test_kinds import DELTAS, episode, layout, POSES, SECOND_NS
from test.data.questions.test_map_kinds import WALK

if TYPE_CHECKING:
    from pathlib import Path

    from embodied_r_ros.core.types.layout import Layout
    from embodied_r_ros.data.episodes.episode import Episode


LEVEL = Pose((0.0, 0.0, 1.0), (0.0, 0.0, 0.0, 1.0), 'odom')


def map_moment(truth: Layout, count: int = len(DELTAS)) -> MapMoment:
    made = layout_map(Moment(DELTAS[:count], POSES[:count], truth))
    assert isinstance(made, MapMoment)
    return made


def test_layout_gives_what_was_seen_so_far() -> None:
    labels = [landmark.label for landmark in map_moment(layout()).scene.landmarks]
    assert labels == ['red tall object', 'blue round object', 'green flat object']
    early = map_moment(layout(), 2).scene
    assert [landmark.label for landmark in early.landmarks] == ['red tall object']
    assert early.landmarks[0].last_seen_ns == 2 * SECOND_NS
    assert early.room_area_m2 == 100.0
    assert len(early.path) == 2


def test_pose_now_is_level_and_wrapped() -> None:
    truth = layout()
    turned = replace(truth.images[-1], yaw_rad=math.radians(90 + 720))
    now = map_moment(replace(truth, images=(*truth.images[:-1], turned))).tools.robot
    assert now.yaw_rad == pytest.approx(math.pi / 2, abs=1e-4)


def test_what_moved_out_of_view_is_in_the_map_and_is_not_asked_about() -> None:
    truth = layout()
    red = truth.objects[0]
    there, away = red.spans[0].start, (9.0, 9.0, 1.0)
    spans = (Span(0, 3 * SECOND_NS, there, there), Span(3 * SECOND_NS, 99 * SECOND_NS, away, away))
    made = map_moment(replace(truth, objects=(replace(red, spans=spans), *truth.objects[1:])))
    assert made.scene.landmarks[0].position == there
    assert made.doubtful == {'red tall object'}
    assert 'red tall object' not in made.things


def test_label_of_which_some_were_missed_is_not_counted() -> None:
    truth = layout()
    twin = replace(truth.objects[0], id=4, first_seen_ns=0, last_seen_ns=0)
    assert map_moment(replace(truth, objects=(*truth.objects, twin))).doubtful == {
        'red tall object'
    }


@pytest.mark.parametrize(('degrees', 'size'), [(20, (0.2, 0.5, 1)), (80, (0.5, 0.2, 1))])
def test_size_is_turned_to_the_nearest_axis(
    degrees: float, size: tuple[float, float, float]
) -> None:
    truth = layout()
    red = replace(truth.objects[0], size=(0.2, 0.5, 1.0), yaw_rad=math.radians(degrees))
    made = map_moment(replace(truth, objects=(red, *truth.objects[1:])))
    assert made.scene.landmarks[0].size == size


def test_without_a_layout_there_is_no_map_yet() -> None:
    assert layout_map(Moment(DELTAS, POSES)) == NoSolution('no true layout, and no map')


def test_rows_of_today_are_the_same_with_rows_about_the_map() -> None:
    plain, more = (
        list(rows_of_episode(episode(), config, Coverage()))
        for config in (QuestionsConfig(), QuestionsConfig(maps=True))
    )
    of_today = [row for row in more if row.question_type not in MAP_KINDS]
    without_map = [
        replace(row, landmarks=(), pose=None, path=(), room_area_m2=None) for row in of_today
    ]
    assert without_map == plain
    assert not any('landmarks' in json.loads(row.to_json()) for row in plain)
    # As in live prompts, the map stands above any question.
    assert all(row.has_map for row in more)
    kinds = {row.question_type for row in more} - {row.question_type for row in plain}
    assert {'object_abs_distance', 'route_planning', 'unknown_thing', 'way_to'} <= kinds


def record(*, placed: bool) -> Episode:
    """What a camera with poses recorded: four things around it, with or without distances."""
    items = tuple(
        Item(
            label,
            bearing_rad=math.radians(degrees),
            elevation_rad=0.0,
            size_rad=0.3,
            distance_m=metres if placed else math.nan,
            scale=ScaleSource.DEPTH,
        )
        for label, degrees, metres in (
            ('sofa', 0, 3.0),
            ('door', 30, 4.0),
            ('chair', -30, 2.0),
            ('lamp', 15, 1.5),
        )
    )
    deltas = tuple(
        SemanticDelta(i * SECOND_NS, DeltaKind.CHANGE, i, items=items, pose=LEVEL)
        for i in range(1, 5)
    )
    return replace(episode(), layout=None, deltas=deltas, poses=())


def test_map_of_a_recording_is_its_own_teacher() -> None:
    rows = [
        row
        for row in rows_of_episode(record(placed=True), QuestionsConfig(maps=True), Coverage())
        if row.question_type in MAP_KINDS
    ]
    assert {row.source for row in rows} == {'map', 'foreign'}
    assert {'object_abs_distance', 'how_far', 'unknown_thing'} <= {r.question_type for r in rows}
    far = {'sofa': 3.0, 'door': 4.0, 'chair': 2.0, 'lamp': 1.5}
    asked = [row for row in rows if row.question_type == 'how_far']
    for row in asked:
        [metres] = [metres for label, metres in far.items() if label in row.question]
        assert float(row.solution) == pytest.approx(metres, abs=0.3)
    labels = {landmark['label'] for landmark in rows[0].landmarks}
    assert labels == {'sofa', 'door', 'chair', 'lamp'}


def test_what_has_no_place_is_neither_absent_nor_counted() -> None:
    made = record(placed=True)
    lamp = replace(made.deltas[0].items[-1], bearing_rad=-1.0)
    unplaced = (Item('oven', bearing_rad=1.0), replace(lamp, distance_m=math.nan))
    deltas = tuple(replace(delta, items=(*delta.items, *unplaced)) for delta in made.deltas)
    moment = perceived_map(Moment(deltas, (), None), 'train', 0.3)
    assert isinstance(moment, MapMoment)
    assert {'lamp', 'sofa'} <= {landmark.label for landmark in moment.scene.landmarks}
    assert moment.doubtful == {'oven', 'lamp'}
    assert 'oven' not in moment.absent(named_things())
    assert set(moment.things) == {'sofa', 'door', 'chair'}


def test_recording_in_which_nothing_has_a_place_gives_no_rows_about_a_map() -> None:
    coverage = Coverage()
    config = QuestionsConfig(maps=True)
    rows = list(rows_of_episode(record(placed=False), config, coverage))
    assert not any(row.has_map for row in rows)
    reason = 'no true layout, and nothing of what was seen has a place'
    assert coverage.unsolved['every map kind', reason] > 0


def test_row_carries_the_map_and_gives_it_back() -> None:
    rows = list(rows_of_map(WALK.scene, 'flat', QuestionsConfig(), Coverage()))
    row = Row.from_json(rows[0].to_json())
    assert row.to_json() == rows[0].to_json()
    assert row.pose == row.path[-1]
    assert row.scene_map().to_json()['landmarks'] == WALK.scene.to_json()['landmarks']
    assert row.scene_map().to_json()['path'] == WALK.scene.to_json()['path']
    blind = row.without_scene()
    assert not blind.has_map
    assert blind.scene_map() == SceneMap()
    assert 'landmarks' not in json.loads(blind.to_json())


def test_pose_alone_is_a_path_of_one_point() -> None:
    rows = list(rows_of_map(WALK.scene, 'flat', QuestionsConfig(), Coverage()))
    row = replace(rows[0], path=())
    assert [point.stamp_ns for point in row.scene_map().path] == [WALK.scene.path[-1].stamp_ns]


@pytest.mark.parametrize(
    ('change', 'message'),
    [
        ({'landmarks': 'sofa'}, "landmarks is 'sofa', expected a list"),
        ({'landmarks': [{'label': 'sofa'}]}, 'landmark 0: position is None'),
        ({'pose': [1, 2]}, r'path point \d+ is \[1, 2\]: expected an object with position'),
        ({'path': [{'stamp_ns': 'x'}]}, "path point 0: stamp_ns is 'x'"),
    ],
)
def test_bad_map_of_a_row_is_refused(change: dict[str, object], message: str) -> None:
    row = next(rows_of_map(WALK.scene, 'flat', QuestionsConfig(), Coverage()))
    with pytest.raises(InputError, match=message):
        Row.from_mapping({**json.loads(row.to_json()), **change})


def test_long_path_keeps_its_ends() -> None:
    path = tuple(PathPoint(n, (float(n), 0.0, 0.0), 0.0) for n in range(1000))
    short = as_in_rows(SceneMap(path=path)).path
    assert len(short) == 40
    assert (short[0], short[-1]) == (path[0], path[-1])
    assert as_in_rows(SceneMap(path=path[:7])).path == path[:7]


def test_same_question_about_another_map_is_no_clash() -> None:
    guard = SplitGuard()
    row = next(rows_of_map(WALK.scene, 'flat', QuestionsConfig(), Coverage()))
    assert guard.clash_of(row) == ''
    assert guard.clash_of(replace(row, split='test')) == row.split
    other = replace(row, split='test', landmarks=row.landmarks[1:])
    assert guard.clash_of(other) == ''


def test_names_held_out_are_asked_for_in_the_test_split_alone() -> None:
    held_out = [name for name in named_things() if is_held_out_name(name)]
    coverage = Coverage()
    config = QuestionsConfig(moments=30, test_share=0.0)
    asked = [row.meta['truth'] for row in rows_of_map(WALK.scene, 'flat', config, coverage)]
    absent = {truth['absent'] for truth in asked if 'absent' in truth}
    assert absent
    assert not absent & set(held_out)
    config = replace(config, test_share=1.0)
    asked = [row.meta['truth'] for row in rows_of_map(WALK.scene, 'flat', config, coverage)]
    assert {truth.get('absent') for truth in asked} & set(held_out)


@pytest.mark.parametrize('is_bare', [False, True])
def test_map_file_becomes_rows(tmp_path: Path, is_bare: bool) -> None:
    """A map of others has labels and positions alone."""
    value = WALK.scene.to_json()
    if is_bare:
        value = {
            'landmarks': [{k: e[k] for k in ('label', 'position')} for e in value['landmarks']]
        }
    (tmp_path / 'flat.json').write_text(json.dumps(value))
    out = tmp_path / 'rows.jsonl'
    assert main(['questions', str(tmp_path / 'flat.json'), '--out', str(out)]) == 0
    rows = list(read_rows(out))
    kinds = {row.question_type for row in rows}
    assert {'object_rel_direction_hard', 'object_counting', 'unknown_thing'} <= kinds
    assert ('way_to' in kinds) is not is_bare
    assert all(row.source in ('map', 'foreign') and row.scene_id.endswith('/flat') for row in rows)
    assert len({row.id for row in rows}) == len(rows)
    manifest = json.loads((tmp_path / 'rows.manifest.json').read_text())
    assert manifest['rows']['count'] == len(rows)
    assert manifest['bags'][0]['rows'] == len(rows)


def test_unreadable_map_file_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / 'flat.json').write_text('{"things": []}')
    out = tmp_path / 'rows.jsonl'
    assert main(['questions', str(tmp_path / 'flat.json'), '--out', str(out)]) == 2
    assert 'a scene map is a JSON object with a list of landmarks' in capsys.readouterr().err
    assert not out.exists()
