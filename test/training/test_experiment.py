# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
from pathlib import Path
import subprocess
from typing import Any

import pytest

pytest.importorskip('torch')
pytest.importorskip('trl')

from embodied_r_ros.common.files import shared_path
from embodied_r_ros.data.questions.row import write_rows
import yaml

from test.tiny_models import save_language_model
from test.training.arm_rows import arm_rows
from test.training.commands import run_training
from test.training.test_sft import turning_row
from training import experiment
from training.experiment import read_experiment, TrainingConfig

WAYPOINTS = [row for row in arm_rows() if row.question_type == 'waypoint'][:6]
ROOT = Path(__file__).resolve().parents[2]
ARM = str(shared_path('models', 'arm'))
SMALL = {'max_tokens': 24, 'cache': 'cache'}
ONE_MODEL = {'models': {'arm': ARM}, 'rows': {'turns': 'rows.jsonl'}}


@pytest.fixture(autouse=True)
def in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def run(**values: Any) -> dict[str, Any]:
    """Run an experiment; its report."""
    settings = {**SMALL, 'out': 'out', **values}
    Path('some.yaml').write_text(yaml.safe_dump(settings, sort_keys=False))
    assert experiment.main(['--config', 'some.yaml']) == 0
    report: dict[str, Any] = json.loads(Path('out/report.json').read_text())
    return report


def test_grid_of_models_and_rows_where_seeds_of_a_recipe_are_told_as_one(
    capsys: pytest.CaptureFixture[str],
) -> None:
    save_language_model(Path('a'))
    write_rows(Path('rows.jsonl'), WAYPOINTS)
    report = run(
        models={'start': 'a', 'rl-0': ARM, 'rl-1': 'a'},
        seeds={'rl': ['rl-0', 'rl-1']},
        rows={'turns': 'rows.jsonl'},
        max_tokens=320,
    )
    start, arm, other = report['cells']
    assert arm['format'] > start['format'] == 0.0  # random weights answer nothing
    assert start['against_first'] is None
    assert arm['against_first']['difference'] == arm['accuracy'] - start['accuracy']
    [rl] = report['means']
    assert arm['accuracy'] > other['accuracy'] == 0.0
    assert rl['accuracy'] == pytest.approx((arm['accuracy'] + other['accuracy']) / 2)
    assert (rl['lowest'], rl['highest']) == (0.0, arm['accuracy'])
    low, high = rl['interval_95']
    assert low <= rl['accuracy'] <= high
    assert rl['against_first']['difference'] == pytest.approx(rl['accuracy'])
    assert 'lowest to highest' in capsys.readouterr().out


@pytest.mark.parametrize(('name', 'value'), [('images', {'nobody': 'x'})])
def test_who_is_told_otherwise_has_to_be_one_of_the_models(
    name: str, value: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    values = {'models': {'a': ARM}, 'rows': {'b': 'c'}, name: value}
    Path('some.yaml').write_text(yaml.safe_dump(values))
    assert experiment.main(['--config', 'some.yaml']) == 2
    assert f"{name} names 'nobody'" in capsys.readouterr().err


def test_missing_model_is_trained_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def forked(command: list[str], **_: Any) -> subprocess.CompletedProcess[str]:
        recipe, *words = command[command.index('-m') + 1 :]
        return run_training(recipe.removeprefix('training.'), words)

    monkeypatch.setattr(subprocess, 'run', forked)
    write_rows(Path('rows.jsonl'), [turning_row(i, 'train') for i in range(8)])
    values = {
        'models': {'trained': str(tmp_path / 'trained')},
        'rows': {'turns': 'rows.jsonl'},
        'limit': 2,
        'train': [
            {
                'recipe': 'sft',
                'config': str(ROOT / 'training/configs/smoke-sft.yaml'),
                'output': str(tmp_path / 'trained'),
                'settings': {'rows': [str(tmp_path / 'rows.jsonl')], 'model': ARM, 'max_steps': 1},
            }
        ],
    }
    assert run(**values)['cells'][0]['n'] == 2
    weights = Path('trained/model.safetensors')
    before = weights.stat().st_mtime_ns
    run(**values)
    assert weights.stat().st_mtime_ns == before


WHOLE = ('config.json', 'model.safetensors', 'tokenizer.json')
SHARDS = ('config.json', 'model-00001-of-00002.safetensors', 'tokenizer.json')
ADAPTER = ('adapter_config.json', 'adapter_model.safetensors', 'tokenizer.json')


@pytest.mark.parametrize('files', [WHOLE, SHARDS, ADAPTER])
def test_model_that_was_cut_off_while_it_was_saved_is_trained_again(
    files: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[str] = []

    def ran(command: list[str], **_: Any) -> subprocess.CompletedProcess[str]:
        started.append(command[command.index('--output_dir') + 1])
        return subprocess.CompletedProcess(command, 0)

    monkeypatch.setattr(subprocess, 'run', ran)
    Path('run.yaml').touch()
    for left_out in (*files, ''):
        folder = Path(f'without {left_out}')
        folder.mkdir()
        for name in files:
            if name != left_out:
                (folder / name).touch()
        experiment.train(TrainingConfig(config='run.yaml', output=str(folder)))
    assert started == [f'without {name}' for name in files]


@pytest.mark.parametrize(
    ('values', 'problem'),
    [
        ({'modles': {}}, "did you mean 'models'"),
        ({'models': {}, 'rows': {'a': 'b'}}, 'models is empty'),
        ({'models': {'a': 3}, 'rows': {'a': 'b'}}, 'models.a is 3'),
        ({'models': {'a': 'x'}, 'rows': {'a': 'none.jsonl'}}, 'none.jsonl'),
        ({**ONE_MODEL, 'seeds': {'a': []}}, 'seeds.a is empty'),
        ({'train': [{'config': 'a'}]}, "lacks 'output'"),
        ([], 'expected settings'),
    ],
)
def test_bad_config_is_one_clear_line(
    values: Any, problem: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Path('bad.yaml').write_text(yaml.safe_dump(values))
    assert experiment.main(['--config', 'bad.yaml']) == 2
    error = capsys.readouterr().err
    assert problem in error
    assert error.count('\n') == 1
    assert not Path('runs/experiments').exists()


def test_config_that_is_not_there_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert experiment.main(['--config', 'none.yaml']) == 2
    assert 'none.yaml cannot be read as YAML' in capsys.readouterr().err


CONFIGS = sorted((ROOT / 'training/configs/experiments').glob('*.yaml'))


@pytest.mark.parametrize('path', CONFIGS, ids=lambda path: path.stem)
def test_shipped_experiment_is_readable(path: Path) -> None:
    assert read_experiment(path).out == f'runs/experiments/{path.stem}'
