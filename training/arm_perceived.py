# SPDX-License-Identifier: Apache-2.0
"""Rows about an arm with true deltas, told as the classical perceiver would tell them.

He says what colour and shape a thing has, not what it is; takes flat mats for things of the
usual height, and so places them nearer to the camera; and at times sees a thing that is none.
Answers stay what they are.
"""

from __future__ import annotations

from dataclasses import replace
import re
from typing import Any, TYPE_CHECKING

from embodied_r_ros.types.geometry import position_text

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random

    from embodied_r_ros.questions.row import Row

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
    deltas = (_seen(delta, label) for delta in row.deltas)
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


def _seen(delta: dict[str, Any], label: Callable[[re.Match[str]], str]) -> dict[str, Any]:
    """A delta with other names of things, and without distances."""
    items = [
        {key: value for key, value in item.items() if key != 'distance_m'}
        | {'label': _THING.sub(label, item['label'])}
        for item in delta['items']
    ]
    return {**delta, 'change': _THING.sub(label, _FAR.sub('', delta['change'])), 'items': items}
