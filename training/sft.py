# SPDX-License-Identifier: Apache-2.0
"""Supervised training on reasoning traces: `python -m training.sft --config FILE`.

Starts from a folder with weights, or from a small model of its own with random ones. A recipe to
be read from top to bottom; every setting of TRL's SFTConfig may stand in the YAML file too.
"""

from __future__ import annotations

from pathlib import Path
import sys
from typing import Any, TYPE_CHECKING

from datasets import Dataset
from embodied_r_ros.errors import InputError
from peft import LoraConfig
import torch
from transformers import AutoModelForCausalLM, set_seed
from trl import SFTConfig, SFTTrainer

from training.batches import SceneCollator, scenes_together
from training.checkpoints import newest_checkpoint
from training.label_tokens import add_label_tokens
from training.models import model_folder, SAFELY
from training.nano import build_model, load_tokenizer, NanoSize, train_tokenizer
from training.optimizer import muon
from training.recall import recall_examples
from training.recipe import run_recipe
from training.sft_data import examples, SftArguments
from training.shared_prefix import share_prefixes

if TYPE_CHECKING:
    from collections.abc import Iterator


def dataset(
    arguments: SftArguments, split: str, seed: int, limit: int = 0, at_once: int = 0
) -> Dataset:
    """The examples of a split as a dataset; with `at_once`, those of a scene in one batch."""
    rows = list(examples(arguments, split, seed))
    scenes = [row.pop('scene') for row in rows]
    if split == 'train':
        rows += recall_examples(arguments.recall, seed)
    if at_once:
        rows = [rows[index] for index in scenes_together(rows, scenes, at_once, seed)]
    return Dataset.from_list(rows[:limit] if limit else rows)


def texts(data: Dataset, limit: int = 5000) -> Iterator[str]:
    """The texts that a tokenizer is trained on."""
    for example in data.select(range(min(limit, len(data)))):
        for message in (*example['prompt'], *example['completion']):
            yield message['content']


def shares_prefixes(arguments: SftArguments, config: SFTConfig) -> bool:
    """Whether what the examples of a batch begin with is read once.

    Not where activations are not kept, which drops what was read before, nor where exercises of
    no scene come with the rows: scenes stay together because nothing is shuffled any more.
    """
    possible = bool(arguments.rows) and not arguments.recall and not config.gradient_checkpointing
    return arguments.share_prefixes and possible


def _start(arguments: SftArguments, folder: Path | None, rows: Dataset) -> tuple[Any, Any]:
    """Tokenizer and model to begin with."""
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


def train(arguments: SftArguments, config: SFTConfig) -> None:
    """Train, and save model and tokenizer in the output folder.

    Raises:
        InputError: The rows or the model cannot be read, or settings do not fit together.
    """
    if arguments.threads:
        torch.set_num_threads(arguments.threads)
    folder = model_folder(arguments.model) if arguments.model else None
    set_seed(config.seed)
    shared = shares_prefixes(arguments, config)
    at_once = config.per_device_train_batch_size if shared else 0
    rows = dataset(arguments, 'train', config.seed, at_once=at_once)
    validation = dataset(arguments, 'validation', config.seed, arguments.max_eval_rows)
    sys.stderr.write(f'sft: {len(rows)} training and {len(validation)} validation rows\n')

    tokenizer, model = _start(arguments, folder, rows)
    adapter = (
        LoraConfig(
            r=arguments.lora_rank, lora_alpha=2 * arguments.lora_rank, target_modules='all-linear'
        )
        if arguments.lora_rank
        else None
    )

    collator = None
    if shared:
        config.train_sampling_strategy = 'sequential'  # scenes stay together
        collator = SceneCollator(
            tokenizer.pad_token_id, pad_to_multiple_of=config.pad_to_multiple_of
        )
    trainer = SFTTrainer(
        model=model,
        args=config,
        data_collator=collator,
        train_dataset=rows,
        eval_dataset=validation if len(validation) else None,
        processing_class=tokenizer,
        peft_config=adapter,
        optimizers=(muon(model, config) if arguments.muon else None, None),
    )
    if shared:
        share_prefixes(trainer.model)
    trainer.train(resume_from_checkpoint=newest_checkpoint(config.output_dir))
    trainer.save_model(config.output_dir)
    tokenizer.save_pretrained(config.output_dir)
    load_tokenizer(Path(config.output_dir))


def main() -> int:
    """Train as the command line and the YAML file say."""
    return run_recipe('training.sft', train, SftArguments, SFTConfig)


if __name__ == '__main__':
    sys.exit(main())
