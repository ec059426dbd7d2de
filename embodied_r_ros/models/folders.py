# SPDX-License-Identifier: Apache-2.0
"""A model's folder in the place of an older one, of which one or the other is always kept."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


def put_in_place(made: Path, target: Path) -> None:
    """Rename a folder to its place; what was there goes only once the new one is in.

    Args:
        made: The new folder, complete, on the same disk.
        target: Its place; may be empty, or hold an older folder.

    Raises:
        OSError: It cannot be renamed; what was there is there still.
    """
    aside = _aside(target)
    try:
        if target.exists():
            shutil.rmtree(aside, ignore_errors=True)  # of a process that was killed
            target.rename(aside)
        made.replace(target)
    finally:
        bring_back(target)
    shutil.rmtree(aside, ignore_errors=True)


def bring_back(target: Path) -> None:
    """Bring the older folder back, where a process was killed between the two renamings."""
    if not target.exists() and _aside(target).exists():
        _aside(target).rename(target)


def _aside(target: Path) -> Path:
    return target.with_name(f'.{target.name}.old')
