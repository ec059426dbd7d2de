# SPDX-License-Identifier: Apache-2.0
"""The images of a bag, each with what the bag knows of its camera: intrinsics and pose."""

from __future__ import annotations

from collections import deque
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TYPE_CHECKING

from embodied_r_ros.conversions import (
    encoded_image_from_msg,
    intrinsics_from_camera_info,
    pose_from_msg,
    stamp_ns_from_msg,
)
from embodied_r_ros.errors import ImageError, SourceError
from embodied_r_ros.images import StampedImage
from embodied_r_ros.poses import PoseBuffer
from embodied_r_ros.recordings.bags import read_messages, topics_of_type
from embodied_r_ros.vision.ahead import done_ahead
from embodied_r_ros.vision.raw_images import raw_image

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from embodied_r_ros.geometry import Intrinsics, Pose
    from rosbags.highlevel import AnyReader

IMAGE_TYPES = ('sensor_msgs/msg/Image', 'sensor_msgs/msg/CompressedImage')
# An image waits for the odometry that follows it, but not for ever: odometry may end before the
# images do. Whole images wait, so that few may.
_MAX_WAITING = 8


def choose_image_topic(reader: AnyReader, topic: str | None) -> str:
    """Name of the topic to read: the one asked for, else the only one with images.

    Raises:
        SourceError: There is no such topic, or there are several; the message lists them.
    """
    topics = topics_of_type(reader, *IMAGE_TYPES)
    listed = ', '.join(topics) or 'none'
    if topic is None:
        if len(topics) == 1:
            return topics[0]
        msg = (
            f'{reader.paths[0]} has {len(topics)} image topics ({listed}): choose one with --topic'
            if topics
            else f'{reader.paths[0]} has no image topic: expected {" or ".join(IMAGE_TYPES)}'
        )
        raise SourceError(msg)
    # Topics are absolute in a bag; users write them either way.
    named = next((name for name in topics if name.lstrip('/') == topic.lstrip('/')), None)
    if named is None:
        msg = f'{reader.paths[0]} has no image topic {topic!r}: it has {listed}'
        raise SourceError(msg)
    return named


def bag_images(reader: AnyReader, topic: str) -> Iterator[StampedImage]:
    """Images of one topic in the order of their receipt, with their header stamps.

    Intrinsics come from the camera_info topic that belongs to the image topic. Poses come from
    the bag's odometry, where it has one such topic, interpolated at the stamp of the image; they
    are taken as poses of the camera link.

    Raises:
        SourceError: An image cannot be decoded.
        BagError: A message is damaged.
    """
    return done_ahead(_decodings(reader, topic))


def _decodings(reader: AnyReader, topic: str) -> Iterator[Callable[[], StampedImage]]:
    """What has to be done for each image once its message and pose are there."""
    info_topic = camera_info_topic(reader, topic)
    odometry = topics_of_type(reader, 'nav_msgs/msg/Odometry')
    odometry_topic = odometry[0] if len(odometry) == 1 else ''
    queue = _ImageQueue(topic, waits_for_poses=bool(odometry_topic))
    topics = [name for name in (topic, info_topic, odometry_topic) if name]
    for name, received_ns, msg in read_messages(reader, topics):
        if name == info_topic:
            queue.intrinsics = intrinsics_from_camera_info(msg)
        elif name == odometry_topic:
            pose = pose_from_msg(msg.pose.pose, msg.header.frame_id)
            with suppress(ValueError):  # an orientation of zeros, before odometry has started
                queue.poses.add(stamp_ns_from_msg(msg.header.stamp), pose)
        else:
            # Drivers that leave the stamp at zero leave only the time of receipt.
            queue.waiting.append((stamp_ns_from_msg(msg.header.stamp) or received_ns, msg))
        while queue.is_ready():
            yield queue.pop()
    while queue.waiting:
        yield queue.pop()


class _ImageQueue:
    """Images that wait for the odometry after them."""

    def __init__(self, topic: str, *, waits_for_poses: bool) -> None:
        self.intrinsics: Intrinsics | None = None
        self.poses = PoseBuffer()
        self.waiting: deque[tuple[int, Any]] = deque()  # (stamp [ns], message)
        self._topic = topic
        self._waits_for_poses = waits_for_poses
        self._count = 0

    def is_ready(self) -> bool:
        """Whether waiting longer gains nothing for the oldest image."""
        if not self.waiting:
            return False
        is_full = len(self.waiting) > _MAX_WAITING
        return is_full or not self._waits_for_poses or self.poses.reaches(self.waiting[0][0])

    def pop(self) -> Callable[[], StampedImage]:
        """Take out the oldest image, to be decoded."""
        stamp_ns, msg = self.waiting.popleft()
        index, self._count = self._count, self._count + 1
        about = _About(self._topic, index, stamp_ns, self.intrinsics, self.poses.at(stamp_ns))
        return lambda: _decoded(msg, about)


@dataclass(frozen=True)
class _About:
    """What is known of an image before it is decoded."""

    topic: str
    index: int
    stamp_ns: int
    intrinsics: Intrinsics | None
    pose: Pose | None


def _decoded(msg: Any, about: _About) -> StampedImage:
    encoded = encoded_image_from_msg(msg) if hasattr(msg, 'format') else None
    try:
        image = encoded.decode() if encoded else raw_image(msg)
    except ImageError as error:
        text = f'image {about.index} of topic {about.topic!r} cannot be decoded: {error}'
        raise SourceError(text) from None
    return StampedImage(
        about.index,
        about.stamp_ns,
        image,
        msg.header.frame_id or StampedImage.frame_id,
        about.intrinsics,
        about.pose,
        encoded if encoded and encoded.format == 'jpeg' else None,
    )


def camera_info_topic(reader: AnyReader, topic: str) -> str:
    """Topic with the intrinsics of an image topic; empty: there is none."""
    topics = topics_of_type(reader, 'sensor_msgs/msg/CameraInfo')
    # image_transport appends its plugin's name; camera_info lies beside the base topic.
    for base in (topic, topic.rpartition('/')[0]):
        sibling = base.rpartition('/')[0] + '/camera_info'
        if sibling in topics:
            return sibling
    return topics[0] if len(topics) == 1 else ''
