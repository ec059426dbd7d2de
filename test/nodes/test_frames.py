# SPDX-License-Identifier: Apache-2.0
"""What is known of frames, and of the tool, where time jumps back."""

from __future__ import annotations

from typing import Any, TYPE_CHECKING

from builtin_interfaces.msg import Time
from embodied_r_ros.bags.messages import stamp_ns_from_msg
from embodied_r_ros.core.types.geometry import Pose
from embodied_r_ros.core.types.poses import NoPose
from embodied_r_ros.nodes.frames import follow_tool, Frames
from embodied_r_ros.nodes.node_base import ManagedNode
from rosgraph_msgs.msg import Clock

from test.nodes.graph import ACTIVATE, CONFIGURE, wait_for
from test.nodes.test_camera_poses import transforms

if TYPE_CHECKING:
    from geometry_msgs.msg import PoseStamped

    from test.nodes.conftest import Heard
    from test.nodes.graph import Graph

S = 1_000_000_000
HAND = Pose((0.1, 0.2, 0.3), (0.0, 0.0, 0.0, 1.0), 'arm')


class Watcher(ManagedNode):
    """Follows a tool."""

    def __init__(self, **options: Any) -> None:
        super().__init__('watcher', **options)
        self.stamps: list[int] = []

    def activate(self) -> None:
        self.frames = Frames(self)
        follow_tool(self, self.frames, 'hand', 'table', self.take)

    def take(self, msg: PoseStamped) -> None:
        self.stamps.append(stamp_ns_from_msg(msg.header.stamp))


def test_frames_of_before_a_backward_jump_of_the_clock_are_forgotten(
    graph: Graph, heard: Heard
) -> None:
    node = graph.add(Watcher, use_sim_time=True)
    graph.change(node, CONFIGURE, ACTIVATE)
    clock = graph.publisher(Clock, '/clock', 1)

    def is_lost() -> bool:
        return isinstance(node.frames.pose_in('hand', 'table', 0), NoPose)

    clock.publish(Clock(clock=Time(sec=100)))
    wait_for(lambda: node.now_ns() == 100 * S, 'the time')
    heard[0].take_static(transforms(0, arm=Pose((0.0, 0.0, 1.0), HAND.orientation, 'table')))
    heard[0].take(transforms(99 * S, hand=HAND))
    wait_for(lambda: node.stamps == [99 * S], 'the pose')
    clock.publish(Clock(clock=Time(sec=10)))
    wait_for(is_lost, 'the jump')
    heard[0].take(transforms(9 * S, hand=HAND))
    wait_for(lambda: node.stamps == [99 * S, 9 * S], 'the pose of now')
    # The bag begins once more, and its first stamp is that of the last pose.
    clock.publish(Clock(clock=Time(sec=8)))
    wait_for(is_lost, 'the jump')
    heard[0].take(transforms(9 * S, hand=HAND))
    wait_for(lambda: node.stamps == [99 * S, 9 * S, 9 * S], 'the same pose')
    pose = node.frames.pose_in('/hand', 'table', 9 * S)
    assert isinstance(pose, Pose)
    assert pose.position == (0.1, 0.2, 1.3)
