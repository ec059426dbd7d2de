# SPDX-License-Identifier: Apache-2.0
"""Episodes whose bag was never closed, or is damaged: found, recovered, verified.

A bag is closed where each of its MCAP files ends as one that was closed; metadata.yaml is written
where it is missing. A file takes the place of the broken one only after it was read back as it was
written; where more than the end was missing, the broken one stays beside it as `.damaged`.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
import shutil
from typing import TYPE_CHECKING

from embodied_r_ros.bags.format import (
    bag_information,
    disk_errors,
    sync_folder,
    write_metadata,
)
from embodied_r_ros.bags.reader import is_bag, listed_files, storage_files
from embodied_r_ros.bags.salvage import is_whole, salvage
from embodied_r_ros.bags.storage import read_content
from embodied_r_ros.bags.writer import BagLock, is_locked
from embodied_r_ros.common.errors import BagError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from embodied_r_ros.bags.format import McapContent
    from embodied_r_ros.bags.salvage import Salvage

_TEMPORARY = '.recovering'
_KEPT = '.damaged'
_MB = 1024 * 1024


class BagState(Enum):
    """Whether a bag can be used."""

    CLOSED = 'closed'
    UNCLOSED = 'unclosed'  # it can be recovered
    BUSY = 'busy'  # it is being recorded, or recovered


@dataclass(frozen=True)
class Recovery:
    """What became of a bag."""

    episode: Path
    was_closed: bool = False  # there was nothing to do
    messages: int = 0  # in the bag, where it was recovered
    were_whole: bool = False  # its files were: metadata.yaml alone was written
    lost_bytes: int = 0  # behind the last whole record, of a chunk that was being written
    damaged_chunks: int = 0  # left out between whole ones
    kept: tuple[Path, ...] = ()  # broken files that lacked more than their end
    reason: str = ''  # why it was not recovered; empty: it was

    @property
    def is_good(self) -> bool:
        """Whether at most the end is missing."""
        return not self.reason and not self.kept

    def text(self) -> str:
        """What became of it, in words."""
        if self.reason:
            return f'not recovered: {self.reason}'
        if self.was_closed:
            return 'was closed'
        if self.were_whole:
            return f'its files were whole ({self.messages} messages): metadata.yaml was written'
        text = f'recovered {self.messages} messages, {self.lost_bytes} bytes lost at the end'
        if self.damaged_chunks:
            text += f', {self.damaged_chunks} damaged chunks left out'
        if self.kept:
            text += f'; the broken file is kept: {", ".join(map(str, self.kept))}'
        return text


def is_episode(folder: Path) -> bool:
    """Tell whether a folder is a bag, closed or not."""
    return folder.is_dir() and is_bag(folder)


def episodes_in(path: Path) -> list[Path]:
    """The episode that a folder is, or those that lie in it; hidden ones are no episodes."""
    if is_episode(path):
        return [path]
    children = sorted(child for child in path.iterdir() if not child.name.startswith('.'))
    return [child for child in children if is_episode(child)]


def find_episodes(path: Path) -> list[Path]:
    """The same, where there must be some.

    Raises:
        BagError: There are none.
    """
    if not path.is_dir():
        what = 'is no folder' if path.exists() else 'does not exist'
        msg = f'{path} {what}: expected an episode, or a folder of episodes'
        raise BagError(msg)
    episodes = episodes_in(path)
    if not episodes:
        msg = f'{path} is neither an episode nor a folder of episodes'
        raise BagError(msg)
    return episodes


def mcap_files(folder: Path) -> list[Path]:
    """The files of a bag in the order in which they were written."""
    return [file for file in storage_files(folder) if file.suffix == '.mcap']


def bag_state(episode: Path) -> BagState:
    """Tell whether a bag was closed.

    Raises:
        OSError: It cannot be read.
    """
    # Checked first: a recorder lets go of its bag after closing it.
    if is_locked(episode):
        return BagState.BUSY
    return BagState.CLOSED if _is_closed(episode) else BagState.UNCLOSED


def recover_all(
    episodes: Sequence[Path],
    is_wanted: Callable[[], bool] = lambda: True,
    *,
    is_thorough: bool = False,
) -> Iterator[Recovery]:
    """Recover every bag that is not closed; what fails ends nothing.

    Args:
        episodes: Folders of bags.
        is_wanted: Called now and then; False ends the work.
        is_thorough: As of `recover`.
    """
    for episode in episodes:
        if is_wanted():
            try:
                yield recover(episode, is_wanted, is_thorough=is_thorough)
            except (BagError, OSError) as error:
                yield Recovery(episode, reason=str(error))


def recover(
    episode: Path, is_wanted: Callable[[], bool] = lambda: True, *, is_thorough: bool = False
) -> Recovery:
    """Recover a bag that is not closed; one that is whole is left as it is.

    Args:
        episode: Folder of the bag.
        is_wanted: Called now and then; False ends the work.
        is_thorough: Files that were closed are read, too: damage inside is found by checksums.

    Raises:
        BagError: It is in use, is no MCAP file, or the disk is full; it was left as it was.
        OSError: It cannot be read.
    """
    try:
        lock = BagLock(episode)
    except BlockingIOError:
        msg = f'{episode} is being recorded or recovered: wait for its end'
        raise BagError(msg) from None
    with lock, disk_errors(episode):
        whole = {path: content for path in mcap_files(episode) if (content := read_content(path))}
        if is_thorough:
            whole = {path: content for path, content in whole.items() if is_whole(path)}
        if listed_files(episode) and len(whole) == len(mcap_files(episode)):
            return Recovery(episode, was_closed=True)
        return _recover(episode, whole, is_wanted)


def _recover(
    episode: Path, whole: dict[Path, McapContent], is_wanted: Callable[[], bool]
) -> Recovery:
    contents, backups = [], []
    lost_bytes = damaged_chunks = 0
    if not mcap_files(episode):
        msg = (
            f'{episode} has no MCAP files: only those can be repaired, others are read as they are'
        )
        raise BagError(msg)
    for path in mcap_files(episode):
        if not (content := whole.get(path)):
            salvaged = _recover_file(path, is_wanted)
            content = salvaged.content
            lost_bytes += salvaged.lost_bytes
            damaged_chunks += salvaged.damaged_chunks
            if not salvaged.was_only_cut:
                backups.append(path.with_suffix(_KEPT))
        contents.append(content)
    _describe(episode, contents)
    messages = sum(content.file.counts.total() for content in contents)
    lost = lost_bytes, damaged_chunks, tuple(backups)
    return Recovery(episode, False, messages, len(whole) == len(contents), *lost)


def _recover_file(path: Path, is_wanted: Callable[[], bool]) -> Salvage:
    """Put what is whole in a file in its place."""
    before = path.stat()
    free = shutil.disk_usage(path.parent).free
    if free < before.st_size:
        msg = (
            f'{path} needs {before.st_size // _MB + 1} MB to be recovered and the disk has '
            f'{free // _MB} MB left: make room'
        )
        raise BagError(msg)
    new = path.with_suffix(_TEMPORARY)
    try:
        result = salvage(path, new, is_wanted)
        after = path.stat()
        if (after.st_size, after.st_mtime_ns) != (before.st_size, before.st_mtime_ns):
            msg = f'{path} is still being written: wait for its end'
            raise BagError(msg)
        if not result.was_only_cut:
            _keep(path)
        new.replace(path)
        sync_folder(path.parent)
    finally:
        new.unlink(missing_ok=True)
    return result


def _keep(path: Path) -> None:
    """Give a broken file a second name, before another takes its place."""
    backup = path.with_suffix(_KEPT)
    backup.unlink(missing_ok=True)
    try:
        backup.hardlink_to(path)
    except OSError:  # a disk that knows no links
        shutil.copy2(path, backup)


def _describe(episode: Path, contents: Sequence[McapContent]) -> None:
    """Write metadata.yaml from what the files hold."""
    channels = {topic: channel for c in contents for topic, channel in c.channels.items()}
    notes = {name: text for c in contents for name, text in c.notes.items()}
    files = [content.file for content in contents]
    write_metadata(episode, bag_information(files, channels.values(), notes))


def _is_closed(episode: Path) -> bool:
    return all(read_content(path) for path in mcap_files(episode))
