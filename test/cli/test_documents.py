# SPDX-License-Identifier: Apache-2.0
"""`embodied-r` takes the commands of the documents, and their links lead somewhere."""

from __future__ import annotations

from pathlib import Path
import re
import shlex

from embodied_r_ros.cli.main import _parse
import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / 'README.md', ROOT / 'training/README.md', *sorted((ROOT / 'docs').rglob('*.md'))]
LINKED = [*PAGES, ROOT / 'CONTRIBUTING.md', *sorted((ROOT / 'models').rglob('*.md'))]
CONFIGS = sorted((ROOT / 'training/configs').rglob('*.yaml'))
_COMMAND = re.compile(r'(?:\.venv/bin/)?embodied-r (?P<words>.+)')


def commands() -> list[str]:
    lines = [line for page in PAGES for line in page.read_text().splitlines()]
    for config in CONFIGS:
        lines += [line[4:] for line in config.read_text().splitlines() if line[:4] == '#   ']
    lines = [part.strip() for line in lines for part in re.split(r'; (?:do )?|&& ', line)]
    return sorted({match['words'] for line in lines if (match := _COMMAND.fullmatch(line))})


@pytest.mark.parametrize('command', commands())
def test_commands_of_the_documents_are_taken(command: str) -> None:
    command = re.sub(r'--task \$\w+', '--task pick', command)  # of a loop over tasks
    words = shlex.split(command.partition(' #')[0].partition(' | ')[0].partition(' > ')[0])
    assert _parse([re.sub(r'\$\w+', '1', word) for word in words])


def anchor_of(heading: str) -> str:
    """The anchor that GitHub gives a heading."""
    text = re.sub(r'\[([^\]]*)\]\([^)]*\)|[`*]', r'\1', heading.strip().lower())
    return re.sub(r'[^\w\- ]', '', text).replace(' ', '-')


@pytest.mark.parametrize('page', LINKED, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_of_a_page_lead_somewhere(page: Path) -> None:
    for target in re.findall(r'\]\((?!https?:|mailto:)([^)\s]+)\)', page.read_text()):
        name, _, anchor = target.partition('#')
        path = (page.parent / name).resolve() if name else page
        assert path.exists(), target
        if anchor and path.suffix == '.md':
            headings = re.findall(r'^#+ (.*)$', path.read_text(), re.MULTILINE)
            assert anchor in map(anchor_of, headings), target
