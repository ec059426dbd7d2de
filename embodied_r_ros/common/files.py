# SPDX-License-Identifier: Apache-2.0
"""Files: where shipped ones lie and which code is running; and files that appear whole."""

from __future__ import annotations

from contextlib import contextmanager, suppress
import fcntl
from functools import cache
import getpass
from importlib.metadata import PackageNotFoundError, version
import os
from pathlib import Path
import shutil
import subprocess
import sys
import tempfile
import threading
from typing import TYPE_CHECKING

from embodied_r_ros.common.errors import ConfigError, EmbodiedRError, InputError
from embodied_r_ros.common.untrusted import parsed_json

if TYPE_CHECKING:
    from collections.abc import Iterator

_CLONE = Path(__file__).resolve().parents[2]


def shared_path(*parts: str) -> Path:
    """Path of a shipped file or folder, such as `shared_path('models', 'arm')`.

    The clone wins over an installed copy, so that an editable install uses what is edited.

    Raises:
        ConfigError: It is nowhere; the message lists where it was looked for.
    """
    roots = [_CLONE] if (_CLONE / 'package.xml').exists() else []
    roots += _shares('embodied_r_ros')
    return _first_existing(roots, parts)


def interface_path(*parts: str) -> Path:
    """Path of a file of embodied_r_msgs, such as `interface_path('msg', 'Answer.msg')`.

    Raises:
        ConfigError: The package is neither in the clone nor installed.
    """
    roots = [_CLONE / 'embodied_r_msgs']
    roots += _shares('embodied_r_msgs')
    roots += [share / 'embodied_r_msgs' for share in _shares('embodied_r_ros')]
    return _first_existing(roots, parts)


def _shares(package: str) -> list[Path]:
    """Share folders of a package, nearest first; a workspace may have a prefix per package."""
    shares = [prefix / 'share' / package for prefix in _prefixes()]
    return [share for share in shares if share.is_dir()]


def _prefixes() -> list[Path]:
    """Install prefixes, nearest first."""
    ament = os.environ.get('AMENT_PREFIX_PATH', '').split(os.pathsep)
    return [Path(prefix) for prefix in (*ament, sys.prefix) if prefix]


def _first_existing(roots: list[Path], parts: tuple[str, ...]) -> Path:
    candidates = [root.joinpath(*parts) for root in roots]
    for candidate in candidates:
        if candidate.exists():
            return candidate
    places = ', '.join(map(str, candidates)) or 'nowhere'
    msg = (
        f'{Path(*parts)} is not installed (looked at {places}): build the workspace, or source it'
    )
    raise ConfigError(msg)


_USER_FOLDERS = {'data': '~/.local/share', 'cache': '~/.cache', 'state': '~/.local/state'}


def user_folder(kind: str, name: str) -> Path:
    """Folder of a user's files, where the XDG base directory specification has them.

    Args:
        kind: `data`, `state`, or `cache` for what can be made anew.
        name: What is in it.
    """
    base = os.environ.get(f'XDG_{kind.upper()}_HOME', '') or _USER_FOLDERS[kind]
    return Path(base).expanduser() / 'embodied_r_ros' / name


_GIT_TIMEOUT_S = 5.0


def user_name() -> str:
    """Name of the user who runs this; of one without a name, as in containers, the number."""
    try:
        return getpass.getuser()
    except (KeyError, OSError, ImportError):
        return f'uid {os.getuid()}'


@cache
def code_version() -> dict[str, str]:
    """Version of the package, and the git revision of the clone it runs from.

    `git_revision` ends in '-dirty' where files differ from it, and is empty where the package does
    not run from a clone.
    """
    return {
        'package': 'embodied_r_ros',
        'version': package_version(),
        'git_revision': _git_revision(),
    }


def package_version() -> str:
    """Version of the package; empty: it is not installed."""
    try:
        return version('embodied_r_ros')
    except PackageNotFoundError:
        return ''


def node_of(record: str) -> str:
    """Name of the node whose provenance a record is; empty where it is not that of a node.

    Anybody may publish one: a recording that is played has the provenance of its simulator.
    """
    content = parsed_json(record)
    name = content.get('node') if isinstance(content, dict) else None
    return name if isinstance(name, str) else ''


def _git_revision() -> str:
    if not (_CLONE / '.git').exists():
        return ''
    command = ['git', '-C', str(_CLONE), 'describe', '--always', '--abbrev=40', '--dirty']
    command += ['--exclude', '*']
    try:
        run = subprocess.run(
            command, capture_output=True, text=True, check=True, timeout=_GIT_TIMEOUT_S
        )
    except (OSError, subprocess.SubprocessError):
        return ''
    return run.stdout.strip()


@contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """A temporary name beside a file, which takes its own name once all of it is written.

    Each process and thread has another one: of two that write the same file, one writes it last.
    Where writing fails, nothing is left and what was there stays.

    Raises:
        InputError: It cannot be written.
    """
    mark = f'{os.getpid()}-{threading.get_ident()}'
    unfinished = path.with_name(f'.{path.name}.{mark}.tmp')
    try:
        yield unfinished
        with unfinished.open('rb') as file:
            os.fsync(file.fileno())  # or a power cut may leave an empty file under its name
        unfinished.replace(path)
    except EmbodiedRError:  # of what is written; a missed deadline would be an OSError too
        raise
    except OSError as error:
        msg = f'cannot write {path}: {error.strerror or error}'
        raise InputError(msg) from None
    finally:
        with suppress(OSError):  # where it could not be made, it cannot be removed
            unfinished.unlink(missing_ok=True)


def write_whole(path: Path, data: bytes | str, *, makes_folder: bool = False) -> None:
    """Write a file that appears when it is complete.

    Args:
        path: The file.
        data: What it holds; text is written as UTF-8.
        makes_folder: Make the folder of the file where there is none.

    Raises:
        InputError: It cannot be written.
    """
    with whole_file(path) as unfinished:
        if makes_folder:
            path.parent.mkdir(parents=True, exist_ok=True)
        unfinished.write_bytes(data.encode() if isinstance(data, str) else data)


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


@contextmanager
def alone_in(folder: Path) -> Iterator[None]:
    """Wait for other processes that are here for the same folder: files that go together."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        with suppress(OSError):  # a disk that knows no locks
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


@contextmanager
def whole_folder(out: Path) -> Iterator[Path]:
    """A folder that takes its name, which is free or an empty folder's, once it is whole.

    Raises:
        InputError: There is something of that name, or the disk does not take it.
    """
    make_empty_folder(out, is_made=False)
    unfinished = out.with_name(f'.{out.name}.{os.getpid()}.unfinished')  # of two, one is first
    shutil.rmtree(unfinished, ignore_errors=True)
    try:
        unfinished.mkdir(parents=True)
        yield unfinished
        unfinished.replace(out)
    except OSError as error:
        msg = f'cannot write to {out}: {error.strerror or error}'
        raise InputError(msg) from None
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)


def make_empty_folder(folder: Path, *, is_made: bool = True) -> None:
    """Make a folder, or take one that is empty; not made, it is only looked at.

    Raises:
        InputError: It is a file, holds something, or cannot be made.
    """
    try:
        is_taken = folder.exists() and not (folder.is_dir() and not any(folder.iterdir()))
        if is_made and not is_taken:
            folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        msg = f'cannot write to {folder}: {error.strerror}'
        raise InputError(msg) from None
    if is_taken:
        msg = f'{folder} is not an empty folder: remove it, or choose another'
        raise InputError(msg)
