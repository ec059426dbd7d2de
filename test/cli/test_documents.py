# SPDX-License-Identifier: Apache-2.0
"""The commands that the documents give are ones that `embodied-r` takes."""

from __future__ import annotations

from pathlib import Path
import re
import shlex

from embodied_r_ros.cli.main import _parse
import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / 'README.md', ROOT / 'training/README.md', *sorted((ROOT / 'docs').glob('*.md'))]
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
