# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

pytest.importorskip('torch')
pytest.importorskip('trl')
pytest.importorskip('embodied_r_ros.sim.indoor.world')

from bench.__main__ import main

if TYPE_CHECKING:
    from pathlib import Path


def test_both_ways_write_the_same_completions(tmp_path: Path) -> None:
    out = tmp_path / 'figures.json'
    small = ['--prompts', '2', '--completions', '4', '--steps', '1', '--rooms', '2']
    code = main(
        [
            'sharing',
            *small,
            '--tokens',
            '16',
            '--json',
            str(out),
            '--markdown',
            str(tmp_path / 'page.md'),
        ]
    )
    assert '| generation |' in (tmp_path / 'page.md').read_text()
    found = json.loads(out.read_text())
    assert code == (0 if found['budgets'][0]['is_met'] else 1)
    plain, shared = found['plain'], found['shared']
    assert 0 < plain['completion_tokens'] == shared['completion_tokens'] <= 16
    assert found['budgets'][0]['value'] == shared['parts_s']['step'] / plain['parts_s']['step']
