# SPDX-License-Identifier: Apache-2.0
"""`embodied-r map`: maps of recordings, as files and as pictures."""

from __future__ import annotations

from dataclasses import replace
import math
from pathlib import Path
from typing import TYPE_CHECKING

import cv2
from embodied_r_ros.bags.message_types import BagMessageFactory
from embodied_r_ros.bags.writer import BagWriter, RELIABLE_QOS
from embodied_r_ros.cli.main import main
from embodied_r_ros.core.types.deltas import ScaleSource
from embodied_r_ros.core.types.images import encode_image
from embodied_r_ros.core.types.keyframes import Keyframe, KeyframeReason
from embodied_r_ros.core.types.landmarks import read_scene_map
from embodied_r_ros.data.episodes.episode import read_layout
from embodied_r_ros.data.own_messages import delta_to_msg, keyframe_to_msg
import numpy as np
import pytest

from test.core.scene.places import CAMERA, camera_at, delta_of, Thing
from test.raycast_room import pose_at, Room

if TYPE_CHECKING:
    from embodied_r_ros.core.types.geometry import Pose
    from embodied_r_ros.core.types.layout import LayoutObject

SAMPLE = Path(__file__).parents[2] / 'samples' / 'indoor' / 'episode_00000'


def off_m(landmark_label: str, position: tuple[float, ...], thing: LayoutObject) -> float:
    """How far a landmark is from where a thing was at any time."""
    if landmark_label != thing.label:
        return math.inf
    places = [place for span in thing.spans for place in (span.start, span.end)]
    return min(math.dist(place, position) for place in places)


def test_a_simulated_room_is_mapped_and_drawn(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out, picture = tmp_path / 'MAP.json', tmp_path / 'map.png'
    assert main(['map', str(SAMPLE), '--out', str(out), '--picture', str(picture)]) == 0
    captured = capsys.readouterr()
    assert captured.out == ''
    assert 'metres rest on poses' in captured.err
    scene_map = read_scene_map(out)
    layout = read_layout(SAMPLE)
    assert layout
    assert (scene_map.frame_id, scene_map.scale) == ('odom', ScaleSource.ODOMETRY)
    near = [
        min(off_m(one.label, one.position, thing) for thing in layout.objects)
        for one in scene_map.landmarks
    ]
    placed = {one.label for one in scene_map.landmarks}
    assert placed >= {thing.label for thing in layout.objects} - {'shelf'}
    assert max(near) < 0.4
    assert np.median(near) < 0.25
    image = cv2.imread(str(picture))
    assert image is not None
    assert image.std() > 5
    assert sorted(path.name for path in tmp_path.iterdir()) == ['MAP.json', 'map.png']


def record(bag: Path, looks: list[tuple[str, Pose, Thing]]) -> Path:
    """A bag of keyframes and deltas, each of a camera at a pose that sees one thing."""
    make, image = BagMessageFactory(), np.zeros((CAMERA.height, CAMERA.width, 3), np.uint8)
    with BagWriter(bag) as writer:
        writer.add_topic('/semantic_delta', 'embodied_r_msgs/msg/SemanticDelta', RELIABLE_QOS)
        writer.add_topic('/keyframe', 'embodied_r_msgs/msg/Keyframe', RELIABLE_QOS)
        for number, (camera, pose, thing) in enumerate(looks):
            delta, _ = delta_of(number, pose, thing)
            delta = replace(delta, camera=camera)
            keyframe = Keyframe(
                number,
                delta.stamp_ns,
                encode_image(image),
                KeyframeReason.LOW_OVERLAP,
                max(0, number - 1),
                camera=camera,
                intrinsics=CAMERA,
                pose=pose,
            )
            writer.write('/keyframe', keyframe_to_msg(make, keyframe), delta.stamp_ns)
            writer.write('/semantic_delta', delta_to_msg(make, delta), delta.stamp_ns)
    return bag


def test_cameras_with_poses_make_one_map(tmp_path: Path) -> None:
    ahead, behind = Thing('chair', (3.0, 0.5, 0.5)), Thing('couch', (-3.0, 0.5, 0.5))
    looks = [('front', camera_at(0, 0), ahead), ('rear', camera_at(0, 0, 180), behind)]
    bag, out = record(tmp_path / 'bag', looks * 2), tmp_path / 'MAP.json'
    assert main(['map', str(bag), '--out', str(out)]) == 0
    landmarks = read_scene_map(out).landmarks
    assert {one.label: one.observations for one in landmarks} == {'chair': 2, 'couch': 2}
    for landmark, thing in zip(landmarks, (ahead, behind), strict=True):
        assert landmark.position == pytest.approx(thing.place, abs=0.02)


def test_recorded_deltas_are_mapped_from_where_their_keyframes_were(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    chair = Thing('chair', (3.0, 0.5, 0.5))
    bag = record(tmp_path / 'bag', [('camera', camera_at(0.0, y), chair) for y in (0.0, 0.5, 1.0)])
    out = tmp_path / 'MAP.json'
    assert main(['map', str(bag), '--out', str(out)]) == 0
    assert '1 landmarks, 0 of them gone' in capsys.readouterr().err
    (landmark,) = read_scene_map(out).landmarks
    assert (landmark.label, landmark.observations) == ('chair', 3)
    assert landmark.position == pytest.approx(chair.place, abs=0.01)
    assert landmark.size == pytest.approx((0.4, 0.4, 0.4), abs=0.03)


@pytest.mark.parametrize(
    'words',
    [
        '--set classical.use_odometry=false', '--topic /image', '--set source.depth_topic=none',
        '--set source.depth_unit_m=0.01', '--set source.rate_hz=3',
        '--perceiver recorded --set classical.use_odometry=false',
    ],
)  # fmt: skip
def test_options_of_perceiving_are_refused_where_recorded_deltas_are_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: str
) -> None:
    chair = Thing('chair', (3.0, 0.5, 0.5))
    bag = record(tmp_path / 'bag', [('camera', camera_at(0, 0), chair)])
    out = tmp_path / 'MAP.json'
    assert main(['map', str(bag), '--out', str(out), *words.split()]) == 2
    error = capsys.readouterr().err
    option = words.removeprefix('--perceiver recorded ').removeprefix('--set ').split()[0]
    option = option.partition('=')[0]
    assert error.startswith(f'embodied-r: error: {option} says how images are perceived')
    assert 'leave it out, or perceive the images anew with --perceiver classical' in error
    assert not out.exists()
    assert main(['map', str(bag), '--out', str(out), '--set', 'detector.model=a.onnx']) == 2
    assert 'detector.model is for --perceiver detector or fused' in capsys.readouterr().err


def test_options_of_perceiving_are_refused_where_a_fleet_is_read_as_recorded(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [
        '--out',
        str(tmp_path / 'maps'),
        '--perceiver',
        'recorded',
        '--set',
        'classical.assumed_hfov_rad=1.5708',
    ]
    assert main(['map', str(tmp_path), '--ray', 'local', *words]) == 2
    assert 'classical.assumed_hfov_rad says how images are perceived' in capsys.readouterr().err
    assert not (tmp_path / 'maps').exists()


def test_images_without_a_scale_have_a_map_without_landmarks(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, room = tmp_path / 'images', Room(0)
    folder.mkdir()
    for index, yaw in enumerate((0.0, 0.9)):
        image = room.view(pose_at(-0.8, 0.0, 1.0, yaw))
        cv2.imwrite(str(folder / f'{index}.png'), image)
    out, picture = tmp_path / 'MAP.json', tmp_path / 'map.png'
    arguments = [
        'map',
        str(folder),
        '--set',
        'classical.assumed_hfov_rad=1.5708',
        '--out',
        str(out),
        '--picture',
        str(picture),
    ]
    assert main(arguments) == 1
    assert '0 landmarks' in capsys.readouterr().err
    assert read_scene_map(out).landmarks == ()
    assert picture.exists()


@pytest.mark.parametrize(
    ('source', 'out', 'expected'),
    [
        ('missing', 'MAP.json', 'missing'),
        (str(SAMPLE), 'nowhere/MAP.json', 'no folder'),
    ],
)
def test_bad_input_is_one_line_and_leaves_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], source: str, out: str, expected: str
) -> None:
    assert main(['map', source, '--out', str(tmp_path / out)]) == 2
    error = capsys.readouterr().err
    assert error.startswith('embodied-r: error: ')
    assert expected in error
    assert error.count('\n') == 1
    assert list(tmp_path.iterdir()) == []
