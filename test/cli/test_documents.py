# SPDX-License-Identifier: Apache-2.0
"""The commands of the documents are taken, what they name is there, and links lead somewhere."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
import re
from typing import TYPE_CHECKING

from embodied_r_ros.cli.main import _parse
import pytest

from bench.__main__ import main as bench_main
from test.documents import (
    commands_of,
    commands_of_config,
    CONFIGS,
    inputs_of,
    is_there,
    outputs_of,
    PAGES,
    ParsedError,
    parsing_alone,
    ROOT,
)

if TYPE_CHECKING:
    from test.documents import DocumentCommand

COMMANDS = {page: commands_of(page) for page in PAGES} | {
    config: commands_of_config(config) for config in CONFIGS
}
EVERY = list({(str(c), c.is_whole): c for page in COMMANDS.values() for c in page}.values())
LACKING = 'the following arguments are required'  # of what is named within a sentence


def is_template(command: DocumentCommand) -> bool:
    """Whether it is the pattern of many commands."""
    return bool({'VERB', 'NODE'} & set(command.words))


def fill_in(word: str) -> str:
    """A word with values in place of what readers fill in."""
    return {'TASK': 'pick', 'T': 'pick'}.get(word, re.sub(r'\$\w+', '1', word))


@pytest.mark.parametrize('command', [c for c in EVERY if c.verb and not is_template(c)], ids=str)
def test_verbs_take_their_commands(
    command: DocumentCommand, capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        assert _parse(list(map(fill_in, command.verb)))
    except SystemExit:
        message = capsys.readouterr().err
        assert not command.is_whole, message
        assert LACKING in message


@pytest.mark.parametrize('command', [c for c in EVERY if c.module == 'bench'], ids=str)
def test_benches_take_their_commands(
    command: DocumentCommand, monkeypatch: pytest.MonkeyPatch
) -> None:
    with parsing_alone(monkeypatch), pytest.raises(ParsedError) as read:
        bench_main(command.arguments)
    assert read.value.args == ([],)


def test_modules_of_commands_are_there() -> None:
    others = {'venv', 'colcon'}
    modules = {c.module for c in EVERY} - others - {''}
    assert {'bench', 'training.sft', 'examples.navigate'} <= modules
    assert [m for m in modules if not list(ROOT.glob(f'{m.replace(".", "/")}*'))] == []


def test_targets_of_make_are_there() -> None:
    targets = set(re.findall(r'^([\w-]+):', (ROOT / 'Makefile').read_text(), re.MULTILINE))
    assert {c.words[1] for c in EVERY if c.words[0] == 'make'} <= targets


def test_extras_of_pip_are_there() -> None:
    extras = import_module('test.requirements.package').options_of_setup()['extras_require']
    words = [word for c in EVERY if Path(c.words[0]).name == 'pip' for word in c.words]
    named = [re.fullmatch(r'\.\[(.+)\]', word) for word in words]
    assert {name for match in named if match for name in match[1].split(',')} <= set(extras)


def test_types_of_ros_commands_are_there() -> None:
    types = [w for c in EVERY for w in c.words if w.startswith('embodied_r_msgs/')]
    assert types
    for name in types:
        _, kind, message = name.split('/')
        assert (ROOT / 'embodied_r_msgs' / kind / f'{message}.{kind}').is_file(), name


def test_launch_files_take_their_arguments() -> None:
    launches = [c.words[3:] for c in EVERY if c.words[:3] == ('ros2', 'launch', 'embodied_r_ros')]
    assert launches
    files = [ROOT / 'embodied_r_ros/nodes/bringup.py', *(ROOT / 'launch').glob('*.py')]
    sources = ''.join(file.read_text() for file in files)
    for file, *arguments in launches:
        assert (ROOT / 'launch' / file).is_file()
        for argument in arguments:
            assert f"'{argument.partition(':=')[0]}'" in sources, argument


@pytest.mark.parametrize('page', COMMANDS, ids=lambda page: str(page.relative_to(ROOT)))
def test_files_of_commands_are_there_or_made_before(page: Path) -> None:
    made = {
        file
        for other, commands in COMMANDS.items()
        for command in commands
        if other != page
        for file in outputs_of(command)
    }
    for command in COMMANDS[page]:
        made |= outputs_of(command)
        if command.is_whole:
            lacking = [path for path in inputs_of(command) if not is_there(path, made)]
            assert lacking == [], str(command)


def test_folders_that_refuse_other_contents_belong_to_one_command() -> None:
    # What was simulated is not overwritten, and a run keeps its settings.
    refuse = {'training.sft', 'training.grpo', 'training.improve'}
    commands: dict[str, set[tuple[str, ...]]] = {}
    for command in EVERY:
        simulates = command.verb[:1] == ['sim']
        is_here = command.words[0].startswith(('.venv/bin/', 'python', 'embodied-r'))
        if command.is_whole and is_here and (simulates or command.module in refuse):
            for folder in outputs_of(command):
                words = (Path(command.words[0]).name, *command.words[1:])
                commands.setdefault(folder, set()).add(words)
    assert len(commands) > 30
    made = ('runs/', 'out/')
    shipped = [folder for folder in commands if not folder.startswith(made)]
    assert [folder for folder in shipped if (ROOT / folder).exists()] == []
    assert {folder: each for folder, each in commands.items() if len(each) > 1} == {}


def test_the_documents_stay_as_short_as_a_reader_needs() -> None:
    pages = [ROOT / 'README.md', *(ROOT / 'docs').rglob('*.md')]
    assert (ROOT / 'README.md').stat().st_size <= 5_000
    assert len(pages) <= 14
    assert sum(page.stat().st_size for page in pages) <= 120_000


def test_the_readme_leads_to_every_page() -> None:
    linked = re.findall(r'\]\((docs/\w+\.md)', (ROOT / 'README.md').read_text())
    assert {str(page.relative_to(ROOT)) for page in (ROOT / 'docs').rglob('*.md')} == set(linked)


def test_every_picture_is_shown() -> None:
    shown = {name for page in PAGES for name in re.findall(r'pictures/[\w.]+', page.read_text())}
    assert {f'pictures/{path.name}' for path in (ROOT / 'docs/pictures').iterdir()} == shown


def anchor_of(heading: str) -> str:
    """The anchor that GitHub gives a heading."""
    text = re.sub(r'\[([^\]]*)\]\([^)]*\)|[`*]', r'\1', heading.strip().lower())
    return re.sub(r'[^\w\- ]', '', text).replace(' ', '-')


@pytest.mark.parametrize('page', PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_of_a_page_lead_somewhere(page: Path) -> None:
    for target in re.findall(r'\]\((?!https?:|mailto:)([^)\s]+)\)', page.read_text()):
        name, _, anchor = target.partition('#')
        path = (page.parent / name).resolve() if name else page
        assert path.exists(), target
        if anchor and path.suffix == '.md':
            headings = re.findall(r'^#+ (.*)$', path.read_text(), re.MULTILINE)
            assert anchor in map(anchor_of, headings), target
