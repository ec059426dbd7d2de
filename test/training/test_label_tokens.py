# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

pytest.importorskip('torch')
pytest.importorskip('transformers')

import torch
from transformers import AutoModelForCausalLM

from training.tiny.model import build_model, NanoSize, train_tokenizer
from training.tiny.start import add_label_tokens

if TYPE_CHECKING:
    from pathlib import Path

SCENE = '[3] 2.0 s: New: red tall object 5° left; blue flat object ahead 1.2 m. Gone: red object.'


def test_a_label_is_one_token_that_begins_between_its_words(tmp_path: Path) -> None:
    tokenizer = train_tokenizer([SCENE, ' red blue tall flat turned'] * 5, 320)
    model = build_model(NanoSize(hidden_size=24, layers=1), tokenizer).eval()
    red, tall = (tokenizer(word)['input_ids'] for word in (' red', ' tall'))
    plain = torch.tensor([tokenizer('turned left')['input_ids']])
    known = len(tokenizer)
    before = model(plain).logits
    added = add_label_tokens(tokenizer, model)
    assert added == len(tokenizer) - known > 20
    assert add_label_tokens(tokenizer, model) == 0

    ids = tokenizer(SCENE)['input_ids']
    assert tokenizer.decode(ids, skip_special_tokens=True) == SCENE
    told = [tokenizer.decode(token) for token in ids]
    assert told.count(' red tall object') == told.count(' blue flat object') == 1
    assert (
        tokenizer(' red tall objects')['input_ids'] != tokenizer(' red tall object')['input_ids']
    )
    # What has no label in it is said as before.
    after = model(plain).logits
    assert torch.allclose(after[..., :known], before)
    label = model.get_input_embeddings().weight[tokenizer(' red tall object')['input_ids']]
    words = model.get_input_embeddings().weight[red + tall]
    assert torch.allclose(label[0], words.mean(0))

    model.save_pretrained(tmp_path)
    loaded = AutoModelForCausalLM.from_pretrained(tmp_path)
    assert torch.allclose(loaded(plain).logits, after)
