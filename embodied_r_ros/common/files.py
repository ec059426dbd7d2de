# SPDX-License-Identifier: Apache-2.0
"""Files that appear whole or not at all, and folders for what is made."""

from __future__ import annotations

from contextlib import suppress
import os
from pathlib import Path
import tempfile

from embodied_r_ros.common.errors import InputError


def write_whole(path: Path, data: bytes | str, *, makes_folder: bool = False) -> None:
    """Write a file under a temporary name beside it, and rename it when it is complete.

    Args:
        path: The file.
        data: What it holds; text is written as UTF-8.
        makes_folder: Make the folder of the file where there is none.

    Raises:
        InputError: It cannot be written.
    """
    data = data.encode() if isinstance(data, str) else data
    unfinished = path.with_name(path.name + '.tmp')
    try:
        if makes_folder:
            path.parent.mkdir(parents=True, exist_ok=True)
        with unfinished.open('wb') as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())  # or a power cut may leave an empty file under its name
        unfinished.replace(path)
    except OSError as error:
        with suppress(OSError):
            unfinished.unlink(missing_ok=True)
        msg = f'cannot write {path}: {error.strerror}'
        raise InputError(msg) from None


def write_new(path: Path, data: bytes | str) -> None:
    """Write a file whole that is not there yet, its folder too; of two who try, one does.

    Raises:
        FileExistsError: It is there.
        OSError: It cannot be written.
    """
    data = data.encode() if isinstance(data, str) else data
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=path.parent, prefix='.') as folder:
        whole = Path(folder) / path.name
        write_whole(whole, data)
        try:
            path.hardlink_to(whole)  # unlike a renaming it fails where there is one
        except FileExistsError:
            raise
        except OSError:  # a share that has no links
            with path.open('xb') as file:
                file.write(data)


def make_empty_folder(folder: Path) -> None:
    """Make a folder, or take one that is empty.

    Raises:
        InputError: It is a file, holds something, or cannot be made.
    """
    try:
        is_taken = folder.exists() and not (folder.is_dir() and not any(folder.iterdir()))
        if not is_taken:
            folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        msg = f'cannot write to {folder}: {error.strerror}'
        raise InputError(msg) from None
    if is_taken:
        msg = f'{folder} is not an empty folder: remove it, or choose another'
        raise InputError(msg)
