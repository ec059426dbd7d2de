# SPDX-License-Identifier: Apache-2.0
"""VSI-Bench (arXiv 2412.14171): rows of `test.parquet`, scored as lmms_eval/tasks/vsibench does.

A prediction is its first word, up to the first space, without dots at its end. It is stricter than
the parser of this project ('A) left' is no option, '1,234' no number) and looser ('3 cm' is 3).
"""

from __future__ import annotations

import math
import string
from typing import TYPE_CHECKING

from embodied_r_ros.common.errors import InputError
import numpy as np

from training.eval.benchmarks.questions import (
    Benchmark,
    BenchmarkQuestion,
    different_truths,
    read_records,
    text_field,
    texts_field,
    VideoPart,
    without_doubles,
)

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from training.eval.benchmarks.questions import Record

NUMBER_TYPES = (
    'object_counting',
    'object_abs_distance',
    'object_size_estimation',
    'room_size_estimation',
)
_DIRECTION = 'object_rel_direction'
DIRECTION_TYPES = tuple(f'{_DIRECTION}_{level}' for level in ('easy', 'medium', 'hard'))
CHOICE_TYPES = (
    'object_rel_distance',
    *DIRECTION_TYPES,
    'route_planning',
    'obj_appearance_order',
)
# The sentences that the benchmark puts around a question.
_BEFORE = 'These are frames of a video.'
_AFTER_CHOICE = "Answer with the option's letter from the given choices directly."
_AFTER_NUMBER = 'Please answer the question using a single word or phrase.'
_CONFIDENCES = np.linspace(0.5, 0.95, 10)  # with the roundings of the benchmark's own thresholds


def first_word(prediction: str) -> str:
    """What counts of a prediction.

    >>> [first_word(text) for text in ('A. left', 'A) left', '3 cm', ' A')]
    ['A', 'A)', '3', '']
    """
    return prediction.split(' ')[0].rstrip('.').strip()


def mean_relative_accuracy(value: float, truth: float) -> float:
    """Share of the thresholds 0.5, 0.55, … 0.95 whose tolerance holds a number, 0..1.

    Unlike `training.eval.grading.relative_accuracy` it has no slack, so that what stands exactly
    on a limit falls as the rounding has it.

    >>> mean_relative_accuracy(9.5, 10)
    1.0
    >>> mean_relative_accuracy(2, 3)
    0.4
    """
    error = abs(value - truth) / truth
    return float((error <= 1 - _CONFIDENCES).mean())


def vsi_score(question: BenchmarkQuestion, prediction: str) -> float:
    """Score of a prediction, 0..1."""
    word, truth = first_word(prediction), question.truth or ''
    if question.options:
        return float(word.lower() == truth.lower())
    try:
        value = float(word)
    except ValueError:
        return 0.0
    return mean_relative_accuracy(value, float(truth))


def best_number(truths: Sequence[float]) -> float:
    """The number whose mean relative accuracy over some truths is the highest.

    Each threshold of each truth accepts an interval, and the number lies in as many of them as any
    can: in the middle of the first such stretch.
    """
    values = np.asarray(truths, float)[:, None]
    lows = np.sort((values * _CONFIDENCES).ravel())
    highs = np.sort((values * (2 - _CONFIDENCES)).ravel())
    covered = np.searchsorted(lows, lows, 'right') - np.searchsorted(highs, lows, 'left')
    low = lows[covered.argmax()]
    return float((low + highs[np.searchsorted(highs, low, 'left')]) / 2)


def _constants(questions: Sequence[BenchmarkQuestion]) -> list[str]:
    truths = different_truths(questions)
    if questions[0].options:
        return truths
    return [
        f'{best_number([float(question.truth or 1) for question in questions]):.4g}',
        truths[0],
    ]


def read_vsi_bench(path: Path) -> list[BenchmarkQuestion]:
    """Read the questions.

    Raises:
        InputError: The file is none of VSI-Bench.
    """
    records = read_records(path)
    return without_doubles([_question(record, row) for row, record in enumerate(records)], path)


def _question(record: Record, row: int) -> BenchmarkQuestion:
    kind = text_field(record, 'question_type', row)
    text, truth = text_field(record, 'question', row), text_field(record, 'ground_truth', row)
    scene, source = text_field(record, 'scene_name', row), record.get('dataset')
    if kind in CHOICE_TYPES:
        texts = texts_field(record, 'options', row)
        options = tuple(_option_text(option, i, row) for i, option in enumerate(texts))
    elif kind in NUMBER_TYPES:
        options = ()
        _check_number(truth, row)
    else:
        known = ', '.join((*NUMBER_TYPES, *CHOICE_TYPES))
        msg = f'row {row}: question_type is {kind!r}, expected one of {known}'
        raise InputError(msg)
    after = _AFTER_CHOICE if options else _AFTER_NUMBER
    places = (f'{source}/{scene}.mp4', f'{scene}.mp4') if source else (f'{scene}.mp4',)
    return BenchmarkQuestion(
        id=text_field(record, 'id', row),
        question_type=kind,
        scene=scene,
        wording=f'{_BEFORE}\n{text}\n{after}',
        truth=truth,
        options=options,
        video=VideoPart(places),
        record=record,
    )


def _option_text(option: str, index: int, row: int) -> str:
    """The text of an option, which stands behind its letter."""
    letter, text = option[:2], option[2:].strip()
    if letter != f'{string.ascii_uppercase[index % 26]}.' or not text:
        msg = f'row {row}: option {option!r}, expected a letter and a text, such as "A. left"'
        raise InputError(msg)
    return text


def _check_number(truth: str, row: int) -> None:
    """Refuse a ground truth to which no number has a relative error."""
    try:
        value = float(truth)
    except ValueError:
        value = math.nan
    if not (math.isfinite(value) and value > 0):
        msg = f'row {row}: ground_truth is {truth!r}, expected a number above 0'
        raise InputError(msg)


VSI_BENCH = Benchmark(
    'vsi-bench',
    read_vsi_bench,
    vsi_score,
    _constants,
    merged_types={_DIRECTION: DIRECTION_TYPES},
    is_mean_of_types=True,
)
