# SPDX-License-Identifier: Apache-2.0
"""Sequences of real cameras as bags: images, camera_info, poses as odometry, and depth."""

from __future__ import annotations

from typing import TYPE_CHECKING

from embodied_r_ros.bags.depth import depth_to_msg
from embodied_r_ros.bags.message_types import BagMessageFactory
from embodied_r_ros.bags.messages import camera_info_to_msg, encoded_image_to_msg, odometry_to_msg
from embodied_r_ros.bags.writer import BagWriter, RELIABLE_QOS, SENSOR_DATA_QOS
from embodied_r_ros.types.geometry import Pose, quaternion_from_matrix, rays_of_pixels
from embodied_r_ros.types.images import encode_image
from embodied_r_ros.types.poses import composed
import numpy as np

from bench.real_sequences import read_sequence

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from bench.real_sequences import RealShot

_OPTICAL, _LINK = 'camera_optical_frame', 'camera_link'
_TOPICS = {
    '/camera_info': ('sensor_msgs/msg/CameraInfo', SENSOR_DATA_QOS),
    '/image/compressed': ('sensor_msgs/msg/CompressedImage', SENSOR_DATA_QOS),
    '/odom': ('nav_msgs/msg/Odometry', RELIABLE_QOS),
    '/depth': ('sensor_msgs/msg/Image', SENSOR_DATA_QOS),
}
_FROM_NS = 1_000_000_000  # a stamp of zero means 'unset' in ROS
_AT_REST = ((0.0, 0.0, 0.0), (0.0, 0.0, 0.0))
_QUALITY = 95
_FRAME = 'world'
_FLOOR_PERCENT = 1.0  # of what depth shows lies lower than the floor, by mistake


def write_bag(folder: Path, bag: Path) -> None:
    """Write a sequence as a rosbag2 folder.

    Raises:
        InputError: It is none, or the bag cannot be written.
    """
    make = BagMessageFactory()
    has_depth = (folder / 'depth').is_dir()
    with BagWriter(bag) as writer:
        for topic, (kind, qos) in _TOPICS.items():
            if has_depth or topic != '/depth':
                writer.add_topic(topic, kind, qos)
        upright = _upright(list(read_sequence(folder)))
        for shot in read_sequence(folder):
            stamp_ns = shot.stamp_ns + _FROM_NS
            info = camera_info_to_msg(make, stamp_ns, _OPTICAL, shot.intrinsics)
            writer.write('/camera_info', info, stamp_ns)
            image = encode_image(shot.image, _QUALITY)
            writer.write(
                '/image/compressed',
                encoded_image_to_msg(make, stamp_ns, _OPTICAL, image),
                stamp_ns,
            )
            odometry = odometry_to_msg(
                make, stamp_ns, composed(upright, shot.pose), _LINK, _AT_REST
            )
            writer.write('/odom', odometry, stamp_ns)
            if shot.depth is not None:
                depth = depth_to_msg(make, stamp_ns, _OPTICAL, shot.depth)
                writer.write('/depth', depth, stamp_ns)


def _upright(shots: Sequence[RealShot]) -> Pose:
    """Pose of a sequence's world in one whose z axis points up from the floor.

    Cameras are upright on average; the axis of their world that is nearest to it is up. The floor
    is the lowest of what depth shows; without depth the height stays as it is.
    """
    rotations = [shot.pose.rotation() for shot in shots]
    up = np.mean([rotation[:, 2] for rotation in rotations], axis=0)
    axis = int(np.argmax(np.abs(up)))
    z = np.zeros(3)
    z[axis] = np.sign(up[axis])
    x = np.roll(np.abs(z), 1)
    turn = np.stack([x, np.cross(z, x), z])
    heights = [_heights(shot, turn) for shot in shots if shot.depth is not None]
    floor = np.percentile(np.concatenate(heights), _FLOOR_PERCENT) if heights else 0.0
    return Pose((0.0, 0.0, -float(floor)), quaternion_from_matrix(turn), _FRAME)


def _heights(shot: RealShot, turn: NDArray[np.float64]) -> NDArray[np.float64]:
    """Heights of what the depth of a shot shows, every tenth pixel. Shape (N,)."""
    assert shot.depth is not None
    assert shot.depth_camera
    rows, columns = (
        part.ravel()
        for part in np.mgrid[0 : shot.depth.shape[0] : 10, 0 : shot.depth.shape[1] : 10]
    )
    depth = shot.depth[rows, columns]
    rays = rays_of_pixels(shot.depth_camera, np.column_stack([columns, rows]).astype(np.float64))
    points = (rays * depth[:, None])[depth > 0] @ shot.pose.rotation().T + shot.pose.position
    return np.asarray(points @ turn[2], np.float64)
