# SPDX-License-Identifier: Apache-2.0
"""Replies kept by what they are replies to, in memory and, if wanted, on disk.

A key holds everything that decides a reply (pictures, model, prompt, settings), so an entry never
grows stale and a run that was cut off goes on where it stopped.
"""

from __future__ import annotations

from collections import OrderedDict
import hashlib
import logging
import threading
from typing import TYPE_CHECKING

from embodied_r_ros.common.errors import InputError
from embodied_r_ros.common.files import write_whole

if TYPE_CHECKING:
    from pathlib import Path

_log = logging.getLogger(__name__)


def cache_key(*parts: str | bytes) -> str:
    """SHA-256 over the parts, in which none can pass for two, in hexadecimal."""
    total = hashlib.sha256()
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        total.update(hashlib.sha256(data).digest())
    return total.hexdigest()


class ReplyCache:
    """Texts by key; the least recently used ones leave memory first. Thread-safe."""

    def __init__(self, entries: int, folder: Path | None = None) -> None:
        """Keep up to `entries` in memory (0: none), and all of them in a folder, if given.

        Raises:
            OSError: The folder cannot be made.
        """
        self._entries = entries
        self._folder = folder
        self._texts: OrderedDict[str, str] = OrderedDict()
        self._lock = threading.Lock()
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)

    def get(self, key: str) -> str | None:
        """The text of a key, if it is there."""
        with self._lock:
            if key in self._texts:
                self._texts.move_to_end(key)
                return self._texts[key]
        text = self._read(key)
        if text is not None:
            self._keep(key, text)
        return text

    def put(self, key: str, text: str) -> None:
        """Keep a text. A folder that cannot be written is reported, and the text still kept."""
        self._keep(key, text)
        if self._folder is None:
            return
        path = self._path(self._folder, key)
        try:
            write_whole(path, text, makes_folder=True)
        except InputError as error:
            _log.warning('reply cache %s cannot be written: %s', self._folder, error)

    def _keep(self, key: str, text: str) -> None:
        with self._lock:
            self._texts[key] = text
            self._texts.move_to_end(key)
            while len(self._texts) > self._entries:
                self._texts.popitem(last=False)

    def _read(self, key: str) -> str | None:
        if self._folder is None:
            return None
        try:
            return self._path(self._folder, key).read_text(encoding='utf-8')
        except (OSError, UnicodeDecodeError):
            return None

    @staticmethod
    def _path(folder: Path, key: str) -> Path:
        return folder / key[:2] / f'{key}.json'
