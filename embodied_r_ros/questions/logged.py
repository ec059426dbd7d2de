# SPDX-License-Identifier: Apache-2.0
"""Rows of what a recording logged: answers that were given live, and labels of people beside them.

An operator's label proves a solution; so does what a bag proves of the camera's motion, where the
question is worded like one of ours. A row of an answer is made only if its prompt is the one that
was answered, to the letter.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from random import Random
from typing import TYPE_CHECKING

from embodied_r_ros.common.untrusted import as_data
from embodied_r_ros.episodes.answers import find_inputs, Lost
from embodied_r_ros.episodes.labels import answer_in_words
from embodied_r_ros.questions.indoor import KINDS, Moment, Unsolved
from embodied_r_ros.questions.row import builder_of, QuestionWithSolution
from embodied_r_ros.questions.wordings import MOTION_KINDS, WORDINGS
from embodied_r_ros.reasoning.completions import (
    choice_index,
    is_unknown,
    option_letter,
    UNKNOWN,
)
from embodied_r_ros.reasoning.prompts import REASON_PROMPT_VERSION, shows_image
from embodied_r_ros.types.episodes import LabelVerdict, Verdict

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from embodied_r_ros.episodes.answers import Inputs
    from embodied_r_ros.episodes.episode import Episode
    from embodied_r_ros.questions.coverage import Coverage
    from embodied_r_ros.questions.row import Row
    from embodied_r_ros.types.answers import Answer
    from embodied_r_ros.types.episodes import AnswerLabel, Label
    from embodied_r_ros.types.landmarks import SceneMap

ASKED = 'asked'  # type of questions that are not worded like ours
DISPUTED = 'people differ about its answer'


@dataclass(frozen=True)
class Proof:
    """A solution, and what proves it."""

    solution: str  # letter for a choice, number or text otherwise, or 'unknown'
    source: str


def rows_of_answers(episode: Episode, split: str, coverage: Coverage) -> Iterator[Row]:
    """Make a row of each answer that something proves; the others are counted in `coverage`."""
    for answer in episode.log.answers:
        kind = kind_of_question(answer.question)
        row = _row_of(episode, answer, kind, split)
        if isinstance(row, Unsolved):
            coverage.unsolved[kind, row.reason] += 1
        else:
            yield row


def kind_of_question(question: str) -> str:
    """Kind of motion question that is worded so; ASKED: none."""
    return next((kind for kind in MOTION_KINDS if question in WORDINGS[kind]), ASKED)


def _row_of(episode: Episode, answer: Answer, kind: str, split: str) -> Row | Unsolved:
    if why_not := _why_no_prompt(episode, answer):
        return Unsolved(why_not)
    inputs = find_inputs(answer, episode.log)
    if isinstance(inputs, Lost):
        return Unsolved(inputs.reason)
    if answer.id in episode.log.disputed:
        return Unsolved(DISPUTED)
    proof = _proof_of(episode, inputs, answer, kind)
    if isinstance(proof, Proof):
        return _row(episode, answer, inputs, kind, split, proof)
    return proof


def solution_of_recording(episode: Episode, answer: Answer) -> tuple[str, str] | None:
    """What the recording itself proves of a question that was answered live.

    Returns:
        The solution in words, and its source; None: nothing is proven.
    """
    kind = kind_of_question(answer.question)
    if kind == ASKED or _why_no_prompt(episode, answer):
        return None
    inputs = find_inputs(answer, episode.log)
    proof = None if isinstance(inputs, Lost) else _proof_of_poses(episode, inputs, answer, kind)
    if not isinstance(proof, Proof):
        return None
    return answer.options[ord(proof.solution) - ord('A')], proof.source


def _why_no_prompt(episode: Episode, answer: Answer) -> str:
    """Why the prompt of an answer is not built; empty: it may be."""
    if episode.delta_source != 'recorded':
        return f'answers go with recorded deltas, not with {episode.delta_source} ones'
    if answer.prompt_sha256 and answer.model.prompt_version != REASON_PROMPT_VERSION:
        return f'its prompt is not of version {REASON_PROMPT_VERSION}'
    if shows_image(answer.prompt):
        return 'it was answered from an image, which rows of answers do not hold'
    return ''


def _proof_of(episode: Episode, inputs: Inputs, answer: Answer, kind: str) -> Proof | Unsolved:
    """What proves a solution: people, else the camera's poses."""
    if answer.id in episode.log.disputed:
        return Unsolved(DISPUTED)
    if label := episode.log.labels.get(answer.id):
        return proof_of_label(answer, label)
    return _proof_of_poses(episode, inputs, answer, kind)


def proof_of_label(answer: Answer, label: AnswerLabel) -> Proof | Unsolved:
    """The solution that an operator gave."""
    if label.verdict is LabelVerdict.WRONG:
        return Unsolved('labelled wrong, without the right answer')
    if label.verdict is LabelVerdict.RIGHT:
        right = answer_in_words(answer)
        if right is None:
            return Unsolved('labelled right, but there was no answer')
        return as_proof(right, answer.options)
    return as_proof(label.correction.strip(), answer.options)


def as_proof(right: str, options: Sequence[str]) -> Proof | Unsolved:
    """A right answer as a row has it."""
    if is_unknown(right):
        return Proof(UNKNOWN, 'label')
    if not options:
        return Proof(right, 'label')
    index = choice_index(right, options)
    if index is None:
        return Unsolved('the correction is none of the options')
    return Proof(option_letter(index), 'label')


def _proof_of_poses(
    episode: Episode, inputs: Inputs, answer: Answer, kind: str
) -> Proof | Unsolved:
    """The solution that the camera's poses prove."""
    if kind == ASKED:
        return Unsolved('never labelled, and nothing else proves it')
    poses_by_stamp = {d.stamp_ns: p for d, p in zip(episode.deltas, episode.poses, strict=False)}
    poses = tuple(
        poses_by_stamp[d.stamp_ns] for d in inputs.deltas if d.stamp_ns in poses_by_stamp
    )
    moment = Moment(inputs.deltas, poses, episode.layout, episode.no_poses, episode.pose_source)
    draft = KINDS[kind](moment, Random(0), False)
    if isinstance(draft, Unsolved):
        return Unsolved(f'never labelled, and {draft.reason}')
    options = [as_data(option).strip() for option in answer.options]
    if set(options) != set(draft.options):
        return Unsolved('never labelled, and its options are not the usual ones')
    return Proof(option_letter(options.index(draft.solution)), draft.source)


def _row(
    episode: Episode, answer: Answer, inputs: Inputs, kind: str, split: str, proof: Proof
) -> Row:
    label = episode.log.labels.get(answer.id)
    row = builder_of(episode, split).row(
        answer.id,
        QuestionWithSolution(kind, answer.question, answer.options, proof.solution, proof.source),
        inputs.deltas,
        camera=inputs.deltas[-1].camera if inputs.deltas else episode.camera,
        focus=tuple(asdict(look) for look in answer.focus),
        meta={
            'answer_id': answer.id,
            'answered': answer.text or UNKNOWN,
            'model': answer.model.name,
            'prompt_sha256': answer.prompt_sha256,
            'token_budget': inputs.memory.token_budget,
            **({'labelled_by': label.operator_name} if label else {}),
        },
    )
    return row.with_map(inputs.scene_map) if inputs.scene_map else row


def rows_of_written(episode: Episode, split: str, coverage: Coverage) -> Iterator[Row]:
    """Make a row of each question that people wrote and solved; others are counted."""
    by_question = episode.labels.by_question()
    for name, written in episode.labels.questions().items():
        labels = by_question.get(name, {})
        row = _row_of_written(episode, written, labels, split)
        if isinstance(row, Unsolved):
            kind = kind_of_question(written.question.text) if written.question else 'asked'
            coverage.unsolved[kind, row.reason] += 1
        else:
            yield row


def _row_of_written(
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
