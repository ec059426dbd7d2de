# SPDX-License-Identifier: Apache-2.0
"""The package's requirements: what is core, what is an extra, and that each is pinned."""

from __future__ import annotations

from importlib.metadata import metadata
from itertools import chain
from pathlib import Path
import re
import sys
from typing import TYPE_CHECKING
from xml.etree import ElementTree

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
import pytest

from test.requirements.package import constraints, options_of_setup, ROOT
from test.test_architecture import CORE, imports_at_start

if TYPE_CHECKING:
    from collections.abc import Iterable

FEATURES = [
    'serve',
    'train',
    'sim',
    'detector',
    'tflite',
    'fleet',
    'view',
    'bt',
    'mcp',
    'gpu',
]
PYTHONS = ('3.10', '3.11', '3.12', '3.13')
OF_THE_SYSTEM = {'numpy', 'opencv-python-headless', 'scipy', 'wordllama'}
# Of the reader of questions, imported where one is read; of wordllama only the files are used.
OF_THE_READER = {'safetensors', 'tokenizers', 'wordllama'}


def names(requirements: Iterable[str], python: str = '3.11') -> set[str]:
    """Packages that are required with a version of Python."""
    read = [Requirement(requirement) for requirement in requirements]
    environment = {'python_version': python}
    return {
        canonicalize_name(one.name)
        for one in read
        if one.marker is None or one.marker.evaluate(environment)
    }


def test_every_feature_has_its_extra() -> None:
    assert set(FEATURES) <= set(options_of_setup()['extras_require'])


@pytest.mark.parametrize('python', PYTHONS)
def test_what_the_cpu_build_names_is_pinned(python: str) -> None:
    options = options_of_setup(ROS_DISTRO='')
    extras = options['extras_require'].items()
    named = [line for extra, lines in extras if extra != 'gpu' for line in lines]
    pinned = constraints('constraints.txt', python)
    assert names([*options['install_requires'], *named], python) <= set(pinned)
    assert {version[:2] for version in pinned.values()} == {'=='}


@pytest.mark.parametrize('python', PYTHONS[1:])
def test_what_the_gpu_build_names_is_pinned(python: str) -> None:
    options = options_of_setup(ROS_DISTRO='')
    named = [
        line for extra in ('gpu', 'serve', 'train') for line in options['extras_require'][extra]
    ]
    pinned = constraints('constraints-gpu.txt', python)
    assert names([*options['install_requires'], *named], python) <= set(pinned)


@pytest.mark.parametrize('file', ['constraints.txt', 'constraints-gpu.txt'])
@pytest.mark.parametrize('python', PYTHONS)
def test_pinned_versions_are_among_those_asked_for(file: str, python: str) -> None:
    options = options_of_setup(ROS_DISTRO='')
    pinned = constraints(file, python)
    lines = chain(options['install_requires'], *options['extras_require'].values())
    for asked in map(Requirement, lines):
        version = pinned.get(canonicalize_name(asked.name), '').removeprefix('==')
        assert not version or asked.specifier.contains(version), (str(asked), version)


def test_no_version_is_admitted_that_nobody_has_tried() -> None:
    options = options_of_setup(ROS_DISTRO='')
    of_users = [v for k, v in options['extras_require'].items() if k not in {'test', 'dev'}]
    asked = [Requirement(line) for line in chain(options['install_requires'], *of_users)]
    bounds = {str(one): {part.operator for part in one.specifier} for one in asked}
    assert [name for name, signs in bounds.items() if '<' not in signs] == []
    lowest = {str(Requirement(line)) for line in options['install_requires']}
    assert [name for name in lowest if '>=' not in bounds[name]] == []


def test_numpy_and_opencv_of_a_sourced_ros_are_not_asked_for() -> None:
    alone = names(options_of_setup(ROS_DISTRO='')['install_requires'])
    beside = names(options_of_setup(ROS_DISTRO='jazzy')['install_requires'])
    assert alone - beside == OF_THE_SYSTEM
    assert beside < alone


def test_what_the_rooms_import_at_once_comes_with_the_package() -> None:
    """Optional libraries are imported in the functions that use them."""
    sources = [*CORE, *(ROOT / 'embodied_r_ros' / 'cli').rglob('*.py')]
    imported = set().union(*(imports_at_start(file) for file in sources))
    libraries = imported - sys.stdlib_module_names - {'embodied_r_ros', 'compression'}
    packages = {
        'cv2': 'opencv-python-headless', 'yaml': 'pyyaml', 'backports': 'backports-zstd',
        'httpx_sse': 'httpx-sse',
    }  # fmt: skip
    needed = {packages.get(name, name) for name in libraries}
    assert needed | OF_THE_READER == names(options_of_setup(ROS_DISTRO='')['install_requires'])


def test_colcon_is_told_that_there_are_tests() -> None:
    assert 'pytest' in options_of_setup()['extras_require']['test']


def test_definitions_of_messages_travel_with_the_package() -> None:
    files = options_of_setup()['data_files']
    shipped = {Path(folder).name: len(files) for folder, files in files if 'msgs' in folder}
    folders = [ROOT / 'embodied_r_msgs' / kind for kind in ('msg', 'srv', 'action')]
    assert shipped == {folder.name: len(list(folder.iterdir())) for folder in folders}


def test_launch_files_that_documents_name_are_installed() -> None:
    [installed] = [
        {Path(file).name for file in files}
        for folder, files in options_of_setup()['data_files']
        if Path(folder).name == 'launch'
    ]
    documents = [ROOT / 'README.md', *sorted((ROOT / 'docs').glob('*.md'))]
    named = {
        name for file in documents for name in re.findall(r'\w+\.launch\.py', file.read_text())
    }
    assert named == installed == {path.name for path in (ROOT / 'launch').iterdir()}


def test_what_messages_name_travels_with_the_package() -> None:
    files = {str(Path(file)) for _, files in options_of_setup()['data_files'] for file in files}
    sources = sorted((ROOT / 'embodied_r_ros').rglob('*.py'))
    calls = re.compile(r"""shared_path\(\s*((?:["'][\w.-]+["'](?:,\s*)?)+)\)""")
    named = {
        '/'.join(re.findall(r'[\w.-]+', call))
        for source in sources
        for call in calls.findall(source.read_text())
    }
    assert {'requirements/robot.txt', 'docs/on_a_robot.md', 'models/arm'} <= named
    for name in named:
        assert any(file == name or file.startswith(f'{name}/') for file in files), name
    pages = {page for file in sources for page in re.findall(r'docs/\w+\.md', file.read_text())}
    assert pages <= files


def test_one_version_everywhere() -> None:
    files = ('package.xml', 'embodied_r_msgs/package.xml')
    said = {ElementTree.parse(ROOT / file).findtext('version') for file in files}
    assert said == {options_of_setup()['version']}


def test_the_installed_package_offers_the_same_extras() -> None:
    assert set(metadata('embodied_r_ros').get_all('Provides-Extra') or []) == set(
        options_of_setup()['extras_require']
    )


def test_apt_brings_what_the_core_needs_where_it_has_it() -> None:
    """What has no package at apt, `requirements/robot.txt` brings."""
    depends = ElementTree.parse(ROOT / 'package.xml').iterfind('exec_depend')
    of_apt = {str(depend.text).removeprefix('python3-') for depend in depends}
    core = names(options_of_setup(ROS_DISTRO='')['install_requires'])
    short = {re.sub('^py(?=yaml)|-python-headless$', '', name) for name in core}
    assert short - of_apt == {
        'backports-zstd',
        'httpx-sse',
        'lz4',
        'mcap',
        'rosbags',
        'starlette',
        'uvicorn',
        *OF_THE_READER,
    }


def test_one_file_brings_the_rest_of_a_robot_with_the_server_of_its_models() -> None:
    options = options_of_setup(ROS_DISTRO='jazzy')
    lines = (ROOT / 'requirements' / 'robot.txt').read_text().splitlines()
    brought = [line for line in lines if line and not line.startswith('#')]
    depends = ElementTree.parse(ROOT / 'package.xml').iterfind('exec_depend')
    of_apt = {str(depend.text).removeprefix('python3-') for depend in depends} | {'pyyaml'}
    for python in PYTHONS:
        asked = [*options['install_requires'], *options['extras_require']['llama']]
        assert names(asked, python) - of_apt <= names(brought, python)
    assert not {'torch', 'transformers'} & names(brought)
    bounds = {one.name: one for one in map(Requirement, asked)}
    shared = [one for one in map(Requirement, brought) if one.name != 'numpy']
    assert [str(one) for one in shared if one.specifier != bounds[one.name].specifier] == []
    assert (
        'pip install -r src/embodied_r_ros/requirements/robot.txt'
        in (ROOT / 'docs' / 'on_a_robot.md').read_text()
    )
