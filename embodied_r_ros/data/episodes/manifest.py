# SPDX-License-Identifier: Apache-2.0
"""Which recordings a fleet has: found in folders, lists and object stores, known by content.

The id of a recording is the SHA-256 of what its files begin and end with, and of their sizes. An
MCAP file ends with its index and the checksum of that, an SQLite file begins with its counters, so
that two recordings of one size differ there; nothing in between is read, and a bag in an object
store costs two small requests.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
import hashlib
from pathlib import Path, PurePosixPath
import re
import tempfile
from typing import Any, TYPE_CHECKING
from urllib.parse import urlsplit

from embodied_r_ros.bags.folders import IMAGE_SUFFIXES
from embodied_r_ros.bags.sources import VIDEO_SUFFIXES
from embodied_r_ros.bags.storage import storage_suffix
from embodied_r_ros.common.errors import InputError
from embodied_r_ros.data.episodes.labels import LABELS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

LIST_SUFFIX = '.txt'
_SCHEME = '://'
_END_BYTES = 64 * 1024  # of each file, at its start and at its end
_READERS = 16  # files looked at at the same time: most of the time goes into waiting
_METADATA = 'metadata.yaml'
# Parameters of URLs that sign a request, of S3, Google and Azure, and what others call theirs.
_SIGNATURE = re.compile(
    r'(?:^|[&;])(?:[\w-]*(?:signature|token|credential|secret)|sig|(?:aws)?access_?key(?:_?id)?'
    r'|api_?key|key|password)=',
    re.IGNORECASE,
)


@dataclass(frozen=True)
class FleetRecording:
    """A recording of a fleet."""

    id: str  # of its content, hex; of its name where it cannot be read
    source: str  # path or URL, as it was given


def find_recordings(
    sources: Sequence[str],
    find: Callable[[Sequence[Path]], list[Path]],
    *,
    has_labels: bool = False,
) -> list[FleetRecording]:
    """List the recordings of some sources, in their order.

    Args:
        sources: Paths, URLs that fsspec knows (`s3://bucket/bags`), and lists (`*.txt`): a path or
            URL on each line, relative to the folder of the list; lines with # are left out.
        find: Recordings of a path of this machine.
        has_labels: The labels of people beside a recording are content of it too.

    Raises:
        InputError: A source has no recording, fsspec does not know it, or its URL holds a secret.
    """
    names: list[str] = []
    for source in sources:
        for entry in _entries(source):
            if is_url(entry):
                _check_secrets(entry)
                names += _find_remote(entry)
            else:
                names += map(str, find([Path(entry)]))
    names = list(dict.fromkeys(names))
    with ThreadPoolExecutor(_READERS, 'manifest') as pool:
        return list(pool.map(partial(_recording, has_labels=has_labels), names))


def is_url(source: str) -> bool:
    """Tell whether a source is a URL rather than a path."""
    return _SCHEME in source


def _check_secrets(url: str) -> None:
    """Refuse a URL with a secret in it: names of recordings stand in outputs, rows and messages.

    Raises:
        InputError: It has one; the message has not.
    """
    parts = urlsplit(url)
    if '@' in parts.netloc and ':' in parts.netloc.rpartition('@')[0]:
        what = 'a password'
    elif _SIGNATURE.search(parts.query):
        what = 'a signature or key'
    else:
        return
    shown = f'{parts.scheme}://{parts.netloc.rpartition("@")[2]}{parts.path}'
    msg = (
        f'the URL of {shown} holds {what}, which names of recordings would show: give '
        'credentials by the environment, or the configuration of fsspec'
    )
    raise InputError(msg)


@contextmanager
def local_copy(source: str) -> Iterator[Path]:
    """A recording on this machine: a path as it is, a URL as a copy for the time being.

    The copy and the folder above it are named as in the URL: ids of episodes come from them.

    Raises:
        InputError: It cannot be copied.
    """
    if not is_url(source):
        yield Path(source)
        return
    files, path = _open(source)
    with tempfile.TemporaryDirectory(prefix='embodied-r-fleet-') as scratch:
        above, name = PurePosixPath(path).parts[-2:] if '/' in path.strip('/') else ('', path)
        target = Path(scratch, above.strip('/'), name.strip('/'))
        target.parent.mkdir(exist_ok=True)
        try:
            files.get(path, str(target), recursive=files.isdir(path))
        except Exception as error:  # each kind of store has its own
            msg = f'{source} cannot be copied: {_words(error)}'
            raise InputError(msg) from None
        yield target


def content_id(source: str, *, has_labels: bool = False) -> str:
    """Id of a recording by its content, hex; `has_labels` takes those beside it as content too.

    Raises:
        InputError: It cannot be read.
    """
    files, path = _open(source)
    digest = hashlib.sha256()
    try:
        for name in _files_of(files, path):
            size = int(files.size(name))
            digest.update(f'{size}\n'.encode())
            # By name: that of S3 has a version before them.
            digest.update(files.cat_file(name, start=0, end=min(size, _END_BYTES)))
            if size > _END_BYTES:
                start = max(_END_BYTES, size - _END_BYTES)
                digest.update(files.cat_file(name, start=start, end=size))
        for name in (f'{path}/{LABELS}', f'{path}.{LABELS}') if has_labels else ():
            if files.exists(name):
                digest.update(files.cat_file(name))
    except Exception as error:  # each kind of store has its own
        msg = f'{source} cannot be read: {_words(error)}'
        raise InputError(msg) from None
    return digest.hexdigest()


def _recording(source: str, *, has_labels: bool) -> FleetRecording:
    try:
        return FleetRecording(content_id(source, has_labels=has_labels), source)
    except InputError:  # one of thousands ends nothing: what works on it will say the same
        return FleetRecording(hashlib.sha256(source.encode()).hexdigest(), source)


def _entries(source: str) -> list[str]:
    """The lines of a list; a source that is none, as it is."""
    if is_url(source) or not source.endswith(LIST_SUFFIX) or Path(source).is_dir():
        return [source]
    try:
        lines = Path(source).read_text(encoding='utf-8').splitlines()
    except (OSError, UnicodeDecodeError) as error:
        msg = f'{source} cannot be read as a list of recordings: {error}'
        raise InputError(msg) from None
    names = [line.strip() for line in lines if line.strip() and not line.startswith('#')]
    if not names:
        msg = f'{source} lists no recordings: write a path or URL on each line'
        raise InputError(msg)
    return [name if is_url(name) else str(Path(source).parent / name) for name in names]


def _find_remote(url: str) -> list[str]:
    """Recordings at a URL: itself where it is one, else what lies in its folder.

    Raises:
        InputError: There is none.
    """
    files, path = _open(url)
    try:
        is_folder = files.isdir(path)
        is_there = is_folder or files.exists(path)
        paths = files.find(path, maxdepth=2) if is_folder else []
    except Exception as error:  # each kind of store has its own
        msg = f'{url} cannot be listed: {_words(error)}'
        raise InputError(msg) from None
    if not is_there:
        msg = f'{url} does not exist'
        raise InputError(msg)
    if not is_folder:
        return [url]
    inside = sorted(PurePosixPath(name).relative_to(PurePosixPath(path)) for name in paths)
    names = {name.parts[0] for name in inside if _is_of_recording(name)}
    if PurePosixPath(_METADATA) in inside:
        return [url]
    if names:
        return [f'{url.rstrip("/")}/{name}' for name in sorted(names)]
    if any(name.suffix.lower() in IMAGE_SUFFIXES for name in inside):
        return [url]
    msg = f'{url} holds no recordings: expected bags, videos, or folders of bags or images'
    raise InputError(msg)


def _is_of_recording(name: PurePosixPath) -> bool:
    """Tell whether a file below a folder of recordings is one of them, or part of one."""
    suffix = name.suffix.lower()
    is_inside = len(name.parts) > 1  # a folder of images is a recording, an image is none
    return not name.parts[0].startswith('.') and (
        bool(storage_suffix(Path(name)))
        or suffix in VIDEO_SUFFIXES
        or (is_inside and suffix in IMAGE_SUFFIXES)
    )


def _files_of(files: Any, path: str) -> list[str]:
    """The files of a recording: of a bag those with messages, else all in its folder."""
    if not files.isdir(path):
        return [path]
    names = sorted(
        name
        for name in files.find(path, maxdepth=1)
        if not PurePosixPath(name).name.startswith('.')
    )
    return [name for name in names if storage_suffix(Path(name))] or names


def _open(source: str) -> tuple[Any, str]:
    """The file system of a source, and the path there.

    Raises:
        InputError: fsspec is missing, or does not know it.
    """
    try:
        from fsspec.core import url_to_fs
    except ImportError:
        msg = 'fleets of recordings need fsspec: pip install "embodied_r_ros[fleet]"'
        raise InputError(msg) from None
    try:
        files, path = url_to_fs(source)
    except (ImportError, ValueError) as error:
        msg = f'{source} cannot be opened: {_words(error)}'
        raise InputError(msg) from None
    return files, str(path)


def _words(error: Exception) -> str:
    return ' '.join(str(error).split()) or type(error).__name__
