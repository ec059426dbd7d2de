# SPDX-License-Identifier: Apache-2.0
"""What recipes and experiments for arms read, the commands that are told beside them write."""

from __future__ import annotations

from pathlib import Path
import shlex
from typing import Any

import pytest

pytest.importorskip('torch')
pytest.importorskip('trl')

from embodied_r_ros.arm.robot import load_robot
import yaml

ROOT = Path(__file__).resolve().parents[2]
CONFIGS = ROOT / 'training/configs'
EXPERIMENTS = sorted((CONFIGS / 'experiments').glob('arm-*.yaml'))
RECIPES = [
    CONFIGS / f'{name}.yaml'
    for name in (
        'arm-sft', 'arm-trials-sft', 'arm-drawer-sft', 'arm-grpo',
        'qwen2.5-vl-7b-lora',
    )
]  # fmt: skip


def commands() -> set[tuple[str, ...]]:
    """Commands of the pages on training and of the heads of the configs that write one file."""
    pages = (ROOT / 'training/README.md', ROOT / 'docs/training_arms.md')
    lines = [line for page in pages for line in page.read_text().splitlines()]
    for path in (*EXPERIMENTS, *RECIPES):
        heads = path.read_text().splitlines()
        lines += [line[4:] for line in heads if line.startswith('#   ')]
    lines = [line.replace('.venv/bin/', '') for line in lines]
    begins = ('embodied-r questions runs/arm/', 'python -m training.')
    made = {tuple(shlex.split(line)) for line in lines if line.startswith(begins)}
    return {command for command in made if '--out' in command}


def commands_by_file() -> dict[str, tuple[str, ...]]:
    """Files by their names, each with the only command that writes it."""
    found: dict[str, tuple[str, ...]] = {}
    for command in commands():
        path = option(command, '--out')[0]
        adds = command[2] == 'training.data.vision'  # to a folder of images
        assert adds or path not in found, f'{path} is written twice'
        found[path] = command
    return found


def option(command: tuple[str, ...], name: str) -> list[str]:
    values = []
    for word in command[command.index(name) + 1 :] if name in command else ():
        if word.startswith('--'):
            break
        values.append(word)
    return values


WRITTEN = commands_by_file()


def kinds_of(path: str) -> set[str]:
    """Types of the questions in a file of rows, by the command that writes it."""
    command = WRITTEN[path]
    if command[0] == 'embodied-r':
        asked = load_robot(option(command, '--robot')[0]).questions
        return {*asked.kinds} | ({'gripper'} if asked.gripper else set())
    if command[2] == 'training.data.arm_trials':
        return {'waypoint', 'gripper'}
    assert command[2] == 'training.data.arm_forms'
    given = kinds_of(command[3])
    wanted = set(option(command, '--kinds')) or given
    assert wanted <= given, command
    return wanted


def first_of(path: str) -> tuple[str, list[str]]:
    """The file that the forms of a file of rows were made of, and what share is perceived."""
    shares: list[str] = []
    while WRITTEN[path][0] == 'python':
        shares += option(WRITTEN[path], '--perceived')
        path = WRITTEN[path][3]
    return path, shares


def settings_of(recipe: Path, own: dict[str, Any]) -> dict[str, Any]:
    settings: dict[str, Any] = {**yaml.safe_load(recipe.read_text()), **own}
    return settings


def check_run(settings: dict[str, Any]) -> None:
    there = set().union(*(kinds_of(path) for path in settings['rows']))
    assert set(settings['kinds']) <= there
    for name in ('samples', 'images'):
        assert settings.get(name, '') in {'', *WRITTEN}


@pytest.mark.parametrize('path', RECIPES, ids=lambda path: path.stem)
def test_a_recipe_lists_types_that_its_rows_have(path: Path) -> None:
    check_run(settings_of(path, {}))


@pytest.mark.parametrize('path', EXPERIMENTS, ids=lambda path: path.stem)
def test_what_an_experiment_reads_is_made(path: Path) -> None:
    experiment = yaml.safe_load(path.read_text())
    made = []
    for run in experiment['train']:
        settings = settings_of(ROOT / run['config'], run.get('settings', {}))
        check_run(settings)
        assert (
            settings['model'].startswith(('models/', 'runs/starts/')) or settings['model'] in made
        )
        made.append(run['output'])
    for model in experiment['models'].values():
        assert model.startswith('models/') or model in made
    for file in experiment['rows'].values():
        kinds_of(file)


def test_with_and_without_metadata_the_same_is_asked() -> None:
    experiment = yaml.safe_load((CONFIGS / 'experiments/arm-metadata.yaml').read_text())
    trained = {run['output']: run['settings']['rows'][0] for run in experiment['train']}
    pairs = [(experiment['rows']['with metadata'], experiment['rows']['without'])]
    for seed in range(3):
        full, bare = (
            trained[experiment['models'][f'{name}-{seed}']] for name in ('with', 'without')
        )
        pairs.append((full, bare))
    for full, bare in pairs:
        assert kinds_of(full) == kinds_of(bare)
        assert first_of(full) == first_of(bare)
        assert '--no-metadata' not in WRITTEN[full]
        assert '--no-metadata' in WRITTEN[bare]
