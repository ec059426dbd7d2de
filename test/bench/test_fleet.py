# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from dataclasses import replace

from bench.fleet import budgets_of, FleetFigures, table

PLAIN = FleetFigures('plain', 2, 4, 50.0, 0.0, 50.0, keyframes=80)
RAY = replace(PLAIN, way='ray', seconds=60.0, start_s=8.0, work_s=52.0)


def test_a_slow_fleet_fails_its_budget() -> None:
    for ray, is_met in ((RAY, True), (replace(RAY, work_s=55.1), False)):
        assert [budget.is_met for budget in budgets_of([PLAIN, ray])] == [is_met]


def test_calls_and_costs_are_per_recording() -> None:
    lines = table([PLAIN, RAY], 60.0).splitlines()
    assert 'asked 20.0 times per minute of recording' in lines[3]
    # 50 s of two cores for four minutes of recording.
    assert f'= {50 * 2 / 3600 / (4 / 60):.3f} core-hours' in lines[4]
