# SPDX-License-Identifier: Apache-2.0
"""Examples for supervised training: answers alone, or a model's own right completions."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, TYPE_CHECKING

from embodied_r_ros.core.reasoning.completions import parse_completion
from embodied_r_ros.core.scene.memory import MemoryConfig

from training.data.selection import AskingArguments
from training.eval.generation import prompt_messages

if TYPE_CHECKING:
    from collections.abc import Iterator

    from embodied_r_ros.data.questions.row import Row

CALLS = 'calls'
_BLIND = 'Nothing was seen.'


@dataclass
class SftArguments(AskingArguments):
    """What to train, and on what."""

    data: str = field(
        default='rows',
        metadata={
            'help': f'{CALLS}: rows are files of training.data.calls', 'choices': ['rows', CALLS]
        },
    )  # fmt: skip
    adapter: str = field(default='', metadata={'help': 'in GGUF, to go on from'})
    anchor_share: float = field(
        default=1.0,
        metadata={'help': 'of rows above max_pass_rate, so many are taken, as by grpo'},
    )
    blind: bool = field(
        default=False, metadata={'help': 'questions alone, with their answers: a blind baseline'}
    )
    max_eval_rows: int = field(default=512, metadata={'help': 'validation rows for the loss'})


def examples(arguments: SftArguments, split: str) -> Iterator[dict[str, Any]]:
    """Prompt and completion of every row that teaches."""
    if arguments.samples:
        yield from right_samples(arguments, split)
        return
    for row in arguments.chosen_rows(split):
        blind = prompt_messages(row.without_scene().prompt(MemoryConfig()))
        prompt = {'prompt': blind} if arguments.blind else arguments.conversation(row)
        text = _answer_alone(row, _BLIND if arguments.blind else '')
        yield {**prompt, 'completion': [{'role': 'assistant', 'content': text}]}


def _answer_alone(row: Row, think: str) -> str:
    """A completion; the spaces make its words the same tokens as in the scene."""
    return f'<think> {think}</think><answer> {row.solution_text()}</answer>'


def right_samples(arguments: SftArguments, split: str) -> Iterator[dict[str, Any]]:
    """Prompts with the model's own right completions: rejection sampling.

    Raises:
        InputError: A file cannot be read, or the samples leave nothing to train on.
    """
    kept = arguments.teaching_samples(arguments.anchor_share)
    for row in arguments.chosen_rows(split):
        sampled = kept.get(row.id, {'completions': [], 'right': []})
        for text, right in zip(sampled['completions'], sampled['right'], strict=True):
            if right and parse_completion(text).well_formed:
                worded = arguments.conversation(row)
                completion = [{'role': 'assistant', 'content': text}]
                yield {**worded, 'completion': completion}
