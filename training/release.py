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
from typing import TYPE_CHECKING

from embodied_r_ros.errors import EmbodiedRError, InputError
from embodied_r_ros.models.digest import model_digest

from training.nano import load_tokenizer

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


def release(source: Path, target: Path) -> str:
    """Make a folder with the model alone; returns the digest of the model.

    A model card (README.md) that the target has already is kept.

    Raises:
        InputError: The source lacks a file, or its tokenizer is not usable.
    """
    missing = [name for name in _FILES[:4] if not (source / name).exists()]
    if missing:
        msg = f'{source} is not a trained model: it lacks {", ".join(missing)}'
        raise InputError(msg)
    try:
        tokenizer = load_tokenizer(source)
    except ValueError as error:
        raise InputError(str(error)) from None
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=f'.{target.name}-') as name:
        made = Path(name) / target.name
        made.mkdir()
        for file in (*_FILES, _CARD):
            origin = target / file if file == _CARD else source / file
            if origin.exists():
                shutil.copyfile(origin, made / file)
        # Without do_sample, servers ignore the temperature of a request.
        settings = {
            'do_sample': True,
            'eos_token_id': tokenizer.eos_token_id,
            'pad_token_id': tokenizer.pad_token_id,
            'max_new_tokens': 512,
        }
        (made / 'generation_config.json').write_text(json.dumps(settings, indent=2) + '\n')
        shutil.rmtree(target, ignore_errors=True)
        made.replace(target)
    return model_digest(target)


def main(arguments: Sequence[str] | None = None) -> int:
    """Release a model."""
    parser = argparse.ArgumentParser(prog='training.release', description=__doc__)
    parser.add_argument('source', type=Path, metavar='FROM', help='output folder of a training')
    parser.add_argument('target', type=Path, metavar='TO', help='such as models/nano')
    args = parser.parse_args(arguments)
    try:
        digest = release(args.source, args.target)
    except EmbodiedRError as error:
        sys.stderr.write(f'training.release: error: {error}\n')
        return 2
    sys.stdout.write(f'{args.target} {digest}\n')
    return 0


if __name__ == '__main__':
    sys.exit(main())
