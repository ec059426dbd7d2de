# SPDX-License-Identifier: Apache-2.0
"""Time, headers, geometry and odometry: messages that every ROS package has."""

from __future__ import annotations

from typing import Any, TYPE_CHECKING

from embodied_r_ros.geometry import Pose

if TYPE_CHECKING:
    from embodied_r_ros.recordings.message_types import MessageFactory

_NS = 1_000_000_000


def stamp_ns_from_msg(msg: Any) -> int:
    """Nanoseconds of a builtin_interfaces Time or Duration."""
    return int(msg.sec) * _NS + int(msg.nanosec)


def stamp_to_msg(factory: MessageFactory, stamp_ns: int) -> Any:
    """Make a builtin_interfaces Time of integer nanoseconds."""
    sec, nanosec = divmod(stamp_ns, _NS)
    return factory.make('builtin_interfaces/msg/Time', sec=sec, nanosec=nanosec)


def duration_to_msg(factory: MessageFactory, duration_ns: int) -> Any:
    """Make a builtin_interfaces Duration of integer nanoseconds."""
    sec, nanosec = divmod(duration_ns, _NS)
    return factory.make('builtin_interfaces/msg/Duration', sec=sec, nanosec=nanosec)


def header_to_msg(factory: MessageFactory, stamp_ns: int, frame_id: str) -> Any:
    """Make a std_msgs Header."""
    stamp = stamp_to_msg(factory, stamp_ns)
    return factory.make('std_msgs/msg/Header', stamp=stamp, frame_id=frame_id)


def vector_to_msg(factory: MessageFactory, kind: str, xyz: tuple[float, float, float]) -> Any:
    """Make a geometry_msgs Point or Vector3, as `kind` says."""
    x, y, z = map(float, xyz)
    return factory.make(f'geometry_msgs/msg/{kind}', x=x, y=y, z=z)


def vector_from_msg(msg: Any) -> tuple[float, float, float]:
    """Components of a geometry_msgs Point or Vector3."""
    return float(msg.x), float(msg.y), float(msg.z)


def pose_to_msg(factory: MessageFactory, pose: Pose | None) -> Any:
    """Make a geometry_msgs Pose; None gives the identity."""
    position = pose.position if pose else (0.0, 0.0, 0.0)
    x, y, z, w = map(float, pose.orientation if pose else (0.0, 0.0, 0.0, 1.0))
    return factory.make(
        'geometry_msgs/msg/Pose',
        position=vector_to_msg(factory, 'Point', position),
        orientation=factory.make('geometry_msgs/msg/Quaternion', x=x, y=y, z=z, w=w),
    )


def pose_from_msg(msg: Any, frame_id: str) -> Pose:
    """Pose of a geometry_msgs Pose in the given fixed frame."""
    q = msg.orientation
    orientation = (float(q.x), float(q.y), float(q.z), float(q.w))
    return Pose(vector_from_msg(msg.position), orientation, frame_id)


def transform_from_msg(msg: Any) -> Pose:
    """Pose of the child of a geometry_msgs TransformStamped, in its parent."""
    q = msg.transform.rotation
    orientation = (float(q.x), float(q.y), float(q.z), float(q.w))
    return Pose(vector_from_msg(msg.transform.translation), orientation, msg.header.frame_id)


def odometry_to_msg(
    factory: MessageFactory,
    stamp_ns: int,
    pose: Pose,
    child_frame_id: str,
    velocity: tuple[tuple[float, float, float], tuple[float, float, float]],
) -> Any:
    """Make a nav_msgs Odometry with unknown covariance (all zero).

    Args:
        factory: Makes the message.
        stamp_ns: When the pose was taken.
        pose: Pose of the child in its fixed frame.
        child_frame_id: Name of the body.
        velocity: Linear [m/s] and angular [rad/s] velocity, both in the child's axes.
    """
    linear, angular = velocity
    unknown = factory.array('float64', [0.0] * 36)
    twist = factory.make(
        'geometry_msgs/msg/Twist',
        linear=vector_to_msg(factory, 'Vector3', linear),
        angular=vector_to_msg(factory, 'Vector3', angular),
    )
    return factory.make(
        'nav_msgs/msg/Odometry',
        header=header_to_msg(factory, stamp_ns, pose.frame_id),
        child_frame_id=child_frame_id,
        pose=factory.make(
            'geometry_msgs/msg/PoseWithCovariance',
            pose=pose_to_msg(factory, pose),
            covariance=unknown,
        ),
        twist=factory.make(
            'geometry_msgs/msg/TwistWithCovariance', twist=twist, covariance=unknown
        ),
    )
