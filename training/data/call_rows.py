# SPDX-License-Identifier: Apache-2.0
"""Rows of calls as files, and what calls answer: all that training on them needs."""

from __future__ import annotations

from dataclasses import asdict, dataclass
import gzip
import json
import math
from typing import Any, TYPE_CHECKING

from embodied_r_ros.common.errors import EmbodiedRError, InputError
from embodied_r_ros.common.files import write_whole
from embodied_r_ros.core.reasoning.calls import compact_prompt, read_calls
from embodied_r_ros.core.reasoning.saying import answer_readings
from embodied_r_ros.core.scene.tools import Scene
from embodied_r_ros.core.types.answers import UNKNOWN
from embodied_r_ros.core.types.deltas import (
    action_text,
    DeltaKind,
    Motion,
    MotionSource,
    SemanticDelta,
)
from embodied_r_ros.core.types.geometry import wrap_angle_rad

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from embodied_r_ros.core.reasoning.reading import Call
    from embodied_r_ros.core.types.landmarks import SceneMap

NOT_LEARNED = -100  # label of a token of a prompt
_SAME = 0.02  # by which share two numbers may differ


@dataclass(frozen=True)
class CallRow:
    """A question about a scene, the calls that read it, and what they answer."""

    scene: str
    split: str
    kind: str  # of the question: that of a row, or the calls that it was put together from
    question: str
    options: tuple[str, ...]
    labels: tuple[str, ...]
    call: str  # in the compact form
    outcome: tuple[str, ...]  # as `outcome_of` gives it

    @property
    def prompt(self) -> str:
        """What the model reads."""
        return compact_prompt(self.question, self.options, self.labels)

    @classmethod
    def from_mapping(cls, value: dict[str, Any]) -> CallRow:
        """Of plain JSON values."""
        lists = {key: tuple(value[key]) for key in ('options', 'labels', 'outcome')}
        return cls(**{**value, **lists})


def scene_of(place: SceneMap) -> Scene:
    """A scene with a map and the deltas of its path: how the camera moved, without what it saw."""
    deltas = []
    for index, point in enumerate(place.path):
        before = place.path[max(0, index - 1)]
        dx, dy, dz = (b - a for a, b in zip(before.position, point.position, strict=True))
        cos, sin = math.cos(before.yaw_rad), math.sin(before.yaw_rad)
        motion = Motion(
            MotionSource.ODOMETRY, wrap_angle_rad(point.yaw_rad - before.yaw_rad), 0.0, 0.0,
            (cos * dx + sin * dy, cos * dy - sin * dx, dz), is_metric=True,
        )  # fmt: skip
        kind = DeltaKind.CHANGE if index else DeltaKind.FIRST
        action = action_text(motion) if index else ''
        delta = SemanticDelta(point.stamp_ns, kind, index + 1, index, action=action, motion=motion)
        deltas.append(delta)
    return Scene(deltas, place)


def outcome_of(
    question: str, options: Sequence[str], scene: Scene, calls: Sequence[Call] | None
) -> tuple[str, ...]:
    """Kind, text and reason of the answer that calls give; those that fail give none."""
    try:
        readings = read_calls(question, options, scene.labels, calls)
        answer = answer_readings(readings, options, scene)
    except (EmbodiedRError, ValueError, KeyError, TypeError, IndexError, AttributeError) as error:
        return UNKNOWN, '', f'{type(error).__name__}: {error}'
    reason = '' if answer.is_known else next((r.doubt for r in answer.readings if r.doubt), '')
    return answer.kind.name.lower(), answer.text, reason


def is_same(one: Sequence[str], other: Sequence[str]) -> bool:
    """Whether two outcomes say the same; unknown is unknown for whatever reason."""
    if UNKNOWN in (one[0], other[0]) or one[0] != other[0]:
        return one[0] == other[0]
    if one[0] == 'number':
        a, b = float(one[1]), float(other[1])
        return abs(a - b) <= _SAME * max(abs(a), abs(b))
    return one[1] == other[1]


def read_call_rows(path: Path) -> list[CallRow]:
    """The rows of a file.

    Raises:
        InputError: It cannot be read, or is none of `training.data.calls`.
    """
    try:
        with gzip.open(path, 'rt', encoding='utf-8') as file:
            return [CallRow.from_mapping(json.loads(line)) for line in file]
    except (OSError, EOFError, ValueError, KeyError, TypeError) as error:
        msg = f'{path} cannot be read as rows of calls: {error}'
        raise InputError(msg) from None


def call_examples(
    rows: Iterable[CallRow], tokenizer: Any, max_tokens: int
) -> list[dict[str, list[int]]]:
    """Tokens of rows, `input_ids` and `labels`: calls and their ends are learned, prompts are not.

    Args:
        rows: The rows; those of more tokens are left out.
        tokenizer: Of the model.
        max_tokens: Of a row, with its call and end.
    """
    examples = []
    for row in rows:
        prompt, call = (
            list(tokenizer.encode(text, add_special_tokens=False))
            for text in (row.prompt, row.call)
        )
        learned = [*call, tokenizer.eos_token_id]
        if len(prompt) + len(learned) <= max_tokens:
            labels = [NOT_LEARNED] * len(prompt) + learned
            examples.append({'input_ids': prompt + learned, 'labels': labels})
    return examples


def write_call_rows(path: Path, rows: Sequence[CallRow]) -> None:
    """Write rows as `read_call_rows` reads them."""
    lines = (json.dumps(asdict(row), separators=(',', ':')) + '\n' for row in rows)
    write_whole(path, gzip.compress(''.join(lines).encode()))
