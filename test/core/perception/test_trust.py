# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import math
from typing import TYPE_CHECKING

from embodied_r_ros.core.perception.fusion import fused_objects
from embodied_r_ros.core.perception.items import items_between, items_in_view, ItemView
from embodied_r_ros.core.perception.trust import by_size, confidence_of, seen_twice, together
from embodied_r_ros.core.scene.camera import CameraView
from embodied_r_ros.core.scene.landmark_map import LandmarkMap
from embodied_r_ros.core.scene.tools import Scene
from embodied_r_ros.core.types.deltas import (
    change_text,
    DeltaKind,
    Item,
    ItemStatus,
    Motion,
    MotionSource,
    SemanticDelta,
    SURE,
)
from embodied_r_ros.core.types.geometry import Intrinsics, Pose
from embodied_r_ros.core.types.vocabulary import Detection
import numpy as np
import pytest

if TYPE_CHECKING:
    from collections.abc import Sequence

    from embodied_r_ros.core.perception.coloured_objects import ColouredObject

IMAGE = np.full((240, 320, 3), 90, np.uint8)
LENS = Intrinsics.from_fov(320, 240, math.radians(70))
BOX = (40.0, 40.0, 140.0, 200.0)
STILL = Motion(MotionSource.ODOMETRY, 0.0, 0.0, 0.0, (0.0, 0.0, 0.0), is_metric=True)


def fused(*detections: Detection) -> list[tuple[str, float]]:
    return [(one.name, one.confidence) for one in fused_objects(detections, (), IMAGE, LENS)]


def seen(name: str, confidence: float) -> ColouredObject:
    (thing,) = fused_objects([Detection(name, confidence, BOX)], (), IMAGE, LENS)
    return thing


def delta(items: Sequence[Item], number: int = 0) -> SemanticDelta:
    kind = DeltaKind.FIRST
    return SemanticDelta(number * 10**9, kind, number, number, items=tuple(items))


def test_what_reaches_the_threshold_of_its_class_is_sure() -> None:
    assert confidence_of(0.5, 'nanodet', 'cup') < SURE < confidence_of(0.7, 'nanodet', 'cup')
    assert confidence_of(0.5, 'ssd', 'chair') > SURE > confidence_of(0.4, 'ssd', 'chair')
    # A threshold that the user gives is one for all.
    assert confidence_of(0.3, 'ssd', 'chair', 0.3) == confidence_of(0.3, 'yolox', 'cup', 0.3)
    assert confidence_of(0.3, 'ssd', 'chair', 0.3) == SURE


def test_two_detectors_that_agree_are_surer_than_each() -> None:
    one, other = Detection('chair', 0.4, BOX, 'a'), Detection('chair', 0.3, BOX, 'b')
    [(name, confidence)] = fused(one, other)
    assert name == 'chair'
    assert confidence == pytest.approx(together(0.4, 0.3))
    # A detector that says it twice says it once.
    assert fused(one, Detection('chair', 0.3, BOX, 'a')) == [('chair', 0.4)]


def test_two_names_for_one_place_make_the_surer_one_less_sure() -> None:
    person, dog = Detection('person', 0.6, BOX, 'a'), Detection('dog', 0.5, BOX, 'b')
    [(name, confidence)] = fused(person, dog)
    assert name == 'person'
    assert confidence == pytest.approx(0.45)


def test_the_head_of_a_dog_is_no_second_dog() -> None:
    head = Detection('dog', 0.5, (45.0, 45.0, 90.0, 90.0), 'b')
    assert fused(Detection('dog', 0.6, BOX, 'a'), head) == [('dog', 0.6)]


def test_a_name_is_in_view_after_two_sights() -> None:
    assert seen_twice(0.47, 0.47) > SURE > seen_twice(0.36, 0.36)
    view = ItemView((seen('chair', 0.47),), None)
    (alone,) = items_in_view(view)
    (twice,) = items_between(view, view, STILL)
    assert alone.is_doubtful
    assert not twice.is_doubtful
    assert change_text([alone]).startswith('In view: maybe chair ')
    assert change_text([twice]).startswith('In view: chair ')


def test_what_was_doubtful_has_not_left() -> None:
    nothing = ItemView((), None)
    assert items_between(ItemView((seen('chair', 0.4),), None), nothing, STILL) == []
    (gone,) = items_between(ItemView((seen('chair', 0.8),), None), nothing, STILL)
    assert gone.status is ItemStatus.LEFT


@pytest.mark.parametrize(
    ('name', 'width_m', 'height_m', 'cut', 'is_possible'),
    [
        ('person', 0.2, 0.3, False, False),
        ('person', 0.2, 0.3, True, True),  # the rest may be beyond the edge
        ('person', 0.5, 1.2, False, True),
        ('red bench', 6.0, 0.5, False, False),
        ('car', 0.3, 0.2, False, False),
        ('unicorn', 30.0, 30.0, False, True),  # nobody knows
    ],
)
def test_what_cannot_be_is_doubted(
    name: str, width_m: float, height_m: float, cut: bool, is_possible: bool
) -> None:
    assert (by_size(0.9, name, width_m, height_m, cut=cut) >= SURE) is is_possible


def test_a_size_is_that_of_a_thing_at_its_distance() -> None:
    def item_at(distance_m: float) -> Item:
        depth = np.full((240, 320), distance_m, np.float32)
        (item,) = items_in_view(
            ItemView((seen('person', 0.9),), None, depth=depth, intrinsics=LENS)
        )
        return item

    assert item_at(0.5).is_doubtful
    assert not item_at(2.5).is_doubtful


def test_what_is_doubtful_is_no_landmark_and_no_answer() -> None:
    def item(confidence: float) -> Item:
        return Item('chair', ItemStatus.VISIBLE, 0.0, 0.0, 0.3, 2.0, confidence)

    view = CameraView(Pose((0.0, 0.0, 1.0), (0.0, 0.0, 0.0, 1.0), 'odom'))
    scene_map = LandmarkMap()
    for number in range(3):
        scene_map.add(delta([item(0.4)], number), view)
    assert len(scene_map) == 0
    assert Scene([delta([item(0.4)])], None).all_things == ()
    assert len(Scene([delta([item(0.6)])], None).all_things) == 1
    scene_map.add(delta([item(0.9)], 3), view)
    scene_map.add(delta([item(0.4)], 4), view)  # a doubtful look at what is known supports it
    (landmark,) = scene_map.scene_map().landmarks
    assert landmark.observations == 2


def test_a_colour_of_no_name_is_not_doubted() -> None:
    assert not Item('red tall object', confidence=0.1).is_doubtful
    assert not Item('chair').is_doubtful
