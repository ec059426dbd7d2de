# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from dataclasses import replace
import math

from embodied_r_ros.core.perception.coloured_objects import ColouredObject
from embodied_r_ros.core.perception.items import associate, items_between, ItemView, off_arc
from embodied_r_ros.core.types.deltas import ItemStatus, Motion, MotionSource
from embodied_r_ros.core.types.geometry import direction_of_vector, rotation_from_ypr
import numpy as np
import pytest

TURNED = Motion(MotionSource.ODOMETRY, 0.5, 0.0, 0.0, (0.0, 0.0, 0.0), is_metric=True)
FORWARD = Motion(MotionSource.TWO_VIEW, 0.0, 0.0, 0.0, (1.0, 0.0, 0.0))
SIZE = math.radians(6)


def object_at(bearing_deg: float, colour: str = 'red', shape: str = 'round') -> ColouredObject:
    return ColouredObject(
        colour, shape, math.radians(bearing_deg), 0.0, SIZE, SIZE, (1, 0, 0), False, False, 1.0
    )


def after(motion: Motion, point: tuple[float, float, float]) -> ColouredObject:
    """An object at a point of the earlier view's axes, as the later view shows it."""
    rotation = rotation_from_ypr(motion.yaw_rad, motion.pitch_rad, motion.roll_rad)
    bearing, elevation = direction_of_vector(
        rotation.T @ (np.array(point) - np.array(motion.translation))
    )
    return replace(object_at(0), bearing_rad=bearing, elevation_rad=elevation)


def before(point: tuple[float, float, float]) -> ColouredObject:
    return after(Motion(MotionSource.ODOMETRY, 0.0, 0.0, 0.0, (0.0, 0.0, 0.0)), point)


def statuses(
    earlier: list[ColouredObject], later: list[ColouredObject], motion: Motion
) -> list[ItemStatus]:
    return [pair.status for pair in associate(earlier, later, motion)]


@pytest.mark.parametrize('point', [(1.5, 0.4, -0.5), (3.0, -1.0, 0.3), (50.0, 20.0, 0.0)])
@pytest.mark.parametrize('motion', [TURNED, FORWARD])
def test_what_is_at_rest_lies_on_its_arc(
    point: tuple[float, float, float], motion: Motion
) -> None:
    assert off_arc(before(point), after(motion, point), motion) < math.radians(0.6)


def test_what_moved_lies_off_its_arc() -> None:
    old, new = before((3.0, 0.0, 0.0)), after(FORWARD, (3.0, 0.0, 0.6))
    assert off_arc(old, new, FORWARD) > math.radians(10)


def test_objects_at_rest_are_in_view_while_the_camera_turns() -> None:
    assert statuses([object_at(20)], [object_at(20 - math.degrees(0.5))], TURNED) == [
        ItemStatus.VISIBLE
    ]


def test_an_object_that_goes_across_the_view_moved() -> None:
    assert statuses([object_at(20)], [object_at(8)], TURNED) == [ItemStatus.MOVED]


@pytest.mark.parametrize(('bearing_deg', 'way'), [(0.0, 'left'), (-24 - 28.6, 'right')])
def test_an_object_that_moved_is_told_with_where_it_went(bearing_deg: float, way: str) -> None:
    # At rest it would be seen 28.6 degrees farther to the right.
    first, second = (ItemView([object_at(deg)], None) for deg in (0.0, bearing_deg))
    [item] = items_between(first, second, TURNED)
    assert (item.status, item.moving) == (ItemStatus.MOVED, way)


def test_new_and_gone_objects_are_told_by_colour() -> None:
    pairs = associate([object_at(0, 'red')], [object_at(0, 'blue')], TURNED)
    assert [(pair.status, pair.earlier, pair.later) for pair in pairs] == [
        (ItemStatus.APPEARED, None, 0),
        (ItemStatus.LEFT, 0, None),
    ]


def test_of_two_alike_each_finds_its_own() -> None:
    turn = math.degrees(0.5)
    pairs = associate(
        [object_at(30), object_at(0)], [object_at(-turn), object_at(30 - turn)], TURNED
    )
    assert [(pair.earlier, pair.later) for pair in pairs] == [(1, 0), (0, 1)]
    assert {pair.status for pair in pairs} == {ItemStatus.VISIBLE}


def test_of_two_alike_none_is_said_to_move() -> None:
    turn = math.degrees(0.5)
    pairs = associate([object_at(30), object_at(-10)], [object_at(30 - turn)], TURNED)
    assert [pair.status for pair in pairs] == [ItemStatus.VISIBLE, ItemStatus.LEFT]
    pairs = associate([object_at(30), object_at(-10)], [object_at(5)], TURNED)
    assert [pair.status for pair in pairs] == [
        ItemStatus.APPEARED,
        ItemStatus.LEFT,
        ItemStatus.LEFT,
    ]


def test_a_silhouette_may_change_with_the_side_that_is_seen() -> None:
    later = object_at(20 - math.degrees(0.5), shape='blocky')
    assert statuses([object_at(20, shape='flat')], [later], TURNED) == [ItemStatus.VISIBLE]


def test_an_uncertain_motion_moves_nothing() -> None:
    [pair] = associate([object_at(20)], [object_at(8)], TURNED, slack_rad=math.radians(20))
    assert pair.status is ItemStatus.VISIBLE


def test_without_a_motion_only_colours_are_compared() -> None:
    unknown = Motion()
    assert statuses([object_at(30)], [object_at(-30)], unknown) == [ItemStatus.VISIBLE]
    assert statuses([object_at(0)], [object_at(0, 'blue')], unknown) == [
        ItemStatus.APPEARED,
        ItemStatus.LEFT,
    ]


def test_without_a_motion_of_several_alike_none_left() -> None:
    assert statuses([object_at(30), object_at(0)], [object_at(10)], Motion()) == [
        ItemStatus.VISIBLE
    ]
