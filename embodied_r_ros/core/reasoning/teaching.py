# SPDX-License-Identifier: Apache-2.0
"""Why an answer was wrong, and the sentence that a person's own answer teaches.

Of all that a question may be read as, the likeliest that gives the person's answer is what was
meant. Where none does, something else than the reading is at fault.
"""

from __future__ import annotations

from dataclasses import dataclass
import re
from typing import TYPE_CHECKING

from embodied_r_ros.core.reasoning.calls import open_question, read_question
from embodied_r_ros.core.reasoning.completions import choice_index, is_unknown
from embodied_r_ros.core.reasoning.quantities import (
    compared_values,
    in_digits,
    quantity_in,
    unit_in,
)
from embodied_r_ros.core.reasoning.reading import parts_of
from embodied_r_ros.core.reasoning.saying import answer_readings
from embodied_r_ros.core.reasoning.sentences import NOTHING, readings_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from embodied_r_ros.core.reasoning.calls import OpenQuestion
    from embodied_r_ros.core.reasoning.reading import Call, Reading
    from embodied_r_ros.core.reasoning.saying import ToolAnswer
    from embodied_r_ros.core.scene.tools import Scene

_WITHIN = 0.2  # of a number with a unit that a person gives
_LEAST = 0.02  # score of a reading that may be what was meant
_SURER = 1.5  # times as likely as the next that gives the same answer
_TELLING = re.compile(  # words by which answers differ
    r'\b(?!(?:an?|and|are|at|i|in|is|its?|my|of|on|our|side|the|to|was|were|your)\b)\w+'
)
_SURE = 0.5  # score of a reading that is hardly wrong


@dataclass(frozen=True)
class Lesson:
    """What the right answer to a question teaches."""

    cause: str  # of the wrong one, in words
    sentence: str = ''  # as sentences.yaml has them; empty: there is nothing to learn
    calls: str = ''  # which read it
    here: tuple[Call, ...] = ()  # with the things of this question; empty: none gives the answer


def lesson_of(
    question: str, options: Sequence[str], scene: Scene, is_right: Callable[[ToolAnswer], bool]
) -> Lesson:
    """Find why a question was not answered rightly.

    Args:
        question: A person's words.
        options: The options; none: a free question.
        scene: What was known.
        is_right: Whether an answer is the person's.

    Raises:
        ConfigError: What reads questions is not installed.
    """
    read = read_question(question, options, scene.labels)
    if _gives(read, options, scene, is_right):
        here = tuple(call for reading in read for call in reading.calls)
        return Lesson('it is read and answered rightly now', here=here)
    parts = parts_of(question)
    if len(parts) != 1:
        return Lesson('it asks for several things at once: label each alone')
    asked = open_question(parts[0], scene.labels, ())
    return _misread(asked, question, options, scene, is_right) or Lesson(_other_cause(asked))


def _misread(
    asked: OpenQuestion,
    question: str,
    options: Sequence[str],
    scene: Scene,
    is_right: Callable[[ToolAnswer], bool],
) -> Lesson | None:
    """What the likeliest reading teaches that gives the right answer; None: none gives it."""
    found = [
        (known.calls, score, reading.calls)
        for known, score in readings_of(asked.sentence, len(asked.words))
        if score >= _LEAST
        and (reading := asked.read_as(known, question, options, scene.labels)).calls
        and _gives([reading], options, scene, is_right)
    ]
    if found and (len(found) == 1 or found[0][1] >= _SURER * found[1][1]):
        calls, _, here = found[0]
        return Lesson(f'it was misread: it asks for {calls}', asked.sentence, calls, here)
    several = ' or '.join(calls for calls, *_ in found[:3])
    why = f'it was misread: it may ask for {several}; label another one like it'
    return Lesson(why) if found else None


def _other_cause(asked: OpenQuestion) -> str:
    """Why a question has another answer though no reading of it gives the right one."""
    unknown = [name.text for name in asked.names if not name.labels]
    if unknown:
        return f'nothing here is known as {unknown[0]}'
    ranked = readings_of(asked.sentence, len(asked.words))
    if ranked and ranked[0][1] >= _SURE and ranked[0][0].calls != NOTHING:
        return f'it is read as {ranked[0][0].calls}: what was seen, or its place, must be wrong'
    return 'nothing that can be computed here gives that answer'


def _gives(
    readings: Sequence[Reading],
    options: Sequence[str],
    scene: Scene,
    is_right: Callable[[ToolAnswer], bool],
) -> bool:
    """Whether readings without a doubt give an answer that is right."""
    if not all(reading.is_sure for reading in readings):
        return False
    answer = answer_readings(tuple(readings), options, scene)
    return answer.is_known and is_right(answer)


def is_answer(answer: ToolAnswer, solution: str, question: str, options: Sequence[str]) -> bool:
    """Whether an answer is what a person says: the same option, count or words, or about as much.

    Args:
        answer: A known one.
        solution: In words, as labels have it.
        question: The question.
        options: Its options.
    """
    if is_unknown(solution):
        return False
    if options:
        return choice_index(solution, options) == answer.option_index >= 0
    solution = in_digits(solution.lower())
    said, truth = quantity_in(f'{answer.text} {answer.unit}'), quantity_in(solution)
    if said is None or truth is None:
        return _TELLING.findall(answer.text.lower()) == _TELLING.findall(solution) != []
    values = compared_values(said, truth, unit_in(question))
    within = _WITHIN if answer.unit else 0.0  # what is counted is told as it is
    return values is not None and abs(values[0] - values[1]) <= within * abs(values[1])
