# SPDX-License-Identifier: Apache-2.0
"""An adapter merged into its model: whole weights, which every server takes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from peft import PeftModel
from transformers import AutoModelForCausalLM

from training.models import base_folder, SAFELY
from training.nano import load_tokenizer

if TYPE_CHECKING:
    from pathlib import Path


def merged(adapter: Path, target: Path) -> Path:
    """Merge an adapter into the weights below it, and save the whole model in a folder.

    It is as precise as the model below it, and no larger.

    Raises:
        InputError: The model below it is not on this machine.
    """
    base = base_folder(adapter)
    model = AutoModelForCausalLM.from_pretrained(base, dtype='auto', **SAFELY)
    dtype = model.dtype
    # What an adapter adds is small: it is added in float32, and rounded once.
    whole = PeftModel.from_pretrained(model.float(), str(adapter)).merge_and_unload()
    whole.to(dtype).save_pretrained(target)
    load_tokenizer(base).save_pretrained(target)
    return target
