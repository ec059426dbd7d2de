# SPDX-License-Identifier: Apache-2.0
"""What all benchmarks have: questions with their ground truth, and a rule that scores a text."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TYPE_CHECKING

from embodied_r_ros.common.errors import InputError

if TYPE_CHECKING:
    from pathlib import Path

Record = Mapping[str, Any]


@dataclass(frozen=True)
class VideoPart:
    """Which video a question is about, and which part of it."""

    places: tuple[str, ...]  # below the folder of the videos; the first that is there counts
    span_s: tuple[float, float] | None = None  # from the first image; None: all of it
    rate_hz: float | None = None  # of a folder of images; None: the usual one


@dataclass(frozen=True)
class BenchmarkQuestion:
    """A question of a benchmark."""

    id: str
    question_type: str
    scene: str  # questions about one scene are not independent
    wording: str  # as the benchmark asks its models, the options aside
    truth: str | None  # letter, index, number or text; None: not published
    options: tuple[str, ...] = ()  # their texts, without letters; empty: a free question
    other_truths: tuple[str, ...] | None = None  # that are right as well; None: none are given
    video: VideoPart | None = None
    images: tuple[bytes, ...] = ()  # encoded, in order
    record: Record = field(default_factory=dict)  # as published, without images

    def plain_question(self) -> str:
        """The question as published."""
        return str(self.record.get('question', self.wording))


@dataclass(frozen=True)
class Benchmark:
    """How a benchmark is read and scored. Scores are 0..1."""

    name: str
    read: Callable[[Path], list[BenchmarkQuestion]]
    # Score of a prediction; None: the benchmark's own code leaves the row out.
    score: Callable[[BenchmarkQuestion, str], float | None]
    # Constant answers to questions of one type, the best one among them.
    constants: Callable[[Sequence[BenchmarkQuestion]], list[str]]
    # Types that are averaged into one, by its name.
    merged_types: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    is_mean_of_types: bool = False  # overall is the mean over types, otherwise over questions


def different_truths(questions: Sequence[BenchmarkQuestion]) -> list[str]:
    """Ground truths, the most frequent first; equally frequent ones in alphabetical order."""
    counts = Counter(question.truth for question in questions if question.truth is not None)
    return sorted(counts, key=lambda truth: (-counts[truth], truth))


def text_field(record: Record, name: str, row: int) -> str:
    """A field that must be a text with something in it; numbers are taken as their text.

    Raises:
        InputError: It is missing or another value.
    """
    value = record.get(name)
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return str(value)
    if not isinstance(value, str) or not value.strip():
        fields = ', '.join(record) or 'none'
        msg = f'row {row}: {name} is {value!r}, expected a text (the row has the fields {fields})'
        raise InputError(msg)
    return value


def texts_field(record: Record, name: str, row: int) -> tuple[str, ...]:
    """A field that must be a list of texts.

    Raises:
        InputError: It is missing or another value.
    """
    value = record.get(name)
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        msg = f'row {row}: {name} is {value!r}, expected a list of texts'
        raise InputError(msg)
    return tuple(value)


def without_doubles(questions: list[BenchmarkQuestion], path: Path) -> list[BenchmarkQuestion]:
    """The questions, whose ids differ.

    Raises:
        InputError: There is none, or two have one id.
    """
    counts = Counter(question.id for question in questions)
    doubles = [name for name, count in counts.items() if count > 1]
    if doubles:
        msg = f'{path}: id {doubles[0]!r} comes {counts[doubles[0]]} times'
        raise InputError(msg)
    if not questions:
        msg = f'{path} has no questions'
        raise InputError(msg)
    return questions
