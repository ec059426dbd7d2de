# SPDX-License-Identifier: Apache-2.0
"""Episodes: what marks one in a recording, and labels, which people give its answers.

Labels are a layer that only ever grows.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from enum import Enum

from embodied_r_ros.common.errors import InputError


class EpisodeEvent(Enum):
    """Start or end of an episode."""

    START = 0
    STOP = 1


class EpisodeOutcome(Enum):
    """How an episode ended."""

    UNSET = 0
    SUCCESS = 1
    FAILURE = 2
    ABORTED = 3


@dataclass(frozen=True)
class EpisodeMark:
    """Start or end of an episode."""

    stamp_ns: int
    episode_id: str
    event: EpisodeEvent
    task: str = ''  # in words; empty: not stated
    scene_id: str = ''  # place; empty: the episode is its own scene
    outcome: EpisodeOutcome = EpisodeOutcome.UNSET


class LabelVerdict(Enum):
    """An operator's verdict on an answer."""

    RIGHT = 0
    WRONG = 1  # and the right answer is not given
    CORRECTED = 2  # and `correction` is right


@dataclass(frozen=True)
class AnswerLabel:
    """An operator's verdict on an answer."""

    stamp_ns: int
    answer_id: str
    verdict: LabelVerdict
    correction: str = ''
    operator_name: str = ''


_REMEMBERED = 10_000


@dataclass(frozen=True)
class AnswerNote:
    """What labels need to know of an answer."""

    options: tuple[str, ...] = ()
    text: str | None = None  # in words; None: a refusal


class AnswerBook:
    """The answers of an episode by their ids, the newest ones."""

    def __init__(self) -> None:
        self._ids: OrderedDict[str, AnswerNote] = OrderedDict()

    def note(self, answer_id: str, answer: AnswerNote | None = None) -> None:
        """Remember an answer."""
        self._ids[answer_id] = answer or AnswerNote()
        if len(self._ids) > _REMEMBERED:
            self._ids.popitem(last=False)

    def find(self, answer_id: str) -> str | None:
        """Id of the answer that is meant; an empty one means the latest; None: unknown."""
        if not answer_id and self._ids:
            return next(reversed(self._ids))
        return answer_id if answer_id in self._ids else None

    def note_of(self, answer_id: str) -> AnswerNote:
        """What is known of an answer; nothing, where it is not remembered."""
        return self._ids.get(answer_id, AnswerNote())


def check_label(verdict: int, correction: str) -> LabelVerdict:
    """The verdict that a number means, where it goes with the correction.

    Raises:
        InputError: It is none, or a correction is missing or contradicts it.
    """
    try:
        meaning = LabelVerdict(verdict)
    except ValueError:
        names = ', '.join(f'{v.value} {v.name.lower()}' for v in LabelVerdict)
        msg = f'verdict {verdict} is unknown: expected one of {names}'
        raise InputError(msg) from None
    if (meaning is LabelVerdict.CORRECTED) != bool(correction.strip()):
        msg = f'verdict {meaning.name.lower()} with correction {correction!r}: a correction goes '
        msg += 'with the verdict corrected, and only with it'
        raise InputError(msg)
    return meaning


class LabelKind(Enum):
    """What a label says."""

    RIGHT = 'right'  # the answer is right
    CORRECT = 'correct'  # `after` is right
    WRONG = 'wrong'  # the answer is wrong, and the right one is not given
    UNANSWERABLE = 'unanswerable'  # nobody can tell from the recording
    QUESTION = 'question'  # a new question, with its solution where `after` is given
    UNDO = 'undo'  # takes the label `undoes` back


@dataclass(frozen=True)
class WrittenQuestion:
    """A question that a person asked about a recording, and what a model said where one did."""

    text: str
    stamp_ns: int  # the moment in the recording at which it is asked
    options: tuple[str, ...] = ()  # empty: a free answer
    think: str = ''  # the reasoning of the model
    model: str = ''  # its name; empty: none was asked
    digest: str = ''  # of its weights
    confidence: float | None = None  # 0..1; None: the model did not say
    delta_ids: tuple[int, ...] = ()  # newer keyframes of the deltas in its prompt


@dataclass(frozen=True)
class Label:
    """One line of the layer."""

    id: str  # unique in the layer
    question_id: str  # of the answer, of the written question, or of a row
    kind: LabelKind
    who: str
    when_ns: int  # since the epoch
    before: str | None = None  # the solution that stood for this person; None: none did
    after: str | None = None  # the solution that stands now, in words; None: none does
    undoes: str = ''  # id of a label, of an undo
    question: WrittenQuestion | None = None  # of a new question


@dataclass(frozen=True)
class LabelLayer:
    """All labels beside a recording, in the order in which they were given."""

    labels: tuple[Label, ...] = ()
    damage: tuple[str, ...] = ()  # lines that cannot be read, each with its number and why

    def standing_labels(self) -> list[Label]:
        """Labels that were not taken back, without the `undo` lines."""
        undone = {label.undoes for label in self.labels if label.kind is LabelKind.UNDO}
        return [
            label
            for label in self.labels
            if label.kind is not LabelKind.UNDO and label.id not in undone
        ]

    def by_question(self) -> dict[str, dict[str, Label]]:
        """The newest standing label of each person, by question and person.

        A written question without a solution is no label; a question that was taken back has none.
        """
        latest: dict[str, dict[str, Label]] = {}
        for label in self.standing_labels():
            if label.kind is not LabelKind.QUESTION or label.after is not None:
                people = latest.setdefault(label.question_id, {})
                people.pop(label.who, None)  # the newest comes last
                people[label.who] = label
        gone = {
            label.question_id for label in self.labels if label.kind is LabelKind.QUESTION
        } - self.questions().keys()
        return {name: people for name, people in latest.items() if name not in gone}

    def questions(self) -> dict[str, Label]:
        """Labels of the written questions that stand, by question."""
        return {
            label.question_id: label
            for label in self.standing_labels()
            if label.kind is LabelKind.QUESTION
        }

    def mentions(self) -> frozenset[str]:
        """Questions that any line is about, those that were taken back included."""
        return frozenset(label.question_id for label in self.labels)

    def people(self) -> list[str]:
        """Names of those whose labels stand, in alphabetical order."""
        return sorted({who for people in self.by_question().values() for who in people})


@dataclass(frozen=True)
class Verdict:
    """What all people together say of a question."""

    solution: str | None  # in words; None: the answer is wrong, or people differ
    people: tuple[str, ...]
    is_disputed: bool = False

    @classmethod
    def of(cls, labels: dict[str, Label], answer: str | None) -> Verdict:
        """Join the newest labels of several people.

        Args:
            labels: At least one, by person.
            answer: What was answered, in words; None: nothing.
        """
        solutions = {label.after for label in labels.values() if label.after is not None}
        refused = any(label.kind is LabelKind.WRONG for label in labels.values())
        is_disputed = len(solutions) > 1 or (refused and answer in solutions)
        solution = next(iter(solutions)) if len(solutions) == 1 and not is_disputed else None
        return cls(solution, tuple(sorted(labels)), is_disputed)
