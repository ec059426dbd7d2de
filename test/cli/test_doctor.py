# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from dataclasses import replace
import hashlib
import json
from pathlib import Path
import re
import sys
from typing import Any

from embodied_r_ros.cli.main import main
from embodied_r_ros.common.files import shared_path
from embodied_r_ros.core.chat.settings import model_digest
from embodied_r_ros.nodes.doctor import (
    camera_check,
    installation_checks,
    other_publisher_check,
    server_check,
    table,
    transport_check,
)
from embodied_r_ros.serving import model_files
import pytest

from test.chat_server import ChatServer


def test_detector_is_the_file_of_its_publisher(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(model_files, 'model_folder', lambda: tmp_path)
    check = installation_checks()['detector']
    assert (check.mark, check.remedy) == ('ok', '')
    assert 'models fetch detector' in check.detail
    entry = model_files.MODEL_FILES['detector-small']
    (tmp_path / entry.file_name).write_bytes(b'something else')
    check = installation_checks()['detector']
    assert check.mark == 'FAIL'
    assert check.remedy == 'remove it, then: embodied-r models fetch detector-small'
    content = hashlib.sha256(b'something else').hexdigest()
    files = {'detector-small': replace(entry, sha256=content)}
    monkeypatch.setattr('embodied_r_ros.nodes.doctor.MODEL_FILES', files)
    assert installation_checks()['detector'].mark == 'ok'


def test_lost_images_fail_with_a_remedy() -> None:
    check = transport_check({'sent': 120, 'received': 39, 'reliability': 'best_effort'})
    assert not check.ok
    assert '39 of 120' in check.detail
    assert 'rmem_max' in check.remedy
    assert check.to_json()['received'] == 39


def test_what_another_publisher_loses_is_told_with_the_remedy_and_no_failure() -> None:
    measured = {'sent': 60, 'received': 4, 'reliability': 'best_effort'}
    check = other_publisher_check(measured)
    assert check.ok
    assert '4 of 60' in check.detail
    assert all(way in check.remedy for way in ('export ', 'reliable', 'compressed', 'sysctl'))
    assert table({'publisher': check}).startswith('warn  publisher')
    check = other_publisher_check({**measured, 'received': 60})
    assert not check.remedy
    assert table({'publisher': check}).startswith('ok    publisher')


def test_missing_model_is_found(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr('embodied_r_ros.common.files._CLONE', tmp_path)
    monkeypatch.setattr('embodied_r_ros.common.files._prefixes', lambda: [tmp_path])
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


def test_server_of_the_models_names_what_installs_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    # Programs of this environment are found beside its Python.
    (tmp_path / 'bin').mkdir()
    monkeypatch.setattr(sys, 'executable', str(tmp_path / 'bin' / 'python'))
    monkeypatch.setenv('PATH', '')
    monkeypatch.delenv('ROS_DISTRO', raising=False)
    check = installation_checks()['model_server']
    assert (check.ok, check.detail) == (False, 'transformers is not installed')
    assert check.remedy == 'pip install "embodied_r_ros[serve]"'
    program = tmp_path / 'bin' / 'transformers'
    program.write_text('#!/bin/sh\n')
    program.chmod(0o755)
    metadata = tmp_path / 'site' / 'transformers-9.dist-info' / 'METADATA'
    metadata.parent.mkdir(parents=True)
    lines = ['Metadata-Version: 2.1', 'Name: transformers', 'Version: 9']
    lines += ['Requires-Dist: numpy', 'Requires-Dist: absent-server>=1; extra == "serving"']
    metadata.write_text('\n'.join(lines) + '\n')
    monkeypatch.syspath_prepend(str(tmp_path / 'site'))
    check = installation_checks()['model_server']
    assert (check.ok, check.detail) == (False, f'{program} cannot serve without absent-server')
    assert '[serve]' in check.remedy
    monkeypatch.setenv('ROS_DISTRO', 'jazzy')
    check = installation_checks()['model_server']
    assert check.remedy == f'pip install -r {shared_path("requirements", "robot.txt")}'


def test_every_failure_says_what_to_do() -> None:
    for name, check in installation_checks().items():
        assert check.ok or check.remedy, name


def test_a_model_server_is_asked_what_it_serves() -> None:
    reader = str(shared_path('models', 'reader', 'reader.gguf'))
    with ChatServer(models=[{'id': reader}], name=reader) as server:
        check = server_check(server.url, is_wanted=True)
        assert check.ok
        assert check.values['digest'] == model_digest(Path(reader))
    arm = str(shared_path('models', 'arm'))
    with ChatServer(models=[{'id': arm}], name=arm) as server:
        check = server_check(server.url, is_wanted=True)
        assert not check.ok
        assert 'is not the model of profile embedded' in check.remedy


def test_a_token_that_cannot_be_read_is_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv('EMBODIED_R_TOKEN_FILE', '/nowhere')
    check = server_check('http://127.0.0.1:9', is_wanted=False)
    assert not check.ok
    assert 'EMBODIED_R_TOKEN_FILE names /nowhere' in check.detail


def test_an_absent_model_server_fails_only_where_it_was_asked_for() -> None:
    checks = [server_check('http://127.0.0.1:9', is_wanted=wanted) for wanted in (False, True)]
    assert [check.ok for check in checks] == [True, False]
    assert all('embodied-r serve' in check.remedy for check in checks)


@pytest.mark.parametrize(
    ('found', 'wanted', 'ok', 'said'),
    [
        ({'topics': [], 'topic': ''}, '', True, 'nobody publishes images'),
        ({'topics': ['/a'], 'topic': ''}, '/b', False, r'nobody publishes /b .*: /a\)'),
        ({'topics': ['/a'], 'topic': '/a', 'rate_hz': 0, 'age_s': None}, '', False, 'no image'),
        ({'topics': ['/a'], 'topic': '/a', 'rate_hz': 30, 'age_s': 0.02}, '', True, '30 Hz'),
        ({'topics': ['/a'], 'topic': '/a', 'rate_hz': 30, 'age_s': 900.0}, '', False, '900'),
        ({'topics': ['/a'], 'topic': '/a', 'rate_hz': 30, 'age_s': -5.0}, '', False, '-5'),
        (
            {'topics': ['/a'], 'topic': '/a', 'rate_hz': 9, 'age_s': 0.02, 'lost': 41},
            '',
            False,
            '41 were lost',
        ),
    ],
)
def test_a_camera_is_judged_by_its_images(
    found: dict[str, Any], wanted: str, ok: bool, said: str
) -> None:
    check = camera_check({'lost': None, **found}, wanted)
    assert check.ok == ok
    assert re.search(said, check.detail)
    assert ok or check.remedy


def test_a_middleware_that_is_not_there_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> str:
        msg = "failed to load 'librmw_none.so'"
        raise RuntimeError(msg)

    rclpy = pytest.importorskip('rclpy')
    monkeypatch.setattr(rclpy, 'get_rmw_implementation_identifier', fail)
    check = installation_checks()['rmw']
    assert not check.ok
    assert 'librmw_none' in check.detail


def test_images_really_travel_with_our_settings_and_those_of_the_shell(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip('rclpy')
    for name in ('FASTDDS_BUILTIN_TRANSPORTS', 'FASTRTPS_DEFAULT_PROFILES_FILE'):
        monkeypatch.delenv(name, raising=False)
    main(['doctor', '--json'])
    found = json.loads(capsys.readouterr().out)
    assert found.keys() >= {'ros', 'rmw', 'camera', 'server', 'model', 'disk', 'clock'}
    assert all({'ok', 'detail', 'remedy'} <= check.keys() for check in found.values())
    transport, publisher = found['transport'], found['publisher']
    assert (transport['sent'], transport['reliability']) == (120, 'best_effort')
    assert len(set(transport['pids'])) == 2
    assert 0 <= transport['received'] <= 120
    assert publisher['sent'] == 60
    assert publisher['ok']
    assert bool(publisher['remedy']) == (publisher['received'] < 60)
