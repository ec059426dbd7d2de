# SPDX-License-Identifier: Apache-2.0
"""Containers, and what a release needs: checked as far as no daemon and no index is needed."""

from __future__ import annotations

import filecmp
import json
import re
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING
from xml.etree import ElementTree

import pytest
import yaml

from test.requirements.package import options_of_setup, ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

FILES = [ROOT / 'docker' / name for name in ('Dockerfile', 'Dockerfile.nvidia')]
PACKAGES = [ROOT, ROOT / 'embodied_r_msgs']
CHAPTERS = {'arm': 'Arms', 'reader': 'Answers'}  # of docs/results.md
RECORDINGS = '~/embodied_r:/home/robot/embodied_r'
# As apt's: it runs in a Python that knows nothing of the environment.
ROS2 = '#!{python}\nfrom ros2cli.cli import main\nraise SystemExit(main())\n'
LAUNCH = (
    'def main() -> None:\n    import of_the_environment\n    print(of_the_environment.__file__)\n'
)
# As colcon and ament write them: what is on a path already stays where it is.
SETUP = """
case ":$PATH:" in *:{ros}/bin:*) ;; *) export PATH="{ros}/bin:$PATH" ;; esac
export PYTHONPATH={ros}/lib
"""


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
        *('ARG', 'FROM', 'SHELL', 'ENV', 'WORKDIR', 'COPY', 'RUN', 'USER', 'ENTRYPOINT', 'CMD'),
        'STOPSIGNAL',
    }
    for name, rest in found:
        if name == 'COPY':
            assert (ROOT / rest.split()[0]).exists(), rest
        if name == 'RUN':
            done = subprocess.run(['bash', '-n', '-c', rest], capture_output=True, check=False)
            assert done.returncode == 0, rest
        if name in ('CMD', 'ENTRYPOINT', 'SHELL'):
            assert json.loads(rest)
    assert [rest for name, rest in found if name == 'USER'][-1] == 'robot'


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
        'install -m 755 src/embodied_r_ros/config/bin/ros2 .venv/bin',
    ):
        assert step in said
        assert step in steps


def test_the_documents_name_the_distributions_of_the_image() -> None:
    [named] = re.findall(r'^# ROS_DISTRO may be (.*)\.$', FILES[0].read_text(), re.MULTILINE)
    *others, last = (name.capitalize() for name in named.split(', '))
    said = f'ROS 2 ({", ".join(others)} or {last})'
    assert said in (ROOT / 'docs' / 'on_a_robot.md').read_text()
    for page in (ROOT / 'README.md', ROOT / 'docs' / 'is_this_for_me.md'):
        assert f'ROS 2 {others[0]} to {last} ' in page.read_text()


def test_the_image_for_gpus_has_the_vllm_of_the_package() -> None:
    [wanted] = [name for name in options_of_setup()['extras_require']['gpu'] if name[:4] == 'vllm']
    assert f"'{wanted}'" in FILES[1].read_text()


def test_the_entry_of_an_image_becomes_what_was_asked_for() -> None:
    entry = ROOT / 'docker' / 'entrypoint.sh'
    assert entry.stat().st_mode & 0o111
    assert entry.read_text().splitlines()[-1] == 'exec "$@"'
    assert subprocess.run(['bash', '-n', entry], check=False).returncode == 0


def test_an_image_is_told_to_stop_as_by_ctrl_c() -> None:
    base, other = (list(instructions(file.read_text())) for file in FILES)
    assert ('STOPSIGNAL', 'SIGINT') in base
    assert ('FROM', '${BASE}') in other  # it inherits the signal


@pytest.mark.parametrize('has_ubuntu', [True, False])
def test_the_user_of_an_image_is_the_one_who_built_it(tmp_path: Path, *, has_ubuntu: bool) -> None:
    found = list(instructions(FILES[0].read_text()))
    assert ('ARG', 'UID=1000') in found
    [step] = [rest for name, rest in found if name == 'RUN' and 'useradd' in rest]
    for program, code in (('getent', int(not has_ubuntu)), ('userdel', 0), ('useradd', 0)):
        stand_in = tmp_path / program
        stand_in.write_text(f'#!/bin/sh\necho {program} "$@"\nexit {code}\n')
        stand_in.chmod(0o755)
    [shell] = [json.loads(rest) for name, rest in found if name == 'SHELL']
    environment = {'UID': '1234', 'PATH': f'{tmp_path}:/usr/bin:/bin'}
    done = subprocess.run(
        [*shell, step], env=environment, capture_output=True, text=True, check=True
    )
    removal = ['userdel --remove ubuntu'] if has_ubuntu else []
    user = 'useradd --uid 1234 --create-home --shell /bin/bash robot'
    assert done.stdout.splitlines() == ['getent passwd ubuntu', *removal, user]


def test_containers_are_run_with_a_volume_and_time_to_close_it() -> None:
    lines = (ROOT / 'docs' / 'on_a_robot.md').read_text().splitlines()
    runs = [line.split() for line in lines if line.startswith('docker run ')]
    assert [words[-1] for words in runs] == ['embodied_r_ros', 'embodied_r_ros:nvidia']
    for words in runs:
        assert words[words.index('-v') + 1] == RECORDINGS
        assert words[words.index('--stop-timeout') + 1] == '45'  # as TimeoutStopSec of the unit
    assert any('--build-arg UID=$(id -u)' in line for line in lines)


@pytest.fixture
def robot(tmp_path: Path) -> Path:
    """A folder with a ROS and a workspace whose environment has a package of its own."""
    ros, workspace = tmp_path / 'opt/ros/jazzy', tmp_path / 'ws'
    files = {
        ros / 'setup.bash': SETUP.format(ros=ros),
        workspace / 'install/setup.bash': SETUP.format(ros=ros),
        ros / 'bin/ros2': ROS2.format(python=sys.executable),
        ros / 'lib/ros2cli/cli.py': LAUNCH,
    }
    for file, text in files.items():
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    (ros / 'bin/ros2').chmod(0o755)
    subprocess.run(
        [sys.executable, '-m', 'venv', '--without-pip', workspace / '.venv'], check=True
    )
    [library] = (workspace / '.venv/lib').glob('python*/site-packages')
    (library / 'of_the_environment.py').touch()
    (workspace / 'src').mkdir()
    (workspace / 'src/embodied_r_ros').symlink_to(ROOT)
    return tmp_path


@pytest.mark.parametrize(
    ('name', 'run'),
    [
        ('docker/entrypoint.sh', 'bash ./sourced ros2 launch'),
        ('config/systemd/setup.bash', '. ./sourced && ros2 launch'),
        # As in the shell of who builds.
        ('', '. opt/ros/jazzy/setup.bash; . ws/.venv/bin/activate; . ws/install/setup.bash; ros2'),
    ],
)
def test_launch_files_run_in_the_environment(robot: Path, name: str, run: str) -> None:
    said = (ROOT / 'docs' / 'on_a_robot.md').read_text()
    step = re.search(r'^install .* \.venv/bin$', said, re.MULTILINE)
    assert step
    subprocess.run(['bash', '-c', step[0]], cwd=robot / 'ws', check=True)
    text = (ROOT / name).read_text() if name else ''
    places = re.sub(r'(/home/robot)?/ws\b', f'{robot}/ws', text)
    places = places.replace('/opt/ros', f'{robot}/opt/ros')
    (robot / 'sourced').write_text(places)
    environment = {'PATH': '/usr/bin:/bin', 'ROS_DISTRO': 'jazzy'}
    done = subprocess.run(
        ['bash', '-c', run],
        cwd=robot,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(str(robot / 'ws/.venv'))


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


@pytest.mark.parametrize('name', CHAPTERS)
def test_the_card_of_a_model_has_the_figures_of_the_results(name: str) -> None:
    head = yaml.safe_load((ROOT / 'models' / name / 'README.md').read_text().split('---\n')[1])
    assert {'license', 'library_name', 'pipeline_tag', 'datasets'} <= set(head)
    assert ('base_model' in head) is (head['library_name'] == 'peft')
    [model] = head['model-index']
    assert model['name'] == name
    chapter = (ROOT / 'docs' / 'results.md').read_text().partition(f'\n## {CHAPTERS[name]}\n')[2]
    chapter = chapter.partition('\n## ')[0]
    for result in model['results']:
        about = chapter.partition(f'\n| {result["dataset"]["name"]}')[2] or chapter
        if name == 'reader':  # its row comes after that of the tools
            about = about.partition('`embedded`')[2].partition('\n')[0]
        for metric in result['metrics']:
            is_share = metric['type'] == 'success_rate'
            row = f'\n| {metric["name"]} | {metric["value"]:.2f} ('
            assert (row if is_share else f' {metric["value"]} %') in about, metric


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
