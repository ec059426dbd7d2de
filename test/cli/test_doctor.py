# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

from embodied_r_ros.cli.main import main
from embodied_r_ros.doctor import installation_checks, table, transport_check
import pytest

if TYPE_CHECKING:
    from pathlib import Path


def test_lost_images_fail_with_a_remedy() -> None:
    check = transport_check({'sent': 120, 'received': 39, 'reliability': 'best_effort'})
    assert not check.ok
    assert '39 of 120' in check.detail
    assert 'rmem_max' in check.remedy
    assert check.to_json()['received'] == 39


def test_missing_model_is_found(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr('embodied_r_ros.resources._CLONE', tmp_path)
    monkeypatch.setattr('embodied_r_ros.resources._prefixes', lambda: [tmp_path])
    checks = installation_checks()
    assert not checks['model'].ok
    assert not checks['messages'].ok
    assert 'FAIL  model' in table(checks)


def test_definitions_alone_are_not_the_messages(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / 'embodied_r_msgs' / 'msg').mkdir(parents=True)
    for name in [name for name in sys.modules if name.split('.')[0] == 'embodied_r_msgs']:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(sys, 'path', [str(tmp_path)])
    check = installation_checks()['messages']
    assert not check.ok
    assert 'colcon build' in check.remedy


def test_every_failure_says_what_to_do() -> None:
    for name, check in installation_checks().items():
        assert check.ok or check.remedy, name


def test_images_really_travel(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip('rclpy')
    main(['doctor', '--json'])
    transport = json.loads(capsys.readouterr().out)['transport']
    assert (transport['sent'], transport['reliability']) == (120, 'best_effort')
    assert len(set(transport['pids'])) == 2
    assert 0 <= transport['received'] <= 120
