# SPDX-License-Identifier: Apache-2.0
"""A budget keeps what the keyframes show together, not their spacing."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

from embodied_r_ros.common.errors import ConfigError
from embodied_r_ros.core.keyframes.alignment import View
from embodied_r_ros.core.keyframes.budget import evaluate_images, KeyframeBudget
from embodied_r_ros.core.keyframes.selector import KeyframeConfig
import numpy as np
import pytest

from test.pictures import BLANK, look, stream, WIDTH, with_thing

if TYPE_CHECKING:
    from numpy.typing import NDArray

# The camera lingers at the left end, and then passes over the rest of the plane.
LINGERING = [200, 240] * 6 + [400, 560, 720, 880, 1040]


def items_in_budget(places: list[int], size: int) -> list[int]:
    budget: KeyframeBudget[int] = KeyframeBudget(size)
    for x in places:
        budget.add(x, View(look(x)))
    return [entry.item for entry in budget.entries]


def covered_px(places: list[int]) -> int:
    """Columns of the plane that are seen from the places."""
    seen = np.zeros(2000, bool)
    for x in places:
        seen[x - WIDTH // 2 : x + WIDTH // 2] = True
    return int(seen.sum())


def test_all_are_kept_within_the_budget() -> None:
    assert items_in_budget(LINGERING, 17) == LINGERING


def test_the_first_and_the_newest_stay() -> None:
    assert items_in_budget(LINGERING, 2) == [200, 1040]


def test_lingering_is_thinned_out_first() -> None:
    by_index = [LINGERING[round(i)] for i in np.linspace(0, len(LINGERING) - 1, 6)]
    kept = covered_px(items_in_budget(LINGERING, 6))
    assert kept > covered_px(by_index)
    assert kept >= 0.9 * covered_px(LINGERING)


def test_the_nearly_same_view_goes_before_one_that_only_two_others_together_show() -> None:
    budget: KeyframeBudget[str] = KeyframeBudget(3)
    views = {'left': (200, 480), 'between': (350, 480), 'right': (500, 480), 'again': (500, 500)}
    gone = [budget.add(name, View(look(x, y))) for name, (x, y) in views.items()]
    assert gone[-1] == 'right'


def test_blank_keyframes_go_first() -> None:
    budget: KeyframeBudget[str] = KeyframeBudget(3)
    images: dict[str, NDArray[np.uint8]] = {
        'a': look(seed=0),
        'b': look(seed=1),
        'dark': BLANK,
        'c': look(seed=2),
    }
    gone = [budget.add(name, View(image)) for name, image in images.items()]
    assert gone == [None, None, None, 'dark']


def test_keyframes_are_compared_with_the_one_that_is_kept_before_them() -> None:
    images = stream([look(300 + 20 * step) for step in range(35)])
    everything = list(evaluate_images(images, KeyframeConfig(max_overlap=0.8)))
    some = list(evaluate_images(images, KeyframeConfig(max_overlap=0.8), budget=5))
    assert len(everything) > 8
    assert len(some) == 5
    assert {keyframe.index for keyframe in some} < {keyframe.index for keyframe in everything}
    for earlier, later in pairwise(some):
        assert later.reference_index == earlier.index
        moved = 20 * (later.index - earlier.index)
        assert later.overlap == pytest.approx(max(0.0, 1 - moved / WIDTH), abs=0.15)


def within(budget: int, images: list[NDArray[np.uint8]]) -> list[tuple[int, int | None, str]]:
    """Index, reference and reason of the keyframes that are kept."""
    found = evaluate_images(stream(images), KeyframeConfig(), budget=budget)
    return [(k.index, k.reference_index, k.reason.label) for k in found if k.reason]


def test_reason_is_that_of_the_keyframe_before_it_that_is_kept() -> None:
    passing = [look(300 + 40 * step) for step in range(12)]
    assert within(12, passing)[-1][2] == 'low_overlap'
    assert within(2, passing) == [(0, None, 'first'), (8, 0, 'new_view')]


def test_view_that_the_camera_came_back_to_keeps_its_comparison() -> None:
    there_and_back = [look(300)] * 2 + [look(500)] * 2 + [look(300)] * 2
    assert within(2, there_and_back) == [(0, None, 'first'), (4, 2, 'low_overlap')]


def test_sudden_change_stays_one_without_the_keyframe_before_it() -> None:
    changed = with_thing(look(), 160, 120)
    images = [look()] * 2 + [look(440)] * 2 + [look()] * 20 + [changed] * 20
    assert within(9, images)[-1] == (29, 4, 'content_change')
    assert within(2, images)[-1] == (29, 0, 'content_change')


def test_first_and_blank_keyframes_stay_what_they_are() -> None:
    images = [BLANK] * 2 + [look(300)] * 2 + [look(500)] * 2 + [BLANK] * 4
    assert within(2, images) == [(0, None, 'featureless'), (7, 0, 'featureless')]


@pytest.mark.parametrize('size', [1, -1])
def test_a_budget_below_two_is_refused(size: int) -> None:
    with pytest.raises(ConfigError, match=f'budget is {size}: expected at least 2'):
        KeyframeBudget(size)


def test_a_budget_cannot_be_told_of_each_image() -> None:
    with pytest.raises(ConfigError, match='a budget of 5 keyframes cannot be told'):
        list(evaluate_images([], KeyframeConfig(), budget=5, keyframes_only=False))
