# SPDX-License-Identifier: Apache-2.0
"""What questions about arms give away unread: `python -m training.eval.arm_baselines`.

Rules that see nothing: the option nearest to the state that is told, and the option most like the
others. An oracle (`arm_traces.py`) makes no mistake with what the prompt tells; of rows
with `--deltas true` it is the ceiling that true positions of things set.
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from collections.abc import Callable
import json
import math
from pathlib import Path
import sys
from typing import Any, TYPE_CHECKING

from embodied_r_ros.common.errors import InputError
from embodied_r_ros.core.types.movement import Movement
from embodied_r_ros.data.questions.row import read_rows

from training.data.arm_reader import position_in, state_in
from training.data.arm_traces import read_row
from training.eval.statistics import bootstrap_interval
from training.run.command import run_command

if TYPE_CHECKING:
    from collections.abc import Sequence

    from embodied_r_ros.data.questions.row import Row

Rule = Callable[['Row'], 'str | None']  # the option that it takes; None: it has none


def nearest_to_state(row: Row) -> str | None:
    """The position nearest to the state that the question tells."""
    state = state_in(row.question)
    places = [position_in(option) for option in row.options]
    if state is None or None in places or not places:
        return None
    offs = [math.dist(place, state) for place in places if place]
    return row.options[offs.index(min(offs))]


def most_alike(row: Row) -> str | None:
    """The option that is most like all others: in their middle, or of most axes in common."""
    for read, unlike in ((position_in, math.dist), (_levels, _axes_apart)):
        values = [value for option in row.options if (value := read(option))]
        if values and len(values) == len(row.options):
            sums = [sum(unlike(value, other) for other in values) for value in values]
            return row.options[sums.index(min(sums))]
    return None


def oracle(row: Row) -> str | None:
    """What follows from what the prompt tells."""
    trace = read_row(row)
    return trace.answer if trace else None


RULES: dict[str, Rule] = {
    'nearest_to_state': nearest_to_state,
    'most_alike': most_alike,
    'careful_reader': oracle,
}


def arm_baselines(rows: Sequence[Row]) -> dict[str, dict[str, Any]]:
    """Of each type of questions about arms: how often each rule is right, over all its rows.

    A rule that has no option for a row is wrong there; one that has none for any is left out.
    """
    groups: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        if row.frame_id:
            groups[row.question_type].append(row)
    return {kind: _of_kind(own) for kind, own in sorted(groups.items())}


def _of_kind(rows: Sequence[Row]) -> dict[str, Any]:
    letters = [row.solution for row in rows]
    scenes = [row.scene_id for row in rows]
    rates: dict[str, Any] = {
        'n': len(rows),
        'scenes': len(set(scenes)),
        'chance': sum(1 / max(1, len(row.options)) for row in rows) / len(rows),
        'majority_letter': max(map(letters.count, set(letters))) / len(rows),
    }
    for name, rule in RULES.items():
        choices = [rule(row) for row in rows]
        if any(choices):
            pairs = zip(choices, rows, strict=True)
            right = [float(option == row.solution_text()) for option, row in pairs]
            rates[name] = sum(right) / len(right)
            rates[f'{name}_interval_95'] = bootstrap_interval(right, scenes)
    return rates


def _levels(option: str) -> tuple[float, float, float] | None:
    """The levels of a movement; None: it is none."""
    try:
        return Movement.from_words(option).levels
    except InputError:
        return None


def _axes_apart(a: Sequence[float], b: Sequence[float]) -> float:
    """On how many axes two movements differ."""
    return sum(x != y for x, y in zip(a, b, strict=True))


def table(baselines: dict[str, dict[str, Any]]) -> str:
    """The baselines as text, one line for each type of question."""
    names = ('chance', 'majority_letter', *RULES)
    lines = [' '.join([f'{"question type":14} {"rows":>5}', *(f'{name:>16}' for name in names)])]
    for kind, rates in baselines.items():
        cells = [f'{rates[name]:16.1%}' if name in rates else f'{"-":>16}' for name in names]
        lines.append(' '.join([f'{kind:14} {rates["n"]:5}', *cells]))
    return '\n'.join(lines)


def _run(args: argparse.Namespace) -> int:
    rows = [row for file in args.rows for row in read_rows(file)]
    figures = arm_baselines([row for row in rows if args.split in (None, row.split)])
    if not figures:
        msg = f'{", ".join(map(str, args.rows))}: no rows about arms of split {args.split!r}'
        raise InputError(msg)
    sys.stdout.write((json.dumps(figures) if args.json else table(figures)) + '\n')
    return 0


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the baselines of a file of rows."""
    parser = argparse.ArgumentParser(prog='training.eval.arm_baselines', description=__doc__)
    parser.add_argument('rows', type=Path, nargs='+', metavar='ROWS.jsonl')
    parser.add_argument('--split', help='only rows of this split; default: all rows')
    parser.add_argument('--json', action='store_true', help='print one JSON object')
    return run_command(parser, _run, arguments)


if __name__ == '__main__':
    sys.exit(main())
