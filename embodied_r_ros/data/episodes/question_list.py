# SPDX-License-Identifier: Apache-2.0
"""Many questions about one recording: a file with one JSON object a line, and their answers."""

from __future__ import annotations

from dataclasses import dataclass, replace
import json
from typing import Any, TYPE_CHECKING

from embodied_r_ros.common.errors import InputError
from embodied_r_ros.core.reasoning.question import Question, question_problem, Refusal
from embodied_r_ros.data.episodes.offline import answer_to_json

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator
    from pathlib import Path

    from embodied_r_ros.core.reasoning.question import Listener, ShownImage
    from embodied_r_ros.data.episodes.offline import SceneAsker


@dataclass(frozen=True)
class ListedQuestion:
    """A question of a list, and the id that its answer gets."""

    id: str
    question: Question

    def with_image(self, shown: ShownImage) -> ListedQuestion:
        """The same question about an image."""
        return replace(self, question=replace(self.question, shown=shown))


def read_question_list(path: Path) -> list[ListedQuestion]:
    """Read questions: lines with `id`, `question` and `options`; other fields are left alone.

    Raises:
        InputError: The file cannot be read, or a line is no question; the message names it.
    """
    try:
        lines = path.read_text(encoding='utf-8').splitlines()
    except (OSError, UnicodeDecodeError) as error:
        msg = f'{path} is unreadable: {error}'
        raise InputError(msg) from None
    listed: dict[str, ListedQuestion] = {}
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            one = _listed_question(line, listed)
        except InputError as error:
            msg = f'{path}, line {number}: {error}'
            raise InputError(msg) from None
        listed[one.id] = one
    if not listed:
        msg = f'{path} holds no question: expected lines with id, question and options'
        raise InputError(msg)
    return list(listed.values())


def _listed_question(line: str, before: Collection[str]) -> ListedQuestion:
    """The question of a line, whose id is none of those before.

    Raises:
        InputError: It is none.
    """
    try:
        value = json.loads(line)
    except (ValueError, RecursionError) as error:
        msg = f'it is not JSON ({error})'
        raise InputError(msg) from None
    if not isinstance(value, dict):
        msg = f'it is {value!r}: expected an object with id, question and options'
        raise InputError(msg)
    for name in ('id', 'question'):
        if not isinstance(value.get(name), str):
            msg = f'{name} is {value.get(name)!r}: expected a text'
            raise InputError(msg)
    if value['id'] in before:
        msg = f'id {value["id"]!r} is that of another line'
        raise InputError(msg)
    options = value.get('options') or []
    if not isinstance(options, list) or not all(isinstance(text, str) for text in options):
        msg = f'options is {options!r}: expected a list of texts'
        raise InputError(msg)
    if problem := question_problem(value['question'], options):
        raise InputError(problem)
    return ListedQuestion(value['id'], Question(value['question'], tuple(options)))


def ask_list(
    asker: SceneAsker, listed: Iterable[ListedQuestion], listener: Listener
) -> Iterator[dict[str, Any]]:
    """Plain JSON values of each answer in order, with its id; a refusal is one with its reason."""
    for one in listed:
        try:
            answer, error = asker.ask(one.question, listener), None
        except Refusal as refusal:
            answer, error = refusal.answer, str(refusal)
        yield {'id': one.id, **answer_to_json(answer), 'error': error}
