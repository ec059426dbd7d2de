# SPDX-License-Identifier: Apache-2.0
"""From a training folder to a model that can be shipped: `python -m training.release FROM TO`.

Keeps weights (safetensors), config and tokenizer, and says how text is to be generated. What
training leaves behind (checkpoints, optimiser, arguments) stays where it is.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
import shutil
import sys
import tempfile
from typing import Any, TYPE_CHECKING

from embodied_r_ros.common.errors import InputError
from embodied_r_ros.core.chat.settings import model_digest
from embodied_r_ros.serving.promotion import bring_back, put_in_place

from training.run.command import run_command
from training.run.models import load_tokenizer

if TYPE_CHECKING:
    from collections.abc import Sequence

_FILES = (
    'config.json',
    'model.safetensors',
    'tokenizer.json',
    'tokenizer_config.json',
    'chat_template.jinja',
)
_CARD = 'README.md'
_SETTINGS = 'generation_config.json'
_RELEASED = {*_FILES, _CARD, _SETTINGS}


def release(source: Path, target: Path) -> str:
    """Make a folder with the model alone; returns the digest of the model.

    A model card (README.md) that the target has already is kept.

    Raises:
        InputError: The source lacks a file, its tokenizer is not usable, or the target holds
            anything but an older release or cannot be written.
    """
    missing = [name for name in _FILES[:4] if not (source / name).exists()]
    if missing:
        msg = f'{source} is not a trained model: it lacks {", ".join(missing)}'
        raise InputError(msg)
    try:
        tokenizer = load_tokenizer(source)
    except ValueError as error:
        raise InputError(str(error)) from None
    place = target.resolve()  # where the target is a link, it stays one
    try:
        bring_back(place)
        _refuse_overlap(source, place)
        _refuse_losses(place)
        _copy(source, place, tokenizer)
    except OSError as error:
        msg = f'{target} cannot be made of {source}: {error}'
        raise InputError(msg) from None
    return model_digest(target)


def _refuse_overlap(source: Path, target: Path) -> None:
    """Refuse a target that is the source, or of which one lies in the other.

    Raises:
        InputError: It is.
    """
    origin = source.resolve()
    if target == origin or target in origin.parents or origin in target.parents:
        msg = f'TO {target} and FROM {origin} are one folder, or one lies in the other: '
        raise InputError(msg + 'name another TO, such as models/NAME')


def _refuse_losses(target: Path) -> None:
    """Refuse a target whose replacement would lose anything but an older release.

    Raises:
        InputError: It is a file, or a folder of something else.
    """
    if not target.exists():
        return
    if not target.is_dir():
        msg = f'TO {target} is a file: name a folder, such as models/NAME'
        raise InputError(msg)
    names = {path.name for path in target.iterdir()}
    others = [n for n in sorted(names) if n not in _RELEASED or not (target / n).is_file()]
    is_release = set(_FILES[:2]) <= names or names <= {_CARD}
    if others or not is_release:
        msg = (
            f'TO {target} is no released model and would be lost, for it holds '
            f'{", ".join((others or sorted(names))[:3])}: name a folder of a released model, '
            'or one that is not there yet'
        )
        raise InputError(msg)


def _copy(source: Path, target: Path, tokenizer: Any) -> None:
    """Copy what is released; made beside its place and renamed."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=f'.{target.name}-') as name:
        copy = Path(name) / target.name
        copy.mkdir()
        for file in (*_FILES, _CARD):
            origin = target / file if file == _CARD else source / file
            if origin.exists():
                shutil.copyfile(origin, copy / file)
        # Without do_sample, servers ignore the temperature of a request.
        settings = {
            'do_sample': True,
            'eos_token_id': tokenizer.eos_token_id,
            'pad_token_id': tokenizer.pad_token_id,
            'max_new_tokens': 512,
        }
        (copy / _SETTINGS).write_text(json.dumps(settings, indent=2) + '\n')
        put_in_place(copy, target)


def _run(args: argparse.Namespace) -> int:
    digest = release(args.source, args.target)
    sys.stdout.write(f'{args.target} {digest}\n')
    return 0


def main(arguments: Sequence[str] | None = None) -> int:
    """Release a model."""
    parser = argparse.ArgumentParser(prog='training.release', description=__doc__)
    parser.add_argument('source', type=Path, metavar='FROM', help='output folder of a training')
    parser.add_argument('target', type=Path, metavar='TO', help='such as models/mine')
    return run_command(parser, _run, arguments)


if __name__ == '__main__':
    sys.exit(main())
