# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
from typing import TYPE_CHECKING

from bench.__main__ import main

if TYPE_CHECKING:
    from pathlib import Path


def test_loss_at_a_kill_and_time_of_a_repair_are_measured(tmp_path: Path) -> None:
    out = tmp_path / 'figures.json'
    options = ['--kills', '2', '--mb', '2', '--cuts', '2', '--json', str(out)]
    code = main(['episodes', *options])
    figures = json.loads(out.read_text())
    assert code == (0 if all(budget['is_met'] for budget in figures['budgets']) else 1)
    assert (figures['loss']['kills'], figures['loss']['answers_lost']) == (2, 0)
    assert figures['loss']['answers'] >= 2
    assert 0 < figures['loss']['median_s'] <= figures['loss']['longest_s']
    assert 1 < figures['repair']['mb'] < 4
    assert figures['repair']['seconds'] > 0
