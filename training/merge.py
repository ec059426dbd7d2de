# SPDX-License-Identifier: Apache-2.0
"""An adapter merged into its model: whole weights, which every server takes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from peft import PeftModel
import torch
from transformers import AutoModelForCausalLM

from training.models import base_folder, SAFELY
from training.nano import load_tokenizer

if TYPE_CHECKING:
    from pathlib import Path


def merged(adapter: Path, target: Path) -> Path:
    """Merge an adapter into the weights below it, and save the whole model in a folder.

    Raises:
        InputError: The model below it is not on this machine.
    """
    base = base_folder(adapter)
    model = AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32, **SAFELY)
    whole = PeftModel.from_pretrained(model, str(adapter)).merge_and_unload()
    whole.save_pretrained(target)
    load_tokenizer(base).save_pretrained(target)
    return target
