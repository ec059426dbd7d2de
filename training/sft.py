# SPDX-License-Identifier: Apache-2.0
"""Supervised training on reasoning traces: `python -m training.sft --config FILE`.

Starts from a folder with weights, or from a small model of its own with random ones. A recipe to
be read from top to bottom; every setting of TRL's SFTConfig may stand in the YAML file too.
"""

from __future__ import annotations

from pathlib import Path
import sys
from typing import TYPE_CHECKING

from datasets import Dataset
from peft import LoraConfig
import torch
from transformers import AutoModelForCausalLM, set_seed
from trl import SFTConfig, SFTTrainer

from training.checkpoints import newest_checkpoint
from training.nano import build_model, load_tokenizer, NanoSize, train_tokenizer
from training.recall import recall_examples
from training.recipe import run_recipe
from training.sft_data import examples, SftArguments

if TYPE_CHECKING:
    from collections.abc import Iterator


def dataset(arguments: SftArguments, split: str, seed: int, limit: int = 0) -> Dataset:
    """The examples of a split as a dataset."""
    rows = list(examples(arguments, split, seed))
    if split == 'train':
        rows += recall_examples(arguments.recall, seed)
    return Dataset.from_list(rows[:limit] if limit else rows)


def texts(data: Dataset, limit: int = 5000) -> Iterator[str]:
    """The texts that a tokenizer is trained on."""
    for example in data.select(range(min(limit, len(data)))):
        for message in (*example['prompt'], *example['completion']):
            yield message['content']


def train(arguments: SftArguments, config: SFTConfig) -> None:
    """Train, and save model and tokenizer in the output folder.

    Raises:
        InputError: The rows cannot be read.
    """
    if arguments.threads:
        torch.set_num_threads(arguments.threads)
    set_seed(config.seed)
    rows = dataset(arguments, 'train', config.seed)
    validation = dataset(arguments, 'validation', config.seed, arguments.max_eval_rows)
    sys.stderr.write(f'sft: {len(rows)} training and {len(validation)} validation rows\n')

    if arguments.model:
        tokenizer = load_tokenizer(Path(arguments.model))
        model = AutoModelForCausalLM.from_pretrained(arguments.model, local_files_only=True)
    else:
        tokenizer = train_tokenizer(texts(rows), arguments.vocab_size)
        size = NanoSize(hidden_size=arguments.hidden_size, layers=arguments.layers)
        model = build_model(size, tokenizer)
    adapter = (
        LoraConfig(
            r=arguments.lora_rank, lora_alpha=2 * arguments.lora_rank, target_modules='all-linear'
        )
        if arguments.lora_rank
        else None
    )

    trainer = SFTTrainer(
        model=model,
        args=config,
        train_dataset=rows,
        eval_dataset=validation if len(validation) else None,
        processing_class=tokenizer,
        peft_config=adapter,
    )
    trainer.train(resume_from_checkpoint=newest_checkpoint(config.output_dir))
    trainer.save_model(config.output_dir)
    tokenizer.save_pretrained(config.output_dir)
    load_tokenizer(Path(config.output_dir))


def main() -> int:
    """Train as the command line and the YAML file say."""
    return run_recipe('training.sft', train, SftArguments, SFTConfig)


if __name__ == '__main__':
    sys.exit(main())
