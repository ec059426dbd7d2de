# SPDX-License-Identifier: Apache-2.0
"""Where episodes are kept, and whether the disk has room for one."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
import shutil
import tempfile

from embodied_r_ros.config import check_settings, setting
from embodied_r_ros.errors import BagError

_MB = 1024 * 1024


@dataclass(frozen=True)
class StorageConfig:
    """Where episodes are kept."""

    bag_dir: str = setting(
        '~/embodied_r/episodes', 'folder in which each episode gets a folder', read_only=True
    )
    min_free_mb: int = setting(
        500, 'free disk space below which no episode runs [MB]', between=(0, 10_000_000)
    )
    queue_mb: int = setting(
        64, 'messages that may wait for the disk [MB]', between=(1, 4096), read_only=True
    )
    label_wait_s: float = setting(
        5.0,
        'time in which the disk has to take a label before its operator is told that it waits [s]',
        between=(0.01, 600),
    )

    def __post_init__(self) -> None:
        check_settings(self)

    def folder(self) -> Path:
        """Folder of the episodes."""
        return Path(self.bag_dir).expanduser()

    def free_mb(self) -> int:
        """Free space on the disk of the episodes [MB]; 0 where the folder is gone."""
        try:
            return shutil.disk_usage(self.folder()).free // _MB
        except OSError:
            return 0

    def check(self) -> None:
        """Make the folder and see that it can be written and has room.

        Raises:
            BagError: It cannot, or the disk is nearly full.
        """
        folder = self.folder()
        try:
            folder.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=folder):
                pass
        except OSError as error:
            msg = f'episodes cannot be written to {folder}: {error.strerror}'
            raise BagError(msg) from None
        if self.free_mb() < self.min_free_mb:
            msg = (
                f'{folder} has {self.free_mb()} MB left, {self.min_free_mb} are needed: '
                'make room, or lower min_free_mb'
            )
            raise BagError(msg)
