# SPDX-License-Identifier: Apache-2.0
"""Labels of recordings as a table (CSV), each beside what was asked and answered."""

from __future__ import annotations

import csv
from datetime import datetime, timezone
from typing import TextIO, TYPE_CHECKING

from embodied_r_ros.episodes.episode import read_answers
from embodied_r_ros.episodes.labels import answer_in_words, read_labels
from embodied_r_ros.reasoning.completions import number_in

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from embodied_r_ros.types.answers import Answer
    from embodied_r_ros.types.labels import Label, LabelLayer

COLUMNS = (
    'episode', 'question_id', 'stamp_ns', 'question', 'options', 'answer', 'model', 'digest',
    'who', 'when', 'kind', 'before', 'after', 'stands',
)  # fmt: skip
_FORMULA = ('=', '+', '-', '@', '\t', '\r')


def write_label_table(bags: Iterable[Path], out: TextIO) -> int:
    """Write the labels beside recordings as CSV (RFC 4180); returns how many.

    Texts that a spreadsheet would take for a formula get an apostrophe before them: a camera may
    have read them.

    Raises:
        InputError: Labels or a recording cannot be read.
    """
    writer = csv.writer(out)
    writer.writerow(COLUMNS)
    count = 0
    for bag in bags:
        layer = read_labels(bag)
        if not layer.labels:
            continue
        answers = {answer.id: answer for answer in read_answers(bag).answers}
        standing = {label.id for label in layer.standing_labels()}
        for label in layer.labels:
            question = _question_cells(label, layer, answers)
            when = datetime.fromtimestamp(label.when_ns / 1e9, timezone.utc)
            cells = label.kind.value, label.before or '', label.after or ''
            values = (
                bag.name,
                label.question_id,
                *question,
                label.who,
                when.isoformat(),
                *cells,
            )
            writer.writerow([*map(_cell, values), 'yes' if label.id in standing else 'no'])
            count += 1
    return count


def _question_cells(
    label: Label, layer: LabelLayer, answers: dict[str, Answer]
) -> tuple[str, ...]:
    """Stamp, question, options, answer, model and digest; empty texts where nothing is known."""
    if answer := answers.get(label.question_id):
        options, words = ' | '.join(answer.options), answer_in_words(answer) or ''
        stamp = str(answer.observation_stamp_ns or '')
        return stamp, answer.question, options, words, answer.model.name, answer.model.digest
    written = next(
        (one for one in layer.labels if one.id == label.question_id and one.question), None
    )
    if not written or not written.question:
        return ('',) * 6
    question = written.question
    options, words = ' | '.join(question.options), written.before or ''
    return str(question.stamp_ns), question.text, options, words, question.model, question.digest


def _cell(text: str) -> str:
    is_formula = text.startswith(_FORMULA) and number_in(text) is None
    return f"'{text}" if is_formula else text
