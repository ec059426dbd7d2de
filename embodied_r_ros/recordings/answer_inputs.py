# SPDX-License-Identifier: Apache-2.0
"""What an answer was given from: the recorded deltas and the budget that give its very prompt."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from embodied_r_ros.deltas import row_deltas, SemanticDelta
from embodied_r_ros.reasoning.memory import SceneText
from embodied_r_ros.reasoning.prompts import build_prompt, Prompt, SYSTEM

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from embodied_r_ros.answers import Answer
    from embodied_r_ros.reasoning.memory import MemoryConfig
    from embodied_r_ros.recordings.answer_log import AnswerLog


@dataclass(frozen=True)
class Inputs:
    """What a prompt is built from, and the prompt."""

    deltas: tuple[SemanticDelta, ...]  # in memory then, those that the prompt omits included
    memory: MemoryConfig  # of the reasoner then
    prompt: Prompt


@dataclass(frozen=True)
class Lost:
    """The prompt of an answer cannot be built again."""

    reason: str
    # To send in its place: the recorded text, or under another system message the likeliest prompt
    # of today. None: there was no prompt.
    instead: Prompt | None = None


def find_inputs(answer: Answer, log: AnswerLog) -> Inputs | Lost:
    """Find what gives the very prompt that was answered.

    Ids of deltas count anew with every run of the extractor, and are those of one camera, so that
    only the prompt's digest tells whether these were the deltas.
    """
    if not answer.prompt_sha256:
        return Lost('no prompt was sent to a model')
    tried: list[Inputs] = []
    for deltas in _candidates(log.heard, answer):
        for memory in log.memories:
            tried.append(_inputs(answer, deltas, memory))
            if tried[-1].prompt.sha256() == answer.prompt_sha256:
                return tried[-1]
    recorded = Prompt(SYSTEM, answer.prompt, SceneText(''))
    if not tried:
        return Lost('not all deltas of its prompt are recorded', recorded)
    reason = 'its prompt cannot be built again: another digest'
    if recorded.sha256() == answer.prompt_sha256:
        return Lost(reason, recorded)
    return Lost(reason, min(tried, key=lambda inputs: _unlikeness(answer, inputs)).prompt)


def _candidates(
    heard: Sequence[SemanticDelta], answer: Answer
) -> Iterator[tuple[SemanticDelta, ...]]:
    """Deltas with the ids that the prompt read, and the omitted ones before them; newest first.

    The answer came some time after its question, so deltas that were heard last may be too new.
    """
    for newest in reversed(range(len(heard))):
        if (heard[newest].to_id,) != answer.delta_ids[-1:]:
            continue
        read = _positions(heard, answer.delta_ids, newest + 1)
        if not read or read[0] < answer.deltas_omitted:
            return  # nor can there be older ones
        omitted = heard[read[0] - answer.deltas_omitted : read[0]]
        yield (*omitted, *(heard[position] for position in read))


def _positions(heard: Sequence[SemanticDelta], ids: Sequence[int], end: int) -> list[int]:
    """The last positions before `end` of deltas with these ids, in this order; empty: none.

    Others may stand in between: the reasoner leaves out what comes late, the recorder does not.
    """
    positions: list[int] = []
    for wanted in reversed(ids):
        end = next((i for i in reversed(range(end)) if heard[i].to_id == wanted), -1)
        if end < 0:
            return []
        positions.insert(0, end)
    return positions


def _inputs(answer: Answer, deltas: tuple[SemanticDelta, ...], memory: MemoryConfig) -> Inputs:
    """The prompt that a row of these deltas gives."""
    read = [SemanticDelta.from_row(delta) for delta in row_deltas(deltas)]
    prompt = build_prompt(answer.question, answer.options, read, answer.focus, memory)
    return Inputs(deltas, memory, prompt)


def _unlikeness(answer: Answer, inputs: Inputs) -> tuple[bool, bool]:
    """How far inputs are from what the answer says of its own; the least is the likeliest."""
    scene = inputs.prompt.scene
    others = all(delta.stamp_ns != answer.observation_stamp_ns for delta in inputs.deltas)
    counts = (scene.merged, scene.omitted)
    return others, counts != (answer.deltas_merged, answer.deltas_omitted)
