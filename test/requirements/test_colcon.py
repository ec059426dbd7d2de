# SPDX-License-Identifier: Apache-2.0
"""A build by colcon that has not found the messages says what to do."""

from __future__ import annotations

from importlib.util import find_spec
import os
import re
import subprocess
import sys
from typing import TYPE_CHECKING
from unittest import mock
from xml.etree import ElementTree

import pytest

from test.requirements.package import options_of_setup, ROOT

if TYPE_CHECKING:
    from pathlib import Path

ISOLATED = 'ws/install/embodied_r_ros'
INSTALL = ['install', '--record', 'build/install.log']
DEVELOP = ['develop', '--editable', '--build-directory', 'build']


def build(words: list[str], prefix: Path, ament_prefix_path: str = '') -> None:
    """Run setup.py as colcon does, up to where it would build."""
    with mock.patch('sys.argv', ['setup.py', *words]), mock.patch('sys.prefix', str(prefix)):
        options_of_setup(AMENT_PREFIX_PATH=ament_prefix_path)


@pytest.mark.parametrize('words', [INSTALL, DEVELOP, [*INSTALL, '--prefix', '{prefix}']])
@pytest.mark.parametrize('prefix', [ISOLATED, 'ws/install'])
def test_build_without_the_messages_ends_with_the_line_that_helps(
    tmp_path: Path, words: list[str], prefix: str
) -> None:
    given = [word.format(prefix=tmp_path / prefix) for word in words]
    line = f'cd {tmp_path}/ws && colcon build --base-paths .* {ROOT}/embodied_r_msgs$'
    with pytest.raises(SystemExit, match=f'embodied_r_msgs is not there, .*: {line}'):
        build(given, tmp_path / prefix, '/opt/ros/none')


@pytest.mark.parametrize(
    ('prefix', 'where'),
    [(ISOLATED, 'ws/install/embodied_r_msgs'), ('ws/install', 'ws/install'), (ISOLATED, 'opt')],
)
def test_build_beside_the_messages_goes_on(tmp_path: Path, prefix: str, where: str) -> None:
    share = tmp_path / where / 'share' / 'embodied_r_msgs'
    share.mkdir(parents=True)
    (share / 'package.xml').touch()
    build(INSTALL, tmp_path / prefix, f'/opt/ros/none:{tmp_path / "opt"}')


@pytest.mark.parametrize('words', [['egg_info'], ['bdist_wheel'], [*INSTALL, '--root', 'debian']])
def test_who_only_packs_needs_no_messages(tmp_path: Path, words: list[str]) -> None:
    build(words, tmp_path / ISOLATED)


def test_rosdep_brings_what_the_tests_start_with() -> None:
    depends = {depend.text for depend in ElementTree.parse(ROOT / 'package.xml').iter()}
    names = {f'python3-{name}' for name in ('pytest', 'pytest-timeout', 'hypothesis', 'packaging')}
    assert names | {'domain_coordinator'} <= depends
    asked = {re.split(r'\W', line)[0] for line in options_of_setup()['extras_require']['test']}
    assert {'pytest', 'hypothesis'} <= asked


def test_plugins_of_a_sourced_ros_do_not_keep_the_tests_from_running(tmp_path: Path) -> None:
    # As that of Jazzy with pytest 8: `path` is no argument of this hook.
    (tmp_path / 'plugin.py').write_text('def pytest_pycollect_makemodule(path, parent): ...\n')
    for name in ('launch_testing', 'launch_ros', 'launch_pytest'):
        info = tmp_path / f'{name}-1.dist-info'
        info.mkdir()
        (info / 'METADATA').write_text(f'Metadata-Version: 2.1\nName: {name}\nVersion: 1\n')
        (info / 'entry_points.txt').write_text(f'[pytest11]\n{name} = plugin\n')
    path = os.pathsep.join([str(tmp_path), os.environ.get('PYTHONPATH', '')])
    done = subprocess.run(
        [
            sys.executable,
            '-m',
            'pytest',
            '-q',
            '-p',
            'no:cacheprovider',
            'test/core/types/test_episodes.py',
        ],
        cwd=ROOT,
        env={**os.environ, 'PYTHONPATH': path},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.skipif(find_spec('colcon_ros') is None, reason='colcon is not installed')
def test_plain_build_in_a_workspace_fails_at_once_and_its_line_finds_both(tmp_path: Path) -> None:
    clone = tmp_path / 'src' / 'embodied_r_ros'
    clone.parent.mkdir()
    subprocess.run(['git', 'clone', '--quiet', '--depth=1', f'file://{ROOT}', clone], check=True)
    environment = {**os.environ, 'AMENT_PREFIX_PATH': ''}

    def colcon(words: list[str]) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, '-m', 'colcon', *words],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

    done = colcon(['build'])
    assert done.returncode != 0
    [line] = {line for line in done.stderr.splitlines() if 'error: embodied_r_msgs' in line}
    options = line.rpartition('colcon build ')[2].split()
    assert options == ['--base-paths', 'src', 'src/embodied_r_ros/embodied_r_msgs']
    names = colcon(['list', '--names-only', *options]).stdout.split()
    assert sorted(names) == ['embodied_r_msgs', 'embodied_r_ros']
