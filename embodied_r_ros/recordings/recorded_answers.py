# SPDX-License-Identifier: Apache-2.0
"""The answers of a recording, each with the inputs that it was made of."""

from __future__ import annotations

from dataclasses import dataclass, replace
import json
from typing import Any, TYPE_CHECKING

from embodied_r_ros.conversions import answer_from_msg, delta_from_msg, label_from_msg
from embodied_r_ros.reasoning.memory import MemoryConfig
from embodied_r_ros.recordings.bags import open_bag, read_messages, topics_of_type
from embodied_r_ros.recordings.episode_bag import TRUE_DELTAS

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from embodied_r_ros.answers import Answer
    from embodied_r_ros.deltas import SemanticDelta
    from embodied_r_ros.episodes import AnswerLabel

_ANSWER = 'embodied_r_msgs/msg/Answer'
_DELTA = 'embodied_r_msgs/msg/SemanticDelta'
_LABEL = 'embodied_r_msgs/msg/AnswerLabel'
_STRING = 'std_msgs/msg/String'
_PROVENANCE = 'provenance'
_BUDGET = 'reasoner.token_budget'


@dataclass(frozen=True)
class RecordedAnswer:
    """An answer, and what it was made of."""

    answer: Answer
    deltas: tuple[SemanticDelta, ...] | None  # in memory then; None: not all are recorded
    memory: MemoryConfig  # of the reasoner then
    label: AnswerLabel | None = None  # what an operator said of it


def recorded_answers(path: Path) -> list[RecordedAnswer]:
    """Read the answers of a recording, in the order in which they were given.

    Raises:
        BagError: It is not a readable bag.
    """
    answers: list[RecordedAnswer] = []
    heard: list[SemanticDelta] = []
    labels: dict[str, AnswerLabel] = {}
    memory = MemoryConfig()
    with open_bag(path) as reader:
        types = {c.topic: c.msgtype for c in reader.connections}
        topics = [
            *(t for t in topics_of_type(reader, _DELTA) if not t.endswith(TRUE_DELTAS)),
            *(t for t in topics_of_type(reader, _STRING) if t.endswith(_PROVENANCE)),
            *topics_of_type(reader, _ANSWER, _LABEL),
        ]
        for topic, _, msg in read_messages(reader, topics):
            if types[topic] == _DELTA:
                heard.append(delta_from_msg(msg))
            elif types[topic] == _STRING:
                memory = _memory(msg.data, memory)
            elif types[topic] == _LABEL:
                label = label_from_msg(msg)
                labels[label.answer_id] = label
            else:
                answer = answer_from_msg(msg)
                answers.append(RecordedAnswer(answer, _inputs(heard, answer), memory))
    return [replace(given, label=labels.get(given.answer.id)) for given in answers]


def _inputs(heard: Sequence[SemanticDelta], answer: Answer) -> tuple[SemanticDelta, ...] | None:
    """The deltas that the reasoner remembered: those of the prompt, and those it left out.

    The answer came some time after its question, so deltas that were heard last may be too new.
    """
    found: list[SemanticDelta] = []
    end = len(heard)
    for wanted in reversed(answer.delta_ids):
        end = next((i for i in reversed(range(end)) if heard[i].to_id == wanted), -1)
        if end < 0:
            return None
        found.append(heard[end])
    left_out = heard[max(0, end - answer.deltas_omitted) : end] if answer.deltas_omitted else ()
    return (*left_out, *reversed(found))


def _memory(provenance: str, memory: MemoryConfig) -> MemoryConfig:
    """The token budget that a node's record states; another node's changes nothing."""
    try:
        record: Any = json.loads(provenance)
        return replace(memory, token_budget=record['parameters'][_BUDGET])
    except (ValueError, KeyError, TypeError):
        return memory
