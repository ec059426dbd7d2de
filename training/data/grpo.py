# SPDX-License-Identifier: Apache-2.0
"""Prompts for reinforcement learning, in the order in which they are asked."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from random import Random
import sys
from typing import Any, TYPE_CHECKING

from training.data.batches import grouped_by_length
from training.data.selection import AskingArguments
from training.data.vision import image_dataset
from training.run.templates import fit_messages, render

if TYPE_CHECKING:
    from collections.abc import Iterator

    from datasets import Dataset


@dataclass
class GrpoArguments(AskingArguments):
    """What to train, on what, and how it is rewarded."""

    judge: list[str] = field(metadata={'help': "the URL of the judge, or 'none'"})
    stages: list[str] = field(metadata={'help': "such as '2 x 7:3:0': epochs, then weights"})
    anchor_share: float = field(
        default=0.0,
        metadata={'help': 'and so many of those above max_pass_rate: what must not be lost'},
    )
    drop_zero_variance: bool = field(
        default=True, metadata={'help': 'groups of equal rewards are left out of the loss'}
    )
    max_prompt_tokens: int = field(default=1600, metadata={'help': 'longer prompts are left out'})
    max_eval_rows: int = field(default=128, metadata={'help': 'validation rows'})
    adapter_server: str = field(
        default='',
        metadata={
            'help': 'URL of a `vllm serve --enable-lora` that samples: it takes the adapter of '
            'each step; empty: as use_vllm says'
        },
    )


def examples(arguments: GrpoArguments, split: str, tokenizer: Any) -> Iterator[dict[str, Any]]:
    """Prompts of a split, with what the rewards need.

    Raises:
        InputError: A file cannot be read, or the samples leave nothing to train on.
    """
    chooses = split == 'train' and arguments.samples
    samples = arguments.teaching_samples(arguments.anchor_share) if chooses else None
    for row in arguments.chosen_rows(split):
        if samples is not None and row.id not in samples:
            continue
        asked = arguments.conversation(row)
        tokens = tokenizer(render(tokenizer, asked['prompt']))['input_ids']
        if len(tokens) > arguments.max_prompt_tokens:
            continue
        own = samples[row.id]['completions'] if samples else []
        yield {
            **asked,
            'prompt': fit_messages(tokenizer, asked['prompt']),
            'question': row.question,
            'options': list(row.options),
            'solution': row.solution,
            'kind': row.question_type,
            'expected_length': sum(map(len, own)) / len(own) if own else 0.0,
        }


def training_prompts(
    arguments: GrpoArguments, tokenizer: Any, at_once: int, seed: int, epochs: int = 1
) -> Dataset | None:
    """The training prompts of all epochs, each in another order; None: there are none.

    Args:
        arguments: Which.
        tokenizer: Counts the tokens of the prompts.
        at_once: Prompts of one generation. Where samples tell how long completions become, those
            of like length are generated together, because all wait for the longest.
        seed: Of the order.
        epochs: How many times each prompt is asked. Neighbours of one epoch are so not those of
            the next, and only at the end of the last are prompts too few to be generated.
    """
    rows = list(examples(arguments, 'train', tokenizer))
    rng = Random(seed)
    rng.shuffle(rows)
    lengths = [row.pop('expected_length') for row in rows]
    kinds = [row.pop('kind') for row in rows]
    row_order = [i for _ in range(epochs) for i in rng.sample(range(len(rows)), len(rows))]
    counts = Counter(kinds[index] for index in row_order)
    shown = ', '.join(f'{kind} {count}' for kind, count in sorted(counts.items()))
    sys.stderr.write(f'grpo: {len(row_order)} prompts in {epochs} epochs: {shown}\n')
    order = grouped_by_length([lengths[index] for index in row_order], at_once, seed)
    if not rows:
        return None
    return image_dataset(rows).select([row_order[place] for place in order])


def validation_prompts(arguments: GrpoArguments, tokenizer: Any) -> Dataset | None:
    """The same validation prompts for every seed; None: there are none."""
    rows = list(examples(arguments, 'validation', tokenizer))
    for row in rows:
        del row['expected_length'], row['kind']
    Random(0).shuffle(rows)
    return image_dataset(rows[: arguments.max_eval_rows]) if rows else None
