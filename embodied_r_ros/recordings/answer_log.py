# SPDX-License-Identifier: Apache-2.0
"""The answers that a bag holds, what operators said of them, and what the reasoner had heard."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field
import json
from typing import Any, TYPE_CHECKING

from embodied_r_ros.conversions import answer_from_msg, label_from_msg
from embodied_r_ros.errors import ConfigError
from embodied_r_ros.reasoning.asking import ReasonerConfig
from embodied_r_ros.reasoning.memory import MemoryConfig
from embodied_r_ros.recordings.bags import read_messages, topics_of_type
from embodied_r_ros.recordings.values import read_values

if TYPE_CHECKING:
    from collections.abc import Iterator

    from embodied_r_ros.answers import Answer
    from embodied_r_ros.deltas import SemanticDelta
    from embodied_r_ros.episodes import AnswerLabel
    from rosbags.highlevel import AnyReader

_ANSWER = 'embodied_r_msgs/msg/Answer'
_LABEL = 'embodied_r_msgs/msg/AnswerLabel'
_STRING = 'std_msgs/msg/String'
_BUDGET = 'reasoner.token_budget'


@dataclass(frozen=True)
class AnswerLog:
    """Answers of an episode, and what is needed to build their prompts again."""

    answers: tuple[Answer, ...] = ()
    labels: dict[str, AnswerLabel] = field(default_factory=dict)  # newest one, by answer id
    heard: tuple[SemanticDelta, ...] = ()  # recorded deltas in the order of their receipt
    # What prompts could hold of the scene: as reasoners told it, newest first, then the default.
    memories: tuple[MemoryConfig, ...] = (MemoryConfig(),)


def read_answer_log(reader: AnyReader, heard: tuple[SemanticDelta, ...]) -> AnswerLog:
    """Read the answers of a bag.

    Args:
        reader: The open bag.
        heard: Its recorded deltas, in the order of their receipt.

    Raises:
        BagError: A message is damaged.
    """
    topics = topics_of_type(reader, _ANSWER)
    answers = tuple(read_values(reader, topics, answer_from_msg))
    if not answers:
        return AnswerLog()
    topics = topics_of_type(reader, _LABEL)
    labels = list(read_values(reader, topics, label_from_msg))
    memories = dict.fromkeys([*reversed([*_memories(reader)]), MemoryConfig()])
    return AnswerLog(answers, {label.answer_id: label for label in labels}, heard, tuple(memories))


def _memories(reader: AnyReader) -> Iterator[MemoryConfig]:
    """What reasoners have told of their memory, with their provenance; oldest first."""
    topics = [t for t in topics_of_type(reader, _STRING) if t.endswith('/provenance')]
    for _, _, msg in read_messages(reader, topics):
        budget = _parameters(msg.data).get(_BUDGET, 0)
        with suppress(ConfigError):
            yield ReasonerConfig(token_budget=budget).memory()


def _parameters(record: str) -> dict[str, Any]:
    """Parameters in a provenance record; empty where it is of another kind."""
    try:
        content = json.loads(record)
    except (ValueError, RecursionError):
        return {}
    parameters = content.get('parameters') if isinstance(content, dict) else None
    return parameters if isinstance(parameters, dict) else {}
