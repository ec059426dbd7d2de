# SPDX-License-Identifier: Apache-2.0
"""What the bench of placing calls right."""

from __future__ import annotations

from importlib.util import find_spec
import math

import pytest

if find_spec('metaworld') is None:
    pytest.skip('Meta-World is not installed', allow_module_level=True)
pytest.importorskip('embodied_r_ros.sim.indoor.world')

from embodied_r_ros.arm.demonstration import TrueThing
from embodied_r_ros.arm.robot import RobotMetadata
from embodied_r_ros.arm.table import PlacingConfig, table_view
from embodied_r_ros.types.deltas import Item
from embodied_r_ros.types.geometry import BODY_FROM_OPTICAL, direction_of_vector
import numpy as np

from bench.placing import compare_look, PlacedLook, summary
from test.arm.arms import camera

POINT = tuple[float, float, float]
START: POINT = (0.1, 0.0, 0.02)
HELD: POINT = (0.1, 0.0, 0.12)


def item(label: str, point: POINT) -> Item:
    at = camera()
    seen = BODY_FROM_OPTICAL @ at.rotation().T @ np.subtract(point, at.position)
    bearing, elevation = direction_of_vector(seen)
    return Item(label, bearing_rad=bearing, elevation_rad=elevation)


def compare(at: int, *items: Item, tool: POINT = (0.0, 0.2, 0.15)) -> list[PlacedLook]:
    view = table_view(camera(), RobotMetadata(), PlacingConfig(), tool)
    assert view
    things = [TrueThing('block', 'red block', (START, HELD))]
    return list(compare_look('pick', things, at, items, view))


def test_a_thing_is_told_by_an_item_of_its_colour() -> None:
    [look] = compare(0, item('red blocky object', (0.1, 0.03, 0.02)))
    assert (look.name, look.position_source, look.is_lifted) == ('block', 'table', False)
    assert look.off_m == pytest.approx(0.03, abs=1e-3)
    missed, other = compare(0, item('blue blocky object', START))
    assert (missed.name, missed.position_source) == ('block', '')
    assert other.name == 'nothing'


def test_what_is_lifted_is_to_be_told_at_the_end_effector() -> None:
    [held] = compare(1, item('red object', HELD), tool=(0.1, 0.0, 0.114))
    assert (held.position_source, held.is_lifted) == ('tool', True)
    assert compare(0, item('red object', START), tool=(0.1, 0.0, 0.014)) == []


def test_shares_and_errors_are_of_what_lies_on_the_table() -> None:
    looks = [
        PlacedLook('pick', 'block', position_source='table', off_m=0.01),
        PlacedLook('pick', 'block', position_source='table', off_m=0.03),
        PlacedLook('pick', 'block', position_source='tool'),
        PlacedLook('pick', 'block'),
        PlacedLook('pick', 'block', is_lifted=True, position_source='tool'),
        PlacedLook('pick', 'mat', position_source='table', off_m=0.5),
    ]
    row = summary(looks, 'block')
    assert (row['looks'], row['told'], row['as_held'], row['held']) == (4, 0.5, 0.25, 1.0)
    assert row['off_p50_m'] == pytest.approx(0.02)
    assert math.isnan(summary(looks, 'mat')['held'])
