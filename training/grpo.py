# SPDX-License-Identifier: Apache-2.0
"""Reinforcement learning with three rewards: `python -m training.grpo --config FILE`.

Only answers are needed, no reasoning: rows of what a robot's perception really saw. A recipe to be
read from top to bottom; every setting of TRL's GRPOConfig may stand in the YAML file too.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
import sys
from typing import Any, TYPE_CHECKING

from datasets import Dataset
from embodied_r_ros.errors import EmbodiedRError, InputError
from embodied_r_ros.reasoning.memory import MemoryConfig
from embodied_r_ros.rows import read_rows
from peft import LoraConfig
import torch
from trl import GRPOConfig, GRPOTrainer, TrlParser

from training.checkpoints import newest_checkpoint
from training.generate import chat_text, prompt_messages
from training.judge.models import load_judge
from training.monitor import Monitor
from training.nano import load_tokenizer
from training.rewards import accuracy_reward, consistency_reward, format_reward
from training.rollouts import read_samples, unanimous
from training.schedule import parse_stages, RewardSchedule

if TYPE_CHECKING:
    from collections.abc import Iterator


@dataclass
class GrpoArguments:
    """What to train, on what, and how it is rewarded."""

    rows: list[str] = field(metadata={'help': 'files of rows'})
    model: str = field(metadata={'help': 'folder to start from'})
    judge: list[str] = field(metadata={'help': 'folders or URLs of judges; several vote'})
    stages: list[str] = field(metadata={'help': "such as '2 x 7:3:0': epochs, then weights"})
    samples: str = field(
        default='', metadata={'help': 'completions of training.rollouts: drop unanimous rows'}
    )
    token_budget: int = field(default=1200, metadata={'help': 'tokens of the scene in a prompt'})
    max_prompt_tokens: int = field(default=1600, metadata={'help': 'longer prompts are left out'})
    max_rows: int = field(default=0, metadata={'help': 'training rows at most; 0: all'})
    max_eval_rows: int = field(default=128, metadata={'help': 'validation rows'})
    lora_rank: int = field(default=0, metadata={'help': 'rank of a LoRA adapter; 0: all weights'})
    threads: int = field(default=0, metadata={'help': 'CPU threads; 0: as torch chooses'})


def examples(arguments: GrpoArguments, split: str, tokenizer: Any) -> Iterator[dict[str, Any]]:
    """Prompts of a split, with what the rewards need."""
    memory = MemoryConfig(token_budget=arguments.token_budget)
    sampled = read_samples(Path(arguments.samples)) if arguments.samples else {}
    dull = unanimous(sampled)  # the start answers them always or never: no group would differ
    if sampled:
        sys.stderr.write(f'grpo: {len(dull)} of {len(sampled)} sampled rows are unanimous\n')
    for file in arguments.rows:
        for row in read_rows(Path(file)):
            if row.split != split or row.id in dull:
                continue
            prompt = row.prompt(memory)
            tokens = tokenizer(chat_text(tokenizer, prompt))['input_ids']
            if len(tokens) > arguments.max_prompt_tokens:
                continue
            yield {
                'prompt': prompt_messages(prompt),
                'question': row.question,
                'options': list(row.options),
                'solution': row.solution,
            }


def dataset(arguments: GrpoArguments, split: str, tokenizer: Any, limit: int) -> Dataset | None:
    """The prompts of a split as a dataset, at most so many (0: all); None: there are none."""
    rows = list(examples(arguments, split, tokenizer))
    if not rows:
        return None
    data = Dataset.from_list(rows).shuffle(seed=0)
    return data.select(range(min(limit, len(data)))) if limit else data


def train(arguments: GrpoArguments, config: GRPOConfig) -> None:
    """Train, and save model and tokenizer in the output folder.

    Raises:
        InputError: There are no rows, or an argument is not usable.
        ModelError: The judge fails, which stops the run.
    """
    if arguments.threads:
        torch.set_num_threads(arguments.threads)
    tokenizer = load_tokenizer(Path(arguments.model))
    prompts = dataset(arguments, 'train', tokenizer, arguments.max_rows)
    if prompts is None:
        msg = f'{", ".join(arguments.rows)}: no training rows that fit'
        raise InputError(msg)
    schedule = RewardSchedule(parse_stages(arguments.stages))
    judge = load_judge(arguments.judge)
    adapter = LoraConfig(
        r=arguments.lora_rank, lora_alpha=2 * arguments.lora_rank, target_modules='all-linear'
    )
    trainer = GRPOTrainer(
        model=arguments.model,
        reward_funcs=[format_reward, accuracy_reward(judge), consistency_reward(judge)],
        args=config,
        train_dataset=prompts,
        eval_dataset=dataset(arguments, 'validation', tokenizer, arguments.max_eval_rows),
        processing_class=tokenizer,
        peft_config=adapter if arguments.lora_rank else None,
        callbacks=[schedule, Monitor()],
    )
    schedule.trainer = trainer
    trainer.train(resume_from_checkpoint=newest_checkpoint(config.output_dir))
    trainer.save_model(config.output_dir)
    tokenizer.save_pretrained(config.output_dir)


def main() -> int:
    """Train as the command line and the YAML file say."""
    arguments, config = TrlParser((GrpoArguments, GRPOConfig)).parse_args_and_config()
    try:
        train(arguments, config)
    except EmbodiedRError as error:
        sys.stderr.write(f'training.grpo: error: {error}\n')
        return 2 if isinstance(error, InputError) else 1
    return 0


if __name__ == '__main__':
    sys.exit(main())
