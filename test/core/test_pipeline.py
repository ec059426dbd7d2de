# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
import json
import math
from typing import Any, TYPE_CHECKING

import cv2
from embodied_r_ros.common.errors import InputError
from embodied_r_ros.core.chat.settings import ChatConfig
from embodied_r_ros.core.keyframes.selector import Keyframer
from embodied_r_ros.core.keyframes.tracking import MotionTracker
from embodied_r_ros.core.perception.classical import ClassicalConfig, ClassicalPerceiver
from embodied_r_ros.core.perception.worker import PerceptionWorker, WorkerConfig
from embodied_r_ros.core.pipeline import classical_perceiver, perceive_images, vlm_perceiver
from embodied_r_ros.core.types.deltas import (
    DeltaKind,
    Item,
    Motion,
    MotionSource,
    Rung,
    SemanticDelta,
)
from embodied_r_ros.core.types.images import StampedImage
from embodied_r_ros.core.types.keyframes import KeyframeReason
from embodied_r_ros.data.episodes.offline import perceive_path
import pytest

from test.chat_server import ChatServer, Script
from test.raycast_room import CAMERA, pose_at, Room, Solid

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from embodied_r_ros.core.types.geometry import Pose

BALL = Solid((1.6, 0.7, 0.2), (0.4, 0.4, 0.4), (20, 20, 210), is_ball=True)
STEPS = 12


def turning(steps: int = STEPS) -> list[Pose]:
    return [pose_at(-0.8, 0.0, 1.0, 0.2 * step, 0.1) for step in range(steps)]


def stream(poses: list[Pose], *, stated: bool = True) -> Iterator[StampedImage]:
    room = Room(0, contrast=0.6)
    for index, pose in enumerate(poses):
        image = StampedImage(index, index * 100_000_000, room.view(pose, (BALL,)))
        yield replace(image, intrinsics=CAMERA, pose=pose) if stated else image


def test_a_stream_becomes_one_delta_per_keyframe() -> None:
    keyframes = list(Keyframer().stream(stream(turning())))
    deltas = list(perceive_images(stream(turning()), classical_perceiver()))
    assert len(keyframes) >= 3
    assert [delta.stamp_ns for delta in deltas] == [frame.stamp_ns for frame in keyframes]
    assert [delta.kind for delta in deltas[:2]] == [DeltaKind.FIRST, DeltaKind.CHANGE]
    assert all(later.from_id == earlier.to_id for earlier, later in pairwise(deltas))
    turned = sum(delta.motion.yaw_rad for delta in deltas[1:])
    first, last = keyframes[0], keyframes[-1]
    assert turned == pytest.approx(0.2 * (last.stamp_ns - first.stamp_ns) / 1e8, abs=0.01)


def test_a_recording_that_is_asked_about_ends_at_its_last_image() -> None:
    still = turning(1) * 30
    assert len(list(Keyframer().stream(stream(still)))) == 1
    first, last = Keyframer().stream(stream(still), with_last=True)
    assert (last.stamp_ns, last.reason) == (2_900_000_000, KeyframeReason.LAST_IMAGE)
    assert last.reference_id == first.id
    moving = list(Keyframer().stream(stream(turning()), with_last=True))
    assert moving[-1].stamp_ns == (STEPS - 1) * 100_000_000


def test_the_camera_is_followed_where_poses_are_not_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    followed = []
    update = MotionTracker.update

    def count(tracker: MotionTracker, image: StampedImage, *args: Any) -> None:
        followed.append(image.index)
        update(tracker, image, *args)

    monkeypatch.setattr(MotionTracker, 'update', count)
    by_poses = list(perceive_images(stream(turning()), classical_perceiver()))
    assert {delta.motion.source for delta in by_poses[1:]} == {MotionSource.ODOMETRY}
    assert not followed
    config = ClassicalConfig(use_odometry=False)
    by_views = list(perceive_images(stream(turning()), ClassicalPerceiver(config)))
    assert {delta.motion.source for delta in by_views[1:]} == {MotionSource.FOLLOWED}
    assert followed


def test_who_was_asked_for_is_the_primary() -> None:
    assert classical_perceiver().info().rung is Rung.PRIMARY


def test_images_are_read_no_further_than_needed() -> None:
    read = []

    def count_images() -> Iterator[StampedImage]:
        for image in stream(turning(40)):
            read.append(image.index)
            yield image

    deltas = perceive_images(count_images(), classical_perceiver())
    next(deltas)
    assert len(read) < 15


def test_a_camera_without_intrinsics_is_learned_before_its_first_delta() -> None:
    deltas = list(perceive_images(stream(turning(), stated=False), ClassicalPerceiver()))
    [first, *_] = deltas
    stated = next(perceive_images(stream(turning()), ClassicalPerceiver()))
    assert first.items[0].bearing_rad == pytest.approx(
        stated.items[0].bearing_rad, abs=math.radians(1)
    )


def test_what_is_stated_is_not_learned() -> None:
    config = ClassicalConfig(assumed_hfov_rad=math.radians(50), learn_hfov=False)
    [delta] = list(perceive_images(stream(turning(1), stated=False), ClassicalPerceiver(config)))
    [true] = list(perceive_images(stream(turning(1)), ClassicalPerceiver()))
    assert abs(delta.items[0].bearing_rad) < 0.6 * abs(true.items[0].bearing_rad)


def test_a_stated_field_of_view_gives_the_same_live_and_offline() -> None:
    """Live nothing is looked ahead at, and pairs are perceived at the same time."""
    config = ClassicalConfig(assumed_hfov_rad=math.radians(90), learn_hfov=False)
    keyframes = list(Keyframer().stream(stream(turning(), stated=False)))
    live: list[SemanticDelta] = []
    worker = PerceptionWorker(ClassicalPerceiver(config), live.append, WorkerConfig(capacity=1000))
    for keyframe in keyframes:
        worker.submit(keyframe)
    assert worker.wait_idle(60)
    worker.close()
    offline = perceive_images(stream(turning(), stated=False), ClassicalPerceiver(config))
    said = [(delta.to_id, delta.action, delta.items) for delta in live]
    # As text, because unknown numbers are NaN.
    assert str(said) == str([(delta.to_id, delta.action, delta.items) for delta in offline])


def test_a_folder_is_perceived(tmp_path: Path) -> None:
    for image in stream(turning(6)):
        cv2.imwrite(str(tmp_path / f'{image.index}.png'), image.image)
    deltas = list(perceive_path(tmp_path, classical_perceiver()))
    assert deltas[0].kind is DeltaKind.FIRST
    assert any('turned left' in delta.action for delta in deltas)


def test_a_delta_is_plain_json_without_unknown_numbers() -> None:
    delta = SemanticDelta(
        5,
        DeltaKind.CHANGE,
        to_id=2,
        from_id=1,
        action='turned left 30°',
        change='New: red object ahead.',
        motion=Motion(MotionSource.TWO_VIEW, 0.5, math.nan, 0.0, (0.0, 0.0, 0.0), confidence=0.9),
        items=(Item('red object', bearing_rad=0.1),),
        skipped=3,
    )
    assert json.loads(json.dumps(delta.to_json(), allow_nan=False)) == {
        'from_id': 1,
        'to_id': 2,
        'stamp_ns': 5,
        'kind': 'CHANGE',
        'action': 'turned left 30°',
        'change': 'New: red object ahead.',
        'items': [{'label': 'red object', 'status': 'VISIBLE', 'bearing_rad': 0.1}],
        'motion': {
            'source': 'TWO_VIEW',
            'is_metric': False,
            'yaw_rad': 0.5,
            'roll_rad': 0.0,
            'confidence': 0.9,
            'translation': [0.0, 0.0, 0.0],
        },
        'skipped': 3,
        'error': '',
        'model': {'name': '', 'digest': '', 'rung': 'UNSET'},
    }


def test_an_item_with_a_distance_has_its_place() -> None:
    item = Item('cup', bearing_rad=math.pi / 2, elevation_rad=0.0, distance_m=2.0)
    [entry] = SemanticDelta(5, DeltaKind.FIRST, items=(item,)).to_json()['items']
    assert entry['position'] == [0.0, 2.0, 0.0]


def test_a_model_perceives_in_order() -> None:
    reply = json.dumps({'summary': 'A room.', 'motions': [], 'items': [], 'visible_text': []})
    with ChatServer(lambda _: Script((reply,)), models=[{'id': 'vlm'}]) as server:
        perceiver = vlm_perceiver(ChatConfig(url=server.url, model='vlm'))
        deltas = list(perceive_images(stream(turning()), perceiver, in_flight=3))
    assert [delta.to_id for delta in deltas] == [*range(1, 1 + len(deltas))]
    assert {delta.model.name for delta in deltas} == {'vlm'}


def test_a_model_that_is_not_there_is_an_input_error() -> None:
    with pytest.raises(InputError, match=r'http://127\.0\.0\.1:9'):
        vlm_perceiver(ChatConfig(url='http://127.0.0.1:9', retries=0))
