# SPDX-License-Identifier: Apache-2.0
"""The files of a store: in a folder that several machines see, or behind fsspec."""

from __future__ import annotations

from contextlib import suppress
import shutil
from typing import Protocol, TYPE_CHECKING

from embodied_r_ros.common.errors import ConfigError
from embodied_r_ros.common.files import write_new, write_whole

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_PIECE = 1024 * 1024


class StoreFiles(Protocol):
    """The files of a store, by names like `models/a/b`; a missing one is a FileNotFoundError."""

    def read(self, name: str) -> bytes:
        """Content of a small file."""

    def pieces(self, name: str) -> Iterator[bytes]:
        """Content of a file, a piece at a time."""

    def write(self, name: str, data: bytes, *, is_new: bool = False) -> None:
        """Write a small file whole; `is_new` raises a FileExistsError where there is one."""

    def send(self, path: Path, name: str) -> None:
        """Send a file, which appears when it is complete where the store can do that."""

    def size(self, name: str) -> int:
        """Size of a file [bytes]."""

    def names(self, folder: str) -> list[str]:
        """Names of the files in a folder, in any order; none where there is no such folder."""


class FolderFiles:
    """Files in a folder, of which none is seen half written."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def read(self, name: str) -> bytes:
        """Content of a small file."""
        return (self._folder / name).read_bytes()

    def pieces(self, name: str) -> Iterator[bytes]:
        """Content of a file, a piece at a time."""
        with (self._folder / name).open('rb') as file:
            while piece := file.read(_PIECE):
                yield piece

    def write(self, name: str, data: bytes, *, is_new: bool = False) -> None:
        """Write a small file whole; `is_new` raises a FileExistsError where there is one."""
        path = self._folder / name
        if is_new:
            write_new(path, data)
        else:
            write_whole(path, data, makes_folder=True)

    def send(self, path: Path, name: str) -> None:
        """Send a file, which appears when it is complete where the store can do that."""
        target = self._folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        unfinished = target.with_name(target.name + '.tmp')
        shutil.copyfile(path, unfinished)
        unfinished.replace(target)

    def size(self, name: str) -> int:
        """Size of a file [bytes]."""
        return (self._folder / name).stat().st_size

    def names(self, folder: str) -> list[str]:
        """Names of the files in a folder, in any order; none where there is no such folder."""
        return [path.name for path in (self._folder / folder).glob('*')]


class RemoteFiles:
    """Files behind fsspec; object stores show an object once it is complete."""

    def __init__(self, url: str) -> None:
        try:
            from fsspec.core import url_to_fs

            self._files, root = url_to_fs(url)
        except ImportError as error:
            msg = f'{url} needs fsspec and its package for this kind of URL ({error})'
            raise ConfigError(msg) from None
        except ValueError as error:
            msg = f'{url} cannot be opened: {error}'
            raise ConfigError(msg) from None
        self._root = str(root).rstrip('/')

    def read(self, name: str) -> bytes:
        """Content of a small file."""
        return bytes(self._files.cat_file(self._at(name)))

    def pieces(self, name: str) -> Iterator[bytes]:
        """Content of a file, a piece at a time."""
        with self._files.open(self._at(name), 'rb') as file:
            while piece := file.read(_PIECE):
                yield piece

    def write(self, name: str, data: bytes, *, is_new: bool = False) -> None:
        """Write a small file whole; `is_new` raises a FileExistsError where there is one."""
        self._make_folder_of(name)
        self._files.pipe_file(self._at(name), data, mode='create' if is_new else 'overwrite')

    def send(self, path: Path, name: str) -> None:
        """Send a file, which appears when it is complete where the store can do that."""
        self._make_folder_of(name)
        self._files.put_file(str(path), self._at(name))

    def size(self, name: str) -> int:
        """Size of a file [bytes]."""
        self._files.invalidate_cache()
        return int(self._files.info(self._at(name))['size'])

    def names(self, folder: str) -> list[str]:
        """Names of the files in a folder, in any order; none where there is no such folder."""
        self._files.invalidate_cache()
        try:
            entries = self._files.ls(self._at(folder), detail=False)
        except FileNotFoundError:
            return []
        return [str(entry).rpartition('/')[2] for entry in entries]

    def _at(self, name: str) -> str:
        return f'{self._root}/{name}'

    def _make_folder_of(self, name: str) -> None:
        """Make a folder where there are such, as over SFTP; object stores have none."""
        with suppress(OSError, NotImplementedError):
            self._files.makedirs(self._at(name).rpartition('/')[0], exist_ok=True)
