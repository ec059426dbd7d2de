# SPDX-License-Identifier: Apache-2.0
"""A budget keeps what the keyframes show together, not their spacing."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

from embodied_r_ros.errors import ConfigError
from embodied_r_ros.keyframe_budget import evaluate_images, KeyframeBudget
from embodied_r_ros.keyframes import KeyframeConfig
from embodied_r_ros.vision.views import View
import numpy as np
import pytest

from test.pictures import BLANK, look, stream, WIDTH

if TYPE_CHECKING:
    from numpy.typing import NDArray

# The camera lingers at the left end, and then passes over the rest of the plane.
LINGERING = [200, 240] * 6 + [400, 560, 720, 880, 1040]


def kept(places: list[int], size: int) -> list[int]:
    budget: KeyframeBudget[int] = KeyframeBudget(size)
    for x in places:
        budget.add(x, View(look(x)))
    return [entry.item for entry in budget.kept]


def covered_px(places: list[int]) -> int:
    """Columns of the plane that are seen from the places."""
    seen = np.zeros(2000, bool)
    for x in places:
        seen[x - WIDTH // 2 : x + WIDTH // 2] = True
    return int(seen.sum())


def test_all_are_kept_within_the_budget() -> None:
    assert kept(LINGERING, 17) == LINGERING


def test_the_first_and_the_newest_stay() -> None:
    assert kept(LINGERING, 2) == [200, 1040]


@pytest.mark.parametrize('size', [5, 6, 7])
def test_lingering_is_thinned_out_first(size: int) -> None:
    by_index = [LINGERING[round(i)] for i in np.linspace(0, len(LINGERING) - 1, size)]
    assert covered_px(kept(LINGERING, size)) > covered_px(by_index)
    assert covered_px(kept(LINGERING, size)) >= 0.9 * covered_px(LINGERING)


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


@pytest.mark.parametrize('size', [1, -1])
def test_a_budget_below_two_is_refused(size: int) -> None:
    with pytest.raises(ConfigError, match=f'budget is {size}: expected at least 2'):
        KeyframeBudget(size)


def test_a_budget_cannot_be_told_of_each_image() -> None:
    with pytest.raises(ConfigError, match='a budget of 5 keyframes cannot be told'):
        list(evaluate_images([], KeyframeConfig(), budget=5, keyframes_only=False))
