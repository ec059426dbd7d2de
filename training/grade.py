# SPDX-License-Identifier: Apache-2.0
"""Grade completions that any model wrote: `python -m training.grade ROWS COMPLETIONS`.

Of a row only id, question, options and solution are needed; of a completion, id and completion.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
import json
from pathlib import Path
import sys
from typing import TYPE_CHECKING

from embodied_r_ros.common.errors import InputError
from embodied_r_ros.core.reasoning.completions import option_letter
from embodied_r_ros.core.reasoning.question import question_problem
from embodied_r_ros.core.types.answers import UNKNOWN

from training.data.lines import read_lines
from training.eval.grading import AskedQuestion, grade_with_consistency, named_answer
from training.eval.judging import add_judge_option, judge_of
from training.run.command import run_command

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from training.eval.grading import Grade


def read_asked(path: Path) -> dict[str, AskedQuestion]:
    """Rows by id. A solution may name its option in each of the ways that an answer may.

    Raises:
        InputError: A line is not a row, its solution is none of its options, or an id comes twice.
    """
    rows: dict[str, AskedQuestion] = {}
    for place, value in read_lines(
        path, {'id': str, 'question': str, 'options': list, 'solution': str}
    ):
        row = AskedQuestion(value['question'], tuple(value['options']), value['solution'])
        problem = _options_problem(row) or question_problem(row.question, row.options)
        if not problem:
            row = replace(row, solution=named_answer(row, row.solution))
            problem = _solution_problem(row)
        if value['id'] in rows:
            problem = f'id {value["id"]!r} comes twice'
        if problem:
            msg = f'{place}: {problem}'
            raise InputError(msg)
        rows[value['id']] = row
    return rows


def _options_problem(row: AskedQuestion) -> str:
    """Why options of a file are no texts; empty: they are."""
    others = [option for option in row.options if not isinstance(option, str)]
    return f'option {others[0]!r} is no text' if others else ''


def _solution_problem(row: AskedQuestion) -> str:
    """Why no answer to a row could be right; empty: one can."""
    allowed = [*map(option_letter, range(len(row.options))), UNKNOWN]
    if not row.options or row.solution in allowed:
        return ''
    return f'solution is {row.solution!r}, expected one of {", ".join(allowed)}, or an option'


def read_completions(path: Path, rows: Collection[str]) -> list[tuple[str, str]]:
    """Ids of rows and completions of them, in the order of the file.

    Raises:
        InputError: A line is not a completion, or is of a row that there is not.
    """
    pairs = []
    for place, value in read_lines(path, {'id': str, 'completion': str}):
        if value['id'] not in rows:
            msg = f'{place}: no row has the id {value["id"]!r}: give the rows that were asked'
            raise InputError(msg)
        pairs.append((value['id'], value['completion']))
    if not pairs:
        msg = f'{path} has no completions'
        raise InputError(msg)
    return pairs


def table(grades: Sequence[Grade]) -> str:
    """The grades in short."""
    lines = [f'{"completions":<12} {len(grades):>7}']
    for name in ('format', 'accuracy', 'consistency'):
        values = [value for g in grades if (value := getattr(g, name)) is not None]
        mean = f'{sum(values) / len(values):7.1%}' if values else f'{"-":>7}'
        lines.append(f'{name:<12} {mean}  of {len(values)} that can be graded')
    return '\n'.join(lines)


def _run(args: argparse.Namespace) -> int:
    rows = read_asked(args.rows)
    pairs = read_completions(args.completions, rows)
    questions, texts = [rows[name] for name, _ in pairs], [text for _, text in pairs]
    grades = grade_with_consistency(questions, texts, judge_of(args.judge))
    if args.json:
        for (name, _), g in zip(pairs, grades, strict=True):
            value = {
                'id': name,
                'format': float(g.format),
                'accuracy': g.accuracy,
                'consistency': g.consistency,
                'answer': g.answer,
            }
            sys.stdout.write(json.dumps(value, ensure_ascii=False) + '\n')
    else:
        sys.stdout.write(table(grades) + '\n')
    return 0


def main(arguments: Sequence[str] | None = None) -> int:
    """Grade, and print the grades."""
    parser = argparse.ArgumentParser(prog='training.grade', description=__doc__)
    parser.add_argument('rows', type=Path, metavar='ROWS.jsonl')
    parser.add_argument('completions', type=Path, metavar='COMPLETIONS.jsonl')
    add_judge_option(parser)
    parser.add_argument('--json', action='store_true', help='one JSON line per completion')
    return run_command(parser, _run, arguments)


if __name__ == '__main__':
    sys.exit(main())
