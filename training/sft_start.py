# SPDX-License-Identifier: Apache-2.0
"""What supervised training starts from: a folder with weights, or a small model of its own."""

from __future__ import annotations

import sys
from typing import Any, TYPE_CHECKING

from embodied_r_ros.common.errors import InputError
from transformers import AutoModelForCausalLM, AutoModelForImageTextToText

from training.label_tokens import add_label_tokens
from training.models import is_vision_model, SAFELY
from training.nano import build_model, load_tokenizer, NanoSize, train_tokenizer
from training.vision import load_processor

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from datasets import Dataset

    from training.sft_data import SftArguments


def texts(data: Dataset, limit: int = 5000) -> Iterator[str]:
    """The texts that a tokenizer is trained on."""
    for example in data.select(range(min(limit, len(data)))):
        for message in (*example['prompt'], *example['completion']):
            yield message['content']


def start_of(arguments: SftArguments, folder: Path | None, rows: Dataset) -> tuple[Any, Any]:
    """Tokenizer (of a vision-language model: processor) and model to begin with.

    Raises:
        InputError: Settings do not fit together, or the model is not of the kind they want.
    """
    if arguments.images:
        return _vision_start(arguments, folder)
    if arguments.label_tokens and arguments.lora_rank:
        msg = 'label_tokens: an adapter does not learn embeddings: leave out lora_rank'
        raise InputError(msg)
    if folder:
        tokenizer = load_tokenizer(folder)
        model = AutoModelForCausalLM.from_pretrained(folder, **SAFELY)
    else:
        tokenizer = train_tokenizer(texts(rows), arguments.vocab_size)
        size = NanoSize(hidden_size=arguments.hidden_size, layers=arguments.layers)
        model = build_model(size, tokenizer)
    if arguments.label_tokens:
        added = add_label_tokens(tokenizer, model)
        sys.stderr.write(f'sft: {added} more labels are tokens of their own\n')
    return tokenizer, model


def _vision_start(arguments: SftArguments, folder: Path | None) -> tuple[Any, Any]:
    if folder is None or not is_vision_model(folder):
        msg = f'images are shown to a vision-language model: model is {arguments.model!r}'
        raise InputError(msg)
    if arguments.blind or arguments.label_tokens or arguments.recall:
        msg = 'blind, label_tokens and recall are of models that read: leave them out with images'
        raise InputError(msg)
    processor = load_processor(folder, arguments.min_pixels)
    return processor, AutoModelForImageTextToText.from_pretrained(folder, **SAFELY)
