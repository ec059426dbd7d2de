# SPDX-License-Identifier: Apache-2.0
"""What a bag tells of a camera's pose: its odometry, or the transforms (tf2) in it.

Messages are taken one at a time and only the newest are kept, so that memory does not depend on
the length of a bag.
"""

from __future__ import annotations

from collections import deque
from contextlib import suppress
from typing import Any, Protocol, TYPE_CHECKING

from embodied_r_ros.conversions import pose_from_msg, stamp_ns_from_msg, transform_from_msg
from embodied_r_ros.poses import PoseBuffer
from embodied_r_ros.recordings.bags import read_messages, topics_of_type
from embodied_r_ros.transforms import NoPose, TransformTree

if TYPE_CHECKING:
    from collections.abc import Iterable

    from embodied_r_ros.geometry import Pose
    from rosbags.highlevel import AnyReader

NO_POSES = 'no odometry, no transforms and no true layout'
_ODOMETRY = 'nav_msgs/msg/Odometry'
_TRANSFORMS = 'tf2_msgs/msg/TFMessage'
_STATIC = 'tf_static'
# What has not come so long after an image does not come any more.
_PATIENCE_NS = 2_000_000_000


class PoseSource(Protocol):
    """Poses of a camera, as the messages of a bag tell them one by one."""

    name: str  # as `source` of a row: 'odometry' or 'tf'
    topics: tuple[str, ...]  # to be read

    def take(self, msg: Any) -> int:
        """Take a message of one of the topics; returns its newest stamp [ns]."""

    def reaches(self, frame_id: str, stamp_ns: int) -> bool:
        """Tell whether waiting for more messages gains nothing for a stamp."""

    def camera_at(self, frame_id: str, stamp_ns: int) -> Pose | NoPose:
        """Pose of the camera link at a stamp, of the camera whose images have this frame."""


class OdometryPoses:
    """Poses of the body that odometry is of, taken for those of the camera link."""

    name = 'odometry'

    def __init__(self, topic: str, capacity: int = 500) -> None:
        """Take the topic, and how many poses are kept."""
        self.topics: tuple[str, ...] = (topic,)
        self._poses = PoseBuffer(capacity)

    def take(self, msg: Any) -> int:
        """Take an Odometry message."""
        stamp_ns = stamp_ns_from_msg(msg.header.stamp)
        with suppress(ValueError):  # an orientation of zeros, before odometry has started
            self._poses.add(stamp_ns, pose_from_msg(msg.pose.pose, msg.header.frame_id))
        return stamp_ns

    def reaches(self, frame_id: str, stamp_ns: int) -> bool:
        """Tell whether odometry goes on until a stamp."""
        del frame_id
        return self._poses.reaches(stamp_ns)

    def camera_at(self, frame_id: str, stamp_ns: int) -> Pose | NoPose:
        """Pose of the odometry's body at a stamp."""
        del frame_id
        return self._poses.at(stamp_ns) or NoPose('the odometry has gaps at images')


class TransformPoses:
    """Poses of the camera's own frame, from a chain of transforms."""

    name = 'tf'

    def __init__(self, reader: AnyReader, topic: str) -> None:
        """Read the static transforms; the moving ones are taken as they come.

        Raises:
            BagError: A message is damaged.
        """
        self.topics: tuple[str, ...] = (topic,)
        self._tree = TransformTree()
        static = [name for name in topics_of_type(reader, _TRANSFORMS) if name.endswith(_STATIC)]
        for _, _, msg in read_messages(reader, static):
            for transform in msg.transforms:
                with suppress(ValueError):
                    self._tree.add_static(transform.child_frame_id, transform_from_msg(transform))

    def take(self, msg: Any) -> int:
        """Take a TFMessage."""
        newest_ns = 0
        for transform in msg.transforms:
            stamp_ns = stamp_ns_from_msg(transform.header.stamp)
            newest_ns = max(newest_ns, stamp_ns)
            with suppress(ValueError):
                self._tree.add(transform.child_frame_id, stamp_ns, transform_from_msg(transform))
        return newest_ns

    def reaches(self, frame_id: str, stamp_ns: int) -> bool:
        """Tell whether the whole chain is known until a stamp."""
        return self._tree.reaches(frame_id, stamp_ns)

    def camera_at(self, frame_id: str, stamp_ns: int) -> Pose | NoPose:
        """Pose of the camera link at a stamp."""
        return self._tree.camera_at(frame_id, stamp_ns)

    def reaches_between(self, fixed: str, frame_id: str, stamp_ns: int) -> bool:
        """Tell whether all that moves between two frames is known until a stamp."""
        return self._tree.reaches_between(fixed, frame_id, stamp_ns)

    def pose_in(self, fixed: str, frame_id: str, stamp_ns: int) -> Pose | NoPose:
        """Pose of a frame in any other one at a stamp."""
        return self._tree.pose_in(fixed, frame_id, stamp_ns)


def odometry_source(reader: AnyReader) -> OdometryPoses | None:
    """The only odometry of a bag; None: there is none, or there are several."""
    topics = _with_messages(reader, _ODOMETRY)
    return OdometryPoses(topics[0]) if len(topics) == 1 else None


def transform_source(reader: AnyReader) -> TransformPoses | None:
    """The transforms of a bag; None: there are none, or those of several robots.

    Raises:
        BagError: A message is damaged.
    """
    topics = [t for t in _with_messages(reader, _TRANSFORMS) if not t.endswith(_STATIC)]
    return TransformPoses(reader, topics[0]) if len(topics) == 1 else None


def pose_source(reader: AnyReader) -> PoseSource | None:
    """What tells of the camera's pose: odometry where there is one, else transforms.

    Raises:
        BagError: A message is damaged.
    """
    return odometry_source(reader) or transform_source(reader)


def poses_at(
    reader: AnyReader, source: PoseSource, wanted: Iterable[tuple[int, str]]
) -> dict[tuple[int, str], Pose | NoPose]:
    """Look up the pose at each stamp [ns] and frame of images.

    Raises:
        BagError: A message is damaged.
    """
    waiting = deque(sorted(set(wanted)))
    found: dict[tuple[int, str], Pose | NoPose] = {}

    def look_up() -> None:
        stamp_ns, frame_id = waiting.popleft()
        found[stamp_ns, frame_id] = source.camera_at(frame_id, stamp_ns)

    for _, _, msg in read_messages(reader, source.topics):
        newest_ns = source.take(msg)
        while waiting and (
            source.reaches(waiting[0][1], waiting[0][0])
            or newest_ns > waiting[0][0] + _PATIENCE_NS
        ):
            look_up()
        if not waiting:
            break
    while waiting:
        look_up()
    return found


def _with_messages(reader: AnyReader, type_name: str) -> list[str]:
    topics = topics_of_type(reader, type_name)
    return [topic for topic in topics if reader.topics[topic].msgcount]
