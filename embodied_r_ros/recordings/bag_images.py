# SPDX-License-Identifier: Apache-2.0
"""The images of a bag, each with what the bag knows of its camera: intrinsics and pose."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Any, TYPE_CHECKING

from embodied_r_ros.conversions import (
    encoded_image_from_msg,
    intrinsics_from_camera_info,
    stamp_ns_from_msg,
)
from embodied_r_ros.errors import ImageError, SourceError
from embodied_r_ros.geometry import Pose
from embodied_r_ros.images import StampedImage
from embodied_r_ros.recordings.bags import read_messages, topics_of_type
from embodied_r_ros.recordings.pose_sources import pose_source
from embodied_r_ros.vision.ahead import done_ahead
from embodied_r_ros.vision.raw_images import raw_image

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from embodied_r_ros.geometry import Intrinsics
    from embodied_r_ros.recordings.pose_sources import PoseSource
    from rosbags.highlevel import AnyReader

IMAGE_TYPES = ('sensor_msgs/msg/Image', 'sensor_msgs/msg/CompressedImage')
# An image waits for the pose that follows it, but not for ever: odometry may end before the
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
    the bag's odometry, where it has one such topic, and are then taken as poses of the camera
    link; else from its transforms. They are interpolated at the stamp of the image.

    Raises:
        SourceError: An image cannot be decoded.
        BagError: A message is damaged.
    """
    return done_ahead(_decodings(reader, topic))


def _decodings(reader: AnyReader, topic: str) -> Iterator[Callable[[], StampedImage]]:
    """What has to be done for each image once its message and pose are there."""
    info_topic = camera_info_topic(reader, topic)
    source = pose_source(reader)
    pose_topics = source.topics if source else ()
    queue = _ImageQueue(topic, source)
    topics = [name for name in (topic, info_topic, *pose_topics) if name]
    for name, received_ns, msg in read_messages(reader, topics):
        if name == info_topic:
            queue.intrinsics = intrinsics_from_camera_info(msg)
        elif source and name in pose_topics:
            source.take(msg)
        else:
            # Drivers that leave the stamp at zero leave only the time of receipt.
            queue.waiting.append((stamp_ns_from_msg(msg.header.stamp) or received_ns, msg))
        while queue.is_ready():
            yield queue.pop()
    while queue.waiting:
        yield queue.pop()


class _ImageQueue:
    """Images that wait for the poses after them."""

    def __init__(self, topic: str, source: PoseSource | None) -> None:
        self.intrinsics: Intrinsics | None = None
        self.waiting: deque[tuple[int, Any]] = deque()  # (stamp [ns], message)
        self._topic = topic
        self._source = source
        self._count = 0

    def is_ready(self) -> bool:
        """Whether waiting longer gains nothing for the oldest image."""
        if not self.waiting:
            return False
        if self._source is None or len(self.waiting) > _MAX_WAITING:
            return True
        stamp_ns, msg = self.waiting[0]
        return self._source.reaches(_frame(msg), stamp_ns)

    def pop(self) -> Callable[[], StampedImage]:
        """Take out the oldest image, to be decoded."""
        stamp_ns, msg = self.waiting.popleft()
        index, self._count = self._count, self._count + 1
        pose = self._source.camera_at(_frame(msg), stamp_ns) if self._source else None
        known = pose if isinstance(pose, Pose) else None
        about = _About(self._topic, index, stamp_ns, self.intrinsics, known)
        return lambda: _decoded(msg, about)


def _frame(msg: Any) -> str:
    return msg.header.frame_id or StampedImage.frame_id


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
        _frame(msg),
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
