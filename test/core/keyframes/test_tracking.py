# SPDX-License-Identifier: Apache-2.0
"""The camera followed through a room whose geometry is known, and through real recordings."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from itertools import pairwise
import math
from typing import TYPE_CHECKING

import cv2
from embodied_r_ros.core.keyframes.alignment import Alignment, cell_centres, no_offsets, View
from embodied_r_ros.core.keyframes.selector import KeyframeConfig, Keyframer
from embodied_r_ros.core.keyframes.tracking import MotionTracker
from embodied_r_ros.core.keyframes.tracks import drift, TrackedView
from embodied_r_ros.core.types.deltas import action_text, MotionSource, ScaleSource, STATIONARY
from embodied_r_ros.core.types.geometry import Intrinsics, relative_motion, rotation_from_ypr
from embodied_r_ros.core.types.images import StampedImage
import numpy as np
import pytest

from bench.motion import keyframes_of, MotionTally, real_shots
from test.pictures import brighter, noisy
from test.raycast_room import CAMERA, pose_at, Room, Solid

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from embodied_r_ros.core.types.deltas import Motion
    from embodied_r_ros.core.types.geometry import Pose

IMAGES = 12
# Yaw, pitch and roll of the last image, and where it is; the first one is at the origin.
PATHS = {
    'forward': ((0.8, 0, 0), (0, 0, 0)),
    'backward and up': ((-0.6, 0, 0.3), (0, 0, 0)),
    'left': ((0, 0.7, 0), (0, 0, 0)),
    'forward, turning right': ((0.7, -0.2, 0), (-0.6, 0, 0)),
    'round a point, rolling': ((0.2, 0.6, 0), (-0.4, 0.1, 0.2)),
}


def path(way: Sequence[float], turn: Sequence[float], images: int = IMAGES) -> list[Pose]:
    """A straight way [m] with an even turn [rad], from a place in the room."""
    return [
        pose_at(
            *(np.array([-0.9, 0.2, 1.2]) + share * np.array(way)),
            *(share * np.array(turn) + [0, 0.1, 0]),
        )
        for share in np.linspace(0.0, 1.0, images)
    ]


@cache
def room(seed: int = 0) -> Room:
    return Room(seed)


def images(
    poses: Iterable[Pose], *, depth: bool = False, solids: Sequence[Solid] = (), seed: int = 0
) -> list[StampedImage]:
    """What a camera at 30 Hz sees; each image may show another solid."""
    shown = list(solids)
    return [
        StampedImage(
            index,
            round(index * 1e9 / 30),
            room(seed).view(pose, (shown[index],) if shown else ()),
            intrinsics=CAMERA,
            depth=room(seed).depth(pose) if depth else None,
        )
        for index, pose in enumerate(poses)
    ]


def update(tracker: MotionTracker, image: StampedImage) -> None:
    tracker.update(image, View(image.image))


def follow(shown: Sequence[StampedImage], tracker: MotionTracker | None = None) -> Motion | None:
    """The motion from the first image to the last."""
    tracker = tracker or MotionTracker()
    update(tracker, shown[0])
    assert tracker.mark_keyframe(shown[0]) is None
    for image in shown[1:]:
        update(tracker, image)
    return tracker.mark_keyframe(shown[-1])


def rotation_error_deg(motion: Motion, first: Pose, last: Pose) -> float:
    true, _ = relative_motion(first, last)
    found = rotation_from_ypr(motion.yaw_rad, motion.pitch_rad, motion.roll_rad)
    return math.degrees(math.acos(min(1.0, (np.trace(found.T @ true) - 1) / 2)))


def direction_error_deg(motion: Motion, first: Pose, last: Pose) -> float:
    _, way = relative_motion(first, last)
    cosine = np.dot(motion.translation, way) / np.linalg.norm(way)
    return math.degrees(math.acos(min(1.0, cosine / np.linalg.norm(motion.translation))))


@pytest.mark.parametrize('name', PATHS)
def test_rotation_and_direction_are_followed(name: str) -> None:
    poses = path(*PATHS[name])
    motion = follow(images(poses))
    assert motion is not None
    assert (motion.source, motion.is_metric) == (MotionSource.FOLLOWED, False)
    assert rotation_error_deg(motion, poses[0], poses[-1]) < 1.5
    assert direction_error_deg(motion, poses[0], poses[-1]) < 8
    assert np.linalg.norm(motion.way) == pytest.approx(1)
    assert motion.confidence > 0.6


def test_a_turn_alone_has_no_direction() -> None:
    poses = path((0, 0, 0), (1.0, 0, 0))
    motion = follow(images(poses))
    assert motion is not None
    assert rotation_error_deg(motion, poses[0], poses[-1]) < 1
    assert motion.translation == (0, 0, 0)


def test_a_still_camera_is_stationary_for_sure() -> None:
    (still,) = images(path((0, 0, 0), (0, 0, 0), images=1))
    shown = [
        replace(still, index=i, stamp_ns=i * 33_000_000, image=noisy(still.image, 4.0, seed=i))
        for i in range(IMAGES)
    ]
    motion = follow(shown)
    assert motion is not None
    assert action_text(motion) == STATIONARY
    assert motion.confidence > 0.8


@pytest.mark.parametrize('name', ['forward', 'forward, turning right'])
def test_depth_gives_metres(name: str) -> None:
    poses = path(*PATHS[name])
    motion = follow(images(poses, depth=True))
    assert motion is not None
    assert (motion.is_metric, motion.scale) == (True, ScaleSource.DEPTH)
    _, way = relative_motion(poses[0], poses[-1])
    assert motion.translation == pytest.approx(tuple(way), abs=0.05)


def test_depth_that_knows_nothing_gives_no_metres() -> None:
    shown = images(path(*PATHS['left']))
    holes = [replace(image, depth=np.zeros((60, 80), np.float32)) for image in shown]
    motion = follow(holes)
    assert motion is not None
    assert (motion.is_metric, motion.scale) == (False, ScaleSource.RELATIVE)


def test_poses_give_metres() -> None:
    poses = path(*PATHS['left'])
    shown = [replace(i, pose=p) for i, p in zip(images(poses), poses, strict=True)]
    motion = follow(shown)
    assert motion is not None
    assert (motion.is_metric, motion.scale) == (True, ScaleSource.ODOMETRY)
    assert np.linalg.norm(motion.translation) == pytest.approx(0.7, abs=1e-6)


def test_what_moves_by_itself_does_not_move_the_camera() -> None:
    still = path((0, 0, 0), (0, 0, 0))
    solids = [
        Solid((0.6, 0.8 - 0.12 * i, 1.1), (0.5, 0.5, 0.8), (40, 40, 200)) for i in range(IMAGES)
    ]
    motion = follow(images(still, solids=solids))
    assert motion is not None
    assert action_text(motion) == STATIONARY


def test_a_camera_that_is_lost_says_so_and_goes_on() -> None:
    tracker = MotionTracker()
    here = images(path(*PATHS['left']))
    there_poses = path(*PATHS['forward'])
    there = images(there_poses, seed=3)
    assert follow([*here, *there[:3]], tracker) is None
    assert tracker.counts['lost'] == 1
    for image in there[3:]:
        update(tracker, image)
    motion = tracker.mark_keyframe(there[-1])
    assert motion is not None
    assert direction_error_deg(motion, there_poses[2], there_poses[-1]) < 10


def test_darkness_is_lost_once() -> None:
    shown = images(path(*PATHS['forward']))
    dark = [replace(image, image=np.zeros_like(image.image)) for image in shown[4:8]]
    tracker = MotionTracker()
    assert follow([*shown[:4], *dark, *shown[8:]], tracker) is None
    assert tracker.counts['lost'] == 1


def spoilt(how: str, shown: list[StampedImage]) -> list[StampedImage]:
    if how == 'exposure':
        factors = (1.0, 1.3, 0.75)
        return [replace(s, image=brighter(s.image, factors[i % 3])) for i, s in enumerate(shown)]
    if how == 'repeated':
        return [image for image in shown for _ in range(2)]
    if how == 'gap':
        return [*shown[:4], *shown[7:]]
    return [replace(s, image=noisy(s.image, 6.0, i)) for i, s in enumerate(shown)]


@pytest.mark.parametrize('how', ['exposure', 'repeated', 'gap', 'noise'])
def test_what_cameras_do_to_images_does_not_matter(how: str) -> None:
    poses = path(*PATHS['forward, turning right'])
    motion = follow(spoilt(how, images(poses)))
    assert motion is not None
    assert rotation_error_deg(motion, poses[0], poses[-1]) < 2
    assert direction_error_deg(motion, poses[0], poses[-1]) < 12


def test_without_intrinsics_the_confidence_is_halved() -> None:
    shown = images(path(*PATHS['left']))
    known = follow([replace(i, intrinsics=Intrinsics.from_fov(320, 240, 1.22)) for i in shown])
    assumed = follow([replace(image, intrinsics=None) for image in shown])
    assert known is not None
    assert assumed is not None
    assert assumed.confidence == pytest.approx(known.confidence / 2, rel=0.1)


@pytest.mark.parametrize('focal_px', [0.0, -1.0, math.nan])
def test_intrinsics_of_no_camera_count_as_none(focal_px: float) -> None:
    wrong = replace(CAMERA, fx=focal_px)
    shown = [replace(image, intrinsics=wrong) for image in images(path(*PATHS['left']))]
    motion = follow(shown)
    assert motion is not None
    assert motion.confidence < 0.55


def keyframe_motions(
    shown: Iterable[StampedImage], config: KeyframeConfig | None = None
) -> list[Motion | None]:
    extractor = Keyframer(config or KeyframeConfig(max_interval_s=0.15))
    keyframes = [extractor.process(image)[1] for image in shown]
    return [keyframe.motion for keyframe in keyframes if keyframe]


def test_keyframes_carry_the_motion_since_the_last_one() -> None:
    first, *rest = keyframe_motions(images(path(*PATHS['forward'])))
    assert first is None
    assert len(rest) >= 2
    for motion in rest:
        assert motion is not None
        assert motion.way[0] > 0.95


def test_motions_without_metres_have_lengths_in_one_unit() -> None:
    poses = path(*PATHS['forward'], images=2 * IMAGES)
    shown = images(poses)
    tracker, motions = MotionTracker(), []
    stops = (0, 8, 14, 23)
    for number, image in enumerate(shown):
        update(tracker, image)
        if number in stops:
            motions.append(tracker.mark_keyframe(image))
    lengths = [math.hypot(*motion.translation) for motion in motions[1:] if motion]
    true = [math.dist(poses[a].position, poses[b].position) for a, b in pairwise(stops)]
    ratios = [own / there for own, there in zip(lengths, true, strict=True)]
    assert max(ratios) / min(ratios) < 1.15


def test_a_slow_camera_is_followed_in_few_images() -> None:
    poses = path((0.5, 0.15, 0), (0.25, 0, 0), 40)
    extractor = Keyframer(KeyframeConfig(max_interval_s=39 / 30))
    keyframes = [extractor.process(image)[1] for image in images(poses)]
    motion = keyframes[-1].motion if keyframes[-1] else None
    assert motion is not None
    assert 5 < sum(extractor.tracker.counts.values()) < 25
    assert rotation_error_deg(motion, poses[0], poses[-1]) < 2
    assert direction_error_deg(motion, poses[0], poses[-1]) < 12


def test_images_that_are_left_out_do_not_lose_a_fast_turn() -> None:
    # Slow, so that images are left out, then suddenly fast.
    poses = [*path((0.1, 0, 0), (0.05, 0, 0), 8), *path((0.1, 0, 0), (-0.5, 0, 0), 7)]
    extractor = Keyframer(KeyframeConfig(max_interval_s=14 / 30))
    motions = [k.motion for image in images(poses) if (k := extractor.process(image)[1])]
    assert extractor.tracker.counts['lost'] == 0
    assert motions[-1] is not None
    assert rotation_error_deg(motions[-1], poses[0], poses[-1]) < 2


def test_drift_tells_where_places_are_next() -> None:
    # The view turned and grew: places move by an affine map, offsets of 160 of 320 pixels.
    matrix, shift = np.array([[1.05, -0.08], [0.06, 1.02]]), np.array([4.0, -2.0])
    first, second = (View(image.image) for image in images(path(*PATHS['left']))[:2])
    centres = cell_centres(*first.size)
    there = (centres @ matrix.T + shift - centres).astype(np.float32)
    trusted = np.ones(there.shape[:2], bool)
    later = Alignment(there, np.ones_like(there[..., 0]), trusted, trusted)
    moved = drift(no_offsets(first), later)
    assert moved is not None
    places = np.array([[20.0, 30.0], [300.0, 200.0]], np.float32)
    expected = 2 * (places / 2 @ matrix.T + shift)
    assert moved.guesses(TrackedView(second), places) == pytest.approx(expected, abs=0.01)
    assert moved.shift_px == pytest.approx(np.median(np.linalg.norm(there, axis=-1)), rel=0.2)
    assert drift(None, later) is None
    assert drift(no_offsets(first), replace(later, trusted=~trusted)) is None


def test_a_clock_that_goes_back_begins_anew() -> None:
    shown = images(path(*PATHS['forward']))
    motions = keyframe_motions([*shown, *shown])
    half = len(motions) // 2
    assert motions[half] is None
    assert [motion is None for motion in motions] == 2 * [True, *[False] * (half - 1)]


def test_following_can_be_switched_off() -> None:
    config = KeyframeConfig(max_interval_s=0.15, follow_motion=False)
    assert set(keyframe_motions(images(path(*PATHS['forward'])), config)) == {None}


def test_without_following_with_poses_only_the_stretches_without_are_followed() -> None:
    config = KeyframeConfig(max_interval_s=0.15, follow_with_pose=False)
    poses = path(*PATHS['forward'], images=24)
    half = len(poses) // 2
    shown = images(poses)
    shown[:half] = (
        replace(image, pose=pose) for image, pose in zip(shown[:half], poses[:half], strict=True)
    )
    motions = keyframe_motions(shown, config)
    without = len(keyframe_motions(shown[half:], config))
    assert motions[-1] is not None
    assert 0 < sum(motion is not None for motion in motions) < without


@pytest.mark.parametrize(
    ('name', 'images_read', 'least'), [('walk_indoor', None, 0.85), ('cabinet', 40, 0.6)]
)
def test_real_recordings_are_followed(
    footage: Path, name: str, images_read: int | None, least: float
) -> None:
    # All of the walk: one lost pair, which depends on the processor, is 2 % of it.
    folder = footage / 'real' / name
    if not folder.is_dir():
        pytest.skip(f'{folder} is not there')
    cv2.setNumThreads(1)
    shots = real_shots(folder)[:images_read]
    tally = MotionTally()
    for (_, earlier), (keyframe, later) in pairwise(keyframes_of(shots, 0.5)):
        tally.add(keyframe.motion, earlier.pose, later.pose)
    figures = tally.summary()
    assert figures['pairs'] >= 15
    assert figures['right'] >= least
    assert figures['yaw_deg_p90'] < 3
