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

# Smallest share of the motions that a row may lose; the largest is all of them.
_UNTOLD_SHARE = 0.1


def degraded(row: Row, rng: Random) -> Row:
    """Cut down what a row's deltas tell: a share of the motions, or every distance."""
    if rng.random() < 0.5:
        deltas = tuple(_without_distances(delta) for delta in row.deltas)
    else:
        share = rng.uniform(_UNTOLD_SHARE, 1.0)
        deltas = tuple(
            {**delta, 'action': CANNOT_TELL} if delta['action'] and rng.random() < share else delta
            for delta in row.deltas
        )
    return replace(row, deltas=deltas)


def _without_distances(delta: dict[str, Any]) -> dict[str, Any]:
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
