# SPDX-License-Identifier: Apache-2.0
"""Where images come from offline: a video, a folder of images, or a bag."""

from __future__ import annotations

from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
import logging
import math
import os
from pathlib import Path
import time
from typing import Any, TYPE_CHECKING

import cv2
from embodied_r_ros.bags.depth import DepthConfig, NO_DEPTH
from embodied_r_ros.bags.folders import (
    ASSUMED,
    DEFAULT_RATE_HZ,
    folder_images,
    folder_stream,
    FolderDepth,
    IMAGE_SUFFIXES,
)
from embodied_r_ros.bags.images import bag_images, choose_image_topic
from embodied_r_ros.bags.reader import is_bag, loose_bags, open_bag
from embodied_r_ros.bags.storage import pointer_advice
from embodied_r_ros.common.errors import BagError, SourceError
from embodied_r_ros.core.types.geometry import NS_PER_S
from embodied_r_ros.core.types.images import StampedImage
import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from numpy.typing import NDArray

_LOG = logging.getLogger(__name__)
VIDEO_SUFFIXES = {'.mp4', '.m4v', '.mov', '.avi', '.mkv', '.webm', '.mpg', '.mpeg', '.ts', '.mts'}
VIDEO_SUFFIXES |= {'.wmv', '.flv', '.3gp', '.ogv', '.mjpeg'}
# What lies outside is a container's mistake, not a camera's rate.
_RATES_HZ = (0.001, 1000.0)


@dataclass(frozen=True)
class DepthSource:
    """Where the depth of images comes from."""

    topic: str = ''  # of a bag; empty: found beside the images; NO_DEPTH: none is used
    config: DepthConfig = field(default_factory=DepthConfig)


@dataclass(frozen=True)
class ImageSource:
    """A stream of images; it can be iterated once."""

    name: str  # of the file or folder
    kind: str  # 'video', 'folder' or 'bag'
    length: int | None  # expected number of images, for a progress bar; None: unknown
    images: Iterator[StampedImage]
    has_times: bool = True  # False: stamps count images at a rate that is assumed

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


def find_bags(paths: Sequence[Path]) -> list[Path]:
    """Bags among some paths: each is a bag, or a folder of bags (not searched any deeper).

    Raises:
        BagError: A path does not exist or holds no bag, or a bag is named more than once.
    """
    return _find(paths, _bags_in, 'is neither a bag nor a folder of bags')


def find_sources(paths: Sequence[Path]) -> list[Path]:
    """Recordings among some paths: bags as `find_bags` has them, videos, and folders of either.

    A folder of images is one recording.

    Raises:
        BagError: A path does not exist or holds no recording, or one is named more than once.
    """
    what = 'is neither a video, a folder of images or videos, a bag, nor a folder of bags'
    return _find(paths, _sources_in, what)


def _find(
    paths: Sequence[Path], search: Callable[[Path], list[Path]], why_none: str
) -> list[Path]:
    matches = []
    for path in paths:
        if not path.exists():
            msg = f'{path} does not exist'
            raise BagError(msg)
        inside = search(path)
        if not inside:
            msg = f'{path} {why_none}'
            raise BagError(msg)
        matches += inside
    inodes = [(stat.st_dev, stat.st_ino) for stat in (source.stat() for source in matches)]
    times = Counter(inodes)
    for source, inode in zip(matches, inodes, strict=True):
        if times[inode] > 1:
            msg = f'{source} is named more than once: name it once'
            raise BagError(msg)
    return matches


def _bags_in(path: Path) -> list[Path]:
    if is_bag(path):
        return loose_bags(path) if path.is_dir() else [path]
    if not path.is_dir():
        return []
    children = sorted(child for child in path.iterdir() if not child.name.startswith('.'))
    return [child for child in children if is_bag(child)]


def _sources_in(path: Path) -> list[Path]:
    bags = _bags_in(path)
    if not path.is_dir() or bags == [path]:
        return bags or [path]
    children = [child for child in sorted(path.iterdir()) if not child.name.startswith('.')]
    images = [child for child in children if child.suffix.lower() in IMAGE_SUFFIXES]
    videos = [child for child in children if child.suffix.lower() in VIDEO_SUFFIXES]
    if images and not bags and not videos:
        return [path]
    if images:
        text = '%d images of %s are left out: they lie beside videos or bags; the first: %s'
        _LOG.warning(text, len(images), path, images[0].name)
    return [*bags, *videos]


@contextmanager
def open_source(
    path: Path | str,
    topic: str | None = None,
    rate_hz: float | None = None,
    depth: DepthSource | None = None,
) -> Iterator[ImageSource]:
    """Open a video file, a folder of images, or a bag: a folder, or a file of ROS 2 or ROS 1.

    >>> with open_source('samples/indoor/episode_00000') as images:
    ...     next(iter(images)).image.shape
    (360, 480, 3)

    Args:
        path: What to open.
        topic: Image topic of a bag, or what names one of several streams in a folder
            (`folders.folder_stream`); None: the only one there is.
        rate_hz: Images per second of a folder or video whose own times are not to be used. Without
            such times they are 10. A bag keeps the stamps of its messages.
        depth: Where depth comes from; None: it is used where a bag has some that is registered,
            or where a folder has some for its images, in it or in the folder `depth` beside it.

    Raises:
        SourceError: It is not there, not of such a kind, or an argument does not fit it.
        BagError: The bag is damaged or was never closed.
    """
    path, depth = Path(path), depth or DepthSource()
    kind = _checked_kind(path, topic, rate_hz, depth)
    if kind == 'bag':
        with open_bag(path) as reader:
            chosen = choose_image_topic(reader, topic)
            length = reader.topics[chosen].msgcount
            images = bag_images(reader, chosen, depth.topic, depth.config)
            yield ImageSource(path.name, kind, length, images)
    elif kind == 'folder':
        stream = folder_stream(path, topic)
        beside = None if depth.topic == NO_DEPTH else FolderDepth(stream, depth.config)
        stamps, has_times = stream.stamps(rate_hz)
        images = folder_images(stream, stamps, beside)
        yield ImageSource(path.name, kind, len(stream.images), images, has_times)
    else:
        with _video(path, rate_hz) as (frame_count, images):
            has_times = rate_hz is not None or _holds_times(path)
            yield ImageSource(path.name, kind, frame_count, images, has_times)


def _checked_kind(path: Path, topic: str | None, rate_hz: float | None, depth: DepthSource) -> str:
    """Of what kind a source is.

    Raises:
        SourceError: It is of none, or an argument does not fit it.
    """
    if rate_hz is not None and not _RATES_HZ[0] <= rate_hz <= _RATES_HZ[1]:
        msg = f'rate {rate_hz} Hz: expected {_RATES_HZ[0]} to {_RATES_HZ[1]}'
        raise SourceError(msg)
    kind = _kind(path)
    if kind == 'bag' and rate_hz is not None:
        msg = f'{path} is a bag and has its own stamps: leave the rate out'
        raise SourceError(msg)
    if kind == 'video' and topic is not None:
        msg = f'{path} is a {kind} and has no topic {topic!r}: leave the topic out'
        raise SourceError(msg)
    if kind != 'bag' and depth.topic not in {'', NO_DEPTH}:
        msg = f'{path} is a {kind} and has no depth topic {depth.topic!r}: leave it out'
        raise SourceError(msg)
    return kind


@contextmanager
def open_camera(number: int, seconds: float) -> Iterator[ImageSource]:
    """Open a camera of this machine; images are stamped as they are read, from the first one on.

    Args:
        number: Its number; on Linux 2 is /dev/video2.
        seconds: How long it is read [s].

    Raises:
        SourceError: It cannot be opened, or gives no images.
    """
    with _quiet_opencv():
        capture = cv2.VideoCapture(number)
        try:
            if not capture.isOpened():
                msg = (
                    f'camera {number} cannot be opened: is it plugged in, not in use, and may you '
                    'read it? Another one has another number; a film goes with --source'
                )
                raise SourceError(msg)
            images = camera_images(capture, seconds, time.monotonic_ns)
            yield ImageSource(f'camera {number}', 'camera', None, images)
        finally:
            capture.release()


def camera_images(
    capture: cv2.VideoCapture, seconds: float, now_ns: Callable[[], int]
) -> Iterator[StampedImage]:
    """Images that can be read within a time [s], by the clock that stamps them."""
    start_ns = 0
    for index in count():
        is_frame, frame = capture.read()
        stamp_ns = now_ns()
        start_ns = start_ns or stamp_ns
        if not is_frame or stamp_ns - start_ns > seconds * NS_PER_S:
            return
        yield StampedImage(index, stamp_ns - start_ns, np.asarray(frame, np.uint8))


@contextmanager
def _quiet_opencv() -> Iterator[None]:
    """FFmpeg and OpenCV write their own complaints to stderr, beside the line that users get."""
    os.environ.setdefault('OPENCV_FFMPEG_LOGLEVEL', '-8')
    # OpenCV 5 has it in a module of its own, older ones beside everything else.
    module = getattr(getattr(cv2, 'utils', cv2), 'logging', cv2)
    set_level = getattr(module, 'setLogLevel', int)
    log_level = set_level(0)
    try:
        yield
    finally:
        set_level(log_level)


def _kind(path: Path) -> str:
    if not path.exists():
        what = 'is a broken link' if path.is_symlink() else 'does not exist'
        msg = f'{path} {what}: expected a video, a folder of images, or a bag'
        raise SourceError(msg)
    if is_bag(path):
        return 'bag'
    if path.is_dir():
        return 'folder'
    if not path.is_file():  # a pipe or a device, which may have no end or no beginning
        msg = f'{path} is neither a file nor a folder: expected a video, or a folder or bag'
        raise SourceError(msg)
    if path.suffix.lower() in IMAGE_SUFFIXES:
        msg = f'{path} is a single image: give the folder that it is in'
        raise SourceError(msg)
    return 'video'


@contextmanager
def _video(
    path: Path, rate_hz: float | None
) -> Iterator[tuple[int | None, Iterator[StampedImage]]]:
    """Open a video: its expected number of images, and the images.

    Raises:
        SourceError: It is none, or of a codec that cannot be decoded here.
    """
    with path.open('rb') as file:
        start = file.read(1024)
    if not start:
        msg = f'{path} is empty (0 bytes): expected a video'
        raise SourceError(msg)
    if why := pointer_advice(start):
        msg = f'{path} cannot be read: {why}'
        raise SourceError(msg)
    with _quiet_opencv():
        # A whole path, since a name with a colon would be taken for a protocol; and by FFmpeg
        # alone, since OpenCV takes a name with a percent sign for a pattern of many files.
        capture = cv2.VideoCapture(str(path.resolve()), cv2.CAP_FFMPEG)
        try:
            # FFmpeg plays text files as a terminal would show them.
            if not capture.isOpened() or _is_text(start):
                msg = f'{path} cannot be opened as a video: damaged, cut off, or of another kind'
                raise SourceError(msg)
            is_frame, first = capture.read()
            if is_frame:
                frames = capture.get(cv2.CAP_PROP_FRAME_COUNT)
                # Containers lie about their length, so that it is good for a progress bar only.
                frame_count = int(frames) if 0 < frames < 1e9 else None
                yield (
                    frame_count,
                    _video_images(_VideoFile(path, capture, frame_count), first, rate_hz),
                )
            else:
                yield None, _images_of_codec(path, _codec(capture), rate_hz)
        finally:
            capture.release()


@dataclass(frozen=True)
class _VideoFile:
    """A video that is being read."""

    path: Path
    capture: cv2.VideoCapture
    frame_count: int | None  # as the container states it; None: it does not

    def tell(self, number: int, end_ms: float) -> None:
        """Say where images are missing.

        Containers of varying rate state no number, and OpenCV computes one from their duration.
        What they hold tells: how far the images reach, and the packets, by PyAV.

        Args:
            number: Images that were decoded.
            end_ms: Time when the last one ends, at the latest [ms].
        """
        stated = self.frame_count or 0
        duration_ms = stated / (_stated_rate_hz(self.capture) or math.inf) * 1e3
        if number < _WHOLE_VIDEO * stated - 1 and end_ms >= _WHOLE_VIDEO * duration_ms:
            stated = _packet_count(self.path) or 0
        if number >= _WHOLE_VIDEO * stated - 1:
            return
        text = (
            '%d images of %s are read, and its container states %d: it may be cut off or damaged'
        )
        _LOG.warning(text, number, self.path, stated)


_WHOLE_VIDEO = 0.95  # share of what a container states


def _packet_count(path: Path) -> int | None:
    """Images that a video holds, without decoding them; None: PyAV cannot tell."""
    try:
        import av

        with av.open(str(path.resolve())) as container:
            if 'mp4' in container.format.name:  # which has their number; AVI counts empty ones
                return int(container.streams.video[0].frames)
            return sum(bool(packet.size) for packet in container.demux(video=0))
    except (ImportError, OSError, IndexError, ValueError):  # its errors are some of these
        return None


def _codec(capture: cv2.VideoCapture) -> str:
    """Name of a video's codec, four characters."""
    code = int(capture.get(cv2.CAP_PROP_FOURCC))
    return code.to_bytes(4, 'little', signed=code < 0).decode('ascii', 'replace').strip('\0 ')


def _images_of_codec(path: Path, codec: str, rate_hz: float | None) -> Iterator[StampedImage]:
    """Images of a video whose codec this OpenCV does not decode, such as AV1, by PyAV.

    Raises:
        SourceError: PyAV is not installed, or cannot decode it either.
    """
    try:
        import av
    except ImportError:
        msg = (
            f'{path} is a video of codec {codec!r}, which this OpenCV cannot decode: '
            'pip install av, or convert it (ffmpeg -i IN -c:v libx264 OUT.mp4)'
        )
        raise SourceError(msg) from None
    try:
        with av.open(str(path.resolve())) as container:
            stream = container.streams.video[0]
            stream.thread_type = 'AUTO'
            period_ns = round(
                NS_PER_S / (rate_hz or float(stream.average_rate or DEFAULT_RATE_HZ))
            )
            stamp_ns = None
            for index, frame in enumerate(container.decode(stream)):
                own_ms = math.nan if rate_hz or frame.time is None else frame.time * 1e3
                stamp_ns = _video_stamp_ns(stamp_ns, own_ms, period_ns)
                yield StampedImage(index, stamp_ns, _upright(frame))
    except (av.FFmpegError, IndexError) as error:
        msg = f'{path} cannot be decoded (codec {codec!r}): {error}'
        raise SourceError(msg) from None


def _upright(frame: Any) -> NDArray[np.uint8]:
    """A frame of PyAV as its container says that it is to be shown, BGR."""
    image = np.asarray(frame.to_ndarray(format='bgr24'), np.uint8)
    return np.ascontiguousarray(np.rot90(image, round(getattr(frame, 'rotation', 0) / 90) % 4))


def _holds_times(path: Path) -> bool:
    """Whether a video is in a container; a bare stream of H.264, HEVC or JPEG has no times."""
    with path.open('rb') as file:
        start = file.read(4)
    is_bare = start.startswith((b'\xff\xd8\xff', b'\0\0\0\1'))
    is_bare |= start.startswith(b'\0\0\1') and start != _PROGRAM_STREAM
    if is_bare:
        _LOG.warning(ASSUMED, path, _BARE_RATE_HZ)
    return not is_bare


_PROGRAM_STREAM = b'\0\0\1\xba'  # of MPEG, which has times
_BARE_RATE_HZ = 25.0  # that FFmpeg assumes


def _is_text(start: bytes) -> bool:
    return not set(start) & set(range(9)) and start.isascii()


def _video_images(
    video: _VideoFile, first: NDArray[Any], rate_hz: float | None
) -> Iterator[StampedImage]:
    capture = video.capture
    period_ns = round(NS_PER_S / (rate_hz or _stated_rate_hz(capture) or DEFAULT_RATE_HZ))
    stamp_ns, image, before_ms, longest_ms = None, first, 0.0, 0.0
    # The stream ends where decoding ends; the container's frame count is not trusted.
    for index in count():
        own_ms = capture.get(cv2.CAP_PROP_POS_MSEC)
        before_ms, longest_ms = own_ms, max(longest_ms, own_ms - before_ms)
        stamp_ns = _video_stamp_ns(stamp_ns, math.nan if rate_hz else own_ms, period_ns)
        yield StampedImage(index, stamp_ns, np.asarray(image, np.uint8))
        is_frame, image = capture.read()
        if not is_frame:
            video.tell(index + 1, own_ms + longest_ms)
            return


def _stated_rate_hz(capture: cv2.VideoCapture) -> float | None:
    """Frame rate that a container states; None where it is 0, NaN or absurd."""
    rate_hz = float(capture.get(cv2.CAP_PROP_FPS))
    return rate_hz if _RATES_HZ[0] <= rate_hz <= _RATES_HZ[1] else None


def _video_stamp_ns(previous_ns: int | None, own_ms: float, period_ns: int) -> int:
    """Stamp of a video image: its own time where that increases, else one period later."""
    own_ns = round(own_ms * 1e6) if math.isfinite(own_ms) else None
    if previous_ns is None:
        return max(0, own_ns or 0)
    if own_ns is not None:
        is_later = NS_PER_S / _RATES_HZ[1] <= own_ns - previous_ns
        if is_later and own_ns - previous_ns <= NS_PER_S / _RATES_HZ[0]:
            return own_ns
    return previous_ns + period_ns
