# SPDX-License-Identifier: Apache-2.0
"""Supervised training on reasoning traces: `python -m training.sft --config FILE`.

Starts from a folder with weights, or from a small model of its own with random ones. A recipe to
be read from top to bottom; every setting of TRL's SFTConfig may stand in the YAML file too.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from random import Random
import sys
from typing import Any, TYPE_CHECKING

from datasets import Dataset
from embodied_r_ros.reasoning.completions import UNKNOWN
from embodied_r_ros.reasoning.memory import MemoryConfig
from embodied_r_ros.rows import read_rows
from peft import LoraConfig
import torch
from transformers import AutoModelForCausalLM, set_seed
from trl import SFTConfig, SFTTrainer, TrlParser

from training.checkpoints import newest_checkpoint
from training.degrade import degraded
from training.generate import prompt_messages
from training.nano import build_model, load_tokenizer, NanoSize, train_tokenizer
from training.recall import recall_examples
from training.traces import read_row

if TYPE_CHECKING:
    from collections.abc import Iterator

    from embodied_r_ros.rows import Row

# Budgets of a scene [tokens] in which memory merges all but two to six lines.
_TIGHT_BUDGETS = (200, 450)


@dataclass
class SftArguments:
    """What to train, and on what."""

    rows: list[str] = field(metadata={'help': 'files of rows'})
    model: str = field(default='', metadata={'help': 'folder to start from; empty: from scratch'})
    vocab_size: int = field(
        default=1024, metadata={'help': 'from scratch: size of the vocabulary'}
    )
    hidden_size: int = field(default=192, metadata={'help': 'from scratch: width'})
    layers: int = field(default=6, metadata={'help': 'from scratch: depth'})
    token_budget: int = field(default=1200, metadata={'help': 'tokens of the scene in a prompt'})
    degraded_share: float = field(
        default=0.2, metadata={'help': 'share of training rows that are cut down (degrade.py)'}
    )
    merged_share: float = field(
        default=0.2, metadata={'help': 'share of training rows with a tight budget: merged lines'}
    )
    lora_rank: int = field(default=0, metadata={'help': 'rank of a LoRA adapter; 0: all weights'})
    max_deltas: int = field(
        default=0, metadata={'help': 'only rows that saw at most so many keyframes; 0: all'}
    )
    recall: int = field(
        default=0, metadata={'help': 'exercises in looking back (recall.py), beside the rows'}
    )
    max_eval_rows: int = field(default=512, metadata={'help': 'validation rows for the loss'})
    threads: int = field(default=0, metadata={'help': 'CPU threads; 0: as torch chooses'})


def chosen_rows(arguments: SftArguments, split: str) -> Iterator[Row]:
    """The rows of a split that are asked for."""
    for file in arguments.rows:
        for row in read_rows(Path(file)):
            if row.split == split and len(row.deltas) <= (arguments.max_deltas or len(row.deltas)):
                yield row


def examples(arguments: SftArguments, split: str, seed: int) -> Iterator[dict[str, Any]]:
    """Prompt and completion of every row of a split that a careful reader can solve."""
    rng = Random(seed)
    for row in chosen_rows(arguments, split):
        tight = rng.random() < arguments.merged_share
        config = MemoryConfig(rng.randint(*_TIGHT_BUDGETS) if tight else arguments.token_budget)
        cut_down = rng.random() < arguments.degraded_share
        asked = degraded(row, rng) if cut_down else row
        trace = read_row(asked, config)
        # What is cut away cannot be known any more; what is still told must be the solution.
        right = {row.solution_text()} | ({UNKNOWN} if cut_down or tight else set())
        if trace and trace.answer in right:
            yield {
                'prompt': prompt_messages(asked.prompt(config)),
                'completion': [{'role': 'assistant', 'content': trace.completion()}],
            }


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


def main() -> int:
    """Train, and save model and tokenizer in the output folder."""
    parser = TrlParser((SftArguments, SFTConfig))
    arguments, config = parser.parse_args_and_config()
    if arguments.threads:
        torch.set_num_threads(arguments.threads)
    set_seed(config.seed)
    train = dataset(arguments, 'train', config.seed)
    validation = dataset(arguments, 'validation', config.seed, arguments.max_eval_rows)
    sys.stderr.write(f'sft: {len(train)} training and {len(validation)} validation rows\n')

    if arguments.model:
        tokenizer = load_tokenizer(Path(arguments.model))
        model = AutoModelForCausalLM.from_pretrained(arguments.model, local_files_only=True)
    else:
        tokenizer = train_tokenizer(texts(train), arguments.vocab_size)
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
        train_dataset=train,
        eval_dataset=validation if len(validation) else None,
        processing_class=tokenizer,
        peft_config=adapter,
    )
    trainer.train(resume_from_checkpoint=newest_checkpoint(config.output_dir))
    trainer.save_model(config.output_dir)
    tokenizer.save_pretrained(config.output_dir)
    load_tokenizer(Path(config.output_dir))
    return 0


if __name__ == '__main__':
    sys.exit(main())
