# SPDX-License-Identifier: Apache-2.0
"""Examples for supervised training: an oracle's reasoning about arms, or a model's own."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from random import Random
from typing import Any, TYPE_CHECKING

from embodied_r_ros.common.errors import InputError
from embodied_r_ros.core.reasoning.completions import parse_completion
from embodied_r_ros.core.scene.memory import MemoryConfig

from training.data.arm_reader import position_in
from training.data.arm_traces import read_row, Trace
from training.data.selection import AskingArguments
from training.data.tasks import reworded_task
from training.eval.generation import prompt_messages
from training.eval.grading import position_accuracy

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from embodied_r_ros.data.questions.row import Row

CALLS = 'calls'
_NEAR = 0.95  # 1 less the distances along x, y and z [m]: a position as good as the right one


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
    reworded_share: float = field(
        default=0.0, metadata={'help': 'share of rows about arms whose task is in other words'}
    )
    weights: list[str] = field(
        default_factory=list,
        metadata={'help': 'how often rows of a kind are taken: waypoint=2 movement=0.5'},
    )
    anchor_share: float = field(
        default=1.0,
        metadata={'help': 'of rows above max_pass_rate, so many are taken, as by grpo'},
    )
    reasoning: bool = field(
        default=True,
        metadata={'help': 'with the reasoning of an oracle, about arms; no: answers alone'},
    )
    blind: bool = field(
        default=False, metadata={'help': 'questions alone, with their answers: a blind baseline'}
    )
    max_eval_rows: int = field(default=512, metadata={'help': 'validation rows for the loss'})
    muon: bool = field(
        default=False,
        metadata={'help': 'learn the matrices of the layers by Muon'},
    )


def examples(arguments: SftArguments, split: str, seed: int) -> Iterator[dict[str, Any]]:
    """Prompt and completion of every row that teaches."""
    if arguments.samples:
        yield from right_samples(arguments, split)
        return
    if arguments.blind:
        yield from blind_answers(arguments, split)
        return
    rng = Random(seed)
    weights = _weights(arguments)
    for row in _drawn(arguments.chosen_rows(split), weights, rng):
        if rng.random() < arguments.reworded_share:
            row = replace(row, question=reworded_task(row.question, rng))
        trace = read_row(row) if arguments.reasoning else Trace('', row.solution_text())
        # Where the prompt does not tell the solution, nothing right can be learned.
        if trace and (trace.answer == row.solution_text() or _is_near(row, trace)):
            yield {
                **arguments.conversation(row),
                'completion': [{'role': 'assistant', 'content': trace.completion()}],
            }


def _weights(arguments: SftArguments) -> dict[str, float]:
    """How often rows of a kind are taken; once where nothing is said.

    Raises:
        InputError: A weight is no number from 0 on.
    """
    weights = {}
    for text in arguments.weights:
        kind, _, weight = text.partition('=')
        if not weight.replace('.', '', 1).isdigit():
            msg = f'weights: {text!r}, expected a kind and a number from 0 on: waypoint=2'
            raise InputError(msg)
        weights[kind] = float(weight)
    return weights


def _drawn(rows: Iterable[Row], weights: dict[str, float], rng: Random) -> Iterator[Row]:
    """Rows as often as their kinds weigh, what is left of a weight by chance."""
    for row in rows:
        weight = weights.get(row.question_type, 1.0)
        times = int(weight) + (rng.random() < weight % 1 if weight % 1 else 0)
        for _ in range(times):
            yield row


def _is_near(row: Row, trace: Trace) -> bool:
    """Tell whether the answer to an open question is a position near the right one."""
    place = None if row.options else position_in(row.solution)
    return place is not None and position_accuracy(position_in(trace.answer), place) >= _NEAR


def blind_answers(arguments: SftArguments, split: str) -> Iterator[dict[str, Any]]:
    """Questions without what was seen, and their answers: what can be known from questions."""
    for row in arguments.chosen_rows(split):
        trace = Trace('Nothing was seen.', row.solution_text())
        yield {
            'prompt': prompt_messages(row.without_scene().prompt(MemoryConfig())),
            'completion': [{'role': 'assistant', 'content': trace.completion()}],
        }


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
