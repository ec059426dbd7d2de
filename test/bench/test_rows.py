# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from dataclasses import replace
import json
from typing import TYPE_CHECKING

import pytest

pytest.importorskip('embodied_r_ros.sim.indoor.world')

from bench.__main__ import main
from bench.rows import budgets_of, RowsFigures

if TYPE_CHECKING:
    from pathlib import Path

FEW = RowsFigures(bags=4, rows=100, speed=20.0, cpu_speed=25.0, peak_mb=200.0)
MANY = replace(FEW, bags=16, rows=400, peak_mb=210.0)


@pytest.mark.slow
def test_rows_of_four_times_the_bags_are_measured(tmp_path: Path) -> None:
    out = tmp_path / 'figures.json'
    options = ['--episodes', '1', '--size', '160', '120', '--rate', '5', '--json', str(out)]
    code = main(['rows', *options])
    figures = json.loads(out.read_text())
    assert code == (0 if all(budget['is_met'] for budget in figures['budgets']) else 1)
    for source in ('true', 'classical'):
        few, many = figures[source]
        assert (few['bags'], many['bags']) == (1, 4)
        assert many['rows'] > few['rows'] >= 10
        assert min(few['speed'], few['cpu_speed'], few['peak_mb']) > 0
    assert figures['true'][0]['cpu_speed'] > figures['classical'][0]['cpu_speed']


@pytest.mark.parametrize(
    ('many', 'met'),
    [
        (MANY, [True, True]),
        (replace(MANY, cpu_speed=9.9), [False, True]),
        (replace(MANY, peak_mb=241.0), [True, False]),
    ],
)
def test_slow_or_growing_fails_its_budget(many: RowsFigures, met: list[bool]) -> None:
    assert [budget.is_met for budget in budgets_of('true', FEW, many)] == met
