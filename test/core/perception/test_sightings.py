# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
import math

from embodied_r_ros.core.perception.coloured_objects import ColouredObject
from embodied_r_ros.core.perception.items import items_between, items_in_view, ItemView
from embodied_r_ros.core.types.deltas import item_text, ItemStatus, Motion, MotionSource
import pytest

WHOLE = ColouredObject(
    'red', 'tall', 0.6, 0.0, 0.1, 0.2, (1, 0, 0), is_cut=False, is_cut_below=False, confidence=1.0
)
REMNANT = replace(WHOLE, shape='', bearing_rad=0.7, width_rad=0.02, is_cut=True)
TURNED = Motion(MotionSource.ODOMETRY, -0.1, 0.0, 0.0, (0.0, 0.0, 0.0), is_metric=True)
UNKNOWN = Motion()


def view(*objects: ColouredObject) -> ItemView:
    return ItemView(objects, None)


@pytest.mark.parametrize('motion', [TURNED, UNKNOWN])
@pytest.mark.parametrize('remnants', [0, 1, 2])
def test_what_leaves_piece_by_piece_is_gone_once(motion: Motion, remnants: int) -> None:
    views = [view(WHOLE), *[view(REMNANT)] * remnants, view(), view()]
    statuses = [
        [item.status for item in items_between(earlier, later, motion, math.pi)]
        for earlier, later in pairwise(views)
    ]
    assert statuses == [[ItemStatus.VISIBLE]] * remnants + [[ItemStatus.LEFT], []]


def test_what_is_seen_in_part_keeps_the_shape_that_was_seen_whole() -> None:
    [item] = items_between(view(WHOLE), view(REMNANT), TURNED)
    assert item.label == 'red tall object'


def test_the_angle_in_words_is_the_larger_side() -> None:
    """Messages and rows carry no width; docs/concepts.md says what 'wide' means."""
    [tall] = items_in_view(view(WHOLE))
    assert tall.size_rad == WHOLE.height_rad > WHOLE.width_rad
    assert item_text(tall) == 'red tall object 35° left (11° wide)'
