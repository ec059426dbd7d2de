# SPDX-License-Identifier: Apache-2.0
"""Where the end effector is, while a node is active: `current_pose`, or a frame that tf knows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from embodied_r_ros.conversions import pose_stamped_to_msg
from embodied_r_ros.errors import InputError
from embodied_r_ros.nodes import qos
from embodied_r_ros.nodes.ros_types import ROS_MESSAGES
from embodied_r_ros.transforms import NoPose
from geometry_msgs.msg import PoseStamped

if TYPE_CHECKING:
    from collections.abc import Callable

    from embodied_r_ros.nodes.frames import Frames
    from embodied_r_ros.nodes.lifecycle import ManagedNode

_LOOK_S = 0.05


def follow_tool(
    node: ManagedNode,
    frames: Frames | None,
    tool_frame: str,
    task_frame: str,
    take: Callable[[PoseStamped], None],
) -> None:
    """Hand on poses of the end effector, each once, while the node is active.

    Args:
        node: The node; everything is called in its executor.
        frames: What tf knows; None: nothing, and no frame is named.
        tool_frame: Frame of the end effector; empty: the poses are those of `current_pose`.
        task_frame: Frame in which tf is to tell where it is.
        take: Takes a pose.
    """
    if frames is None or not tool_frame:
        node.subscribe(PoseStamped, 'current_pose', take, qos.SENSOR)
        return
    taken_ns = 0

    def look() -> None:
        nonlocal taken_ns
        found = frames.newest(tool_frame, task_frame)
        if isinstance(found, NoPose):
            msg = f'where the end effector is, is not known: {found.reason}'
            node.log_problem(InputError(msg))
            return
        pose, stamp_ns = found
        if stamp_ns != taken_ns:
            taken_ns = stamp_ns
            take(pose_stamped_to_msg(ROS_MESSAGES, stamp_ns, pose))

    node.every(_LOOK_S, look)
