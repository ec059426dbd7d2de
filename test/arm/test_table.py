# SPDX-License-Identifier: Apache-2.0
"""What is seen on a table gets a position, from a direction and a plane."""

from __future__ import annotations

from dataclasses import replace
import math
from typing import TYPE_CHECKING

from embodied_r_ros.arm.robot import RobotMetadata
from embodied_r_ros.arm.table import place, PlacingConfig, table_view, TableView
from embodied_r_ros.common.errors import ConfigError
from embodied_r_ros.core.types.deltas import Item, NAN
from embodied_r_ros.core.types.geometry import BODY_FROM_OPTICAL, direction_of_vector
from hypothesis import given
from hypothesis import strategies as st
import numpy as np
import pytest

from test.arm.arms import camera

if TYPE_CHECKING:
    from typing import Any

    from embodied_r_ros.core.types.geometry import Position

METADATA = RobotMetadata(workspace_low=(-0.1, -0.25, 0.0), workspace_high=(0.3, 0.25, 0.3))


def view(tool: Position | None = None, **placing: Any) -> TableView:
    found = table_view(camera(), METADATA, PlacingConfig(**placing), tool)
    assert found
    return found


def item_at(point: Position, by: TableView, **fields: Any) -> Item:
    """An item whose middle is at a point [m]."""
    at = by.camera
    seen = BODY_FROM_OPTICAL @ at.rotation().T @ np.subtract(point, at.position)
    return Item('red object', bearing_rad=(d := direction_of_vector(seen))[0], elevation_rad=d[1],
                **fields)  # fmt: skip


@given(st.floats(-0.1, 0.3), st.floats(-0.25, 0.25))
def test_a_thing_of_the_usual_height_is_found_where_it_is(x: float, y: float) -> None:
    found = place(item_at((x, y, 0.02), view()), view())
    assert found
    assert found.position == pytest.approx((x, y, 0.02), abs=5e-4)
    assert not found.is_at_tool


def test_a_flatter_thing_is_placed_too_near_to_the_camera() -> None:
    """That is what a plane costs: half a usual thing, over the slope of the ray."""
    found = place(item_at((0.0, 0.0, 0.0), view()), view())
    assert found
    assert found.position[0] == pytest.approx(0.02 / math.tan(math.radians(35)), abs=2e-3)
    flat = view(item_height_m=0.0)
    exact = place(item_at((0.0, 0.0, 0.0), flat), flat)
    assert exact
    assert exact.position == pytest.approx((0.0, 0.0, 0.0), abs=5e-4)


@pytest.mark.parametrize(
    ('bearing_deg', 'elevation_deg'),
    [(0, 40), (0, 30), (180, -35), (60, -35), (NAN, -35), (0, NAN)],
)
def test_a_ray_that_misses_the_table_gives_no_position(
    bearing_deg: float, elevation_deg: float
) -> None:
    seen = Item('x', bearing_rad=math.radians(bearing_deg),
                elevation_rad=math.radians(elevation_deg))  # fmt: skip
    assert place(seen, view()) is None


def test_without_a_workspace_things_within_reach_are_placed() -> None:
    near, far = ((x, 0.0, 0.02) for x in (-0.4, -0.6))
    for point, is_placed in ((near, True), (far, False)):
        wide = table_view(camera(), RobotMetadata(), PlacingConfig())
        assert wide
        assert (place(item_at(point, wide), wide) is not None) is is_placed


def test_a_known_distance_counts_unless_it_is_that_of_the_floor() -> None:
    held = (0.1, -0.1, 0.16)
    by_distance = item_at(held, view(), distance_m=math.dist(held, view().camera.position))
    found = place(by_distance, view())
    assert found
    assert found.position == pytest.approx(held, abs=1e-3)
    on_floor = item_at((0.1, -0.1, 0.02), view(), distance_m=2.5)
    found = place(on_floor, view())
    assert found
    assert found.position == pytest.approx((0.1, -0.1, 0.02), abs=1e-3)


def test_what_the_gripper_holds_is_at_the_end_effector() -> None:
    held = (0.1, -0.1, 0.16)
    tool = (0.1, -0.1, 0.152)
    found = place(item_at(held, view()), view(tool))
    assert found
    assert found.is_at_tool
    assert found.position == pytest.approx(held, abs=0.01)
    below = place(item_at((0.1, -0.1, 0.02), view()), view(tool))
    assert below
    assert not below.is_at_tool


def test_a_camera_that_nothing_tells_of_places_nothing() -> None:
    assert table_view(None, METADATA, PlacingConfig()) is None


@pytest.mark.parametrize(
    'fields',
    [
        {'camera_position': (0.0, 0.0, 1.0)},
        {'camera_orientation': (0.0, 0.0, 0.0, 1.0)},
        {'camera_position': (0.0, 0.0, 1.0), 'camera_orientation': (0.0, 0.0, 0.0, 0.0)},
        {'camera_position': (0.0, 0.0, NAN), 'camera_orientation': (0.0, 0.0, 0.0, 1.0)},
        {'item_height_m': -1.0},
    ],
)
def test_settings_that_cannot_be_used_are_refused(fields: Any) -> None:
    with pytest.raises(ConfigError):
        replace(PlacingConfig(), **fields)
