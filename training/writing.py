# SPDX-License-Identifier: Apache-2.0
"""Files that are there as a whole or not at all."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from embodied_r_ros.common.errors import InputError

if TYPE_CHECKING:
    from pathlib import Path


def write_text(path: Path, text: str) -> None:
    """Write a file under a temporary name, then rename it; what was there is replaced.

    Raises:
        InputError: It cannot be written.
    """
    unfinished = path.with_name(path.name + '.tmp')
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        unfinished.write_text(text, encoding='utf-8')
        unfinished.replace(path)
    except OSError as error:
        msg = f'cannot write {path}: {error.strerror}'
        raise InputError(msg) from None
    finally:
        with suppress(OSError):  # where it could not be made, it cannot be removed
            unfinished.unlink(missing_ok=True)
