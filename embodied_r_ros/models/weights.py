# SPDX-License-Identifier: Apache-2.0
"""Weights are safetensors. A pickle runs whatever its author wants when it is read."""

from __future__ import annotations

from typing import TYPE_CHECKING

from embodied_r_ros.errors import ConfigError

if TYPE_CHECKING:
    from pathlib import Path

_PICKLES = ('.bin', '.pt', '.pth', '.ckpt', '.pkl', '.pickle')


def holds_weights(folder: Path) -> bool:
    """Tell whether a folder holds weights as safetensors."""
    return any(folder.glob('*.safetensors'))


def refuse_pickles(path: Path) -> None:
    """Refuse a model whose weights are pickles: a file, or a folder without safetensors.

    What lies beside safetensors is never read, such as a trainer's `training_args.bin`.

    Raises:
        ConfigError: They are pickles.
    """
    if path.is_dir() and holds_weights(path):
        return
    files = sorted(path.iterdir()) if path.is_dir() else [path]
    pickles = [file.name for file in files if file.suffix.lower() in _PICKLES]
    if pickles:
        msg = (
            f'{path} has its weights as a pickle ({pickles[0]}), which can run any code when it '
            'is read: expected *.safetensors, as save_pretrained() of transformers writes them'
        )
        raise ConfigError(msg)
