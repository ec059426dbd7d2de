# SPDX-License-Identifier: Apache-2.0
"""The film of a recording: pictures of all its cameras by their stamps, as JPEG."""

from __future__ import annotations

from dataclasses import dataclass
import os
import tempfile
import threading
from typing import Any, TYPE_CHECKING

from embodied_r_ros.apps.sheet import with_fixed
from embodied_r_ros.bags.depth import shows_depth
from embodied_r_ros.bags.images import ImageDecoder
from embodied_r_ros.bags.messages import encoded_image_from_msg, IMAGE_TYPES, stamp_ns_from_msg
from embodied_r_ros.bags.reader import open_bag, read_messages, topics_of_type
from embodied_r_ros.common.errors import EmbodiedRError, ImageError
from embodied_r_ros.core.types.images import decode_image, encode_image, image_format
from embodied_r_ros.data.episodes.contents import keyframe_topics
from embodied_r_ros.data.own_messages import keyframe_from_msg

if TYPE_CHECKING:
    from pathlib import Path

    from embodied_r_ros.bags.reader import BagReader
    from embodied_r_ros.core.types.keyframes import Keyframe

MOST_SHOTS = 1500  # of a camera: of more images, every second, third, … is shown
_SIDE_PX, _QUALITY = 960, 85
_COMPRESSED = '/compressed'
_POSTERS, _POSTER_PX = 6, 240


@dataclass(frozen=True)
class Shot:
    """A picture in the film."""

    stamp_ns: int
    offset: int  # of its JPEG in the film's file
    size: int


@dataclass(frozen=True)
class KeyframeMark:
    """A keyframe on the time line."""

    id: int
    camera: str
    stamp_ns: int
    reason: str
    overlap: float | None


class Film:
    """Pictures that are read from a recording in a thread of their own, in one pass.

    They lie in a file without a name, so that memory stays flat and nothing is left behind.
    """

    def __init__(self, bag: Path) -> None:
        """Start to read."""
        self.shots: dict[str, list[Shot]] = {}  # by camera
        self.keyframes: list[KeyframeMark] = []
        self.problem = ''  # why it is not whole
        self._bag = bag
        self._file = tempfile.TemporaryFile(prefix='embodied-r-film-')  # noqa: SIM115
        self._end = 0
        self._lock = threading.Lock()
        self._is_closed = threading.Event()
        self._is_whole = threading.Event()
        self._thread = threading.Thread(target=self._run, name='film', daemon=True)
        self._thread.start()

    def wait(self, timeout_s: float) -> bool:
        """Wait for the end of the film; tells whether it is there."""
        return self._is_whole.wait(timeout_s)

    def picture(self, camera: str, number: int) -> bytes | None:
        """A JPEG; None: there is none."""
        with self._lock:
            shots = self.shots.get(camera, [])
            if self._is_closed.is_set() or not 0 <= number < len(shots):
                return None
            shot = shots[number]
            return os.pread(self._file.fileno(), shot.size, shot.offset)

    def stamps(self) -> dict[str, list[int]]:
        """Stamps of the pictures so far, by camera."""
        with self._lock:
            return {name: [shot.stamp_ns for shot in shots] for name, shots in self.shots.items()}

    def close(self) -> None:
        """Stop reading, and give the file back."""
        self._is_closed.set()
        self._thread.join()
        with self._lock:
            self._file.close()

    def _run(self) -> None:
        try:
            with open_bag(self._bag) as reader:
                self._read(reader)
        except (
            Exception
        ) as error:  # whatever a damaged file makes of its readers: the rest is shown
            self.problem = ' '.join(f'the film is cut short: {error}'.split())
        with self._lock:
            for shots in self.shots.values():
                shots.sort(key=lambda shot: shot.stamp_ns)
            self.keyframes.sort(key=lambda mark: mark.stamp_ns)
        self._is_whole.set()

    def _read(self, reader: BagReader) -> None:
        images = {topic: _every(reader, topic) for topic in film_topics(reader)}
        decoders = {topic: ImageDecoder(topic) for topic in images}
        counts = dict.fromkeys(images, 0)
        keyframes = keyframe_topics(reader)
        for topic, time_ns, msg in read_messages(reader, [*images, *keyframes], _leave_out):
            if self._is_closed.is_set():
                return
            if topic in images:
                if counts[topic] % images[topic] == 0:
                    stamp_ns = stamp_ns_from_msg(msg.header.stamp) or time_ns
                    data = _jpeg(msg, decoders[topic])
                    self._add(topic.removesuffix(_COMPRESSED).lstrip('/'), stamp_ns, data)
                counts[topic] += 1
            elif keyframe := read_keyframe(msg):
                self._take(keyframe, with_picture=not images)

    def _take(self, keyframe: Keyframe, *, with_picture: bool) -> None:
        reason = keyframe.reason.label.replace('_', ' ')
        at = keyframe.stamp_ns
        mark = KeyframeMark(keyframe.id, keyframe.camera, at, reason, keyframe.overlap)
        with self._lock:
            self.keyframes.append(mark)
        if with_picture and keyframe.image.data:
            self._add(keyframe.camera, at, jpeg_of_keyframe(keyframe))

    def _add(self, camera: str, stamp_ns: int, data: bytes) -> None:
        if not data:
            return
        os.pwrite(self._file.fileno(), data, self._end)
        with self._lock:
            self.shots.setdefault(camera, []).append(Shot(stamp_ns, self._end, len(data)))
        self._end += len(data)


def film_topics(reader: BagReader) -> list[str]:
    """Topics of pictures; of a camera that was recorded raw and compressed, the latter."""
    topics = [
        topic
        for topic in topics_of_type(reader, *IMAGE_TYPES)
        if reader.topics[topic].msgcount and not shows_depth(reader, topic)
    ]
    return [topic for topic in topics if topic + _COMPRESSED not in topics]


def _every(reader: BagReader, topic: str) -> int:
    """One of how many images is shown."""
    return 1 + reader.topics[topic].msgcount // MOST_SHOTS


def _leave_out(topic: str, error: Exception) -> None:
    """Continue after a damaged message: a film with a gap is better than none."""


def _jpeg(msg: Any, decoder: ImageDecoder) -> bytes:
    """The picture of an image message; empty: it is none."""
    try:
        if hasattr(msg, 'format'):
            encoded = encoded_image_from_msg(msg)
            if image_format(encoded.data) == 'jpeg':
                return encoded.data
        return encode_image(decoder.decode(msg)[0], _QUALITY, _SIDE_PX).data
    except (ImageError, ValueError, ArithmeticError):
        return b''


def read_keyframe(msg: Any) -> Keyframe | None:
    """The keyframe of a message; None: it is damaged."""
    try:
        return keyframe_from_msg(msg)
    except (EmbodiedRError, ValueError, ArithmeticError):
        return None


def jpeg_of_keyframe(keyframe: Keyframe) -> bytes:
    """The picture of a keyframe, what is fixed to the camera hatched; empty: it is none."""
    if image_format(keyframe.image.data) == 'jpeg' and keyframe.fixed_mask is None:
        return keyframe.image.data
    try:
        picture = with_fixed(keyframe.image.decode(), keyframe.fixed_mask)
        return encode_image(picture, _QUALITY, _SIDE_PX).data
    except (ImageError, ValueError):
        return b''


def posters(bag: Path) -> list[bytes]:
    """A few small pictures of a recording, evenly in time, for the list of recordings.

    Of a recording without keyframes, the first image alone: others would need all to be read.

    Raises:
        BagError: It is no readable bag.
    """
    chosen: list[Any] = []
    stride = count = 0
    with open_bag(bag) as reader:
        if topics := keyframe_topics(reader):
            stride = 1
            for _, _, msg in read_messages(reader, topics, _leave_out):
                if count % stride == 0 and len(msg.image.data):
                    chosen.append(msg)
                if len(chosen) > 2 * _POSTERS:
                    chosen, stride = chosen[::2], 2 * stride
                count += 1
            keyframes = [keyframe for msg in chosen if (keyframe := read_keyframe(msg))]
            if small := [_small(jpeg_of_keyframe(one)) for one in _evenly(keyframes)]:
                return [data for data in small if data]
        for topic in film_topics(reader)[:1]:
            for _, _, msg in read_messages(reader, [topic], _leave_out):
                data = _jpeg(msg, ImageDecoder(topic))
                return [_small(data)] if data else []
    return []


def _evenly(items: list[Keyframe]) -> list[Keyframe]:
    step = max(1, -(-len(items) // _POSTERS))
    return items[::step]


def _small(data: bytes) -> bytes:
    try:
        return encode_image(decode_image(data), 75, _POSTER_PX).data
    except (ImageError, ValueError):
        return b''
