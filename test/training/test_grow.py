# SPDX-License-Identifier: Apache-2.0
"""A model that grows says at first what it said before."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

pytest.importorskip('torch')
pytest.importorskip('transformers')

import torch
from transformers import AutoModelForCausalLM

from training.tiny.grow import (
    add_layers,
    add_number_tokens,
    add_words,
    frequent_words,
    number_groups,
)
from training.tiny.model import build_model, NanoSize, train_tokenizer

if TYPE_CHECKING:
    from pathlib import Path

TEXTS = ['turn left turn right', 'turn left and left'] * 5


def test_more_layers_change_nothing_until_they_learn(tmp_path: Path) -> None:
    tokenizer = train_tokenizer(TEXTS, 280)
    model = build_model(NanoSize(hidden_size=24, layers=3), tokenizer).eval()
    ids = torch.tensor([tokenizer(TEXTS[0])['input_ids']])
    before = model(ids).logits
    grown = add_layers(model, 2)
    assert len(grown.model.layers) == grown.config.num_hidden_layers == 5
    assert torch.allclose(grown(ids).logits, before, atol=1e-5)
    grown.save_pretrained(tmp_path)
    loaded = AutoModelForCausalLM.from_pretrained(tmp_path)
    assert torch.allclose(loaded(ids).logits, before, atol=1e-5)
    # Step by step, with a cache, too.
    assert grown.generate(ids, max_new_tokens=3, do_sample=False).shape[1] <= ids.shape[1] + 3
    loss = loaded(ids, labels=ids).loss
    loss.backward()
    outputs = [layer.mlp.down_proj.weight for layer in loaded.model.layers]
    assert all(weight.grad.abs().sum() > 0 for weight in outputs)
    assert sum(bool(weight.abs().sum() == 0) for weight in outputs) == 2


def test_words_that_cost_the_most_become_tokens() -> None:
    tokenizer = train_tokenizer(TEXTS, 280)
    texts = ['Seen: the refrigerator', 'A refrigerator stands there. Seen:', 'turn left']
    words = frequent_words(texts, tokenizer, 2)
    assert words[0] == ' refrigerator'
    assert ' turn' not in words
    model = build_model(NanoSize(hidden_size=24, layers=1), tokenizer)
    parts = tokenizer(' refrigerator')['input_ids']
    means = model.get_input_embeddings().weight[parts].mean(0).detach()
    add_words(tokenizer, model, words)
    [token] = tokenizer(' refrigerator')['input_ids']
    assert torch.allclose(model.get_input_embeddings().weight[token], means)
    text = 'the refrigerators, Seen: a refrigerator'
    assert tokenizer.decode(tokenizer(text)['input_ids']) == text


def test_numbers_are_one_token_each_and_near_their_neighbours() -> None:
    tokenizer = train_tokenizer(TEXTS, 280)
    model = build_model(NanoSize(hidden_size=192, layers=1), tokenizer)
    groups = number_groups()
    assert add_number_tokens(tokenizer, model) == sum(map(len, groups.values()))
    assert add_number_tokens(tokenizer, model) == 0
    text = 'From sofa: chair 1.5m at 350°; 12m 30° to the left; came 21st; reached 3rd; 0.12 m.'
    ids = tokenizer(text)['input_ids']
    assert tokenizer.decode(ids) == text
    assert sum(number >= len(tokenizer) - sum(map(len, groups.values())) for number in ids) == 6
    weight = model.get_input_embeddings().weight.detach()

    def alike(a: str, b: str) -> float:
        [x], [y] = tokenizer(a)['input_ids'], tokenizer(b)['input_ids']
        return float(torch.dist(weight[x], weight[y]))

    assert alike(' at 350°', ' at 0°') < alike(' at 350°', ' at 180°')
    assert alike(' 1.5m', ' 1.6m') < alike(' 1.5m', ' 9.0m')
    assert alike(' 10° to the left', ' 10° to the right') < alike(
        ' 10° to the left', ' 120° to the right'
    )
