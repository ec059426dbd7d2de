# SPDX-License-Identifier: Apache-2.0
"""The bench of the simulated arm's ceiling and floor."""

from __future__ import annotations

from importlib.util import find_spec
import json
from typing import TYPE_CHECKING

import pytest

if find_spec('metaworld') is None:
    pytest.skip('Meta-World is not installed', allow_module_level=True)
pytest.importorskip('embodied_r_ros.sim.indoor.world')

from bench.__main__ import main

if TYPE_CHECKING:
    from pathlib import Path

RUN = ['arm_loop', '--episodes', '1', '--task', 'stack', '--seed', '5']


def test_ceiling_and_floor_are_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*RUN, '--sight', 'known', '--json', str(tmp_path / 'a.json')]) == 0
    assert 'PASS  oracle, stack, things known' in capsys.readouterr().out
    [row] = json.loads((tmp_path / 'a.json').read_text())['figures']
    assert (row['oracle'], row['random'], row['nearest']) == (1.0, 0.0, 0.0)


def test_a_drawer_is_led_to_by_the_file_of_its_robot(capsys: pytest.CaptureFixture[str]) -> None:
    words = ['arm_loop', '--episodes', '1', '--task', 'drawer', '--seed', '44000']
    assert main([*words, '--sight', 'known']) == 0
    assert 'PASS  oracle, drawer, things known' in capsys.readouterr().out


def test_a_ceiling_that_is_too_low_fails(tmp_path: Path) -> None:
    robot = tmp_path / 'blind.yaml'
    robot.write_text(
        'metadata: {workspace_low: [-0.1, -0.25, 0.2], workspace_high: [0.3, 0.25, 0.3]}\n'
    )
    assert main([*RUN, '--sight', 'known', '--robot', str(robot)]) == 1
