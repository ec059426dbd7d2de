# SPDX-License-Identifier: Apache-2.0
"""Where things on a table are said to be, against where they are in simulated demonstrations.

The classical perceiver looks every half second; what it sees is placed by its ray and the plane of
middles, as in rows and live. A thing counts as told where an item of its colour is placed; what is
lifted is to be told as at the end effector. What the hand touches on the table is left out.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
import json
import math
from pathlib import Path
import tempfile
from typing import Any, TYPE_CHECKING

from embodied_r_ros.arm.demonstration import DemonstrationTruth, TRUTH_TOPIC
from embodied_r_ros.arm.robot import load_robot
from embodied_r_ros.arm.table import place, table_view
from embodied_r_ros.bags.reader import open_bag, read_values
from embodied_r_ros.episodes.episode import keyframes_of_arm, read_arm_episode
from embodied_r_ros.perception.pipeline import classical_perceiver, perceive_path
from embodied_r_ros.sim.arm.demonstrations import generate
from embodied_r_ros.sim.arm.tasks import TASKS
from embodied_r_ros.sim.runs import ROBOTS_OF_TASKS, SimArmConfig
from embodied_r_ros.types.deltas import ItemStatus
import numpy as np

from bench.report import Budget, print_budgets

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator, Sequence

    from embodied_r_ros.arm.demonstration import TrueThing
    from embodied_r_ros.arm.table import TableView
    from embodied_r_ros.types.deltas import Item
    from embodied_r_ros.types.geometry import Position

_TOUCHED_M = 0.06  # from the tool to the middle of what it may touch
_LIFTED_M = 0.015
_LARGEST_M = 0.03  # median error that is allowed, and the least share that is told
_LEAST = 0.9


@dataclass(frozen=True)
class PlacedLook:
    """What became of a thing in one look at the table."""

    task: str
    name: str  # of the thing, or 'nothing' for what is placed where nothing is
    is_lifted: bool = False
    position_source: str = ''  # 'table', 'tool'; empty: not at all
    off_m: float = math.nan  # across the table, where it is told as on it


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    add = parser.add_argument
    add('--episodes', type=int, default=5, help='demonstrations of each task (%(default)s)')
    add('--seed', type=int, default=34000, help='of the demonstrations (%(default)s)')
    add('--json', type=Path, metavar='FILE', help='write the figures here too')


def main(args: argparse.Namespace) -> int:
    """Measure, print, and tell whether the budgets are met."""
    looks: list[PlacedLook] = []
    with tempfile.TemporaryDirectory() as scratch:
        for task in TASKS:
            for bag in generate(
                SimArmConfig(task), args.seed, args.episodes, Path(scratch) / task
            ):
                looks += _looks(bag, task)
    names = sorted({look.name for look in looks} - {'nothing'})
    figures = [summary(looks, name) for name in names]
    print('thing    on the table  told   off p50   p95 [m]  as held   lifted  told as held')
    for row in figures:
        print(
            '{name:8} {looks:12} {told:5.2f} {off_p50_m:9.3f} {off_p95_m:9.3f} {as_held:8.2f} '
            '{lifted:8} {held:13.2f}'.format(**row)
        )
    extra = sum(look.name == 'nothing' for look in looks)
    print(f'{extra} times something was placed where nothing is')
    budgets = _budgets([row for row in figures if row['name'] == 'block'])
    print_budgets(budgets)
    if args.json:
        report = {'figures': figures, 'extra': extra, 'budgets': [b.to_json() for b in budgets]}
        args.json.write_text(json.dumps(report, indent=2) + '\n')
    return 0 if all(budget.is_met for budget in budgets) else 1


def _budgets(blocks: Sequence[dict[str, Any]]) -> list[Budget]:
    [block] = blocks
    return [
        Budget('median error of blocks', float(block['off_p50_m']), _LARGEST_M, 'm'),
        Budget('share of blocks that is told', float(block['told']), _LEAST, at_least=True),
    ]


def _looks(bag: Path, task: str) -> list[PlacedLook]:
    robot = load_robot(ROBOTS_OF_TASKS.get(task, 'sawyer_sim'))
    with open_bag(bag) as reader:
        [text] = read_values(reader, [TRUTH_TOPIC], lambda msg: str(msg.data))
        shown = read_arm_episode(reader, robot)
    truth = DemonstrationTruth.from_json(text)
    view = table_view(shown.camera, robot.metadata, robot.placing)
    assert view
    looks: list[PlacedLook] = []
    keyframes = keyframes_of_arm(bag, robot)
    for delta in perceive_path(bag, classical_perceiver(), keyframes):
        state = shown.state_at(delta.stamp_ns)
        assert state
        at = truth.stamps_ns.index(delta.stamp_ns)
        then = replace(view, tool=state.position)
        looks += compare_look(task, truth.things, at, delta.items, then)
    return looks


def compare_look(
    task: str, things: Sequence[TrueThing], at: int, items: Sequence[Item], view: TableView
) -> Iterator[PlacedLook]:
    """What became of each thing in one look, and what was placed where nothing is.

    Args:
        task: Name of the task.
        things: What there is.
        at: Index of the look among the positions of things.
        items: What was seen.
        view: The table, and the tool then.
    """
    placed = [(item, place(item, view)) for item in items if item.status is not ItemStatus.LEFT]
    left = [(item.label.split()[0], placed_item) for item, placed_item in placed if placed_item]
    for thing in things:
        true, start = thing.positions[at], thing.positions[0]
        is_lifted = true[2] - start[2] > _LIFTED_M and _is_near(true, view)
        own = next((pair for pair in left if pair[0] == thing.label.split()[0]), None)
        if own:
            left.remove(own)
        if not is_lifted and _is_near(true, view):
            continue
        if own is None:
            yield PlacedLook(task, thing.name, is_lifted)
        elif own[1].is_at_tool:
            yield PlacedLook(task, thing.name, is_lifted, 'tool')
        else:
            off_m = math.dist(own[1].position[:2], true[:2])
            yield PlacedLook(task, thing.name, is_lifted, 'table', off_m)
    yield from (
        PlacedLook(task, 'nothing') for _, placed_item in left if not placed_item.is_at_tool
    )


def _is_near(position: Position, view: TableView) -> bool:
    return view.tool is not None and math.dist(position, view.tool) < _TOUCHED_M


def summary(looks: Sequence[PlacedLook], name: str) -> dict[str, Any]:
    """Figures of the things of one name."""
    own = [look for look in looks if look.name == name]
    still, lifted = ([look for look in own if look.is_lifted is is_up] for is_up in (False, True))
    off = [look.off_m for look in still if look.position_source == 'table'] or [math.nan]
    return {
        'name': name,
        'looks': len(still),
        'told': _share(still, 'table'),
        'off_p50_m': float(np.percentile(off, 50)),
        'off_p95_m': float(np.percentile(off, 95)),
        'as_held': _share(still, 'tool'),
        'lifted': len(lifted),
        'held': _share(lifted, 'tool'),
    }


def _share(looks: Sequence[PlacedLook], position_source: str) -> float:
    return (
        sum(look.position_source == position_source for look in looks) / len(looks)
        if looks
        else math.nan
    )
