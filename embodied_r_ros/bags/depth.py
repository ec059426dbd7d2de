# SPDX-License-Identifier: Apache-2.0
"""Depth of a camera's images: messages as metres, their partners by stamp, and their registration.

Depth is registered where each of its pixels has the depth of what the camera sees there. Of other
depth nothing is used: it would give things the distance of what is beside them.
"""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass
from itertools import pairwise
import logging
import re
import struct
from typing import Any, TYPE_CHECKING

import cv2
from embodied_r_ros.bags.messages import (
    camera_of_info,
    header_to_msg,
    IMAGE_TYPES,
    stamp_ns_from_msg,
)
from embodied_r_ros.bags.reader import first_message, topics_of_type
from embodied_r_ros.common.errors import ImageError, SourceError, UnsupportedImageError
from embodied_r_ros.common.settings import setting, Settings
from embodied_r_ros.core.types.geometry import NS_PER_S
from embodied_r_ros.core.types.images import image_format, MAX_PIXELS
import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

    from embodied_r_ros.bags.message_types import MessageFactory
    from embodied_r_ros.bags.reader import BagReader
    from embodied_r_ros.core.types.geometry import Intrinsics
    from embodied_r_ros.core.types.images import StampedImage
    from numpy.typing import NDArray

_LOG = logging.getLogger(__name__)
# Encodings in a unit of their own, and those in metres, in lower case.
_UNITS = {'16uc1': 'u2', 'mono16': 'u2', 'z16': 'u2', 'y16': 'u2', '16sc1': 'i2', '32sc1': 'i4'}
_METRES = {'32fc1': 'f4', '64fc1': 'f8'}
# What drivers publish beside depth, in its encodings.
_OTHER_WORDS = {'confidence', 'disparity', 'normals', 'amplitude', 'intensity'}
_THERMAL_WORDS = {'thermal', 'ir', 'infrared', 'lwir', 'flir', 'boson', 'lepton', 'mono', 'gray'}


@dataclass(frozen=True)
class DepthConfig(Settings):
    """How depth is read and paired with images."""

    unit_m: float = setting(
        0.001, 'what one step of a depth image of integers is [m]', between=(1e-6, 1)
    )
    max_offset_s: float = setting(
        0.02, 'stamps of an image and its depth differ by at most this [s]', between=(0, 1)
    )


def is_depth(encoding: str, topic: str = '') -> bool:
    """Tell whether images hold distances (REP 118) instead of brightness.

    Thermal cameras use 16UC1 too: there the topic's name decides.
    """
    words = _words(topic)
    is_thermal = bool(words & _THERMAL_WORDS) and 'depth' not in words
    return encoding.lower() == '32fc1' or (encoding.lower() == '16uc1' and not is_thermal)


def _words(topic: str) -> set[str]:
    return set(re.split(r'[/_]', topic.lower()))


def depth_metres(msg: Any, unit_m: float = 0.001) -> NDArray[np.float32]:
    """Depth along the optical axis of a depth image message [m]; 0: unknown. Shape (h, w).

    Args:
        msg: A sensor_msgs Image (16UC1, 32FC1 and others), or a CompressedImage: a PNG of 16
            bits, or what compressed_depth_image_transport makes of either (png, rvl).
        unit_m: What one step of integers is [m]; numbers with a point are metres.

    Raises:
        UnsupportedImageError: It is no depth, or packed in an unknown way.
        ImageError: It is damaged.
    """
    metres = _compressed(msg, unit_m) if hasattr(msg, 'format') else _raw(msg, unit_m)
    return np.where(np.isfinite(metres) & (metres > 0), metres, np.float32(0))


def depth_metres_of_png(data: bytes, unit_m: float = 0.001) -> NDArray[np.float32]:
    """Depth of a PNG of 16 bits [m]; 0: unknown. Shape (h, w).

    Raises:
        UnsupportedImageError: It is no depth.
        ImageError: It is damaged.
    """
    return _scaled(_unpack_png(data, 'png'), unit_m)


def depth_to_msg(
    factory: MessageFactory, stamp_ns: int, frame_id: str, metres: NDArray[np.float32]
) -> Any:
    """Make a sensor_msgs Image of 16UC1, in millimetres, of depth [m]. Shape (h, w)."""
    steps = np.clip(np.rint(np.nan_to_num(metres) * 1000), 0, 0xFFFF).astype('<u2')
    return factory.make(
        'sensor_msgs/msg/Image',
        header=header_to_msg(factory, stamp_ns, frame_id),
        height=steps.shape[0],
        width=steps.shape[1],
        encoding='16UC1',
        is_bigendian=0,
        step=steps.shape[1] * 2,
        data=factory.array('uint8', steps.tobytes()),
    )


def _raw(msg: Any, unit_m: float) -> NDArray[np.float32]:
    name = str(msg.encoding).lower()
    kind = _UNITS.get(name) or _METRES.get(name)
    if kind is None:
        text = (
            f'image encoding {msg.encoding!r} is no depth: '
            f'expected one of {", ".join([*_UNITS, *_METRES])}'
        )
        raise UnsupportedImageError(text)
    dtype = np.dtype(kind).newbyteorder('>' if msg.is_bigendian else '<')
    height, width, step = int(msg.height), int(msg.width), int(msg.step)
    data = np.frombuffer(msg.data, np.uint8)
    fits = width * dtype.itemsize <= step and height * step <= data.size
    if not fits or not 0 < width * height <= MAX_PIXELS:
        text = (
            f'{msg.encoding} image of {width}x{height} pixels has {data.size} bytes in rows of '
            f'{step}: expected {height} rows of at least {width * dtype.itemsize}'
        )
        raise ImageError(text)
    rows = data[: height * step].reshape(height, step)[:, : width * dtype.itemsize]
    pixels = np.ascontiguousarray(rows).view(dtype)
    return _scaled(pixels, unit_m if name in _UNITS else 1.0)


def _scaled(pixels: NDArray[Any], unit_m: float) -> NDArray[np.float32]:
    metres = pixels.astype(np.float32)
    return metres if unit_m == 1.0 else metres * np.float32(unit_m)


_HEADER = struct.Struct('<iff')  # of compressed_depth_image_transport: format, A, B
_PNG_END = b'IEND'
_RVL_SIZE = struct.Struct('<II')


def _compressed(msg: Any, unit_m: float) -> NDArray[np.float32]:
    text, data = str(msg.format), bytes(memoryview(msg.data))
    words = text.lower().replace(';', ' ').split()
    encoding = words[0] if words else ''
    if image_format(data):  # by the usual transport, or without its text
        codec, a, b = 'png', 0.0, 0.0
    elif len(data) > _HEADER.size:
        _, a, b = _HEADER.unpack_from(data)
        data = data[_HEADER.size :]
        codec = words[-1] if words and words[-1] in {'png', 'rvl'} else 'png'
    else:
        msg_text = f'{len(data)} bytes are no depth image: damaged or cut off'
        raise ImageError(msg_text)
    if encoding not in _UNITS and encoding not in _METRES and 'compresseddepth' in words:
        msg_text = f'compressed format {text!r} is no depth: expected 16UC1 or 32FC1'
        raise UnsupportedImageError(msg_text)
    steps = _unpack_rvl(data) if codec == 'rvl' else _unpack_png(data, text)
    if encoding not in _METRES:
        return _scaled(steps, unit_m)
    if not a:
        msg_text = f'compressed format {text!r} lacks the header that says what its steps are'
        raise UnsupportedImageError(msg_text)
    # Steps of inverse depth, so that what is near is finer.
    with np.errstate(divide='ignore', invalid='ignore'):
        metres = np.float32(a) / (steps.astype(np.float32) - np.float32(b))
    return np.where(steps > 0, metres, np.float32(0))


def _unpack_png(data: bytes, text: str) -> NDArray[np.uint16]:
    if image_format(data) != 'png':
        msg = f'compressed format {text!r} is no depth: expected a PNG of 16 bits, or rvl'
        raise UnsupportedImageError(msg)
    width, height = int.from_bytes(data[16:20], 'big'), int.from_bytes(data[20:24], 'big')
    is_sound = 0 < width * height <= MAX_PIXELS and _PNG_END in data
    raw = cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_UNCHANGED) if is_sound else None
    if raw is None:
        msg = f'{len(data)} bytes of a depth image cannot be decoded: damaged or cut off'
        raise ImageError(msg)
    if raw.ndim != 2 or raw.dtype != np.uint16:
        msg = f'a PNG of {raw.dtype} and shape {raw.shape} is no depth: expected grey, 16 bits'
        raise UnsupportedImageError(msg)
    return np.asarray(raw, np.uint16)


def _unpack_rvl(data: bytes) -> NDArray[np.uint16]:
    """Steps of an image packed by Wilson's RVL: runs of unknown pixels, then of differences.

    Raises:
        ImageError: It is damaged.
    """
    damaged = ImageError(f'{len(data)} bytes of rvl cannot be decoded: damaged or cut off')
    if len(data) < _RVL_SIZE.size:
        raise damaged
    width, height = _RVL_SIZE.unpack_from(data)
    size = width * height
    words = np.frombuffer(data[_RVL_SIZE.size : len(data) // 4 * 4], '<u4')
    # A number is at least a group of 4 bits and a run two; a row may be all unknown.
    if not 0 < size <= MAX_PIXELS or not len(words):
        raise damaged
    groups = ((words[:, None] >> np.arange(28, -4, -4, dtype=np.uint32)) & 15).ravel()
    numbers = _numbers_of_groups(groups.astype(np.int64))
    steps = np.zeros(size, np.int32)
    at = place = 0
    previous = 0
    while place < size:
        if at + 2 > len(numbers):
            raise damaged
        zeros, known = int(numbers[at]), int(numbers[at + 1])
        at, place = at + 2, place + zeros
        if place + known > size or at + known > len(numbers):
            raise damaged
        folded = numbers[at : at + known]
        run = previous + np.cumsum((folded >> 1) ^ -(folded & 1))
        steps[place : place + known] = run
        previous = int(run[-1]) if known else previous
        at, place = at + known, place + known
        if not zeros and not known:  # nothing follows: what is left of the last word
            raise damaged
    return (steps & 0xFFFF).astype(np.uint16).reshape(height, width)


def _numbers_of_groups(groups: NDArray[np.int64]) -> NDArray[np.int64]:
    """Numbers of groups of 3 bits, the lowest first; the fourth bit says that more follow."""
    is_last = groups < 8
    ends = np.flatnonzero(is_last)
    if not len(ends):
        return np.zeros(0, np.int64)
    groups = groups[: ends[-1] + 1]
    number = np.concatenate([[0], np.cumsum(is_last[: ends[-1]])])
    starts = np.concatenate([[0], ends[:-1] + 1])
    shift = 3 * (np.arange(len(groups)) - starts[number])
    bits = np.where(shift < 60, (groups & 7) << np.minimum(shift, 60), 0)
    return np.bincount(number, bits.astype(np.float64)).astype(np.int64)


_SAME_ASPECT = 0.02
_SAME_FOCAL = 0.03  # share by which focal lengths may differ
_SAME_CENTRE = 0.03  # of the width


def why_unregistered(
    depth: tuple[str, tuple[int, int], Intrinsics | None],
    image: tuple[str, tuple[int, int], Intrinsics | None],
) -> str:
    """Why depth is not of the view of an image; empty: it is, as far as can be told.

    Args:
        depth: Frame, width and height [px] and intrinsics of the depth image; None: not known.
        image: The same of the image.
    """
    (depth_frame, (w, h), depth_lens), (frame, (width, height), lens) = depth, image
    if depth_frame.lstrip('/') != frame.lstrip('/'):
        return f'depth is of frame {depth_frame!r}, the images of {frame!r}'
    if why := why_other_view((w, h), (width, height)):
        return why
    if depth_lens is None or lens is None:
        return ''
    a, b = depth_lens.scaled(width, height), lens.scaled(width, height)
    off = max(abs(a.fx / b.fx - 1), abs(a.fy / b.fy - 1)) / _SAME_FOCAL
    off = max(off, max(abs(a.cx - b.cx), abs(a.cy - b.cy)) / width / _SAME_CENTRE)
    if off > 1:
        return (
            f'the lens of depth has f {a.fx:.0f}, {a.fy:.0f} and centre {a.cx:.0f}, {a.cy:.0f}, '
            f'that of the images f {b.fx:.0f}, {b.fy:.0f} and centre {b.cx:.0f}, {b.cy:.0f} [px]'
        )
    return ''


def why_other_view(depth_size: tuple[int, int], size: tuple[int, int]) -> str:
    """Why depth of a width and height cannot be of the view of images of others [px]; empty."""
    (w, h), (width, height) = depth_size, size
    if abs(w * height / (h * width) - 1) > _SAME_ASPECT:
        return f'depth is of {w}x{h} pixels, the images of {width}x{height}: another view'
    return ''


NO_DEPTH = 'none'  # name of a depth topic that says that none is to be used
_TRANSPORTS = ('/compressedDepth', '/compressed')
_REGISTERED_WORDS = ('aligned_depth', 'depth_registered', 'depth_to_rgb', 'depth_to_color')


def shows_depth(reader: BagReader, topic: str) -> bool:
    """Tell by its first message and its name whether a topic holds distances, and no picture."""
    msg = first_message(reader, topic)
    parts = str(getattr(msg, 'format', getattr(msg, 'encoding', ''))).lower().split(';')
    encoding = parts[0].strip()
    is_named = 'depth' in _words(topic) and encoding in _UNITS
    return 'compresseddepth' in parts[-1] or is_depth(encoding, topic) or is_named


def find_depth_topic(reader: BagReader, image_topic: str, wanted: str = '') -> str:
    """Topic with the depth of an image topic; empty: there is none.

    It is one of the same frame and proportions; of several, one whose name says that it is
    registered, else that which lies nearest to the image topic. Where there is depth, and none
    is registered, a line says why.

    Args:
        reader: The open bag.
        image_topic: Topic of the images.
        wanted: Name of the topic; empty: find it; NO_DEPTH: use none.

    Raises:
        SourceError: There is no such topic.
        BagError: The bag is damaged.
    """
    if wanted == NO_DEPTH:
        return ''
    counts = reader.topics
    topics = [name for name in topics_of_type(reader, *IMAGE_TYPES) if counts[name].msgcount]
    if wanted:
        match = next((name for name in topics if name.lstrip('/') == wanted.lstrip('/')), None)
        if match is None:
            msg = f'{reader.path} has no depth topic {wanted!r}: it has {", ".join(topics)}'
            raise SourceError(msg)
        return match
    reasons = {
        name: _why_not_of_view(reader, name, image_topic)
        for name in topics
        if name != image_topic and not _words(name) & _OTHER_WORDS and shows_depth(reader, name)
    }
    registered = [name for name, why in reasons.items() if not why]
    if not registered and reasons:
        name = next(iter(reasons))
        _LOG.warning('depth of %s is not used: %s', ', '.join(reasons), reasons[name])
    return max(registered, key=lambda name: _closeness(name, image_topic), default='')


def _why_not_of_view(reader: BagReader, topic: str, image_topic: str) -> str:
    depth, image = first_message(reader, topic), first_message(reader, image_topic)
    frame, own = [str(msg.header.frame_id).lstrip('/') if msg else '' for msg in (depth, image)]
    if frame and own and frame != own:
        return f'it has the frame {frame!r} and the images {own!r}: it is not registered to them'
    return ''


def _closeness(topic: str, image_topic: str) -> tuple[bool, int, bool, str]:
    """Sort key of a depth topic, the largest for the best."""
    parts, others = topic.split('/'), image_topic.split('/')
    shared = next(
        (i for i, pair in enumerate(zip(parts, others, strict=False)) if pair[0] != pair[1]), 0
    )
    is_registered = any(word in topic for word in _REGISTERED_WORDS)
    return is_registered, shared, not topic.endswith(_TRANSPORTS), topic


_KEPT = 16  # depth images that may wait for theirs
_USUAL_M = (0.03, 200.0)  # medians outside are those of another unit


class DepthStream:
    """The depth images of one camera, which wait for the images at their stamps.

    `take`, `pick` and `reaches` are called by one thread in turn; `complete` by any one.
    """

    def __init__(
        self,
        name: str,
        config: DepthConfig | None = None,
        tell: Callable[[str], None] = _LOG.warning,
    ) -> None:
        """Take the name of the topic, and what says once what is wrong."""
        self.name = name
        self.config = config or DepthConfig()
        self.camera_info: Any = None
        # Of images: paired, unpaired, unregistered, damaged; and depth images that no image took.
        self.counts: Counter[str] = Counter(
            paired=0, unpaired=0, unregistered=0, damaged=0, unused=0
        )
        self._tell = tell
        self._waiting: deque[_DepthImage] = deque()
        self._problems: set[str] = set()

    def take(self, msg: Any, received_ns: int = 0) -> None:
        """Take a depth image; a stamp of zero is that of its receipt [ns]."""
        stamp_ns = stamp_ns_from_msg(msg.header.stamp) or received_ns
        if self._waiting and stamp_ns < self._waiting[-1].stamp_ns - NS_PER_S:
            self._waiting.clear()  # the clock was set, or a recording starts again
        self._waiting.append(_DepthImage(stamp_ns, msg))
        if len(self._waiting) > _KEPT:
            self.counts['unused'] += not self._waiting.popleft().is_used

    def reaches(self, stamp_ns: int) -> bool:
        """Tell whether waiting longer gains no nearer partner for a stamp."""
        if not self._waiting:
            return False
        stamps = sorted(image.stamp_ns for image in self._waiting)
        if stamps[-1] >= stamp_ns:
            return True
        # Depth is often slower than the images: then the next one is not of this image.
        period_ns = min((b - a for a, b in pairwise(stamps) if b > a), default=0)
        return stamps[-1] + period_ns > stamp_ns + self.config.max_offset_s * NS_PER_S

    def pick(self, stamp_ns: int) -> Any:
        """The depth message nearest to a stamp; None: none is near enough."""
        nearest = self._nearest(stamp_ns)
        max_ns = self.config.max_offset_s * NS_PER_S
        if nearest is None or abs(nearest.stamp_ns - stamp_ns) > max_ns:
            self.counts['unpaired'] += 1
            return None
        nearest.is_used = True
        return nearest.msg

    def complete(self, image: StampedImage, msg: Any) -> NDArray[np.float32] | None:
        """Depth of an image [m], shape (h, w), of the message that is its partner.

        None where the message is damaged, or not registered to the image; that is said once.
        """
        try:
            metres = depth_metres(msg, self.config.unit_m)
        except ImageError as error:
            self.counts['damaged'] += 1
            self._say_once('damaged', f'depth of {self.name} cannot be read: {error}')
            return None
        height, width = metres.shape
        rows, columns = image.image.shape[:2]
        why = why_unregistered(
            (msg.header.frame_id or image.frame_id, (width, height), self._lens(width, height)),
            (image.frame_id, (columns, rows), image.intrinsics),
        )
        if why:
            self.counts['unregistered'] += 1
            text = f'depth of {self.name} is not used: it is not registered to the images: {why}'
            self._say_once('unregistered', text)
            return None
        self.counts['paired'] += 1
        self._check_unit(metres)
        return metres

    def _check_unit(self, metres: NDArray[np.float32]) -> None:
        if 'unit' in self._problems or self.counts['paired'] % _KEPT != 1:
            return
        known = metres[::8, ::8][metres[::8, ::8] > 0]
        middle = float(np.median(known)) if known.size else 1.0
        if not _USUAL_M[0] <= middle <= _USUAL_M[1]:
            text = f'depth of {self.name} is {middle:.3g} m in the middle: is its unit right?'
            self._say_once('unit', text)

    def _lens(self, width: int, height: int) -> Intrinsics | None:
        if self.camera_info is None:
            return None
        try:
            return camera_of_info(self.camera_info, (width, height))
        except ImageError:
            return None

    def _nearest(self, stamp_ns: int) -> _DepthImage | None:
        return min(self._waiting, key=lambda image: abs(image.stamp_ns - stamp_ns), default=None)

    def _say_once(self, kind: str, text: str) -> None:
        if kind not in self._problems:
            self._problems.add(kind)
            self._tell(text)


@dataclass
class _DepthImage:
    stamp_ns: int
    msg: Any
    is_used: bool = False
