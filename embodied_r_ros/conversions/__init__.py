# SPDX-License-Identifier: Apache-2.0
"""Messages to core values and back: the only place that knows both.

A message is anything with the fields of its definition, so that one function serves live messages
(rclpy) and recorded ones (rosbags). Making a message takes the `MessageFactory` of its family.
"""

from embodied_r_ros.conversions.answers import (
    answer_from_msg,
    answer_to_msg,
    focus_from_msg,
    focus_to_msg,
    label_from_msg,
    label_to_msg,
    mark_from_msg,
    mark_to_msg,
    proposal_from_msg,
    proposal_to_msg,
)
from embodied_r_ros.conversions.arms import (
    joint_state_to_msg,
    pose_stamped_to_msg,
    transforms_to_msg,
)
from embodied_r_ros.conversions.cameras import (
    camera_info_to_msg,
    encoded_image_from_msg,
    encoded_image_to_msg,
    intrinsics_from_camera_info,
    keyframe_from_msg,
    keyframe_to_msg,
)
from embodied_r_ros.conversions.scene import (
    delta_from_msg,
    delta_to_msg,
    item_from_msg,
    item_to_msg,
    model_info_from_msg,
    model_info_to_msg,
    motion_from_msg,
    motion_to_msg,
)
from embodied_r_ros.conversions.standard import (
    duration_to_msg,
    header_to_msg,
    odometry_to_msg,
    pose_from_msg,
    pose_to_msg,
    stamp_ns_from_msg,
    stamp_to_msg,
    transform_from_msg,
    vector_from_msg,
    vector_to_msg,
)

__all__ = [
    'answer_from_msg',
    'answer_to_msg',
    'camera_info_to_msg',
    'delta_from_msg',
    'delta_to_msg',
    'duration_to_msg',
    'encoded_image_from_msg',
    'encoded_image_to_msg',
    'focus_from_msg',
    'focus_to_msg',
    'header_to_msg',
    'intrinsics_from_camera_info',
    'item_from_msg',
    'item_to_msg',
    'joint_state_to_msg',
    'keyframe_from_msg',
    'keyframe_to_msg',
    'label_from_msg',
    'label_to_msg',
    'mark_from_msg',
    'mark_to_msg',
    'model_info_from_msg',
    'model_info_to_msg',
    'motion_from_msg',
    'motion_to_msg',
    'odometry_to_msg',
    'pose_from_msg',
    'pose_stamped_to_msg',
    'pose_to_msg',
    'proposal_from_msg',
    'proposal_to_msg',
    'stamp_ns_from_msg',
    'stamp_to_msg',
    'transform_from_msg',
    'transforms_to_msg',
    'vector_from_msg',
    'vector_to_msg',
]
