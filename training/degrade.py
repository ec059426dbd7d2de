# SPDX-License-Identifier: Apache-2.0
"""Rows that tell less: what a reasoner must say when perception could not tell.

Deltas of a simulation's truth always tell everything. On a robot two views may not fit together,
and without odometry no distance is known. A share of the training rows is cut down in these two
ways, so that the reasoner learns to say 'unknown' where the text does not hold the answer.
"""

from __future__ import annotations

from dataclasses import replace
import math
from typing import Any, TYPE_CHECKING

from embodied_r_ros.deltas import CANNOT_TELL, SemanticDelta
from embodied_r_ros.wording import change_text, MotionStep, parse_action, STATIONARY

if TYPE_CHECKING:
    from random import Random

    from embodied_r_ros.rows import Row

_UNTOLD_SHARE = 0.3  # of the motions of a row that lost some


def degraded(row: Row, rng: Random) -> Row:
    """Cut down what a row's deltas tell: some motions altogether, or every distance."""
    cut = _without_distances if rng.random() < 0.5 else _without_some_motions
    return replace(row, deltas=tuple(cut(delta, rng) for delta in row.deltas))


def _without_some_motions(delta: dict[str, Any], rng: Random) -> dict[str, Any]:
    lost = delta['action'] and rng.random() < _UNTOLD_SHARE
    return {**delta, 'action': CANNOT_TELL} if lost else delta


def _without_distances(delta: dict[str, Any], rng: Random) -> dict[str, Any]:
    del rng
    steps = parse_action(delta['action']) or []
    told = ', '.join(
        MotionStep(s.verb, s.direction, None if s.verb == 'moved' else s.amount).text()
        for s in steps
    )
    items = [replace(item, distance_m=math.nan) for item in SemanticDelta.from_row(delta).items]
    return {
        **delta,
        'action': told or (STATIONARY if steps == [] and delta['action'] else delta['action']),
        'change': change_text(items),
        'items': [item.to_json() for item in items],
    }
