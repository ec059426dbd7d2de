# SPDX-License-Identifier: Apache-2.0
"""The questions of a recording, asked live or written by people: what proves their solutions.

People prove a solution; so does what a bag proves of the camera's motion, and of the place, where
the question is worded like one of ours: the kinds of that wording are asked until one asks the
very same. A row of an answer is made only if its prompt is the one that was answered, to the
letter.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from functools import cache
from random import Random
from typing import TYPE_CHECKING

from embodied_r_ros.common.untrusted import as_data
from embodied_r_ros.core.reasoning.calls import CALLS_PROMPT_VERSION
from embodied_r_ros.core.reasoning.completions import choice_index, is_unknown, option_letter
from embodied_r_ros.core.reasoning.prompts import (
    REASON_PROMPT_VERSION,
    shows_image,
    TOOLS_PROMPT_VERSION,
)
from embodied_r_ros.core.scene.tools import called
from embodied_r_ros.core.types.answers import UNKNOWN
from embodied_r_ros.core.types.episodes import LabelVerdict, Verdict
from embodied_r_ros.data.episodes.answers import find_inputs, Lost
from embodied_r_ros.data.episodes.labels import answer_in_words
from embodied_r_ros.data.questions.indoor import Draft, KINDS, Moment, NoSolution
from embodied_r_ros.data.questions.map_rows import (
    layout_map,
    MAP_KINDS,
    moment_of_map,
    perceived_map,
    UNKNOWN_KINDS,
)
from embodied_r_ros.data.questions.path_kinds import clear_quarter
from embodied_r_ros.data.questions.row import builder_of, QuestionWithSolution
from embodied_r_ros.data.questions.wordings import (
    MAP_WORDINGS,
    MOTION_KINDS,
    wording_pattern,
    WORDINGS,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    import re

    from embodied_r_ros.core.types.answers import Answer
    from embodied_r_ros.core.types.episodes import AnswerLabel, Label
    from embodied_r_ros.core.types.landmarks import SceneMap
    from embodied_r_ros.data.episodes.answers import Inputs
    from embodied_r_ros.data.episodes.episode import Episode
    from embodied_r_ros.data.questions.coverage import Coverage
    from embodied_r_ros.data.questions.map_kinds import MapMoment
    from embodied_r_ros.data.questions.row import Row

_ASKED = 'asked'  # type of questions that are not worded like ours
_DISPUTED = 'people differ about its answer'
_TRIES = 60  # of a kind, which chooses by itself what it asks about
_SPLIT = 'test'  # all names may be asked for
_SLACK_M = 0.3  # how far places of a map that no truth proves may be off
_COUNTS = ('object_counting', 'count_things', 'how_many')  # whose numbers are exact
_DIRECTION = 'item_direction'
_UNPROVEN = 'nothing proves it'


@dataclass(frozen=True)
class Proof:
    """A solution, and what proves it."""

    solution: str  # letter for a choice, number or text otherwise, or 'unknown'
    source: str


def rows_of_answers(episode: Episode, split: str, coverage: Coverage) -> Iterator[Row]:
    """Make a row of each answer that something proves; the others are counted in `coverage`."""
    for answer in episode.log.answers:
        kind = _kind_of_question(answer.question)
        row = _row_of(episode, answer, kind, split)
        if isinstance(row, NoSolution):
            coverage.unsolved[kind, row.reason] += 1
        else:
            yield row


def _kind_of_question(question: str) -> str:
    """Kind of motion question that is worded so; _ASKED: none."""
    return next((kind for kind in MOTION_KINDS if question in WORDINGS[kind]), _ASKED)


def _row_of(episode: Episode, answer: Answer, kind: str, split: str) -> Row | NoSolution:
    if why_not := _why_no_prompt(episode, answer):
        return NoSolution(why_not)
    inputs = find_inputs(answer, episode.log)
    if isinstance(inputs, Lost):
        return NoSolution(inputs.reason)
    proof = _proof_of_people(episode, answer) or _proof_of_poses(episode, inputs, answer, kind)
    if isinstance(proof, Proof):
        return _row(episode, answer, inputs, kind, split, proof)
    return proof


def _solution_by_motion(episode: Episode, answer: Answer) -> tuple[str, str] | None:
    """What the recording itself proves of a question that was answered live.

    Returns:
        The solution in words, and its source; None: nothing is proven.
    """
    kind = _kind_of_question(answer.question)
    if kind == _ASKED or _why_no_prompt(episode, answer):
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
    versions = REASON_PROMPT_VERSION, TOOLS_PROMPT_VERSION, CALLS_PROMPT_VERSION
    if answer.prompt_sha256 and answer.model.prompt_version not in versions:
        return f'its prompt is not of version {" or ".join(versions)}'
    if shows_image(answer.prompt):
        return 'it was answered from an image, which rows of answers do not hold'
    return ''


def _proof_of_people(episode: Episode, answer: Answer) -> Proof | NoSolution | None:
    """The labels of people on an answer, who may differ; None: there are none."""
    if answer.id in episode.log.disputed:
        return NoSolution(_DISPUTED)
    label = episode.log.labels.get(answer.id)
    return _proof_of_label(answer, label) if label else None


def _proof_of_label(answer: Answer, label: AnswerLabel) -> Proof | NoSolution:
    """The solution that an operator gave."""
    if label.verdict is LabelVerdict.WRONG:
        return NoSolution('labelled wrong, without the right answer')
    if label.verdict is LabelVerdict.RIGHT:
        right = answer_in_words(answer)
        if right is None:
            return NoSolution('labelled right, but there was no answer')
        return _as_proof(right, answer.options)
    return _as_proof(label.correction.strip(), answer.options)


def _as_proof(right: str, options: Sequence[str]) -> Proof | NoSolution:
    """A right answer as a row has it."""
    if is_unknown(right):
        return Proof(UNKNOWN, 'label')
    if not options:
        return Proof(right, 'label')
    index = choice_index(right, options)
    if index is None:
        return NoSolution('the correction is none of the options')
    return Proof(option_letter(index), 'label')


def _proof_of_poses(
    episode: Episode, inputs: Inputs, answer: Answer, kind: str
) -> Proof | NoSolution:
    """The solution that the camera's poses prove."""
    if kind == _ASKED:
        return NoSolution('never labelled, and nothing else proves it')
    poses_by_stamp = {d.stamp_ns: p for d, p in zip(episode.deltas, episode.poses, strict=False)}
    poses = tuple(
        poses_by_stamp[d.stamp_ns] for d in inputs.deltas if d.stamp_ns in poses_by_stamp
    )
    moment = Moment(inputs.deltas, poses, episode.layout, episode.no_poses, episode.pose_source)
    draft = KINDS[kind](moment, Random(0), False)
    if isinstance(draft, NoSolution):
        return NoSolution(f'never labelled, and {draft.reason}')
    options = [as_data(option).strip() for option in answer.options]
    if set(options) != set(draft.options):
        return NoSolution('never labelled, and its options are not the usual ones')
    return Proof(option_letter(options.index(draft.solution)), draft.source)


def _row(
    episode: Episode, answer: Answer, inputs: Inputs, kind: str, split: str, proof: Proof
) -> Row:
    label, prompt = episode.log.labels.get(answer.id), inputs.prompt
    loop = {'turns': prompt.turns, 'calls': list(map(asdict, prompt.calls))}
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
            **({'tools': loop} if prompt.has_tools else {}),
        },
    )
    return row.with_map(inputs.scene_map) if inputs.scene_map else row


def rows_of_written(episode: Episode, split: str, coverage: Coverage) -> Iterator[Row]:
    """Make a row of each question that people wrote and solved; others are counted."""
    by_question = episode.labels.by_question()
    for name, written in episode.labels.questions().items():
        labels = by_question.get(name, {})
        row = _row_of_written(episode, written, labels, split)
        if isinstance(row, NoSolution):
            kind = _kind_of_question(written.question.text) if written.question else _ASKED
            coverage.unsolved[kind, row.reason] += 1
        else:
            yield row


def _row_of_written(
    episode: Episode, written: Label, labels: dict[str, Label], split: str
) -> Row | NoSolution:
    question = written.question
    if not question or not labels:
        return NoSolution('a written question without a solution')
    verdict = Verdict.of(labels, written.before)
    if verdict.solution is None:
        reason = _DISPUTED if verdict.is_disputed else 'labelled wrong, without the right answer'
        return NoSolution(reason)
    deltas = tuple(delta for delta in episode.deltas if delta.stamp_ns <= question.stamp_ns)
    if not deltas:
        return NoSolution('a written question before the first delta')
    proof = _as_proof(verdict.solution, question.options)
    if isinstance(proof, NoSolution):
        return proof
    kind = _kind_of_question(question.text)
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
        solved = NoSolution(_DISPUTED if verdict.is_disputed else 'its solution is labelled wrong')
        proof = _as_proof(verdict.solution, row.options) if verdict.solution else solved
        if isinstance(proof, NoSolution):
            coverage.left_out[row.question_type, proof.reason] += 1
            continue
        meta = {**row.meta, 'labelled_by': ', '.join(verdict.people)}
        yield replace(row, solution=proof.solution, source=proof.source, meta=meta)


@dataclass(frozen=True)
class _Wording:
    """A wording of a kind of question."""

    kind: str
    is_held_out: bool
    pattern: re.Pattern[str]
    names_things: bool  # else the options alone say what it is about


def solution_of_place(episode: Episode, answer: Answer) -> tuple[str, str] | None:
    """What a recording proves of a question that was answered live.

    Returns:
        The solution in words, and its source ('odometry', 'tf', 'layout' or 'map'); None: nothing
        is proven.
    """
    if solution := _solution_by_motion(episode, answer):
        return solution
    wordings = [one for one in _wordings() if one.pattern.fullmatch(answer.question)]
    moment = _moment_of(episode, answer) if wordings else None
    if moment is None or answer_in_words(answer) is None:
        return None
    place = _place_of(episode, moment)
    for wording in wordings:
        for draft in _drafts(wording, moment, place, answer.question):
            if draft.question == answer.question and _decides(draft, wording, answer.options):
                return draft.solution, draft.source
    return None


@cache
def _wordings() -> tuple[_Wording, ...]:
    """All wordings of kinds that a place decides."""
    wordings = []
    for kind, texts in (*WORDINGS.items(), *MAP_WORDINGS.items()):
        if kind in MOTION_KINDS or kind in UNKNOWN_KINDS:
            continue
        for text in texts:
            pattern = wording_pattern(text)
            wordings.append(_Wording(kind, text == texts[-1], pattern, pattern.groups > 0))
    return tuple(wordings)


def _moment_of(episode: Episode, answer: Answer) -> Moment | None:
    """What had been seen when the question was asked; None: nothing."""
    until_ns = answer.observation_stamp_ns
    count = sum(delta.stamp_ns <= until_ns for delta in episode.deltas)
    return Moment.of(episode, count) if count else None


def _place_of(episode: Episode, moment: Moment) -> MapMoment | NoSolution:
    """The true place, the recorded map of that time, or what deltas and poses give."""
    if moment.layout:
        return layout_map(moment)
    known = [
        scene
        for scene in episode.log.maps
        if scene.landmarks and scene.path and scene.path[-1].stamp_ns <= moment.now_ns
    ]
    if known:
        return moment_of_map(known[-1], _SPLIT, _SLACK_M)
    return perceived_map(moment, _SPLIT, _SLACK_M)


def _drafts(
    wording: _Wording, moment: Moment, place: MapMoment | NoSolution, question: str
) -> Iterator[Draft]:
    """What a kind asks at a moment, again and again."""
    kind, held_out = wording.kind, wording.is_held_out
    drafts: Iterable[Draft | NoSolution] = ()
    if kind in KINDS and moment.layout:
        drafts = (KINDS[kind](moment, rng, held_out) for rng in map(Random, range(_TRIES)))
    elif isinstance(place, NoSolution):
        pass
    elif kind == _DIRECTION:
        drafts = _directions(place, question)
    elif kind in MAP_KINDS:
        drafts = (MAP_KINDS[kind](place, rng, held_out) for rng in map(Random, range(_TRIES)))
    return (draft for draft in drafts if isinstance(draft, Draft))


def _directions(place: MapMoment, question: str) -> Iterator[Draft]:
    """In which quarter each thing of a map is now, as the kind of a true layout asks it."""
    for thing in place.singles:
        is_named = any(text.format(item=thing.label) == question for text in WORDINGS[_DIRECTION])
        if is_named and (where := clear_quarter(place, called(thing.label))):
            yield Draft(question, (where[0],), where[0], source=place.source)


def _decides(draft: Draft, wording: _Wording, options: tuple[str, ...]) -> bool:
    """Whether a solution is that of a question with these options."""
    if not options:
        return not draft.options and wording.kind in _COUNTS
    return draft.solution in options and (
        wording.names_things or set(draft.options) == set(options)
    )


@dataclass(frozen=True)
class RecordedQuestion:
    """A question of a recording, at its moment, with the best answer that is known."""

    id: str
    stamp_ns: int  # of the newest observation
    camera: str
    question: str
    options: tuple[str, ...]
    answer: str  # in words
    source: str  # what proves it; 'answered': nothing, and it is what the robot said
    answered: str = ''  # what the robot said; empty: nobody asked it
    think: str = ''
    model: str = ''


def solution_of_answer(episode: Episode, answer: Answer) -> Proof | NoSolution:
    """The solution that people gave, else the one that the recording proves."""
    if proof := _proof_of_people(episode, answer):
        return proof
    words, source = solution_of_place(episode, answer) or ('', '')
    if not words:
        return NoSolution(_UNPROVEN)
    proof = _as_proof(words, answer.options)
    return proof if isinstance(proof, NoSolution) else Proof(proof.solution, source)


def recorded_questions(episode: Episode) -> list[RecordedQuestion]:
    """The questions of an episode with their answers: those asked live, then those written.

    What people call wrong, or answer differently, and what has no answer at all is left out.
    """
    found = [_of_answer(episode, answer) for answer in episode.log.answers]
    by_question = episode.labels.by_question()
    for name, written in episode.labels.questions().items():
        question = written.question
        verdict = Verdict.of(by_question[name], written.before) if name in by_question else None
        if question and verdict and verdict.solution is not None:
            found.append(
                RecordedQuestion(
                    name,
                    question.stamp_ns,
                    episode.camera,
                    question.text,
                    question.options,
                    verdict.solution,
                    'label',
                )
            )
    return [one for one in found if one]


def _of_answer(episode: Episode, answer: Answer) -> RecordedQuestion | None:
    said = answer_in_words(answer)
    proof = solution_of_answer(episode, answer)
    if isinstance(proof, Proof):
        right, source = _words_of(proof.solution, answer.options), proof.source
    elif said is not None and proof.reason == _UNPROVEN:
        right, source = said, 'answered'
    else:
        return None
    seen = [d.camera for d in episode.deltas if d.stamp_ns <= answer.observation_stamp_ns]
    return RecordedQuestion(
        answer.id,
        answer.observation_stamp_ns,
        seen[-1] if seen else episode.camera,
        answer.question,
        answer.options,
        right,
        source,
        said or '',
        answer.think,
        answer.model.name,
    )


def _words_of(solution: str, options: tuple[str, ...]) -> str:
    """A solution as a row has it, in words."""
    is_letter = bool(options) and solution != UNKNOWN
    return options[ord(solution) - ord('A')] if is_letter else solution
