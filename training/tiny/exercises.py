# SPDX-License-Identifier: Apache-2.0
"""First things for a small model to learn: phrases that come again, and looking back."""

from __future__ import annotations

import math
from random import Random
from typing import Any, TYPE_CHECKING

from embodied_r_ros.scene.memory import MemoryConfig, scene_text
from embodied_r_ros.types.deltas import (
    ANGLE_STEP_DEG,
    change_text,
    DeltaKind,
    Item,
    ItemStatus,
    MotionStep,
    SemanticDelta,
)
from embodied_r_ros.types.vocabulary import COLOURS, SHAPES

from training.data.scene_reader import first_lines, last_sight, read_scene
from training.data.traces import NOT_SEEN

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from training.data.scene_reader import SceneLine

_SHORTEST = 64  # tokens
_FEWEST = 8  # tokens that are told before anything comes again
_PHRASE = (2, 8)  # tokens
# Share of the sequences in which few tokens take turns, so that one does not tell what comes.
_AMBIGUOUS_SHARE = 0.25


def phrase_examples(
    count: int, longest: int, tokens: range, seed: int
) -> Iterator[dict[str, list[int]]]:
    """Sequences of tokens, of 64 to `longest`; short ones are as frequent as long ones.

    Args:
        count: How many.
        longest: Most tokens of a sequence.
        tokens: Ids to draw from.
        seed: Of all draws.
    """
    rng = Random(seed)
    for _ in range(count):
        length = round(math.exp(rng.uniform(math.log(_SHORTEST), math.log(longest))))
        yield {'input_ids': _sequence(length, tokens, rng)}


def _sequence(length: int, tokens: range, rng: Random) -> list[int]:
    count = rng.randint(_FEWEST, max(_FEWEST, length // 3))
    drawn: list[int] | range = tokens
    if rng.random() < _AMBIGUOUS_SHARE:
        drawn = rng.choices(tokens, k=rng.randint(max(4, count // 8), max(6, count // 2)))
    phrases = []
    while count > 0:
        phrases.append(rng.choices(drawn, k=min(count, rng.randint(*_PHRASE))))
        count -= len(phrases[-1])
    sequence: list[int] = []
    while len(sequence) < length:
        rng.shuffle(phrases)
        sequence += [token for phrase in phrases for token in phrase]
    return sequence[:length]


_LABELS = [f'{colour.name} {shape} object' for colour in COLOURS for shape in SHAPES]
_MOST_LINES, _MOST_LABELS, _MOST_ITEMS, _MOST_ABSENT = 16, 8, 4, 2
_EVERY_NS = 2 * 10**9
_LONG = MemoryConfig(100_000)  # no line is merged


def recall_examples(count: int, seed: int) -> Iterator[dict[str, Any]]:
    """Conversations: a scene, labels in any order, and the look-up of each."""
    rng = Random(seed)
    for _ in range(count):
        labels = rng.sample(_LABELS, rng.randint(2, _MOST_LABELS))
        deltas = [_delta(index, labels, rng) for index in range(rng.randint(1, _MOST_LINES))]
        scene = scene_text(deltas, frozenset(), _LONG).text
        lines = read_scene(scene)
        absent = [label for label in _LABELS if label not in labels]
        labels_in_question = [*labels, *rng.sample(absent, rng.randint(0, _MOST_ABSENT))]
        rng.shuffle(labels_in_question)
        when, sight_of = rng.choice([('first', _first), ('last', _last)])
        question = f'Where was each of these seen {when}: {"; ".join(labels_in_question)}?'
        lines_of_answer = ' '.join(
            f'{label} {sight_of(label, lines)};' for label in labels_in_question
        )
        yield {
            'prompt': [{'role': 'user', 'content': f'Seen:\n{scene}\nQuestion: {question}'}],
            'completion': [{'role': 'assistant', 'content': f' {lines_of_answer}'}],
        }


def _first(label: str, lines: Sequence[SceneLine]) -> str:
    index = first_lines(lines).get(label)
    return NOT_SEEN if index is None else f'[{lines[index].label}]'


def _last(label: str, lines: Sequence[SceneLine]) -> str:
    last_place = last_sight(label, lines)
    if last_place is None:
        return NOT_SEEN
    index, sight = last_place
    return f'{sight.place_text if sight else ""} [{lines[index].label}]'


def _delta(index: int, labels: Sequence[str], rng: Random) -> SemanticDelta:
    """What a keyframe shows of some of the items, anywhere, after a step that is drawn too."""
    shown = rng.sample(labels, rng.randint(0, min(len(labels), _MOST_ITEMS)))
    items = [_item(label, rng) for label in shown]
    action = MotionStep('moved', rng.choice(['forward', 'backward']), rng.randint(1, 30) / 10)
    return SemanticDelta(
        index * _EVERY_NS + rng.randrange(_EVERY_NS),
        DeltaKind.CHANGE if index else DeltaKind.FIRST,
        action=action.text() if index else '',
        change=change_text(items),
        items=tuple(items),
    )


def _item(label: str, rng: Random) -> Item:
    status = rng.choice([ItemStatus.APPEARED, ItemStatus.VISIBLE])
    bearing, elevation = (math.radians(ANGLE_STEP_DEG * rng.randint(-9, 9)) for _ in range(2))
    return Item(label, status, bearing, elevation, 0.1, rng.randint(3, 70) / 10)
