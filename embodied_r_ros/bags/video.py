# SPDX-License-Identifier: Apache-2.0
"""Images in other messages than those of sensor_msgs: packets of videos, and Foxglove's."""

from __future__ import annotations

from collections import Counter
import logging
import re
from types import SimpleNamespace
from typing import Any

from embodied_r_ros.bags.messages import COMPRESSED_IMAGE
from embodied_r_ros.common.errors import ImageError, SourceError
from embodied_r_ros.core.types.images import image_format, MAX_PIXELS

_LOG = logging.getLogger(__name__)
# Words in the names of codecs and of encoders, and the decoder of FFmpeg.
_DECODERS = {
    '264': 'h264',
    'hevc|265': 'hevc',
    'av1': 'libdav1d',
    'vp9': 'vp9',
    'vp8': 'vp8',
    'theora': 'theora',
}
_THEORA = 'theora_image_transport/msg/Packet'
_PACKETS = {
    'foxglove_msgs/msg/CompressedVideo',
    'ffmpeg_image_transport_msgs/msg/FFMPEGPacket',
    _THEORA,
}
_STILL = {'foxglove_msgs/msg/RawImage', 'foxglove_msgs/msg/CompressedImage'}
_CHANGED = {*_PACKETS, *_STILL, COMPRESSED_IMAGE}
_START_BYTES = 16
_THEORA_HEADER = 0x80  # of the first byte of a packet
_MOST_DELAYED = 64  # packets whose images may be still to come


class Pictures:
    """Turns the messages of one topic into images of sensor_msgs, one after the other."""

    def __init__(self, topic: str, type_name: str) -> None:
        """Take the topic and its type; messages of most types stay as they are."""
        self._topic, self._type = topic, type_name
        self._decoder: Any = None
        self._headers: dict[int, Any] = {}  # of packets whose images are to come
        self._theora: list[bytes] = []
        self._counts: Counter[str] = Counter()

    def take(self, msg: Any) -> list[Any]:
        """Images that a message completes, none or more.

        Raises:
            SourceError: It is of a video that cannot be decoded here.
            ImageError: It is damaged.
        """
        if self._type not in _CHANGED:
            return [msg]
        if self._type.startswith('foxglove_msgs/'):
            header = SimpleNamespace(stamp=msg.timestamp, frame_id=msg.frame_id)
            parts = {name: getattr(msg, name) for name in msg.__dataclass_fields__}
            msg = SimpleNamespace(**parts, header=header, is_bigendian=0)
        codec = self._codec(msg)
        return self._decode(codec, msg) if codec else [msg]

    def end(self) -> list[Any]:
        """The images that are left, when there are no more messages."""
        images = self._images(None) if self._decoder else []
        if missing := self._counts['packets'] - self._counts['images']:
            text = '%d of %d packets of topic %s gave no image: no key frame is before them'
            _LOG.warning(text, missing, self._counts['packets'], self._topic)
        return images

    def _codec(self, msg: Any) -> str:
        """Name of the codec of a message; empty: it is an image by itself."""
        if self._type == _THEORA:
            return 'theora'
        words = re.split(
            '[;, ]', str(getattr(msg, 'format', getattr(msg, 'encoding', ''))).lower()
        )
        codec = next(filter(_decoder_of, words), '')
        if self._type in _PACKETS:
            return codec or words[0] or 'unknown'
        is_image = self._type in _STILL or image_format(bytes(msg.data[:_START_BYTES]))
        return '' if is_image else codec

    def _decode(self, codec: str, msg: Any) -> list[Any]:
        data = bytes(memoryview(msg.data))
        if codec == 'theora' and data and data[0] & _THEORA_HEADER:
            self._theora.append(len(data).to_bytes(2, 'big') + data)
            return []
        if self._decoder is None:
            self._decoder = self._open(codec)
        self._counts['packets'] += 1
        self._headers[self._counts['packets']] = msg.header
        while len(self._headers) > _MOST_DELAYED:
            del self._headers[next(iter(self._headers))]
        return self._images(data)

    def _images(self, data: bytes | None) -> list[Any]:
        import av

        packet = None
        if data is not None:
            packet = av.Packet(data)
            packet.pts = self._counts['packets']
        try:
            frames = self._decoder.decode(packet)
        except av.FFmpegError as error:
            if not self._counts['images']:  # it follows a key frame that is not there
                return []
            msg = f'{0 if data is None else len(data)} bytes of video cannot be decoded: {error}'
            raise ImageError(msg) from None
        return [self._image(frame) for frame in frames if not frame.is_corrupt]

    def _image(self, frame: Any) -> Any:
        if frame.width * frame.height > MAX_PIXELS:
            msg = (
                f'a video of {frame.width}x{frame.height} pixels; at most {MAX_PIXELS} are decoded'
            )
            raise ImageError(msg)
        pixels = frame.to_ndarray(format='bgr24')
        self._counts['images'] += 1
        return SimpleNamespace(
            header=self._headers.pop(frame.pts),
            height=frame.height,
            width=frame.width,
            encoding='bgr8',
            is_bigendian=0,
            step=3 * frame.width,
            data=pixels.reshape(-1),
        )

    def _open(self, codec: str) -> Any:
        what = f'topic {self._topic} ({self._type}) is {codec} video'
        try:
            import av

            decoder = av.CodecContext.create(_decoder_of(codec), 'r')
            decoder.thread_count = 1  # several hold images back
        except ImportError:
            msg = f'{what}: pip install av, which decodes it'
            raise SourceError(msg) from None
        except (ValueError, av.FFmpegError) as error:
            msg = f'{what}, which this PyAV does not decode ({error})'
            raise SourceError(msg) from None
        if self._theora:
            decoder.extradata = b''.join(self._theora)
        return decoder


def _decoder_of(codec: str) -> str:
    return next((name for words, name in _DECODERS.items() if re.search(words, codec)), '')
