# SPDX-License-Identifier: Apache-2.0
"""Supervised training on reasoning traces: `python -m training.sft --config FILE`.

Starts from a folder with weights, or from a small model of its own with random ones. A recipe to
be read from top to bottom; every setting of TRL's SFTConfig may stand in the YAML file too.
"""

from __future__ import annotations

from pathlib import Path
import sys
from typing import Any

from datasets import Dataset
from embodied_r_ros.common.errors import InputError
from peft import LoraConfig
import torch
from transformers import set_seed
from trl import SFTConfig, SFTTrainer

from training.data.batches import lengths_together, SceneCollator, scenes_together
from training.data.sft import examples, SftArguments
from training.data.vision import image_dataset
from training.run.command import run_recipe
from training.run.manifest import checkpoint_of, manifest_of
from training.run.models import evaluation_rows, model_folder
from training.run.monitor import GradientGuard
from training.run.templates import fit_examples
from training.tiny.exercises import phrase_examples, recall_examples
from training.tiny.model import load_tokenizer, muon
from training.tiny.place_exercises import place_exercises, sum_exercises
from training.tiny.shared_prefix import share_prefixes
from training.tiny.start import start_of


def dataset(
    arguments: SftArguments, split: str, seed: int, limit: int = 0, at_once: int = 0
) -> Dataset:
    """The examples of a split as a dataset.

    With `at_once`, those of a scene are in one batch, or where there are exercises, which are of
    none, those of like length.
    """
    rows = list(examples(arguments, split, seed))
    scenes = [row.pop('scene') for row in rows]
    if split == 'train':
        rows += recall_examples(arguments.recall, seed)
        rows += sum_exercises(arguments.sums, seed)
        rows += place_exercises(arguments.lookups, seed)
        if not rows and not arguments.phrases:
            msg = f'{", ".join(arguments.rows)}: no training rows that fit'
            raise InputError(msg)
    if at_once:
        has_exercises = len(rows) > len(scenes)
        order = (
            lengths_together(rows, at_once, seed)
            if has_exercises
            else scenes_together(rows, scenes, at_once, seed)
        )
        rows = [rows[index] for index in order]
    return image_dataset(rows[:limit] if limit else rows)


def phrases(arguments: SftArguments, reader: Any, seed: int) -> Dataset:
    """Phrases of all tokens but the special ones; rows have only told what the tokens are."""
    tokens = range(max(reader.all_special_ids) + 1, len(reader))
    phrase_rows = phrase_examples(arguments.phrases, arguments.phrase_length, tokens, seed)
    return Dataset.from_list(list(phrase_rows))


def shares_prefixes(arguments: SftArguments, config: SFTConfig) -> bool:
    """Whether what the examples of a batch begin with is read once.

    Not where activations are not kept, which drops what was read before. What an image is read as,
    prefixes do not know.
    """
    possible = bool(arguments.rows) and not config.gradient_checkpointing
    return arguments.share_prefixes and possible and not arguments.images


def keeps_scenes(arguments: SftArguments) -> bool:
    """Whether the examples of a scene stand together, since they share more than instructions.

    Not where exercises of no scene come with the rows: nothing is shuffled any more then.
    """
    exercises = arguments.recall, arguments.sums, arguments.lookups, arguments.phrases
    return not any(exercises)


def ordered_at_once(arguments: SftArguments, config: SFTConfig) -> int:
    """The size of the batches that rows are ordered for here; 0: the trainer draws them.

    The trainer would group by length too, but let all long batches of fifty come first.
    """
    is_ordered = keeps_scenes(arguments) or config.train_sampling_strategy == 'group_by_length'
    is_ordered = is_ordered and shares_prefixes(arguments, config)
    return config.per_device_train_batch_size if is_ordered else 0


def adapter_of(arguments: SftArguments) -> LoraConfig | None:
    """The adapter that is trained; None: all weights are."""
    if not arguments.lora_rank:
        return None
    rank = arguments.lora_rank
    return LoraConfig(r=rank, lora_alpha=2 * rank, target_modules='all-linear')


def train(arguments: SftArguments, config: SFTConfig) -> None:
    """Train, and save model and tokenizer in the output folder.

    Raises:
        InputError: The rows or the model cannot be read, settings do not fit together, or the
            output folder has a run that began otherwise.
    """
    if arguments.threads:
        torch.set_num_threads(arguments.threads)
    folder = model_folder(arguments.model) if arguments.model else None
    manifest = manifest_of(vars(arguments), config.seed)
    checkpoint = checkpoint_of(config.output_dir, manifest, is_main=config.should_save)
    set_seed(config.seed)
    shared = shares_prefixes(arguments, config)
    at_once = ordered_at_once(arguments, config)
    rows = dataset(arguments, 'train', config.seed, at_once=at_once)
    validation = dataset(arguments, 'validation', config.seed, arguments.max_eval_rows)
    sys.stderr.write(f'sft: {len(rows)} training and {len(validation)} validation rows\n')

    reader, model = start_of(arguments, folder, rows)
    if arguments.phrases:
        rows = phrases(arguments, reader, config.seed)
        sys.stderr.write(f'sft: {len(rows)} sequences of phrases instead of rows\n')
    else:
        rows, validation = fit_examples(rows, reader), fit_examples(validation, reader)
    collator = None
    if at_once:
        config.train_sampling_strategy = 'sequential'  # as they stand
    if at_once and keeps_scenes(arguments):
        collator = SceneCollator(reader.pad_token_id, pad_to_multiple_of=config.pad_to_multiple_of)
    trainer = SFTTrainer(
        model=model,
        args=config,
        data_collator=collator,
        train_dataset=rows,
        eval_dataset=evaluation_rows(None if arguments.phrases else validation, config, 'sft'),
        processing_class=reader,
        peft_config=adapter_of(arguments),
        optimizers=(muon(model, config) if arguments.muon else None, None),
        callbacks=[GradientGuard()],
    )
    if shared:
        share_prefixes(trainer.model)
    trainer.train(resume_from_checkpoint=checkpoint)
    trainer.save_model(config.output_dir)
    reader.save_pretrained(config.output_dir)
    load_tokenizer(Path(config.output_dir))


def main() -> int:
    """Train as the command line and the YAML file say."""
    return run_recipe('training.sft', train, SftArguments, SFTConfig)


if __name__ == '__main__':
    sys.exit(main())
