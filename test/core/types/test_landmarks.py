# SPDX-License-Identifier: Apache-2.0
"""Scene maps as JSON: what is written is read, and what cannot be read is named."""

from __future__ import annotations

import json
from typing import Any, TYPE_CHECKING

from embodied_r_ros.common.errors import InputError
from embodied_r_ros.core.types.deltas import ScaleSource
from embodied_r_ros.core.types.landmarks import (
    Landmark,
    LandmarkStatus,
    PathPoint,
    read_scene_map,
    SceneMap,
    thin_path,
)
import numpy as np
import pytest

if TYPE_CHECKING:
    from pathlib import Path

SOFA = Landmark('sofa', (1.0, -2.5, 0.4), 3, (2.0, 0.9, 0.8), 5, 9, 4, 0.75, keyframe_ids=(2, 1))
LAMP = Landmark('lamp', (0.0, 1.0, 1.5), 4, status=LandmarkStatus.GONE)


def test_a_map_is_read_as_it_was_written() -> None:
    scene_map = SceneMap(
        (SOFA, LAMP), (PathPoint(7, (0.0, 0.5, 1.2), -0.25),), 'odom', 21.5, ScaleSource.DEPTH
    )
    assert SceneMap.from_json(json.loads(json.dumps(scene_map.to_json()))) == scene_map


def test_label_and_position_are_enough() -> None:
    scene_map = SceneMap.from_json(
        {'landmarks': [{'label': 'sofa', 'position': [1, 2, 3]}, {**SOFA.to_json(), 'colour': 1}]}
    )
    assert scene_map.landmarks == (Landmark('sofa', (1.0, 2.0, 3.0)), SOFA)
    assert scene_map.path == ()
    assert scene_map.room_area_m2 is None


def test_labels_are_read_as_questions_write_them() -> None:
    value = {'landmarks': [{'label': ' Trash_Can', 'position': [1, 2, 3]}]}
    assert SceneMap.from_json(value).landmarks[0].label == 'trash can'


def test_a_long_path_keeps_where_the_camera_was_when() -> None:
    # Five metres ahead, aside and back within four seconds, a long stop, and on.
    stations = [(0, 0.0, 0.0), (50, 5.0, 0.0), (52, 5.0, 4.0), (54, 5.0, 0.0), (254, 5.0, 0.0),
                (304, 10.0, 0.0)]  # fmt: skip
    times, xs, ys = zip(*stations, strict=True)
    every = np.arange(305)
    path = [
        PathPoint(int(t), (float(x), float(y), 0.0), 0.0)
        for t, x, y in zip(every, np.interp(every, times, xs), np.interp(every, times, ys),
                           strict=True)
    ]  # fmt: skip
    points = thin_path(path)
    assert len(points) == 40
    assert (points[0], points[-1]) == (path[0], path[-1])
    stamps = [point.stamp_ns for point in points]
    assert stamps == sorted(set(stamps))
    for axis, truth in enumerate((xs, ys)):
        between = np.interp(every, stamps, [point.position[axis] for point in points])
        assert between == pytest.approx(np.interp(every, times, truth), abs=1e-6)
    assert thin_path(points) == points


def test_the_path_of_a_camera_that_stays_is_thinned_evenly() -> None:
    path = [PathPoint(stamp, (1.0, 2.0, 0.0), 0.1 * stamp) for stamp in range(200)]
    stamps = [point.stamp_ns for point in thin_path(path)]
    assert len(stamps) == 40
    assert max(np.diff(stamps)) <= 13


@pytest.mark.parametrize(
    ('value', 'words'),
    [
        ([], 'JSON object'),
        ({'path': []}, 'landmarks'),
        ({'landmarks': {}}, 'landmarks is {}'),
        ({'landmarks': [3]}, 'landmark 0 is 3'),
        ({'landmarks': [{'label': 'sofa'}]}, 'position is None'),
        ({'landmarks': [{'label': 'sofa', 'position': [1, 2]}]}, r'position is \[1, 2\]'),
        ({'landmarks': [{'label': 'sofa', 'position': [1, 2, 'x']}]}, "is 'x'"),
        ({'landmarks': [{'label': 'sofa', 'position': [1, 2, float('nan')]}]}, 'is nan'),
        ({'landmarks': [{'label': 'sofa', 'position': [1, 2, True]}]}, 'is True'),
        ({'landmarks': [{'label': 'sofa', 'position': [1, 2, 10**400]}]}, 'expected a number'),
        ({'landmarks': [{'label': 'sofa', 'position': [1, 2, 1e300]}]}, 'expected a number'),
        ({'landmarks': [{'label': ' ', 'position': [1, 2, 3]}]}, 'label'),
        ({'landmarks': [], 'room_area_m2': -1}, 'room_area_m2 is -1'),
        ({'landmarks': [{'label': 7, 'position': [1, 2, 3]}]}, 'label'),
        ({'landmarks': [{**SOFA.to_json(), 'status': 'lost'}]}, "status is 'lost'"),
        ({'landmarks': [{**SOFA.to_json(), 'size': 2}]}, 'size is 2'),
        ({'landmarks': [], 'frame_id': 3}, 'frame_id is 3'),
        ({'landmarks': [], 'room_area_m2': 'big'}, "room_area_m2 is 'big'"),
        ({'landmarks': [], 'path': [[1, 2, 3]]}, 'path point 0'),
        ({'landmarks': [], 'scale': 'feet'}, "scale is 'feet'"),
        ({'landmarks': [], 'scale': ['depth']}, 'scale is'),
    ],
)
def test_what_cannot_be_read_is_named(value: Any, words: str, tmp_path: Path) -> None:
    path = tmp_path / 'MAP.json'
    path.write_text(json.dumps(value))
    with pytest.raises(InputError, match=words) as caught:
        read_scene_map(path)
    assert str(path) in str(caught.value)


def test_a_file_that_is_no_json_is_named(tmp_path: Path) -> None:
    path = tmp_path / 'MAP.json'
    with pytest.raises(InputError, match=r'MAP\.json is unreadable'):
        read_scene_map(path)
    path.write_text('{"landmarks": [')
    with pytest.raises(InputError, match='is not JSON'):
        read_scene_map(path)
