# SPDX-License-Identifier: Apache-2.0
"""Which model was promoted to serve: a slot is a folder with manifests, one of them in force."""

from __future__ import annotations

from dataclasses import dataclass
import json
from pathlib import Path
import shutil
import tempfile
from typing import Any, TYPE_CHECKING

from embodied_r_ros.chat.settings import model_digest, model_files
from embodied_r_ros.common.errors import ConfigError
from embodied_r_ros.common.resources import data_folder

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


_IN_FORCE = 'manifest.json'
_CARD = 'README.md'
_ROLL_BACK = 'take another by `python -m training.promote --rollback`'


@dataclass(frozen=True)
class Promoted:
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


def slot_folder(slot: str) -> Path:
    """Folder of a slot that is given by its name or by its path.

    Named slots lie where the XDG base directory specification has data.
    """
    if '/' in slot:
        return Path(slot).expanduser()
    return data_folder('promoted') / slot


def in_force(slot: Path) -> Promoted | None:
    """What is promoted in a slot; None: nothing, the profile's own model serves.

    Raises:
        ConfigError: The manifest cannot be read, or its model is not there as it was promoted.
    """
    path = slot / _IN_FORCE
    if not path.exists():
        return None
    promoted = _read(slot, path)
    digest = model_digest(promoted.folder)
    if digest != promoted.digest:
        msg = f'{promoted.folder} is not what was promoted ({digest}): {_ROLL_BACK}'
        raise ConfigError(msg)
    return promoted


def promote(slot: Path, model: Path, record: Mapping[str, Any]) -> Promoted:
    """Copy a model into a slot and bring it into force.

    Args:
        slot: Folder of the slot.
        model: Folder of the model or adapter.
        record: What is known of it, for the manifest.

    Raises:
        ConfigError: The folder holds no weights, or the slot cannot be written.
    """
    try:
        digest = model_digest(model)
        folder = _copy(slot, model, digest)
        before = in_force_number(slot)
        number = max((int(path.stem) for path in _manifests(slot)), default=0) + 1
        own = {'number': number, 'previous': before, 'model': folder.name, 'digest': digest}
        manifest = json.dumps({**own, **record}, indent=2) + '\n'
        (slot / 'manifests').mkdir(exist_ok=True)
        _write(slot / 'manifests' / f'{number:04}.json', manifest)
        _write(slot / _IN_FORCE, manifest)
    except OSError as error:
        msg = f'slot {slot} cannot be written: {error.strerror}'
        raise ConfigError(msg) from None
    return _read(slot, slot / _IN_FORCE)


def roll_back(slot: Path) -> Promoted | None:
    """Bring the manifest into force that was before; None: the profile's own model serves again.

    Raises:
        ConfigError: Nothing is promoted, or the slot cannot be read or written.
    """
    number = in_force_number(slot)
    if not number:
        msg = f'nothing is promoted in {slot}: there is nothing to take back'
        raise ConfigError(msg)
    previous = _read(slot, slot / _IN_FORCE).previous
    try:
        if not previous:
            (slot / _IN_FORCE).unlink()
            return None
        before = slot / 'manifests' / f'{previous:04}.json'
        _write(slot / _IN_FORCE, before.read_text())
    except OSError as error:
        msg = f'manifest {previous} of {slot} cannot be taken: {error}'
        raise ConfigError(msg) from None
    return in_force(slot)


def in_force_number(slot: Path) -> int:
    """Number of the manifest in force; 0: none is.

    Raises:
        ConfigError: It cannot be read.
    """
    path = slot / _IN_FORCE
    return _read(slot, path).number if path.exists() else 0


def manifest_stamp(slot: Path) -> tuple[int, int] | None:
    """Something that is another after every change of what is in force; None: nothing is."""
    try:
        stat = (slot / _IN_FORCE).stat()
    except OSError:
        return None
    return stat.st_ino, stat.st_mtime_ns


def _read(slot: Path, path: Path) -> Promoted:
    try:
        record = json.loads(path.read_text())
        folder = slot / 'models' / str(record['model'])
        number, previous = int(record['number']), int(record['previous'])
        return Promoted(number, previous, folder.absolute(), str(record['digest']), record)
    except (OSError, ValueError, KeyError, TypeError) as error:
        msg = f'{path} is no manifest ({error!r}): remove it, or promote anew'
        raise ConfigError(msg) from None


def _copy(slot: Path, model: Path, digest: str) -> Path:
    """The model's copy; made beside its place and renamed, so that no half of one is there."""
    name = f'{model.resolve().name}-{digest.removeprefix("sha256:")[:12]}'
    folder = slot / 'models' / name
    if folder.exists() and _is_whole(folder, digest):
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix='.') as unfinished:
        copy = Path(unfinished) / name
        copy.mkdir()
        card = model / _CARD
        for path in (*model_files(model), *([card] if card.exists() else [])):
            shutil.copyfile(path, copy / path.name)
        put_in_place(copy, folder)
    return folder


def _is_whole(folder: Path, digest: str) -> bool:
    """Tell whether an earlier copy is still what was promoted."""
    try:
        return model_digest(folder) == digest
    except ConfigError:  # its weights are gone
        return False


def _manifests(slot: Path) -> list[Path]:
    return [path for path in (slot / 'manifests').glob('*.json') if path.stem.isdecimal()]


def _write(path: Path, text: str) -> None:
    unfinished = path.with_name(path.name + '.tmp')
    unfinished.write_text(text, encoding='utf-8')
    unfinished.replace(path)
