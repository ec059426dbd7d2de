# SPDX-License-Identifier: Apache-2.0
"""Containers, and what a release needs: checked as far as no daemon and no index is needed."""

from __future__ import annotations

import filecmp
import json
import re
import shutil
import subprocess
from typing import TYPE_CHECKING
from xml.etree import ElementTree

import pytest

from test.requirements.package import options_of_setup, ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

FILES = [ROOT / 'docker' / name for name in ('Dockerfile', 'Dockerfile.nvidia')]
PACKAGES = [ROOT, ROOT / 'embodied_r_msgs']


def instructions(text: str) -> Iterator[tuple[str, str]]:
    """The instructions of a Dockerfile with what follows them; lines that go on are joined."""
    lines = (line for line in text.splitlines() if not line.lstrip().startswith('#'))
    for line in re.sub(r'\\\n', ' ', '\n'.join(lines)).splitlines():
        name, _, rest = line.partition(' ')
        if name:
            yield name, rest


@pytest.mark.parametrize('file', FILES, ids=lambda file: file.name)
def test_what_an_image_copies_is_there_and_its_commands_are_shell(file: Path) -> None:
    found = list(instructions(file.read_text()))
    assert {name for name, _ in found} <= {
        *('ARG', 'FROM', 'SHELL', 'ENV', 'WORKDIR', 'COPY', 'RUN', 'USER', 'ENTRYPOINT', 'CMD')
    }
    for name, rest in found:
        if name == 'COPY':
            assert (ROOT / rest.split()[0]).exists(), rest
        if name == 'RUN':
            done = subprocess.run(['bash', '-n', '-c', rest], capture_output=True, check=False)
            assert done.returncode == 0, rest
        if name in ('CMD', 'ENTRYPOINT', 'SHELL'):
            assert json.loads(rest)
    assert [rest for name, rest in found if name == 'USER'][-1] != '0'


@pytest.mark.parametrize('file', FILES, ids=lambda file: file.name)
def test_the_linter_of_dockerfiles_finds_nothing(file: Path) -> None:
    program = shutil.which('hadolint')
    if not program:
        pytest.skip('hadolint is not installed')
    done = subprocess.run([program, file], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, '')


def test_an_image_is_built_as_the_documents_say() -> None:
    said = (ROOT / 'docs' / 'on_a_robot.md').read_text()
    steps = FILES[0].read_text()
    for step in (
        'colcon build --base-paths src src/embodied_r_ros/embodied_r_msgs',
        'python3 -m venv --system-site-packages .venv',
        'pip install -r src/embodied_r_ros/requirements/robot.txt',
        'touch .venv/COLCON_IGNORE',
    ):
        assert step in said
        assert step in steps


def test_the_image_for_gpus_has_the_vllm_of_the_package() -> None:
    [wanted] = [name for name in options_of_setup()['extras_require']['gpu'] if name[:4] == 'vllm']
    assert f"'{wanted}'" in FILES[1].read_text()


def test_the_entry_of_an_image_becomes_what_was_asked_for() -> None:
    entry = ROOT / 'docker' / 'entrypoint.sh'
    assert entry.stat().st_mode & 0o111
    assert entry.read_text().splitlines()[-1] == 'exec "$@"'
    assert subprocess.run(['bash', '-n', entry], check=False).returncode == 0


def test_the_container_for_development_sets_the_clone_up() -> None:
    content = json.loads((ROOT / '.devcontainer' / 'devcontainer.json').read_text())
    assert content['postCreateCommand'].endswith('make setup')


@pytest.mark.parametrize('folder', PACKAGES, ids=lambda folder: folder.name)
def test_a_package_can_be_released(folder: Path) -> None:
    root = ElementTree.parse(folder / 'package.xml').getroot()
    license_tag = root.find('license')
    assert license_tag is not None
    assert filecmp.cmp(folder / license_tag.attrib['file'], ROOT / 'LICENSE', shallow=False)
    urls = {str(url.attrib['type']) for url in root.iterfind('url')}
    assert urls == {'website', 'repository', 'bugtracker'}
    log = (folder / 'CHANGELOG.rst').read_text()
    assert log.splitlines()[1] == f'Changelog for package {root.findtext("name")}'
    newest = re.search(r'^(\d+\.\d+\.\d+) \(\d{4}-\d\d-\d\d\)\n-+$', log, re.MULTILINE)
    assert newest
    assert newest[1] == root.findtext('version')


def test_licences_and_changelogs_are_installed() -> None:
    files = {name for _, names in options_of_setup()['data_files'] for name in names}
    assert {'LICENSE', 'CHANGELOG.rst'} <= files
    cmake = (ROOT / 'embodied_r_msgs' / 'CMakeLists.txt').read_text()
    assert 'install(FILES CHANGELOG.rst LICENSE DESTINATION share/${PROJECT_NAME})' in cmake


def test_every_source_says_its_licence() -> None:
    folders = ('embodied_r_ros', 'training', 'bench', 'examples', 'launch', 'requirements', 'test')
    sources = [file for folder in folders for file in (ROOT / folder).rglob('*.py')]
    without = [
        file for file in sources if 'SPDX-License-Identifier: Apache-2.0' not in file.read_text()
    ]
    assert len(sources) > 500
    assert without == []
