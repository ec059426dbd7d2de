# SPDX-License-Identifier: Apache-2.0
"""Train the consistency judge: `python -m training.judge.train --config FILE`.

Starts from a reasoner of this project, which can read its texts, and learns one thing: to name
the option that a reasoning leads to. A recipe to be read from top to bottom; every setting of
TRL's SFTConfig may stand in the YAML file too.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from random import Random
import sys
from typing import Any, TYPE_CHECKING

from datasets import Dataset
from embodied_r_ros.questions.row import read_rows
import torch
from transformers import AutoModelForCausalLM, set_seed
from trl import SFTConfig, SFTTrainer

from training.judge.cases import judge_messages, said_text
from training.judge.data import COLOURS_RENAMED, samples
from training.run.command import run_recipe
from training.run.manifest import checkpoint_of, manifest_of
from training.run.models import model_folder, SAFELY
from training.run.monitor import GradientGuard
from training.run.templates import fit_examples
from training.tiny.model import load_tokenizer, muon

if TYPE_CHECKING:
    from collections.abc import Iterator

    from training.judge.data import Sample


@dataclass
class JudgeArguments:
    """What to train, and on what."""

    rows: list[str] = field(metadata={'help': 'files of rows'})
    model: str = field(metadata={'help': 'folder to start from'})
    train_samples: int = field(default=120_000, metadata={'help': 'samples, at most'})
    max_eval_samples: int = field(default=1024, metadata={'help': 'validation samples'})
    colours_renamed: int = field(
        default=COLOURS_RENAMED,
        metadata={
            'help': 'samples with the colour that a question counts renamed; an item has one'
        },
    )
    muon: bool = field(
        default=False,
        metadata={'help': 'learn the matrices of the layers by Muon (tiny/model.py)'},
    )
    threads: int = field(default=0, metadata={'help': 'CPU threads; 0: as torch chooses'})


def split_samples(
    files: list[str],
    split: str,
    seed: int,
    held_out: bool,
    garble: bool = False,
    colours_renamed: int = COLOURS_RENAMED,
) -> Iterator[Sample]:
    """The samples that are made of the rows of one split, in an order drawn from all files."""
    rows = [row for file in files for row in read_rows(Path(file)) if row.split == split]
    rng = Random(f'{seed}:{split}')
    rng.shuffle(rows)
    return samples(rows, rng, held_out, garble=garble, colours_renamed=colours_renamed)


def example(sample: Sample) -> dict[str, Any]:
    """Prompt and completion of a sample: the candidate that its reasoning leads to."""
    return {
        'prompt': judge_messages(sample.case),
        'completion': [{'role': 'assistant', 'content': said_text(sample.conclusion)}],
    }


def dataset(arguments: JudgeArguments, split: str, seed: int, limit: int) -> Dataset:
    """The samples of a split as a dataset."""
    renamed = arguments.colours_renamed
    sample_list = split_samples(
        arguments.rows, split, seed, held_out=False, garble=True, colours_renamed=renamed
    )
    return Dataset.from_list([example(sample) for sample in islice(sample_list, limit)])


def train(arguments: JudgeArguments, config: SFTConfig) -> None:
    """Train, and save model and tokenizer in the output folder.

    Raises:
        InputError: The rows or the model cannot be read, or the output folder has a run that
            began otherwise.
    """
    if arguments.threads:
        torch.set_num_threads(arguments.threads)
    folder = model_folder(arguments.model)
    manifest = manifest_of(vars(arguments), config.seed)
    checkpoint = checkpoint_of(config.output_dir, manifest, is_main=config.should_save)
    set_seed(config.seed)
    train_set = dataset(arguments, 'train', config.seed, arguments.train_samples)
    validation = dataset(arguments, 'validation', config.seed, arguments.max_eval_samples)
    sys.stderr.write(
        f'judge: {len(train_set)} training and {len(validation)} validation samples\n'
    )
    tokenizer = load_tokenizer(folder)
    model = AutoModelForCausalLM.from_pretrained(folder, **SAFELY)
    trainer = SFTTrainer(
        model=model,
        args=config,
        train_dataset=fit_examples(train_set, tokenizer),
        eval_dataset=fit_examples(validation, tokenizer) if len(validation) else None,
        processing_class=tokenizer,
        optimizers=(muon(model, config) if arguments.muon else None, None),
        callbacks=[GradientGuard()],
    )
    trainer.train(resume_from_checkpoint=checkpoint)
    trainer.save_model(config.output_dir)
    tokenizer.save_pretrained(config.output_dir)


def main() -> int:
    """Train as the command line and the YAML file say."""
    return run_recipe('training.judge.train', train, JudgeArguments, SFTConfig)


if __name__ == '__main__':
    sys.exit(main())
