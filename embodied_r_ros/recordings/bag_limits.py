# SPDX-License-Identifier: Apache-2.0
"""How large what is packed in a bag may become, so that a small file cannot fill the memory.

`rosbags` unpacks whatever a file says; here its decompressors are replaced by bounded ones, for
every reader of this process.
"""

from __future__ import annotations

from contextlib import contextmanager
from io import BytesIO
import os
from types import SimpleNamespace
from typing import Any, BinaryIO, TYPE_CHECKING

from embodied_r_ros.errors import BagError
import lz4.frame  # type: ignore[import-untyped]
from rosbags.rosbag2 import reader as rosbag2_reader
from rosbags.rosbag2 import storage_mcap

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rosbags.highlevel import AnyReader

_MB = 1024 * 1024
# A raw 4K image has 24 MB; writers close a chunk after a few megabytes, or one large message.
MAX_UNPACKED = 512 * _MB  # of a chunk or a message [bytes]
# Readers hold the chunks that overlap in time together.
MAX_HELD = 2048 * _MB
# Files that are packed as a whole: black images pack well, but not that well.
_MAX_FILE_RATIO = 500

_zstd: Any = vars(storage_mcap)['zstd']  # one of two packages, by the version of Python


def _too_large(what: str, limit: int) -> BagError:
    return BagError(f'{what} unpacks to more than {limit // _MB} MB: no recorder writes that')


def unpack_zstd(data: bytes, limit: int = MAX_UNPACKED) -> bytes:
    """Unpack Zstandard data.

    Raises:
        BagError: It becomes larger than the limit [bytes].
    """
    with _zstd.open(BytesIO(data), 'rb') as file:
        unpacked: bytes = file.read(limit + 1)
    if len(unpacked) > limit:
        what = f'{len(data)} bytes of zstd'
        raise _too_large(what, limit)
    return unpacked


def unpack_lz4(data: bytes, limit: int = MAX_UNPACKED) -> bytes:
    """Unpack an LZ4 frame.

    Raises:
        BagError: It becomes larger than the limit [bytes], or is cut off.
    """
    unpacker = lz4.frame.LZ4FrameDecompressor()
    unpacked: bytes = unpacker.decompress(data, max_length=limit + 1)
    if len(unpacked) > limit:
        what = f'{len(data)} bytes of lz4'
        raise _too_large(what, limit)
    if not unpacker.eof:
        msg = f'{len(data)} bytes of lz4 are cut off'
        raise BagError(msg)
    return unpacked


@contextmanager
def _opened(packed: BinaryIO, mode: str) -> Iterator[_Counted]:
    size = os.fstat(packed.fileno()).st_size
    with _zstd.open(packed, mode) as file:
        yield _Counted(file, max(MAX_UNPACKED, size * _MAX_FILE_RATIO))


class _Counted:
    """A file that ends with an error where more is read of it than allowed."""

    def __init__(self, file: Any, limit: int) -> None:
        self._file, self._limit, self._count = file, limit, 0

    def read(self, size: int) -> bytes:
        data: bytes = self._file.read(size)
        self._count += len(data)
        if self._count > self._limit:
            what = 'a packed file'
            raise _too_large(what, self._limit)
        return data


def check_chunks(reader: AnyReader) -> None:
    """Refuse a bag whose chunks are too large, alone or together with those of the same time.

    Raises:
        BagError: They are.
    """
    for bag in reader.readers:
        storage: Any = getattr(bag, 'storage', None)
        for part in getattr(storage, 'storages', [storage]):
            _check_part(reader.paths[0], getattr(part, 'chunks', []))


def _check_part(path: Any, chunks: list[Any]) -> None:
    """Sweep over the chunks of one file in time, counting what is open."""
    steps = [(chunk.message_start_time, chunk.uncompressed_size) for chunk in chunks]
    steps += [(chunk.message_end_time + 1, -chunk.uncompressed_size) for chunk in chunks]
    held = 0
    for _, size in sorted(steps):
        held += size
        if size > MAX_UNPACKED:
            what = f'a chunk of bag {path}'
            raise _too_large(what, MAX_UNPACKED)
        if held > MAX_HELD:
            what = f'what bag {path} says was recorded at one time'
            raise _too_large(what, MAX_HELD)


def _bounded(unpack: Any) -> Any:
    # What claims its size may not become larger than that either.
    return lambda data, size: unpack(data, min(size, MAX_UNPACKED))


storage_mcap.DECOMPRESSORS.update(lz4=_bounded(unpack_lz4), zstd=_bounded(unpack_zstd))
vars(rosbag2_reader)['zstd'] = SimpleNamespace(decompress=unpack_zstd, open=_opened)
