# SPDX-License-Identifier: Apache-2.0
"""Unpacking what is in bags, however large it claims to be."""

from __future__ import annotations

from io import BytesIO
import sys
from typing import TYPE_CHECKING

from embodied_r_ros.common.errors import BagError
import lz4.frame  # type: ignore[import-untyped]

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

if TYPE_CHECKING:
    from pathlib import Path

_MB = 1024 * 1024
# A raw 4K image has 24 MB; writers close a chunk after a few megabytes, or one large message.
MAX_UNPACKED = 512 * _MB  # of a chunk or a message [bytes]
# Readers hold the chunks that overlap in time together.
MAX_HELD = 2048 * _MB
# Files that are packed as a whole: black images pack well, but not that well.
_MAX_FILE_RATIO = 500
_PIECE = 4 * _MB
ZSTD_MAGIC = b'\x28\xb5\x2f\xfd'


def unpack_zstd(data: bytes, limit: int = MAX_UNPACKED) -> bytes:
    """Unpack Zstandard data.

    Raises:
        BagError: It becomes larger than the limit [bytes].
    """
    with zstd.open(BytesIO(data), 'rb') as file:
        unpacked: bytes = file.read(limit + 1)
    if len(unpacked) > limit:
        what = f'{len(data)} bytes of zstd'
        raise size_error(what, limit)
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
        raise size_error(what, limit)
    if not unpacker.eof:
        msg = f'{len(data)} bytes of lz4 are cut off'
        raise BagError(msg)
    return unpacked


def unpack_bz2(data: bytes, limit: int = MAX_UNPACKED) -> bytes:
    """Unpack bzip2 data.

    Raises:
        BagError: It becomes larger than the limit [bytes].
    """
    from bz2 import BZ2Decompressor

    unpacker = BZ2Decompressor()
    unpacked = unpacker.decompress(data, max_length=limit + 1)
    if len(unpacked) > limit:
        what = f'{len(data)} bytes of bz2'
        raise size_error(what, limit)
    if not unpacker.eof:
        msg = f'{len(data)} bytes of bz2 are cut off'
        raise BagError(msg)
    return unpacked


def size_error(what: str, limit: int) -> BagError:
    """What unpacks to more than a limit [bytes], as an error."""
    return BagError(f'{what} unpacks to more than {limit // _MB} MB: no recorder writes that')


def unpack_file(path: Path, folder: Path) -> Path:
    """Unpack a Zstandard file into a folder.

    Raises:
        BagError: It is damaged, unpacks to more than a recorder writes, or there is no room.
    """
    target = folder / path.stem
    if target.exists():  # it was packed again and again
        msg = f'{path.name} is packed more than twice: unpack it first'
        raise BagError(msg)
    limit = max(MAX_UNPACKED, path.stat().st_size * _MAX_FILE_RATIO)
    count = 0
    try:
        with path.open('rb') as packed, zstd.open(packed, 'rb') as file, target.open('wb') as out:
            while piece := file.read(_PIECE):
                count += len(piece)
                if count > limit:
                    raise size_error(str(path), limit)
                out.write(piece)
    except OSError as error:
        msg = f'{path} cannot be unpacked to {folder}: {error.strerror or error}: make room'
        raise BagError(msg) from None
    except (zstd.ZstdError, EOFError) as error:
        msg = f'{path} cannot be unpacked ({error}): it is cut off or damaged, copy it again'
        raise BagError(msg) from None
    return target
