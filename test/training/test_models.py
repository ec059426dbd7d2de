# SPDX-License-Identifier: Apache-2.0
"""Training reads safetensors, and neither pickles nor code that comes with a model."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING

import pytest

pytest.importorskip('torch')
pytest.importorskip('trl')

from embodied_r_ros.common.errors import InputError
from embodied_r_ros.common.files import shared_path
from embodied_r_ros.core.scene.memory import MemoryConfig
from embodied_r_ros.core.types.answers import Sampling
from trl import GRPOConfig, SFTConfig

from test.core.chat.test_weights import LINE, pickled_model
from test.training.test_sft import turning_row
from training import grpo, sft
from training.data.grpo import GrpoArguments
from training.data.sft import SftArguments
from training.eval.generation import load_model
from training.evaluate import evaluate
from training.run.models import base_folder, model_folder

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

ARM = shared_path('models', 'arm')


def test_a_folder_with_a_pickle_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=LINE):
        model_folder(str(pickled_model(tmp_path)))
    assert not (tmp_path / 'ran').exists()


def test_an_adapter_on_a_pickle_is_refused(tmp_path: Path) -> None:
    adapter = tmp_path / 'adapter'
    adapter.mkdir()
    base = str(pickled_model(tmp_path / 'base'))
    (adapter / 'adapter_config.json').write_text(json.dumps({'base_model_name_or_path': base}))
    with pytest.raises(InputError, match=LINE):
        base_folder(model_folder(str(adapter)))


@pytest.mark.parametrize(
    ('entry', 'help_line'),
    [
        ({'quant_method': 'gguf'}, 'delete that entry'),
        ({'quant_method': 'nothing-known'}, 'nothing-known'),
        ({}, 'quant_method'),
        ([4], 'quantised by'),
    ],
)
def test_quantised_weights_that_nothing_reads_are_refused(
    tmp_path: Path, entry: object, help_line: str
) -> None:
    folder = tmp_path / 'model'
    shutil.copytree(ARM, folder)
    config = json.loads((folder / 'config.json').read_text())
    (folder / 'config.json').write_text(json.dumps({**config, 'quantization_config': entry}))
    with pytest.raises(InputError, match=help_line):
        model_folder(str(folder))


@pytest.mark.parametrize('text', ['{', '[]', ''])
def test_settings_that_are_none_are_refused(tmp_path: Path, text: str) -> None:
    folder = tmp_path / 'model'
    shutil.copytree(ARM, folder)
    (folder / 'config.json').write_text(text)
    with pytest.raises(InputError, match=r'config\.json'):
        model_folder(str(folder))


def test_a_pickle_beside_safetensors_is_not_read(tmp_path: Path) -> None:
    folder = tmp_path / 'model'
    shutil.copytree(ARM, folder)
    pickled_config = (ARM / 'config.json').read_text()
    pickled_model(folder)
    (folder / 'config.json').write_text(pickled_config)
    load_model(model_folder(str(folder)))
    assert not (folder / 'ran').exists()


def start_sft(model: str, folder: str) -> None:
    sft.train(SftArguments(rows=[f'{folder}/rows'], model=model), SFTConfig(folder, use_cpu=True))


def start_grpo(model: str, folder: str) -> None:
    rows, stages = [f'{folder}/rows'], ['1 x 1:1:1']
    arguments = GrpoArguments(rows=rows, model=model, judge=[], stages=stages)
    grpo.trainer_of(arguments, GRPOConfig(folder, use_cpu=True), [])


@pytest.mark.parametrize('use', [start_sft, start_grpo])
def test_no_recipe_starts_from_a_pickle(use: Callable[[str, str], None], tmp_path: Path) -> None:
    folder = pickled_model(tmp_path / 'model')
    with pytest.raises(InputError, match=LINE):
        use(str(folder), str(tmp_path))
    assert not (folder / 'ran').exists()


def test_what_is_evaluated_may_not_be_a_pickle(tmp_path: Path) -> None:
    folder = str(pickled_model(tmp_path / 'model'))
    with pytest.raises(InputError, match=LINE):
        evaluate(folder, [turning_row(0, 'test')], MemoryConfig(), Sampling(max_tokens=1))
    assert not (tmp_path / 'model' / 'ran').exists()
