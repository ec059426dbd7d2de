# SPDX-License-Identifier: Apache-2.0
"""Predictions of any program: read from a file, and written as the benchmarks' own suites read."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from io import StringIO
import json
import math
from typing import Any, TYPE_CHECKING

from embodied_r_ros.common.errors import InputError
from embodied_r_ros.common.files import write_whole

from training.data.lines import read_lines
from training.eval.benchmarks.multiple_choice import egoschema_index

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence
    from pathlib import Path

    from training.eval.benchmarks.questions import BenchmarkQuestion

    Texts = Mapping[str, str]

_NAMED = 5  # ids that a message names
_LINES = '.jsonl'


@dataclass(frozen=True)
class Prediction:
    """What was said to a question."""

    text: str
    mark: float | None = None  # of a judge; None: not judged


def read_predictions(path: Path, ids: Collection[str]) -> dict[str, Prediction]:
    """Predictions by the id of their question.

    Args:
        path: Lines with `id` (text or integer), `prediction` (text) and, if judged, `mark`.
        ids: Of the questions.

    Raises:
        InputError: A line is no prediction, its id is none of the questions' or comes twice, or
            there is no line.
    """
    predictions: dict[str, Prediction] = {}
    foreign = []
    for place, value in read_lines(path, {'id': (str, int), 'prediction': str}):
        name = str(value['id'])
        if name in predictions:
            msg = f'{place}: id {name!r} comes twice'
            raise InputError(msg)
        predictions[name] = Prediction(value['prediction'], _mark(value.get('mark'), place))
        foreign += [name] if name not in ids else []
    if foreign:
        more = f' and {len(foreign) - _NAMED} more' if len(foreign) > _NAMED else ''
        msg = f'{path}: no row has the id {", ".join(map(repr, foreign[:_NAMED]))}{more}'
        raise InputError(msg)
    if not predictions:
        msg = f'{path} has no predictions'
        raise InputError(msg)
    return predictions


def _mark(value: Any, place: str) -> float | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        msg = f'{place}: mark is {value!r}, expected a number from 1 to 5'
        raise InputError(msg)
    return float(value)


def write_export(
    benchmark: str, path: Path, questions: Sequence[BenchmarkQuestion], texts: Texts
) -> None:
    """Write predictions as the suite that scores a benchmark reads them.

    Args:
        benchmark: Its name.
        path: The file, with the suffix of that form; or `.jsonl`, as `read_predictions` reads.
        questions: The questions.
        texts: What was said, by the id of the question; others are empty.

    Raises:
        InputError: The suffix is another one, or the file cannot be written.
    """
    check_export(benchmark, path)
    export = _lines if path.suffix == _LINES else _EXPORTS[benchmark][1]
    write_whole(path, export(questions, texts), makes_folder=True)


def check_export(benchmark: str, path: Path) -> None:
    """Refuse a file of another form before any work is done.

    Raises:
        InputError: So it is.
    """
    suffix, _ = _EXPORTS[benchmark]
    if path.suffix not in {suffix, _LINES}:
        msg = f'{path}: predictions of {benchmark} are exported to a file {suffix} or {_LINES}'
        raise InputError(msg)


def _lines(questions: Sequence[BenchmarkQuestion], texts: Texts) -> str:
    values = ({'id': q.id, 'prediction': texts[q.id]} for q in questions if q.id in texts)
    return ''.join(json.dumps(value, ensure_ascii=False) + '\n' for value in values)


def _vsi_bench(questions: Sequence[BenchmarkQuestion], texts: Texts) -> str:
    """Columns that VsiBench.evaluate of VLMEvalKit reads, and those for people."""
    rows = [
        {
            'index': question.id,
            'question_type': question.question_type,
            'question': question.plain_question(),
            'candidates': repr(list(question.record.get('options') or [])),
            'answer': question.truth,
            'prediction': texts.get(question.id, ''),
        }
        for question in questions
    ]
    return _table(rows, '\t')


def _mvbench(questions: Sequence[BenchmarkQuestion], texts: Texts) -> str:
    """Columns that MVBench.evaluate of VLMEvalKit reads; the index is the number of the row."""
    rows = [
        {
            'index': row,
            'task_type': question.question_type,
            'question': question.plain_question(),
            'candidates': repr(list(question.options)),
            'answer': question.record['answer'],
            'prediction': texts.get(question.id, ''),
        }
        for row, question in enumerate(questions)
    ]
    return _table(rows, '\t')


def _erqa(questions: Sequence[BenchmarkQuestion], texts: Texts) -> str:
    """Columns that the two readers of ERQA in VLMEvalKit read."""
    rows = [
        {
            'index': row,
            'category': question.question_type,
            'question_type': question.question_type,
            'question': question.plain_question(),
            'answer': question.truth,
            'prediction': texts.get(question.id, ''),
        }
        for row, question in enumerate(questions)
    ]
    return _table(rows, '\t')


def _urban_video(questions: Sequence[BenchmarkQuestion], texts: Texts) -> str:
    """The table that run.py of UrbanVideo-Bench writes, and eval.py reads."""
    rows = [
        {
            '': row,
            **{name: question.record[name] for name in question.record if name != 'Output'},
            'Output': texts.get(question.id, ''),
        }
        for row, question in enumerate(questions)
    ]
    return _table(rows, ',')


def _table(rows: Sequence[Mapping[str, Any]], delimiter: str) -> str:
    text = StringIO()
    writer = csv.DictWriter(
        text, list(rows[0]), delimiter=delimiter, quoting=csv.QUOTE_ALL, lineterminator='\n'
    )
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def _openeqa(questions: Sequence[BenchmarkQuestion], texts: Texts) -> str:
    """The file that evaluate-predictions.py reads; null: not answered."""
    results = [{'question_id': q.id, 'answer': texts.get(q.id)} for q in questions]
    return json.dumps(results, indent=2, ensure_ascii=False) + '\n'


def _egoschema(questions: Sequence[BenchmarkQuestion], texts: Texts) -> str:
    """The object that validate.py sends: index by q_uid; what names no option is the first."""
    indices = {q.id: max(0, egoschema_index(q, texts.get(q.id, ''))) for q in questions}
    return json.dumps(indices, indent=1) + '\n'


_EXPORTS: dict[str, tuple[str, Callable[[Sequence[BenchmarkQuestion], Texts], str]]] = {
    'vsi-bench': ('.tsv', _vsi_bench),
    'urbanvideo-bench': ('.csv', _urban_video),
    'openeqa': ('.json', _openeqa),
    'egoschema': ('.json', _egoschema),
    'mvbench': ('.tsv', _mvbench),
    'erqa': ('.tsv', _erqa),
}
