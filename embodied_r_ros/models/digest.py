# SPDX-License-Identifier: Apache-2.0
"""Which weights these are: one digest over the files of a model folder that decide its answers."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from embodied_r_ros.errors import ConfigError
from embodied_r_ros.models.weights import holds_weights, refuse_pickles

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

# Weights, configuration, tokenizer, chat template. A card or a log does not change an answer.
_PATTERNS = ('*.safetensors', '*.json', '*.jinja', 'merges.txt', 'vocab.txt', '*.model')
_PIECE = 8 * 1024 * 1024

# (path, size, time of change [ns]) -> sum; weights are read once per process.
_sums: dict[tuple[str, int, int], str] = {}


def model_digest(*folders: Path, check: Callable[[], object] = lambda: None) -> str:
    """Digest of a model: SHA-256 over the names and SHA-256 sums of the files in its folders.

    Args:
        folders: Folder of the model in the layout of Hugging Face, then of its adapter.
        check: Called before every 8 MiB; what it raises ends the work, and files that were read
            are not read again next time.

    Returns:
        'sha256:' and 64 hexadecimal digits.

    Raises:
        ConfigError: A folder holds no weights, or pickles.
    """
    total = hashlib.sha256()
    for folder in folders:
        refuse_pickles(folder)
        if not holds_weights(folder):
            msg = f'{folder} holds no model: expected *.safetensors in it'
            raise ConfigError(msg)
        for path in model_files(folder):
            total.update(f'{_file_sum(path, check)}  {path.name}\n'.encode())
    return f'sha256:{total.hexdigest()}'


def model_files(folder: Path) -> list[Path]:
    """The files of a model folder that decide its answers."""
    return sorted({path for pattern in _PATTERNS for path in folder.glob(pattern)})


def _file_sum(path: Path, check: Callable[[], object]) -> str:
    stat = path.stat()
    key = (str(path), stat.st_size, stat.st_mtime_ns)
    if key not in _sums:
        digest = hashlib.sha256()
        with path.open('rb') as file:
            while piece := file.read(_PIECE):
                check()
                digest.update(piece)
        _sums[key] = digest.hexdigest()
    return _sums[key]
