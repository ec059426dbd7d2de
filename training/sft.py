# SPDX-License-Identifier: Apache-2.0
"""Supervised training: `python -m training.sft --config FILE`.

On a model's own right completions, on answers alone, or on calls of tools (configs/reader.yaml).
A recipe to be read from top to bottom; every setting of TRL's SFTConfig may stand in the YAML file
too.
"""

from __future__ import annotations

import math
from pathlib import Path
import sys
from typing import Any

from datasets import Dataset
from embodied_r_ros.common.errors import InputError
from embodied_r_ros.common.files import whole_file
from peft import LoraConfig, set_peft_model_state_dict
import torch
from transformers import AutoModelForCausalLM, AutoModelForImageTextToText, set_seed
from trl import SFTConfig, SFTTrainer

from training.data.batches import epochs_by_length
from training.data.call_rows import call_examples, NOT_LEARNED, read_call_rows
from training.data.sft import CALLS, examples, SftArguments
from training.data.vision import image_dataset, load_processor
from training.gguf_adapter import ADAPTER_FILE, read_gguf_adapter, write_gguf_adapter
from training.run.command import run_recipe
from training.run.gradients import GradientGuard
from training.run.manifest import checkpoint_of, manifest_of
from training.run.models import (
    evaluation_rows,
    is_gguf,
    is_vision_model,
    load_gguf,
    load_tokenizer,
    model_folder,
    SAFELY,
)
from training.run.templates import fit_examples


def dataset(arguments: SftArguments, split: str, limit: int = 0) -> Dataset:
    """The examples of a split as a dataset.

    Raises:
        InputError: A file cannot be read, or there is nothing to train on.
    """
    rows = list(examples(arguments, split))
    if split == 'train' and not rows:
        msg = f'{", ".join(arguments.rows)}: no training rows that fit'
        raise InputError(msg)
    return image_dataset(rows[:limit] if limit else rows)


def call_dataset(arguments: SftArguments, config: SFTConfig, tokenizer: Any) -> Dataset:
    """Tokens of rows of calls in the order of all epochs; those of a batch have like lengths.

    Rows longer than `max_length` are left out.

    Raises:
        InputError: A file cannot be read, or there is nothing to train on.
    """
    rows = [row for file in arguments.rows for row in read_call_rows(Path(file))]
    tokens = call_examples(rows, tokenizer, config.max_length)
    if not tokens:
        msg = f'{", ".join(arguments.rows)}: no row is of {config.max_length} tokens at most'
        raise InputError(msg)
    epochs = math.ceil(config.num_train_epochs)
    lengths = [example['labels'].count(NOT_LEARNED) for example in tokens]
    batch = config.per_device_train_batch_size * config.gradient_accumulation_steps
    order = epochs_by_length(lengths, batch * config.world_size, epochs, config.seed)
    config.num_train_epochs /= epochs  # those of all epochs stand one after the other
    return Dataset.from_list([tokens[index] for index in order])


def start_of(arguments: SftArguments) -> tuple[Any, Any]:
    """Tokenizer (of a vision-language model: processor) and model to begin with.

    Raises:
        InputError: It is no model; images are to be shown to a model that reads alone, or nothing
            is shown; or all weights of a model in GGUF are to be trained.
    """
    if is_gguf(arguments.model):
        if not arguments.lora_rank:
            msg = f'model is {arguments.model}, of which an adapter is trained: give lora_rank'
            raise InputError(msg)
        return load_gguf(Path(arguments.model))
    folder = model_folder(arguments.model)
    if not arguments.images:
        model = AutoModelForCausalLM.from_pretrained(folder, **SAFELY)
        return load_tokenizer(folder), model
    if not is_vision_model(folder):
        msg = f'images are shown to a vision-language model: model is {arguments.model!r}'
        raise InputError(msg)
    if arguments.blind:
        msg = 'blind is of models that read: leave it out with images'
        raise InputError(msg)
    processor = load_processor(folder, arguments.min_pixels)
    return processor, AutoModelForImageTextToText.from_pretrained(folder, **SAFELY)


def adapter_of(arguments: SftArguments) -> LoraConfig | None:
    """The adapter that is trained; None: all weights are."""
    if not arguments.lora_rank:
        return None
    rank = arguments.lora_rank
    return LoraConfig(r=rank, lora_alpha=2 * rank, target_modules='all-linear')


def train(arguments: SftArguments, config: SFTConfig) -> None:
    """Train, and save model and tokenizer in the output folder; of one in GGUF the adapter too.

    Raises:
        InputError: The rows or the model cannot be read, settings do not fit together, or the
            output folder has a run that began otherwise.
    """
    if arguments.threads:
        torch.set_num_threads(arguments.threads)
    manifest = manifest_of(vars(arguments), config.seed)
    checkpoint = checkpoint_of(config.output_dir, manifest, is_main=config.should_save)
    set_seed(config.seed)
    reader, model = start_of(arguments)
    rows, validation = datasets_of(arguments, config, reader)
    sys.stderr.write(f'sft: {len(rows)} training and {len(validation or ())} validation rows\n')

    if arguments.data == CALLS:
        config.train_sampling_strategy = 'sequential'  # as they stand
    trainer = SFTTrainer(
        model=model,
        args=config,
        train_dataset=rows,
        eval_dataset=evaluation_rows(validation, config, 'sft'),
        processing_class=reader,
        peft_config=adapter_of(arguments),
        callbacks=[GradientGuard()],
    )
    if arguments.adapter:
        begin_from(trainer.model, Path(arguments.adapter), Path(arguments.model))
    trainer.train(resume_from_checkpoint=checkpoint)
    trainer.save_model(config.output_dir)
    reader.save_pretrained(config.output_dir)
    if is_gguf(arguments.model):
        with whole_file(Path(config.output_dir, ADAPTER_FILE)) as unfinished:
            write_gguf_adapter(Path(config.output_dir), Path(arguments.model), unfinished)
    else:
        load_tokenizer(Path(config.output_dir))


def datasets_of(
    arguments: SftArguments, config: SFTConfig, reader: Any
) -> tuple[Dataset, Dataset | None]:
    """What is trained on, and what the loss is measured on meanwhile; None: nothing.

    Raises:
        InputError: A file cannot be read, or there is nothing to train on.
    """
    if arguments.data == CALLS:
        return call_dataset(arguments, config, reader), None
    rows = dataset(arguments, 'train')
    validation = dataset(arguments, 'validation', arguments.max_eval_rows)
    return fit_examples(rows, reader), fit_examples(validation, reader)


def begin_from(model: Any, adapter: Path, base: Path) -> None:
    """Put the weights of an adapter in GGUF into that of a model.

    Raises:
        InputError: It is no such adapter.
    """
    tensors = read_gguf_adapter(adapter, base)
    state = {name: torch.from_numpy(value) for name, value in tensors.items()}
    set_peft_model_state_dict(model, state)


def main() -> int:
    """Train as the command line and the YAML file say."""
    return run_recipe('training.sft', train, SftArguments, SFTConfig)


if __name__ == '__main__':
    sys.exit(main())
