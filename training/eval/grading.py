# SPDX-License-Identifier: Apache-2.0
"""Grades of completions: format, accuracy, consistency. What cannot be graded is None, never 0."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
import re
from typing import Protocol, TYPE_CHECKING

from embodied_r_ros.core.reasoning.completions import (
    choice_index,
    Completion,
    is_same_text,
    is_unknown,
    number_in,
    option_letter,
    parse_completion,
)
from embodied_r_ros.core.reasoning.image_targets import ImageTarget, place_text
from embodied_r_ros.core.reasoning.quantities import compared_values, quantity_in, unit_in
from embodied_r_ros.core.types.answers import AnswerKind, UNKNOWN

from training.eval.judging import JudgeCase

if TYPE_CHECKING:
    from collections.abc import Sequence

    from embodied_r_ros.core.reasoning.saying import ToolAnswer
    from embodied_r_ros.core.types.answers import Answer
    from embodied_r_ros.data.questions.row import Row

    from training.eval.judging import Judge

Position = tuple[float, float, float]  # [m]

_HALF = 0.5  # accuracy from which a number is no wrong one
# Thresholds of mean relative accuracy (VSI-Bench): 0.50, 0.55, … 0.95.
_MRA_CONFIDENCES = tuple(percent / 100 for percent in range(50, 100, 5))


class SolvedQuestion(Protocol):
    """What grading needs of a row."""

    @property
    def question(self) -> str:
        """The question."""

    @property
    def options(self) -> tuple[str, ...]:
        """Texts of the options; empty for a free question."""

    @property
    def solution(self) -> str:
        """Letter of a choice, number or text otherwise, or 'unknown'."""


@dataclass(frozen=True)
class AskedQuestion:
    """A question with its solution, and nothing else of a row."""

    question: str
    options: tuple[str, ...]
    solution: str


@dataclass(frozen=True)
class Grade:
    """Grades of one completion."""

    format: bool  # think, then one answer, nothing else
    accuracy: float | None  # 0..1; None: there is no answer to grade, or a judge is needed
    answer: str | None  # letter of a choice, the text otherwise; None: no answer
    consistency: float | None = None  # 1: the think text alone leads to the answer; None: unjudged
    check: str = ''  # name of a `Check`, in lower case; empty: nothing checked it

    @property
    def is_known(self) -> bool:
        """Whether there is an answer other than unknown."""
        return self.answer not in (None, UNKNOWN)

    @property
    def is_wrong(self) -> bool:
        """Whether there is one, which is not even half right."""
        return self.is_known and (self.accuracy or 0.0) < _HALF


def completion_of(answer: Answer | ToolAnswer) -> str:
    """What tools answered, as a completion that can be graded."""
    is_known = answer.kind is not AnswerKind.UNKNOWN
    text = f'{answer.text} {answer.unit}'.strip() if is_known else UNKNOWN
    return f'<think>{answer.think}</think><answer>{text}</answer>'


def grade(question: SolvedQuestion, text: str) -> Grade:
    """Grade a completion without a judge.

    A choice is right or wrong; a number gets its mean relative accuracy, a position its nearness,
    a place in an image what `ImageTarget.score` says; a free text that is not the solution to the
    letter needs a judge and stays None.
    """
    completion = parse_completion(text)
    answer = _gradable(question, completion)
    if answer is None:
        return Grade(completion.well_formed, None, None)
    answer = named_answer(question, answer)
    return Grade(completion.well_formed, _accuracy(question, answer), answer)


def _gradable(question: SolvedQuestion, completion: Completion) -> str | None:
    """The answer of a completion; None: there is none, or none in the image that it is about."""
    target, answer = ImageTarget.of(question.solution), completion.answer_to(question.options)
    if target is None or answer is None or is_unknown(answer):
        return answer
    return place_text(target.kind, answer)


def grade_completions(
    questions: Sequence[SolvedQuestion], texts: Sequence[str], judge: Judge | None = None
) -> list[Grade]:
    """Grade completions; with a judge also free texts that are not the solution to the letter.

    Raises:
        ModelError: The judge failed.
    """
    grades = [grade(question, text) for question, text in zip(questions, texts, strict=True)]
    return _with_texts_judged(questions, grades, judge) if judge else grades


def grade_with_consistency(
    questions: Sequence[SolvedQuestion], texts: Sequence[str], judge: Judge | None
) -> list[Grade]:
    """Grade completions, right and wrong ones also for consistency where there is a judge.

    Raises:
        ModelError: The judge failed.
    """
    grades = grade_completions(questions, texts, judge)
    if judge is None:
        return grades
    verdicts = consistencies(questions, texts, judge)
    return [replace(g, consistency=v) for g, v in zip(grades, verdicts, strict=True)]


def named_answer(question: SolvedQuestion, answer: str) -> str:
    """The answer in the terms of the row's solution: letter, 'unknown', or the text itself."""
    index = choice_index(answer, question.options) if question.options else None
    if index is not None:
        return option_letter(index)
    return UNKNOWN if is_unknown(answer) else answer


def consistencies(
    questions: Sequence[SolvedQuestion], texts: Sequence[str], judge: Judge
) -> list[float | None]:
    """For each completion 1 where the think text alone leads the judge to the answer, else 0.

    None where there is no answer. An empty reasoning leads nowhere.

    Raises:
        ModelError: The judge failed.
    """
    verdicts: list[float | None] = [None] * len(texts)
    cases: dict[int, tuple[JudgeCase, str]] = {}
    for index, (question, text) in enumerate(zip(questions, texts, strict=True)):
        completion = parse_completion(text)
        answer = _gradable(question, completion)
        if answer is not None:
            verdicts[index] = 0.0
            if completion.think:
                cases[index] = _case(question, completion.think, answer)
    conclusions = judge.conclusions([case for case, _ in cases.values()])
    for (index, (_, answer)), conclusion in zip(cases.items(), conclusions, strict=True):
        verdicts[index] = float(conclusion == answer)
    return verdicts


def _case(question: SolvedQuestion, think: str, answer: str) -> tuple[JudgeCase, str]:
    """What the judge reads, and the candidate that the answer is."""
    index = choice_index(answer, question.options) if question.options else None
    if index is not None:
        answer = question.options[index]
    elif is_unknown(answer):
        answer = UNKNOWN
    # An answer that is no option is a candidate of its own.
    options = dict.fromkeys([*question.options, *([] if answer == UNKNOWN else [answer])])
    return JudgeCase(question.question, tuple(options), think), answer


def _with_texts_judged(
    questions: Sequence[SolvedQuestion], grades: Sequence[Grade], judge: Judge
) -> list[Grade]:
    """Free texts graded: right where the judge takes the answer for the solution."""
    open_ones = [i for i, g in enumerate(grades) if g.answer is not None and g.accuracy is None]
    if not open_ones:
        return list(grades)
    cases = [
        JudgeCase(questions[i].question, (questions[i].solution,), f'So {grades[i].answer}.')
        for i in open_ones
    ]
    results = list(grades)
    for i, conclusion in zip(open_ones, judge.conclusions(cases), strict=True):
        results[i] = replace(grades[i], accuracy=float(conclusion == questions[i].solution))
    return results


def is_free_text(question: SolvedQuestion) -> bool:
    """Tell whether an answer that is not the solution to the letter needs a judge."""
    is_compared = (
        question.options
        or question.solution == UNKNOWN
        or position_in(question.solution)
        or ImageTarget.of(question.solution)
    )
    return not is_compared and number_in(question.solution) is None


def _accuracy(question: SolvedQuestion, answer: str) -> float | None:
    if answer == question.solution:
        return 1.0
    if UNKNOWN in (answer, question.solution) or question.options:
        return 0.0
    if target := ImageTarget.of(question.solution):
        return target.score(answer)
    if place := position_in(question.solution):
        return position_accuracy(position_in(answer), place)
    return _value_accuracy(question, answer)


def _value_accuracy(question: SolvedQuestion, answer: str) -> float | None:
    if number_in(question.solution) is not None:
        return number_accuracy(question, answer)
    return 1.0 if is_same_text(answer, question.solution) else None


def number_accuracy(question: SolvedQuestion, answer: str) -> float:
    """Mean relative accuracy of a number with its unit; 0 where the dimensions differ."""
    value, truth = quantity_in(answer), quantity_in(question.solution)
    if value is None or truth is None:
        return 0.0
    values = compared_values(value, truth, unit_in(question.question))
    return relative_accuracy(*values) if values else 0.0


_NUMBER = r'(-?\d+\.\d+)'
_POSITION = re.compile(rf'\({_NUMBER}, {_NUMBER}, {_NUMBER}\)')


def position_in(text: str) -> Position | None:
    """The first position in a text [m]; None: it has none."""
    match = _POSITION.search(text.replace('\u2212', '-'))
    if match is None:
        return None
    x, y, z = map(float, match.groups())
    return x, y, z


def position_accuracy(value: Position | None, truth: Position) -> float:
    """1 less the distances along x, y and z [m] of a position, at least 0 (Robot-R1, 4.4)."""
    if value is None:
        return 0.0
    return max(0.0, 1.0 - sum(abs(a - b) for a, b in zip(value, truth, strict=True)))


def relative_accuracy(value: float | None, truth: float) -> float:
    """Mean relative accuracy of a number, 0..1 (VSI-Bench, spec f.3).

    A truth of zero has no relative error: then only the exact value is right.
    """
    if value is None:
        return 0.0
    if truth == 0:
        return float(value == 0)
    error = abs(value - truth) / abs(truth)
    # The small slack keeps 1 - 0.55 and its like from excluding what stands exactly on the limit.
    hits = [error <= 1 - confidence + 1e-9 for confidence in _MRA_CONFIDENCES]
    return sum(hits) / len(hits)


_MOST_NUMBERS = 60  # that are tried


def best_constant(rows: Sequence[Row]) -> float:
    """Accuracy of the best constant answer: a letter, a text of an option, a number or unknown.

    The text of an option is one answer whatever its letter. Numbers are scored as answers are, by
    their mean relative accuracy.
    """
    if not rows:
        return 0.0
    counts: Counter[tuple[str, str]] = Counter()
    for row in rows:
        counts.update({('letter', row.solution), ('text', row.solution_text())})
    best = max(counts.values()) / len(rows)
    numbers = [row for row in rows if row.answer_kind == 'number']
    values = sorted({row.solution for row in numbers if row.solution != UNKNOWN})
    step = max(1, len(values) // _MOST_NUMBERS)
    for value in values[::step]:
        right = sum(number_accuracy(row, value) for row in numbers if row.solution != UNKNOWN)
        best = max(best, right / len(rows))
    return max(best, _best_place(rows) / len(rows))


def _best_place(rows: Sequence[Row]) -> float:
    """Sum of the scores of the best constant place in the image, of those that are right once."""
    targets = [t for row in rows if (t := ImageTarget.of(row.solution))]
    texts = sorted({target.text() for target in targets})[:: max(1, len(targets) // _MOST_NUMBERS)]
    sums = [sum(target.score(text) or 0.0 for target in targets) for text in texts]
    return max(sums, default=0.0)
