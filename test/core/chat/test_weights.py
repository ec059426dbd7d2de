# SPDX-License-Identifier: Apache-2.0
"""Weights that run code when they are read are refused, wherever a model can be given."""

from __future__ import annotations

from dataclasses import replace
import pickle
from typing import Any, TYPE_CHECKING

from embodied_r_ros.cli.main import main
from embodied_r_ros.common.errors import ConfigError
from embodied_r_ros.core.chat.settings import model_digest
from embodied_r_ros.serving.profiles import load_profile, profile_names
from embodied_r_ros.serving.promotion import promote
from embodied_r_ros.serving.served import served_model
import pytest

if TYPE_CHECKING:
    from pathlib import Path

LINE = r'has its weights as a pickle \(pytorch_model\.bin\), which can run any code .* expected'


class Bomb:
    """What leaves a file behind when it is unpickled."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> Any:
        return type(self.mark).touch, (self.mark,)


def pickled_model(folder: Path, name: str = 'pytorch_model.bin') -> Path:
    """A folder with a model whose weights leave `folder/ran` behind."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / 'config.json').write_text('{"model_type": "qwen2"}')
    (folder / name).write_bytes(pickle.dumps(Bomb(folder / 'ran')))
    return folder


@pytest.mark.parametrize(
    'use',
    [
        model_digest,
        lambda folder: served_model(str(folder)).__enter__(),
        lambda folder: promote(folder.parent / 'slot', folder, {}),
        lambda folder: replace(
            load_profile('embedded-arm').servers['reasoner'], model=str(folder)
        ).filled_command(),
    ],
    ids=['digest', 'served', 'promoted', 'profile'],
)
def test_a_pickle_is_refused_in_one_line_and_not_read(use: Any, tmp_path: Path) -> None:
    folder = pickled_model(tmp_path / 'model')
    with pytest.raises(ConfigError, match=LINE) as told:
        use(folder)
    assert '\n' not in str(told.value)
    assert not (folder / 'ran').exists()


def test_the_command_line_says_so_and_ends_with_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = pickled_model(tmp_path / 'model')
    profile = tmp_path / 'mine.yaml'
    profile.write_text(f"servers: {{reasoner: {{model: '{model}', command: ['true']}}}}")
    assert main(['serve', str(profile), '--dry-run']) == 2
    said = capsys.readouterr().err
    assert 'pytorch_model.bin' in said
    assert said.count('\n') == 1


@pytest.mark.parametrize('name', ['weights.pt', 'weights.pth', 'weights.ckpt', 'WEIGHTS.PKL'])
def test_a_pickle_is_known_by_any_of_its_names(name: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match='as a pickle'):
        model_digest(pickled_model(tmp_path, name))
    config = replace(load_profile('embedded-arm').servers['reasoner'], model=str(tmp_path / name))
    with pytest.raises(ConfigError, match='as a pickle'):
        config.filled_command()


def test_what_a_trainer_leaves_beside_safetensors_is_no_weights(tmp_path: Path) -> None:
    pickled_model(tmp_path, 'training_args.bin')
    (tmp_path / 'model.safetensors').write_bytes(b'weights')
    assert model_digest(tmp_path).startswith('sha256:')


@pytest.mark.parametrize('name', profile_names())
def test_models_that_are_fetched_by_name_are_read_as_safetensors_or_gguf(name: str) -> None:
    for server in load_profile(name).servers.values():
        if server.command[0] == 'llama-server':  # which reads nothing but GGUF
            assert '-GGUF:' in server.model or server.model.endswith('.gguf')
        elif not server.is_path():
            assert '--load-format=safetensors' in server.command
