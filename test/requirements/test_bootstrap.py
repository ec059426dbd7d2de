# SPDX-License-Identifier: Apache-2.0
"""The set-up beside a sourced ROS: its Python, NumPy and OpenCV stay in use."""

from __future__ import annotations

from importlib.util import module_from_spec, spec_from_file_location
from itertools import chain
import os
from pathlib import Path
import re
import subprocess
import sys
from typing import Any

import pytest

from test.requirements.package import options_of_setup

ROOT = Path(__file__).resolve().parents[2]
PINS = ['numpy==2.2.6', 'opencv-python-headless==4.12.0.88', 'PyYAML==6.0.3']
PANDAS = "pandas==3.1.1; python_version >= '3.11'"


@pytest.fixture
def bootstrap() -> Any:
    """A fresh copy of the module, which is a script and not in any package."""
    spec = spec_from_file_location('bootstrap', ROOT / 'requirements' / 'bootstrap.py')
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ('probed', 'pins'),
    [
        ('1.26.4 True', ['numpy<2', PINS[2]]),
        ('2.3.1 True', ['numpy<3', PINS[2]]),
        ('1.26.4 False', ['numpy<2', 'opencv-python-headless<4.12', PINS[2]]),
        ('2.3.1 False', ['numpy<3', *PINS[1:]]),
        ('- False', PINS),
        ('- True', PINS),
    ],
)
def test_numpy_and_opencv_of_the_system_are_not_hidden(
    bootstrap: Any, probed: str, pins: list[str]
) -> None:
    assert bootstrap.beside_the_system(PINS, probed) == pins


@pytest.mark.parametrize(
    ('probed', 'asked_for'),
    [('1.26.4 True', False), ('1.26.4 False', True), ('- False', True), ('', True)],
)
def test_opencv_is_asked_for_where_a_sourced_ros_has_none(
    bootstrap: Any, tmp_path: Path, probed: str, asked_for: bool
) -> None:
    bootstrap.SOURCED_ROS, bootstrap.VENV = 'jazzy', tmp_path
    bootstrap.system_says = lambda code: probed
    options = bootstrap.pinned_requirements(of_demo=False)
    assert options[:2] == ['-c', tmp_path / 'constraints.txt']
    assert ('opencv-python-headless' in options) is asked_for
    assert '-r' not in options


def test_wheels_of_ros_are_installed_where_none_is_sourced(bootstrap: Any) -> None:
    bootstrap.SOURCED_ROS = ''
    options = [str(option) for option in bootstrap.pinned_requirements(of_demo=False)]
    assert [Path(options[index + 1]).name for index in (0, 2, 4)] == [
        'constraints.txt',
        'ros.txt',
        'ros-build.txt',
    ]


# Extras that want a GPU, and whose library a stand-in is for in the tests.
UNUSED = {'gpu', 'tflite'}


@pytest.mark.parametrize(('ros', 'left_out'), [('', set()), ('jazzy', {'view'})])
def test_every_extra_that_the_tests_use_is_installed(
    bootstrap: Any, ros: str, left_out: set[str]
) -> None:
    bootstrap.SOURCED_ROS = ros
    own = set(bootstrap.extras(of_demo=False))
    assert set(options_of_setup()['extras_require']) - own == left_out | UNUSED


def test_the_demo_needs_no_torch(bootstrap: Any) -> None:
    asked = options_of_setup()
    own = [asked['extras_require'][name] for name in bootstrap.extras(of_demo=True)]
    wanted = {re.split('[^a-z_]', name)[0] for name in chain(asked['install_requires'], *own)}
    assert 'xllamacpp' in wanted
    assert not wanted & {'torch', 'transformers', 'mujoco', 'ray', 'trl'}


@pytest.mark.parametrize(
    ('arguments', 'ros', 'removed'),
    [(['demo'], '', ['cmake']), ([], '', []), (['demo'], 'jazzy', [])],
)
def test_what_only_compiles_does_not_stay(
    bootstrap: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[str],
    ros: str,
    removed: list[str],
) -> None:
    commands: list[tuple[str, ...]] = []

    def build(source: Path, build: Path, prefix: Path) -> None:
        build.mkdir(parents=True)
        (prefix / bootstrap.site_packages().relative_to(prefix) / source.name).mkdir(parents=True)

    bootstrap.SOURCED_ROS, bootstrap.VENV, bootstrap.STAMP = ros, tmp_path, tmp_path / 'stamp'
    bootstrap.ROOT = tmp_path
    bootstrap.fingerprint = lambda *, of_demo: str(of_demo)
    for name in ('check_machine', 'make_venv', 'install_requirements'):
        setattr(bootstrap, name, lambda **_: None)
    bootstrap.build_interfaces = build
    bootstrap.run = lambda *words: commands.append(tuple(map(str, words)))
    monkeypatch.setattr(sys, 'argv', ['bootstrap.py', *arguments])
    bootstrap.main()
    assert [words[-1] for words in commands if 'uninstall' in words] == removed
    assert not (tmp_path / 'build').exists()


def test_pandas_goes_with_numpy_of_the_system(bootstrap: Any) -> None:
    assert bootstrap.beside_the_system([PANDAS], '1.26.4 True') == ['pandas<3']
    assert bootstrap.beside_the_system([PANDAS], '2.3.1 True') == [PANDAS]


def test_the_probe_finds_what_is_installed(bootstrap: Any) -> None:
    said = subprocess.run([sys.executable, '-c', bootstrap.PROBE], capture_output=True, check=True)
    numpy, opencv = said.stdout.decode().split()
    assert (numpy[0].isdigit(), opencv) == (True, 'True')


@pytest.mark.parametrize(
    ('ros', 'sees_system', 'minor', 'fits'),
    [
        ('', 'false', sys.version_info.minor, True),
        ('jazzy', 'true', sys.version_info.minor, True),
        ('jazzy', 'false', sys.version_info.minor, False),
        ('', 'true', sys.version_info.minor, False),
        ('', 'false', sys.version_info.minor - 1, False),
    ],
)
def test_an_environment_of_another_kind_is_not_kept(
    bootstrap: Any, ros: str, sees_system: str, minor: int, fits: bool
) -> None:
    bootstrap.SOURCED_ROS = ros
    config = (
        f'home = /usr/bin\ninclude-system-site-packages = {sees_system}\nversion = 3.{minor}.2\n'
    )
    assert bootstrap.fits(config) is fits


def test_a_python_that_is_not_that_of_ros_is_refused(bootstrap: Any) -> None:
    bootstrap.SOURCED_ROS = 'jazzy'
    bootstrap.system_says = lambda code: ''
    with pytest.raises(SystemExit, match=r'jazzy, but Python .* cannot import rclpy'):
        bootstrap.check_machine(of_demo=False)


@pytest.mark.parametrize(('ros', 'python'), [('', 'python3.11'), ('jazzy', 'python3')])
def test_make_takes_the_python_of_a_sourced_ros(tmp_path: Path, ros: str, python: str) -> None:
    for name in ('python3.11', 'python3'):
        (tmp_path / name).write_text('#!/bin/sh\n')
        (tmp_path / name).chmod(0o755)
    environment = {'PATH': f'{tmp_path}:{os.environ["PATH"]}', 'ROS_DISTRO': ros}
    done = subprocess.run(
        ['make', '--no-print-directory', '-n', 'setup'],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.splitlines()[-1] == f'{python} requirements/bootstrap.py'
