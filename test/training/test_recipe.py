# SPDX-License-Identifier: Apache-2.0
"""How a recipe is run: bad input is one line, and nobody trains in another's folder."""

from __future__ import annotations

from pathlib import Path
import subprocess
import sys
from typing import Any

import pytest

pytest.importorskip('trl')

from embodied_r_ros.data.questions.row import write_rows
from trl import SFTConfig

from test.tiny_models import save_language_model
from test.training.test_sft import ROOT, turning_row
from training import grpo, sft
from training.run.command import run_recipe

CONFIGS = ROOT / 'training' / 'configs'


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def run(monkeypatch: pytest.MonkeyPatch, *words: str) -> int:
    monkeypatch.setattr('sys.argv', ['recipe', *words])
    return run_recipe('recipe', lambda config: None, SFTConfig)


@pytest.mark.parametrize(
    ('text', 'told'),
    [
        (None, 'No such file'),
        ('use_cpu: true\nbf16: false\nmax_stepz: 2', 'max_stepz'),
        ('a: [', 'while parsing'),
    ],
)
def test_bad_file_of_settings_is_one_line(
    text: str | None,
    told: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    if text is not None:
        Path('run.yaml').write_text(text)
    assert run(monkeypatch, '--config', 'run.yaml') == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith('recipe: error: ')
    assert told in line


HOLDER = """
import fcntl, sys
file = open(sys.argv[1], 'a')
fcntl.flock(file, fcntl.LOCK_EX)
print('held', flush=True)
sys.stdin.read()
"""


def test_two_do_not_train_in_one_folder(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ('--output_dir', 'out', '--use_cpu', 'true', '--bf16', 'false')
    assert run(monkeypatch, *words) == 0
    (lock,) = Path('out').glob('.*')
    command = [sys.executable, '-c', HOLDER, str(lock)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == b'held\n'
        assert run(monkeypatch, *words) == 2
        assert 'out is being trained into by another process' in capsys.readouterr().err
        other.communicate()
    assert run(monkeypatch, *words) == 0


@pytest.mark.parametrize(
    ('recipe', 'split', 'told'),
    [
        (sft, 'validation', 'rows.jsonl: no training rows that fit'),
        (grpo, 'train', 'prompts in all epochs, and 8 are sampled at a time'),
    ],
)
def test_too_few_rows_are_told(
    recipe: Any,
    split: str,
    told: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    write_rows(Path('rows.jsonl'), [turning_row(0, split)])
    save_language_model(Path('start'))
    config = CONFIGS / ('smoke.yaml' if recipe is grpo else 'smoke-sft.yaml')
    words = ['recipe', '--config', str(config), '--rows', 'rows.jsonl', '--model', 'start']
    words += ['--output_dir', 'out', '--per_device_train_batch_size', '32']
    words += ['--judge', 'none', '--stages', '1 x 7:3:0'] if recipe is grpo else []
    monkeypatch.setattr('sys.argv', words)
    assert recipe.main() == 2
    assert told in capsys.readouterr().err
    assert not Path('out/model.safetensors').exists()
