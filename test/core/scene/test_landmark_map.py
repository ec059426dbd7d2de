# SPDX-License-Identifier: Apache-2.0
"""Landmark maps: what is one thing, what is two, what moved, went and came back."""

from __future__ import annotations

from dataclasses import replace
import json
import math
from typing import TYPE_CHECKING

from embodied_r_ros.core.scene.landmark_map import LandmarkMap, MapConfig, write_scene_map
from embodied_r_ros.core.scene.sightings import fused_place, sighting_of
from embodied_r_ros.core.types.deltas import (
    DeltaKind,
    Item,
    ItemStatus,
    Motion,
    MotionSource,
    ScaleSource,
)
from embodied_r_ros.core.types.landmarks import Landmark, LandmarkStatus, read_scene_map
import numpy as np
import pytest

from test.core.scene.places import CAMERA, camera_at, delta_of, item_of, SECOND_NS, Thing

if TYPE_CHECKING:
    from pathlib import Path

    from embodied_r_ros.core.scene.camera import CameraView
    from embodied_r_ros.core.types.deltas import SemanticDelta

CHAIR, SECOND_CHAIR = Thing('chair', (3.0, 0.5, 0.5)), Thing('chair', (3.0, -0.5, 0.5))
CUP = Thing('red cup', (2.0, 0.6, 0.9), 0.1)


def landmarks_of(landmarks: LandmarkMap) -> tuple[Landmark, ...]:
    return landmarks.scene_map().landmarks


def labels_of(landmarks: LandmarkMap) -> list[str]:
    return sorted(one.label for one in landmarks_of(landmarks))


def test_a_thing_seen_from_all_sides_is_one_landmark_where_it_is() -> None:
    landmarks = LandmarkMap()
    for number, (x, y, yaw) in enumerate([(0, 0, 0), (3, -3, 90), (6, 0.5, 180), (3, 4, -90)]):
        landmarks.add(*delta_of(number, camera_at(x, y, yaw), CHAIR))
    (chair,) = landmarks_of(landmarks)
    assert chair.label == 'chair'
    assert chair.position == pytest.approx(CHAIR.place, abs=0.01)
    assert chair.size == pytest.approx((0.4, 0.4, 0.4), abs=0.02)
    assert (chair.observations, chair.status) == (4, LandmarkStatus.PRESENT)
    assert (chair.first_seen_ns, chair.last_seen_ns) == (1_000_000_000, 4_000_000_000)
    assert len(landmarks.scene_map().path) == 4
    assert landmarks.scene_map().scale is ScaleSource.ODOMETRY


def test_one_mistaken_distance_does_not_move_a_landmark() -> None:
    landmarks = LandmarkMap()
    for number in range(6):
        delta, view = delta_of(number, camera_at(0.1 * number, 0), CHAIR)
        if number == 3:
            (item,) = delta.items
            delta = replace(delta, items=(replace(item, distance_m=1.25 * item.distance_m),))
        landmarks.add(delta, view)
    (chair,) = landmarks_of(landmarks)
    assert chair.position == pytest.approx(CHAIR.place, abs=0.08)


def test_one_mistaken_direction_does_not_move_a_landmark() -> None:
    landmarks = LandmarkMap()
    for number in range(6):
        delta, view = delta_of(number, camera_at(0.1 * number, 0), CHAIR)
        if number == 3:
            (item,) = delta.items
            delta = replace(delta, items=(replace(item, bearing_rad=item.bearing_rad + 0.15),))
        landmarks.add(delta, view)
    (chair,) = landmarks_of(landmarks)
    assert chair.position == pytest.approx(CHAIR.place, abs=0.04)


def test_a_small_thing_before_a_large_one_of_its_label_is_another() -> None:
    landmarks = LandmarkMap()
    large, small = (
        Thing('red object', (3.0, 0.0, 1.0), 0.9),
        Thing('red object', (2.6, 0.0, 1.0), 0.1),
    )
    for number, thing in enumerate((large, large, small)):
        landmarks.add(*delta_of(number, camera_at(0, 0), thing))
    assert len(landmarks) == 2


@pytest.mark.parametrize('scale', [ScaleSource.DEPTH, ScaleSource.ODOMETRY])
def test_two_chairs_a_metre_apart_stay_two(scale: ScaleSource) -> None:
    landmarks = LandmarkMap()
    looks = [(CHAIR,), (CHAIR, SECOND_CHAIR), (SECOND_CHAIR,), (CHAIR,), (SECOND_CHAIR, CHAIR)]
    for number, things in enumerate(looks):
        landmarks.add(*delta_of(number, camera_at(0.2 * number, 0), *things, scale=scale))
    assert sorted(one.observations for one in landmarks_of(landmarks)) == [3, 4]
    places = sorted(one.position for one in landmarks_of(landmarks))
    assert places == [pytest.approx(t.place, abs=0.05) for t in (SECOND_CHAIR, CHAIR)]


def test_two_chairs_that_were_never_seen_together_stay_two() -> None:
    landmarks = LandmarkMap()
    landmarks.add(*delta_of(0, camera_at(0.5, 0.5), CHAIR))
    landmarks.add(*delta_of(1, camera_at(0.5, -0.5), SECOND_CHAIR))
    assert labels_of(landmarks) == ['chair', 'chair']


def test_two_items_of_one_delta_are_two_however_near() -> None:
    landmarks = LandmarkMap()
    beside = replace(CHAIR, place=(3.0, 0.4, 0.5))
    for number in range(3):
        landmarks.add(*delta_of(number, camera_at(0, 0), CHAIR, beside))
    assert len(landmarks) == 2


@pytest.mark.parametrize(
    ('first', 'second', 'label'),
    [
        ('red tall object', 'red bottle', 'red bottle'),
        ('red blocky object', 'red object', 'red blocky object'),
        ('cup', 'bottle', 'cup'),  # a detector takes one for the other
        ('desk', 'wooden desk', 'desk'),
    ],
)
def test_one_thing_with_two_names_is_one(first: str, second: str, label: str) -> None:
    landmarks = LandmarkMap()
    for number, name in enumerate((first, first, second)):
        landmarks.add(*delta_of(number, camera_at(0.1 * number, 0), replace(CUP, label=name)))
    assert labels_of(landmarks) == [label]


@pytest.mark.parametrize(
    ('first', 'second'),
    [('red object', 'blue object'), ('cup', 'book'), ('red cup', 'blue object')],
)
def test_other_things_at_one_place_are_two(first: str, second: str) -> None:
    landmarks = LandmarkMap()
    for number, name in enumerate((first, second)):
        landmarks.add(*delta_of(number, camera_at(0.1 * number, 0), replace(CUP, label=name)))
    assert len(landmarks) == 2


def test_a_thing_that_moves_before_the_eyes_is_followed() -> None:
    landmarks = LandmarkMap()
    landmarks.add(*delta_of(0, camera_at(0, 0), CUP, CHAIR))
    elsewhere = replace(CUP, place=(2.0, -0.6, 0.9), status=ItemStatus.MOVED)
    landmarks.add(*delta_of(1, camera_at(0, 0), elsewhere, CHAIR))
    assert labels_of(landmarks) == ['chair', 'red cup']
    cup = next(one for one in landmarks_of(landmarks) if one.label == 'red cup')
    assert cup.position == pytest.approx(elsewhere.place, abs=0.01)
    assert cup.observations == 2


def test_a_thing_found_elsewhere_while_its_old_place_is_empty_has_moved() -> None:
    landmarks = LandmarkMap()
    for number in range(3):
        landmarks.add(*delta_of(number, camera_at(0, 0), CUP))
    elsewhere = replace(CUP, place=(3.0, -0.9, 0.9))
    landmarks.add(*delta_of(3, camera_at(0, 0), elsewhere))
    (cup,) = landmarks_of(landmarks)
    assert cup.position == pytest.approx(elsewhere.place, abs=0.01)


def test_a_thing_found_elsewhere_before_its_old_place_is_seen_empty_has_moved() -> None:
    landmarks = LandmarkMap()
    for number in range(4):
        landmarks.add(*delta_of(number, camera_at(0, 0), CUP))
    elsewhere = replace(CUP, place=(-2.0, 0.0, 0.9))
    landmarks.add(*delta_of(4, camera_at(0, 0, 180), elsewhere))
    assert len(landmarks) == 2
    look_at_nothing(landmarks, range(5, 8), 0, 0)
    (cup,) = landmarks_of(landmarks)
    assert cup.position == pytest.approx(elsewhere.place, abs=0.01)
    assert (cup.id, cup.first_seen_ns, cup.observations) == (0, 1_000_000_000, 5)


def test_a_thing_that_was_shifted_unseen_is_where_it_was_seen_last() -> None:
    landmarks = LandmarkMap()
    near = replace(CHAIR, place=(3.0, -0.1, 0.5))
    for number in range(12):
        landmarks.add(*delta_of(number, camera_at(0.5, 0), CHAIR if number < 8 else near))
    present = [one for one in landmarks_of(landmarks) if one.status is LandmarkStatus.PRESENT]
    assert [one.position for one in present] == [pytest.approx(near.place, abs=0.1)]


def test_a_thing_that_was_pushed_away_a_little_is_where_the_newest_looks_have_it() -> None:
    landmarks = LandmarkMap()
    pushed = replace(CHAIR, place=(3.7, 0.5, 0.5))
    for number in range(12):
        landmarks.add(*delta_of(number, camera_at(0.5, 0.5), CHAIR if number < 9 else pushed))
    (chair,) = landmarks_of(landmarks)
    assert chair.observations == 12
    assert chair.position == pytest.approx(pushed.place, abs=0.1)


def look_at_nothing(
    landmarks: LandmarkMap, numbers: range, x: float, y: float, depth_m: float = 0.0
) -> None:
    for number in numbers:
        delta, view = delta_of(number, camera_at(x, y))
        if depth_m:
            view = replace(view, depth=np.full((60, 80), depth_m, np.float32))
        landmarks.add(delta, view)


def test_a_thing_whose_place_is_empty_again_and_again_is_gone_and_comes_back() -> None:
    landmarks = LandmarkMap()
    for number in range(4):
        landmarks.add(*delta_of(number, camera_at(0, 0), CHAIR, CUP))
    for number in range(4, 8):
        landmarks.add(*delta_of(number, camera_at(0, 0), CUP))
    statuses = {one.label: one.status for one in landmarks_of(landmarks)}
    assert statuses == {'chair': LandmarkStatus.GONE, 'red cup': LandmarkStatus.PRESENT}
    landmarks.add(*delta_of(8, camera_at(0, 0), CHAIR, CUP))
    assert {one.status for one in landmarks_of(landmarks)} == {LandmarkStatus.PRESENT}
    assert len(landmarks) == 2


def test_depth_that_looks_through_a_place_empties_it_sooner() -> None:
    by_depth, by_eye = LandmarkMap(), LandmarkMap()
    for landmarks, depth_m in ((by_depth, 6.0), (by_eye, 0.0)):
        for number in range(4):
            landmarks.add(*delta_of(number, camera_at(0, 0), CHAIR))
        look_at_nothing(landmarks, range(4, 6), 0, 0, depth_m)
    assert [one.status for one in landmarks_of(by_depth)] == [LandmarkStatus.GONE]
    assert [one.status for one in landmarks_of(by_eye)] == [LandmarkStatus.PRESENT]


@pytest.mark.parametrize(
    ('x', 'depth_m', 'why'),
    [
        (0.0, 1.5, 'something is in front of it'),
        (0.0, 3.0, 'something is there, and has no name'),
        (-4.0, 0.0, 'nobody has seen it from so far'),
        (2.9, 0.0, 'it is at the edge of the view'),
    ],
)
def test_what_cannot_be_seen_is_not_gone(x: float, depth_m: float, why: str) -> None:
    landmarks = LandmarkMap()
    for number in range(4):
        landmarks.add(*delta_of(number, camera_at(0, 0), CHAIR))
    look_at_nothing(landmarks, range(4, 14), x, 0, depth_m)
    assert [one.status for one in landmarks_of(landmarks)] == [LandmarkStatus.PRESENT], why


def test_looks_from_where_a_thing_was_never_seen_tell_less_and_only_from_several_places() -> None:
    landmarks = LandmarkMap()
    for number in range(4):
        landmarks.add(*delta_of(number, camera_at(-1, 0), CHAIR))
    look_at_nothing(landmarks, range(4, 20), 0, 0.8)
    assert [one.status for one in landmarks_of(landmarks)] == [LandmarkStatus.PRESENT]
    for number in range(4):
        look_at_nothing(landmarks, range(20 + number, 21 + number), -0.4 * number, 1.2)
    assert [one.status for one in landmarks_of(landmarks)] == [LandmarkStatus.PRESENT]
    for number in range(6):
        look_at_nothing(landmarks, range(30 + number, 31 + number), -0.4 * (number % 3), 0.2)
    assert [one.status for one in landmarks_of(landmarks)] == [LandmarkStatus.GONE]


def test_looks_from_farther_than_it_was_ever_seen_tell_nothing_however_many() -> None:
    landmarks = LandmarkMap()
    for number in range(4):
        landmarks.add(*delta_of(number, camera_at(0, 0), CHAIR))
    for number in range(4, 24):
        look_at_nothing(landmarks, range(number, number + 1), -1.0, 0.4 * (number % 3))
    assert [one.status for one in landmarks_of(landmarks)] == [LandmarkStatus.PRESENT]


def test_what_was_seen_once_and_never_again_was_a_mistake() -> None:
    landmarks = LandmarkMap()
    landmarks.add(*delta_of(0, camera_at(0, 0), CHAIR))
    look_at_nothing(landmarks, range(1, 8), 0, 0)
    assert len(landmarks) == 0


def test_directions_from_apart_place_a_thing() -> None:
    landmarks = LandmarkMap()
    for number, y in enumerate((-1.0, -0.3, 0.4, 1.0)):
        pose = camera_at(0, y)
        landmarks.add(*delta_of(number, pose, CHAIR, scale=ScaleSource.UNKNOWN))
        assert len(landmarks) == (number >= 2)
    (chair,) = landmarks_of(landmarks)
    assert chair.position == pytest.approx(CHAIR.place, abs=0.05)
    assert chair.observations == 4
    assert landmarks.counts['unplaced'] == 0


def test_directions_from_one_place_support_a_landmark_and_make_none() -> None:
    landmarks = LandmarkMap()
    for number in range(5):
        landmarks.add(*delta_of(number, camera_at(0, 0), CHAIR, scale=ScaleSource.UNKNOWN))
    assert len(landmarks) == 0
    assert landmarks.counts['unplaced'] == 5
    landmarks.add(*delta_of(5, camera_at(0, 0), CHAIR))
    landmarks.add(*delta_of(6, camera_at(0, 0), CHAIR, scale=ScaleSource.UNKNOWN))
    assert [one.observations for one in landmarks_of(landmarks)] == [2]


@pytest.mark.parametrize(('apart_m', 'observations'), [(0.4, [1, 1]), (1.2, [1, 2])])
def test_a_direction_supports_the_landmark_that_it_fits_clearly_better_than_others(
    apart_m: float, observations: list[int]
) -> None:
    landmarks = LandmarkMap()
    one, other = (Thing('chair', (3.0, y, 0.5)) for y in (0.0, apart_m))
    landmarks.add(*delta_of(0, camera_at(0, 0), one, other))
    between = replace(one, place=(3.0, 0.15, 0.5))  # nearer to the one than to the other
    landmarks.add(*delta_of(1, camera_at(0, 0), between, scale=ScaleSource.UNKNOWN))
    assert sorted(one.observations for one in landmarks_of(landmarks)) == observations


def test_a_thing_that_is_placed_late_was_seen_when_it_was_seen_first() -> None:
    landmarks = LandmarkMap()
    for number, scale in enumerate((ScaleSource.UNKNOWN, ScaleSource.UNKNOWN, ScaleSource.DEPTH)):
        landmarks.add(*delta_of(number, camera_at(0, 0), CHAIR, scale=scale))
    (chair,) = landmarks_of(landmarks)
    assert (chair.first_seen_ns, chair.last_seen_ns) == (SECOND_NS, 3 * SECOND_NS)
    assert chair.position == pytest.approx(CHAIR.place, abs=0.02)


def test_a_direction_in_which_two_alike_things_lie_is_of_neither() -> None:
    landmarks = LandmarkMap()
    near, far = Thing('chair', (2.0, 0.0, 0.8), 0.2), Thing('chair', (4.0, 0.0, 0.6))
    landmarks.add(*delta_of(0, camera_at(0, 0), far, scale=ScaleSource.UNKNOWN))
    landmarks.add(*delta_of(1, camera_at(0, 0), near, far))
    assert [one.first_seen_ns for one in landmarks_of(landmarks)] == [2 * SECOND_NS] * 2


def test_a_thing_at_stamp_0_was_seen_then() -> None:
    landmarks = LandmarkMap()
    for number in (-1, 3):
        landmarks.add(*delta_of(number, camera_at(0, 0), CHAIR))
    (chair,) = landmarks_of(landmarks)
    assert chair.first_seen_ns == 0


def test_a_size_that_is_not_known_hides_no_others() -> None:
    landmarks = LandmarkMap(MapConfig(full_delta_items=2))
    for number in range(4):
        landmarks.add(*delta_of(number, camera_at(0, 0), CHAIR, SECOND_CHAIR, CUP))
    for number in range(4, 10):
        delta, view = delta_of(number, camera_at(0, 0), CHAIR, SECOND_CHAIR)
        first, second = delta.items
        items = replace(first, size_rad=math.nan), second
        landmarks.add(replace(delta, items=items), view)
    cup = next(one for one in landmarks_of(landmarks) if one.label == 'red cup')
    assert cup.status is LandmarkStatus.PRESENT  # smaller than all that the full deltas hold


def test_where_the_camera_is_now_is_not_known_from_a_part_that_it_left() -> None:
    landmarks = LandmarkMap()
    for number in range(3):
        landmarks.add(*delta_of(number, camera_at(0.5 * number, 0, frame='odom'), CHAIR))
    assert landmarks.scene_map().path[-1].position[0] == 1.0
    landmarks.add(*delta_of(3, camera_at(40, 0, frame='odom')))
    assert (labels_of(landmarks), landmarks.scene_map().path) == (['chair'], ())
    assert [point.position[0] for point in landmarks.path] == [0.0, 0.5, 1.0]
    assert 'where it is now is not known' in landmarks.summary()


def test_the_path_ends_where_and_when_the_camera_is_now() -> None:
    landmarks = LandmarkMap()
    for number, x in enumerate((0.0, 1.0, 1.02, 1.04, 1.01, 2.0)):
        landmarks.add(*delta_of(number, camera_at(x, 0), CHAIR))
        assert landmarks.scene_map().path[-1].stamp_ns == (number + 1) * SECOND_NS
    path = landmarks.scene_map().path
    assert [point.stamp_ns // SECOND_NS for point in path] == [1, 2, 5, 6]


def test_the_path_of_several_cameras_is_that_of_the_first() -> None:
    landmarks = LandmarkMap()
    for number in range(6):
        camera, yaw = (('front', 0.0), ('rear', 180.0))[number % 2]
        delta, view = delta_of(number, camera_at(0.5 * number, 0, yaw), CHAIR)
        landmarks.add(replace(delta, camera=camera), view)
        landmarks = LandmarkMap.from_json(json.loads(json.dumps(landmarks.to_json())))
    path = landmarks.scene_map().path
    assert [(point.position[0], point.yaw_rad) for point in path] == [(0, 0), (1, 0), (2, 0)]


def test_a_pose_beyond_all_places_is_none() -> None:
    landmarks = LandmarkMap()
    landmarks.add(*delta_of(0, camera_at(0, 0), CHAIR))
    assert not landmarks.add(*delta_of(1, replace(camera_at(0, 0), position=(1e12, 0.0, 0.0))))
    assert (landmarks.parts, len(landmarks.scene_map().path)) == (1, 1)


def test_a_colour_on_a_table_is_where_its_rays_cross_and_not_on_the_floor_behind() -> None:
    landmarks = LandmarkMap()
    box = Thing('red blocky object', (3.0, 0.5, 0.6), 0.2)
    for number, y in enumerate((-1.0, 0.0, 1.0)):
        delta, view = delta_of(number, camera_at(0, y), box, scale=ScaleSource.FLOOR)
        (item,) = delta.items
        behind = replace(item, distance_m=2.5 * item.distance_m)  # where its ray meets the floor
        landmarks.add(replace(delta, items=(behind,)), view)
    (landmark,) = landmarks_of(landmarks)
    assert landmark.position == pytest.approx(box.place, abs=0.3)


def test_nothing_is_taken_in_while_there_is_no_pose() -> None:
    landmarks = LandmarkMap()
    landmarks.add(*delta_of(0, camera_at(0, 0), CHAIR))
    delta, view = delta_of(1, camera_at(0, 0), CUP)
    assert not landmarks.add(delta, replace(view, pose=None))
    broken = replace(camera_at(0, 0), orientation=(0.0, 0.0, 0.0, 0.0))
    assert not landmarks.add(delta, replace(view, pose=broken))
    assert labels_of(landmarks) == ['chair']
    assert landmarks.counts['untrusted'] == 2
    assert landmarks.add(*delta_of(2, camera_at(0, 0), CUP))
    assert '2 of 4 deltas have no pose' in landmarks.summary()


@pytest.mark.parametrize(('frame', 'parts'), [('odom', 2), ('map', 1)])
def test_odometry_that_jumps_begins_a_part_and_a_corrected_frame_does_not(
    frame: str, parts: int
) -> None:
    landmarks = LandmarkMap()
    for number in range(3):
        landmarks.add(*delta_of(number, camera_at(0, 0, frame=frame), CHAIR))
    far = replace(CUP, place=(42.0, 0.6, 0.9))
    landmarks.add(*delta_of(3, camera_at(40, 0, frame=frame), far))
    assert landmarks.parts == parts
    assert labels_of(landmarks) == (['chair'] if parts == 2 else ['chair', 'red cup'])


def test_a_map_that_was_kept_goes_on_in_its_own_frame_alone() -> None:
    landmarks = LandmarkMap()
    landmarks.add(*delta_of(0, camera_at(30, 0, frame='odom'), CHAIR))
    for frame, parts in (('map', 1), ('odom', 2)):
        again = landmarks.kept()
        again.add(*delta_of(600, camera_at(0, 0, frame=frame), CUP))
        assert again.parts == parts


def test_a_jump_between_looks_of_two_cameras_begins_a_part_too() -> None:
    landmarks = LandmarkMap()
    for number, (camera, x) in enumerate((('left', 0.0), ('right', 0.4), ('left', 50.0))):
        delta, view = delta_of(0, camera_at(x, 0, frame='odom'), CHAIR)
        at_ns = delta.stamp_ns + number * SECOND_NS // 10
        landmarks.add(replace(delta, camera=camera, stamp_ns=at_ns, to_id=number), view)
    assert landmarks.parts == 2


def test_a_clock_that_goes_back_begins_a_part() -> None:
    landmarks = LandmarkMap()
    for number in (1000, 10, 11):
        landmarks.add(*delta_of(number, camera_at(0, 0, frame='odom'), CHAIR))
    assert landmarks.parts == 2
    [chair] = landmarks_of(landmarks)
    assert (chair.first_seen_ns, chair.last_seen_ns) == (11 * SECOND_NS, 12 * SECOND_NS)


def walk(
    landmarks: LandmarkMap, motions: list[Motion], *, kind: DeltaKind = DeltaKind.CHANGE
) -> None:
    """Motions without poses; the chair is where it is to be seen from where they lead."""
    x = 0.0
    for number, motion in enumerate([Motion(), *motions]):
        x += motion.translation[0] if motion.is_metric else 0.0
        delta, view = delta_of(number, camera_at(x, 0.0), CHAIR)
        if number:
            delta = replace(delta, motion=motion, kind=kind)
        landmarks.add(delta, replace(view, pose=None))


STEP = Motion(
    MotionSource.FOLLOWED, 0.0, 0.0, 0.0, (0.5, 0.0, 0.0), is_metric=True, scale=ScaleSource.DEPTH
)


def test_without_poses_metric_motions_are_put_together() -> None:
    landmarks = LandmarkMap()
    walk(landmarks, [STEP, STEP, replace(STEP, translation=(0.0, 0.0, 0.0), is_metric=False)])
    (chair,) = landmarks_of(landmarks)
    # In the frame of the first keyframe, whose camera is its origin.
    assert chair.position == pytest.approx((3.0, 0.5, -0.5), abs=0.02)
    scene_map = landmarks.scene_map()
    assert (scene_map.frame_id, scene_map.scale) == ('start', ScaleSource.DEPTH)
    assert scene_map.path[-1].position == pytest.approx((1.0, 0.0, 0.0))


@pytest.mark.parametrize(
    'lost',
    [
        Motion(),
        Motion(MotionSource.TWO_VIEW, 0.0, 0.0, 0.0, (1.0, 0.0, 0.0)),
        Motion(MotionSource.MODEL),
    ],
)
def test_a_motion_of_no_known_length_begins_a_part(lost: Motion) -> None:
    landmarks = LandmarkMap()
    walk(landmarks, [STEP, STEP, lost, STEP])
    assert landmarks.parts == 2
    # Both parts know of a chair; the one with more sightings is told, and nothing of both.
    assert [one.observations for one in landmarks_of(landmarks)] == [3]
    assert 'in 2 parts' in landmarks.summary()


def test_a_failed_delta_breaks_a_way_without_poses() -> None:
    landmarks = LandmarkMap()
    walk(landmarks, [STEP], kind=DeltaKind.FAILED)
    assert landmarks.counts['untrusted'] == 1
    assert '1 of 2 keyframes were not perceived' in landmarks.summary()


def stream(count: int) -> list[tuple[SemanticDelta, CameraView]]:
    """A camera that paces between things, with noise from a seed."""
    rng = np.random.default_rng(5)
    deltas = []
    for number in range(count):
        pose = camera_at(float(rng.uniform(-0.5, 1.0)), float(rng.uniform(-0.5, 0.5)))
        things = [thing for thing in (CHAIR, SECOND_CHAIR, CUP) if rng.random() < 0.7]
        scale = ScaleSource.DEPTH if rng.random() < 0.6 else ScaleSource.UNKNOWN
        delta, view = delta_of(number, pose, *things, scale=scale)
        items = tuple(
            replace(item, distance_m=item.distance_m * float(rng.normal(1, 0.05)))
            for item in delta.items
        )
        deltas.append((replace(delta, items=items), replace(view, intrinsics=None)))
    return deltas


def test_the_same_deltas_give_the_same_map_and_so_after_a_reload(tmp_path: Path) -> None:
    whole, again, saved = LandmarkMap(), LandmarkMap(), LandmarkMap()
    for number, (delta, view) in enumerate(stream(60)):
        for landmarks in (whole, again, saved):
            landmarks.add(delta, view)
        if number in {7, 30, 45}:
            saved = saved.kept()
    assert json.dumps(whole.to_json()) == json.dumps(again.to_json())
    assert json.dumps(whole.to_json()) == json.dumps(saved.to_json())
    assert labels_of(whole) == ['chair', 'chair', 'red cup']
    write_scene_map(tmp_path / 'MAP.json', saved.scene_map())
    written = read_scene_map(tmp_path / 'MAP.json')
    assert [one.id for one in written.landmarks] == [one.id for one in landmarks_of(whole)]


def test_a_map_grows_with_the_place_and_not_with_time() -> None:
    config = MapConfig(max_path_points=16, max_rays=10)
    landmarks = LandmarkMap(config)
    sizes = []
    for number, (delta, view) in enumerate(stream(400)):
        landmarks.add(delta, view)
        if number in {200, 399}:
            sizes.append(len(json.dumps(landmarks.to_json())))
    assert sizes[1] < 1.2 * sizes[0]
    assert len(landmarks) == 3
    path = landmarks.scene_map().path
    assert len(path) <= 16
    assert path[0].stamp_ns == 1_000_000_000


def test_directions_that_wait_are_bounded() -> None:
    landmarks = LandmarkMap(MapConfig(max_rays=10))
    for number in range(30):
        landmarks.add(*delta_of(number, camera_at(0, 0), CHAIR, scale=ScaleSource.UNKNOWN))
    assert len(landmarks.to_json()['part']['rays']) == 10


def test_the_least_confident_landmarks_are_dropped_first() -> None:
    landmarks = LandmarkMap(MapConfig(max_landmarks=8))
    for number in range(3):
        landmarks.add(*delta_of(number, camera_at(0, 0), CHAIR))
    for number in range(20):
        thing = Thing('blue object', (3.0 + 3 * number, 0.0, 0.5))
        landmarks.add(*delta_of(3 + number, camera_at(3.0 * number, 0), thing))
    assert len(landmarks) == 8
    assert 'chair' in labels_of(landmarks)


def test_the_best_keyframes_show_it_large_and_whole() -> None:
    landmarks = LandmarkMap()
    for number, (x, y) in enumerate([(0, 0), (1, 0.5), (2, 0.5), (0, 1.5), (1.5, 0.5)]):
        landmarks.add(*delta_of(number, camera_at(x, y), CHAIR))
    (chair,) = landmarks_of(landmarks)
    assert chair.keyframe_ids == (4, 1, 2)  # the floor cuts it off in 2


def test_what_left_the_view_and_what_has_no_direction_is_no_sighting() -> None:
    landmarks = LandmarkMap()
    delta, view = delta_of(0, camera_at(0, 0), replace(CHAIR, status=ItemStatus.LEFT))
    landmarks.add(replace(delta, items=(*delta.items, Item('cup'))), view)
    assert len(landmarks) == 0
    assert landmarks.counts['items'] == 0


def test_a_lens_is_learned_from_items() -> None:
    landmarks = LandmarkMap()
    for number in range(6):
        delta, view = delta_of(number, camera_at(0.1 * number, 0), CHAIR, SECOND_CHAIR, CUP)
        landmarks.add(delta, replace(view, intrinsics=None))
    chair = next(one for one in landmarks_of(landmarks) if one.label == 'chair')
    assert chair.size == pytest.approx((0.4, 0.4, 0.4), abs=0.03)
    assert CAMERA.width  # the lens that was not told
    assert math.isfinite(chair.confidence)


def test_rays_that_meet_where_the_camera_stood_place_nothing_there() -> None:
    pose = camera_at(1.2, 0.6)
    first = sighting_of(item_of(CHAIR, camera_at(0.0, 0.0)), camera_at(0.0, 0.0), 1, 1)
    rays = [
        sighting_of(
            replace(item_of(CHAIR, pose), bearing_rad=math.radians(aside)), pose, 2, number
        )
        for number, aside in enumerate([29, 29, -41, -43, -16], 2)
    ]
    assert first
    looks = [first, *(ray.without_distance() for ray in rays if ray)]
    place = fused_place(looks, first.position).position
    assert math.dist(place, pose.position) > 0.5
