# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import random

import numpy as np
import pytest

from training.eval.statistics import (
    bootstrap_interval,
    interval_over_runs,
    paired_test,
)


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


def test_one_scene_has_no_interval() -> None:
    assert bootstrap_interval([0.0, 1.0, 1.0], ['a'] * 3) is None
    alone = paired_test([1.0, 0.0], ['a', 'a'])
    assert alone is not None
    assert (alone.interval_95, alone.p_value) == (None, 1.0)


def test_sign_flips_of_few_scenes_are_counted_exactly() -> None:
    # Of the 8 patterns of three equal scenes, two reach the observed sum: all up, all down.
    found = paired_test([1.0, 1.0, 1.0], ['a', 'b', 'c'])
    assert found is not None
    assert (found.difference, found.p_value, found.scenes) == (1.0, 0.25, 3)
    zeros = paired_test([0.0] * 5, list('abcde'))
    assert zeros is not None
    assert (zeros.p_value, zeros.interval_95) == (1.0, (0.0, 0.0))


def test_rows_of_one_scene_prove_no_more_than_the_scene() -> None:
    gains = [1.0] * 40
    apart = paired_test(gains, [str(i) for i in range(40)])
    together = paired_test(gains, ['a'] * 20 + ['b'] * 20)
    assert apart is not None
    assert together is not None
    assert 0 < apart.p_value < 0.001 < 0.5 == together.p_value  # the observed one is a pattern


def test_p_values_of_models_that_are_alike_are_even() -> None:
    rng = np.random.default_rng(0)
    scenes = [str(i // 4) for i in range(80)]
    values = []
    for seed in range(200):
        found = paired_test(rng.normal(size=80).tolist(), scenes, seed)
        assert found is not None
        values.append(found.p_value)
    # Of 200, those below 0.1 are 20 on average; 8 to 36 in all but one of a thousand cases.
    assert 8 <= sum(value < 0.1 for value in values) <= 36


def test_interval_over_runs_knows_how_far_apart_runs_lie() -> None:
    scenes = [f's{i // 4}' for i in range(200)]
    even = [float(i % 4 < 2) for i in range(200)]  # each scene is half right
    best, worst = [float(i % 4 < 3) for i in range(200)], [float(i % 4 < 1) for i in range(200)]
    assert interval_over_runs([even, even], scenes) == (0.5, 0.5)
    assert interval_over_runs([best, worst], scenes) == (0.25, 0.75)
    rng = random.Random(0)
    one = [float(rng.random() < 0.5) for _ in range(200)]
    alone = bootstrap_interval(one, scenes)
    assert alone is not None
    assert interval_over_runs([one], scenes) == pytest.approx(alone, abs=0.02)
