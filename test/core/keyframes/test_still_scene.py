# SPDX-License-Identifier: Apache-2.0
"""What a camera that stands still takes for an event, and what not."""

from __future__ import annotations

import math
from typing import Any, TYPE_CHECKING

import cv2
from embodied_r_ros.core.keyframes.alignment import View
from embodied_r_ros.core.keyframes.selector import KeyframeConfig, Keyframer, KeyframeSelector
from embodied_r_ros.core.keyframes.tracks import stands
from embodied_r_ros.core.perception.classical import ClassicalPerceiver
from embodied_r_ros.core.types.deltas import NO_MOTION
import numpy as np
import pytest

from test.pictures import brighter, HEIGHT, look, noisy, plane, stream, WIDTH, with_thing

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

RATE_HZ = 10.0
CAN = (150, 60, 24, 48)  # left, top, width, height [px]


def times_of(images: Iterable[NDArray[np.uint8]], **settings: Any) -> list[float]:
    """When there is a keyframe after the first [s]."""
    selector = KeyframeSelector(KeyframeConfig(**settings))
    evaluations = [selector.evaluate(image) for image in stream(images, RATE_HZ)]
    assert all(e.reason is None or e.reason.label == 'content_change' for e in evaluations[1:])
    return [e.index / RATE_HZ for e in evaluations[1:] if e.reason]


def with_can(image: NDArray[np.uint8], lifted_px: int = 0) -> NDArray[np.uint8]:
    left, top, width, height = CAN
    changed = image.copy()
    top -= lifted_px
    changed[max(0, top) : max(0, top + height), left : left + width] = (20, 140, 240)
    return changed


def grained(images: Iterable[NDArray[np.uint8]]) -> list[NDArray[np.uint8]]:
    return [noisy(image, 3, seed) for seed, image in enumerate(images)]


def leaves(seconds: float) -> list[NDArray[np.uint8]]:
    """A bush that sways on the spot in a third of the view."""
    y, x = np.mgrid[0:HEIGHT, 0:WIDTH].astype(np.float32)
    bush = 4 * np.exp(-(((x - 80) / 45) ** 2) - ((y - 90) / 55) ** 2)
    pictures = []
    for index in range(round(seconds * RATE_HZ)):
        t = index / RATE_HZ
        sway = bush * (np.sin(4.4 * t + x / 15) + 0.6 * np.sin(8.2 * t + y / 11))
        bob = bush / 2 * np.sin(5.6 * t + x / 9)
        picture = cv2.remap(look(), x + sway, y + bob, cv2.INTER_LINEAR)
        pictures.append(np.asarray(picture, np.uint8))
    return pictures


def screen(seconds: float) -> list[NDArray[np.uint8]]:
    """A screen on which everything changes all the time."""
    rng = np.random.default_rng(3)
    pictures = []
    for _ in range(round(seconds * RATE_HZ)):
        x, y = rng.integers(0, (1180, 890))
        picture = look()
        picture[60:124, 180:276] = plane(5)[y : y + 64, x : x + 96]
        pictures.append(picture)
    return pictures


def test_a_can_that_is_lifted_is_told_once_or_twice_and_in_time() -> None:
    ways = [0] * 50 + [8 * step for step in range(14)] + [200] * 40
    times = times_of(grained(with_can(look(), way) for way in ways))
    assert 1 <= len(times) <= 2
    assert 5.0 <= times[0] <= 6.0


def test_a_can_that_vanishes_or_appears_is_told() -> None:
    pictures = [with_can(look())] * 50 + [look()] * 50 + [with_can(look())] * 40
    times = times_of(grained(pictures))
    assert len(times) == 2
    assert 5.0 < times[0] <= 6.0
    assert 10.0 < times[1] <= 11.0


def test_somebody_who_walks_through_is_told_while_and_after() -> None:
    columns = [-60] * 40 + [round(-40 + 5 * step) for step in range(82)] + [500] * 30
    times = times_of(grained(with_thing(look(), column, 50) for column in columns))
    assert times
    assert times[0] < 6.0
    assert 12.0 < times[-1] < 13.5  # the view is empty again
    assert len(times) <= 7


@pytest.mark.parametrize(
    'factors',
    [
        [0.7 + 0.2 * math.sin(2.1 * index) for index in range(100)],
        [0.6 + 0.4 * abs((index / RATE_HZ % 8) / 4 - 1) for index in range(200)],
    ],
    ids=['flicker', 'exposure'],
)
def test_light_is_no_event(factors: list[float]) -> None:
    assert times_of(grained(brighter(look(), factor) for factor in factors)) == []


def test_a_shadow_that_goes_by_is_no_event() -> None:
    x = np.arange(WIDTH)[None, :, None]
    pictures = [
        np.asarray(look() * (0.6 + 0.25 / (1 + np.exp((x - step) / 25))), np.uint8)
        for step in range(-60, 380, 3)
    ]
    assert times_of(grained(pictures)) == []


def test_a_screen_that_plays_is_hardly_an_event() -> None:
    assert len(times_of(grained(screen(30)))) <= 4


def test_swaying_leaves_are_hardly_events() -> None:
    assert len(times_of(grained(leaves(30)))) <= 3


def test_the_rate_is_bounded() -> None:
    columns = [round(160 + 130 * math.sin(0.15 * step)) for step in range(400)]
    times = times_of(grained(with_thing(look(), column, 50) for column in columns))
    assert 5 <= len(times) <= 40 / 2 + 2


def test_a_hand_that_shakes_the_camera_is_no_event() -> None:
    rng = np.random.default_rng(1)
    places = 640 + rng.normal(0, 0.3, 100), 480 + rng.normal(0, 0.3, 100)
    assert times_of(grained(look(x, y) for x, y in zip(*places, strict=True))) == []


def test_one_means_never() -> None:
    pictures = [look()] * 30 + [with_thing(look(), 160, 80)] * 30
    assert times_of(pictures, content_change=1.0) == []
    assert len(times_of(pictures)) == 1


def passing(share: float, shift_px: int) -> NDArray[np.uint8]:
    """The view of a camera that stands, with something textured and rigid before a share of it."""
    picture, width = look().copy(), round(share * WIDTH)
    left = (WIDTH - width) // 2
    lorry = np.roll(look(seed=3), shift_px, axis=1)[HEIGHT // 5 : -HEIGHT // 5, :width]
    picture[HEIGHT // 5 : -HEIGHT // 5, left : left + width] = lorry
    return picture


@pytest.mark.parametrize('share', [0.0, 0.4, 0.6])
def test_a_camera_stands_however_much_moves_before_it(share: float) -> None:
    first, second = (noisy(passing(share, 25 * n), 3, n) for n in range(2))
    assert stands(View(first), View(second))


@pytest.mark.parametrize('shift_px', [1.0, 20.0])
def test_a_camera_that_turns_does_not_stand_for_its_hood(shift_px: float) -> None:
    pictures = [look(), look(640 + shift_px)]
    for picture in pictures:
        picture[-HEIGHT // 3 :] = look()[: HEIGHT // 3]
    assert not stands(*map(View, pictures))


def test_the_motion_of_a_camera_that_stands_is_none_whatever_its_lens() -> None:
    extractor = Keyframer(KeyframeConfig(max_interval_s=0.5))
    images = stream((noisy(passing(0.6, 8 * n), 3, n) for n in range(12)), RATE_HZ)
    keyframes = list(extractor.stream(images))
    assert len(keyframes) > 2
    assert all(keyframe.motion == NO_MOTION for keyframe in keyframes[1:])
    delta = ClassicalPerceiver().perceive(*keyframes[:2])
    assert (delta.action, delta.motion) == ('stationary', NO_MOTION)
