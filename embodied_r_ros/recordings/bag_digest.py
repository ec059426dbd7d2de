# SPDX-License-Identifier: Apache-2.0
"""Which recording a bag is: digests over the files with its messages, whatever their names."""

from __future__ import annotations

from dataclasses import dataclass
import hashlib
from typing import TYPE_CHECKING

from embodied_r_ros.errors import BagError

if TYPE_CHECKING:
    from pathlib import Path

_PATTERNS = ('*.mcap', '*.db3', '*.mcap.*', '*.db3.*')
_PIECE = 8 * 1024 * 1024


@dataclass(frozen=True)
class BagDigest:
    """SHA-256 sums of a bag, hex."""

    files: dict[str, str]  # by file name, in order of the names
    sha256: str  # over the sums of the files: of a single file, over its sum


def bag_digest(bag: Path) -> BagDigest:
    """Digest of a rosbag2 folder, or of a bare .mcap or .db3 file.

    Raises:
        BagError: A file cannot be read.
    """
    paths = (
        {file for pattern in _PATTERNS for file in bag.glob(pattern)} if bag.is_dir() else {bag}
    )
    files = {path.name: file_sha256(path) for path in sorted(paths)}
    total = hashlib.sha256('\n'.join(files.values()).encode())
    return BagDigest(files, total.hexdigest())


def file_sha256(path: Path) -> str:
    """SHA-256 of a file, hex; it is read in pieces.

    Raises:
        BagError: It cannot be read.
    """
    digest = hashlib.sha256()
    try:
        with path.open('rb') as file:
            while piece := file.read(_PIECE):
                digest.update(piece)
    except OSError as error:
        msg = f'{path} cannot be read: {error.strerror}'
        raise BagError(msg) from None
    return digest.hexdigest()
