# SPDX-License-Identifier: Apache-2.0
"""Who works on a bag: the folder of a bag that is being written, or recovered, is locked.

The kernel lets go of the lock when its process ends, however it ends.
"""

from __future__ import annotations

import fcntl
import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


class BagLock:
    """Holds a folder until it is closed."""

    def __init__(self, folder: Path, kind: int = fcntl.LOCK_EX) -> None:
        """Lock a folder.

        Args:
            folder: Of a bag.
            kind: LOCK_EX to work on it, LOCK_SH to see whether somebody does.

        Raises:
            BlockingIOError: Somebody else holds it.
            OSError: It is not there, or its disk knows no locks.
        """
        self._descriptor: int | None = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.flock(self._descriptor, kind | fcntl.LOCK_NB)
        except OSError:
            self.close()
            raise

    def __enter__(self) -> BagLock:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the folder; again does nothing."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            os.close(descriptor)


def is_locked(folder: Path) -> bool:
    """Tell whether somebody works on a folder."""
    try:
        BagLock(folder, fcntl.LOCK_SH).close()
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False
