# SPDX-License-Identifier: Apache-2.0
"""What solved questions teach the reader: the calls that give their solutions.

A person gives the right answer, or the right call itself, as `count(chair)`. Of an answer, all
calls are tried that name what the question names. Several may give it by chance; so those count
that explain most of what was asked in the same words about other things and in other places, of
several the simplest.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass
import re
from typing import TYPE_CHECKING

from embodied_r_ros.common.errors import EmbodiedRError
from embodied_r_ros.core.reasoning.calls import (
    format_calls,
    labels_to_list,
    parse_calls,
    possible_calls,
    read_calls,
)
from embodied_r_ros.core.reasoning.saying import answer_readings
from embodied_r_ros.core.scene.names import find_names
from embodied_r_ros.core.scene.tools import Scene
from embodied_r_ros.core.types.answers import UNKNOWN

from training.data.call_rows import CallRow
from training.eval.grading import completion_of, grade

if TYPE_CHECKING:
    from collections.abc import Sequence

    from embodied_r_ros.core.reasoning.reading import Call
    from embodied_r_ros.data.questions.row import Row

_RIGHT = 0.8  # accuracy from which an answer is the solution: a number may be off by some percent
_MOST_NAMES = 4  # of a question whose calls are looked for


@dataclass(frozen=True)
class _Solved:
    """A question, and the calls that give its solution, with its names left open."""

    row: Row
    labels: tuple[str, ...]
    words: str
    names: tuple[str, ...]
    calls: frozenset[str]

    def filled(self, call: str) -> str:
        """A call with the names of this question."""
        return re.sub(r'<(\d)>', lambda match: self.names[int(match[1])], call)


def taught_rows(rows: Sequence[Row]) -> tuple[list[CallRow], Counter[str]]:
    """Rows of calls that give the solutions, and how many questions were left out, by the reason.

    Args:
        rows: Questions with deltas or a map, and their solutions.
    """
    left_out: Counter[str] = Counter()
    groups: dict[str, list[_Solved]] = defaultdict(list)
    for row in rows:
        solved = _solved(row)
        if isinstance(solved, str):
            left_out[solved] += 1
        else:
            groups[solved.words].append(solved)
    taught = []
    for group in groups.values():
        counts = Counter(call for solved in group for call in solved.calls)
        count = max(counts.values())
        alike = [call for call in counts if counts[call] == count]
        if count == 1 and (len(alike) > 1 or group[0].row.options):  # it may be by chance
            left_out['several calls give the solution'] += len(group)
            continue
        call = min(alike, key=lambda call: _plainness(call, group[0].words))
        left_out['another call explains the same words'] += len(group) - count
        taught += [_taught(solved, call) for solved in group if call in solved.calls]
    return taught, left_out


def _plainness(call: str, words: str) -> tuple[int, int, str]:
    """How simple a call is, and how many of its words the question lacks."""
    parts = re.findall(r'[<\w]+', call)
    return len(parts), sum(part not in words for part in parts), call


def _taught(solved: _Solved, call: str) -> CallRow:
    row = solved.row
    return CallRow(row.scene_id, row.split, row.question_type, row.question, row.options,
                   solved.labels, solved.filled(call), ())  # fmt: skip


def _solved(row: Row) -> _Solved | str:
    """The calls that give a solution; or why there are none."""
    if row.solution == UNKNOWN:
        return 'nobody can tell'
    scene = scene_of_row(row)
    labels = tuple(labels_to_list(row.question, row.options, scene))
    names, words = _names_and_words(row, labels)
    if len(names) > _MOST_NAMES:
        return 'too many names'
    given = None if row.options else parse_calls(row.solution, scene.labels)
    found = {
        _open(format_calls(calls), names)
        for calls in ([given] if given else ((call,) for call in possible_calls(names)))
        if given or _gives(row, scene, calls)
    }
    # Where a thing is, `way_to` says too.
    calls = frozenset(found - {c.replace('where(', 'way_to(') for c in found if 'where(' in c})
    return _Solved(row, labels, words, names, calls) if calls else 'no call gives the solution'


def scene_of_row(row: Row) -> Scene:
    """What a row knows, for the tools."""
    return Scene(row.semantic_deltas(), row.scene_map() if row.has_map else None)


def _names_and_words(row: Row, labels: Sequence[str]) -> tuple[tuple[str, ...], str]:
    """What a question and its options name, as calls do, and its words without these names."""
    question, names = row.question.lower(), dict[str, None]()
    for text in (question, *map(str.lower, row.options)):
        for name in find_names(text, labels):
            thing = name.kind or (f'{name.shape} object' if name.shape else 'thing')
            own = f'{name.colour} {thing}'.strip()
            names[name.labels[0] if len(name.labels) == 1 else own] = None
    for name in reversed(find_names(question, labels)):
        question = f'{question[: name.start]}<>{question[name.end :]}'
    return tuple(names), question


def _open(call: str, names: Sequence[str]) -> str:
    """A call with numbers in place of names."""
    for index, name in sorted(enumerate(names), key=lambda each: -len(each[1])):
        call = re.sub(rf'(?<=[(;,] |.\(){re.escape(name)}(?=[),;])', f'<{index}>', call)
    return call


def _gives(row: Row, scene: Scene, calls: Sequence[Call]) -> bool:
    """Whether calls read a question without a doubt, and give its solution."""
    readings = read_calls(row.question, row.options, scene.labels, calls)
    if not all(reading.is_sure for reading in readings):
        return False
    try:
        answer = answer_readings(readings, row.options, scene)
    except (EmbodiedRError, ValueError, KeyError, TypeError, IndexError, AttributeError):
        return False  # of a tool that takes no such names
    said = grade(row, completion_of(answer)).accuracy
    return answer.is_known and (said or 0.0) >= _RIGHT
