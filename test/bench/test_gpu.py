# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

pytest.importorskip('torch')
pytest.importorskip('trl')

from embodied_r_ros.common.files import shared_path
from embodied_r_ros.reasoning.prompts import Prompt
from embodied_r_ros.scene.memory import SceneText

from bench import gpu
from bench.__main__ import main
from training.eval.generation import chat_text
from training.run.models import load_tokenizer

if TYPE_CHECKING:
    from pathlib import Path

SMALL = {
    'hidden_size': 64,
    'intermediate_size': 64,
    'num_hidden_layers': 2,
    'num_attention_heads': 2,
    'num_key_value_heads': 1,
}


def test_shapes_have_the_published_sizes() -> None:
    sizes = {name: gpu.build(name, 'meta').num_parameters() / 1e9 for name in gpu.SHAPES}
    assert sizes == pytest.approx(
        {'Qwen2.5-3B': 3.09, 'Qwen3-VL-4B': 4.44, 'Qwen3-VL-8B': 8.77}, abs=0.005
    )
    assert [gpu.cache_kib(name) for name in gpu.SHAPES] == [36, 144, 144]


def test_a_reply_is_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(gpu.SHAPES, 'Qwen2.5-3B', {**gpu.SHAPES['Qwen2.5-3B'], **SMALL})
    reader = gpu.reader_of('Qwen2.5-3B', load_tokenizer(shared_path('models', 'arm')))
    model = gpu.build('Qwen2.5-3B', 'cpu').float()
    prompts = [Prompt('You are a robot.', 'What is ahead?' * n, SceneText('')) for n in (1, 2)]
    figures = gpu.measure(model, reader, prompts, 4, 1.0)
    assert figures.weights_gib == pytest.approx(model.num_parameters() * 4 / 2**30)
    assert figures.prompt_tokens == len(reader(chat_text(reader, prompts[0]))['input_ids'])
    assert figures.together_tokens_s == pytest.approx(4 / figures.reply_s)
    assert min(figures.first_s, figures.together_tokens_s) > 0


def test_without_a_gpu_nothing_is_measured(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr('torch.cuda.is_available', lambda: False)
    assert main(['gpu', '--tokenizer', str(tmp_path)]) == 2
    assert 'torch sees no GPU' in capsys.readouterr().err
