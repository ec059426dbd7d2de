# SPDX-License-Identifier: Apache-2.0
"""A slot at a URL, which many robots follow: each has a mirror of it on its own disk.

The store has the files of a slot (see `serving.promotion`), in a folder that several machines see
(`file:///mnt/slot`) or wherever fsspec writes (`s3://bucket/slot`). Models go there first, what is
in force last, so that a follower finds either all of a version or the version before. What
promotes or takes back works on a mirror too and sends what is new in it: one path for one machine
and for many.
"""

from __future__ import annotations

from contextlib import contextmanager, nullcontext, suppress
import fcntl
from fnmatch import fnmatch
import hashlib
import os
from pathlib import Path
import shutil
import tempfile
import time
from typing import Any, TextIO, TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from embodied_r_ros.chat.settings import model_digest, MODEL_PATTERNS
from embodied_r_ros.common.errors import ConfigError, EmbodiedRError, InputError
from embodied_r_ros.common.files import write_whole
from embodied_r_ros.serving.promotion import (
    CARD,
    HISTORY,
    IN_FORCE,
    in_force,
    in_force_number,
    is_plain_name,
    is_store,
    manifest_of,
    MANIFESTS,
    MODELS,
    promote,
    put_in_place,
    read_manifest,
    roll_back,
    slot_folder,
)
from embodied_r_ros.serving.store_files import FolderFiles, RemoteFiles

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from embodied_r_ros.serving.promotion import PromotedModel, Signature
    from embodied_r_ros.serving.store_files import StoreFiles

_PART = '.part-'  # how the names of unfinished copies begin
_LOCK = '.lock'
_LOCK_WAIT_S = 60.0  # for who changes the mirror too
_LOCK_LOOK_S = 0.1
_MOST_OF_HOLDER = 80  # characters


class StoreError(InputError):
    """A store cannot be read or written, or what lies there is not what it should be."""


class ModelStore:
    """A slot at a URL, and its mirror here."""

    def __init__(self, url: str, mirror: Path | None = None) -> None:
        """Prepare; nothing is read yet.

        Args:
            url: A folder as `file:///…`, or a URL that fsspec knows.
            mirror: Folder of the mirror; None: that of `slot_folder`.

        Raises:
            ConfigError: The URL cannot be used here.
        """
        self.url = url
        self.mirror = mirror or slot_folder(url)
        folder = _folder_of(url)
        self._files: StoreFiles = FolderFiles(folder) if folder else RemoteFiles(url)

    def pull(self) -> bool:
        """Have the mirror serve what is in force in the store; True: that is another version now.

        Raises:
            StoreError: The store cannot be read, has nothing in force, or what it has is not
                whole; the mirror is as before.
        """
        path = self.mirror / IN_FORCE
        manifest, new = self._in_force_there()
        before = path.read_bytes() if path.exists() else b''
        if manifest == before and (not new.number or _digest_of(new.folder) == new.digest):
            return False
        with self._alone() as scratch:
            # Others may have changed both while this one waited.
            manifest, new = self._in_force_there()
            before = path.read_bytes() if path.exists() else b''
            if new.number:
                self._bring(new, scratch)
                name = f'{new.number:04}.json'
                write_whole(self.mirror / MANIFESTS / name, manifest, makes_folder=True)
            old = self.version_here()
            write_whole(path, manifest)
            self._prune(new, old)
        return manifest != before

    def version_here(self) -> PromotedModel | None:
        """What the mirror has in force, its number 0 where that is nothing; None: not known."""
        try:
            return read_manifest(self.mirror, self.mirror / IN_FORCE)
        except ConfigError:  # never written, or cut off by a power cut
            return None

    @contextmanager
    def revision(self) -> Iterator[Path]:
        """The mirror, as the store is, to be promoted into or taken back in; then it is sent.

        Raises:
            StoreError: The store cannot be read or written, or another process changes it too.
        """
        with self._alone():
            self._fetch_records()
            before = self._records()
            yield self.mirror
            self._send(self._records() - before)

    @contextmanager
    def hold(self) -> Iterator[None]:
        """Keep all others from changing the mirror.

        Raises:
            StoreError: The mirror cannot be written, or another process has it for long.
        """
        with self._alone():
            yield

    def see_there(self, promoted: PromotedModel) -> None:
        """See that the files of a version are in the store, without reading them.

        Raises:
            StoreError: One is not.
        """
        for name, (size, _) in _files_of(promoted, self.url).items():
            path = f'{MODELS}/{promoted.folder.name}/{name}'
            with self._talking():
                found = self._files.size(path)
            if found != size:
                msg = f'{self.url}/{path} has {found} bytes, expected {size}'
                raise StoreError(msg)

    def fetch_records(self) -> Path:
        """Bring manifests and history into the mirror, whose folder is returned.

        Raises:
            StoreError: The store cannot be read.
        """
        with self._alone():
            self._fetch_records()
        return self.mirror

    def _in_force_there(self) -> tuple[bytes, PromotedModel]:
        """The manifest in force in the store, as it is and as it was read.

        Raises:
            StoreError: There is none, or it cannot be read.
        """
        with self._talking():
            manifest = self._files.read(IN_FORCE)
        try:
            return manifest, manifest_of(self.mirror, manifest)
        except ValueError as error:
            msg = f'{self.url}/{IN_FORCE} is no manifest, or half of one ({error})'
            raise StoreError(msg) from None

    @contextmanager
    def _alone(self) -> Iterator[Path]:
        """Be the only process that changes the mirror; gives a folder for the time being.

        Raises:
            StoreError: The mirror cannot be written, or another process has it for long.
        """
        models = self.mirror / MODELS
        try:
            models.mkdir(parents=True, exist_ok=True)
            with (self.mirror / _LOCK).open('a+') as lock:
                self._lock(lock)
                for left in models.glob(f'{_PART}*'):  # of a process that was killed
                    shutil.rmtree(left, ignore_errors=True)
                with tempfile.TemporaryDirectory(dir=models, prefix=_PART) as scratch:
                    yield Path(scratch)
        except OSError as error:
            if isinstance(error, EmbodiedRError):
                raise
            msg = f'{self.mirror} cannot be written: {error.strerror or error}'
            raise StoreError(msg) from None

    def _lock(self, lock: TextIO) -> None:
        """Lock a file, and write into it who has it.

        Raises:
            StoreError: Another process has it for long.
            OSError: Its disk knows no locks.
        """
        until = time.monotonic() + _LOCK_WAIT_S
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() < until:
                    time.sleep(_LOCK_LOOK_S)
                    continue
                lock.seek(0)
                holder = lock.read(_MOST_OF_HOLDER).strip() or 'another process'
                msg = (
                    f'{lock.name} is held by {holder}, for more than {_LOCK_WAIT_S:g} s: wait '
                    'until that has its model, or end it'
                )
                raise StoreError(msg) from None
        lock.truncate(0)
        lock.write(f'process {os.getpid()}\n')
        lock.flush()

    @contextmanager
    def _talking(self) -> Iterator[None]:
        """Turn whatever a store raises into an error that names it."""
        try:
            yield
        except EmbodiedRError:
            raise
        except FileNotFoundError as error:
            msg = f'{self.url} is incomplete, or not there ({_words(error)})'
            raise StoreError(msg) from None
        except FileExistsError:
            msg = f'{self.url} was changed by another process meanwhile: try again'
            raise StoreError(msg) from None
        except Exception as error:  # each kind of store has its own
            msg = f'{self.url} cannot be used: {_words(error)}'
            raise StoreError(msg) from None

    def _bring(self, promoted: PromotedModel, scratch: Path) -> None:
        """Copy a version into the mirror, unless it is there and whole.

        Raises:
            StoreError: A file is missing, is not what the manifest says, or may not be there.
        """
        files = _files_of(promoted, self.url)
        if promoted.folder.exists() and _digest_of(promoted.folder) == promoted.digest:
            return
        copy = scratch / promoted.folder.name
        copy.mkdir()
        for name, (size, sha256) in files.items():
            source = f'{MODELS}/{promoted.folder.name}/{name}'
            digest, count = hashlib.sha256(), 0
            with self._talking(), (copy / name).open('wb') as file:
                for piece in self._files.pieces(source):
                    file.write(piece)
                    digest.update(piece)
                    count += len(piece)
                    if count > size:
                        break
                file.flush()
                os.fsync(file.fileno())  # or a power cut may leave it empty under its name
            if count != size or digest.hexdigest() != sha256:
                msg = f'{self.url}/{source} is damaged: it is not what its manifest says'
                raise StoreError(msg)
        if (found := model_digest(copy)) != promoted.digest:
            msg = f'{self.url} has {promoted.digest} in force, and its files are {found}'
            raise StoreError(msg)
        put_in_place(copy, promoted.folder)

    def _prune(self, new: PromotedModel, old: PromotedModel | None) -> None:
        """Keep what is in force, what was until now, and what a rollback would take."""
        kept = {new.folder.name} | ({old.folder.name} if old else set())
        with suppress(ConfigError):
            before = self.mirror / MANIFESTS / f'{new.previous:04}.json'
            kept.add(read_manifest(self.mirror, before).folder.name)
        for folder in (self.mirror / MODELS).iterdir():
            if folder.name not in kept and not folder.name.startswith('.'):
                shutil.rmtree(folder, ignore_errors=True)

    def _fetch_records(self) -> None:
        """Bring the records of the store into the mirror, which has no others then.

        Raises:
            StoreError: The store cannot be read.
        """
        here_before = self.version_here()
        for folder in (MANIFESTS, HISTORY):
            here = self.mirror / folder
            here.mkdir(exist_ok=True)
            with self._talking():
                there = {name for name in self._files.names(folder) if _is_record(name)}
            if folder == MANIFESTS and here_before and not there:
                msg = (
                    f'{self.url} is empty, and it was not: see that it is mounted; where it is '
                    f'to begin anew, remove {self.mirror}'
                )
                raise StoreError(msg)
            for path in here.iterdir():
                if path.name not in there:
                    path.unlink()
            for name in there:
                with self._talking():
                    write_whole(here / name, self._files.read(f'{folder}/{name}'))
        if any((self.mirror / MANIFESTS).iterdir()):
            write_whole(self.mirror / IN_FORCE, self._in_force_there()[0])
        else:  # nothing was ever promoted there
            (self.mirror / IN_FORCE).unlink(missing_ok=True)

    def _records(self) -> set[str]:
        """Names of the manifests in the mirror, and of the entries of its history."""
        folders = (self.mirror / name for name in (HISTORY, MANIFESTS))
        return {f'{path.parent.name}/{path.name}' for f in folders for path in f.glob('*.json')}

    def _send(self, records: set[str]) -> None:
        """Send what is new in the mirror: its model, these records, and last what is in force.

        Raises:
            StoreError: The store cannot be written, or another process has changed it.
        """
        promoted = read_manifest(self.mirror, self.mirror / IN_FORCE)
        with self._talking():
            if promoted.number and not self._is_there(promoted):
                folder = f'{MODELS}/{promoted.folder.name}'
                for name in _files_of(promoted, self.url):
                    self._files.send(promoted.folder / name, f'{folder}/{name}')
            for name in sorted(records):
                self._files.write(name, (self.mirror / name).read_bytes(), is_new=True)
            self._files.write(IN_FORCE, (self.mirror / IN_FORCE).read_bytes())

    def _is_there(self, promoted: PromotedModel) -> bool:
        try:
            self.see_there(promoted)
        except StoreError:
            return False
        return True


def _folder_of(url: str) -> Path | None:
    """Folder that a URL names; None: it is of another kind.

    Raises:
        ConfigError: It cannot be used, or holds a password, which messages would show.
    """
    try:
        parts = urlsplit(url)
    except ValueError as error:
        msg = f'{url!r} is no URL of a store ({error})'
        raise ConfigError(msg) from None
    if parts.password is not None:
        msg = f'the URL of a store at {parts.hostname} has a password: leave it out'
        raise ConfigError(msg)
    if parts.scheme != 'file':
        return None
    if parts.netloc not in {'', 'localhost'}:
        msg = f'{url} names the host {parts.netloc!r}: expected file:///FOLDER, with three slashes'
        raise ConfigError(msg)
    return Path(unquote(parts.path))


def _files_of(promoted: PromotedModel, url: str) -> dict[str, tuple[int, str]]:
    """Size and SHA-256 of the files of a version, by name.

    Raises:
        StoreError: The manifest does not say, or names one that may not be there.
    """
    try:
        entries: dict[str, Any] = dict(promoted.record['files'])
        files = {
            str(name): (int(entry['size']), str(entry['sha256']))
            for name, entry in entries.items()
        }
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        msg = f'manifest {promoted.number} of {url} does not list its files ({error!r})'
        raise StoreError(msg) from None
    for name in files:
        is_known = name == CARD or any(fnmatch(name, pattern) for pattern in MODEL_PATTERNS)
        if not is_plain_name(name) or not is_known:
            msg = (
                f'manifest {promoted.number} of {url} has a file {name!r}: expected '
                f'{", ".join(MODEL_PATTERNS)}'
            )
            raise StoreError(msg)
    return files


def _digest_of(folder: Path) -> str:
    """Digest of a model that may be damaged; empty: it holds no weights."""
    try:
        return model_digest(folder)
    except ConfigError:
        return ''


def _is_record(name: str) -> bool:
    return name.endswith('.json') and name.removesuffix('.json').isdecimal()


def _words(error: Exception) -> str:
    return ' '.join(str(error).split()) or type(error).__name__


def slot_here(slot: str) -> Path:
    """Folder of a slot by its name, path or URL; of one at a URL the mirror, as the store is now.

    Raises:
        InputError: The store cannot be read, or has in force what is not whole.
    """
    if not is_store(slot):
        return slot_folder(slot)
    store = ModelStore(slot)
    if in_force_number(store.fetch_records()):
        store.pull()
    return store.mirror


def records_here(slot: str) -> Path:
    """As `slot_here`, without the models.

    Raises:
        InputError: The store cannot be read.
    """
    return ModelStore(slot).fetch_records() if is_store(slot) else slot_folder(slot)


def promote_in(
    slot: str, model: Path, record: Mapping[str, Any], signature: Signature
) -> PromotedModel:
    """Bring a model into force in a slot by its name, path or URL (see `promote`).

    Raises:
        InputError: The folder holds no weights, or the slot or store cannot be written.
    """
    if not is_store(slot):
        return promote(slot_folder(slot), model, record, signature)
    with ModelStore(slot).revision() as mirror:
        return promote(mirror, model, record, signature)


def roll_back_in(slot: str, signature: Signature) -> PromotedModel | None:
    """Take the last promotion back in a slot by its name, path or URL (see `roll_back`).

    Of a store no model is read; every robot that follows it takes the one from before.

    Raises:
        InputError: Nothing is promoted, or the slot or store cannot be read or written.
    """
    if not is_store(slot):
        return roll_back(slot_folder(slot), signature)
    store = ModelStore(slot)
    with store.revision() as mirror:
        return roll_back(mirror, signature, store.see_there)


def publish(slot: str, store: str, signature: Signature) -> PromotedModel:
    """Bring what is in force in one slot into force in another, with what is known of it.

    Args:
        slot: Name, path or URL of the slot that it comes from.
        store: Of the one that it goes to.
        signature: Who publishes it, when and why.

    Raises:
        InputError: Nothing is promoted, or a slot or store cannot be read or written.
    """
    source = slot_here(slot)
    is_mirror = is_store(slot) and source != slot_folder(store)
    # A follower of it would else remove what is being copied, once others are in force.
    with ModelStore(slot).hold() if is_mirror else nullcontext():
        promoted = in_force(source)
        if promoted is None:
            msg = f'nothing is promoted in {slot}: there is nothing to publish'
            raise InputError(msg)
        return promote_in(store, promoted.folder, promoted.record, signature)
