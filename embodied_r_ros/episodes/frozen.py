# SPDX-License-Identifier: Apache-2.0
"""Frozen sets: recordings, their labels and rows under one name, with the digest of their content.

A set is a small file of JSON: it holds digests, and where the files lay. The same content has the
same digest, wherever it lies and in whatever order it was named.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
import hashlib
import json
import os
from pathlib import Path
from typing import Any, TYPE_CHECKING

from embodied_r_ros.bags.sources import find_sources
from embodied_r_ros.common.errors import BagError, InputError
from embodied_r_ros.common.files import write_whole
from embodied_r_ros.episodes.inspect import bag_digest, file_sha256, labels_sha256
from embodied_r_ros.episodes.labels import labels_path

if TYPE_CHECKING:
    from collections.abc import Sequence

SUFFIX = '.frozen.json'
_ROWS = '.jsonl'
_VERSION = 1
_DIGITS = 'sha256:'


@dataclass(frozen=True)
class FrozenFile:
    """A recording with its labels, or a file of rows."""

    path: str  # from the folder of the set
    sha256: str  # of a recording: over the digests of its files
    files: dict[str, str]  # digest of each file of a recording; empty: a file of rows
    labels: str = ''  # digest of the labels beside it; empty: there were none
    labels_size: int = 0  # of those labels [bytes]

    @property
    def name(self) -> str:
        """Name of the recording or file."""
        return Path(self.path).name


@dataclass(frozen=True)
class FrozenSet:
    """What a name stands for."""

    name: str
    recordings: tuple[FrozenFile, ...]
    rows: tuple[FrozenFile, ...]
    folder: Path  # of the set's own file

    def digest(self) -> str:
        """Digest of the content: of names and places nothing is in it."""
        lines = [f'recording {one.sha256} {one.labels}' for one in self.recordings]
        lines += [f'rows {one.sha256}' for one in self.rows]
        return _DIGITS + hashlib.sha256('\n'.join(sorted(lines)).encode()).hexdigest()

    def identity(self) -> dict[str, str]:
        """What runs, gates and cards say of it."""
        return {'name': self.name, 'digest': self.digest()}

    def places(self) -> list[Path]:
        """Where the recordings lie."""
        return [self.folder / one.path for one in self.recordings]


def freeze(name: str, paths: Sequence[Path], file: Path) -> FrozenSet:
    """Give recordings and rows, as they are now, a name.

    Args:
        name: The name.
        paths: Recordings, folders of them, and files of rows.
        file: Where the set is written.

    Raises:
        BagError: A path holds no recording, or cannot be read.
        InputError: The name is empty, a recording comes twice, or the file is there already or
            cannot be written.
    """
    if not name.strip():
        msg = f'the name is {name!r}: expected a word, such as week47'
        raise InputError(msg)
    if file.exists():
        msg = f'{file} exists already: name another file, for what was frozen stays as it was'
        raise InputError(msg)
    folder = file.resolve().parent
    rows = [path for path in paths if path.suffix == _ROWS]
    sources = find_sources([path for path in paths if path not in rows]) if rows != paths else []
    recordings = tuple(_frozen_recording(source, folder) for source in sources)
    by_content: dict[str, FrozenFile] = {}
    for one in recordings:
        if other := by_content.get(one.sha256):
            msg = f'{one.path} is a copy of {other.path}: name one of them'
            raise InputError(msg)
        by_content[one.sha256] = one
    sums = [FrozenFile(_relative(path, folder), file_sha256(path), {}) for path in rows]
    frozen = FrozenSet(name, recordings, tuple(sums), folder)
    content = {
        'version': _VERSION,
        **frozen.identity(),
        'recordings': [asdict(one) for one in frozen.recordings],
        'rows': [asdict(one) for one in frozen.rows],
    }
    write_whole(file, json.dumps(content, indent=1, ensure_ascii=False) + '\n')
    return frozen


def _frozen_recording(source: Path, folder: Path) -> FrozenFile:
    digest, labels = bag_digest(source), labels_path(source)
    return FrozenFile(
        _relative(source, folder),
        digest.sha256,
        digest.files,
        labels_sha256(source),
        labels.stat().st_size if labels.exists() else 0,
    )


def _relative(path: Path, folder: Path) -> str:
    return os.path.relpath(path.absolute(), folder)


def read_frozen(file: Path) -> FrozenSet:
    """Read a set.

    Raises:
        InputError: The file is none, or was changed by hand.
    """
    try:
        value: dict[str, Any] = json.loads(file.read_text('utf-8'))
        recordings, rows = (
            tuple(FrozenFile(**one) for one in value[kind]) for kind in ('recordings', 'rows')
        )
        frozen = FrozenSet(str(value['name']), recordings, rows, file.resolve().parent)
        stated = value['digest']
    except OSError as error:
        msg = f'{file} cannot be read: {error.strerror}'
        raise InputError(msg) from None
    except (ValueError, TypeError, KeyError, RecursionError):
        msg = f'{file} is no frozen set: make one with `embodied-r episodes freeze NAME DIR`'
        raise InputError(msg) from None
    if frozen.digest() != stated:
        msg = f'{file} was changed: its content has {frozen.digest()}, and it says {stated}'
        raise InputError(msg)
    return frozen


def changes_of(frozen: FrozenSet) -> list[str]:
    """What is not as it was frozen, in words; empty: all is."""
    changes = [text for one in frozen.recordings for text in _changes(one, frozen.folder)]
    for one in frozen.rows:
        path = frozen.folder / one.path
        if not path.exists():
            changes.append(f'{one.path}: is not there')
        elif file_sha256(path) != one.sha256:
            changes.append(f'{one.path}: its rows have changed')
    return changes


def _changes(one: FrozenFile, folder: Path) -> list[str]:
    path = folder / one.path
    if not path.exists():
        return [f'{one.path}: is not there']
    try:
        files = bag_digest(path).files
    except BagError as error:
        return [f'{one.path}: {error}']
    changes = [
        f'{one.path}: {name} {_what(one.files.get(name), files.get(name))}'
        for name in sorted({*one.files, *files})
        if one.files.get(name) != files.get(name)
    ]
    labels = labels_sha256(path)
    if labels != one.labels:
        changes.append(f'{one.path}: {_label_change(one, path, labels)}')
    return changes


def _what(before: str | None, now: str | None) -> str:
    return 'is new' if before is None else 'is not there' if now is None else 'has changed'


def _label_change(one: FrozenFile, path: Path, labels: str) -> str:
    """How the labels have changed: that they grow is what they are for."""
    if not labels:
        return 'its labels are not there'
    data = labels_path(path).read_bytes()
    start = data[: one.labels_size]
    is_grown = not one.labels or hashlib.sha256(start).hexdigest() == one.labels
    added = data[one.labels_size :].count(b'\n')
    return f'{added} labels were added' if is_grown else 'its labels have changed'


def unchanged_set(file: Path) -> FrozenSet:
    """Read a set whose content is to be used.

    Raises:
        InputError: It is none, or something is not as it was frozen.
    """
    frozen = read_frozen(file)
    if changes := changes_of(frozen):
        more = f' and {len(changes) - 1} more' if len(changes) > 1 else ''
        msg = f'{frozen.name} is not what was frozen ({changes[0]}{more}): freeze it anew'
        raise InputError(msg)
    return frozen


def frozen_of_rows(rows: Path) -> dict[str, str]:
    """Name and digest of the set that rows belong to, or were derived from; empty: of none.

    A set beside the rows that holds them counts, else the manifest beside them, where both are of
    these very rows.
    """
    if not rows.is_file():
        return {}
    own = file_sha256(rows)
    for file in sorted(rows.parent.glob(f'*{SUFFIX}')):
        frozen = read_frozen(file)
        if any(one.sha256 == own for one in frozen.rows):
            return frozen.identity()
    try:
        path = rows.with_name(f'{rows.name.removesuffix(_ROWS)}.manifest.json')
        manifest = json.loads(path.read_text('utf-8'))
        frozen_set = manifest['frozen'] if manifest['rows']['sha256'] == own else {}
        return {name: str(frozen_set[name]) for name in ('name', 'digest')} if frozen_set else {}
    except (OSError, ValueError, KeyError, TypeError):
        return {}
