# SPDX-License-Identifier: Apache-2.0
"""Positions of one frame in another, through tf2 where it is installed."""

from __future__ import annotations

from typing import Any, TYPE_CHECKING

from embodied_r_ros.conversions import transform_from_msg
from embodied_r_ros.transforms import NoPose
import numpy as np
from rclpy.time import Time

if TYPE_CHECKING:
    from embodied_r_ros.geometry import Pose
    from embodied_r_ros.nodes.lifecycle import ManagedNode
    from embodied_r_ros.reasoning.keypoints import Position


class Frames:
    """What tf2 knows of frames while the node is active."""

    def __init__(self, node: ManagedNode) -> None:
        """Listen to transforms."""
        self._buffer: Any = None
        try:
            import tf2_ros
        except ImportError:
            return
        self._buffer = tf2_ros.Buffer()
        self._failure = tf2_ros.TransformException
        listener = tf2_ros.TransformListener(self._buffer, node)
        node.while_active.callback(listener.unregister)

    def position_in(
        self, position: Position, source: str, wanted: str, stamp_ns: int
    ) -> Position | NoPose:
        """A position [m] of the frame `source` in the frame `wanted`, as it was at a stamp."""
        pose = self.pose_in(source, wanted, stamp_ns)
        if isinstance(pose, NoPose):
            return pose
        x, y, z = pose.rotation() @ np.asarray(position) + np.asarray(pose.position)
        return float(x), float(y), float(z)

    def pose_in(self, source: str, wanted: str, stamp_ns: int) -> Pose | NoPose:
        """Pose of the frame `source` in the frame `wanted` at a stamp; 0: the newest."""
        if self._buffer is None:
            return NoPose(
                f'{source} is another frame than {wanted}, and tf2_ros is not installed: '
                f'install it, or give positions in {wanted}'
            )
        stamp = Time(nanoseconds=stamp_ns)
        try:
            found = self._buffer.lookup_transform(wanted, source, stamp)
        except self._failure as error:
            return NoPose(f'{source} is not known in {wanted}: {error}')
        return transform_from_msg(found)
