# SPDX-License-Identifier: Apache-2.0
"""Which frame a recorded pose speaks of: the camera goes 0.8 m ahead and turns 40 degrees left."""

from __future__ import annotations

import logging
import math
from typing import Any, TYPE_CHECKING

from embodied_r_ros.bags.sources import open_source
from embodied_r_ros.core.types.deltas import DeltaKind, SemanticDelta
from embodied_r_ros.core.types.geometry import (
    BODY_FROM_OPTICAL,
    Pose,
    quaternion_from_matrix,
    relative_motion,
    rotation_from_ypr,
    yaw_pitch_roll,
)
from embodied_r_ros.core.types.poses import camera_of_body, compose_poses, NoPose
from embodied_r_ros.data.episodes.episode import read_episode
import numpy as np
import pytest

from test.bags.recordings import (
    COUNT,
    header,
    IMAGE,
    image,
    MS,
    ODOMETRY,
    OPTICAL,
    quaternion,
    times,
    TOPIC,
    TRANSFORMS,
    transforms,
    TYPES,
    view,
    write_bag,
)

if TYPE_CHECKING:
    from pathlib import Path

STAMPED, COVARIANT = 'geometry_msgs/msg/PoseStamped', 'geometry_msgs/msg/PoseWithCovarianceStamped'
TRANSFORM = 'geometry_msgs/msg/TransformStamped'
EYE = 'front_camera_optical_frame'
AS_EYE = Pose((0.0, 0.0, 0.0), quaternion_from_matrix(BODY_FROM_OPTICAL), '')


def link(index: int) -> Pose:
    """The camera link, which starts level: 0.8 m ahead and 40 degrees to the left at the end."""
    share = index / (COUNT - 1)
    turn = quaternion_from_matrix(rotation_from_ypr(math.radians(40 * share), 0.0, 0.0))
    return Pose((0.8 * share, 0.0, 0.0), turn, 'odom')


def eye(index: int) -> Pose:
    """The optical frame of the same camera."""
    return compose_poses(link(index), AS_EYE)


def eye_by_eye(index: int) -> Pose:
    """The same in the axes that the optical frame had at the start, as visual odometry says it."""
    first, now = eye(0), eye(index)
    back = Pose((0.0, 0.0, 0.0), quaternion_from_matrix(first.rotation().T), 'odom')
    return compose_poses(back, now)


def pose_msg(pose: Pose) -> Any:
    point = TYPES['geometry_msgs/msg/Point'](*pose.position)
    return TYPES['geometry_msgs/msg/Pose'](point, quaternion(*pose.orientation))


def message(kind: str, ns: int, pose: Pose, body: str) -> Any:
    about, zeros = header(ns, pose.frame_id), np.zeros(36)
    if kind == TRANSFORM:
        return transforms(ns, pose.frame_id, body, pose.position, pose.orientation).transforms[0]
    if kind == STAMPED:
        return TYPES[kind](about, pose_msg(pose))
    covariant = TYPES['geometry_msgs/msg/PoseWithCovariance'](pose_msg(pose), zeros)
    if kind == COVARIANT:
        return TYPES[kind](about, covariant)
    vector = TYPES['geometry_msgs/msg/Vector3']
    still = TYPES['geometry_msgs/msg/Twist'](vector(0.0, 0.0, 0.0), vector(0.0, 0.0, 0.0))
    twist = TYPES['geometry_msgs/msg/TwistWithCovariance'](still, zeros)
    return TYPES[kind](about, body, covariant, twist)


def images(frame: str = EYE) -> list[Any]:
    made = []
    for index, ns in enumerate(times()):
        msg = image(ns, view(index * 1.7))
        msg.header.frame_id = frame
        made.append((TOPIC, IMAGE, ns, msg))
    return made


def drive(
    where: Any, body: str, kind: str = ODOMETRY, topic: str = '/vo/pose', frame: str = 'odom'
) -> list[Any]:
    return [
        (topic, kind, ns - MS, message(kind, ns, Pose(*_values(where(i)), frame), body))
        for i, ns in enumerate(times())
    ]


def _values(pose: Pose) -> tuple[Any, Any]:
    return pose.position, pose.orientation


def motion(bag: Path) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Motion of the camera link from the first image to the last: [m] and [degrees]."""
    with open_source(bag) as source:
        poses = [image.pose for image in source if image.pose]
    assert len(poses) == COUNT
    turn, way = relative_motion(poses[0], poses[-1])
    return tuple(way), tuple(math.degrees(angle) for angle in yaw_pitch_roll(turn))


def assert_left_and_ahead(bag: Path) -> None:
    way, turn = motion(bag)
    assert way == pytest.approx((0.8, 0.0, 0.0), abs=1e-6)
    assert turn == pytest.approx((40.0, 0.0, 0.0), abs=1e-6)


@pytest.mark.parametrize('frame', [EYE, 'eye', f'/{EYE}'])
@pytest.mark.parametrize('where', [eye, eye_by_eye])
def test_odometry_of_the_images_own_frame_is_turned_once(
    tmp_path: Path, where: Any, frame: str
) -> None:
    bag = write_bag(tmp_path / 'a', images(frame) + drive(where, frame.lstrip('/')))
    assert_left_and_ahead(bag)


def test_an_episode_has_the_poses_of_its_camera(tmp_path: Path) -> None:
    deltas = [
        SemanticDelta(times()[index], kind, index, frame_id=EYE)
        for index, kind in ((0, DeltaKind.FIRST), (COUNT - 1, DeltaKind.CHANGE))
    ]
    bag = write_bag(tmp_path / 'a', images() + drive(eye, EYE))
    first, last = read_episode(bag, 'classical', lambda path: deltas).poses
    turn, way = relative_motion(first, last)
    assert tuple(way) == pytest.approx((0.8, 0.0, 0.0), abs=1e-6)
    assert yaw_pitch_roll(turn)[0] == pytest.approx(math.radians(40))


def test_a_slash_in_front_of_a_body_does_not_matter(tmp_path: Path) -> None:
    assert_left_and_ahead(write_bag(tmp_path / 'a', images() + drive(eye, f'/{EYE}')))


def test_odometry_of_the_other_camera_of_a_rig_has_optical_axes(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    bag = write_bag(tmp_path / 'a', images() + drive(eye, 'left_camera_optical_frame'))
    assert_left_and_ahead(bag)
    assert "'left_camera_optical_frame', and no transform says where the camera is" in caplog.text


@pytest.mark.parametrize('body', ['base_link', 'camera_link', ''])
def test_odometry_of_a_body_that_no_transform_knows_is_the_cameras(
    tmp_path: Path, body: str
) -> None:
    assert_left_and_ahead(write_bag(tmp_path / 'a', images() + drive(link, body)))


def test_images_of_a_link_have_the_axes_of_a_body(tmp_path: Path) -> None:
    for frame in ('camera_link', 'base_footprint'):
        bag = write_bag(tmp_path / frame, images(frame) + drive(link, frame))
        assert_left_and_ahead(bag)


def test_the_own_frame_goes_before_transforms(tmp_path: Path) -> None:
    mount = transforms(times()[0] - MS, 'base_link', EYE, (0.1, 0.0, 0.5), OPTICAL)
    static = [('/tf_static', TRANSFORMS, times()[0] - MS, mount)]
    assert_left_and_ahead(write_bag(tmp_path / 'a', static + images() + drive(eye, EYE)))


@pytest.mark.parametrize('kind', [STAMPED, COVARIANT, TRANSFORM])
def test_stamped_poses_are_read_where_there_are_no_others(
    tmp_path: Path, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    for body, where in (('base_link', link), (EYE, eye)):
        bag = write_bag(tmp_path / body, images() + drive(where, body, kind, frame='map'))
        assert_left_and_ahead(bag)
    assert ('names no body' in caplog.text) == (kind != TRANSFORM)


def test_transforms_mount_the_camera_on_a_body_without_a_name(tmp_path: Path) -> None:
    static = [
        ('/tf_static', TRANSFORMS, ns, msg)
        for ns, msg in (
            (1, transforms(1, 'base_link', 'mast', (0.0, 0.0, 1.0), (0.0, 0.0, 0.0, 1.0))),
            (2, transforms(1, 'mast', EYE, (0.0, 0.2, 0.0), OPTICAL)),
        )
    ]
    with open_source(
        write_bag(tmp_path / 'a', static + images() + drive(link, '', STAMPED))
    ) as source:
        first = next(iter(source))
    assert first.pose
    assert first.pose.position == pytest.approx((0.0, 0.2, 1.0))


@pytest.mark.parametrize(
    ('topic', 'frame'), [('/goal_pose', 'map'), ('/ee_pose', 'odom'), ('/pose', 'panda_link0')]
)
def test_poses_of_goals_and_of_hands_are_none_of_the_camera(
    tmp_path: Path, topic: str, frame: str
) -> None:
    bag = write_bag(tmp_path / 'a', images() + drive(link, '', STAMPED, topic, frame))
    with open_source(bag) as source:
        assert not any(image.pose for image in source)


def test_odometry_goes_before_stamped_poses(tmp_path: Path) -> None:
    still = drive(lambda index: link(0), '', STAMPED, '/mocap/pose', 'world')
    assert_left_and_ahead(write_bag(tmp_path / 'a', images() + still + drive(eye, EYE)))


def test_several_stamped_poses_are_left_out_and_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    two = drive(link, '', STAMPED, '/mocap/a/pose') + drive(link, '', STAMPED, '/mocap/b/pose')
    with open_source(write_bag(tmp_path / 'a', images() + two)) as source:
        assert not any(image.pose for image in source)
    assert 'several topics have some (/mocap/a/pose, /mocap/b/pose)' in caplog.text


def moving(parent: str, body: str = 'base_link') -> list[Any]:
    mount = transforms(times()[0] - MS, body, EYE, (0.0, 0.0, 0.0), OPTICAL)
    messages: list[Any] = [('/tf_static', TRANSFORMS, times()[0] - MS, mount)]
    for index, ns in enumerate(times()):
        msg = transforms(ns, parent, body, *_values(link(index)))
        messages.append(('/tf', TRANSFORMS, ns, msg))
    return messages


def test_transforms_of_several_robots_are_left_out_and_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    own = moving('odom')
    others = [(f'/other{topic}', *rest) for topic, *rest in own if topic == '/tf']
    with open_source(write_bag(tmp_path / 'a', images() + own + others)) as source:
        assert not any(image.pose for image in source)
    assert 'several topics have some (/other/tf, /tf)' in caplog.text


@pytest.mark.parametrize('root', ['world', '/vicon/world', 'camera_init', 't265_odom_frame'])
def test_the_root_of_transforms_is_fixed_where_neither_odom_nor_map_is(
    tmp_path: Path, root: str, caplog: pytest.LogCaptureFixture
) -> None:
    assert_left_and_ahead(write_bag(tmp_path / 'a', images() + moving(root)))
    name = root.lstrip('/')
    assert f'neither odom nor map: poses are in {name!r}, their root' in caplog.text


def test_a_root_that_moves_with_the_robot_is_not_fixed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        bag = write_bag(tmp_path / 'a', images() + moving('base_link', 'head'))
        with open_source(bag) as source:
            assert not any(image.pose for image in source)
    assert 'to odom or map: they end at base_link' in caplog.text


def test_one_rule_says_what_a_pose_speaks_of() -> None:
    def nowhere(body: str) -> NoPose | None:
        return NoPose('torn')

    assert camera_of_body(link(3), 'base_link', EYE, nowhere) == NoPose('torn')
    own = camera_of_body(eye(3), EYE, EYE, nowhere)
    assert isinstance(own, Pose)
    assert own.rotation() == pytest.approx(link(3).rotation())
