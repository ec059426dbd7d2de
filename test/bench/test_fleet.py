# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from dataclasses import replace

import pytest

from bench.fleet import budgets_of, FleetFigures, SimulationFigures, table

PLAIN = FleetFigures('plain', 2, 4, 50.0, 0.0, 50.0, keyframes=80)
RAY = replace(PLAIN, way='ray', seconds=60.0, start_s=8.0, work_s=52.0)
SIMULATED = SimulationFigures(1000, 10.0, 9, 1009, 300.0, (200.0, 210.0))


@pytest.mark.parametrize(
    ('ray', 'simulated', 'met'),
    [
        (RAY, SIMULATED, [True, True]),
        (replace(RAY, work_s=55.1), SIMULATED, [False, True]),
        (RAY, replace(SIMULATED, memory_mb=(200.0, 250.0, 230.0)), [True, False]),
    ],
)
def test_slow_or_growing_fails_its_budget(
    ray: FleetFigures, simulated: SimulationFigures, met: list[bool]
) -> None:
    assert [budget.is_met for budget in budgets_of([PLAIN, ray], simulated)] == met


def test_calls_and_costs_are_per_recording() -> None:
    lines = table([PLAIN, RAY], SIMULATED, 60.0).splitlines()
    assert 'asked 20.0 times per minute of recording' in lines[3]
    # 50 s of two cores for four minutes of recording.
    assert f'= {50 * 2 / 3600 / (4 / 60):.3f} core-hours' in lines[4]
    assert '10.0 ms each; 1009 attempts, 9 given up' in lines[5]
