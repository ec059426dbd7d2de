# SPDX-License-Identifier: Apache-2.0
"""A model that grows says at first what it said before."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

pytest.importorskip('torch')
pytest.importorskip('transformers')

import torch
from transformers import AutoModelForCausalLM

from training.tiny.exercises import sum_examples
from training.tiny.grow import add_words, deepened, frequent_words
from training.tiny.model import build_model, NanoSize, train_tokenizer

if TYPE_CHECKING:
    from pathlib import Path

TEXTS = ['turn left turn right', 'turn left and left'] * 5


def test_more_layers_change_nothing_until_they_learn(tmp_path: Path) -> None:
    tokenizer = train_tokenizer(TEXTS, 280)
    model = build_model(NanoSize(hidden_size=24, layers=3), tokenizer).eval()
    ids = torch.tensor([tokenizer(TEXTS[0])['input_ids']])
    before = model(ids).logits
    grown = deepened(model, 2)
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


def test_sums_are_right() -> None:
    kinds = set()
    for example in sum_examples(200, 0):
        question, _, asked = example['prompt'][0]['content'].partition(': ')
        kinds.add(question)
        solved = example['completion'][0]['content'].strip().removesuffix(';').split('; ')
        assert [each.split(': ')[0] for each in solved] == asked.split('; ')
        for each in solved:
            left, _, right = each.partition(': ')
            a, b = map(float, left.split(' to '))
            if question == 'Times':
                assert float(right) == pytest.approx(a - b)
            else:
                turn, word = right.split(', ')
                assert int(turn) == (b - a) % 360
                if question == 'Turns, as quadrants' and int(turn) not in (0, 90, 180, 270):
                    names = ('front-left', 'back-left', 'back-right', 'front-right')
                    assert word == names[int(turn) // 90]
    assert len(kinds) == 5
