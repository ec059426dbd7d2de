# SPDX-License-Identifier: Apache-2.0
"""Arms: joint states, stamped poses and transforms."""

from __future__ import annotations

from typing import Any, TYPE_CHECKING

from embodied_r_ros.conversions.standard import header_to_msg, pose_to_msg, vector_to_msg

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from embodied_r_ros.geometry import Pose
    from embodied_r_ros.recordings.message_types import MessageFactory


def joint_state_to_msg(
    factory: MessageFactory,
    stamp_ns: int,
    names: Sequence[str],
    positions: Sequence[float],
    velocities: Sequence[float] = (),
) -> Any:
    """Make a sensor_msgs JointState [rad or m, per second]; no velocities: not known."""
    return factory.make(
        'sensor_msgs/msg/JointState',
        header=header_to_msg(factory, stamp_ns, ''),
        name=list(names),
        position=factory.array('float64', list(positions)),
        velocity=factory.array('float64', list(velocities)),
        effort=factory.array('float64', []),
    )


def pose_stamped_to_msg(factory: MessageFactory, stamp_ns: int, pose: Pose) -> Any:
    """Make a geometry_msgs PoseStamped."""
    return factory.make(
        'geometry_msgs/msg/PoseStamped',
        header=header_to_msg(factory, stamp_ns, pose.frame_id),
        pose=pose_to_msg(factory, pose),
    )


def transforms_to_msg(factory: MessageFactory, stamp_ns: int, frames: Mapping[str, Pose]) -> Any:
    """Make a tf2_msgs TFMessage: each frame with its pose in its parent."""
    transforms = []
    for child, pose in frames.items():
        x, y, z, w = map(float, pose.orientation)
        transforms.append(
            factory.make(
                'geometry_msgs/msg/TransformStamped',
                header=header_to_msg(factory, stamp_ns, pose.frame_id),
                child_frame_id=child,
                transform=factory.make(
                    'geometry_msgs/msg/Transform',
                    translation=vector_to_msg(factory, 'Vector3', pose.position),
                    rotation=factory.make('geometry_msgs/msg/Quaternion', x=x, y=y, z=z, w=w),
                ),
            )
        )
    return factory.make('tf2_msgs/msg/TFMessage', transforms=transforms)
