# SPDX-License-Identifier: Apache-2.0
"""What is known of frames, and of the tool, where time jumps back."""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace
from typing import Any, TYPE_CHECKING

from builtin_interfaces.msg import Time
from embodied_r_ros.bags.messages import stamp_ns_from_msg
from embodied_r_ros.core.types.poses import NoPose
from embodied_r_ros.nodes.frames import follow_tool, Frames
from embodied_r_ros.nodes.node_base import ManagedNode
from geometry_msgs.msg import PoseStamped, TransformStamped
from rosgraph_msgs.msg import Clock

from test.nodes.graph import ACTIVATE, CONFIGURE, wait_for

if TYPE_CHECKING:
    import pytest

    from test.nodes.graph import Graph

S = 1_000_000_000


class _UnknownError(Exception):
    """Stands in for tf2_ros.TransformException."""


class _Buffer:
    """Stands in for that of tf2_ros, of which there is no wheel: it keeps the newest stamp."""

    def __init__(self) -> None:
        self.newest: TransformStamped | None = None

    def put(self, sec: int) -> None:
        """Hear of the hand."""
        if self.newest is None or sec > self.newest.header.stamp.sec:
            hand = TransformStamped(child_frame_id='hand')
            hand.header.frame_id, hand.header.stamp.sec = 'table', sec
            hand.transform.rotation.w = 1.0
            self.newest = hand

    def clear(self) -> None:
        self.newest = None

    def lookup_transform(self, wanted: str, source: str, stamp: Any) -> TransformStamped:
        if self.newest is None:
            raise _UnknownError(source)
        return self.newest


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
    graph: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    module: Any = ModuleType('tf2_ros')
    module.Buffer, module.TransformException = _Buffer, _UnknownError
    module.TransformListener = lambda *_: SimpleNamespace(unregister=lambda: None)
    monkeypatch.setitem(sys.modules, 'tf2_ros', module)
    node = graph.add(Watcher, use_sim_time=True)
    graph.change(node, CONFIGURE, ACTIVATE)
    buffer = node.frames._buffer
    clock = graph.publisher(Clock, '/clock', 1)
    clock.publish(Clock(clock=Time(sec=100)))
    wait_for(lambda: node.now_ns() == 100 * S, 'the time')
    buffer.put(99)
    wait_for(lambda: node.stamps == [99 * S], 'the pose')
    clock.publish(Clock(clock=Time(sec=10)))
    wait_for(lambda: buffer.newest is None, 'an empty buffer')
    assert isinstance(node.frames.newest('hand', 'table'), NoPose)
    buffer.put(9)
    wait_for(lambda: node.stamps == [99 * S, 9 * S], 'the pose of now')
    # The bag begins once more, and its first stamp is that of the last pose.
    clock.publish(Clock(clock=Time(sec=8)))
    wait_for(lambda: buffer.newest is None, 'an empty buffer')
    buffer.put(9)
    wait_for(lambda: node.stamps == [99 * S, 9 * S, 9 * S], 'the same pose')
