# SPDX-License-Identifier: Apache-2.0
"""Movement words: the rule of the design, read back, and what must hold for every way."""

from __future__ import annotations

import re

from embodied_r_ros.core.types.movement import Movement
from hypothesis import assume, given
from hypothesis import strategies as st
import pytest

from test.arm.arms import MOVEMENTS

DEADBAND_M = 0.005
ORIGIN = (0.0, 0.0, 0.0)
# Thousandths of a metre, so that halves and deadbands are met exactly.
WAYS = st.tuples(*[st.integers(-400, 400).map(lambda mm: mm / 1000)] * 3)
POSITIONS = st.tuples(*[st.floats(-2, 2)] * 3)
OPPOSITE = {
    'forward': 'backward', 'backward': 'forward', 'left': 'right', 'right': 'left',
    'up': 'down', 'down': 'up',
}  # fmt: skip


def words(way: tuple[float, ...], deadband_m: float = DEADBAND_M) -> str:
    movement = Movement.between(ORIGIN, way, deadband_m)
    return movement.words() if movement else ''


@pytest.mark.parametrize(
    ('way', 'expected'),
    [
        ((0.3, 0.0, 0.0), 'forward'),
        ((-0.3, 0.0, 0.0), 'backward'),
        ((0.0, 0.3, 0.0), 'right'),
        ((0.0, 0.0, -0.3), 'down'),
        ((0.25, 0.5, -0.26), 'slightly forward, right, down'),  # exactly half is slight
        ((0.005, 0.3, 0.0051), 'right, slightly up'),  # at the deadband is silent
        ((0.005, -0.005, 0.005), ''),
    ],
)
def test_words_of_a_way(way: tuple[float, ...], expected: str) -> None:
    assert words(way) == expected


def test_the_one_item_that_the_paper_prints() -> None:
    state, keypoint = (0.265, -0.112, 1.154), (0.254, -0.197, 0.894)
    movement = Movement.between(state, keypoint, DEADBAND_M)
    assert movement
    assert movement.words() == 'slightly backward, slightly left, down'


def test_there_are_98_movements_each_with_words_of_its_own() -> None:
    assert len(MOVEMENTS) == 5**3 - 3**3


@given(POSITIONS, POSITIONS, st.floats(0, 0.1))
def test_words_follow_the_rule_component_by_component(
    state: tuple[float, ...], keypoint: tuple[float, ...], deadband_m: float
) -> None:
    """Held against the text of the rule, written down a second time and in another way."""
    movement = Movement.between(state, keypoint, deadband_m)
    said = movement.words().split(', ') if movement else []
    way = [b - a for a, b in zip(state, keypoint, strict=True)]
    axes = [('forward', 'backward'), ('right', 'left'), ('up', 'down')]
    expected = []
    for part, (positive, negative) in zip(way, axes, strict=True):
        if not -deadband_m <= part <= deadband_m:
            is_slight = any(2 * abs(part) <= abs(other) for other in way)
            word = positive if part > 0 else negative
            expected.append(f'slightly {word}' if is_slight else word)
    assert said == expected


@given(WAYS)
def test_the_way_back_has_the_opposite_words(way: tuple[float, ...]) -> None:
    there, back = words(way), words(tuple(-part for part in way))
    assert re.sub(r'\w+', lambda match: OPPOSITE.get(match[0], match[0]), there) == back


@given(WAYS, st.permutations(range(3)))
def test_the_axes_are_treated_alike(way: tuple[float, ...], order: list[int]) -> None:
    movement = Movement.between(ORIGIN, way, DEADBAND_M)
    turned = Movement.between(ORIGIN, [way[axis] for axis in order], DEADBAND_M)
    if movement is None or turned is None:
        assert movement is turned
    else:
        assert turned.levels == tuple(movement.levels[axis] for axis in order)


@given(WAYS, st.sampled_from([2.0, 4.0, 0.5]))
def test_without_a_deadband_the_scale_does_not_matter(
    way: tuple[float, ...], scale: float
) -> None:
    assert words(way, 0.0) == words(tuple(scale * part for part in way), 0.0)


@given(WAYS)
def test_nothing_inside_the_deadband_is_told_and_everything_outside_is(
    way: tuple[float, ...],
) -> None:
    told = words(way).split(', ') if words(way) else []
    assert len(told) == sum(abs(part) > DEADBAND_M for part in way)


@given(WAYS)
def test_the_largest_component_is_never_slight(way: tuple[float, ...]) -> None:
    assume(words(way))
    assert any(not word.startswith('slightly ') for word in words(way).split(', '))


@given(WAYS)
def test_words_read_back_give_the_way_as_far_as_they_tell(way: tuple[float, ...]) -> None:
    assume(words(way))
    levels = MOVEMENTS[words(way)].levels
    for part, level in zip(way, levels, strict=True):
        assert (level > 0) == (part > DEADBAND_M)
        assert (level < 0) == (part < -DEADBAND_M)
    # A way of these levels, in any unit, has these words.
    assert Movement.between(ORIGIN, levels) == Movement(levels)


@given(st.sampled_from(list(MOVEMENTS.values())))
def test_adjacent_movements_differ_on_one_axis_and_know_each_other(movement: Movement) -> None:
    back = {'flip': 'flip', 'degree': 'degree', 'add': 'drop', 'drop': 'add'}
    near = movement.adjacent()
    assert movement not in near
    assert len(near) >= 3
    for other, how in near.items():
        changed = [(a, b) for a, b in zip(movement.levels, other.levels, strict=True) if a != b]
        assert len(changed) == 1
        assert (how == 'flip') == (sum(changed[0]) == 0)
        assert other.adjacent()[movement] == back[how]
