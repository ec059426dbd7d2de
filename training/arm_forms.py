# SPDX-License-Identifier: Apache-2.0
"""Rows about arms in the forms that Robot-R1 compares: `python -m training.arm_forms`.

Some types of questions only, without the metadata of the robot, or open-ended: the answer is then
the position itself, and its reward 1 - L1, the distances along x, y and z in metres added up. Rows
with true deltas can be told as the classical perceiver would (`arm_perceived.py`).
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path
from random import Random
import re
import sys
from typing import TYPE_CHECKING

from embodied_r_ros.common.errors import EmbodiedRError, InputError
from embodied_r_ros.questions.row import read_rows, write_rows

from training.arm_perceived import as_perceived
from training.arm_reader import position_in

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from embodied_r_ros.questions.row import Row

# What follows the frame (`coordinates_text`), up to the state. Robots tell it in words of theirs.
_METADATA = re.compile(
    r'(Positions are x, y, z in metres in the frame \S+\.)'
    r'(?! The end effector is at ) .*?(?= The end effector is at |$)'
)
_HOW = ' Answer with the position (x, y, z) itself.'


def without_metadata(row: Row) -> Row:
    """The same question without axes, reference point and size of the gripper."""
    return replace(row, question=_METADATA.sub(r'\1', row.question))


def open_ended(row: Row) -> Row | None:
    """The same question without options; None: its answer is no position."""
    solution = row.solution_text()
    if position_in(solution) is None:
        return None
    return replace(
        row,
        id=f'{row.id}/open',
        question=row.question + _HOW,
        answer_kind='text',
        options=(),
        solution=solution,
    )


def in_form(
    rows: Iterable[Row],
    kinds: Sequence[str],
    *,
    is_open: bool,
    has_metadata: bool,
    perceived_share: float = 0.0,
) -> Iterator[Row]:
    """The rows about arms in the form that is wanted; those that have none are left out.

    Args:
        rows: Any.
        kinds: Types of questions; none: all.
        is_open: Without options.
        has_metadata: With what is told of the robot.
        perceived_share: Of the moments, told as the classical perceiver would.
    """
    for row in rows:
        if not row.frame_id or (kinds and row.question_type not in kinds):
            continue
        asked = row if has_metadata else without_metadata(row)
        # All questions about a moment are told the same.
        rng = Random(f'{row.episode_id}/{row.meta.get("state_index")}')
        if rng.random() < perceived_share:
            asked = as_perceived(asked, rng)
        formed = open_ended(asked) if is_open else asked
        if formed:
            yield formed


def main(arguments: Sequence[str] | None = None) -> int:
    """Write a file of rows in another form."""
    parser = argparse.ArgumentParser(prog='training.arm_forms', description=__doc__)
    parser.add_argument('rows', type=Path, nargs='+', metavar='ROWS.jsonl')
    parser.add_argument('--out', type=Path, required=True, metavar='FILE')
    parser.add_argument('--kinds', nargs='+', default=[], metavar='TYPE', help='default: all')
    parser.add_argument('--open-ended', action='store_true', help='positions instead of options')
    parser.add_argument('--no-metadata', action='store_true', help='nothing told of the robot')
    help_text = 'share of the moments, with true deltas, told as perceived (arm_perceived.py)'
    parser.add_argument('--perceived', type=float, default=0.0, metavar='SHARE', help=help_text)
    args = parser.parse_args(arguments)
    try:
        rows = (row for file in args.rows for row in read_rows(file))
        formed = in_form(
            rows,
            args.kinds,
            is_open=args.open_ended,
            has_metadata=not args.no_metadata,
            perceived_share=args.perceived,
        )
        if not write_rows(args.out, formed):
            args.out.unlink()
            msg = f'{", ".join(map(str, args.rows))}: no rows about arms of that form'
            raise InputError(msg)
    except EmbodiedRError as error:
        sys.stderr.write(f'training.arm_forms: error: {error}\n')
        return 2
    return 0


if __name__ == '__main__':
    sys.exit(main())
