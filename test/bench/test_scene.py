# SPDX-License-Identifier: Apache-2.0
"""Maps of a real cabinet, and figures of maps that are known by hand."""

from __future__ import annotations

from typing import TYPE_CHECKING

from embodied_r_ros.core.types.deltas import ScaleSource
from embodied_r_ros.core.types.images import EncodedImage
from embodied_r_ros.core.types.keyframes import Keyframe, KeyframeReason
from embodied_r_ros.core.types.landmarks import Landmark
from embodied_r_ros.core.types.layout import ImageTruth, Layout, LayoutObject, ObjectView, Span
import pytest

from bench import camera_maps
from bench.scene import (
    count_room,
    MapTally,
    measure_cabinet,
    measure_stream,
    room_figures,
)
from test.core.scene.places import CAMERA, camera_at

if TYPE_CHECKING:
    from pathlib import Path


def thing(number: int, colour: str, x: float) -> LayoutObject:
    place = (x, 0.0, 0.2)
    size = (0.2, 0.2, 0.2)
    label = f'{colour} round object'
    return LayoutObject(
        number, label, colour, 'round', size, 0.0, 'floor', (Span(0, 99, place, place),)
    )


def test_doubles_and_mistakes_are_counted_apart() -> None:
    views = tuple(ObjectView(n, True, 1.0, 0.1, 0.0, 0.0, 2.0, 0.1) for n in range(2))
    layout = Layout(
        'e',
        's',
        (6.0, 6.0, 3.0),
        (thing(0, 'red', 2.0), thing(1, 'blue', 3.0)),
        (ImageTruth(5, (0.0, 0.0, 1.0), 0.0, 0.0, 0.0, views),),
    )
    keyframe = Keyframe(
        0,
        5,
        EncodedImage(b'', 'jpeg'),
        KeyframeReason.FIRST,
        0,
        intrinsics=CAMERA,
        pose=camera_at(0, 0),
    )
    landmarks = [
        Landmark('red round object', (2.1, 0.0, 0.2), last_seen_ns=5),
        Landmark('red tall object', (2.6, 0.0, 0.2), last_seen_ns=5),
        Landmark('green object', (2.0, 0.0, 0.2), last_seen_ns=5),
    ]
    tally = MapTally()
    count_room(layout, [keyframe], landmarks, tally)
    figures = room_figures(tally)
    assert (figures['found'], figures['doubled'], figures['false']) == (0.5, 0.5, 0.5)
    assert figures['off_m_p50'] == pytest.approx(0.1)
    assert figures['counts_right'] == 0.0


def test_a_stream_does_not_grow_the_map() -> None:
    rows = measure_stream(300)['rows']
    assert rows[300]['landmarks'] <= 26
    assert rows[300]['state_kB'] < 1.3 * rows[150]['state_kB']


def test_a_real_cabinet_is_one_landmark_where_it_is(footage: Path) -> None:
    figures = measure_cabinet(footage / 'real' / 'cabinet', ('depth',))['depth']
    assert (figures['landmarks'], figures['gone']) == (1, 0)
    assert figures['off_m'] < 0.1
    assert figures['observations'] == figures['boxes']


@pytest.mark.slow
def test_a_walk_without_poses_and_depth_has_its_things_where_they_are(footage: Path) -> None:
    known = camera_maps.map_points(footage / 'real' / 'walk_indoor')
    figures = camera_maps.figures(known)
    assert known.scene_map.scale is ScaleSource.RELATIVE
    assert figures['due'] >= 20
    assert figures['placed'] >= 0.8
    assert figures['right'] >= 0.8
    assert figures['directions_right'] >= 0.85
