# SPDX-License-Identifier: Apache-2.0
"""Names of scene maps: one for each place, and the same whatever else is asked about."""

from __future__ import annotations

from dataclasses import replace
import json
from typing import TYPE_CHECKING

from embodied_r_ros.cli.main import main
from embodied_r_ros.data.episodes.inspect import bag_digest
from embodied_r_ros.data.questions.collect import shared_map_names
from embodied_r_ros.data.questions.row import read_rows, Row
import pytest

from test.data.questions.test_map_kinds import WALK

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def sites(tmp_path: Path) -> tuple[Path, Path]:
    """Maps of two places, in folders and files of the same names."""
    first = WALK.scene
    second = replace(first, landmarks=first.landmarks[:-1])
    paths = tmp_path / 'siteA' / 'maps' / 'MAP.json', tmp_path / 'siteB' / 'maps' / 'MAP.json'
    for path, scene in zip(paths, (first, second), strict=True):
        path.parent.mkdir(parents=True)
        path.write_text(json.dumps(scene.to_json()))
    return paths


def rows_of_maps(out: Path, *words: object) -> list[Row]:
    assert main(['questions', *map(str, words), '--out', str(out)]) == 0
    return list(read_rows(out))


def name_of(path: Path) -> str:
    return f'maps/MAP-{bag_digest(path).sha256[:8]}'


def test_maps_of_one_name_are_two_places(sites: tuple[Path, Path], tmp_path: Path) -> None:
    rows = rows_of_maps(tmp_path / 'rows.jsonl', *sites)
    assert len({row.id for row in rows}) == len(rows)
    assert {row.scene_id for row in rows} == set(map(name_of, sites))
    assert all(row.id.startswith(f'{row.scene_id}/') for row in rows)
    again = rows_of_maps(tmp_path / 'again.jsonl', *sites[::-1])
    assert {row.id for row in again} == {row.id for row in rows}


def test_a_map_has_its_plain_name_alone_among_others_and_beside_its_copy(
    sites: tuple[Path, Path], tmp_path: Path
) -> None:
    alone = rows_of_maps(tmp_path / 'alone.jsonl', sites[0])
    assert {row.scene_id for row in alone} == {'maps/MAP'}
    other = sites[1].rename(sites[1].with_name('OTHER.json'))
    beside = rows_of_maps(tmp_path / 'beside.jsonl', sites[0], other)
    assert [row for row in beside if row.scene_id == 'maps/MAP'] == alone
    copy = tmp_path / 'copies' / 'maps' / 'MAP.json'
    copy.parent.mkdir(parents=True)
    copy.write_bytes(sites[0].read_bytes())
    assert rows_of_maps(tmp_path / 'copied.jsonl', sites[0], copy) == alone


def test_names_are_compared_wherever_maps_lie(tmp_path: Path) -> None:
    near = str(tmp_path / 'maps' / 'MAP.json')
    far = 's3://bucket/maps/MAP.json'
    assert shared_map_names([(near, '1'), (far, '2')]) == {'maps/MAP'}
    assert shared_map_names([(near, '1'), (far, '1'), ('s3://bucket/MAP.json', '2')]) == set()
