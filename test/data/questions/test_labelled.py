# SPDX-License-Identifier: Apache-2.0
"""Labels beside a recording become rows, and count before those in it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from embodied_r_ros.core.types.episodes import (
    AnswerLabel,
    Label,
    LabelKind,
    LabelVerdict,
    WrittenQuestion,
)
from embodied_r_ros.data.episodes.episode import read_answers
from embodied_r_ros.data.episodes.label_check import append_label, read_scope
from embodied_r_ros.data.episodes.labels import append_with, LABELS
from embodied_r_ros.data.questions.collect import rows_of, RowsRecipe
from embodied_r_ros.data.questions.coverage import Coverage
from embodied_r_ros.data.questions.derive import QuestionsConfig
import pytest

from test.data.episodes.test_labels import correct, NOW_NS, undo
from test.data.questions.test_logged import answer, SECOND_NS, SIDES, write_bag

if TYPE_CHECKING:
    from pathlib import Path

    from embodied_r_ros.data.questions.row import Row

LIVE = AnswerLabel(9 * SECOND_NS, 'run-1', LabelVerdict.CORRECTED, 'right', 'live')


@pytest.fixture
def bag(tmp_path: Path) -> Path:
    """A recording whose one answer an operator corrected to 'right'."""
    return write_bag(tmp_path / 'e1', [answer()], [LIVE])


def label(bag: Path, *labels: Label) -> None:
    for one in labels:
        append_label(bag, one, read_scope(bag))


def labelled_rows(bag: Path, coverage: Coverage | None = None) -> list[Row]:
    rows = rows_of([bag], RowsRecipe(QuestionsConfig()), coverage or Coverage())
    return [row for row in rows if 'labelled_by' in row.meta]


def question(stamp_s: float, after: str | None, options: tuple[str, ...] = SIDES) -> Label:
    asked = WrittenQuestion('Where is the lamp?', round(stamp_s * SECOND_NS), options)
    return Label('q1', 'q1', LabelKind.QUESTION, 'ann', NOW_NS, after=after, question=asked)


def test_the_layer_counts_before_the_label_in_the_bag(bag: Path) -> None:
    assert [row.solution_text() for row in labelled_rows(bag)] == ['right']
    label(bag, correct('left'), correct('ahead'))
    (row,) = labelled_rows(bag)
    assert (row.solution_text(), row.source, row.meta['labelled_by']) == ('ahead', 'label', 'ann')
    label(bag, correct('unknown'))
    assert [row.solution for row in labelled_rows(bag)] == ['unknown']


def test_what_was_taken_back_in_the_layer_is_not_taken_from_the_bag(bag: Path) -> None:
    given = correct('right', 'live')
    label(bag, given, undo(given))
    assert labelled_rows(bag) == []
    assert read_answers(bag).labels == {}


def test_people_who_differ_leave_the_row_out(bag: Path) -> None:
    label(bag, correct('left'), correct('ahead', 'bob'))
    coverage = Coverage()
    assert labelled_rows(bag, coverage) == []
    assert coverage.unsolved['asked', 'people differ about its answer'] == 1
    label(bag, correct('left', 'bob'))
    assert [row.meta['labelled_by'] for row in labelled_rows(bag)] == ['ann, bob']


def test_a_written_question_is_a_row_of_what_was_seen_until_then(bag: Path) -> None:
    label(bag, question(3.5, 'ahead'))
    row = next(row for row in labelled_rows(bag) if row.id == 'e1/q1')
    assert (row.solution, row.answer_kind, row.source) == ('C', 'choice', 'label')
    assert [delta['stamp_ns'] for delta in row.deltas] == [s * SECOND_NS for s in (1, 2, 3)]


def test_a_written_question_without_a_solution_is_counted(bag: Path) -> None:
    label(bag, question(3.5, None))
    coverage = Coverage()
    assert len(labelled_rows(bag, coverage)) == 1
    assert coverage.unsolved['asked', 'a written question without a solution'] == 1


def test_a_derived_row_gets_the_solution_of_people(bag: Path) -> None:
    row = next(
        row for row in rows_of([bag], RowsRecipe(QuestionsConfig()), Coverage()) if row.options
    )
    other = next(option for option in row.options if option != row.solution_text())
    append_with(bag, lambda layer: correct(other, question=row.id))
    after = next(one for one in labelled_rows(bag) if one.id == row.id)
    assert (after.solution_text(), after.source) == (other, 'label')
    append_with(bag, lambda layer: correct(row.solution_text(), 'bob', question=row.id))
    coverage = Coverage()
    assert row.id not in [one.id for one in labelled_rows(bag, coverage)]
    assert coverage.left_out[row.question_type, 'people differ about its answer'] == 1


def test_the_manifest_names_the_labels(bag: Path) -> None:
    coverage = Coverage()
    list(rows_of([bag], RowsRecipe(QuestionsConfig()), coverage))
    before = coverage.bags[0]
    label(bag, correct('ahead'))
    coverage = Coverage()
    list(rows_of([bag], RowsRecipe(QuestionsConfig()), coverage))
    after = coverage.bags[0]
    assert (before.labels, len(after.labels)) == ('', 64)
    assert after.sha256 == before.sha256  # the recording is the same


def test_a_damaged_line_is_left_out_with_a_note(
    bag: Path, caplog: pytest.LogCaptureFixture
) -> None:
    label(bag, correct('ahead'))
    with (bag / LABELS).open('ab') as file:
        file.write(b'{"id":"x"')
    assert [row.solution_text() for row in labelled_rows(bag)] == ['ahead']
    assert 'line 2 is no label (cut off) is left out' in caplog.text
