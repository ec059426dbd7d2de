# SPDX-License-Identifier: Apache-2.0
"""The manifest of a run: what it starts from, kept in its folder; and where it continues."""

from __future__ import annotations

import json
from pathlib import Path
import shutil
import sys
from typing import Any, TYPE_CHECKING
from zipfile import is_zipfile

from embodied_r_ros.common.errors import InputError
from embodied_r_ros.common.files import write_whole
from embodied_r_ros.common.settings import read_yaml
from embodied_r_ros.core.chat.settings import holds_weights
from embodied_r_ros.data.episodes.inspect import file_sha256
from safetensors import safe_open, SafetensorError
import yaml

from training.eval.generation import model_identity

if TYPE_CHECKING:
    from collections.abc import Mapping

# The trainer writes it last: when a process ends, a checkpoint that has it is complete.
_LAST_FILE = 'trainer_state.json'


def newest_checkpoint(folder: str) -> str | None:
    """Folder of the newest complete checkpoint; None: there is none.

    What a killed run left half-written is removed: the trainer would take it for the newest, and
    fail on it.
    """
    checkpoints = sorted(
        Path(folder).glob('checkpoint-*'), key=lambda path: int(path.name[11:] or 0)
    )
    for checkpoint in reversed(checkpoints):
        if _is_complete(checkpoint):
            return str(checkpoint)
        sys.stderr.write(f'{checkpoint} is half-written: it is removed\n')
        shutil.rmtree(checkpoint, ignore_errors=True)  # several processes come here at once
    return None


def _is_complete(checkpoint: Path) -> bool:
    try:
        json.loads((checkpoint / _LAST_FILE).read_text(encoding='utf-8'))
        for file in checkpoint.glob('*.safetensors'):  # when a machine ends, the rest may be cut
            with safe_open(file, 'numpy'):
                pass
        states = [*checkpoint.rglob('*.pt'), *checkpoint.rglob('*.pth')]  # torch writes zip files
        return all(map(is_zipfile, states))
    except (OSError, ValueError, SafetensorError):
        return False


# No .json: the digest of a model is over those, and releases and promotions copy them.
_FILE = 'manifest.yaml'
# What of a recipe's own settings does not decide what is learned from the first step on; the model
# is known by its weights. How long it learns, and how it logs and saves, may change as well.
_FREE = ('model', 'judge', 'max_eval_rows', 'max_eval_samples', 'threads', 'adapter_server')


def manifest_of(settings: Mapping[str, Any], seed: int) -> dict[str, Any]:
    """What a recipe with these settings begins from.

    Args:
        settings: Those of the recipe's own dataclass, by name.
        seed: The trainer's.

    Raises:
        InputError: The model to start from is none.
    """
    model = settings.get('model', '')
    deciding = {name: value for name, value in settings.items() if name not in _FREE}
    read = [*settings.get('rows', ()), *(settings.get(n, '') for n in ('samples', 'adapter'))]
    contents = {f'sha256 of {file}': file_sha256(Path(file)) for file in read if _is_file(file)}
    start = model_identity(model) if model else ''
    return {'model': start, 'seed': seed, **deciding, **contents}


def manifest_in(folder: Path) -> dict[str, Any]:
    """The manifest that is kept in a folder; empty: none is, or none that can be taken."""
    before = read_yaml(folder / _FILE) if (folder / _FILE).exists() else {}
    return before if isinstance(before, dict) else {}


def _is_file(name: str) -> bool:
    return bool(name) and Path(name).is_file()  # where there is none, its reader will say so


def checkpoint_of(folder: str, manifest: Mapping[str, Any], *, is_main: bool = True) -> str | None:
    """The newest checkpoint in an output folder, from which its run continues; None: it begins.

    Args:
        folder: Output folder of the run, in which is kept what it begins from.
        manifest: What it would begin from now (`manifest_of`).
        is_main: Of several processes, the one that writes.

    Raises:
        InputError: What is in the folder began from elsewhere, or it cannot be written.
    """
    checkpoint = newest_checkpoint(folder)
    if checkpoint or holds_weights(Path(folder)):
        refuse_another(Path(folder), manifest)
    elif is_main:
        _note(Path(folder), manifest)
    return checkpoint


def begin_or_go_on(folder: Path, manifest: Mapping[str, Any]) -> None:
    """Keep in a folder what is begun there, the first time; after that, refuse anything else.

    Raises:
        InputError: Something else was begun there, or it cannot be written.
    """
    if (folder / _FILE).exists():
        refuse_another(folder, manifest)
    else:
        _note(folder, manifest)


def _note(folder: Path, manifest: Mapping[str, Any]) -> None:
    text = yaml.safe_dump(dict(manifest), sort_keys=False, allow_unicode=True)
    write_whole(folder / _FILE, text, makes_folder=True)


def refuse_another(folder: Path, manifest: Mapping[str, Any]) -> None:
    """Refuse a folder that tells of another start; folders from before tell none.

    Raises:
        InputError: It does, or what it tells cannot be read.
    """
    if not (folder / _FILE).exists():
        return
    before = read_yaml(folder / _FILE)
    if not isinstance(before, dict):
        msg = f'{folder / _FILE} does not tell what the run began from: delete {folder}'
        raise InputError(msg)
    names = [name for name in manifest if before.get(name, manifest[name]) != manifest[name]]
    if names:
        other = ', '.join(f'{name} {before[name]!r}, not {manifest[name]!r}' for name in names)
        msg = (
            f'{folder} has a run that began otherwise ({other}): name another output folder, or '
            'delete this one'
        )
        raise InputError(msg)
