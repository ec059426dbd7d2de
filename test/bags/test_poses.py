# SPDX-License-Identifier: Apache-2.0
"""Robots that record transforms and no odometry: what their bags prove of the camera's motion."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from embodied_r_ros.bags.message_types import BagMessageFactory
from embodied_r_ros.bags.messages import encoded_image_to_msg, header_to_msg, odometry_to_msg
from embodied_r_ros.bags.poses import OdometryPoses, poses_at
from embodied_r_ros.bags.reader import open_bag
from embodied_r_ros.bags.sources import open_source
from embodied_r_ros.bags.writer import BagWriter
from embodied_r_ros.core.types.deltas import DeltaKind, SemanticDelta
from embodied_r_ros.core.types.geometry import (
    BODY_FROM_OPTICAL,
    Pose,
    quaternion_from_matrix,
    rotation_from_ypr,
    yaw_pitch_roll,
)
from embodied_r_ros.core.types.images import encode_image
from embodied_r_ros.data.episodes.episode import read_episode
from embodied_r_ros.data.questions.coverage import Coverage
from embodied_r_ros.data.questions.derive import QuestionsConfig, rows_of_episode
import numpy as np
import pytest

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path
    from typing import Any

S = 1_000_000_000
FACTORY = BagMessageFactory()
STEP_NS = S // 10
STILL = ((0.0, 0.0, 0.0), (0.0, 0.0, 0.0))
OPTICAL = quaternion_from_matrix(BODY_FROM_OPTICAL)
LEFT = quaternion_from_matrix(rotation_from_ypr(math.pi / 2, 0.0, 0.0))
AHEAD = (0.0, 0.0, 0.0, 1.0)
DELTAS = tuple(
    SemanticDelta(second * S, kind, second, frame_id='eye')
    for second, kind in enumerate((DeltaKind.FIRST, *[DeltaKind.CHANGE] * 4), 1)
)


def transform(child: str, stamp_ns: int, pose: Pose) -> Any:
    x, y, z, w = pose.orientation
    vector = dict(zip('xyz', pose.position, strict=True))
    return FACTORY.make(
        'geometry_msgs/msg/TransformStamped',
        header=header_to_msg(FACTORY, stamp_ns, pose.frame_id),
        child_frame_id=child,
        transform=FACTORY.make(
            'geometry_msgs/msg/Transform',
            translation=FACTORY.make('geometry_msgs/msg/Vector3', **vector),
            rotation=FACTORY.make('geometry_msgs/msg/Quaternion', x=x, y=y, z=z, w=w),
        ),
    )


def base(stamp_ns: int) -> Pose:
    """A robot that drives ahead, half a metre a second."""
    return Pose((0.5 * stamp_ns / S, 0.0, 0.0), AHEAD, 'odom')


def write_bag(
    path: Path,
    *,
    end_ns: int = 6 * S,
    static: Mapping[str, Pose] | None = None,
    odometry: tuple[str, ...] = (),
) -> Path:
    """Six seconds of a robot whose camera looks to the left."""
    if static is None:
        static = {
            'camera_link': Pose((0.0, 0.0, 1.0), LEFT, 'base_link'),
            'eye': Pose((0.0, 0.0, 0.0), OPTICAL, 'camera_link'),
        }
    kind = 'tf2_msgs/msg/TFMessage'
    image = encode_image(np.full((48, 64, 3), 90, np.uint8))
    with BagWriter(path) as bag:
        bag.add_topic('/tf', kind)
        bag.add_topic('/tf_static', kind)
        bag.add_topic('/image/compressed', 'sensor_msgs/msg/CompressedImage')
        fixed = [transform(child, 0, pose) for child, pose in static.items()]
        bag.write('/tf_static', FACTORY.make(kind, transforms=fixed), 0)
        for topic in odometry:
            bag.add_topic(topic, 'nav_msgs/msg/Odometry')
        for stamp_ns in range(S // 2, 6 * S, STEP_NS):
            if stamp_ns < end_ns:
                moved = [transform('base_link', stamp_ns, base(stamp_ns))]
                bag.write('/tf', FACTORY.make(kind, transforms=moved), stamp_ns)
            seen = encoded_image_to_msg(FACTORY, stamp_ns, 'eye', image)
            bag.write('/image/compressed', seen, stamp_ns)
            for topic in odometry:
                msg = odometry_to_msg(FACTORY, stamp_ns, base(stamp_ns), 'base_link', STILL)
                bag.write(topic, msg, stamp_ns)
    return path


def test_questions_of_motion_are_solved_by_transforms(tmp_path: Path) -> None:
    bag = write_bag(tmp_path / 'e1', odometry=('/odom', '/odometry/filtered'))
    episode = read_episode(bag, 'classical', lambda path: DELTAS)
    coverage = Coverage()
    rows = list(rows_of_episode(episode, QuestionsConfig(), coverage))
    solved = {row.question_type: (row.source, row.solution_text()) for row in rows}
    # Two metres ahead of the robot are two metres to the right of a camera that looks left.
    assert solved['net_displacement'] == ('tf', 'to the right of the start')
    assert solved['net_turn'] == ('tf', 'the same way as at the start')


@pytest.mark.parametrize(
    ('end_ns', 'static', 'reason'),
    [
        (
            6 * S,
            {'eye': Pose((0.0, 0.0, 0.0), OPTICAL, 'camera_link')},
            'no transforms lead from eye to odom or map: they end at camera_link',
        ),
        (4 * S, None, 'the transform of base_link in odom has gaps at images'),
    ],
)
def test_transforms_that_do_not_reach_prove_nothing(
    tmp_path: Path, end_ns: int, static: Mapping[str, Pose] | None, reason: str
) -> None:
    bag = write_bag(tmp_path / 'e1', end_ns=end_ns, static=static)
    episode = read_episode(bag, 'classical', lambda path: DELTAS)
    assert episode.poses == ()
    assert episode.no_poses == reason


def test_one_odometry_comes_before_transforms(tmp_path: Path) -> None:
    bag = write_bag(tmp_path / 'e1', odometry=('/odom',))
    episode = read_episode(bag, 'classical', lambda path: DELTAS)
    assert episode.pose_source == 'odometry'
    # The transforms mount the camera on the body of the odometry.
    assert episode.poses[0].position == pytest.approx((0.5, 0.0, 1.0))


def test_images_have_the_poses_of_their_camera(tmp_path: Path) -> None:
    with open_source(write_bag(tmp_path / 'e1', end_ns=3 * S)) as source:
        poses = {image.stamp_ns: image.pose for image in source}
    seen_from = poses[2 * S]
    assert seen_from is not None
    assert seen_from.position == pytest.approx((1.0, 0.0, 1.0))
    assert yaw_pitch_roll(seen_from.rotation())[0] == pytest.approx(math.pi / 2)
    assert poses[5 * S] is None


def test_lookups_do_not_keep_the_bag(tmp_path: Path) -> None:
    bag = write_bag(tmp_path / 'e1', odometry=('/odom',))
    wanted = [(5 * S, 'eye'), (S, 'eye'), (3 * S + STEP_NS // 2, 'eye')]
    with open_bag(bag) as reader:
        found = poses_at(reader, OdometryPoses('/odom', capacity=3), wanted)
    assert {at for at in found if found[at] == base(at[0])} == set(wanted)


def test_a_pose_without_a_stamp_is_of_the_time_of_its_receipt() -> None:
    poses = OdometryPoses('/odom')
    for received_ns in (S, 2 * S):
        msg = odometry_to_msg(FACTORY, 0, base(received_ns), 'eye', STILL)
        assert poses.take(msg, received_ns) == received_ns
    found = poses.camera_at('eye', S + STEP_NS)
    assert isinstance(found, Pose)
    assert found.position == base(S + STEP_NS).position
