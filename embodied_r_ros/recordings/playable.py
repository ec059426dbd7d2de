# SPDX-License-Identifier: Apache-2.0
"""Any source as a bag that can be played live.

A bag is played as it is. A video or a folder of images becomes a bag of compressed images first;
images that are JPEG already go in as they are.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from embodied_r_ros.conversions import encoded_image_to_msg
from embodied_r_ros.images import encode_image
from embodied_r_ros.recordings.bag_images import camera_info_topic, choose_image_topic
from embodied_r_ros.recordings.bags import BagWriter, open_bag, SENSOR_DATA_QOS, topics_of_type
from embodied_r_ros.recordings.message_types import BagMessageFactory
from embodied_r_ros.recordings.sources import open_source

if TYPE_CHECKING:
    from pathlib import Path

    from embodied_r_ros.recordings.sources import ImageSource

_COMPRESSED = 'sensor_msgs/msg/CompressedImage'
_SUFFIX = '/compressed'
_TOPIC = f'/image{_SUFFIX}'
_JPEG_QUALITY = 95
# Stamps of a video count from zero, and a stamp of zero means 'unset' in ROS.
_EPOCH_NS = 1_000_000_000


@dataclass(frozen=True)
class Playable:
    """A bag, and the topics in it that the pipeline listens to."""

    bag: Path
    image: str  # base name, without '/compressed'
    image_transport: str  # 'raw' or 'compressed'
    camera_info: str = ''  # empty: there is none
    odom: str = ''  # empty: there is none
    duration_s: float = 0.0

    def topics(self) -> list[str]:
        """Names of the topics to play."""
        image = self.image + (_SUFFIX if self.image_transport == 'compressed' else '')
        return [topic for topic in (image, self.camera_info, self.odom) if topic]


def playable(source: Path, scratch: Path, topic: str | None = None) -> Playable:
    """Make a source playable.

    Args:
        source: A video, a folder of images, a rosbag2 folder, or a .mcap or .db3 file.
        scratch: Folder in which a bag may be made.
        topic: Image topic of a bag; None: the only one there is.

    Raises:
        SourceError: There are no images, several image topics to choose from, or the first image
            cannot be decoded.
        BagError: The bag cannot be read.
    """
    with open_source(source, topic) as images:
        is_bag = images.kind == 'bag'
        if not is_bag:
            return _from_images(images, scratch / 'source')
        next(iter(images))  # what cannot be decoded is refused before it is played
    with open_bag(source) as reader:
        chosen = choose_image_topic(reader, topic)
        odometry = topics_of_type(reader, 'nav_msgs/msg/Odometry')
        info = camera_info_topic(reader, chosen)
        duration_s = reader.duration / 1e9
        is_compressed = chosen in topics_of_type(reader, _COMPRESSED)
    odom = odometry[0] if len(odometry) == 1 else ''
    if not is_compressed:
        return Playable(source, chosen, 'raw', info, odom, duration_s)
    if not chosen.endswith(_SUFFIX):
        # The nodes expect compressed images under the name that image_transport gives them.
        with open_source(source, topic) as images:
            return _from_images(images, scratch / 'source')
    base = chosen[: -len(_SUFFIX)]
    return Playable(source, base, 'compressed', info, odom, duration_s)


def _from_images(images: ImageSource, bag: Path) -> Playable:
    factory = BagMessageFactory()
    first_ns = last_ns = 0
    with BagWriter(bag) as writer:
        writer.add_topic(_TOPIC, _COMPRESSED, SENSOR_DATA_QOS)
        for image in images:
            encoded = image.encoded or encode_image(image.image, _JPEG_QUALITY)
            last_ns = image.stamp_ns + _EPOCH_NS
            first_ns = first_ns or last_ns
            msg = encoded_image_to_msg(factory, last_ns, image.frame_id, encoded)
            writer.write(_TOPIC, msg, last_ns)
    duration_s = (last_ns - first_ns) / 1e9
    return Playable(bag, _TOPIC[: -len(_SUFFIX)], 'compressed', duration_s=duration_s)
