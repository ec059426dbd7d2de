# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import cache
from itertools import pairwise
import math
from typing import TYPE_CHECKING

import cv2
from embodied_r_ros.common.errors import ConfigError, ModelError
from embodied_r_ros.core.perception.classical import ClassicalConfig, ClassicalPerceiver
from embodied_r_ros.core.types.deltas import (
    DeltaKind,
    ItemStatus,
    Motion,
    MotionSource,
    parse_action,
    Rung,
    ScaleSource,
    SemanticDelta,
)
from embodied_r_ros.core.types.geometry import Pose
from embodied_r_ros.core.types.images import encode_image, EncodedImage
from embodied_r_ros.core.types.keyframes import Keyframe, KeyframeReason
import numpy as np
import pytest

from test.raycast_room import CAMERA, pose_at, Room, Solid

if TYPE_CHECKING:
    from pathlib import Path

BALL = Solid((1.6, 0.7, 0.2), (0.4, 0.4, 0.4), (20, 20, 210), is_ball=True)
POST = Solid((1.8, -0.6, 0.4), (0.25, 0.25, 0.8), (210, 60, 20))
SHELVED = Solid((2.2, 0.2, 1.4), (0.3, 0.3, 0.3), (20, 200, 215))
EYE = pose_at(-0.8, 0.0, 1.0, 0.0, 0.1)
AHEAD = pose_at(-0.2, 0.0, 1.0, 0.0, 0.1)
TURNED = pose_at(-0.8, 0.0, 1.0, 0.5, 0.1)
NS = 1_000_000_000
VIEWS = ((0, EYE), (1, AHEAD))


@cache
def encode_view(pose: Pose, *solids: Solid) -> EncodedImage:
    return encode_image(Room(0, contrast=0.6).view(pose, solids))


def keyframe(number: int, pose: Pose, *solids: Solid) -> Keyframe:
    return Keyframe(
        number,
        (number + 1) * NS,
        encode_view(pose, *solids),
        KeyframeReason.FIRST,
        number,
        intrinsics=CAMERA,
        pose=pose,
        camera='front',
        frame_id='front_optical',
        episode_id='e1',
    )


def perceive(*keyframes: Keyframe, config: ClassicalConfig | None = None) -> SemanticDelta:
    perceiver = ClassicalPerceiver(config)
    earlier, later = keyframes if len(keyframes) == 2 else (None, keyframes[0])
    return perceiver.perceive(earlier, later)


def without_pose(frame: Keyframe) -> Keyframe:
    return replace(frame, pose=None)


def labels(delta: SemanticDelta, status: ItemStatus) -> set[str]:
    return {item.label for item in delta.items if item.status is status}


def test_the_first_keyframe_is_described() -> None:
    delta = perceive(keyframe(3, EYE, BALL, POST))
    assert (delta.kind, delta.from_id, delta.to_id) == (DeltaKind.FIRST, 3, 3)
    assert (delta.action, delta.error) == ('', '')
    assert labels(delta, ItemStatus.VISIBLE) == {'red round object', 'blue tall object'}
    assert delta.change.startswith('In view: blue tall object 15° right 5° down 2.7 m; ')


def test_a_delta_belongs_to_its_keyframes() -> None:
    delta = perceive(keyframe(1, EYE), keyframe(2, AHEAD))
    assert (delta.from_id, delta.to_id, delta.from_stamp_ns, delta.stamp_ns) == (
        1,
        2,
        2 * NS,
        3 * NS,
    )
    assert (delta.camera, delta.frame_id, delta.episode_id) == ('front', 'front_optical', 'e1')
    assert (delta.model.name, delta.model.rung, delta.model.prompt_version) == (
        'classical',
        Rung.LOCAL,
        '',
    )


def test_odometry_gives_the_motion_where_there_is_some() -> None:
    delta = perceive(keyframe(0, EYE, BALL), keyframe(1, AHEAD, BALL))
    assert delta.motion.source is MotionSource.ODOMETRY
    assert delta.action == 'moved forward 0.6 m, moved up 0.1 m'


@pytest.mark.parametrize(
    ('later', 'action'), [(AHEAD, 'moved forward'), (TURNED, 'turned left 30°, rolled')]
)
def test_images_give_the_motion_without_odometry(later: Pose, action: str) -> None:
    delta = perceive(without_pose(keyframe(0, EYE)), without_pose(keyframe(1, later)))
    assert delta.motion.source is MotionSource.TWO_VIEW
    assert delta.action.startswith(action)


FOLLOWED = Motion(
    MotionSource.FOLLOWED, 0.1, 0.0, 0.0, (1.5, 0.0, 0.0), is_metric=True, confidence=0.9
)


def followed_keyframe(number: int, pose: Pose) -> Keyframe:
    """A keyframe without pose that was followed since the one before it."""
    frame = keyframe(number, pose)
    return replace(frame, pose=None, motion=FOLLOWED, reference_id=number - 1)


def test_a_motion_that_was_followed_stands_before_that_of_two_views() -> None:
    delta = perceive(without_pose(keyframe(0, EYE)), followed_keyframe(1, AHEAD))
    assert delta.motion == FOLLOWED
    assert delta.action == 'moved forward 1.5 m, turned left 5°'


def test_odometry_stands_before_a_motion_that_was_followed() -> None:
    later = replace(followed_keyframe(1, AHEAD), pose=AHEAD)
    assert perceive(keyframe(0, EYE), later).motion.source is MotionSource.ODOMETRY


def test_a_motion_from_another_keyframe_is_not_taken() -> None:
    # Keyframe 1 was skipped: what was followed since then is not the motion since keyframe 0.
    delta = perceive(without_pose(keyframe(0, EYE)), followed_keyframe(2, AHEAD))
    assert delta.motion.source is MotionSource.TWO_VIEW


def test_two_views_stand_before_what_was_followed_with_an_assumed_field_of_view() -> None:
    earlier = replace(without_pose(keyframe(0, EYE)), intrinsics=None)
    later = replace(followed_keyframe(1, AHEAD), intrinsics=None)
    assert perceive(earlier, later).motion.source is MotionSource.TWO_VIEW
    elsewhere = replace(later, image=encode_image(Room(5, contrast=0.6).view(AHEAD)))
    assert perceive(earlier, elsewhere).motion == FOLLOWED


def test_a_followed_motion_in_metres_gives_two_views_their_length() -> None:
    metric = Motion(
        MotionSource.FOLLOWED, 0.0, 0.0, 0.0, (0.6, 0.0, 0.0), True, 0.5, ScaleSource.DEPTH
    )
    first, second = (replace(without_pose(keyframe(n, p)), intrinsics=None) for n, p in VIEWS)
    motion = perceive(first, replace(second, reference_id=0, motion=metric)).motion
    assert motion.source is MotionSource.TWO_VIEW
    assert math.hypot(*motion.translation) == pytest.approx(0.6)
    assert (motion.is_metric, motion.scale) == (True, ScaleSource.DEPTH)


def test_poses_in_two_frames_are_not_compared() -> None:
    other = replace(keyframe(1, AHEAD), pose=replace(AHEAD, frame_id='map'))
    assert perceive(keyframe(0, EYE), other).motion.source is MotionSource.TWO_VIEW


def test_odometry_can_be_left_aside() -> None:
    config = ClassicalConfig(use_odometry=False)
    delta = perceive(keyframe(0, EYE), keyframe(1, AHEAD), config=config)
    assert (delta.motion.source, delta.action) == (MotionSource.TWO_VIEW, 'moved forward')


def test_what_is_new_gone_and_still_there_is_told() -> None:
    delta = perceive(keyframe(0, EYE, BALL, POST), keyframe(1, AHEAD, POST, SHELVED))
    assert labels(delta, ItemStatus.VISIBLE) == {'blue tall object'}
    assert labels(delta, ItemStatus.APPEARED) == {'yellow blocky object'}
    assert labels(delta, ItemStatus.LEFT) == {'red round object'}
    assert 'Gone: red round object.' in delta.change


def test_what_moved_by_itself_is_told_from_the_camera_s_own_motion() -> None:
    aside = replace(POST, centre=(1.8, -1.2, 0.4))
    for first, second in ((keyframe(0, EYE, POST), keyframe(1, AHEAD, aside)),):
        for strip in (lambda frame: frame, without_pose):
            delta = perceive(strip(first), strip(second))
            assert labels(delta, ItemStatus.MOVED) == {'blue tall object'}
            assert delta.kind is DeltaKind.CHANGE


def test_rest_without_change_is_no_change() -> None:
    for strip in (lambda frame: frame, without_pose):
        delta = perceive(strip(keyframe(0, EYE, BALL)), strip(keyframe(1, EYE, BALL)))
        assert (delta.kind, delta.action) == (DeltaKind.NO_CHANGE, 'stationary')


def test_rest_with_something_new_is_a_change() -> None:
    delta = perceive(keyframe(0, EYE), keyframe(1, EYE, BALL))
    assert (delta.kind, delta.action) == (DeltaKind.CHANGE, 'stationary')
    assert delta.change.startswith('New: red round object')


def test_triangulation_ranges_what_does_not_stand_on_the_floor() -> None:
    [item] = perceive(keyframe(0, EYE, SHELVED), keyframe(1, AHEAD, SHELVED)).items
    assert math.isnan(item.distance_m)  # nearly ahead: too little parallax
    low = pose_at(-0.8, 0.0, 0.6, 0.0, -0.1)
    [item] = perceive(keyframe(0, EYE, SHELVED), keyframe(1, low, SHELVED)).items
    assert item.distance_m == pytest.approx(math.dist(low.position, SHELVED.centre), rel=0.1)


def test_unrelated_views_cannot_be_told() -> None:
    other = replace(without_pose(keyframe(1, EYE)), image=encode_image(Room(5).view(EYE)))
    delta = perceive(without_pose(keyframe(0, EYE)), other)
    assert (delta.kind, delta.action) == (DeltaKind.CHANGE, 'cannot tell')
    assert delta.motion.source is MotionSource.UNKNOWN


def test_a_dark_image_fails() -> None:
    dark = replace(keyframe(1, EYE), image=encode_image(np.full((240, 320, 3), 3, np.uint8)))
    delta = perceive(keyframe(0, EYE, BALL), dark)
    assert (delta.kind, delta.action, delta.change) == (DeltaKind.FAILED, '', '')
    assert 'blank or dark' in delta.error


def test_after_a_dark_image_everything_is_new() -> None:
    dark = replace(keyframe(0, EYE), image=encode_image(np.full((240, 320, 3), 3, np.uint8)))
    delta = perceive(dark, keyframe(1, EYE, BALL))
    assert labels(delta, ItemStatus.APPEARED) == {'red round object'}


def test_a_damaged_image_fails() -> None:
    cut_off = replace(keyframe(1, EYE), image=EncodedImage(b'\xff\xd8\xff', 'jpeg'))
    delta = perceive(keyframe(0, EYE), cut_off)
    assert delta.kind is DeltaKind.FAILED
    assert 'cannot be decoded' in delta.error


def test_a_pose_that_is_no_rotation_fails() -> None:
    broken = replace(keyframe(1, EYE), pose=Pose((0, 0, 1), (0, 0, 0, 0), 'odom'))
    delta = perceive(keyframe(0, EYE), broken)
    assert delta.kind is DeltaKind.FAILED
    assert 'not a rotation' in delta.error


def test_items_are_bounded() -> None:
    delta = perceive(keyframe(0, EYE, BALL, POST, SHELVED), config=ClassicalConfig(max_items=2))
    assert len(delta.items) == 2
    assert delta.change.count('object') == 2


def test_a_camera_without_intrinsics_is_learned_while_it_turns() -> None:
    perceiver, earlier = ClassicalPerceiver(), None
    for number, yaw in enumerate((0.0, 0.4, 0.8, 1.2)):
        frame = keyframe(number, pose_at(-0.8, 0.0, 1.0, yaw, 0.1), BALL)
        later = replace(frame, pose=None, intrinsics=None)
        delta = perceiver.perceive(earlier, later)
        earlier = later
    assert math.degrees(delta.motion.yaw_rad) == pytest.approx(math.degrees(0.4), abs=1.5)


def test_a_stated_field_of_view_is_not_learned() -> None:
    """At 60 degrees the same turn looks smaller than it is at the true 90."""
    config = ClassicalConfig(assumed_hfov_rad=math.radians(60), learn_hfov=False)
    first, second = (
        replace(keyframe(n, pose, BALL), pose=None, intrinsics=None)
        for n, pose in enumerate((EYE, EYE))
    )
    delta = perceive(first, second, config=config)
    true = perceive(keyframe(0, EYE, BALL))
    assert abs(delta.items[0].bearing_rad) < 0.7 * abs(true.items[0].bearing_rad)
    assert delta.motion.confidence < 0.51


@pytest.mark.parametrize(
    ('question', 'options', 'text'),
    [
        ('Where is the red object?', (), 'In view: red round object 15° left 10° down 2.6 m.'),
        ('Is there anything tall?', (), 'In view: blue tall object 15° right 5° down 2.7 m.'),
        ('What is it?', ('a green box', 'a BLUE post'), 'In view: blue tall object 15° right'),
        ('Where is the green object?', (), ''),
        ('How far did the robot go?', (), ''),
    ],
)
def test_focus_describes_what_the_question_names(
    question: str, options: tuple[str, ...], text: str
) -> None:
    frame = keyframe(7, EYE, BALL, POST)
    focus = ClassicalPerceiver().focus(question, options, frame, 1.0)
    assert focus.text.startswith(text)
    assert bool(focus.text) == bool(text)
    assert (focus.keyframe_id, focus.stamp_ns, focus.camera) == (7, 8 * NS, 'front')


def test_what_cannot_be_looked_at_is_no_crash() -> None:
    frame = keyframe(0, EYE, BALL)
    bent = replace(frame, intrinsics=replace(CAMERA, distortion=(0.1, 0.1, 0.1)))
    damaged = replace(frame, image=EncodedImage(b'\xff\xd8\xff\xe0', 'jpeg'))
    for unusable in (bent, damaged):
        delta = perceive(unusable)
        assert (delta.kind, bool(delta.error)) == (DeltaKind.FAILED, True)
        with pytest.raises(ModelError, match='keyframe 0 cannot be looked at'):
            ClassicalPerceiver().focus('Where is the red one?', (), unusable, 1.0)


def test_the_digest_names_the_sources() -> None:
    perceiver = ClassicalPerceiver(rung=Rung.PRIMARY)
    assert perceiver.info().rung is Rung.PRIMARY
    assert perceiver.info().digest == ClassicalPerceiver().info().digest
    assert len(perceiver.info().digest) == len('sha256:') + 64


def test_threads_see_the_same() -> None:
    perceiver = ClassicalPerceiver()
    pair = without_pose(keyframe(0, EYE, BALL, POST)), without_pose(keyframe(1, AHEAD, POST))
    with ThreadPoolExecutor(4) as pool:
        deltas = list(pool.map(lambda _: perceiver.perceive(*pair), range(8)))
    # As text: from Python 3.13 on, dataclasses with NaN differ from themselves.
    assert len(set(map(repr, deltas))) == 1


def test_settings_are_checked() -> None:
    with pytest.raises(ConfigError, match='assumed_hfov_rad is 70: expected'):
        ClassicalConfig(assumed_hfov_rad=70)


def every_second(clip: Path) -> list[Keyframe]:
    """An image of each second of a video of 5 Hz."""
    capture, keyframes = cv2.VideoCapture(str(clip)), []
    while capture.isOpened():
        number = round(capture.get(cv2.CAP_PROP_POS_FRAMES))
        done, image = capture.read()
        if not done:
            break
        if number % 5 == 0:
            encoded_image = encode_image(np.asarray(image, np.uint8))
            reason = KeyframeReason.MAX_INTERVAL
            keyframes.append(
                Keyframe(number, number * NS // 5, encoded_image, reason, 0, camera=clip.stem)
            )
    capture.release()
    return keyframes


def test_real_footage_shows_no_noise(footage: Path) -> None:
    """Streets, water and sky: no item, and no motion where two images prove none."""
    stated = ClassicalConfig(assumed_hfov_rad=math.radians(90), learn_hfov=False)
    perceiver, items, actions = ClassicalPerceiver(stated), 0, []
    for clip in sorted(footage.glob('*.mp4')):
        for earlier, later in pairwise(every_second(clip)):
            delta = perceiver.perceive(earlier, later)
            items += len(delta.items)
            actions.append(delta.action)
    told = [action for action in actions if action != 'cannot tell']
    assert items <= 1
    assert len(told) >= 5
    # The drone flies on; it turns by less than an eighth of a circle in any second.
    assert not any('backward' in action for action in told)
    turns = [s.amount or 0 for a in told for s in parse_action(a) or [] if s.verb != 'moved']
    assert max(turns, default=0) <= 45
