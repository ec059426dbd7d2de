# SPDX-License-Identifier: Apache-2.0
"""Where to go on: the newest complete checkpoint of a run."""

from __future__ import annotations

import json
from pathlib import Path
import shutil
import sys
from zipfile import is_zipfile

from safetensors import safe_open, SafetensorError

# The trainer writes it last: when a process ends, a checkpoint that has it is complete.
_LAST_FILE = 'trainer_state.json'


def newest_checkpoint(folder: str) -> str | None:
    """Folder of the newest complete checkpoint; None: there is none.

    What a killed run left half-written is removed: the trainer would take it for the newest, and
    fail on it.
    """
    found = sorted(Path(folder).glob('checkpoint-*'), key=lambda path: int(path.name[11:] or 0))
    for checkpoint in reversed(found):
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
