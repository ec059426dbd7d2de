# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

pytest.importorskip('torch')

from embodied_r_ros.errors import InputError

from training.nano import build_model, NanoSize, train_tokenizer
from training.release import release

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def trained(tmp_path: Path) -> Path:
    """An untrained model with what training leaves beside it."""
    folder = tmp_path / 'run'
    tokenizer = train_tokenizer(['<think>turned left 30°: 1.2 m.</think>'] * 3, 300)
    tokenizer.save_pretrained(folder)
    build_model(NanoSize(hidden_size=16, layers=1, heads=2), tokenizer).save_pretrained(folder)
    (folder / 'training_args.bin').write_bytes(b'pickled')
    (folder / 'checkpoint-1').mkdir()
    return folder


def test_model_alone_is_kept_with_its_card(trained: Path, tmp_path: Path) -> None:
    target = tmp_path / 'models' / 'nano'
    target.mkdir(parents=True)
    (target / 'README.md').write_text('a card')
    (target / 'old.bin').write_bytes(b'old')
    digest = release(trained, target)
    assert digest.startswith('sha256:')
    assert {path.name for path in target.iterdir()} >= {'README.md', 'model.safetensors'}
    assert not {'training_args.bin', 'checkpoint-1', 'old.bin'} & {
        p.name for p in target.iterdir()
    }
    assert (target / 'README.md').read_text() == 'a card'
    assert json.loads((target / 'generation_config.json').read_text())['do_sample'] is True


def test_folder_without_weights_is_refused_and_the_target_kept(
    trained: Path, tmp_path: Path
) -> None:
    (trained / 'model.safetensors').unlink()
    target = tmp_path / 'nano'
    target.mkdir()
    with pytest.raises(InputError, match=r'lacks model\.safetensors'):
        release(trained, target)
    assert target.exists()
