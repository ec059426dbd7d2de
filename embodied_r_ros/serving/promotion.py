# SPDX-License-Identifier: Apache-2.0
"""Which model was promoted to serve: a slot is a folder with manifests, one of them in force.

    models/NAME-DIGEST/     copies of models and adapters
    manifests/0001.json     what is known of each, by its number
    history/0001.json       who promoted or took back, when and why; nothing in it changes
    manifest.json           the manifest in force, written last; number 0: none is

Many robots may follow one slot, in a folder that they all mount.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
import json
from pathlib import Path
import shutil
import tempfile
from typing import Any, TYPE_CHECKING

from embodied_r_ros.common.errors import ConfigError
from embodied_r_ros.common.files import user_folder, write_new, write_whole
from embodied_r_ros.core.chat.settings import model_digest, model_files

if TYPE_CHECKING:
    from collections.abc import Mapping


def put_in_place(folder: Path, target: Path) -> None:
    """Rename a folder to its place; what was there goes only once the new one is in.

    Args:
        folder: The new folder, complete, on the same disk.
        target: Its place; may be empty, or hold an older folder.

    Raises:
        OSError: It cannot be renamed; what was there is there still.
    """
    aside = _aside(target)
    try:
        if target.exists():
            shutil.rmtree(aside, ignore_errors=True)  # of a process that was killed
            target.rename(aside)
        folder.replace(target)
    finally:
        bring_back(target)
    shutil.rmtree(aside, ignore_errors=True)


def bring_back(target: Path) -> None:
    """Bring the older folder back, where a process was killed between the two renamings."""
    if not target.exists() and _aside(target).exists():
        _aside(target).rename(target)


def _aside(target: Path) -> Path:
    return target.with_name(f'.{target.name}.old')


IN_FORCE, MODELS, MANIFESTS, HISTORY = 'manifest.json', 'models', 'manifests', 'history'
CARD = 'README.md'
ROLL_BACK = 'take another by `embodied-r models rollback`'


class GoneError(ConfigError):
    """What a slot holds is not here as it was promoted."""


@dataclass(frozen=True)
class Signature:
    """Who changes what is in force, when and why."""

    by: str = ''
    date: str = ''
    why: str = ''


@dataclass(frozen=True)
class PromotedModel:
    """A model that was promoted."""

    number: int  # of its manifest, from 1
    previous: int  # manifest that was in force before; 0: none
    folder: Path  # of its copy
    digest: str  # over its files
    record: Mapping[str, Any]  # the whole manifest

    @property
    def is_adapter(self) -> bool:
        """Whether it is a LoRA adapter, which a server takes on top of its own model."""
        return not (self.folder / 'config.json').exists()

    @property
    def weights(self) -> Path:
        """What its digest is of."""
        return weights_of(self.folder)


def weights_of(folder: Path) -> Path:
    """The adapter in GGUF that a folder holds; else the folder, which holds a model or adapter."""
    return next(iter(sorted(folder.glob('*.gguf'))), folder)


def slot_folder(slot: str) -> Path:
    """Folder of a slot that is given by its name or path.

    Named slots lie where the XDG base directory specification has data.

    Raises:
        ConfigError: It is a URL.
    """
    if '://' in slot:
        msg = f'slot {slot!r} is a URL: expected a name, or the path of a mounted folder'
        raise ConfigError(msg)
    if '/' in slot:
        return Path(slot).expanduser()
    return user_folder('data', 'promoted') / slot


def in_force(slot: Path) -> PromotedModel | None:
    """What is promoted in a slot; None: nothing, the profile's own model serves.

    Raises:
        ConfigError: The manifest cannot be read, or its model is not there as it was promoted.
    """
    if not in_force_number(slot):
        return None
    promoted = read_manifest(slot, slot / IN_FORCE)
    see_whole(promoted)
    return promoted


def see_whole(promoted: PromotedModel) -> None:
    """See that a model is here as it was promoted.

    Raises:
        GoneError: It is not.
    """
    try:
        digest = model_digest(promoted.weights)
    except ConfigError as error:
        msg = f'{error}: {ROLL_BACK}'
        raise GoneError(msg) from None
    if digest != promoted.digest:
        msg = f'{promoted.folder} is not what was promoted ({digest}): {ROLL_BACK}'
        raise GoneError(msg)


def promote(
    slot: Path, model: Path, record: Mapping[str, Any], signature: Signature | None = None
) -> PromotedModel:
    """Copy a model into a slot and bring it into force.

    Args:
        slot: Folder of the slot.
        model: Folder of the model or adapter, or the file of an adapter in GGUF.
        record: What is known of it, for the manifest; of an adapter in GGUF also the `digest` of
            its `base`.
        signature: Who promotes it, when and why, for the history.

    Raises:
        InputError: The folder holds no weights, or the slot cannot be written.
    """
    try:
        digest = model_digest(model)
        folder = _copy(slot, model, digest)
        before = in_force_number(slot)
        number = last_number(slot / MANIFESTS) + 1
        own = {'number': number, 'previous': before, 'model': folder.name, 'digest': digest}
        manifest = json.dumps({**own, **record, **own}, indent=2) + '\n'
        _note(slot, 'promote', own, signature)
        path = slot / MANIFESTS / f'{number:04}.json'
        write_whole(path, manifest, makes_folder=True)
        write_whole(slot / IN_FORCE, manifest)
    except OSError as error:
        msg = f'slot {slot} cannot be written: {error.strerror}'
        raise ConfigError(msg) from None
    return read_manifest(slot, slot / IN_FORCE)


def roll_back(slot: Path, signature: Signature | None = None) -> PromotedModel | None:
    """Bring the manifest into force that was before; None: the profile's own model serves again.

    Args:
        slot: Folder of the slot.
        signature: Who takes back, when and why, for the history.

    Raises:
        InputError: Nothing is promoted, or the slot cannot be read or written; what was in force
            is in force still.
    """
    if not in_force_number(slot):
        msg = f'nothing is promoted in {slot}: there is nothing to take back'
        raise ConfigError(msg)
    previous = read_manifest(slot, slot / IN_FORCE).previous
    manifest = json.dumps(_NOTHING) + '\n'
    before = None
    try:
        if previous:
            path = slot / MANIFESTS / f'{previous:04}.json'
            manifest = path.read_text(encoding='utf-8')
            see_whole(before := read_manifest(slot, path))
        _note(slot, 'rollback', before.record if before else _NOTHING, signature)
        write_whole(slot / IN_FORCE, manifest)
    except OSError as error:
        msg = f'manifest {previous} of {slot} cannot be taken: {error}'
        raise ConfigError(msg) from None
    return before


_NOTHING: Mapping[str, Any] = {'number': 0, 'previous': 0, 'model': '', 'digest': ''}


def publish(slot: Path, target: Path, signature: Signature) -> PromotedModel:
    """Bring what is in force in one slot into force in another, with what is known of it.

    Raises:
        InputError: Nothing is promoted, or a slot cannot be read or written.
    """
    promoted = in_force(slot)
    if promoted is None:
        msg = f'nothing is promoted in {slot}: there is nothing to publish'
        raise ConfigError(msg)
    return promote(target, promoted.weights, promoted.record, signature)


def history(slot: Path) -> list[dict[str, Any]]:
    """What was promoted and taken back, the oldest first.

    Raises:
        ConfigError: An entry cannot be read.
    """
    entries = []
    for path in sorted(_numbered(slot / HISTORY)):
        try:
            entries.append(dict(json.loads(path.read_text(encoding='utf-8'))))
        except (OSError, ValueError, TypeError) as error:
            msg = f'{path} is no entry of a history ({error!r})'
            raise ConfigError(msg) from None
    return entries


def in_force_number(slot: Path) -> int:
    """Number of the manifest in force; 0: none is.

    Raises:
        ConfigError: It cannot be read.
    """
    path = slot / IN_FORCE
    return read_manifest(slot, path).number if path.exists() else 0


def last_number(folder: Path) -> int:
    """Number of the newest file in a folder of manifests, or of the history; 0: there is none."""
    return max((int(path.stem) for path in _numbered(folder)), default=0)


def manifest_stamp(slot: Path) -> tuple[int, int] | None:
    """Something that is another after every change of what is in force; None: nothing is."""
    try:
        stat = (slot / IN_FORCE).stat()
    except OSError:
        return None
    return stat.st_ino, stat.st_mtime_ns


def read_manifest(slot: Path, path: Path) -> PromotedModel:
    """Read a manifest of a slot.

    Raises:
        ConfigError: It cannot be read, or names a model outside of the slot.
    """
    try:
        record = json.loads(path.read_bytes())
        name, digest = str(record['model']), str(record['digest'])
        number, previous = int(record['number']), int(record['previous'])
    except (OSError, ValueError, KeyError, TypeError, OverflowError) as error:
        msg = f'{path} is no manifest ({error!r}): remove it, or promote anew'
        raise ConfigError(msg) from None
    if number and not _is_plain_name(name):
        msg = f'{path} is no manifest (model is {name!r}): expected a name without a folder'
        raise ConfigError(msg)
    return PromotedModel(number, previous, (slot / MODELS / name).absolute(), digest, record)


def _is_plain_name(name: str) -> bool:
    """Tell whether a name stays in its folder and is not hidden."""
    is_visible = name.isprintable() and name[:1] not in {'', '.'}
    return is_visible and Path(name).name == name


def _note(
    slot: Path, action: str, manifest: Mapping[str, Any], signature: Signature | None
) -> None:
    """Add an entry to the history.

    Raises:
        ConfigError: Another process promotes or takes back at the same time.
        OSError: It cannot be written.
    """
    event = last_number(slot / HISTORY) + 1
    entry = {'event': event, 'action': action}
    entry |= {name: manifest[name] for name in ('number', 'model', 'digest')}
    entry |= asdict(signature or Signature())
    try:
        write_new(slot / HISTORY / f'{event:04}.json', json.dumps(entry, indent=2) + '\n')
    except FileExistsError:
        msg = f'{slot} is changed by another process: try again'
        raise ConfigError(msg) from None


def _copy(slot: Path, model: Path, digest: str) -> Path:
    """The model's copy; made beside its place and renamed, so that no half of one is there."""
    end = f'-{digest.removeprefix("sha256:")[:12]}'
    # Of another slot it has one already.
    name = (model.resolve().stem if model.is_file() else model.resolve().name).removesuffix(end)
    name += end
    folder = slot / MODELS / name
    if folder.exists() and _is_whole(folder, digest):
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix='.') as unfinished:
        copy = Path(unfinished) / name
        copy.mkdir()
        for path in _files_to_copy(model):
            shutil.copyfile(path, copy / path.name)
        put_in_place(copy, folder)
    return folder


def _files_to_copy(model: Path) -> list[Path]:
    """What decides a model's answers, and its card."""
    card = model / CARD
    return [*model_files(model), *([card] if card.exists() else [])]


def _is_whole(folder: Path, digest: str) -> bool:
    """Tell whether an earlier copy is still what was promoted."""
    try:
        return model_digest(weights_of(folder)) == digest
    except ConfigError:  # its weights are gone
        return False


def _numbered(folder: Path) -> list[Path]:
    return [path for path in folder.glob('*.json') if path.stem.isdecimal()]
