# SPDX-License-Identifier: Apache-2.0
"""The shipped arm says in llama.cpp what it says in transformers, and only what exists."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

from embodied_r_ros.common.errors import InputError
from embodied_r_ros.core.reasoning.completions import form_grammar, parse_completion
import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from training import gguf_model

ARM, SHIPPED = Path('models/arm'), Path('models/arm/gguf/arm.gguf')
PROMPT = (
    '<|im_start|>user\nSeen: the red round object 0.42 m away, 12° to the left.\n'
    'A. (0.11, -0.25, 0.03)\nB. (0.08, 0.12, 0.20)<|im_end|>\n<|im_start|>assistant\n<think>'
)
_TOLERANCE = 0.03  # of a log probability: llama.cpp rounds to 16 bits


@pytest.fixture(scope='module')
def server() -> Any:
    """The shipped file in llama.cpp, in this process."""
    xllamacpp: Any = import_module('xllamacpp')
    params = xllamacpp.CommonParams()
    params.model.path, params.n_ctx, params.n_parallel = str(SHIPPED), 1024, 1
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = 1
    return xllamacpp.Server(params)


def test_its_probabilities_are_those_of_the_folder(server: Any) -> None:
    request = {'prompt': PROMPT, 'max_tokens': 1, 'temperature': 0, 'logprobs': 5}
    reply = server.handle_completions(request)
    top = reply['choices'][0]['logprobs']['content'][0]['top_logprobs']
    tokens = AutoTokenizer.from_pretrained(ARM)(PROMPT, return_tensors='pt').input_ids
    model = AutoModelForCausalLM.from_pretrained(ARM, dtype=torch.float32)
    with torch.inference_mode():
        expected = torch.log_softmax(model(tokens).logits[0, -1], dim=-1)
    assert len(top) == 5
    for token in top:
        assert token['logprob'] == pytest.approx(expected[token['id']].item(), abs=_TOLERANCE)


def test_the_shipped_file_is_what_the_folder_gives(tmp_path: Path) -> None:
    path = tmp_path / 'arm.gguf'
    assert gguf_model.main([str(ARM), str(path)]) == 0
    assert path.read_bytes() == SHIPPED.read_bytes()
    assert [each.name for each in tmp_path.iterdir()] == ['arm.gguf']


@pytest.mark.parametrize('options', [['left', 'right'], ['1 "m"', 'a\\b', 'back\n']])
def test_a_grammar_forces_the_form_and_an_option(server: Any, options: list[str]) -> None:
    request = {'prompt': PROMPT[:-7], 'max_tokens': 400, 'grammar': form_grammar(options)}
    words = {'A', 'B', 'C', 'unknown', *(option.strip() for option in options)}
    reply = server.handle_completions({**request, 'temperature': 0})
    assert reply['choices'][0]['finish_reason'] == 'stop'
    completion = parse_completion(reply['choices'][0]['text'])
    assert completion.well_formed
    assert completion.answer in words


def test_others_are_refused(tmp_path: Path) -> None:
    (tmp_path / 'config.json').write_text('{"model_type": "llama"}')
    (tmp_path / 'model.safetensors').write_bytes((ARM / 'model.safetensors').read_bytes())
    with pytest.raises(InputError, match="'llama', and only qwen2"):
        gguf_model.write_gguf_model(tmp_path, tmp_path / 'out.gguf')
    with pytest.raises(InputError, match='no folder with a model'):
        gguf_model.write_gguf_model(tmp_path / 'nowhere', tmp_path / 'out.gguf')
    assert gguf_model.main(['one']) == 2
