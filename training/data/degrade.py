# SPDX-License-Identifier: Apache-2.0
"""Rows that tell less, or of another path, than the simulation does.

Deltas of a simulation's truth always tell everything. On a robot two views may not fit together,
without odometry no distance is known, and with it that of some items alone. A share of the
training rows is cut down in these three ways, so that the reasoner learns to say 'unknown' where
the text does not hold the answer. The third keeps apart what the second has together: from it
alone a reasoner learns that no motion has a length where an item has no distance.

Nor do simulated keyframes ever lie 90° apart, since a new one is due before. Another share of the
rows tells of motions that are drawn at random, so that the reasoner learns to add up any. Nor is
a simulated room ever empty: a share of the rows loses all its items, as where a robot passes bare
walls.
"""

from __future__ import annotations

from dataclasses import replace
import math
import re
from typing import Any, TYPE_CHECKING

from embodied_r_ros.types.deltas import (
    ANGLE_STEP_DEG,
    CANNOT_TELL,
    change_text,
    MotionStep,
    parse_action,
    SemanticDelta,
    STATIONARY,
)
from embodied_r_ros.types.things import plural

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from random import Random

    from embodied_r_ros.questions.row import Row
    from embodied_r_ros.types.deltas import Item

# Motions of retold rows: turns in steps of the wording's, moves of the wording's 0.1 m.
_MOST_TURN_DEG, _MOST_MOVE_M = 180, 3.0
_QUARTER_DEG, _QUARTER_SHARE = 90, 0.25  # of the turns
_GRID_SHARE = 0.2  # of the rows: a robot on a grid turns by quarters alone
_OPPOSITE = {
    a: b
    for pair in (('left', 'right'), ('forward', 'backward'), ('up', 'down'))
    for a, b in (pair, pair[::-1])
}
# Smallest share of the motions that a row may lose; the largest is all of them.
_UNTOLD_SHARE = 0.1
# Share of the items whose distance a row loses: the classical perceiver with odometry gives three
# in four. One in ten is cut off at an edge, and its shape is not known.
_FARAWAY_SHARE = (0.1, 0.7)
_CUT_OFF_SHARE = 0.1
_NAMED_GONE_SHARE = 0.25  # of the maps of fewer things, those that lose one that is asked about
_TIMES = (1, 1, 2, 2, 3, 4)  # as many of a kind
_MOST_TIMES_LARGER = 6.0
_BRIEF = (1, 3)  # keyframes


def degrade_deltas(row: Row, rng: Random) -> Row:
    """Cut down what a row's deltas tell: all distances, a share of the items', or of motions."""
    way = rng.random()
    if way < 1 / 3:
        deltas = tuple(_without_distances(delta) for delta in row.deltas)
    elif way < 2 / 3:
        share = rng.uniform(*_FARAWAY_SHARE)
        deltas = tuple(_with_vague_items(delta, share, rng) for delta in row.deltas)
    else:
        share = rng.uniform(_UNTOLD_SHARE, 1.0)
        deltas = tuple(
            {**delta, 'action': CANNOT_TELL} if delta['action'] and rng.random() < share else delta
            for delta in row.deltas
        )
    return replace(row, deltas=deltas)


def _without_distances(delta: dict[str, Any]) -> dict[str, Any]:
    steps = parse_action(delta['action']) or []
    steps_text = ', '.join(
        MotionStep(s.verb, s.direction, None if s.verb == 'moved' else s.amount).text()
        for s in steps
    )
    action = steps_text or (STATIONARY if steps == [] and delta['action'] else delta['action'])
    items = [replace(item, distance_m=math.nan) for item in SemanticDelta.from_row(delta).items]
    return _with_items({**delta, 'action': action}, items)


def _with_vague_items(delta: dict[str, Any], share: float, rng: Random) -> dict[str, Any]:
    items = SemanticDelta.from_row(delta).items
    items = tuple(replace(i, distance_m=math.nan) if rng.random() < share else i for i in items)
    return _with_items(delta, [_cut_off(i) if rng.random() < _CUT_OFF_SHARE else i for i in items])


def _cut_off(item: Item) -> Item:
    """An item of which too little is seen to tell its shape: 'red object'."""
    return replace(item, label=f'{item.label.split()[0]} object', distance_m=math.nan)


def _with_items(delta: dict[str, Any], items: Sequence[Item]) -> dict[str, Any]:
    return {**delta, 'change': change_text(items), 'items': [item.to_json() for item in items]}


def bare(row: Row) -> Row:
    """The same row where nothing was seen."""
    return replace(row, deltas=tuple(_with_items(delta, ()) for delta in row.deltas))


def sparse(row: Row, rng: Random) -> Row:
    """A map of fewer things, as of a short look at a place.

    Half of the time it tells no floor, half of the time no sizes, as maps of real cameras. What
    the row names stays; but where the map stands alone, one thing goes now and then. The answer
    may be another one then, or nothing that can be known.
    """
    texts = ' '.join([row.question, *row.options, row.solution])
    labels = sorted({each['label'] for each in row.landmarks})
    share = rng.random()
    gone = {label for label in labels if label not in texts and rng.random() < share}
    named = [label for label in labels if label in texts]
    if named and not row.deltas and rng.random() < _NAMED_GONE_SHARE:
        gone.add(rng.choice(named))
    left = (each for each in row.landmarks if each['label'] not in gone)
    has_sizes = rng.random() < 1 / 2
    return replace(
        row,
        landmarks=tuple(left if has_sizes else ({**each, 'size': None} for each in left)),
        room_area_m2=rng.choice([None, row.room_area_m2]),
    )


def multiply_things(row: Row, rng: Random) -> Row:
    """A row that counts things of a map, with more of each, and its solution."""
    labels = sorted({each['label'] for each in row.landmarks})
    times = {label: rng.choice(_TIMES) for label in labels}
    asked = [
        label
        for label in labels
        if any(re.search(rf'\b{re.escape(e)}\b', row.question) for e in (label, plural(label)))
    ]
    count = row.solution
    if asked and count.isdigit():
        count = str(int(count) * times[max(asked, key=len)])
    landmarks = [each for each in row.landmarks for _ in range(times[each['label']])]
    return replace(
        row,
        landmarks=tuple({**each, 'id': number} for number, each in enumerate(landmarks)),
        solution=count,
    )


def enlarge_things(row: Row, rng: Random) -> Row:
    """A row that asks for the size of a thing, of a map of larger things, and its solution.

    Where the solution is no whole number, the row as it is.
    """
    if not row.solution.isdigit():
        return row
    times = rng.uniform(1.0, _MOST_TIMES_LARGER)
    landmarks = (
        {**each, 'size': each['size'] and [times * extent for extent in each['size']]}
        for each in row.landmarks
    )
    return replace(row, landmarks=tuple(landmarks), solution=f'{times * float(row.solution):.0f}')


def brief(row: Row, rng: Random) -> Row:
    """The same row after its first keyframes alone, with an answer of its own."""
    return replace(row, deltas=row.deltas[: rng.randint(*_BRIEF)])


def with_labels(delta: dict[str, Any], rename: Callable[[str], str]) -> dict[str, Any]:
    """A delta whose items have other labels."""
    items = SemanticDelta.from_row(delta).items
    return _with_items(delta, [replace(item, label=rename(item.label)) for item in items])


def retell_motions(row: Row, rng: Random) -> Row:
    """The same row with other motions: what its deltas tell then has an answer of its own."""
    quarter_share = 1.0 if rng.random() < _GRID_SHARE else _QUARTER_SHARE
    return replace(
        row, deltas=tuple(_moved_otherwise(delta, quarter_share, rng) for delta in row.deltas)
    )


def _moved_otherwise(delta: dict[str, Any], quarter_share: float, rng: Random) -> dict[str, Any]:
    steps = parse_action(delta['action'])
    motion_text = ', '.join(_other_step(step, quarter_share, rng).text() for step in steps or ())
    return {**delta, 'action': motion_text or delta['action']}


def _other_step(step: MotionStep, quarter_share: float, rng: Random) -> MotionStep:
    """A step of the same kind, of another amount, half of the time the other way; tilts stay."""
    if step.amount is None or step.verb not in ('moved', 'turned'):
        return step
    direction = rng.choice([step.direction, _OPPOSITE[step.direction]])
    if step.verb == 'moved':
        tenths = rng.randint(1, round(10 * _MOST_MOVE_M))
        return replace(step, amount=tenths / 10, direction=direction)
    amount = ANGLE_STEP_DEG * rng.randint(1, _MOST_TURN_DEG // ANGLE_STEP_DEG)
    if rng.random() < quarter_share:
        amount = _QUARTER_DEG * rng.choice((1, 1, 1, 2))
    return replace(step, amount=amount, direction=direction)
