# SPDX-License-Identifier: Apache-2.0
"""Rows about arms in the forms that Robot-R1 compares: `python -m training.data.arm_forms`."""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path
from random import Random
import re
import sys
from typing import Any, TYPE_CHECKING

from embodied_r_ros.common.errors import InputError
from embodied_r_ros.core.types.geometry import position_text
from embodied_r_ros.data.questions.row import read_rows, write_rows

from training.data.arm_reader import position_in
from training.run.command import run_command

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from embodied_r_ros.data.questions.row import Row

_THING = re.compile(r'\b([a-z]+) (block|mat)\b')
_ON_TABLE = re.compile(r'(On the table: )(.*?)(\.(?: At the end effector: .*)?)$')
_FAR = re.compile(r' \d+\.\d m\b')
_PLACED = re.compile(r'([a-z ]+) at \((-?[\d.]+), (-?[\d.]+), (-?[\d.]+)\)')
_SHAPES = {'block': ('blocky',), 'mat': ('flat', 'flat', 'blocky')}
_TALL = 'cyan tall object'  # of the robot, which stands behind the table
_TALL_SHARE = 0.2
_MIDDLE_M = 0.02  # over the table, where all middles are taken to be
_MAT_M, _MAT_SPREAD_M = 0.021, 0.007  # so much nearer to the camera, by 94 looks
_BLOCK_SPREAD_M = 0.002


def as_perceived(row: Row, rng: Random) -> Row:
    """The same row, perceived; only what is told of things changes.

    Positions stay where the options are those that the sampler of candidates proposes: these lie
    where things are told to be.

    Args:
        row: With true deltas.
        rng: Decides shapes and errors.
    """
    shapes: dict[str, str] = {}

    def label(match: re.Match[str]) -> str:
        shape = rng.choice(_SHAPES[match[2]])
        return shapes.setdefault(match[0], f'{match[1]} {shape} object')

    wrong = row.meta.get('truth', {}).get('distractors', [])
    moves = not any(each.get('source') == 'candidate' for each in wrong)
    looks = (
        dict(look, text=_THING.sub(label, _looked(look['text'], rng, moves=moves)))
        for look in row.focus
    )
    deltas = (_relabelled(delta, label) for delta in row.deltas)
    return replace(row, focus=tuple(looks), deltas=tuple(deltas))


def _looked(text: str, rng: Random, *, moves: bool) -> str:
    """What is on the table, with the errors of a perceiver."""
    match = _ON_TABLE.match(text)
    if not match:
        return text

    def placed(match: re.Match[str]) -> str:
        name, x, y = match[1], float(match[2]), float(match[3])
        is_mat = moves and name.endswith('mat')
        spread_m = (_MAT_SPREAD_M if is_mat else _BLOCK_SPREAD_M) * moves
        near_m = _MAT_M if is_mat else 0.0
        x, y = x + rng.gauss(near_m, spread_m), y + rng.gauss(0.0, spread_m)
        return f'{name} at {position_text((x, y, _MIDDLE_M))}'

    things = [_PLACED.sub(placed, part) for part in match[2].split('; ')]
    if rng.random() < _TALL_SHARE:
        place = rng.uniform(-0.15, -0.1), rng.uniform(0.05, 0.2), _MIDDLE_M
        things.append(f'{_TALL} at {position_text(place)}')
    rng.shuffle(things)
    return f'{match[1]}{"; ".join(things)}{match[3]}'


def _relabelled(delta: dict[str, Any], label: Callable[[re.Match[str]], str]) -> dict[str, Any]:
    """A delta with other names of things, and without distances."""
    items = [
        {key: value for key, value in item.items() if key != 'distance_m'}
        | {'label': _THING.sub(label, item['label'])}
        for item in delta['items']
    ]
    return {**delta, 'change': _THING.sub(label, _FAR.sub('', delta['change'])), 'items': items}


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
        bare_row = row if has_metadata else without_metadata(row)
        # All questions about a moment are told the same.
        rng = Random(f'{row.episode_id}/{row.meta.get("state_index")}')
        if rng.random() < perceived_share:
            bare_row = as_perceived(bare_row, rng)
        formed = open_ended(bare_row) if is_open else bare_row
        if formed:
            yield formed


def _run(args: argparse.Namespace) -> int:
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
    return 0


def main(arguments: Sequence[str] | None = None) -> int:
    """Write a file of rows in another form."""
    parser = argparse.ArgumentParser(prog='training.data.arm_forms', description=__doc__)
    parser.add_argument('rows', type=Path, nargs='+', metavar='ROWS.jsonl')
    parser.add_argument('--out', type=Path, required=True, metavar='FILE')
    parser.add_argument('--kinds', nargs='+', default=[], metavar='TYPE', help='default: all')
    parser.add_argument('--open-ended', action='store_true', help='positions instead of options')
    parser.add_argument('--no-metadata', action='store_true', help='nothing told of the robot')
    help_text = 'share of the moments, with true deltas, told as the classical perceiver would'
    parser.add_argument('--perceived', type=float, default=0.0, metavar='SHARE', help=help_text)
    return run_command(parser, _run, arguments)


if __name__ == '__main__':
    sys.exit(main())
