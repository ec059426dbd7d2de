# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip('torch')

from training.promote import gate, Latency, PromotionGateConfig, table

GOOD = {
    'difference': 0.05,
    'interval_95': (0.01, 0.09),
    'p_value': 0.02,
    'first': {
        'format': 0.99,
        'consistency': 0.9,
        'unknown': {'precision': 0.8, 'recall': 0.8},
        'answered': 0.5,
        'wrong': 0.1,
    },
    'second': {
        'format': 0.99,
        'consistency': 0.95,
        'unknown': {'precision': 0.8, 'recall': 0.8},
        'answered': 0.8,
        'wrong': 0.2,
    },
}
EVEN = Latency(1.0, 2.0, 20), Latency(1.0, 2.0, 20)


def failed_checks(
    comparison: dict[str, Any], latency: tuple[Latency, Latency] | None = EVEN, **settings: Any
) -> list[str]:
    is_judged = settings.pop('is_judged', True)
    checks = gate(comparison, latency, PromotionGateConfig(**settings), is_judged=is_judged)
    assert ('REFUSED' in table(checks)) == any(not check.passed for check in checks)
    return [check.name for check in checks if not check.passed]


def with_second(**values: Any) -> dict[str, Any]:
    return {**GOOD, 'second': {**GOOD['second'], **values}}  # type: ignore[dict-item]


def test_better_candidate_passes() -> None:
    assert failed_checks(GOOD) == []


def test_gain_must_be_proven() -> None:
    unproven = {**GOOD, 'interval_95': (-0.01, 0.11)}
    assert failed_checks(unproven) == ['gain']
    assert failed_checks(unproven, min_gain=-0.02) == []
    assert failed_checks(GOOD, min_gain=0.02) == ['gain']
    chance = {**GOOD, 'interval_95': (0.05, 0.05), 'p_value': 0.0625}  # five scenes
    assert failed_checks(chance) == ['gain']
    assert failed_checks(chance, min_gain=-0.02) == []


def test_candidate_that_answers_as_the_incumbent_does_has_gained_nothing() -> None:
    same = {**GOOD, 'difference': 0.0, 'interval_95': (0.0, 0.0), 'p_value': 1.0}
    assert failed_checks(same) == ['gain']
    assert failed_checks(same, min_gain=-0.001) == []


@pytest.mark.parametrize(
    ('values', 'names'),
    [
        ({'format': 0.9}, ['format']),
        ({'wrong': 0.201}, ['wrong']),
        ({'consistency': 0.5}, ['consistency']),
        ({'unknown': {'precision': 0.7, 'recall': 0.8}}, ['unknown: precision']),
        ({'unknown': {'precision': 0.76, 'recall': 0.7}}, ['unknown: recall']),
        (
            {'unknown': {'precision': None, 'recall': 0.0}},
            ['unknown: precision', 'unknown: recall'],
        ),
    ],
)
def test_what_got_worse_is_named(values: dict[str, Any], names: list[str]) -> None:
    assert failed_checks(with_second(**values)) == names


def test_gate_without_conditions_lets_everything_pass() -> None:
    worst = with_second(format=0.0, consistency=0.0, unknown={'precision': None, 'recall': 0.0})
    worst |= {'difference': -1.0, 'interval_95': (-1.0, -1.0)}
    open_gate = {'min_gain': -1.0, 'min_format': 0.0, 'min_consistency': 0.0}
    assert failed_checks(worst, None, **open_gate) == ['unknown: precision', 'unknown: recall']
    assert failed_checks(worst, None, **open_gate, max_unknown_loss=1.0) == []


def test_consistency_that_nobody_judged_passes_only_where_nobody_asked() -> None:
    unjudged = with_second(consistency=None)
    assert failed_checks(unjudged) == ['consistency']
    assert failed_checks(unjudged, is_judged=False) == []
    assert 'not judged' in table(gate(unjudged, None, PromotionGateConfig(), is_judged=False))


def test_slower_candidate_is_refused() -> None:
    slower = EVEN[0], Latency(1.4, 3.5, 20)
    assert failed_checks(GOOD, slower) == ['latency p95']
    assert failed_checks(GOOD, slower, max_latency_ratio=1.3) == ['latency p50', 'latency p95']
    assert failed_checks(GOOD, None) == []
