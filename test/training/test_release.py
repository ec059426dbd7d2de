# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING

import pytest

pytest.importorskip('torch')

from embodied_r_ros.common.errors import InputError
from embodied_r_ros.core.chat.settings import model_digest

from test.tiny_models import save_language_model
from training.release import main, release

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """An untrained model with what training leaves beside it."""
    folder = tmp_path / 'run'
    save_language_model(folder)
    (folder / 'training_args.bin').write_bytes(b'pickled')
    (folder / 'checkpoint-1').mkdir()
    return folder


def test_model_alone_is_kept_with_its_card(model: Path, tmp_path: Path) -> None:
    target = tmp_path / 'models' / 'nano'
    target.mkdir(parents=True)
    (target / 'README.md').write_text('a card')
    digest = release(model, target)
    assert digest.startswith('sha256:')
    assert {path.name for path in target.iterdir()} >= {'README.md', 'model.safetensors'}
    assert not {'training_args.bin', 'checkpoint-1'} & {p.name for p in target.iterdir()}
    assert (target / 'README.md').read_text() == 'a card'
    assert json.loads((target / 'generation_config.json').read_text())['do_sample'] is True


def test_folder_without_weights_is_refused_and_the_target_kept(
    model: Path, tmp_path: Path
) -> None:
    (model / 'model.safetensors').unlink()
    target = tmp_path / 'nano'
    target.mkdir()
    with pytest.raises(InputError, match=r'lacks model\.safetensors'):
        release(model, target)
    assert target.exists()


def test_older_release_is_replaced_and_only_once_the_new_one_is_made(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / 'models' / 'nano'
    before = release(model, target)
    (target / 'README.md').write_text('a card')
    config = json.loads((model / 'config.json').read_text())
    (model / 'config.json').write_text(json.dumps({**config, 'note': 'trained on'}))
    with monkeypatch.context() as patch:
        patch.setattr('pathlib.Path.replace', fail)
        with pytest.raises(InputError, match='no space left'):
            release(model, target)
    assert model_digest(target) == before
    assert release(model, target) == model_digest(target) != before
    assert (target / 'README.md').read_text() == 'a card'
    assert [path.name for path in target.parent.iterdir()] == ['nano']


def fail(*_: object) -> None:
    raise OSError(28, 'no space left')


def test_release_that_a_killed_process_had_put_aside_is_not_lost(
    model: Path, tmp_path: Path
) -> None:
    target = tmp_path / 'models' / 'nano'
    release(model, target)
    (target / 'README.md').write_text('a card')
    target.rename(target.with_name('.nano.old'))
    release(model, target)
    assert (target / 'README.md').read_text() == 'a card'
    assert [path.name for path in target.parent.iterdir()] == ['nano']


@pytest.mark.parametrize(
    ('name', 'message'),
    [
        ('models', 'is no released model and would be lost, for it holds nano: name a folder'),
        ('.', 'are one folder, or one lies in the other'),
        ('run', 'are one folder, or one lies in the other'),
        ('run/nano', 'are one folder, or one lies in the other'),
        ('other_run', 'for it holds checkpoint-1, training_args.bin: name a folder'),
        ('settings', 'for it holds config.json: name a folder'),
        ('README.md', 'is a file: name a folder'),
    ],
)
def test_target_that_would_be_lost_is_refused_and_kept(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, message: str
) -> None:
    release(model, tmp_path / 'models' / 'nano')
    shutil.copytree(model, tmp_path / 'other_run')
    (tmp_path / 'settings').mkdir()
    (tmp_path / 'settings' / 'config.json').write_text('{}')
    (tmp_path / 'README.md').write_text('mine')
    before = everything(tmp_path)
    assert main([str(model), str(tmp_path / name)]) == 2
    assert message in capsys.readouterr().err
    assert everything(tmp_path) == before


def everything(folder: Path) -> list[Path]:
    return sorted(folder.rglob('*'))
