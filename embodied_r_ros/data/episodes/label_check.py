# SPDX-License-Identifier: Apache-2.0
"""Labels beside recordings: which fit, and are written."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from embodied_r_ros.bags.reader import open_bag
from embodied_r_ros.common.errors import BagError, InputError
from embodied_r_ros.core.reasoning.completions import choice_index, is_unknown
from embodied_r_ros.core.reasoning.question import question_problem
from embodied_r_ros.core.types.answers import UNKNOWN
from embodied_r_ros.core.types.episodes import Label, LabelKind, LabelLayer, LabelVerdict
from embodied_r_ros.data.episodes.episode import episode_id_of, read_answers
from embodied_r_ros.data.episodes.labels import answer_in_words, append_with, label_id, read_labels

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from embodied_r_ros.core.types.answers import Answer
    from embodied_r_ros.core.types.episodes import AnswerLabel

MOST_CHARACTERS = 4000  # of a text in a label
_MOST_NAME = 80


@dataclass(frozen=True)
class LabelTarget:
    """A question that labels may be about."""

    options: tuple[str, ...] = ()
    answer: str | None = None  # in words; None: nothing was answered


@dataclass(frozen=True)
class LabelScope:
    """What labels of a recording may be about."""

    targets: Mapping[str, LabelTarget]  # by id of the question
    begin_ns: int  # of the recording, in its own time
    end_ns: int
    row_prefix: str = ''  # ids of rows begin so: they are checked where the rows are

    def with_questions(self, layer: LabelLayer) -> LabelScope:
        """The same, with the written questions of a layer."""
        written = {
            name: LabelTarget(
                label.question.options, label.before if label.question.model else None
            )
            for name, label in layer.questions().items()
            if label.question
        }
        return replace(self, targets={**self.targets, **written})

    def unknown_problem(self, question_id: str) -> str:
        """What is wrong with an id that is none of the targets; empty: it may be of a row."""
        if self.row_prefix and question_id.startswith(self.row_prefix):
            return ''
        return f'question {question_id!r} is not in the recording'


def read_scope(bag: Path) -> LabelScope:
    """What labels of a recording may be about.

    Raises:
        BagError: It is not a readable bag.
    """
    log = read_answers(bag)
    with open_bag(bag) as reader:
        times = [reader.start_time, reader.end_time]
    stamps = [*times, *(delta.stamp_ns for delta in log.deltas)]
    return scope_of(log.answers, stamps, f'{episode_id_of(bag)}/')


def scope_of(answers: Iterable[Answer], stamps: Iterable[int], row_prefix: str = '') -> LabelScope:
    """The same, of what is known of a recording.

    Args:
        answers: Its answers.
        stamps: Times in it [ns]; zeros say nothing.
        row_prefix: How ids of its rows begin.
    """
    answers, known = list(answers), [stamp for stamp in stamps if stamp]
    known += [answer.observation_stamp_ns for answer in answers if answer.observation_stamp_ns]
    targets = {
        answer.id: LabelTarget(answer.options, answer_in_words(answer)) for answer in answers
    }
    return LabelScope(targets, min(known, default=0), max(known, default=0), row_prefix)


def solution_in_words(text: str, options: tuple[str, ...]) -> str:
    """A solution as labels have it: the text of an option, `unknown`, or the free text.

    Raises:
        InputError: It is empty, too long, or none of the options.
    """
    plain = text.strip()
    if not plain or len(plain) > MOST_CHARACTERS:
        msg = f'solution {plain[:60]!r}: expected 1 to {MOST_CHARACTERS} characters'
        raise InputError(msg)
    if is_unknown(plain):
        return UNKNOWN
    if not options:
        return plain
    index = choice_index(plain, options)
    if index is None:
        msg = (
            f'{plain!r} is none of the options ({", ".join(options)}): name one by letter or text'
        )
        raise InputError(msg)
    return options[index]


def label_problem(label: Label, layer: LabelLayer, scope: LabelScope) -> str:
    """Why a label does not fit its recording and the labels before it; empty: it does."""
    if not label.who.strip() or len(label.who) > _MOST_NAME or not label.who.isprintable():
        return f'who is {label.who!r}: expected a name of 1 to {_MOST_NAME} characters'
    if label.when_ns <= 0:
        return f'when_ns is {label.when_ns}: expected nanoseconds since 1970'
    if label.kind is LabelKind.UNDO:
        return _undo_problem(label, layer)
    if label.kind is LabelKind.QUESTION:
        return _question_problem(label, scope)
    return _answer_problem(label, layer, scope)


def _answer_problem(label: Label, layer: LabelLayer, scope: LabelScope) -> str:
    """Why a label on an answer does not fit; empty: it does."""
    target = scope.with_questions(layer).targets.get(label.question_id)
    if target is None:
        return scope.unknown_problem(label.question_id)
    if label.kind is LabelKind.RIGHT and (target.answer is None or label.after != target.answer):
        return f'right is {target.answer!r} here, not {label.after!r}'
    if (label.kind is LabelKind.WRONG) != (label.after is None):
        return f'{label.kind.value} with solution {label.after!r}: only wrong goes without one'
    is_about_unknown = label.kind is not LabelKind.RIGHT and label.after == UNKNOWN
    if is_about_unknown != (label.kind is LabelKind.UNANSWERABLE):
        return f'unanswerable goes with {UNKNOWN!r}, and only with it; this is {label.after!r}'
    return _words_problem(label.after, target.options)


def _undo_problem(label: Label, layer: LabelLayer) -> str:
    standing = {other.id: other for other in layer.standing_labels()}
    other = standing.get(label.undoes)
    if not other or other.who != label.who or other.question_id != label.question_id:
        return (
            f'undoes is {label.undoes!r}: expected the id of a label that {label.who} gave on '
            f'question {label.question_id!r} and that stands'
        )
    return ''


def _question_problem(label: Label, scope: LabelScope) -> str:
    question = label.question
    if not question or label.question_id != label.id:
        return 'a new question needs its text, and its own id as question_id'
    if len(question.text) > MOST_CHARACTERS:
        return f'the question has {len(question.text)} characters: at most {MOST_CHARACTERS}'
    if not scope.begin_ns <= question.stamp_ns <= scope.end_ns:
        return (
            f'stamp_ns {question.stamp_ns} is outside of the recording '
            f'({scope.begin_ns} to {scope.end_ns})'
        )
    problem = question_problem(question.text, question.options)
    return problem or _words_problem(label.after, question.options)


def _words_problem(after: str | None, options: tuple[str, ...]) -> str:
    """Why a solution is not written as labels have it; empty: it is, or there is none."""
    if after is None:
        return ''
    try:
        words = solution_in_words(after, options)
    except InputError as error:
        return str(error)
    return '' if words == after else f'solution {after!r} is written {words!r}'


def append_label(bag: Path, label: Label, scope: LabelScope) -> Label:
    """Append a label, on the disk when this returns.

    A label whose id is there already is not written again: a writer who does not know whether the
    first try came through tries again.

    Args:
        bag: The recording.
        label: With `after` in words; `before` is filled in.
        scope: What it may be about.

    Returns:
        The label as it is written.

    Raises:
        InputError: It does not fit.
        EmbodiedRError: The disk does not take it.
    """
    return append_with(bag, lambda layer: _check(label, layer, scope))


UNNAMED = 'unnamed'  # who gave a live label without a name


def append_live_label(bag: Path, live: AnswerLabel, target: LabelTarget, when_ns: int) -> Label:
    """Append what an operator said of an answer while it was recorded.

    Args:
        bag: The recording.
        live: The label that the recording has.
        target: The answer.
        when_ns: Now, since the epoch.

    Raises:
        InputError: It does not fit.
        EmbodiedRError: The disk does not take it.
    """
    kind, after = LabelKind.WRONG, None
    if live.verdict is LabelVerdict.RIGHT:
        kind, after = LabelKind.RIGHT, target.answer
    elif live.verdict is LabelVerdict.CORRECTED:
        after = solution_in_words(live.correction, target.options)
        kind = LabelKind.UNANSWERABLE if after == UNKNOWN else LabelKind.CORRECT
    who = live.operator_name.strip() or UNNAMED
    name = label_id('live', live.answer_id, who, live.stamp_ns)
    label = Label(name, live.answer_id, kind, who, when_ns, after=after)
    return append_label(bag, label, LabelScope({live.answer_id: target}, 0, 0))


def _check(label: Label, layer: LabelLayer, scope: LabelScope) -> Label:
    if any(other.id == label.id for other in layer.labels):
        return label
    if problem := label_problem(label, layer, scope):
        msg = f'label refused: {problem}'
        raise InputError(msg)
    target = scope.with_questions(layer).targets.get(label.question_id)
    return with_before(label, layer, target)


def with_before(label: Label, layer: LabelLayer, target: LabelTarget | None) -> Label:
    """A label with what stood before it, and of an undo with what stands again."""
    answer = target.answer if target else None
    before = _solution_before(layer, label, answer)
    if label.kind is LabelKind.QUESTION:
        return label  # what a model said is before it
    if label.kind is LabelKind.UNDO:
        after = _solution_before(replace(layer, labels=(*layer.labels, label)), label, answer)
        return replace(label, before=before, after=after)
    return replace(label, before=before)


def _solution_before(layer: LabelLayer, label: Label, answer: str | None) -> str | None:
    own = layer.by_question().get(label.question_id, {}).get(label.who)
    return own.after if own else answer


@dataclass(frozen=True)
class LabelReport:
    """The labels of one recording, checked."""

    layer: LabelLayer
    counts: dict[str, int] = field(default_factory=dict)  # standing labels by kind
    unfit: tuple[str, ...] = ()  # labels that do not fit the recording, and why


def check_labels(bag: Path) -> LabelReport:
    """Check every label of a recording as if it were written now.

    Raises:
        InputError: The labels cannot be read.
    """
    layer = read_labels(bag)
    if not layer.labels:
        return LabelReport(layer)
    try:
        scope, unfit = read_scope(bag), []
    except BagError as error:  # of others the labels are checked still
        return LabelReport(layer, {}, (str(error),))
    for number, label in enumerate(layer.labels):
        before = LabelLayer(layer.labels[:number])
        if problem := label_problem(label, before, scope):
            unfit.append(f'label {label.id}: {problem}')
    counts: dict[str, int] = {}
    for label in layer.standing_labels():
        counts[label.kind.value] = counts.get(label.kind.value, 0) + 1
    return LabelReport(layer, counts, tuple(unfit))
