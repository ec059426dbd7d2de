# SPDX-License-Identifier: Apache-2.0
"""Where things are that were seen lately."""

from __future__ import annotations

from embodied_r_ros.arm.robot import load_robot
from embodied_r_ros.arm.table import seen_things, table_view, TableView
from embodied_r_ros.core.types.deltas import DeltaKind, Item, ItemStatus, SemanticDelta
from embodied_r_ros.core.types.geometry import BODY_FROM_OPTICAL, direction_of_vector
import numpy as np
import pytest

ROBOT = load_robot('sawyer_sim')
Place = tuple[float, float, float]
BLOCK, MAT, HELD = (0.1, 0.1, 0.02), (0.2, -0.1, 0.02), (0.05, 0.0, 0.15)


def view(tool: Place = HELD, name: str = '') -> TableView:
    made = table_view(None, ROBOT.metadata, ROBOT.placing, tool)
    assert made
    return TableView(**{**vars(made), 'name': name})


def item(label: str, place: Place, status: ItemStatus = ItemStatus.VISIBLE) -> Item:
    camera = view().camera
    ray = BODY_FROM_OPTICAL @ camera.rotation().T @ np.subtract(place, camera.position)
    bearing, elevation = direction_of_vector(ray)
    return Item(label, status, bearing, elevation)


def delta(*items: Item, camera: str = 'camera') -> SemanticDelta:
    return SemanticDelta(1, DeltaKind.CHANGE, items=items, camera=camera)


def places(*deltas: SemanticDelta, at: TableView | None = None) -> list[tuple[str, Place]]:
    found = seen_things(deltas, at or view())
    return [(thing.label, tuple(round(v, 3) for v in thing.position)) for thing in found]  # type: ignore[misc]


def test_things_are_where_their_rays_meet_the_table() -> None:
    seen = delta(item('red block', BLOCK), item('blue mat', MAT))
    assert places(seen) == [('red block', BLOCK), ('blue mat', MAT)]


def test_two_things_of_one_label_are_both_there() -> None:
    assert len(places(delta(item('red block', BLOCK), item('red block', MAT)))) == 2


def test_what_is_hidden_now_is_where_it_was() -> None:
    before = delta(item('red block', MAT), item('blue mat', MAT))
    hidden = delta(item('red block', BLOCK), item('blue mat', MAT, ItemStatus.LEFT))
    assert places(before, hidden) == [('red block', BLOCK), ('blue mat', MAT)]


def test_what_is_held_is_nowhere_on_the_table() -> None:
    assert places(delta(item('red block', BLOCK)), delta(item('red block', HELD))) == []


def test_what_was_seen_long_ago_is_forgotten() -> None:
    old = delta(item('blue mat', MAT))
    assert places(old, *[delta()] * 19) == [('blue mat', MAT)]
    assert places(old, *[delta()] * 20) == []


def test_of_several_cameras_the_one_at_the_table_counts() -> None:
    front, rear = (delta(item('red block', p), camera=c) for p, c in ((BLOCK, 'a'), (MAT, 'b')))
    assert places(front, rear, at=view(name='a')) == [('red block', BLOCK)]


@pytest.mark.parametrize('place', [(0.9, 0.0, 0.02), (0.0, 0.6, 0.02)])
def test_what_is_out_of_the_workspace_is_no_thing(place: Place) -> None:
    assert places(delta(item('red block', place))) == []
