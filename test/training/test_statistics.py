# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from training.statistics import bootstrap_interval


def test_interval_holds_the_mean_and_narrows_with_scenes() -> None:
    few = bootstrap_interval([0.0, 1.0] * 10, [str(i) for i in range(20)])
    many = bootstrap_interval([0.0, 1.0] * 500, [str(i) for i in range(1000)])
    assert few is not None
    assert many is not None
    assert few[0] < many[0] < 0.5 < many[1] < few[1]


def test_rows_of_one_scene_are_not_independent() -> None:
    values = [0.0] * 50 + [1.0] * 50
    apart = bootstrap_interval(values, [str(i) for i in range(100)])
    together = bootstrap_interval(values, ['a'] * 50 + ['b'] * 50)
    assert apart is not None
    assert together == (0.0, 1.0)
    assert apart[1] - apart[0] < 0.3


def test_no_values_have_no_interval() -> None:
    assert bootstrap_interval([], []) is None
