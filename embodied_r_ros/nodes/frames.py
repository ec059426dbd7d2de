# SPDX-License-Identifier: Apache-2.0
"""Positions of one frame in another by transforms, once these are known; the tool among them."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
import time
from typing import Generic, TYPE_CHECKING, TypeVar

from embodied_r_ros.bags.messages import pose_stamped_to_msg
from embodied_r_ros.common.errors import InputError
from embodied_r_ros.core.types.poses import NoPose
from embodied_r_ros.nodes import topics
from embodied_r_ros.nodes.camera_poses import listen_to_transforms
from embodied_r_ros.nodes.topics import ROS_MESSAGES
from geometry_msgs.msg import PoseStamped
import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

    from embodied_r_ros.core.types.geometry import Pose, Position
    from embodied_r_ros.nodes.node_base import ManagedNode

_LOOK_S = 0.01
Item = TypeVar('Item')


class Frames:
    """Where frames are in each other while the node is active, by transforms."""

    def __init__(self, node: ManagedNode) -> None:
        """Listen to transforms."""
        self.transforms = listen_to_transforms(node)
        if self.transforms:
            node.when_clock_jumps_back(self.transforms.forget_moves)

    def position_in(
        self, position: Position, source: str, target: str, stamp_ns: int
    ) -> Position | NoPose:
        """A position [m] of the frame `source` in the frame `target`, as it was at a stamp."""
        pose = self.pose_in(source, target, stamp_ns)
        if isinstance(pose, NoPose):
            return pose
        x, y, z = pose.rotation() @ np.asarray(position) + np.asarray(pose.position)
        return float(x), float(y), float(z)

    def pose_in(self, source: str, target: str, stamp_ns: int) -> Pose | NoPose:
        """Pose of the frame `source` in the frame `target` at a stamp; 0: the newest."""
        known = self.stamped_pose_in(source, target, stamp_ns)
        return known if isinstance(known, NoPose) else known[0]

    def stamped_pose_in(
        self, source: str, target: str, stamp_ns: int = 0
    ) -> tuple[Pose, int] | NoPose:
        """The same with its stamp [ns]; that is 0 where nothing moves between the frames."""
        if self.transforms is None:
            return NoPose(
                f'{source} is another frame than {target}, and tf2_msgs is not installed: '
                f'install it, or give positions in {target}'
            )
        known = self.transforms.pose_in(target, source, stamp_ns)
        if isinstance(known, NoPose):
            return NoPose(f'{source} is not known in {target}: {known.reason}')
        return known

    def may_come(self, source: str, target: str, stamp_ns: int) -> bool:
        """Tell whether a frame is not known yet in another one, as it was at a stamp."""
        source, target = source.lstrip('/'), target.lstrip('/')
        if self.transforms is None or not source or not target or stamp_ns <= 0:
            return False
        return source != target and not self.transforms.reaches(target, source, stamp_ns)


@dataclass(frozen=True)
class _InLine(Generic[Item]):
    item: Item
    source: str
    stamp_ns: int
    end_s: float  # of the monotonic clock


class FrameLine(Generic[Item]):
    """Hands on what comes, in its order, once its frame is known, or when its time is over.

    A transform may come later than what is stamped with its time. Nothing waits in a callback.
    """

    def __init__(
        self,
        node: ManagedNode,
        frames: Frames,
        limits: Callable[[], tuple[str, float]],
        hand_on: Callable[[Item], None],
    ) -> None:
        """Look while the node is active.

        Args:
            node: The node; everything here is called in its executor.
            frames: What is known of frames.
            limits: Gives the frame in which others are wanted, and how long one waits [s].
            hand_on: Takes what waited.
        """
        self._frames, self._limits, self._hand_on = frames, limits, hand_on
        self._line: deque[_InLine[Item]] = deque()
        self._timer = node.every(_LOOK_S, self._look)
        self._timer.cancel()

    def take(self, item: Item, source: str, stamp_ns: int) -> None:
        """Take something of a frame, as it was at a stamp [ns]."""
        end_s = time.monotonic() + self._limits()[1]
        self._line.append(_InLine(item, source, stamp_ns, end_s))
        self._look()

    def clear(self) -> list[Item]:
        """Let go of what waits, and return it."""
        items = [waiting.item for waiting in self._line]
        self._line.clear()
        self._timer.cancel()
        return items

    def _look(self) -> None:
        try:
            while self._line and not self._must_wait(self._line[0]):
                self._hand_on(self._line.popleft().item)
        finally:
            if not self._line:
                self._timer.cancel()
            elif self._timer.is_canceled():
                self._timer.reset()

    def _must_wait(self, first: _InLine[Item]) -> bool:
        is_late = time.monotonic() >= first.end_s
        target, _ = self._limits()
        return not is_late and self._frames.may_come(first.source, target, first.stamp_ns)


_TOOL_LOOK_S = 0.05


def follow_tool(
    node: ManagedNode,
    frames: Frames | None,
    tool_frame: str,
    task_frame: str,
    take: Callable[[PoseStamped], None],
    pose_topic: str = 'current_pose',
) -> None:
    """Hand on poses of the end effector, each once, while the node is active.

    Args:
        node: The node; everything is called in its executor.
        frames: What tf knows; None: nothing, and no frame is named.
        tool_frame: Frame of the end effector; empty: the poses are those of `pose_topic`.
        task_frame: Frame in which tf gives its pose.
        take: Takes a pose.
        pose_topic: Where its poses are published.
    """
    if frames is None or not tool_frame:
        node.subscribe(PoseStamped, pose_topic, take, topics.SENSOR)
        return
    taken_ns = 0

    def look() -> None:
        nonlocal taken_ns
        newest = frames.stamped_pose_in(tool_frame, task_frame)
        if isinstance(newest, NoPose):
            msg = f'where the end effector is, is not known: {newest.reason}'
            node.log_problem(InputError(msg))
            return
        pose, stamp_ns = newest
        if stamp_ns != taken_ns:
            taken_ns = stamp_ns
            take(pose_stamped_to_msg(ROS_MESSAGES, stamp_ns, pose))

    def forget() -> None:
        nonlocal taken_ns
        taken_ns = 0

    node.every(_TOOL_LOOK_S, look)
    node.when_clock_jumps_back(forget)
