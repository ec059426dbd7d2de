# SPDX-License-Identifier: Apache-2.0
"""What experiments and recipes read is shipped, or made by a command that is told somewhere."""

from __future__ import annotations

from pathlib import Path
import re
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
CONFIGS = ROOT / 'training/configs'
EXPERIMENTS = sorted((CONFIGS / 'experiments').glob('*.yaml'))
PAGES = [ROOT / 'training/README.md', *sorted((ROOT / 'docs').rglob('*.md'))]
RECIPES = [CONFIGS / f'{name}.yaml' for name in ('arm-sft', 'arm-trials-sft', 'arm-drawer-sft')]


def output_paths() -> set[str]:
    """Files and folders that a command of the pages or of the head of a config writes."""
    pages = [*PAGES, *EXPERIMENTS]
    told = '\n'.join(page.read_text() for page in pages)
    found = set(re.findall(r'--out(?:put_dir)? ([\w./$-]+)', told))
    found |= set(re.findall(r'git archive .*? -C ([\w./-]+)', told))
    found |= set(re.findall(r'training\.release \S+ (\S+)', told))
    found |= {path.replace('$s', seed) for path in found if '$s' in path for seed in '012'}
    for recipe in re.findall(r'--config (training/configs/[\w.-]+\.yaml)', told):
        found.add(str(settings(ROOT / recipe).get('output_dir', '')))
    return found


def settings(path: Path) -> dict[str, Any]:
    value: dict[str, Any] = yaml.safe_load(path.read_text())
    return value


def names_of(value: object) -> list[str]:
    if isinstance(value, dict):
        value = list(value.values())
    return [str(each) for each in value] if isinstance(value, list) else [str(value or '')]


def missing(paths: list[str], there: set[str]) -> set[str]:
    """What is neither shipped nor made by a command."""
    shipped = {path for path in paths if path[:7] == 'models/' and (ROOT / path).exists()}
    return set(paths) - shipped - there - {'', 'none'}


@pytest.mark.parametrize('path', EXPERIMENTS, ids=lambda path: path.stem)
def test_what_an_experiment_reads_is_made(path: Path) -> None:
    given = settings(path)
    there = output_paths()
    for run in given.get('train', []):
        recipe = {**settings(ROOT / run['config']), **run.get('settings', {})}
        read = [recipe['model'], recipe.get('samples', ''), *recipe['rows']]
        assert not missing([*read, *recipe.get('judge', [])], there)
        there.add(run['output'])
    keys = ('models', 'rows', 'images')
    assert not missing([path for key in keys for path in names_of(given.get(key))], there)


@pytest.mark.parametrize('path', RECIPES, ids=lambda path: path.stem)
def test_what_a_recipe_reads_is_made(path: Path) -> None:
    given = settings(path)
    read = [
        name for key in ('rows', 'model', 'samples', 'judge') for name in names_of(given.get(key))
    ]
    assert not missing(read, output_paths())


COMMANDS = {
    name for page in PAGES for name in re.findall(r'-m (training[\w.]*)', page.read_text())
}


@pytest.mark.parametrize('command', sorted(COMMANDS))
def test_commands_that_are_told_exist(command: str) -> None:
    path = ROOT / command.replace('.', '/')
    assert path.with_suffix('.py').exists() or (path / '__main__.py').exists()
