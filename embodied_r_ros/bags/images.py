# SPDX-License-Identifier: Apache-2.0
"""The images of a bag, each with what the bag knows of its camera, and raw images to BGR."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, TYPE_CHECKING

from embodied_r_ros.bags.messages import (
    encoded_image_from_msg,
    intrinsics_from_camera_info,
    stamp_ns_from_msg,
)
from embodied_r_ros.bags.poses import pose_source
from embodied_r_ros.bags.reader import read_messages, topics_of_type
from embodied_r_ros.common.errors import ImageError, SourceError
from embodied_r_ros.common.prefetch import done_ahead
from embodied_r_ros.types.geometry import Pose
from embodied_r_ros.types.images import MAX_PIXELS, StampedImage
import numpy as np
from rosbags.image import image_to_cvimage

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from embodied_r_ros.bags.poses import PoseSource
    from embodied_r_ros.types.geometry import Intrinsics
    from numpy.typing import NDArray
    from rosbags.highlevel import AnyReader

# Bytes per pixel of the encodings that have colours or brightness (sensor_msgs/image_encodings).
# Depth and label images (16UC1, 32FC1, 8UC3, ...) say nothing of how they should be shown.
_BYTES_PER_PIXEL = {
    'bgr8': 3,
    'rgb8': 3,
    'bgra8': 4,
    'rgba8': 4,
    'mono8': 1,
    'mono16': 2,
    'yuv422': 2,
    'uyvy': 2,
    'yuv422_yuy2': 2,
    'yuyv': 2,
    'bayer_rggb8': 1,
    'bayer_bggr8': 1,
    'bayer_gbrg8': 1,
    'bayer_grbg8': 1,
}
# Encodings whose pixels share their colour in pairs.
_IN_PAIRS = {'yuv422', 'uyvy', 'yuv422_yuy2', 'yuyv'}


def check_raw_image(msg: Any) -> None:
    """Refuse an image whose encoding is not known, or whose size does not fit its bytes.

    Raises:
        ImageError: It says what was found and what was expected.
    """
    pixel_bytes = _BYTES_PER_PIXEL.get(msg.encoding)
    if pixel_bytes is None:
        msg_text = (
            f'image encoding {msg.encoding!r} is not a colour or grey image: '
            f'expected one of {", ".join(_BYTES_PER_PIXEL)}'
        )
        raise ImageError(msg_text)
    height, width, step = int(msg.height), int(msg.width), int(msg.step)
    size = memoryview(msg.data).nbytes
    fits = width * pixel_bytes <= step and height * step <= size
    if not fits or not 0 < width * height <= MAX_PIXELS:
        msg_text = (
            f'{msg.encoding} image of {width}x{height} pixels has {size} bytes in rows of {step}: '
            f'expected rows of at least {width * pixel_bytes}, and as many as its height'
        )
        raise ImageError(msg_text)
    if width % 2 and msg.encoding in _IN_PAIRS:
        msg_text = f'{msg.encoding} image is {width} pixels wide: expected an even number'
        raise ImageError(msg_text)


def raw_image(msg: Any) -> NDArray[np.uint8]:
    """Image of a sensor_msgs Image message: BGR, uint8, (H, W, 3), its own memory.

    Raises:
        ImageError: The encoding is not known, or the size does not fit the bytes.
    """
    check_raw_image(msg)
    height, width, step = int(msg.height), int(msg.width), int(msg.step)
    row_bytes = width * _BYTES_PER_PIXEL[msg.encoding]
    rows = np.frombuffer(msg.data, np.uint8)[: height * step].reshape(height, step)
    tight = SimpleNamespace(
        encoding=msg.encoding,
        height=height,
        width=width,
        is_bigendian=bool(msg.is_bigendian) and msg.encoding == 'mono16',
        data=np.ascontiguousarray(rows[:, :row_bytes]),
    )
    image = image_to_cvimage(tight, 'bgr8')  # type: ignore[arg-type]
    return np.array(image, np.uint8)


IMAGE_TYPES = ('sensor_msgs/msg/Image', 'sensor_msgs/msg/CompressedImage')
# An image waits for the pose that follows it, but not for ever: odometry may end before the
# images do. Whole images wait, so that few may.
_MAX_WAITING = 8


def choose_image_topic(reader: AnyReader, topic: str | None) -> str:
    """Name of the topic to read: the chosen one, else the only one with images.

    Raises:
        SourceError: There is no such topic, or there are several; the message lists them.
    """
    topics = topics_of_type(reader, *IMAGE_TYPES)
    names = ', '.join(topics) or 'none'
    if topic is None:
        if len(topics) == 1:
            return topics[0]
        msg = (
            f'{reader.paths[0]} has {len(topics)} image topics ({names}): choose one with --topic'
            if topics
            else f'{reader.paths[0]} has no image topic: expected {" or ".join(IMAGE_TYPES)}'
        )
        raise SourceError(msg)
    # Topics are absolute in a bag; users write them either way.
    match = next((name for name in topics if name.lstrip('/') == topic.lstrip('/')), None)
    if match is None:
        msg = f'{reader.paths[0]} has no image topic {topic!r}: it has {names}'
        raise SourceError(msg)
    return match


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
        camera_pose = pose if isinstance(pose, Pose) else None
        about = _About(self._topic, index, stamp_ns, self.intrinsics, camera_pose)
        return lambda: _decode(msg, about)


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


def _decode(msg: Any, about: _About) -> StampedImage:
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
