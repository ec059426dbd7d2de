# SPDX-License-Identifier: Apache-2.0
"""What was perceived is kept whole, within its room, and whatever is damaged is perceived anew."""

from __future__ import annotations

import math
import os
from typing import TYPE_CHECKING

from embodied_r_ros.core.types.deltas import (
    DeltaKind,
    Item,
    ItemStatus,
    ModelInfo,
    Motion,
    MotionSource,
    Rung,
    ScaleSource,
    SemanticDelta,
)
from embodied_r_ros.core.types.geometry import Intrinsics, Pose
from embodied_r_ros.core.types.images import EncodedImage, PackedDepth
from embodied_r_ros.core.types.keyframes import Keyframe, KeyframeReason
from embodied_r_ros.core.types.landmarks import Landmark, SceneMap
from embodied_r_ros.data.episodes.perception_cache import Perceived, PerceptionCache, recording_key
import pytest

if TYPE_CHECKING:
    from pathlib import Path

AT = Pose((1.0, 2.0, 1.2345678), (0.0, 0.0, 0.6, 0.8), 'odom')
DELTAS = (
    SemanticDelta(1, DeltaKind.FIRST, change='In view: sofa ahead.'),
    SemanticDelta(
        2,
        DeltaKind.CHANGE,
        to_id=1,
        motion=Motion(MotionSource.FOLLOWED, yaw_rad=1 / 3, scale=ScaleSource.IMU),
        items=(Item('sofa', ItemStatus.LEFT, 1 / 7, box=(0.1, 0.2, 1 / 3, 1.0)),),
        model=ModelInfo('classical', rung=Rung.PRIMARY),
        pose=AT,
    ),
)
KEYFRAME = Keyframe(
    1, 2, EncodedImage(b'\xff\x00', 'jpeg'), KeyframeReason.ROLL, 0, 0.5,
    intrinsics=Intrinsics(4, 3, 1 / 3, 2.0, 2.0, 1.5, (0.1, 0.2, 0.3, 0.4)),
    pose=AT, depth=PackedDepth(b'\x01'),
)  # fmt: skip
PERCEIVED = Perceived(DELTAS, SceneMap((Landmark('sofa', (1.0, 2.0, 0.0)),)), lambda: (KEYFRAME,))


def test_what_is_kept_comes_back_whole(tmp_path: Path) -> None:
    PerceptionCache(tmp_path / 'new').put('key', PERCEIVED)
    known = PerceptionCache(tmp_path / 'new').get('key')
    assert known
    assert repr(known.deltas) == repr(DELTAS)  # NaN is not equal to itself
    assert known.scene_map == PERCEIVED.scene_map
    assert tuple(known.keyframes()) == (KEYFRAME,)
    assert math.isnan(known.deltas[0].motion.yaw_rad)
    assert [file.name for file in (tmp_path / 'new').iterdir()] == ['key.json']
    assert PerceptionCache(tmp_path / 'new').get('other') is None


@pytest.mark.parametrize(
    'text',
    [
        '', 'x', '[]', '{"deltas": [1], "map": {"landmarks": []}}',
        '{"deltas": [{"_": "Path"}], "map": {"landmarks": []}}',
        '{"deltas": [{"_": "Pose"}], "map": {"landmarks": []}}', '{"deltas": [], "map": {}}',
    ],
)  # fmt: skip
def test_what_cannot_be_read_is_nothing(tmp_path: Path, text: str) -> None:
    (tmp_path / 'key.json').write_text(text)
    assert PerceptionCache(tmp_path).get('key') is None


def test_keyframes_that_cannot_be_read_are_none(tmp_path: Path) -> None:
    cache = PerceptionCache(tmp_path)
    cache.put('key', PERCEIVED)
    scene = (tmp_path / 'key.json').read_text().partition('\n')[0]
    (tmp_path / 'key.json').write_text(f'{scene}\n[{{"_": "Keyframe"}}]\n')
    known = cache.get('key')
    assert known
    assert known.keyframes() == ()


def test_what_was_not_used_longest_goes_first(tmp_path: Path) -> None:
    cache = PerceptionCache(tmp_path)
    for number, name in enumerate(('used', 'old', 'new')):
        cache.put(name, PERCEIVED)
        os.utime(tmp_path / f'{name}.json', ns=(number, number))
    size = (tmp_path / 'new.json').stat().st_size
    assert cache.get('used')
    PerceptionCache(tmp_path, 3 * size).put('newest', PERCEIVED)
    names = {file.stem for file in tmp_path.iterdir()}
    assert names == {'used', 'new', 'newest'}


def test_a_folder_that_cannot_be_written_is_told_of(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / 'file').write_text('')
    PerceptionCache(tmp_path / 'file').put('key', PERCEIVED)
    assert 'what was perceived is not kept' in caplog.text


def test_a_key_is_that_of_the_content(tmp_path: Path) -> None:
    for name in ('a', 'b'):
        (tmp_path / name).mkdir()
        (tmp_path / name / '1.png').write_bytes(b'one')
    keys = {recording_key(tmp_path / name, 'classical') for name in ('a', 'b')}
    keys.add(recording_key(tmp_path / 'a', 'classical', '10 Hz'))
    keys.add(recording_key(tmp_path / 'a', 'detector'))
    (tmp_path / 'b' / '1.png').write_bytes(b'other')
    keys.add(recording_key(tmp_path / 'b', 'classical'))
    (tmp_path / 'depth').mkdir()
    (tmp_path / 'depth' / '1.png').write_bytes(b'far')
    keys.add(recording_key(tmp_path / 'b', 'classical'))
    assert len(keys) == 5
