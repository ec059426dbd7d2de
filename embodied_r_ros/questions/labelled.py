# SPDX-License-Identifier: Apache-2.0
"""Rows from the labels beside a recording: written questions, and corrected solutions."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from embodied_r_ros.questions.indoor import Unsolved
from embodied_r_ros.questions.logged import as_proof, DISPUTED, kind_of_question
from embodied_r_ros.questions.row import builder_of, QuestionWithSolution
from embodied_r_ros.types.episodes import Verdict

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from embodied_r_ros.episodes.episode import Episode
    from embodied_r_ros.questions.coverage import Coverage
    from embodied_r_ros.questions.row import Row
    from embodied_r_ros.types.episodes import Label
    from embodied_r_ros.types.landmarks import SceneMap


def rows_of_written(episode: Episode, split: str, coverage: Coverage) -> Iterator[Row]:
    """Make a row of each question that people wrote and solved; others are counted."""
    by_question = episode.labels.by_question()
    for name, written in episode.labels.questions().items():
        labels = by_question.get(name, {})
        row = _row_of(episode, written, labels, split)
        if isinstance(row, Unsolved):
            kind = kind_of_question(written.question.text) if written.question else 'asked'
            coverage.unsolved[kind, row.reason] += 1
        else:
            yield row


def _row_of(
    episode: Episode, written: Label, labels: dict[str, Label], split: str
) -> Row | Unsolved:
    question = written.question
    if not question or not labels:
        return Unsolved('a written question without a solution')
    verdict = Verdict.of(labels, written.before)
    if verdict.solution is None:
        reason = DISPUTED if verdict.is_disputed else 'labelled wrong, without the right answer'
        return Unsolved(reason)
    deltas = tuple(delta for delta in episode.deltas if delta.stamp_ns <= question.stamp_ns)
    if not deltas:
        return Unsolved('a written question before the first delta')
    proof = as_proof(verdict.solution, question.options)
    if isinstance(proof, Unsolved):
        return proof
    kind = kind_of_question(question.text)
    row = builder_of(episode, split).row(
        written.question_id,
        QuestionWithSolution(kind, question.text, question.options, proof.solution, proof.source),
        deltas,
        camera=deltas[-1].camera,
        meta={'labelled_by': ', '.join(verdict.people), 'stamp_ns': question.stamp_ns},
    )
    scene = _map_at(episode, question.stamp_ns)
    return row.with_map(scene) if scene else row


def _map_at(episode: Episode, stamp_ns: int) -> SceneMap | None:
    """The newest recorded map of what was known at a time; None: there is none."""
    known = [
        scene for scene in episode.log.maps if scene.path and scene.path[-1].stamp_ns <= stamp_ns
    ]
    return known[-1] if known else None


def with_solutions_of_people(
    rows: Iterable[Row], episode: Episode, coverage: Coverage
) -> Iterator[Row]:
    """Rows whose solution people labelled get theirs; those that are disputed are left out."""
    by_question = episode.labels.by_question()
    for row in rows:
        if row.id not in by_question:
            yield row
            continue
        verdict = Verdict.of(by_question[row.id], row.solution_text())
        solved = Unsolved(DISPUTED if verdict.is_disputed else 'its solution is labelled wrong')
        proof = as_proof(verdict.solution, row.options) if verdict.solution else solved
        if isinstance(proof, Unsolved):
            coverage.left_out[row.question_type, proof.reason] += 1
            continue
        meta = {**row.meta, 'labelled_by': ', '.join(verdict.people)}
        yield replace(row, solution=proof.solution, source=proof.source, meta=meta)
