# SPDX-License-Identifier: Apache-2.0
"""The images of a bag, each with what the bag knows of its camera, and raw images to BGR."""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass, replace
from itertools import islice
import logging
from typing import Any, TYPE_CHECKING

import cv2
from embodied_r_ros.bags.depth import (
    DepthConfig,
    DepthStream,
    find_depth_topic,
    is_depth,
    NO_DEPTH,
    shows_depth,
)
from embodied_r_ros.bags.messages import (
    camera_of_info,
    encoded_image_from_msg,
    IMAGE_TYPES,
    is_calibrated,
    is_rectified_topic,
    stamp_ns_from_msg,
)
from embodied_r_ros.bags.poses import pose_source
from embodied_r_ros.bags.reader import (
    first_message,
    read_messages,
    readable_topics,
    tell_left_out,
    topics_of_type,
)
from embodied_r_ros.common.errors import ImageError, SourceError, UnsupportedImageError
from embodied_r_ros.common.work import done_ahead
from embodied_r_ros.core.types.geometry import Pose
from embodied_r_ros.core.types.images import (
    EncodedImage,
    image_format,
    MAX_PIXELS,
    StampedImage,
    Stretch,
)
from embodied_r_ros.core.types.poses import NoPose
import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from embodied_r_ros.bags.poses import PoseSource
    from embodied_r_ros.bags.reader import BagReader
    from embodied_r_ros.core.types.geometry import Intrinsics
    from numpy.typing import NDArray

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True)
class _Encoding:
    """How the pixels of an image message lie in its bytes."""

    dtype: str  # of a channel
    channels: int
    code: int | None = None  # of cv2.cvtColor, to BGR; None: it is BGR
    rows: tuple[int, int] = (1, 1)  # rows of bytes by rows of pixels, as a ratio
    is_planar: bool = False  # each chroma is a plane of its own

    @property
    def pixel_bytes(self) -> int:
        return np.dtype(self.dtype).itemsize * self.channels


def _encodings() -> dict[str, _Encoding]:
    """Encodings with colours or brightness (sensor_msgs/image_encodings), in lower case."""
    table: dict[str, _Encoding] = {}
    for bits, dtype in ((8, 'u1'), (16, 'u2')):
        channels = {
            'bgr': (3, None),
            'rgb': (3, cv2.COLOR_RGB2BGR),
            'bgra': (4, cv2.COLOR_BGRA2BGR),
            'rgba': (4, cv2.COLOR_RGBA2BGR),
            'mono': (1, cv2.COLOR_GRAY2BGR),
            # OpenCV names a pattern by its second row.
            'bayer_rggb': (1, cv2.COLOR_BayerBG2BGR),
            'bayer_bggr': (1, cv2.COLOR_BayerRG2BGR),
            'bayer_gbrg': (1, cv2.COLOR_BayerGR2BGR),
            'bayer_grbg': (1, cv2.COLOR_BayerGB2BGR),
        }
        for name, (count, code) in channels.items():
            table[f'{name}{bits}'] = _Encoding(dtype, count, code)
        for count, like in ((1, 'mono'), (3, 'bgr'), (4, 'bgra')):
            table[f'{bits}uc{count}'] = table[f'{like}{bits}']
    for deep in ('mono10', 'mono12', 'mono14', 'y16'):  # in the low bits of two bytes
        table[deep] = table['mono16']
    for name in ('yuv422', 'uyvy', 'yuv422_uyvy'):
        table[name] = _Encoding('u1', 2, cv2.COLOR_YUV2BGR_UYVY)
    for name in ('yuv422_yuy2', 'yuyv', 'yuy2'):
        table[name] = _Encoding('u1', 2, cv2.COLOR_YUV2BGR_YUY2)
    for name, code in (
        ('nv12', cv2.COLOR_YUV2BGR_NV12),
        ('nv21', cv2.COLOR_YUV2BGR_NV21),
        ('i420', cv2.COLOR_YUV2BGR_I420),
        ('yuv420', cv2.COLOR_YUV2BGR_I420),
        ('yv12', cv2.COLOR_YUV2BGR_YV12),
    ):
        table[name] = _Encoding('u1', 1, code, (3, 2), is_planar=not name.startswith('nv'))
    return table


_ENCODINGS = _encodings()
# Encodings whose pixels share their colour in pairs.
_IN_PAIRS = {name for name, e in _ENCODINGS.items() if e.rows != (1, 1) or e.channels == 2}


def check_raw_image(msg: Any, topic: str = '') -> None:
    """Refuse an image whose encoding is not known, or whose size does not fit its bytes.

    Args:
        msg: A sensor_msgs Image.
        topic: Where it came from.

    Raises:
        UnsupportedImageError: It holds no picture, or in an unknown way.
        ImageError: It says what was found and what was expected.
    """
    if not msg.width * msg.height or not len(msg.data):
        text = f'{msg.encoding} image of {msg.width}x{msg.height} pixels has {len(msg.data)} bytes'
        raise ImageError(text)
    if is_depth(msg.encoding, topic):
        text = f'image encoding {msg.encoding!r} is depth, not a colour or grey image'
        raise UnsupportedImageError(text)
    encoding = _ENCODINGS.get(msg.encoding.lower())
    if encoding is None:
        text = (
            f'image encoding {msg.encoding!r} is not a colour or grey image that is known: '
            f'expected one of {", ".join(_ENCODINGS)}'
        )
        raise UnsupportedImageError(text)
    height, width, step = int(msg.height), int(msg.width), int(msg.step)
    size, row_bytes = memoryview(msg.data).nbytes, width * encoding.pixel_bytes
    rows = height * encoding.rows[0] // encoding.rows[1]
    fits = row_bytes <= step and rows * step <= size
    if not fits or not 0 < width * height <= MAX_PIXELS:
        text = (
            f'{msg.encoding} image of {width}x{height} pixels has {size} bytes in rows of {step}: '
            f'expected {rows} rows of at least {row_bytes}'
        )
        raise ImageError(text)
    is_odd = width % 2 or (height % 2 and encoding.rows != (1, 1))
    if is_odd and msg.encoding.lower() in _IN_PAIRS:
        text = f'{msg.encoding} image is {width} pixels wide: expected an even number'
        raise ImageError(text)


def raw_image(msg: Any, topic: str = '', stretch: Stretch | None = None) -> NDArray[np.uint8]:
    """Image of a sensor_msgs Image message: BGR, uint8, (H, W, 3), its own memory.

    Args:
        msg: The message.
        topic: Where it came from; it tells thermal images of 16 bits from depth.
        stretch: Brings what has more than 8 bits to 8; None: by its own range.

    Raises:
        UnsupportedImageError: The encoding is not known, or holds no picture.
        ImageError: The size does not fit the bytes.
    """
    check_raw_image(msg, topic)
    encoding = _ENCODINGS[msg.encoding.lower()]
    height, width, step = int(msg.height), int(msg.width), int(msg.step)
    rows = height * encoding.rows[0] // encoding.rows[1]
    data = np.frombuffer(msg.data, np.uint8)[: rows * step].reshape(rows, step)
    order = '>' if msg.is_bigendian else '<'
    tight = np.ascontiguousarray(data[:, : width * encoding.pixel_bytes])
    if encoding.is_planar and step != width:  # rows of chroma are half as long as those of luma
        chroma = data[height:].reshape(height, step // 2)[:, : width // 2]
        tight[height:] = np.ascontiguousarray(chroma).reshape(rows - height, width)
    pixels = tight.view(f'{order}{encoding.dtype}').astype(encoding.dtype, copy=False)
    if encoding.channels > 1:
        pixels = pixels.reshape(rows, width, encoding.channels)
    image = pixels if encoding.code is None else cv2.cvtColor(pixels, encoding.code)
    if image.dtype != np.uint8:
        return (stretch or Stretch()).apply(image)
    return np.array(image, np.uint8)


def _is_plain(data: bytes) -> bool:
    """Tell whether an image is in a known format, with 8 bits."""
    kind = image_format(data)
    is_deep = kind == 'tiff' or (
        kind == 'png' and data[_PNG_BITS_AT : _PNG_BITS_AT + 1] == b'\x10'
    )
    return kind is not None and not is_deep


_PNG_BITS_AT = 24
_VIDEO_FORMATS = ('h264', 'h265', 'hevc', 'av1', 'vp8', 'vp9', 'theora')


class ImageDecoder:
    """Decodes the image messages of one topic, raw or compressed, one after the other."""

    def __init__(self, topic: str) -> None:
        """Take the topic that the images come from."""
        self._topic = topic
        self._stretch = Stretch()
        self._has_looked = False  # for a mosaic

    def decode(self, msg: Any) -> tuple[NDArray[np.uint8], EncodedImage | None]:
        """The image (BGR, uint8, (H, W, 3)), and its bytes where it came as a JPEG.

        Raises:
            UnsupportedImageError: It holds no picture, or is packed in an unknown way.
            ImageError: It is damaged.
        """
        if not hasattr(msg, 'format'):
            return raw_image(msg, self._topic, self._stretch), None
        encoded = encoded_image_from_msg(msg)
        if not _is_plain(encoded.data):  # then its bytes say what it is, whatever the text says
            self._check_format(str(msg.format))
        image = encoded.decode(self._stretch)
        if (image[::4, ::4] == image[::4, ::4, :1]).all():  # grey
            code = _bayer_code(str(msg.format))
            if code is not None:
                return np.asarray(cv2.cvtColor(image[..., 0], code), np.uint8), None
            self._tell_mosaic(image[..., 0], str(msg.format))
        # A PNG is too large to be passed on as it came.
        return image, encoded if encoded.format == 'jpeg' else None

    def _tell_mosaic(self, grey: NDArray[np.uint8], text: str) -> None:
        """Say where the first grey image looks like the mosaic of a colour camera."""
        if self._has_looked:
            return
        self._has_looked = True
        values = grey.astype(np.int16)
        near, next_but_one = (np.abs(values[:, n:] - values[:, :-n]).mean() for n in (1, 2))
        if near > _MOSAIC_RATIO * next_but_one + _MOSAIC_NOISE:
            _LOG.warning(
                'images of topic %s look like a Bayer mosaic, and their format %r does not say '
                'which: they are read as grey; record the debayered topic',
                self._topic,
                text,
            )

    def _check_format(self, text: str) -> None:
        """Refuse what is no picture by the format of a CompressedImage, '16UC1; png ...'."""
        words = text.lower().replace(';', ' ').split()
        if 'compresseddepth' in words or (words and is_depth(words[0], self._topic)):
            msg = f'compressed format {text!r} is depth, not a colour or grey image'
            raise UnsupportedImageError(msg)
        if codec := next((word for word in words if word in _VIDEO_FORMATS), None):
            msg = (
                f'compressed format {text!r} is a {codec} video, whose images need those before: '
                'record the raw or the compressed transport, or give a video file'
            )
            raise UnsupportedImageError(msg)


def _bayer_code(text: str) -> int | None:
    """How a CompressedImage of a mosaic gets its colours (cv2.cvtColor); None: it is none.

    Its format is 'bayer_rggb8; jpeg compressed ', with a colour behind that where it has some.
    """
    first, *rest = [*text.lower().replace(';', ' ').split(), '']
    is_made = any(word in rest for word in ('bgr8', 'rgb8', 'bgr16', 'rgb16', 'mono8'))
    is_mosaic = first.startswith('bayer_') and first in _ENCODINGS and not is_made
    return _ENCODINGS[first].code if is_mosaic else None


# In a mosaic, next but one to each other are pixels of one colour.
_MOSAIC_RATIO, _MOSAIC_NOISE = 1.3, 2.0
# Names of transports, which follow that of the camera's topic (image_transport).
_TRANSPORTS = {'compressed', 'ffmpeg', 'theora', 'foxglove'}
_MOST_NAMED = 8
# An image waits for the pose that follows it, but not for ever: odometry may end before the
# images do. Whole images wait, so that few may.
_MAX_WAITING = 8


def choose_image_topic(reader: BagReader, topic: str | None) -> str:
    """Name of the topic to read: the chosen one, else the only one with pictures.

    Topics without messages and those of depth do not count where there are others. Of a camera
    that was recorded raw and compressed, raw is read.

    Raises:
        SourceError: There is no such topic, or there are several; the message lists them.
        BagError: The bag is damaged.
    """
    topics = topics_of_type(reader, *IMAGE_TYPES)
    names = ', '.join(topics) or 'none'
    if topic is None:
        if not topics:
            others = sorted(
                {f'{c.topic} ({c.msgtype})' for c in (*reader.connections, *reader.foreign)}
            )
            text = ', '.join(others[:_MOST_NAMED]) + (', ...' if others[_MOST_NAMED:] else '')
            msg = (
                f'{reader.path} has no image topic: expected {" or ".join(IMAGE_TYPES[::2])}, '
                f'it has {text or "none"}'
            )
            raise SourceError(msg)
        matches = _only_topic(reader, topics)
        if len(matches) == 1:
            return matches[0]
        names = ', '.join(matches)
        msg = f'{reader.path} has {len(matches)} image topics ({names}): choose one with --topic'
        raise SourceError(msg)
    # Topics are absolute in a bag; users write them either way.
    match = next((name for name in topics if name.lstrip('/') == topic.lstrip('/')), None)
    if match is None:
        msg = f'{reader.path} has no image topic {topic!r}: it has {names}'
        raise SourceError(msg)
    return match


def _only_topic(reader: BagReader, topics: list[str]) -> list[str]:
    """The topics that are left after each reason to choose another one."""
    counts = reader.topics
    some = [name for name in topics if counts[name].msgcount] or topics
    if len(some) > 1:
        some = [name for name in some if not shows_depth(reader, name)] or some
    best: dict[str, str] = {}  # by the camera's name, of its transports
    for name in sorted(some, key=lambda name: IMAGE_TYPES.index(counts[name].msgtype)):
        base, _, last = name.rpartition('/')
        best.setdefault(base if last in _TRANSPORTS else name, name)
    return sorted(best.values())


def bag_images(
    reader: BagReader,
    topic: str,
    depth_topic: str = NO_DEPTH,
    depth: DepthConfig | None = None,
) -> Iterator[StampedImage]:
    """Images of one topic in the order of their receipt, with their header stamps.

    Intrinsics come from the camera_info topic that belongs to the image topic; the first
    calibration of the bag holds for the images before it too. Poses come from the bag's odometry
    or transforms (`bags.poses`), interpolated at the stamp of the image. Images that are damaged
    are left out and counted; indices count them.

    Args:
        reader: The open bag.
        topic: Topic of the images.
        depth_topic: Topic of their depth; empty: found beside them; NO_DEPTH: none is used.
        depth: How depth is read and paired.

    Raises:
        SourceError: Images are of a kind that cannot be decoded, too many are damaged, or there
            is no such depth topic.
        BagError: A message is damaged.
    """
    damage = Damage(f'topic {topic}')
    depth_source = find_depth_topic(reader, topic, depth_topic)
    stream = DepthStream(depth_source, depth) if depth_source else None
    try:
        for image in done_ahead(_decodings(reader, topic, stream, damage)):
            if image:
                yield image
        damage.check_any_left()
    finally:
        damage.tell()


class Damage:
    """Images of a source that are damaged: left out while they are few, counted and told."""

    def __init__(self, source: str) -> None:
        """Take the name of the source, such as 'topic /image'."""
        self._source = source
        self._total = self._left_out = 0
        self._first = ''

    def count(self) -> None:
        """Count an image that is whole."""
        self._total += 1

    def leave_out(self, what: str, error: Exception) -> None:
        """Count an image that is damaged.

        Raises:
            SourceError: They are too many.
        """
        self._total += 1
        self._left_out += 1
        self._first = self._first or f'{what}: {error}'
        if self._left_out > _MOST_DAMAGED + self._total // _DAMAGED_OF:
            self._refuse()

    def check_any_left(self) -> None:
        """Refuse a source of which no image was whole.

        Raises:
            SourceError: None was, of at least one.
        """
        if 0 < self._total == self._left_out:
            self._refuse()

    def _refuse(self) -> None:
        count, self._left_out = self._left_out, 0  # said once
        msg = (
            f'{count} of the first {self._total} images of {self._source} cannot be decoded; '
            f'{self._first}'
        )
        raise SourceError(msg)

    def tell(self) -> None:
        """Say in a line what was left out, if anything was."""
        if self._left_out:
            _LOG.warning(
                '%d of %d images of %s cannot be decoded and are left out; the first: %s',
                self._left_out,
                self._total,
                self._source,
                self._first,
            )


# Of so many images one may be damaged, and some more at the start.
_DAMAGED_OF = 10
_MOST_DAMAGED = 1


def _decodings(
    reader: BagReader, topic: str, depth: DepthStream | None, damage: Damage
) -> Iterator[Callable[[], StampedImage | None]]:
    """What has to be done for each image once its message and pose are there."""
    info_topic = camera_info_topic(reader, topic)
    source = pose_source(reader)
    queue = _ImageQueue(topic, source, depth, damage)
    queue.camera_info = _first_calibration(reader, info_topic)
    if depth:
        depth.camera_info = _first_calibration(reader, info_beside(reader, depth.name))
    names = (info_topic, *(source.topics if source else ()), depth.name if depth else '')
    others = readable_topics(reader, filter(None, names))
    for name, received_ns, msg in read_messages(reader, [topic, *others], queue.leave_out):
        if name == topic:
            queue.add(msg, received_ns)
        elif name == info_topic:
            queue.take_camera_info(msg)
        else:
            queue.take_other(name, msg, received_ns)
        while queue.is_ready():
            yield queue.pop()
    while queue.waiting:
        yield queue.pop()
    queue.tell()


def _first_calibration(reader: BagReader, info_topic: str) -> Any:
    """The first camera_info that is calibrated, else the first one; None: there is none."""
    first = None
    if info_topic:
        messages = read_messages(reader, readable_topics(reader, [info_topic]), _ignore)
        for _, _, msg in islice(messages, _CALIBRATION_WITHIN):
            first = first or msg
            if is_calibrated(msg):
                return msg
    return first


# Messages among which the first calibration is looked for.
_CALIBRATION_WITHIN = 3000


def _ignore(topic: str, error: Exception) -> None:
    """Leave out a damaged message; it is reported with all others at the end."""


# Of so many images one may lack its pose without a word.
_MISSING_POSES_OF = 10


class _ImageQueue:
    """Images that wait for the poses after them, and for their depth."""

    def __init__(
        self, topic: str, source: PoseSource | None, depth: DepthStream | None, damage: Damage
    ) -> None:
        self.camera_info: Any = None
        self.waiting: deque[tuple[int, int, Any]] = deque()  # (index, stamp [ns], message)
        self._topic = topic
        self._source = source
        self._depth = depth
        self._count = 0
        self._decoder = ImageDecoder(topic)
        self._damage = damage
        self._has_warned_of_lens = False
        self._missing_poses: Counter[str] = Counter()
        self._uses_receipt: bool | None = None  # as the stamp of the first image is zero
        self._delay_ns = 0  # from the stamp of the first image to its receipt
        self._newest_ns = self._backward = 0

    def add(self, msg: Any, received_ns: int) -> None:
        """Take an image that was received."""
        stamp_ns = stamp_ns_from_msg(msg.header.stamp)
        if self._uses_receipt is None:
            # Drivers that leave the stamp at zero leave only the time of receipt.
            self._uses_receipt, self._delay_ns = not stamp_ns, received_ns - stamp_ns
        stamp_ns = received_ns if self._uses_receipt else stamp_ns or received_ns - self._delay_ns
        self._backward += stamp_ns < self._newest_ns
        self._newest_ns = max(self._newest_ns, stamp_ns)
        self.waiting.append((self._count, stamp_ns, msg))
        self._count += 1

    def take_camera_info(self, msg: Any) -> None:
        """Take a camera_info; one that is not calibrated takes nothing back."""
        if self.camera_info is None or is_calibrated(msg):
            self.camera_info = msg

    def take_other(self, topic: str, msg: Any, received_ns: int) -> None:
        """Take a depth image, or a message of poses."""
        if self._depth and topic == self._depth.name:
            self._depth.take(msg, received_ns)
        elif self._source:
            self._source.take(msg, received_ns)

    def leave_out(self, topic: str, error: Exception) -> None:
        """Count an image whose message is damaged, or tell of another message.

        Raises:
            SourceError: Too many images are.
        """
        if topic != self._topic:
            tell_left_out(topic, error)
            return
        self._count += 1
        self._damage.leave_out(f'image {self._count - 1}', error)

    def is_ready(self) -> bool:
        """Whether waiting longer gains nothing for the oldest image."""
        if not self.waiting:
            return False
        if len(self.waiting) > _MAX_WAITING:
            return True
        _, stamp_ns, msg = self.waiting[0]
        has_depth = self._depth is None or self._depth.reaches(stamp_ns)
        return has_depth and (self._source is None or self._source.reaches(_frame(msg), stamp_ns))

    def pop(self) -> Callable[[], StampedImage | None]:
        """Take out the oldest image, to be decoded."""
        index, stamp_ns, msg = self.waiting.popleft()
        pose = self._source.camera_at(_frame(msg), stamp_ns) if self._source else None
        if isinstance(pose, NoPose):
            self._missing_poses[pose.reason] += 1
        camera_pose = pose if isinstance(pose, Pose) else None
        info = self.camera_info
        depth = self._depth.pick(stamp_ns) if self._depth else None
        return lambda: self._decode(_Waiting(index, stamp_ns, msg, info, camera_pose, depth))

    def tell(self) -> None:
        """Say why images have no pose, where that is more than a gap, or are unordered."""
        if self._backward:
            text = '%d of %d images of topic %s have a stamp before the one of an earlier image'
            _LOG.warning(text, self._backward, self._count, self._topic)
        count = self._missing_poses.total()
        if count > self._count // _MISSING_POSES_OF:
            reason, _ = self._missing_poses.most_common(1)[0]
            text = '%d of %d images of topic %s have no pose: %s'
            _LOG.warning(text, count, self._count, self._topic, reason)
        unpaired = self._depth.counts['unpaired'] if self._depth else 0
        if self._depth and unpaired > self._count // _MISSING_POSES_OF:
            text = '%d of %d images of topic %s have no depth: none of %s is within %g s of them'
            reach_s = self._depth.config.max_offset_s
            _LOG.warning(text, unpaired, self._count, self._topic, self._depth.name, reach_s)

    def _decode(self, image: _Waiting) -> StampedImage | None:
        """The image; None: it is damaged.

        Raises:
            SourceError: It is of a kind that cannot be decoded, or too many are damaged.
        """
        what = f'image {image.index}'
        try:
            pixels, encoded = self._decoder.decode(image.msg)
        except UnsupportedImageError as error:
            text = f'{what} of topic {self._topic!r} cannot be decoded: {error}'
            raise SourceError(text) from None
        except ImageError as error:
            self._damage.leave_out(what, error)
            return None
        self._damage.count()
        complete = StampedImage(
            image.index,
            image.stamp_ns,
            pixels,
            _frame(image.msg),
            self._intrinsics(image.camera_info, pixels),
            image.pose,
            encoded,
        )
        if self._depth is None or image.depth is None:
            return complete
        return replace(complete, depth=self._depth.complete(complete, image.depth))

    def _intrinsics(self, info: Any, pixels: NDArray[np.uint8]) -> Intrinsics | None:
        if info is None:
            return None
        height, width = pixels.shape[:2]
        try:
            return camera_of_info(
                info, (width, height), is_rectified=is_rectified_topic(self._topic)
            )
        except ImageError as error:
            if not self._has_warned_of_lens:
                _LOG.warning('the lens of topic %s is not known: %s', self._topic, error)
            self._has_warned_of_lens = True
            return None


def _frame(msg: Any) -> str:
    return msg.header.frame_id or StampedImage.frame_id


@dataclass(frozen=True)
class _Waiting:
    """An image that is to be decoded, and what is known of it."""

    index: int
    stamp_ns: int
    msg: Any
    camera_info: Any  # None: there is none
    pose: Pose | None
    depth: Any  # message of its depth; None: there is none


def camera_info_topic(reader: BagReader, topic: str) -> str:
    """Topic with the calibration of an image topic; empty: there is none.

    It lies beside the image topic (image_transport). One that lies elsewhere counts where it alone
    is of the same frame.

    Raises:
        BagError: The bag is damaged.
    """
    if sibling := info_beside(reader, topic):
        return sibling
    topics = topics_of_type(reader, 'sensor_msgs/msg/CameraInfo')
    some = [name for name in topics if reader.topics[name].msgcount]
    frame = _first_frame(reader, topic)
    same = [name for name in some if _first_frame(reader, name) == frame]
    if len(same) == 1:
        return same[0]
    if some:
        _LOG.warning(
            'the lens of topic %s is not known: none or several of %s have its frame %r',
            topic,
            ', '.join(some),
            frame,
        )
    return ''


def info_beside(reader: BagReader, topic: str) -> str:
    """The camera_info that lies beside an image topic; empty: there is none."""
    topics = topics_of_type(reader, 'sensor_msgs/msg/CameraInfo')
    # image_transport appends its plugin's name; camera_info lies beside the base topic.
    siblings = [
        base.rpartition('/')[0] + '/camera_info' for base in (topic, topic.rpartition('/')[0])
    ]
    return next((sibling for sibling in siblings if sibling in topics), '')


def _first_frame(reader: BagReader, topic: str) -> str:
    msg = first_message(reader, topic)
    return str(msg.header.frame_id).lstrip('/') if msg else ''
