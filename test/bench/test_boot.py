# SPDX-License-Identifier: Apache-2.0
"""The systemd unit: its ExecStart is run as systemd would, with a stand-in for `ros2`."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING

from embodied_r_ros.common.files import shared_path
import pytest

from bench.boot import environment_of, run_service, ServiceSocket, settings_of

if TYPE_CHECKING:
    from pathlib import Path

UNIT = shared_path('config', 'systemd', 'embodied_r.service')
# Writes down how it was started, says that it is ready, and waits for the signal to end.
ROS2 = """#!{python}
import json, os, signal, sys, threading
sys.path.insert(0, {root!r})
from embodied_r_ros.common.processes import ServiceManager, Watchdog
names = ('HOME', 'PATH', 'EMBODIED_R_TEST', 'PYTEST_CURRENT_TEST', 'SOURCED')
with open({out!r}, 'w') as file:
    json.dump([sys.argv[1:], {{name: os.environ.get(name) for name in names}}], file)
over = threading.Event()
signal.signal(signal.SIGINT, lambda *_: over.set())
manager = ServiceManager(os.environ)
manager.tell('READY=1')
Watchdog(manager, [], 0.0).beat(0.0)
over.wait(30)
"""


@pytest.fixture
def environment_file(tmp_path: Path) -> Path:
    """An environment file whose set-up finds a stand-in for `ros2`."""
    ros2 = tmp_path / 'bin' / 'ros2'
    ros2.parent.mkdir()
    root, out = str(shared_path()), str(tmp_path / 'started.json')
    ros2.write_text(ROS2.format(python=sys.executable, root=root, out=out))
    ros2.chmod(0o755)
    setup = tmp_path / 'setup.bash'
    setup.write_text(f'export SOURCED=yes PATH={ros2.parent}:$PATH\n')
    file = tmp_path / 'environment'
    file.write_text(f'# as shipped\nEMBODIED_R_SETUP={setup}\nEMBODIED_R_TEST="two words"\n')
    return file


def test_the_unit_starts_the_launch_file_and_hears_that_it_is_ready(
    environment_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv('ROS_DOMAIN_ID', '77')
    with (
        ServiceSocket(tmp_path / 'notify') as heard,
        run_service(UNIT, environment_file, tmp_path, heard) as process,
    ):
        ready_s = heard.wait_for('READY=1', 20.0)
        assert heard.wait_for('WATCHDOG=1', 20.0) >= ready_s
    assert process.returncode == 0

    words, environment = json.loads((tmp_path / 'started.json').read_text())
    launch = ['launch', 'embodied_r_ros', 'embodied_r.launch.py', 'use_respawn:=true']
    assert words[:4] == launch
    assert [word.split(':=')[0] for word in words[4:]] == ['params_file', 'profile']
    assert environment['SOURCED'] == 'yes'
    assert environment['EMBODIED_R_TEST'] == 'two words'
    assert environment['PYTEST_CURRENT_TEST'] is None  # nothing of this shell


def test_the_unit_restarts_watches_and_ends_launch_as_ctrl_c_does() -> None:
    settings = settings_of(UNIT)
    assert (settings['Type'], settings['Restart']) == ('notify', 'always')
    assert (settings['KillMode'], settings['KillSignal']) == ('mixed', 'SIGINT')
    shipped = environment_of(UNIT, UNIT.with_name('environment'))
    assert shipped['WATCHDOG_USEC'] == '60000000'
    assert shipped['EMBODIED_R_SETUP'] == '/etc/embodied_r/setup.bash'
    assert 'image_topic:=' in shipped['EMBODIED_R_ARGUMENTS']


def test_the_unit_waits_for_the_network() -> None:
    lines = UNIT.read_text().splitlines()
    section = lines[: lines.index('[Service]')]
    assert {'Wants=network-online.target', 'After=network-online.target'} <= set(section)


def test_systemd_finds_nothing_wrong_with_the_unit() -> None:
    program = shutil.which('systemd-analyze')
    if not program:
        pytest.skip('systemd is not installed')
    done = subprocess.run([program, 'verify', UNIT], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout + done.stderr) == (0, '')
