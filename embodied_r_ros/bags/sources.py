# SPDX-License-Identifier: Apache-2.0
"""Where images come from offline: a video, a folder of images, or a bag; and a bag to play."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
import math
import os
from pathlib import Path
import re
from typing import TYPE_CHECKING

import cv2
from embodied_r_ros.bags.images import bag_images, camera_info_topic, choose_image_topic
from embodied_r_ros.bags.message_types import BagMessageFactory
from embodied_r_ros.bags.messages import encoded_image_to_msg
from embodied_r_ros.bags.reader import open_bag, topics_of_type
from embodied_r_ros.bags.writer import BagWriter, SENSOR_DATA_QOS
from embodied_r_ros.common.errors import ImageError, SourceError
from embodied_r_ros.common.prefetch import done_ahead
from embodied_r_ros.types.images import (
    decode_image,
    encode_image,
    EncodedImage,
    image_format,
    StampedImage,
)
from embodied_r_ros.types.units import NS_PER_S
import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator

DEFAULT_RATE_HZ = 10.0
_BAG_SUFFIXES = {'.mcap', '.db3'}
_IMAGE_SUFFIXES = {'.jpg', '.jpeg', '.png'}
# What lies outside is a container's mistake, not a camera's rate.
_RATES_HZ = (0.001, 1000.0)


@dataclass(frozen=True)
class ImageSource:
    """A stream of images; it can be iterated once."""

    name: str  # of the file or folder
    kind: str  # 'video', 'folder' or 'bag'
    length: int | None  # expected number of images, for a progress bar; None: unknown
    images: Iterator[StampedImage]

    def __iter__(self) -> Iterator[StampedImage]:
        """Images in order; indices count from 0.

        Raises:
            SourceError: There are no images, or one of them cannot be read.
            BagError: The bag is damaged.
        """
        count = 0
        for image in self.images:
            yield image
            count += 1
        if not count:
            msg = f'{self.name} has no images: expected at least one'
            raise SourceError(msg)


@contextmanager
def open_source(
    path: Path | str, topic: str | None = None, rate_hz: float | None = None
) -> Iterator[ImageSource]:
    """Open a video file, a folder of images, a rosbag2 folder, or a bare .mcap or .db3 file.

    Args:
        path: What to open.
        topic: Image topic of a bag; None: the only one there is.
        rate_hz: Images per second of a folder (None: 10), and of a video whose own times are not
            to be used. A bag keeps the stamps of its messages.

    Raises:
        SourceError: It is not there, not of such a kind, or an argument does not fit it.
        BagError: The bag is damaged or was never closed.
    """
    path = Path(path)
    if rate_hz is not None and not _RATES_HZ[0] <= rate_hz <= _RATES_HZ[1]:
        msg = f'rate {rate_hz} Hz: expected {_RATES_HZ[0]} to {_RATES_HZ[1]}'
        raise SourceError(msg)
    kind = _kind(path)
    if kind == 'bag' and rate_hz is not None:
        msg = f'{path} is a bag and has its own stamps: leave the rate out'
        raise SourceError(msg)
    if kind != 'bag' and topic is not None:
        msg = f'{path} is a {kind} and has no topic {topic!r}: leave the topic out'
        raise SourceError(msg)
    if kind == 'bag':
        with open_bag(path) as reader:
            chosen = choose_image_topic(reader, topic)
            length = reader.topics[chosen].msgcount
            yield ImageSource(path.name, kind, length, bag_images(reader, chosen))
    elif kind == 'folder':
        files = _image_files(path)
        images = _folder_images(files, rate_hz or DEFAULT_RATE_HZ)
        yield ImageSource(path.name, kind, len(files), images)
    else:
        with _video(path) as capture:
            frames = capture.get(cv2.CAP_PROP_FRAME_COUNT)
            # Containers lie about their length, so that it is good for a progress bar only.
            frame_count = int(frames) if 0 < frames < 1e9 else None
            yield ImageSource(path.name, kind, frame_count, _video_images(capture, rate_hz))


def _kind(path: Path) -> str:
    if not path.exists():
        msg = f'{path} does not exist: expected a video, a folder of images, or a bag'
        raise SourceError(msg)
    if path.is_dir():
        names = {file.name: file.suffix.lower() for file in path.iterdir()}
        if 'metadata.yaml' in names or _BAG_SUFFIXES & set(names.values()):
            return 'bag'
        return 'folder'
    if not path.is_file():  # a pipe or a device, which may have no end or no beginning
        msg = f'{path} is neither a file nor a folder: expected a video, or a folder or bag'
        raise SourceError(msg)
    if path.suffix.lower() in _IMAGE_SUFFIXES:
        msg = f'{path} is a single image: give the folder that it is in'
        raise SourceError(msg)
    return 'bag' if path.suffix.lower() in _BAG_SUFFIXES else 'video'


def _image_files(folder: Path) -> list[Path]:
    files = [
        file
        for file in folder.iterdir()
        if file.suffix.lower() in _IMAGE_SUFFIXES and not file.name.startswith('.')
    ]
    if not files:
        msg = (
            f'{folder} has no images: expected files named .jpg, .jpeg or .png, '
            'or a rosbag2 folder with metadata.yaml'
        )
        raise SourceError(msg)
    return sorted(files, key=_natural_order)


def _natural_order(file: Path) -> list[tuple[int, str]]:
    """Sort key in which image2 comes before image10."""
    parts = re.split(r'(\d+)', file.name)
    return [(int(part), '') if part.isdigit() else (0, part) for part in parts]


def _folder_images(files: list[Path], rate_hz: float) -> Iterator[StampedImage]:
    return done_ahead(
        partial(_read_image, file, index, round(index / rate_hz * NS_PER_S))
        for index, file in enumerate(files)
    )


def _read_image(file: Path, index: int, stamp_ns: int) -> StampedImage:
    try:
        data = file.read_bytes()
        image = decode_image(data)
    except (OSError, ImageError) as error:
        msg = f'{file} cannot be read: {error}'
        raise SourceError(msg) from None
    encoded = EncodedImage(data, 'jpeg') if image_format(data) == 'jpeg' else None
    return StampedImage(index, stamp_ns, image, encoded=encoded)


@contextmanager
def _video(path: Path) -> Iterator[cv2.VideoCapture]:
    with path.open('rb') as file:
        start = file.read(1024)
    if not start:
        msg = f'{path} is empty (0 bytes): expected a video'
        raise SourceError(msg)
    # FFmpeg and OpenCV write their own complaints to stderr, beside the one line that users get.
    os.environ.setdefault('OPENCV_FFMPEG_LOGLEVEL', '-8')
    log_level = cv2.setLogLevel(0) if hasattr(cv2, 'setLogLevel') else 0
    capture = cv2.VideoCapture(str(path))
    try:
        # FFmpeg plays text files as a terminal would show them.
        if not capture.isOpened() or _is_text(start):
            msg = f'{path} cannot be opened as a video: damaged, cut off, or another kind of file'
            raise SourceError(msg)
        yield capture
    finally:
        capture.release()
        if hasattr(cv2, 'setLogLevel'):
            cv2.setLogLevel(log_level)


def _is_text(start: bytes) -> bool:
    return not set(start) & set(range(9)) and start.isascii()


def _video_images(capture: cv2.VideoCapture, rate_hz: float | None) -> Iterator[StampedImage]:
    period_ns = round(NS_PER_S / (rate_hz or _stated_rate_hz(capture) or DEFAULT_RATE_HZ))
    index, stamp_ns = 0, 0
    # The stream ends where decoding ends; the container's frame count is not trusted.
    while True:
        is_frame, image = capture.read()
        if not is_frame:
            return
        own_ms = math.nan if rate_hz else capture.get(cv2.CAP_PROP_POS_MSEC)
        if index:
            stamp_ns = _next_stamp_ns(stamp_ns, own_ms, period_ns)
        elif math.isfinite(own_ms) and own_ms > 0:
            stamp_ns = round(own_ms * 1e6)
        yield StampedImage(index, stamp_ns, np.asarray(image, np.uint8))
        index += 1


def _stated_rate_hz(capture: cv2.VideoCapture) -> float | None:
    """Frame rate that a container states; None where it is 0, NaN or absurd."""
    rate_hz = float(capture.get(cv2.CAP_PROP_FPS))
    return rate_hz if _RATES_HZ[0] <= rate_hz <= _RATES_HZ[1] else None


def _next_stamp_ns(previous_ns: int, own_ms: float, period_ns: int) -> int:
    """Stamp of a video image: its own time where that goes on, else one period later."""
    if math.isfinite(own_ms):
        own_ns = round(own_ms * 1e6)
        if NS_PER_S / _RATES_HZ[1] <= own_ns - previous_ns <= NS_PER_S / _RATES_HZ[0]:
            return own_ns
    return previous_ns + period_ns


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
