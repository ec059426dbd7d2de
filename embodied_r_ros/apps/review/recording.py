# SPDX-License-Identifier: Apache-2.0
"""What the review page shows of one recording: its questions, and what speaks for and against."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field, replace
from functools import cached_property
import math
import re
from typing import Any, TYPE_CHECKING

from embodied_r_ros.bags.reader import open_bag
from embodied_r_ros.common.errors import EmbodiedRError
from embodied_r_ros.core.reasoning.completions import is_same_text, number_in
from embodied_r_ros.core.types.answers import Freshness
from embodied_r_ros.core.types.deltas import Rung
from embodied_r_ros.data.episodes.episode import episode_id_of, read_answers, read_as_recorded
from embodied_r_ros.data.episodes.label_check import LabelScope, LabelTarget, scope_of
from embodied_r_ros.data.episodes.labels import answer_in_words
from embodied_r_ros.data.episodes.offline import map_of_episode
from embodied_r_ros.data.questions.indoor import Moment
from embodied_r_ros.data.questions.map_rows import layout_map
from embodied_r_ros.data.questions.proofs import solution_of_place
from embodied_r_ros.data.questions.row import read_rows

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from embodied_r_ros.core.types.answers import Answer, FocusText, RejectedCompletion, ToolCall
    from embodied_r_ros.core.types.deltas import SemanticDelta
    from embodied_r_ros.core.types.episodes import Label, WrittenQuestion
    from embodied_r_ros.core.types.landmarks import SceneMap
    from embodied_r_ros.data.episodes.answers import AnswerLog
    from embodied_r_ros.data.episodes.episode import Episode
    from embodied_r_ros.data.questions.row import Row

_SAME_MOMENT_NS = 2_000_000_000  # within which two models count as asked at once


@dataclass(frozen=True)
class Opinion:
    """Another opinion on a question, and whose it is."""

    solution: str  # in words
    by: str

    def agrees(self, answer: str) -> bool:
        """Whether an answer says the same, as a text or as a number."""
        number = number_in(answer)
        is_same_number = number is not None and number == number_in(self.solution)
        return is_same_number or is_same_text(answer, self.solution)


@dataclass(frozen=True)
class ReplayedAnswer:
    """What came of a question in a replay."""

    by: str  # model, and perceiver where that was another one
    answer: str  # in words
    think: str = ''
    error: str = ''  # why there is no answer
    is_other: bool = False  # than the recorded one


@dataclass(frozen=True)
class Beside:
    """What lies beside recordings, by the id of their episode."""

    rows: dict[str, list[RowQuestion]] = field(default_factory=dict)
    replays: dict[str, dict[str, Any]] = field(default_factory=dict)  # reports of `replay`


@dataclass(frozen=True)
class ReviewQuestion:
    """A question with its answer, as a person reviews it."""

    id: str
    origin: str  # 'answer' of the recording, 'written' by a person, or 'row'
    stamp_ns: int  # the moment at which it is asked
    text: str
    options: tuple[str, ...] = ()
    answer: str | None = None  # in words; None: there is none
    think: str = ''
    confidence: float | None = None
    freshness: str = ''
    age_s: float | None = None  # of the newest observation
    model: str = ''
    digest: str = ''
    rung: str = ''
    deltas: tuple[int, ...] = ()  # positions of those in the prompt, among the recording's
    focus: tuple[FocusText, ...] = ()  # what second looks at keyframes gave
    opinions: tuple[Opinion, ...] = ()  # what the recording proves, and other models
    author: str = ''  # of a written question
    first_number: int = 1  # of the first delta, as the reasoning names them ("[5]")
    prompt: str = ''  # as it was sent
    replayed: tuple[ReplayedAnswer, ...] = ()
    sentence: str = ''
    check: str = ''  # 'verified', 'unsupported' or 'unchecked'; empty: of no answer
    check_reason: str = ''
    calls: tuple[ToolCall, ...] = ()
    rejected: tuple[RejectedCompletion, ...] = ()

    @property
    def is_replayed_otherwise(self) -> bool:
        """Whether a replay gave another answer."""
        return any(one.is_other for one in self.replayed)

    @property
    def is_disputed(self) -> bool:
        """Whether the answer differs from what is proven, or from that of another model."""
        answer = self.answer
        return answer is not None and not all(one.agrees(answer) for one in self.opinions)


@dataclass(frozen=True)
class RowQuestion:
    """What the page needs of a row."""

    id: str
    text: str
    options: tuple[str, ...]
    solution: str  # in words
    source: str
    stamp_ns: int
    answer_id: str = ''  # of the live answer that it was made of

    @classmethod
    def of(cls, row: Row) -> RowQuestion:
        """Take it from a row."""
        stamp_ns = max((int(delta.get('stamp_ns', 0)) for delta in row.deltas), default=0)
        answer_id = str(row.meta.get('answer_id', ''))
        words = row.solution_text()
        return cls(row.id, row.question, row.options, words, row.source, stamp_ns, answer_id)


def rows_by_episode(path: Path) -> dict[str, list[RowQuestion]]:
    """The questions of a file of rows, by the id of their episode.

    Raises:
        InputError: It cannot be read.
    """
    rows: dict[str, list[RowQuestion]] = defaultdict(list)
    for row in read_rows(path):
        rows[row.episode_id].append(RowQuestion.of(row))
    return rows


@dataclass(frozen=True)
class ReviewRecording:
    """A recording, with everything but its pictures and the labels of people."""

    bag: Path
    episode_id: str
    begin_ns: int
    end_ns: int
    questions: tuple[ReviewQuestion, ...]
    episode: Episode | None = None  # None: it has no deltas
    targets: dict[str, LabelTarget] = field(default_factory=dict)
    replay: dict[str, Any] | None = None  # the report of its replay

    @property
    def deltas(self) -> tuple[SemanticDelta, ...]:
        """Recorded deltas, oldest first."""
        return self.episode.deltas if self.episode else ()

    @property
    def scope(self) -> LabelScope:
        """What labels may be about."""
        return LabelScope(self.targets, self.begin_ns, self.end_ns, f'{self.episode_id}/')

    @cached_property
    def scene_map(self) -> SceneMap | None:
        """What is known of the place at the end; None: nothing has a place."""
        try:
            scene = _map_of(self.episode) if self.episode else None
        except (
            EmbodiedRError,
            ValueError,
            IndexError,
        ):  # the film and the answers are shown still
            return None
        return scene if scene and (scene.landmarks or scene.path) else None


def read_recording(bag: Path, beside: Beside | None = None) -> ReviewRecording:
    """Read what the page shows of a recording.

    Args:
        bag: The recording.
        beside: Rows and reports of replays.

    Raises:
        BagError: It is not a readable bag.
        InputError: The labels beside it cannot be read.
    """
    episode = read_as_recorded(bag)
    log = episode.log if episode else read_answers(bag)
    episode_id = episode.id if episode else episode_id_of(bag)
    with open_bag(bag) as reader:
        times = [reader.start_time, reader.end_time]
    deltas = episode.deltas if episode else ()
    scope = scope_of(log.answers, [*times, *(delta.stamp_ns for delta in deltas)])
    beside = beside or Beside()
    own_rows, replay = beside.rows.get(episode_id, []), beside.replays.get(episode_id)
    questions = _with_rivals(
        [
            _with_rows(_of_answer(answer, log, episode, deltas, scope.begin_ns), own_rows)
            for answer in log.answers
        ]
    )
    used = {row.id for q in questions for row in own_rows if _is_about(row, q)}
    questions += [_of_row(row, deltas) for row in own_rows if row.id not in used]
    questions = [_with_replay(question, replay) for question in questions] if replay else questions
    targets = {q.id: LabelTarget(q.options, q.answer) for q in questions}
    questions.sort(key=question_order)
    return ReviewRecording(
        bag, episode_id, scope.begin_ns, scope.end_ns, tuple(questions), episode, targets, replay
    )


def question_order(question: ReviewQuestion) -> tuple[int, list[tuple[int, str]]]:
    """Sort key by time, then by id, in which q-2 comes before q-10."""
    parts = re.split('([0-9]+)', question.id)
    return question.stamp_ns, [(int(p), '') if n % 2 else (0, p) for n, p in enumerate(parts)]


def _with_replay(question: ReviewQuestion, replay: dict[str, Any]) -> ReviewQuestion:
    """A question with what a replay answered to it, which are opinions too."""
    perceiver = replay['perceiver']
    by = f', replayed with {perceiver["name"]}' if perceiver else ', replayed'
    replayed = tuple(
        ReplayedAnswer(
            one['model'] + by,
            one['answer'],
            one['think'] or one['completion'],
            one['error'],
            not one['error'] and one['answer'] != entry['recorded']['answer'],
        )
        for entry in replay['questions']
        if entry['id'] == question.id
        for one in entry['replayed']
    )
    opinions = tuple(Opinion(one.answer, one.by) for one in replayed if not one.error)
    return replace(question, replayed=replayed, opinions=(*question.opinions, *opinions))


def written_question(label: Label, deltas: Sequence[SemanticDelta]) -> ReviewQuestion:
    """The question that a label holds."""
    question = label.question
    assert question is not None
    return ReviewQuestion(
        label.question_id,
        'written',
        question.stamp_ns,
        question.text,
        question.options,
        label.before,
        question.think,
        question.confidence,
        model=question.model,
        digest=question.digest,
        deltas=_positions(question.delta_ids, question.stamp_ns, deltas),
        author=label.who,
        first_number=question.first_number,
        sentence=question.sentence,
        check=question.check,
        check_reason=question.check_reason,
        calls=question.calls,
    )


def with_answer(question: WrittenQuestion, answer: Answer) -> WrittenQuestion:
    """A written question with what was answered to it."""
    return replace(
        question,
        think=answer.think,
        model=answer.model.name,
        digest=answer.model.digest,
        confidence=answer.confidence if math.isfinite(answer.confidence) else None,
        delta_ids=answer.delta_ids,
        first_number=1 + answer.deltas_omitted,
        sentence=answer.sentence,
        check=answer.check.name.lower(),
        check_reason=answer.check_reason,
        calls=answer.calls,
    )


def _of_answer(
    answer: Answer,
    log: AnswerLog,
    episode: Episode | None,
    deltas: Sequence[SemanticDelta],
    begin_ns: int,
) -> ReviewQuestion:
    proven = solution_of_place(episode, answer) if episode else None
    opinions = [Opinion(proven[0], f'the recording ({proven[1]})')] if proven else []
    shadow = log.shadows.get(answer.id)
    if shadow and (words := answer_in_words(shadow)) is not None:
        opinions.append(Opinion(words, f'{shadow.model.name}, in the shadow'))
    at = answer.observation_stamp_ns or begin_ns
    return ReviewQuestion(
        answer.id,
        'answer',
        at,
        answer.question,
        answer.options,
        answer_in_words(answer),
        answer.think or answer.completion,
        answer.confidence if math.isfinite(answer.confidence) else None,
        answer.freshness.name,
        answer.observation_age_ns / 1e9 if answer.observation_age_ns else None,
        answer.model.name,
        answer.model.digest,
        '' if answer.model.rung is Rung.UNSET else answer.model.rung.name,
        _positions(answer.delta_ids, at, deltas),
        answer.focus,
        tuple(opinions),
        first_number=1 + answer.deltas_omitted,
        prompt=answer.prompt,
        sentence=answer.sentence,
        check='' if answer.freshness is Freshness.REFUSED else answer.check.name.lower(),
        check_reason=answer.check_reason,
        calls=answer.calls,
        rejected=answer.rejected,
    )


def _of_row(row: RowQuestion, deltas: Sequence[SemanticDelta]) -> ReviewQuestion:
    until = tuple(n for n, delta in enumerate(deltas) if delta.stamp_ns <= row.stamp_ns)
    return ReviewQuestion(
        row.id,
        'row',
        row.stamp_ns,
        row.text,
        row.options,
        row.solution,
        deltas=until,
        model=f'solution by {row.source}',
    )


def _positions(
    ids: Iterable[int], until_ns: int, deltas: Sequence[SemanticDelta]
) -> tuple[int, ...]:
    """Where the deltas of these ids are; ids count anew with each run, so the newest count."""
    newest = {delta.to_id: n for n, delta in enumerate(deltas) if delta.stamp_ns <= until_ns}
    return tuple(newest[one] for one in ids if one in newest)


def _is_about(row: RowQuestion, question: ReviewQuestion) -> bool:
    """Whether a row asks what was asked live, at the same moment."""
    if row.answer_id:
        return row.answer_id == question.id
    return (
        row.text == question.text
        and set(row.options) == set(question.options)
        and abs(row.stamp_ns - question.stamp_ns) <= _SAME_MOMENT_NS
    )


def _with_rows(question: ReviewQuestion, rows: Iterable[RowQuestion]) -> ReviewQuestion:
    """A question with the solutions that rows have of it; those of labels are no proof."""
    more = tuple(
        Opinion(row.solution, f'a row ({row.source})')
        for row in rows
        if row.source != 'label' and _is_about(row, question)
    )
    return replace(question, opinions=(*question.opinions, *more))


def _with_rivals(questions: list[ReviewQuestion]) -> list[ReviewQuestion]:
    """Questions with what other models answered to the same at the same moment."""
    alike: dict[tuple[str, frozenset[str]], list[ReviewQuestion]] = defaultdict(list)
    for question in questions:
        alike[question.text, frozenset(question.options)].append(question)
    return [
        replace(q, opinions=(*q.opinions, *_rivals(q, alike[q.text, frozenset(q.options)])))
        for q in questions
    ]


def _rivals(question: ReviewQuestion, others: Iterable[ReviewQuestion]) -> list[Opinion]:
    return [
        Opinion(other.answer, other.model)
        for other in others
        if other.answer is not None
        and (other.model, other.digest) != (question.model, question.digest)
        and abs(other.stamp_ns - question.stamp_ns) <= _SAME_MOMENT_NS
    ]


def _map_of(episode: Episode) -> SceneMap | None:
    """The recorded map, else the true one, else the one that deltas and poses give."""
    if episode.layout and episode.deltas and not episode.log.maps:
        moment = Moment(episode.deltas, episode.poses, episode.layout)
        return getattr(layout_map(moment), 'scene', None)
    return map_of_episode(episode)
