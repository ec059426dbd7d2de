# SPDX-License-Identifier: Apache-2.0
"""What all benchmarks have: questions with their ground truth, and a rule that scores a text.

Their files are read as plain records: parquet, JSON, JSON lines, CSV, TSV.
"""

from __future__ import annotations

import ast
import base64
import binascii
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
import csv
from dataclasses import dataclass, field
from io import StringIO
from itertools import pairwise
import json
import sys
from tokenize import generate_tokens, NL, STRING, TokenError
from typing import Any, TYPE_CHECKING

from embodied_r_ros.common.errors import InputError
from pyarrow import ArrowException
from pyarrow.parquet import read_table

from training.data.lines import read_lines

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
    has_images: bool = False  # they come with the rows
    is_marked: bool = False  # the rule leaves all out: predictions bring marks


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
    """A field that must be a list of texts, or a cell of a table in which one stands.

    Raises:
        InputError: It is missing or another value.
    """
    value = as_list(record.get(name))
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        msg = (
            f'row {row}: {name} is {value!r}, expected a list of texts, '
            "in a cell of a table such as ['left', 'right'], with commas"
        )
        raise InputError(msg)
    return tuple(value)


def as_list(value: Any) -> Any:
    """A list; one that stands in a cell of a table is read. Any other value stays as it is."""
    if not isinstance(value, str):
        return value
    try:
        literal = ast.literal_eval(value)
        return value if _has_texts_without_comma(value) else literal
    except (ValueError, SyntaxError, RecursionError, MemoryError, TokenError):
        return value


def _has_texts_without_comma(cell: str) -> bool:
    """Whether texts of a cell touch, as in a printed array of NumPy: Python joins them to one.

    Raises:
        TokenError: The cell does not end.
    """
    tokens = generate_tokens(StringIO(cell.strip()).readline)
    kinds = [token.type for token in tokens if token.type != NL]
    return any(kind == after == STRING for kind, after in pairwise(kinds))


def image_bytes(value: Any, row: int) -> tuple[bytes, ...]:
    """Images as bytes: as they are, as {'bytes': …}, or in base64, alone or in a list.

    Raises:
        InputError: One is something else.
    """
    if isinstance(value, str) and value.lstrip().startswith('['):
        value = as_list(value)
    values = value if isinstance(value, (list, tuple)) else [] if value is None else [value]
    images = []
    for item in values:
        data = item.get('bytes') if isinstance(item, dict) else item
        if isinstance(data, str):
            try:
                data = base64.b64decode(data, validate=True)
            except (binascii.Error, ValueError):
                data = None
        if not isinstance(data, bytes):
            msg = f'row {row}: an image is {str(item)[:40]!r}, expected bytes, or text in base64'
            raise InputError(msg)
        images.append(data)
    return tuple(images)


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


def read_records(path: Path) -> list[dict[str, Any]]:
    """The rows of a file, by its suffix.

    Raises:
        InputError: It cannot be read, or holds no rows.
    """
    suffix = path.suffix.lower()
    reader = _READERS.get(suffix)
    if reader is None:
        msg = f'{path}: expected a file {", ".join(_READERS)}'
        raise InputError(msg)
    if not path.is_file():
        msg = f'{path} is no file'
        raise InputError(msg)
    return reader(path)


def _parquet(path: Path) -> list[dict[str, Any]]:
    try:
        rows: list[dict[str, Any]] = read_table(path).to_pylist()
    except (OSError, ArrowException) as error:
        msg = f'{path} cannot be read: {error}'
        raise InputError(msg) from None
    return rows


def _json(path: Path) -> list[dict[str, Any]]:
    try:
        values = json.loads(_text(path))
    except (ValueError, RecursionError) as error:
        msg = f'{path} is not JSON ({error})'
        raise InputError(msg) from None
    if not isinstance(values, list) or not all(isinstance(value, dict) for value in values):
        msg = f'{path}: expected a list of objects'
        raise InputError(msg)
    return values


def _json_lines(path: Path) -> list[dict[str, Any]]:
    return [value for _, value in read_lines(path, {})]


def _csv(path: Path) -> list[dict[str, Any]]:
    return _table(path, ',')


def _tsv(path: Path) -> list[dict[str, Any]]:
    return _table(path, '\t')


def _table(path: Path, delimiter: str) -> list[dict[str, Any]]:
    csv.field_size_limit(sys.maxsize)  # cells may hold pictures
    try:
        rows = list(csv.DictReader(StringIO(_text(path), newline=''), delimiter=delimiter))
    except csv.Error as error:
        msg = f'{path} cannot be read: {error}'
        raise InputError(msg) from None
    return rows


def _text(path: Path) -> str:
    try:
        with path.open(encoding='utf-8-sig', newline='') as file:
            return file.read()
    except (OSError, UnicodeDecodeError) as error:
        msg = f'{path} cannot be read: {error}'
        raise InputError(msg) from None


_READERS = {
    '.parquet': _parquet,
    '.json': _json,
    '.jsonl': _json_lines,
    '.csv': _csv,
    '.tsv': _tsv,
}
