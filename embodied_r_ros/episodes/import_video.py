# SPDX-License-Identifier: Apache-2.0
"""Videos of datasets: frames by number, each decoded once where episodes come in order."""

from __future__ import annotations

from contextlib import contextmanager
from typing import Any, TYPE_CHECKING

from embodied_r_ros.common.errors import ConfigError, EmbodiedRError, InputError
import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from numpy.typing import NDArray


class VideoFrames:
    """The frames of a video, in order of time. One reader at a time."""

    def __init__(self, path: Path) -> None:
        """Open a video and list its frames, without decoding any.

        Raises:
            ConfigError: PyAV is missing.
            InputError: It is no video that can be read.
        """
        try:
            import av
        except ImportError:
            msg = 'videos of LeRobot need the library av: pip install av'
            raise ConfigError(msg) from None
        self.path = path
        self.decoded = 0  # frames so far
        self._coming: Iterator[Any] = iter(())
        self._next_tick: float = np.inf  # no frame before it comes any more
        with self._readable():
            self._container = av.open(str(path))
            self._stream = self._container.streams.video[0]
            # Otherwise decoders make up what is damaged.
            self._stream.codec_context.options = {'err_detect': 'explode'}
            packets = [
                (packet.pts, packet.is_keyframe)
                for packet in self._container.demux(self._stream)
                if packet.pts is not None and not packet.is_discard
            ]
            base = float(self._stream.time_base)
        self._ticks = sorted({tick for tick, _ in packets})
        self._keys = np.array(sorted(tick for tick, is_key in packets if is_key), np.int64)
        self.seconds: NDArray[np.float64] = np.array(self._ticks, np.float64) * base  # (N,)

    def __len__(self) -> int:
        """Give the number of frames."""
        return len(self._ticks)

    def close(self) -> None:
        """Close the file."""
        self._container.close()

    def read(self, first: int, count: int) -> Iterator[NDArray[np.uint8]]:
        """Some frames in order, BGR (H, W, 3).

        Where the last call ended before them, decoding goes on from there, unless a keyframe lies
        between; otherwise it begins at the keyframe before them.

        Raises:
            InputError: One cannot be decoded.
        """
        with self._readable():
            self._go_to(self._ticks[first])
        for number in range(first, first + count):
            with self._readable(f', frame {number},'):
                image = self._image(self._ticks[number])
            if image is None:
                msg = f'{self.path}, frame {number}, cannot be decoded: the video is damaged'
                raise InputError(msg)
            yield image

    def _go_to(self, tick: int) -> None:
        keys = self._keys[self._keys <= tick]
        key = int(keys[-1]) if len(keys) else self._ticks[0]
        if key <= self._next_tick <= tick:
            return
        self._container.seek(key, stream=self._stream)
        self._coming = self._container.decode(self._stream)
        self._next_tick = key

    def _image(self, tick: int) -> NDArray[np.uint8] | None:
        """The frame of a tick; None: the decoder does not give it whole."""
        for frame in self._coming:
            self.decoded += 1
            if frame.pts is None:
                continue
            self._next_tick = frame.pts + 1
            if frame.pts >= tick:
                is_whole = frame.pts == tick and not frame.is_corrupt
                return np.asarray(frame.to_ndarray(format='bgr24'), np.uint8) if is_whole else None
        return None

    @contextmanager
    def _readable(self, where: str = '') -> Iterator[None]:
        try:
            yield
        except EmbodiedRError:
            raise
        except Exception as error:  # whatever a damaged file makes of the library
            text = ' '.join(str(error).split()) or type(error).__name__
            self._next_tick = np.inf  # the decoder is of no use any more
            msg = f'{self.path}{where} cannot be read as a video: {text}'
            raise InputError(msg) from None
