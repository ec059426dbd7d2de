# SPDX-License-Identifier: Apache-2.0
"""Benchmarks of points in images, each with its own rule: Where2Place, RoboSpatial-Home."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING

import cv2
from embodied_r_ros.common.errors import InputError
import numpy as np

from training.eval.benchmarks.questions import (
    Benchmark,
    BenchmarkQuestion,
    different_truths,
    picture_bytes,
    read_records,
    text_field,
    without_doubles,
)

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from numpy.typing import NDArray

# Where2Place: `point_questions.jsonl` with `images` and `masks` beside it, or one table with the
# columns question, image, mask; scored as summarize_vqa.py of wentaoyuan/RoboPoint does.
_TUPLE = re.compile(r'\(([-+]?\d+\.?\d*(?:,\s*[-+]?\d+\.?\d*)*?)\)')
_WIDTH_PX, _HEIGHT_PX = 640, 480  # that shares are multiplied by, whatever the image has
_MOST_DIGITS = 300  # of a number


def where2place_score(question: BenchmarkQuestion, prediction: str) -> float | None:
    """Mean brightness of the mask at the points, 0 beside it; of a box (x, y, x, y) all pixels.

    Numbers with a dot are shares of 640 x 480, others pixels. None: a box of both, or a number
    without end, which the benchmark's code does not read and leaves out.
    """
    mask = mask_of(question.mask)
    total, count = 0.0, 0
    for match in _TUPLE.finditer(prediction):
        texts = [text.strip() for text in match[1].split(',')]
        if max(map(len, texts)) > _MOST_DIGITS:
            return None
        numbers = [float(text) if '.' in text else int(text) for text in texts]
        is_share = [isinstance(number, float) for number in numbers]
        if len(numbers) == 2:
            x, y = _pixels(numbers) if any(is_share) else map(int, numbers)
            count += 1
            if 0 <= y < mask.shape[0] and 0 <= x < mask.shape[1]:
                total += float(mask[y, x])
        elif len(numbers) == 4:
            if not is_share[0] and any(is_share):
                return None
            left, top, right, bottom = _pixels(numbers) if is_share[0] else map(int, numbers)
            rows = np.arange(_HEIGHT_PX)[top:bottom]
            columns = np.arange(_WIDTH_PX)[left:right]
            count += len(rows) * len(columns)
            inside = np.ix_(rows[rows < mask.shape[0]], columns[columns < mask.shape[1]])
            total += float(mask[inside].sum())
    return total / count if count else 0.0


def _pixels(shares: Sequence[float]) -> list[int]:
    sides = (_WIDTH_PX, _HEIGHT_PX) * (len(shares) // 2)
    return [int(share * side) for share, side in zip(shares, sides, strict=True)]


def mask_of(data: bytes) -> NDArray[np.float64]:
    """A mask, 0..1. Shape (H, W).

    Raises:
        InputError: It is no image.
    """
    image = cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_GRAYSCALE) if data else None
    if image is None:
        msg = 'a mask is no image'
        raise InputError(msg)
    return np.asarray(image, np.float64) / 255.0


def read_where2place(path: Path) -> list[BenchmarkQuestion]:
    """Read the questions with their images and masks.

    Raises:
        InputError: The file is none of Where2Place, or an image is not beside it.
    """
    questions = []
    for row, record in enumerate(read_records(path)):
        is_published = 'text' in record
        image = record.get('image')
        mask = f'{row:02d}.jpg' if is_published else record.get('mask')
        data = picture_bytes(mask, path.parent / 'masks', row)
        questions.append(
            BenchmarkQuestion(
                id=str(record.get('question_id', row)),
                question_type=str(record.get('category') or 'where2place'),
                scene=str(row),
                wording=text_field(record, 'text' if is_published else 'question', row),
                truth=_middle_of(mask_of(data)),
                images=(picture_bytes(image, path.parent / 'images', row),),
                mask=data,
                record={k: v for k, v in record.items() if k not in ('image', 'mask')},
            )
        )
    return without_doubles(questions, path)


def _middle_of(mask: NDArray[np.float64]) -> str:
    """The point of a mask that is farthest from its border, as an answer."""
    depth = cv2.distanceTransform((mask > 0.5).astype(np.uint8), cv2.DIST_L2, 3)
    y, x = np.unravel_index(int(depth.argmax()), depth.shape)
    return f'[({(int(x) + 0.5) / _WIDTH_PX:.4f}, {(int(y) + 0.5) / _HEIGHT_PX:.4f})]'


# RoboSpatial-Home: `annotations.json` of its download_benchmark.py with `images` beside it, or the
# parquet file of a split; scored as evaluation.py of chanhee-luke/RoboSpatial-Eval does.
_NUMBER = r'(\d+\.?\d*)'
_PAIRS = [
    re.compile(rf'{a}\s*{_NUMBER}\s*,\s*{_NUMBER}\s*{b}')
    for a, b in ((r'\(', r'\)'), (r'\[', r'\]'))
]
_FIRST_LIST = re.compile(r'\[(.*?)\]', re.DOTALL)


def robospatial_score(question: BenchmarkQuestion, prediction: str) -> float:
    """1 where it begins with 'yes' or 'no' as the truth, or its first point is in the outline."""
    truth = (question.truth or '').strip().lower()
    if truth in ('yes', 'no'):
        return float(prediction.strip().lower().startswith(truth))
    outline = _literal(question.truth or '')
    point = first_point(prediction)
    if not isinstance(outline, list) or len(outline) < 3 or point is None:
        return 0.0
    try:
        return float(is_inside(point, [(float(x), float(y)) for x, y in outline]))
    except (TypeError, ValueError):
        return 0.0


def first_point(prediction: str) -> tuple[float, float] | None:
    """The first (x, y) of a prediction, else its first [x, y], else of its first list.

    >>> [first_point(text) for text in ('[0.1, 0.2] or (0.3, 0.4)', '[(-1, 2)]', '0.1, 0.2')]
    [(0.3, 0.4), (-1.0, 2.0), None]
    """
    for pattern in _PAIRS:
        if match := pattern.search(prediction):
            return float(match[1]), float(match[2])
    match = _FIRST_LIST.search(prediction)
    values = _literal(f'[{match[1].strip().removesuffix(",")}]') if match else None
    if not isinstance(values, list) or not values:
        return None
    is_point = len(values) == 2 and all(isinstance(value, (int, float)) for value in values)
    point = values if is_point else values[0]
    if not isinstance(point, (list, tuple)) or len(point) != 2:
        return None
    try:
        return float(point[0]), float(point[1])
    except (TypeError, ValueError, OverflowError):
        return None


def _literal(text: str) -> object:
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError, TypeError, RecursionError, MemoryError):
        return None


def is_inside(point: tuple[float, float], outline: Sequence[tuple[float, float]]) -> bool:
    """Tell whether a ray to the right crosses an outline an odd number of times."""
    x, y = point
    corners = np.asarray(outline, np.float64)
    before = np.roll(corners, 1, axis=0)
    across = (corners[:, 1] > y) != (before[:, 1] > y)
    (ax, ay), (bx, by) = corners[across].T, before[across].T
    return bool(np.count_nonzero(x < (bx - ax) * (y - ay) / (by - ay) + ax) % 2)


def read_robospatial(path: Path) -> list[BenchmarkQuestion]:
    """Read the questions with their images; those without an answer are passed over.

    Raises:
        InputError: The file is none of RoboSpatial-Home, or an image is not beside it.
    """
    questions = []
    for row, record in enumerate(read_records(path)):
        if not record.get('question') or not record.get('answer'):
            continue
        image = record.get('img')
        questions.append(
            BenchmarkQuestion(
                id=str(row),
                question_type=str(record.get('category') or 'unknown'),
                scene=image if isinstance(image, str) else str(row),
                wording=text_field(record, 'question', row),
                truth=text_field(record, 'answer', row),
                images=(picture_bytes(image, path.parent, row),),
                record={k: v for k, v in record.items() if k in ('category', 'question')},
            )
        )
    return without_doubles(questions, path)


WHERE2PLACE = Benchmark(
    'where2place', read_where2place, where2place_score, different_truths, has_images=True
)
ROBOSPATIAL = Benchmark(
    'robospatial-home', read_robospatial, robospatial_score, different_truths, has_images=True
)
