# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from dataclasses import replace
import math
from typing import Any

from embodied_r_ros.common.errors import InputError
from embodied_r_ros.core.types.deltas import (
    action_text,
    change_text,
    direction_text,
    Item,
    item_text,
    ItemStatus,
    Motion,
    motion_steps,
    MotionSource,
    MotionStep,
    parse_action,
    with_ways,
)
from hypothesis import given
from hypothesis import strategies as st
import pytest

NAN = math.nan
LENGTH = st.floats(-3, 3)
ANGLE = st.floats(-3, 3)


def metric(x: float = 0.0, y: float = 0.0, z: float = 0.0, **angles_deg: float) -> Motion:
    angles: dict[str, Any] = {
        f'{name}_rad': math.radians(angles_deg.get(name, 0)) for name in ('yaw', 'pitch', 'roll')
    }
    return Motion(MotionSource.ODOMETRY, **angles, translation=(x, y, z), is_metric=True)


@pytest.mark.parametrize(
    ('motion', 'text'),
    [
        (metric(1.23), 'moved forward 1.2 m'),
        (metric(-0.5), 'moved backward 0.5 m'),
        (metric(0, 0.3), 'moved left 0.3 m'),
        (metric(0, -0.3), 'moved right 0.3 m'),
        (metric(0, 0, 0.4), 'moved up 0.4 m'),
        (metric(0, 0, -0.4), 'moved down 0.4 m'),
        (metric(yaw=31), 'turned left 30°'),
        (metric(yaw=-47), 'turned right 45°'),
        (metric(pitch=12), 'tilted down 10°'),
        (metric(pitch=-13), 'tilted up 15°'),
        (metric(roll=20), 'rolled clockwise 20°'),
        (metric(roll=-20), 'rolled anticlockwise 20°'),
        (metric(1, -0.2, yaw=10), 'moved forward 1.0 m, moved right 0.2 m, turned left 10°'),
        (metric(0.04, yaw=2), 'stationary'),
        (Motion(), 'cannot tell'),
    ],
)
def test_motion_in_words(motion: Motion, text: str) -> None:
    assert action_text(motion) == text


def test_a_direction_without_length_has_no_metres() -> None:
    motion = Motion(MotionSource.TWO_VIEW, 0.0, 0.0, 0.0, (0.9, 0.42, -0.1))
    assert action_text(motion) == 'moved forward, moved left'


def test_numbers_that_are_not_known_are_left_out() -> None:
    motion = Motion(MotionSource.TWO_VIEW, math.radians(30), NAN, NAN, (NAN, NAN, NAN))
    assert action_text(motion) == 'turned left 30°'


@given(LENGTH, LENGTH, LENGTH, ANGLE, st.booleans())
def test_what_is_written_can_be_read_back(
    x: float, y: float, z: float, yaw: float, is_metric: bool
) -> None:
    motion = Motion(MotionSource.TWO_VIEW, yaw, -yaw / 2, yaw / 3, (x, y, z), is_metric)
    assert parse_action(action_text(motion)) == motion_steps(motion)


@pytest.mark.parametrize(
    'text', ['', 'cannot tell', 'move forward', 'moved forward,', 'turned left thirty']
)
def test_what_is_not_of_the_grammar_is_not_read(text: str) -> None:
    assert parse_action(text) is None


def test_stationary_has_no_steps() -> None:
    assert parse_action('stationary') == []
    assert parse_action('moved forward 1.2 m') == [MotionStep('moved', 'forward', 1.2)]


@pytest.mark.parametrize(
    ('bearing', 'elevation', 'text'),
    [
        (0, 0, 'ahead'),
        (31, 0, '30° left'),
        (-31, -9, '30° right 10° down'),
        (1, 12, 'ahead 10° up'),
        (10, NAN, '10° left'),
        (NAN, 10, ''),
    ],
)
def test_directions_in_words(bearing: float, elevation: float, text: str) -> None:
    assert direction_text(math.radians(bearing), math.radians(elevation)) == text


def test_an_item_has_its_distance_or_else_its_size() -> None:
    item = Item('red object', bearing_rad=0.0, elevation_rad=0.0, size_rad=math.radians(8))
    assert item_text(item) == 'red object ahead (8° wide)'  # the larger side (docs/concepts.md)
    near = Item('red object', bearing_rad=0.0, size_rad=math.radians(8), distance_m=1.26)
    assert item_text(near) == 'red object ahead 1.3 m'
    assert item_text(Item('red object')) == 'red object'


def test_items_are_grouped_by_what_happened_to_them() -> None:
    items = [
        Item('red object', ItemStatus.LEFT, bearing_rad=0.5),
        Item('blue object', ItemStatus.APPEARED, bearing_rad=0.0),
        Item('green object', ItemStatus.VISIBLE, bearing_rad=0.0),
        Item('pink object', ItemStatus.MOVED, bearing_rad=0.0),
        Item('cyan object', ItemStatus.APPEARED, bearing_rad=math.radians(-20)),
    ]
    assert change_text(items) == (
        'New: blue object ahead; cyan object 20° right. In view: green object ahead. '
        'Moved: pink object ahead. Gone: red object.'
    )


def test_what_moves_is_told_with_where_and_a_message_keeps_it() -> None:
    ways = ('left', '', 'nearer', 'right')
    items = [
        Item(f'thing {n}', ItemStatus.MOVED, math.radians(20), distance_m=2.1, moving=way)
        for n, way in enumerate(ways)
    ]
    text = change_text(items)
    assert text.startswith('Moved: thing 0 20° left 2.1 m, moving left; thing 1 20° left 2.1 m; ')
    heard = [replace(item, moving='') for item in items]
    assert [item.moving for item in with_ways(heard, text)] == list(ways)
    assert [Item.from_json(item.to_json()).moving for item in items] == list(ways)


def test_nothing_seen_is_said() -> None:
    assert change_text([]) == 'No object stands out.'


def test_null_numbers_of_an_item_are_unknown() -> None:
    item = Item.from_json({'label': 'bed', 'status': 'LEFT', 'distance_m': None, 'box': None})
    assert math.isnan(item.distance_m)
    assert item.box is None
    assert item_text(item) == 'bed'


def test_item_without_a_label_is_refused() -> None:
    with pytest.raises(InputError, match='expected label'):
        Item.from_json({'label': None})
