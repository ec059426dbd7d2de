# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING

import pytest

pytest.importorskip('rclpy')
pytest.importorskip('embodied_r_msgs.msg')
pytest.importorskip('transformers')

from bench.__main__ import main

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize('fault', ['spatial_reasoner', 'model server', 'camera'])
def test_answers_are_fresh_again_after_a_fault(tmp_path: Path, fault: str) -> None:
    file = tmp_path / 'recovery.json'
    main(['recovery', '--times', '1', '--only', fault, '--json', str(file)])
    figures = json.loads(file.read_text())
    [recovery] = figures['recoveries']
    assert recovery['fault'] == fault
    assert math.isfinite(recovery['back_s'])
    assert [budget['limit'] for budget in figures['budgets']] == [
        {'model server': 20.0, 'camera': 3.0}.get(fault, 10.0)
    ]
