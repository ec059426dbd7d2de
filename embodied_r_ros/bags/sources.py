# SPDX-License-Identifier: Apache-2.0
"""Where images come from offline: a video, a folder of images, or a bag."""

from __future__ import annotations

from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from decimal import Decimal
from functools import partial
from itertools import count
import logging
import math
import os
from pathlib import Path
import re
from typing import Any, TYPE_CHECKING

import cv2
from embodied_r_ros.bags.depth import (
    depth_metres_of_png,
    DepthConfig,
    NO_DEPTH,
    why_other_view,
)
from embodied_r_ros.bags.images import (
    bag_images,
    choose_image_topic,
    Damage,
)
from embodied_r_ros.bags.reader import is_bag, loose_bags, open_bag
from embodied_r_ros.bags.storage import pointer_advice
from embodied_r_ros.common.errors import BagError, ImageError, SourceError
from embodied_r_ros.common.work import done_ahead
from embodied_r_ros.types.geometry import NS_PER_S
from embodied_r_ros.types.images import (
    decode_image,
    EncodedImage,
    image_format,
    StampedImage,
    Stretch,
)
import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from numpy.typing import NDArray

_LOG = logging.getLogger(__name__)
DEFAULT_RATE_HZ = 10.0
IMAGE_SUFFIXES = {'.jpg', '.jpeg', '.png', '.webp', '.bmp', '.tif', '.tiff'}
_OTHER_IMAGES = {'.heic', '.heif', '.avif', '.gif', '.pgm', '.ppm', '.jp2', '.dng', '.raw'}
_OTHER_IMAGES |= {'.exr', '.jfif', '.tga', '.cr2', '.nef', '.arw'}
VIDEO_SUFFIXES = {'.mp4', '.m4v', '.mov', '.avi', '.mkv', '.webm', '.mpg', '.mpeg', '.ts', '.mts'}
VIDEO_SUFFIXES |= {'.wmv', '.flv', '.3gp', '.ogv', '.mjpeg'}
_START_BYTES = 64  # of a file, which are looked at
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

    Args:
        path: What to open.
        topic: Image topic of a bag; None: the only one there is.
        rate_hz: Images per second of a folder (None: 10), and of a video whose own times are not
            to be used. A bag keeps the stamps of its messages.
        depth: Where depth comes from; None: it is used where a bag has some that is registered,
            or where the folder `depth` beside that of the images has images of the same names.

    Raises:
        SourceError: It is not there, not of such a kind, or an argument does not fit it.
        BagError: The bag is damaged or was never closed.
    """
    path = Path(path)
    depth = depth or DepthSource()
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
    if kind != 'bag' and depth.topic not in {'', NO_DEPTH}:
        msg = f'{path} is a {kind} and has no depth topic {depth.topic!r}: leave it out'
        raise SourceError(msg)
    if kind == 'bag':
        with open_bag(path) as reader:
            chosen = choose_image_topic(reader, topic)
            length = reader.topics[chosen].msgcount
            images = bag_images(reader, chosen, depth.topic, depth.config)
            yield ImageSource(path.name, kind, length, images)
    elif kind == 'folder':
        files = _image_files(path)
        beside = None if depth.topic == NO_DEPTH else _FolderDepth(path, depth.config)
        images = _folder_images(files, rate_hz or DEFAULT_RATE_HZ, beside)
        yield ImageSource(path.name, kind, len(files), images)
    else:
        with _video(path, rate_hz) as (frame_count, images):
            yield ImageSource(path.name, kind, frame_count, images)


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


def _image_files(folder: Path) -> list[Path]:
    """The images of a folder in the order of their names; what is none by its name is told."""
    named = [
        file
        for file in folder.iterdir()
        if file.suffix.lower() in IMAGE_SUFFIXES and not file.name.startswith('.')
    ]
    files = [file for file in named if file.is_file()]
    if unknown := [file for file in folder.iterdir() if file.suffix.lower() in _OTHER_IMAGES]:
        text = '%d files of %s are left out: images of these kinds are not read; the first: %s'
        _LOG.warning(text, len(unknown), folder, min(unknown).name)
    if others := sorted(file.name for file in named if file not in set(files)):
        text = (
            '%d of %d images of %s are left out: they are folders or broken links; the first: %s'
        )
        _LOG.warning(text, len(others), len(named), folder, others[0])
    if not files:
        inner = next((child for child in sorted(folder.iterdir()) if child.is_dir()), None)
        hint = f'; it has folders, such as {inner.name}: give one of them' if inner else ''
        msg = (
            f'{folder} has no images: expected files named '
            f'{", ".join(sorted(IMAGE_SUFFIXES))}, or a bag{hint}'
        )
        raise SourceError(msg)
    are_times = all(re.fullmatch(r'[0-9]+\.[0-9]+', file.stem) for file in files)
    return sorted(files, key=partial(_natural_order, are_times=are_times))


def _natural_order(file: Path, *, are_times: bool) -> list[tuple[Decimal, str]]:
    """Sort key in which image2 comes before image10, and a time of 1.25 s before one of 1.5 s.

    A number with decimals is a time where all names are such, or where it is long enough for
    seconds since 1970.
    """
    number = r'([0-9]+\.[0-9]+|[0-9]+)' if are_times else r'([0-9]{9,}\.[0-9]+|[0-9]+)'
    parts = re.split(number, file.stem)
    key = [(Decimal(part), '') if i % 2 else (Decimal(0), part) for i, part in enumerate(parts)]
    return [*key, (Decimal(0), file.suffix), (Decimal(0), file.name)]


class _FolderDepth:
    """Depth images in the folder `depth` beside one of images, by the names of these."""

    def __init__(self, folder: Path, config: DepthConfig) -> None:
        beside = folder.resolve().parent / 'depth'
        files = beside.iterdir() if beside.is_dir() and beside != folder.resolve() else ()
        self._files = {file.stem: file for file in files if file.suffix.lower() == '.png'}
        self._unit_m = config.unit_m
        self._lost: list[str] = []  # what was wrong with each one that was left out

    def with_depth(self, image: StampedImage, file: Path) -> StampedImage:
        """The image of a file with its depth, where there is some that can be read."""
        if file.stem not in self._files:
            return image
        height, width = image.image.shape[:2]
        try:
            return replace(image, depth=self._read(self._files[file.stem], (width, height)))
        except (OSError, ImageError) as error:
            self._lost.append(f'{self._files[file.stem].name}: {error}')
            return image

    def _read(self, file: Path, size: tuple[int, int]) -> NDArray[np.float32]:
        metres = depth_metres_of_png(file.read_bytes(), self._unit_m)
        if why := why_other_view((metres.shape[1], metres.shape[0]), size):
            raise ImageError(why)
        return metres

    def tell(self) -> None:
        """Say what was left out, if anything was."""
        if self._lost:
            text = '%d depth images are left out; the first: %s'
            _LOG.warning(text, len(self._lost), self._lost[0])


def _folder_images(
    files: list[Path], rate_hz: float, depth: _FolderDepth | None
) -> Iterator[StampedImage]:
    damage = Damage(f'folder {files[0].parent}')
    stretch = Stretch()
    try:
        for image in done_ahead(
            partial(_read_image, file, index, round(index / rate_hz * NS_PER_S), stretch, damage)
            for index, file in enumerate(files)
        ):
            if image:
                yield depth.with_depth(image, files[image.index]) if depth else image
        damage.check_any_left()
    finally:
        damage.tell()
        if depth:
            depth.tell()


def _read_image(
    file: Path, index: int, stamp_ns: int, stretch: Stretch, damage: Damage
) -> StampedImage | None:
    """The image of a file; None: it is damaged.

    Raises:
        SourceError: Too many are.
    """
    try:
        data = file.read_bytes()
        if why := pointer_advice(data[:_START_BYTES]):
            msg = f'{file} cannot be read: {why}'
            raise SourceError(msg)
        image = decode_image(data, stretch, is_upright=True)
    except (OSError, ImageError) as error:
        damage.leave_out(file.name, error)
        return None
    damage.count()
    # A photo that was turned upright is not what its bytes are.
    is_plain = image_format(data) == 'jpeg' and b'Exif' not in data[:_START_BYTES]
    encoded = EncodedImage(data, 'jpeg') if is_plain else None
    return StampedImage(index, stamp_ns, image, encoded=encoded)


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
    # FFmpeg and OpenCV write their own complaints to stderr, beside the one line that users get.
    os.environ.setdefault('OPENCV_FFMPEG_LOGLEVEL', '-8')
    log_level = cv2.setLogLevel(0) if hasattr(cv2, 'setLogLevel') else 0
    # A whole path, since a name with a colon would be taken for a protocol; and by FFmpeg alone,
    # since OpenCV takes a name with a percent sign for a pattern of many files.
    capture = cv2.VideoCapture(str(path.resolve()), cv2.CAP_FFMPEG)
    try:
        # FFmpeg plays text files as a terminal would show them.
        if not capture.isOpened() or _is_text(start):
            msg = f'{path} cannot be opened as a video: damaged, cut off, or another kind of file'
            raise SourceError(msg)
        is_frame, first = capture.read()
        if is_frame:
            frames = capture.get(cv2.CAP_PROP_FRAME_COUNT)
            # Containers lie about their length, so that it is good for a progress bar only.
            frame_count = int(frames) if 0 < frames < 1e9 else None
            images = _video_images(capture, first, rate_hz)
            yield frame_count, _compared(images, frame_count, path)
        else:
            yield None, _images_of_codec(path, _codec(capture), rate_hz)
    finally:
        capture.release()
        if hasattr(cv2, 'setLogLevel'):
            cv2.setLogLevel(log_level)


def _compared(
    images: Iterator[StampedImage], stated: int | None, path: Path
) -> Iterator[StampedImage]:
    """The images of a video, and a line where they are much fewer than its container states."""
    number = 0
    for image in images:
        yield image
        number += 1
    if stated and number < _WHOLE_VIDEO * stated - 1:
        text = (
            '%d images of %s are read, and its container states %d: it may be cut off or damaged'
        )
        _LOG.warning(text, number, path, stated)


_WHOLE_VIDEO = 0.95  # share of what a container states


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


def _is_text(start: bytes) -> bool:
    return not set(start) & set(range(9)) and start.isascii()


def _video_images(
    capture: cv2.VideoCapture, first: NDArray[Any], rate_hz: float | None
) -> Iterator[StampedImage]:
    period_ns = round(NS_PER_S / (rate_hz or _stated_rate_hz(capture) or DEFAULT_RATE_HZ))
    stamp_ns, is_frame, image = None, True, first
    # The stream ends where decoding ends; the container's frame count is not trusted.
    for index in count():
        own_ms = math.nan if rate_hz else capture.get(cv2.CAP_PROP_POS_MSEC)
        stamp_ns = _video_stamp_ns(stamp_ns, own_ms, period_ns)
        yield StampedImage(index, stamp_ns, np.asarray(image, np.uint8))
        is_frame, image = capture.read()
        if not is_frame:
            return


def _stated_rate_hz(capture: cv2.VideoCapture) -> float | None:
    """Frame rate that a container states; None where it is 0, NaN or absurd."""
    rate_hz = float(capture.get(cv2.CAP_PROP_FPS))
    return rate_hz if _RATES_HZ[0] <= rate_hz <= _RATES_HZ[1] else None


def _video_stamp_ns(previous_ns: int | None, own_ms: float, period_ns: int) -> int:
    """Stamp of a video image: its own time where that goes on, else one period later."""
    own_ns = round(own_ms * 1e6) if math.isfinite(own_ms) else None
    if previous_ns is None:
        return max(0, own_ns or 0)
    if own_ns is not None:
        is_later = NS_PER_S / _RATES_HZ[1] <= own_ns - previous_ns
        if is_later and own_ns - previous_ns <= NS_PER_S / _RATES_HZ[0]:
            return own_ns
    return previous_ns + period_ns
