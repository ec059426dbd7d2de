# SPDX-License-Identifier: Apache-2.0
"""What an episode keeps of the bag that it is collected from, as the recorder would hear it."""

from __future__ import annotations

from typing import Any, TYPE_CHECKING

from embodied_r_ros.conversions import encoded_image_to_msg, stamp_ns_from_msg
from embodied_r_ros.errors import ImageError, SourceError
from embodied_r_ros.images import encode_image
from embodied_r_ros.recordings.bag_images import camera_info_topic
from embodied_r_ros.recordings.bags import (
    LATCHED_QOS,
    read_serialized,
    RELIABLE_QOS,
    SENSOR_DATA_QOS,
    topics_of_type,
)
from embodied_r_ros.recordings.episode_writer import BagTopic
from embodied_r_ros.recordings.message_types import BagMessageFactory, embodied_typestore
from embodied_r_ros.vision.raw_images import raw_image

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rosbags.highlevel import AnyReader
    from rosbags.interfaces import Qos

_COMPRESSED = 'sensor_msgs/msg/CompressedImage'
_RAW = 'sensor_msgs/msg/Image'
_MOTION = ('nav_msgs/msg/Odometry', 'tf2_msgs/msg/TFMessage')
_LATCHED = ('/tf_static', '/provenance', '/truth/layout')
_SUFFIX = '/compressed'


class Copies:
    """Messages that go from a camera bag into its episode."""

    def __init__(self, reader: AnyReader, image_topic: str, *, with_images: bool) -> None:
        """Find what there is: odometry, transforms, intrinsics, truth and, if wanted, images.

        Args:
            reader: The open camera bag.
            image_topic: Topic of its images.
            with_images: Keep every image, compressed.
        """
        self._reader = reader
        self._raw = ''  # topic whose images have to be compressed first
        types = {c.topic: c.msgtype for c in reader.connections}
        kept = [*topics_of_type(reader, *_MOTION), camera_info_topic(reader, image_topic)]
        kept += [topic for topic in types if '/truth/' in topic or topic.endswith('/provenance')]
        if with_images:
            kept.append(image_topic)
            self._raw = image_topic if types[image_topic] == _RAW else ''
        self._kept = dict.fromkeys(topic for topic in kept if topic)
        self._types = {topic: types[topic] for topic in self._kept}

    def topics(self) -> list[BagTopic]:
        """Topics of the episode that are written from here."""
        return [
            BagTopic(topic + _SUFFIX, _COMPRESSED, SENSOR_DATA_QOS)
            if topic == self._raw
            else BagTopic(topic, kind, _offered(topic, kind))
            for topic, kind in self._types.items()
        ]

    def messages(self) -> Iterator[tuple[int, str, bytes]]:
        """Time of receipt [ns], topic and serialised message, in the order of their receipt.

        Raises:
            BagError: The bag is damaged.
            SourceError: An image cannot be decoded.
        """
        for topic, received_ns, data in read_serialized(self._reader, self._kept):
            if topic == self._raw:
                yield received_ns, topic + _SUFFIX, self._compressed(data, received_ns)
            else:
                yield received_ns, topic, data

    def _compressed(self, data: bytes, received_ns: int) -> bytes:
        msg: Any = self._reader.deserialize(data, _RAW)
        try:
            image = encode_image(raw_image(msg))
        except ImageError as error:
            text = f'an image of topic {self._raw!r} cannot be decoded: {error}'
            raise SourceError(text) from None
        stamp_ns = stamp_ns_from_msg(msg.header.stamp) or received_ns
        made = encoded_image_to_msg(BagMessageFactory(), stamp_ns, msg.header.frame_id, image)
        return bytes(embodied_typestore().serialize_cdr(made, _COMPRESSED))


def _offered(topic: str, kind: str) -> Qos:
    """How a player is to offer a topic again: as its publisher most likely did."""
    if topic.endswith(_LATCHED):
        return LATCHED_QOS
    return SENSOR_DATA_QOS if kind.startswith('sensor_msgs/') else RELIABLE_QOS
