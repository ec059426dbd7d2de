# SPDX-License-Identifier: Apache-2.0
"""What supervised training starts from: a folder with weights, or a small model from scratch."""

from __future__ import annotations

import sys
from typing import Any, TYPE_CHECKING

from embodied_r_ros.common.errors import InputError
from embodied_r_ros.types.vocabulary import COLOURS, SHAPES
from transformers import AutoModelForCausalLM, AutoModelForImageTextToText

from training.data.vision import load_processor
from training.run.models import is_vision_model, SAFELY
from training.tiny.grow import add_layers, add_number_tokens, add_words, frequent_words
from training.tiny.model import build_model, load_tokenizer, NanoSize, train_tokenizer

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from datasets import Dataset

    from training.data.sft import SftArguments

# With the space before: labels stand inside of sentences, and decoding gives the space back.
_LABELS = [f' {colour.name} {shape} object' for colour in COLOURS for shape in SHAPES]


def add_label_tokens(tokenizer: Any, model: Any) -> int:
    """Add the labels that a tokenizer does not have yet, and their embeddings to its model.

    An embedding begins as the mean of those of colour and shape.

    Returns:
        How many were added.
    """
    new = [label for label in _LABELS if len(tokenizer(label)['input_ids']) > 1]
    add_words(tokenizer, model, new, [label.removesuffix(' object') for label in new])
    return len(new)


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
    if arguments.added_layers:
        model = add_layers(model, arguments.added_layers)
    if arguments.word_tokens:
        words = frequent_words(texts(rows), tokenizer, arguments.word_tokens)
        add_words(tokenizer, model, words)
        sys.stderr.write(f'sft: {len(words)} more words are tokens of their own\n')
    if arguments.number_tokens:
        added = add_number_tokens(tokenizer, model)
        sys.stderr.write(f'sft: {added} more numbers are tokens of their own\n')
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
