# SPDX-License-Identifier: Apache-2.0
"""Which episodes there are, in short, and how one is deleted."""

from __future__ import annotations

from dataclasses import dataclass
import json
import shutil
from typing import TYPE_CHECKING

from embodied_r_ros.errors import BagError
from embodied_r_ros.recordings.audit import AUDIT_RECORD
from embodied_r_ros.recordings.bag_lock import BagLock
from embodied_r_ros.recordings.bag_metadata import METADATA
from embodied_r_ros.recordings.mcap_content import read_content
from embodied_r_ros.recordings.recovery import bag_state, mcap_files

if TYPE_CHECKING:
    from pathlib import Path

    from embodied_r_ros.recordings.recovery import BagState

_OWN_SUFFIXES = {'.mcap', '.db3', '.damaged', '.recovering', '.zstd', '.tmp'}


@dataclass(frozen=True)
class EpisodeSummary:
    """An episode in short, from the indexes of its files."""

    episode: Path
    state: BagState
    bytes: int
    messages: int = 0  # in files that were closed
    start_ns: int = 0  # receipt of the first message; 0: there is none
    duration_s: float = 0.0
    audit: str = ''  # what the recorder found: ok or fails; empty: it did not say


def summarize(episode: Path) -> EpisodeSummary:
    """Say in short what an episode holds; its messages are not read.

    Raises:
        OSError: It cannot be read.
    """
    state = bag_state(episode)
    size = sum(path.stat().st_size for path in episode.iterdir() if path.is_file())
    contents = [c for path in mcap_files(episode) if (c := read_content(path))]
    files = [content.file for content in contents if content.file.counts]
    start_ns = min((file.first_ns for file in files), default=0)
    end_ns = max((file.last_ns for file in files), default=0)
    said = [c.records[AUDIT_RECORD] for c in contents if AUDIT_RECORD in c.records]
    return EpisodeSummary(
        episode,
        state,
        size,
        sum(file.counts.total() for file in files),
        start_ns,
        (end_ns - start_ns) / 1e9,
        _verdict(said[-1]) if said else '',
    )


def delete_episode(episode: Path) -> None:
    """Delete an episode; it goes as a whole, or stays.

    Raises:
        BagError: It is in use, or holds what is not of a bag.
        OSError: The disk does not let go of it.
    """
    if episode.is_symlink():
        msg = f'{episode} is a link and was kept: remove it by hand'
        raise BagError(msg)
    for path in episode.iterdir():
        if path.name != METADATA and (path.suffix not in _OWN_SUFFIXES or not path.is_file()):
            msg = f'{episode} was kept: it holds {path.name}, which is not of a bag'
            raise BagError(msg)
    try:
        lock = BagLock(episode)
    except BlockingIOError:
        msg = f'{episode} was kept: it is being recorded, or recovered'
        raise BagError(msg) from None
    with lock:
        hidden = episode.with_name(f'.deleted-{episode.name}')
        shutil.rmtree(hidden, ignore_errors=True)  # of a process that was killed
        episode.rename(hidden)
        shutil.rmtree(hidden)


def _verdict(record: dict[str, str]) -> str:
    try:
        return 'fails' if json.loads(record['report'])['problems'] else 'ok'
    except (ValueError, KeyError, TypeError):
        return ''
