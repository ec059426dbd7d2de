# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip('torch')
pytest.importorskip('trl')

from embodied_r_ros.common.errors import InputError
from embodied_r_ros.core.chat.settings import model_files
from embodied_r_ros.data.questions.row import write_rows
from safetensors.torch import load_file, save_file

from test.tiny_models import save_language_model
from test.training.test_sft import ROOT, turning_row
from training import sft
from training.data.grpo import GrpoArguments
from training.run.manifest import checkpoint_of, manifest_of

SMOKE = ROOT / 'training' / 'configs' / 'smoke-sft.yaml'


@pytest.fixture(autouse=True)
def in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def model(name: str, weights: str) -> str:
    """A folder that is taken for a model."""
    Path(name).mkdir(exist_ok=True)
    Path(name, 'config.json').write_text('{}')
    Path(name, 'model.safetensors').write_text(weights)
    return name


def checkpoint(folder: str, step: int) -> str:
    """A checkpoint as a trainer leaves it."""
    made = Path(folder, f'checkpoint-{step}')
    made.mkdir(parents=True)
    (made / 'trainer_state.json').write_text('{}')
    return str(made)


def grpo_manifest(seed: int = 0, **changes: Any) -> dict[str, Any]:
    told = {'rows': ['rows.jsonl'], 'judge': ['none'], 'stages': ['1 x 7:3:0'], **changes}
    return manifest_of(vars(GrpoArguments(model='start', **told)), seed)


def test_run_goes_on_from_what_it_began_from() -> None:
    model('start', 'first')
    assert checkpoint_of('out', grpo_manifest()) is None
    made = checkpoint('out', 2)
    assert checkpoint_of('out', grpo_manifest()) == made
    free = grpo_manifest(judge=['http://elsewhere'], threads=3)
    assert checkpoint_of('out', free) == made


@pytest.mark.parametrize(
    ('changes', 'told'),
    [
        ({}, "model 'sha256:"),
        ({'seed': 1}, 'seed 0, not 1'),
        ({'rows': ['other.jsonl']}, "rows ['rows.jsonl'], not ['other.jsonl']"),
        ({'samples': 's.jsonl'}, "samples '', not 's.jsonl'"),
        ({'lora_rank': 4}, 'lora_rank 0, not 4'),
        ({'stages': ['1 x 1:7:2']}, "stages ['1 x 7:3:0'], not ['1 x 1:7:2']"),
    ],
)
@pytest.mark.parametrize('is_whole', [False, True])
def test_run_that_began_otherwise_is_not_gone_on_with(
    changes: dict[str, Any], told: str, is_whole: bool
) -> None:
    model('start', 'first')
    checkpoint_of('out', grpo_manifest())
    if is_whole:
        model('out', 'trained')
    else:
        checkpoint('out', 2)
    if not changes:
        model('start', 'second')
    with pytest.raises(InputError, match='name another output folder, or delete') as caught:
        checkpoint_of('out', grpo_manifest(**changes))
    assert told in str(caught.value)


@pytest.mark.parametrize('name', ['rows', 'samples'])
def test_run_does_not_go_on_with_other_contents_of_its_files(name: str) -> None:
    model('start', 'first')
    Path('data.jsonl').write_text('one')
    changes: dict[str, Any] = {name: ['data.jsonl'] if name == 'rows' else 'data.jsonl'}
    told = grpo_manifest(**changes)
    checkpoint_of('out', told)
    made = checkpoint('out', 2)
    assert checkpoint_of('out', told) == made
    Path('data.jsonl').write_text('two')
    with pytest.raises(InputError, match=r'began otherwise \(sha256 of data.jsonl'):
        checkpoint_of('out', grpo_manifest(**changes))


def test_run_that_left_nothing_begins_anew() -> None:
    model('start', 'first')
    assert checkpoint_of('out', grpo_manifest()) is None
    assert checkpoint_of('out', grpo_manifest(1)) is None
    checkpoint('out', 1)
    assert checkpoint_of('out', grpo_manifest(1)) is not None


def test_folder_from_before_is_gone_on_with_and_not_labelled() -> None:
    model('start', 'first')
    made = checkpoint('out', 2)
    assert checkpoint_of('out', grpo_manifest()) == made
    assert [path.name for path in Path('out').iterdir()] == ['checkpoint-2']


def run_sft(monkeypatch: pytest.MonkeyPatch, *words: str) -> int:
    given = ['--config', str(SMOKE), '--rows', 'rows.jsonl', '--output_dir', 'out', *words]
    monkeypatch.setattr('sys.argv', ['recipe', *given])
    return sft.main()


def test_longer_run_goes_on_and_another_start_is_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write_rows(Path('rows.jsonl'), [turning_row(i, 'train') for i in range(8)])
    save_language_model(Path('start'))
    short = ('--model', 'start', '--max_steps', '1', '--save_steps', '1')
    longer = ('--model', 'start', '--max_steps', '2', '--logging_steps', '2', '--save_steps', '1')
    assert run_sft(monkeypatch, *short) == 0
    assert run_sft(monkeypatch, *longer) == 0
    assert Path('out/checkpoint-2').exists()
    # What a model is known by, and what is copied of it, does not hold the file.
    assert Path('out/manifest.yaml') not in model_files(Path('out'))
    other = load_file('start/model.safetensors')
    save_file({n: w + 1 for n, w in other.items()}, 'start/model.safetensors', {'format': 'pt'})
    capsys.readouterr()
    assert run_sft(monkeypatch, *longer) == 2
    assert 'sft: error: out has a run that began otherwise' in capsys.readouterr().err
